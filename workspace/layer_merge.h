// Makes one frozen layer out of several that lie on each other: over the same base the kernel shows
// the same tree through it. Files are second names of the frozen layers' files, so that neither
// their size nor their number of bytes counts; where the file system cannot do that (other
// subvolume, other quota) they are copied, shared if it can. A directory that was renamed out of
// the base stays a redirect into it, now to where the base has it: the result means nothing over
// another base. Directories are gone through by descriptors and one name at a time (merge_stack.h):
// neither the length of a path nor the number of names is bounded, and memory does not grow with
// them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moorage::workspace {

struct MergeParts {
  std::vector<std::string> uppers;       // newest first: layers/ly_7/tree/upper
  std::string base;                      // the lowest directory; empty: none
  std::string merged;                    // empty directory: layers/ly_9/tree/upper
  std::string work;                      // another one there, empty before and after: .../tree/work
  std::vector<std::string> deltas = {};  // on the base, nearest first
};

struct MergeResult {
  uint64_t entries = 0;
  uint64_t copied_files = 0;  // that could not be linked
};

// resource_exhausted: directories are nested deeper than merge_stack.h goes. conflict: somebody
// wrote into the layers.
MergeResult merge_layers(const MergeParts& parts);

}  // namespace moorage::workspace
