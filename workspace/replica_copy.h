// A copy of the database in a copy of the store elsewhere, with what belongs to it: which packs of
// which tree, and which archives. It is published when all of that is durable there. The file is a
// zstd frame with its SHA-256 (archive_zstd.h): a line, the length of the manifest and the
// manifest, the length of the database and the database.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "workspace/replica_directory.h"

namespace moorage::workspace {

// The packs of one tree: "ly_5", "ws_3", "repo_1", "home".
struct ReplicaSeries {
  uint64_t first = 0;  // a whole one
  uint64_t last = 0;   // 0: none yet
  uint64_t whole_bytes = 0;
  uint64_t more_bytes = 0;
  std::string mark;  // of a tree that is not written: as long as it is the same; else empty
  friend bool operator==(const ReplicaSeries&, const ReplicaSeries&) = default;
};

struct ReplicaManifest {
  std::string owner;  // as of the directory
  int64_t wall_ms = 0;
  uint32_t first_id = 0;  // of owners on disk
  std::map<std::string, ReplicaSeries> series;
  std::set<std::string> archives;  // names of files
};

// What is copied of a mirror: objects and references, no more. What else is in one is made anew,
// and nothing that git would obey comes back from elsewhere.
bool is_mirror_path(std::string_view path);

std::string write_manifest_text(const ReplicaManifest& manifest);
ReplicaManifest parse_manifest_text(std::string_view text);  // corrupted

std::string copy_name(uint64_t number);  // "000000000012.copy"
std::optional<uint64_t> copy_number(std::string_view name);

// Durable when it returns.
void write_copy(const ReplicaDirectory& directory, uint64_t number, const ReplicaManifest& manifest,
                std::string_view database);
// Verified before it is looked into. `database` gets the bytes in pieces; empty: they are passed
// over. corrupted.
ReplicaManifest read_copy(const base::Fd& file,
                          const std::function<void(std::string_view)>& database);

}  // namespace moorage::workspace
