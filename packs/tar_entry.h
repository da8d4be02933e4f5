// One entry of an archive (docs/decisions/0310-archive-format.md), shared by writer and reader.
// Paths are raw bytes, relative, without "." or ".." and without leading or trailing slashes: the
// reader refuses others. Owners are ids inside a sandbox, never those of a host.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest.h"
#include "layers/node.h"

namespace moorage::packs {

inline constexpr std::string_view kManifestPath = "manifest.json";
inline constexpr std::string_view kRefsPath = "git/refs";
inline constexpr std::string_view kPackPath = "git/pack";
inline constexpr std::string_view kExecsPath = "execs.jsonl";
inline constexpr std::string_view kIndexPath = "index.jsonl";

// Attributes of our own for properties that tar cannot express: no file system has names like
// these, so they never clash with a file's own.
inline constexpr std::string_view kTypeMark = "moorage.type";
inline constexpr std::string_view kSocketMark = "socket";
inline constexpr std::string_view kWhiteoutMark = "whiteout";
inline constexpr std::string_view kOpaqueMark = "moorage.opaque";

using layers::Extent;
using layers::NodeType;

// Attributes are in the form of attributes.h; a hard link's target is an earlier entry.
struct ArchiveEntry : layers::Node {
  bool opaque = false;  // an overlay directory that hides the one below
  // For the writer: the data ranges of a file with holes, ascending and not adjacent.
  bool sparse = false;
  std::vector<Extent> extents = {};
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
