// Copies one entry of an untrusted tree (file, link, fifo, whiteout) into a directory that we made,
// with owner, mode, attributes (which include overlay's marks) and times. Shares contents with the
// source if the file system can, otherwise copies them without holes.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>

namespace moorage::layers {

struct NodeName {
  int from = -1;  // descriptors of the two directories
  int to = -1;
  std::string name;
  std::string new_name;  // must not exist yet
  // Copy contents of up to this size even where they could be shared: XFS flushes contents to disk
  // before it shares them.
  off_t copied_bytes = 0;
};

struct MadeNode {
  struct stat status {};  // of the source, read before its contents
  uint64_t bytes = 0;     // of contents, copied or shared
};

// nullopt: the entry vanished or changed its kind meanwhile, and nothing was made. Not for
// directories.
std::optional<MadeNode> copy_node(const NodeName& node);
// Sets owner, mode, attributes and times of an open copy; removes attributes that the source no
// longer has.
void complete_copy(int from, int to, const struct stat& status);

}  // namespace moorage::layers
