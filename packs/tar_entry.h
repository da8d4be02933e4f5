// One entry of an archive (docs/decisions/0310-archive-format.md), shared by writer and reader.
// Paths are raw bytes, relative, without "." or ".." and without leading or trailing slashes: the
// reader refuses others. Owners are ids inside a sandbox, never those of a host.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"

namespace moorage::packs {

inline constexpr std::string_view kManifestPath = "manifest.json";
inline constexpr std::string_view kRefsPath = "git/refs";
inline constexpr std::string_view kPackPath = "git/pack";
inline constexpr std::string_view kExecsPath = "execs.jsonl";
inline constexpr std::string_view kIndexPath = "index.jsonl";

enum class EntryType : uint8_t { file, directory, symlink, hard_link, fifo, socket, whiteout };

struct Extent {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

struct ArchiveEntry {
  std::string path;
  EntryType type = EntryType::file;
  uint32_t mode = 0600;  // permission bits, setuid, setgid, sticky
  uint32_t uid = 0;
  uint32_t gid = 0;
  int64_t mtime_s = 0;
  uint32_t mtime_ns = 0;
  uint64_t size = 0;    // of a file
  std::string target;   // of a symlink; for a hard link the path of an earlier entry
  bool opaque = false;  // an overlay directory that hides the one below
  std::map<std::string, std::string> attributes;  // in the form of attributes.h
  // For the writer: the data ranges of a file with holes, ascending and not adjacent.
  bool sparse = false;
  std::vector<Extent> extents;
};

// The digest in the index: SHA-256 of the fields above that the archive stores, then of the
// content. For a hole only its position is hashed: its zeros are neither read nor hashed.
class EntryDigest {
 public:
  void begin(const ArchiveEntry& entry);
  void add(uint64_t offset, std::string_view bytes);  // ascending
  std::string raw() const { return digest_.raw(); }

 private:
  base::Sha256 digest_;
  uint64_t position_ = 0;
};

}  // namespace moorage::packs
