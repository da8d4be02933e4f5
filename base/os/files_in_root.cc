// Guarded access to trees with untrusted contents (base/os/files.h): openat2(2) resolves every link
// and ".." inside the root, in the kernel, so nothing can change between check and open.
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"
#include "base/os/files.h"

namespace moorage::base {
namespace {

// openat2 returns EAGAIN when a rename anywhere raced with a ".." in the path (openat2(2)); an
// agent that renames in a loop must not block us without limit.
constexpr int kMaxTries = 100;

[[noreturn]] void throw_open_error(const std::string& path, int error_number) {
  std::string what = "open " + path;
  switch (error_number) {
    case EAGAIN:
      throw Error(Code::conflict, what + ": the tree keeps changing", "try again");
    case EEXIST:
      throw Error(Code::already_exists, what + ": it already exists");
    case ENOTDIR:
    case EISDIR:
    case ENXIO:
    case ENAMETOOLONG:
    case ELOOP:
      try {
        throw_errno(what, error_number);
      } catch (const Error& error) {
        throw Error(Code::invalid_argument, error.message());
      }
    default:
      throw_errno(what, error_number);
  }
}

}  // namespace

Fd open_in_root(int root_fd, const std::string& path, int flags, mode_t mode) {
  if (path.find('\0') != std::string::npos) {
    throw Error(Code::invalid_argument, "a path cannot contain a zero byte");
  }
  open_how how{};
  // openat2 rejects O_PATH combined with flags for reading and writing.
  int guards = (flags & O_PATH) ? O_CLOEXEC : O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  how.flags = static_cast<uint64_t>(static_cast<unsigned>(flags | guards));
  how.mode = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? mode & 07777 : 0;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  const char* inside = path.find_first_not_of('/') == std::string::npos ? "." : path.c_str();
  int error_number = EAGAIN;
  for (int i = 0; i < kMaxTries && (error_number == EAGAIN || error_number == EINTR); ++i) {
    long fd = syscall(SYS_openat2, root_fd, inside, &how, sizeof how);
    if (fd >= 0) return Fd(static_cast<int>(fd));
    error_number = errno;
  }
  throw_open_error(path, error_number);
}

Fd open_regular_in_root(int root_fd, const std::string& path, int flags, mode_t mode) {
  Fd fd = open_in_root(root_fd, path, flags, mode);
  struct stat status;
  check(fstat(fd.get(), &status), "inspect " + path);
  if (!S_ISREG(status.st_mode)) {
    throw Error(Code::invalid_argument, path + " is not a regular file");
  }
  return fd;
}

}  // namespace moorage::base
