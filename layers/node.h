// A node of a tree on disk: what a copy keeps, and what both formats of packs store.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/os/fd.h"

namespace moorage::layers {

// Both formats depend on the numbers, and have none for devices.
enum class NodeType : uint8_t {
  file,
  directory,
  symlink,
  hard_link,
  fifo,
  socket,
  whiteout,
  character_device,
  block_device
};

using Attributes = std::map<std::string, std::string>;

struct Node {
  std::string path;  // in its tree
  NodeType type = NodeType::file;
  uint32_t mode = 0600;  // permission bits, setuid, setgid, sticky
  uint32_t uid = 0;
  uint32_t gid = 0;
  timespec atime{0, UTIME_OMIT};
  timespec mtime{};
  dev_t device = 0;
  uint64_t size = 0;   // of a file
  std::string target;  // of a symlink; for a hard link a path in the same tree
  Attributes attributes;
};

// Without target and attributes; atime stays omitted.
Node node_of(const struct stat& status, std::string path = {});
bool is_device(const struct stat& status);  // not for a whiteout
// A link in a directory, or itself open with O_PATH (no name). nullopt with errno.
std::optional<std::string> try_read_link(int directory, const std::string& name);
std::string read_link(int link);  // open with O_PATH

struct Extent {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};
// The first data of a file at or after `at` and before `size`; none if it became shorter.
std::optional<Extent> next_data(int file, uint64_t at, uint64_t size);

// Makes anything but a file, directory or hard link; complete_node() follows. Opens it with O_PATH.
// Empty with errno.
Fd make_node(int directory, const std::string& name, const Node& node);

// Sets the owner (ids plus first_id), attributes, mode and times of a node just made. In this
// order: chown clears setuid bits and capabilities, and the mask of an access list is the mode's
// group bits.
struct Completion {
  std::string what;                             // for messages: "a copy"
  std::function<void()> write_attributes = {};  // default: the node's, unchanged
  uint32_t first_id = 0;
  bool keep_owner = false;  // where this process cannot set another one
};
void complete_node(int fd, const Node& node, const Completion& completion);

}  // namespace moorage::layers
