// One thing of a stranger's tree (file, link, fifo, whiteout) made anew in a directory of ours,
// with owner, mode, attributes and times: overlay's marks are attributes, and belong to it.
// Contents are shared with the source where the file system can, else copied without their holes.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>

namespace moorage::workspace {

struct NodeName {
  int from = -1;  // descriptors of the two directories
  int to = -1;
  std::string name;
  std::string new_name;  // not there yet
  // Contents up to so many bytes are copied where they could be shared: XFS first writes to the
  // disk what it is to share.
  off_t copied_bytes = 0;
};

struct MadeNode {
  struct stat status {};  // of the source, from before its contents were read
  uint64_t bytes = 0;     // of contents, copied or shared
};

// Empty: it vanished, or became something else meanwhile, and nothing was made. Not for
// directories.
std::optional<MadeNode> copy_node(const NodeName& node);
// Of an open directory, onto one of ours: attributes that it no longer has go.
void copy_directory_attributes(int from, int to, const struct stat& status);

}  // namespace moorage::workspace
