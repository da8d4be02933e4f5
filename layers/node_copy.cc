#include "layers/node_copy.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/os/fd.h"
#include "base/os/open_beneath.h"

namespace moorage::layers {
namespace {

using base::Fd;

constexpr size_t kMaxAttributeBytes = 64 << 10;  // the kernel's limit for a value and for all names
constexpr size_t kPieceBytes = 1 << 20;

std::string shown(const std::string& name) { return base::escape_for_message(name); }

std::string proc_path(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

std::array<timespec, 2> times_of(const struct stat& status) {
  return {status.st_atim, status.st_mtim};
}

std::set<std::string> attribute_names(const std::string& path) {
  std::string names(kMaxAttributeBytes, '\0');
  const ssize_t length = listxattr(path.c_str(), names.data(), names.size());
  base::check(length, "list attributes");
  std::set<std::string> all;
  for (const char* name = names.data(); name < names.data() + length; name += strlen(name) + 1) {
    all.insert(name);
  }
  return all;
}

void copy_attributes(int from, int to) {
  const std::string source = proc_path(from);
  const std::string target = proc_path(to);
  std::set<std::string> stale = attribute_names(target);
  std::vector<char> value(kMaxAttributeBytes);
  for (const std::string& name : attribute_names(source)) {
    const ssize_t size = getxattr(source.c_str(), name.c_str(), value.data(), value.size());
    if (size < 0 && errno == ENODATA) continue;  // removed since the listing
    base::check(size, "read attribute " + shown(name));
    base::check(setxattr(target.c_str(), name.c_str(), value.data(), static_cast<size_t>(size), 0),
                "write attribute " + shown(name));
    stale.erase(name);
  }
  for (const std::string& name : stale) {
    if (removexattr(target.c_str(), name.c_str()) < 0 && errno != ENODATA)
      base::throw_errno("remove attribute " + shown(name));
  }
}

// Copies `length` bytes from `at`, or up to the end; returns the end position. copy_file_range
// would share contents where FICLONE does, and refuses to copy between file systems.
off_t copy_piece(int from, int to, off_t at, off_t length) {
  base::check(lseek(to, at, SEEK_SET), "write a file");
  while (length > 0) {
    const ssize_t copied =
        sendfile(to, from, &at, std::min<size_t>(static_cast<size_t>(length), kPieceBytes));
    base::check(copied, "copy a file");
    if (copied == 0) break;  // truncated meanwhile
    length -= copied;
  }
  return at;
}

// Returns the bytes of data. If the file changes meanwhile, the copy's contents are undefined.
uint64_t copy_contents(int from, int to, off_t size, off_t copied_bytes) {
  if (size == 0) return 0;
  if (size > copied_bytes && ioctl(to, FICLONE, from) == 0) return static_cast<uint64_t>(size);
  uint64_t bytes = 0;
  off_t end_of_copy = 0;
  for (off_t at = 0; at < size;) {
    const off_t data = lseek(from, at, SEEK_DATA);
    if (data < 0 && errno == ENXIO) break;  // a hole up to the end
    base::check(data, "find data of a file");
    const off_t end = lseek(from, data, SEEK_HOLE);
    if (end < 0 && errno == ENXIO) break;  // truncated meanwhile
    const off_t hole = std::min(base::check(end, "find a hole"), size);
    if (hole <= data) break;
    end_of_copy = copy_piece(from, to, data, hole - data);
    bytes += static_cast<uint64_t>(hole - data);
    at = hole;
  }
  // Only if needed: on XFS, ftruncate first flushes unwritten data to disk.
  if (end_of_copy != size) base::check(ftruncate(to, size), "set the size of a file");
  return bytes;
}

// The owner comes first: chown clears setuid bits and capabilities. Times come last.
void give(int from, int to, const struct stat& status) {
  base::check(fchown(to, status.st_uid, status.st_gid), "change the owner of a copy");
  copy_attributes(from, to);
  base::check(fchmod(to, status.st_mode & 07777), "set the mode of a copy");
  base::check(futimens(to, times_of(status).data()), "set the times of a copy");
}

// The file is gone, or has become another kind of file.
bool changed_kind() { return errno == ENOENT || errno == ELOOP || errno == ENXIO; }

std::optional<MadeNode> copy_file(const NodeName& node) {
  const Fd from = base::try_open_beneath(node.from, node.name, O_RDONLY | O_NOATIME);
  if (!from && changed_kind()) return std::nullopt;
  base::check(from.get(), "open " + shown(node.name));
  MadeNode made;
  base::check(fstat(from.get(), &made.status), "stat " + shown(node.name));
  if (!S_ISREG(made.status.st_mode)) return std::nullopt;
  const Fd to = base::try_open_beneath(node.to, node.new_name, O_WRONLY | O_CREAT | O_EXCL, 0600);
  base::check(to.get(), "make a copy of " + shown(node.name));
  made.bytes = copy_contents(from.get(), to.get(), made.status.st_size, node.copied_bytes);
  give(from.get(), to.get(), made.status);
  return made;
}

std::string read_link(int link) {
  std::string target(PATH_MAX, '\0');
  const ssize_t length = readlinkat(link, "", target.data(), target.size());
  base::check(length, "read a link");
  target.resize(static_cast<size_t>(length));
  return target;
}

}  // namespace

std::optional<MadeNode> copy_node(const NodeName& node) {
  const char* name = node.new_name.c_str();
  const Fd from = base::try_open_beneath(node.from, node.name, O_PATH);
  if (!from && changed_kind()) return std::nullopt;
  base::check(from.get(), "open " + shown(node.name));
  MadeNode made;
  base::check(fstat(from.get(), &made.status), "stat " + shown(node.name));
  const mode_t mode = made.status.st_mode;
  if (S_ISREG(mode)) return copy_file(node);
  if (S_ISDIR(mode)) return std::nullopt;
  const std::string what = "make a copy of " + shown(node.name);
  if (S_ISLNK(mode)) {
    base::check(symlinkat(read_link(from.get()).c_str(), node.to, name), what);
  } else {
    base::check(mknodat(node.to, name, (mode & S_IFMT) | 0600, made.status.st_rdev), what);
  }
  const Fd to = base::try_open_beneath(node.to, name, O_PATH);
  base::check(to.get(), what);
  base::check(fchownat(to.get(), "", made.status.st_uid, made.status.st_gid, AT_EMPTY_PATH), what);
  copy_attributes(from.get(), to.get());
  if (!S_ISLNK(mode)) base::check(fchmodat(node.to, name, mode & 07777, 0), what);
  base::check(utimensat(node.to, name, times_of(made.status).data(), AT_SYMLINK_NOFOLLOW), what);
  return made;
}

void copy_directory_attributes(int from, int to, const struct stat& status) {
  give(from, to, status);
}

}  // namespace moorage::layers
