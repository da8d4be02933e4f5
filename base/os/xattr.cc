#include "base/os/xattr.h"

#include <linux/limits.h>
#include <sys/xattr.h>

#include <array>
#include <cerrno>

#include "base/error.h"
#include "base/log.h"
#include "base/os/fd.h"

namespace moorage::base {
namespace {

// The calls that take a descriptor reject one of O_PATH; its path in /proc is accepted.
template <typename ByFd, typename ByPath, typename... Arguments>
ssize_t call(ByFd by_fd, ByPath by_path, int fd, Arguments... arguments) {
  const ssize_t result = by_fd(fd, arguments...);
  if (result >= 0 || errno != EBADF) return result;
  return by_path(proc_path(fd).c_str(), arguments...);
}

ssize_t get(int fd, const std::string& name, char* value, size_t bytes) {
  return call(fgetxattr, getxattr, fd, name.c_str(), static_cast<void*>(value), bytes);
}

std::string shown(const std::string& name) { return escape_for_message(name); }

}  // namespace

std::vector<std::string> attribute_names(int fd) {
  std::array<char, 1024> few{};
  std::string many;
  const char* names = few.data();
  ssize_t length = call(flistxattr, listxattr, fd, few.data(), few.size());
  if (length < 0 && errno == ERANGE) {
    many.resize(XATTR_LIST_MAX);
    names = many.data();
    length = call(flistxattr, listxattr, fd, many.data(), many.size());
  }
  if (length < 0 && errno == EOPNOTSUPP) return {};
  check(length, "list attributes");
  std::vector<std::string> all;
  for (const char* name = names; name < names + length; name += all.back().size() + 1) {
    all.emplace_back(name);
  }
  return all;
}

std::optional<std::string> read_attribute(int fd, const std::string& name) {
  std::array<char, 256> small{};
  ssize_t size = get(fd, name, small.data(), small.size());
  if (size >= 0) return std::string(small.data(), static_cast<size_t>(size));
  if (errno == ERANGE) {
    std::string large(XATTR_SIZE_MAX, '\0');
    size = get(fd, name, large.data(), large.size());
    // A copy of the exact size: a file may have thousands, and the buffer takes 64 KiB.
    if (size >= 0) return large.substr(0, static_cast<size_t>(size));
  }
  if (errno == ENODATA || errno == EOPNOTSUPP) return std::nullopt;
  throw_errno("read attribute " + shown(name));
}

void write_attribute(int fd, const std::string& name, std::string_view value) {
  check(call(fsetxattr, setxattr, fd, name.c_str(), static_cast<const void*>(value.data()),
             value.size(), 0),
        "write attribute " + shown(name));
}

void remove_attribute(int fd, const std::string& name) {
  if (call(fremovexattr, removexattr, fd, name.c_str()) < 0 && errno != ENODATA)
    throw_errno("remove attribute " + shown(name));
}

}  // namespace moorage::base
