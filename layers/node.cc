#include "layers/node.h"

#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <utility>

#include "base/error.h"
#include "base/os/open_beneath.h"
#include "base/os/xattr.h"

namespace moorage::layers {
namespace {

constexpr std::array<std::pair<NodeType, mode_t>, 8> kFormats{
    {{NodeType::file, S_IFREG},
     {NodeType::directory, S_IFDIR},
     {NodeType::symlink, S_IFLNK},
     {NodeType::fifo, S_IFIFO},
     {NodeType::socket, S_IFSOCK},
     {NodeType::character_device, S_IFCHR},
     {NodeType::whiteout, S_IFCHR},
     {NodeType::block_device, S_IFBLK}}};

NodeType type_of(const struct stat& status) {
  if (S_ISCHR(status.st_mode) && status.st_rdev == makedev(0, 0)) return NodeType::whiteout;
  return std::find_if(
             kFormats.begin(), kFormats.end(),
             [&](const auto& format) { return format.second == (status.st_mode & S_IFMT); })
      ->first;
}

mode_t format_of(NodeType type) {
  return std::find_if(kFormats.begin(), kFormats.end(),
                      [type](const auto& format) { return format.first == type; })
      ->second;
}

bool has_mode(int fd, mode_t mode) {
  struct stat status {};
  base::check(fstat(fd, &status), "inspect a node");
  return (status.st_mode & 07777) == mode;
}

}  // namespace

Node node_of(const struct stat& status, std::string path) {
  Node node;
  node.path = std::move(path);
  node.type = type_of(status);
  node.mode = status.st_mode & 07777;
  node.uid = status.st_uid;
  node.gid = status.st_gid;
  node.mtime = status.st_mtim;
  node.device = status.st_rdev;
  if (node.type == NodeType::file) node.size = static_cast<uint64_t>(status.st_size);
  return node;
}

bool is_device(const struct stat& status) {
  return S_ISBLK(status.st_mode) ||
         (S_ISCHR(status.st_mode) && type_of(status) != NodeType::whiteout);
}

std::optional<std::string> try_read_link(int directory, const std::string& name) {
  char target[PATH_MAX];
  const ssize_t size = readlinkat(directory, name.c_str(), target, sizeof target);
  if (size < 0) return std::nullopt;
  return std::string(target, static_cast<size_t>(size));
}

std::string read_link(int link) {
  auto target = try_read_link(link, "");
  if (!target) base::throw_errno("read a link");
  return *std::move(target);
}

std::optional<Extent> next_data(int file, uint64_t at, uint64_t size) {
  const off_t data = lseek(file, static_cast<off_t>(at), SEEK_DATA);
  if (data < 0 && errno == ENXIO) return std::nullopt;
  const off_t hole = lseek(file, base::check(data, "find a file's data"), SEEK_HOLE);
  if (hole < 0 && errno == ENXIO) return std::nullopt;
  const auto begin = static_cast<uint64_t>(data);
  const auto end = std::min(static_cast<uint64_t>(base::check(hole, "find a hole in it")), size);
  if (begin >= end) return std::nullopt;
  return Extent{begin, end - begin};
}

Fd make_node(int directory, const std::string& name, const Node& node) {
  const int made =
      node.type == NodeType::symlink
          ? symlinkat(node.target.c_str(), directory, name.c_str())
          : mknodat(directory, name.c_str(), format_of(node.type) | node.mode, node.device);
  return made < 0 ? Fd() : base::try_open_beneath(directory, name, O_PATH);
}

void complete_node(int fd, const Node& node, const Completion& completion) {
  const auto check = [&completion](int result, const char* step) {
    if (result < 0) base::throw_errno(step + completion.what);
  };
  if (!completion.keep_owner) {
    check(fchownat(fd, "", completion.first_id + node.uid, completion.first_id + node.gid,
                   AT_EMPTY_PATH),
          "change the owner of ");
  }
  try {
    if (completion.write_attributes) {
      completion.write_attributes();
    } else {
      for (const auto& [name, value] : node.attributes) base::write_attribute(fd, name, value);
    }
  } catch (Error& error) {
    throw error.add_context(completion.what);
  }
  // O_PATH; and /proc of a sandbox knows no process outside of it.
  const bool by_path = node.type != NodeType::file && node.type != NodeType::directory;
  if (node.type != NodeType::symlink && !(by_path && has_mode(fd, node.mode)))
    check(by_path ? chmod(base::proc_path(fd).c_str(), node.mode) : fchmod(fd, node.mode),
          "set the mode of ");
  const std::array<timespec, 2> times{node.atime, node.mtime};
  check(by_path ? utimensat(fd, "", times.data(), AT_EMPTY_PATH) : futimens(fd, times.data()),
        "set the times of ");
}

}  // namespace moorage::layers
