// Merges a stack of frozen layers into one: over the same base, the kernel shows the same tree
// through it. Its files are hard links to the frozen layers' files, so their size and number do not
// matter; where the file system cannot link (another subvolume, another quota) they are copied,
// with shared contents if possible. A directory renamed out of the base stays a redirect, now to
// its place in the base, so the result is invalid over another base. It walks directories by
// descriptor, one name at a time (merge_stack.h): path length and the number of names are
// unbounded, and memory does not grow with them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moorage::layers {

struct MergeParts {
  std::vector<std::string> uppers;       // newest first: layers/ly_7/tree/upper
  std::string base;                      // the lowest directory; empty: none
  std::string merged;                    // empty directory: layers/ly_9/tree/upper
  std::string work;                      // on the same file system, empty before and after
  std::vector<std::string> deltas = {};  // on the base, nearest first
};

struct MergeResult {
  uint64_t entries = 0;
  uint64_t copied_files = 0;  // could not be linked
};

// Throws resource_exhausted: directories are nested deeper than merge_stack.h allows; conflict:
// somebody wrote into the layers.
MergeResult merge_layers(const MergeParts& parts);

}  // namespace moorage::layers
