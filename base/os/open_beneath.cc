#include "base/os/open_beneath.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"

namespace moorage::base {
namespace {

// openat2 returns EAGAIN when a rename raced with the path; an agent that renames in a loop must
// not block us.
constexpr int kMaxTries = 100;

[[noreturn]] void throw_open_error(const std::string& path, int error_number) {
  const std::string what = "open " + escape_for_message(path);
  switch (error_number) {
    case EEXIST:
      throw Error(Code::already_exists, "cannot " + what + ": it already exists");
    case EAGAIN:
      throw Error(Code::conflict, "cannot " + what + ": the tree keeps changing", "try again");
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

[[noreturn]] void throw_beneath_error(const std::string& path, int error_number) {
  const std::string what = "cannot open " + escape_for_message(path);
  if (error_number == ELOOP)
    throw Error(Code::invalid_argument, what + ": the path contains a symbolic link");
  if (error_number == EXDEV)
    throw Error(Code::invalid_argument, what + ": the path leads out of the tree");
  if (error_number == EINVAL) throw Error(Code::invalid_argument, what + ": not a regular file");
  throw_open_error(path, error_number);
}

Fd try_open(int directory, const char* path, int flags, mode_t mode, uint64_t resolve) {
  // openat2 rejects O_PATH combined with flags for reading and writing.
  const int guards = (flags & O_PATH) ? O_CLOEXEC : O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  open_how how{};
  how.flags = static_cast<uint64_t>(static_cast<unsigned>(flags | guards));
  how.mode = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? mode & 07777 : 0;
  how.resolve = resolve | RESOLVE_NO_MAGICLINKS;
  for (int i = 0; i < kMaxTries; ++i) {
    const long fd = syscall(SYS_openat2, directory, path, &how, sizeof how);
    if (fd >= 0) return Fd(static_cast<int>(fd));
    if (errno != EAGAIN && errno != EINTR) break;
  }
  return {};
}

Fd opened(Fd fd, const std::string& path) {
  if (!fd) throw_beneath_error(path, errno);
  return fd;
}

}  // namespace

Fd try_open_beneath(int directory, const std::string& path, int flags, mode_t mode) {
  assert(!(flags & O_TRUNC));
  assert(!(flags & O_CREAT) || (flags & O_EXCL));
  if (path.find('\0') != std::string::npos) {
    errno = ENOENT;
    return {};
  }
  return try_open(directory, path.empty() ? "." : path.c_str(), flags | O_NOFOLLOW, mode,
                  RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV);
}

Fd open_beneath(int directory, const std::string& path, int flags, mode_t mode) {
  return opened(try_open_beneath(directory, path, flags, mode), path);
}

Fd try_open_directory_beneath(int directory, const std::string& path) {
  return try_open_beneath(directory, path, O_RDONLY | O_DIRECTORY);
}

Fd open_directory_beneath(int directory, const std::string& path) {
  return opened(try_open_directory_beneath(directory, path), path);
}

Fd try_open_regular_beneath(int directory, const std::string& path, int flags) {
  Fd fd = try_open_beneath(directory, path, flags);
  struct stat status {};
  if (!fd) return fd;
  const bool regular = fstat(fd.get(), &status) == 0 && S_ISREG(status.st_mode);
  if (regular) return fd;
  fd.reset();
  errno = EINVAL;
  return fd;
}

Fd open_regular_beneath(int directory, const std::string& path, int flags) {
  return opened(try_open_regular_beneath(directory, path, flags), path);
}

bool directory_is_empty(const std::string& path) {
  std::unique_ptr<DIR, int (*)(DIR*)> stream(fdopendir(open_directory(path).release()), closedir);
  if (!stream) throw_errno("list " + path);
  constexpr int kAlways = 2;  // "." and ".."
  for (int seen = 0; seen <= kAlways; ++seen) {
    errno = 0;
    if (readdir(stream.get())) continue;
    if (errno != 0) throw_errno("list " + path);
    return true;
  }
  return false;
}

Fd try_open_parent(int directory, dev_t device, ino_t inode) {
  Fd up(openat(directory, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat status {};
  const bool expected =
      up && fstat(up.get(), &status) == 0 && status.st_dev == device && status.st_ino == inode;
  return expected ? std::move(up) : Fd();
}

Fd open_in_root(int root_fd, const std::string& path, int flags, mode_t mode) {
  if (path.find('\0') != std::string::npos)
    throw Error(Code::invalid_argument, "a path cannot contain a zero byte");
  const bool is_root = path.find_first_not_of('/') == std::string::npos;
  Fd fd = try_open(root_fd, is_root ? "." : path.c_str(), flags, mode, RESOLVE_IN_ROOT);
  if (!fd) throw_open_error(path, errno);
  return fd;
}

Fd open_regular_in_root(int root_fd, const std::string& path, int flags, mode_t mode) {
  Fd fd = open_in_root(root_fd, path, flags, mode);
  struct stat status;
  check(fstat(fd.get(), &status), "inspect " + path);
  if (!S_ISREG(status.st_mode))
    throw Error(Code::invalid_argument, path + " is not a regular file");
  return fd;
}

}  // namespace moorage::base
