// The directories of a sandbox that delta packs describe by their merged view: paths "tree/..." and
// "home/...", owners as inside, no overlay marks. So the two sides of a remote sandbox need not use
// overlays of the same kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moorage::packs {

// Owner ids in a merged directory: inside id N is first_id + N.
struct InsideOwners {
  uint32_t first_id = 0;
  uint32_t ids = 65536;
  // Where this process cannot set or see other owners: every entry belongs to this inside id.
  std::optional<uint32_t> only = {};
};

// The caller keeps the descriptors open. They must be readable (without O_PATH).
struct MergedRoot {
  std::string prefix;        // "tree", "home"
  int merged = -1;           // what the sandbox sees: a mount's root, or a plain directory
  std::vector<int> uppers;   // upper directories, newest first; empty: a plain tree, no overlay
  InsideOwners owners = {};  // in `merged`
};

// Deeper and longer paths are left out by the finder and refused by the applier.
inline constexpr size_t kMaxMergedDepth = 900;
inline constexpr size_t kMaxMergedPathBytes = 64 << 10;

}  // namespace moorage::packs
