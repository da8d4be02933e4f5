// A copy of the database in the replica, with its manifest: which packs of which tree and which
// archives belong to it. It is published after all of those are durable. The file is a zstd frame
// with its SHA-256 (packs/zstd_frame.h): a line, the length of the manifest and the manifest, the
// length of the database and the database.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/os/fd.h"
#include "workspace/replica/directory.h"

namespace moorage::workspace {

// The packs of one tree: "ly_5", "ws_3", "repo_1", "home".
struct ReplicaSeries {
  uint64_t first = 0;  // number of a whole pack
  uint64_t last = 0;   // 0: none yet
  uint64_t whole_bytes = 0;
  uint64_t more_bytes = 0;
  std::string mark;  // unchanged while its tree is unchanged; empty for a tree under writers
  friend bool operator==(const ReplicaSeries&, const ReplicaSeries&) = default;
};

struct ReplicaManifest {
  std::string owner;  // the same as the directory's
  int64_t wall_ms = 0;
  uint32_t first_id = 0;  // of the owner ids on disk
  std::map<std::string, ReplicaSeries> series;
  std::set<std::string> archives;  // names of files
};

// Only objects and references of a mirror are copied. Everything else is recreated, so no file that
// git obeys, such as a hook or its configuration, ever comes back from the replica.
bool is_mirror_path(std::string_view path);

std::string write_manifest_text(const ReplicaManifest& manifest);
ReplicaManifest parse_manifest_text(std::string_view text);  // corrupted

std::string copy_name(uint64_t number);  // "000000000012.copy"
std::optional<uint64_t> copy_number(std::string_view name);

// Durable when it returns.
void write_copy(const ReplicaDirectory& directory, uint64_t number, const ReplicaManifest& manifest,
                std::string_view database);
// Of an archive. Returns the SHA-256 of this many bytes, in hex; `sink` may be empty.
std::string sha256_of(const base::Fd& file, uint64_t bytes,
                      const std::function<void(std::string_view)>& sink);
// Verifies the file before parsing it. `database` gets the bytes in pieces; without it they are
// skipped. Throws corrupted.
ReplicaManifest read_copy(const base::Fd& file,
                          const std::function<void(std::string_view)>& database);

}  // namespace moorage::workspace
