// The seal of a layer at rest: a hash over everything in its upper directories as one walk finds
// it. For each path: name, type, mode, owner; of files and devices size, mtime and ctime too; of
// links the target; of directories overlay's marks instead of times, as their times follow from
// their entries. No content is read: who changes a file changes its ctime, and that cannot be set.
// Inode numbers are not in it. A walk holds one descriptor, never follows a link, never enters a
// mount, and goes as deep as the tree does; its cost follows what the layer has, not the base tree:
// about 2 us a path, 1.5 of them the kernel's. On two cores a start with 2, 20,000 and 100,000 own
// files took 24, 67 and 219 ms, a stop 18, 118 and 490 ms.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace moorage::workspace {

struct SealLimits {
  uint64_t max_memory_bytes = 48 << 20;  // a directory with more names is listed several times
  uint64_t max_list_bytes = 16 << 20;    // of the list of paths; the rest is not in it
  std::chrono::milliseconds time{20'000};
};

struct Seal {
  std::string hash;    // 64 hex digits
  uint64_t paths = 0;  // below the upper directories
  uint64_t bytes = 0;  // on disk, of the whole layer; files with several names count once
  uint64_t files = 0;  // inodes, the same
  std::string list;    // per path: its name, NUL, a short hash, newline; for tell_differences
};

// `layer`: layers/ly_4. Nothing may write there meanwhile. not_found: a part of it is missing.
// conflict: it changes under the walk. resource_exhausted: beyond the limits.
enum class SealList : uint8_t { make, skip };  // skip: for who only compares the hash
Seal take_seal(const std::string& layer, const SealLimits& limits = {},
               SealList list = SealList::make);

struct Differences {
  uint64_t count = 0;
  std::vector<std::string> first;  // at most `shown`, as paths inside: /workspace/src/a.txt
};
Differences tell_differences(const std::string& before, const std::string& now, size_t shown = 3);

}  // namespace moorage::workspace
