#include "base/os/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>

#include "base/error.h"

namespace moorage::base {
namespace {

// Names take memory, and an agent may create millions of them in a directory.
constexpr uint64_t kMaxListBytes = 96 << 20;

std::function<void(const std::string&)>& failed_sync_handler() {
  static std::function<void(const std::string&)> handler;
  return handler;
}

// Whatever errno says (even a late ENOSPC): after a failed fsync the bytes may be gone. The kernel
// reports it once and the next fsync succeeds, so do not trust that one.
void sync_or_throw(int result, const std::string& path) {
  if (result == 0) return;
  int error_number = errno;
  const bool disk_failed =
      error_number != ENOSPC && error_number != EDQUOT && error_number != EINVAL;
  if (disk_failed && failed_sync_handler()) {
    failed_sync_handler()("cannot sync " + path + ": " + strerrordesc_np(error_number));
  }
  throw Error(Code::io, "cannot sync " + path + ": " + strerrordesc_np(error_number),
              "check the disk and the kernel log; the data being saved may be lost");
}

}  // namespace

Fd open_file(const std::string& path, int flags, mode_t mode) {
  return open_file_at(AT_FDCWD, path, flags, mode);
}

Fd open_file_at(int dir, const std::string& path, int flags, mode_t mode) {
  for (;;) {
    int fd = openat(dir, path.c_str(), flags | O_CLOEXEC, mode);
    if (fd >= 0) return Fd(fd);
    if (errno == EEXIST) throw Error(Code::already_exists, path + " already exists");
    if (errno != EINTR) throw_errno("open " + path);
  }
}

Fd open_directory(const std::string& path) { return open_file(path, O_RDONLY | O_DIRECTORY); }

std::string read_file(const std::string& path, uint64_t max_bytes) {
  Fd fd = open_file(path, O_RDONLY);
  std::string bytes;
  try {
    bytes = read_up_to(fd.get(), max_bytes + 1);
  } catch (Error& error) {
    throw error.add_context(path);
  }
  if (bytes.size() > max_bytes) {
    throw Error(Code::resource_exhausted,
                path + " is larger than " + std::to_string(max_bytes) + " bytes");
  }
  return bytes;
}

std::optional<std::string> read_file_if_exists(const std::string& path, uint64_t max_bytes) {
  try {
    return read_file(path, max_bytes);
  } catch (const Error& error) {
    if (error.code() == Code::not_found) return std::nullopt;
    throw;
  }
}

bool path_exists(const std::string& path) {
  struct stat status;
  if (lstat(path.c_str(), &status) == 0) return true;
  if (errno != ENOENT && errno != ENOTDIR) throw_errno("inspect " + path);
  return false;
}

void make_directories(const std::string& path, mode_t mode) {
  for (size_t end = 0; end != std::string::npos;) {
    end = path.find('/', end + 1);
    std::string part = path.substr(0, end);
    if (mkdir(part.c_str(), mode) == 0) {
      check(chmod(part.c_str(), mode), "set the mode of " + part);  // regardless of the umask
      continue;
    }
    int error_number = errno;
    struct stat status;
    // A read-only parent reports EROFS for an existing directory; only a missing one is an error.
    if (stat(part.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) continue;
    throw_errno("create directory " + part, error_number == EEXIST ? ENOTDIR : error_number);
  }
}

void on_failed_sync(std::function<void(const std::string& what)> handler) {
  failed_sync_handler() = std::move(handler);
}

void sync_file(int fd, const std::string& what) { sync_or_throw(fsync(fd), what); }

void sync_directory(const std::string& path) {
  sync_or_throw(fsync(open_directory(path).get()), path);
}

bool lock_file(int fd, const std::string& what) {
  constexpr std::chrono::milliseconds kDyingOwner{1'000};
  constexpr std::chrono::milliseconds kPause{10};
  const auto until = std::chrono::steady_clock::now() + kDyingOwner;
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) throw_errno("lock " + what);
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

void sync_elsewhere(int fd, const std::string& what) {
  if (fsync(fd) < 0) throw_errno("sync " + what);
}

void sync_file_system(const std::string& path) {
  sync_or_throw(syncfs(open_file(path, O_RDONLY | O_NONBLOCK).get()), path);
}

void rename_into_place(const std::string& from, const std::string& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
  if (errno == EEXIST) throw Error(Code::already_exists, to + " already exists");
  throw_errno("rename " + from + " to " + to);
}

std::vector<std::string> list_directory(const std::string& path) {
  return list_directory(open_directory(path).get());
}

std::vector<std::string> list_directory_if_exists(const std::string& path) {
  return path_exists(path) ? list_directory(path) : std::vector<std::string>{};
}

std::vector<std::string> list_directory(int dir_fd) {
  // Opened again: it gets its own offset, and dir_fd may be O_PATH.
  Fd own = open_file_at(dir_fd, ".", O_RDONLY | O_DIRECTORY);
  std::unique_ptr<DIR, int (*)(DIR*)> stream(fdopendir(own.get()), closedir);
  if (!stream) throw_errno("list a directory");
  own.release();
  std::vector<std::string> names;
  uint64_t bytes = 0;
  for (;;) {
    errno = 0;
    dirent* entry = readdir(stream.get());
    if (!entry) break;
    std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    bytes += sizeof(std::string) + name.size();
    if (bytes > kMaxListBytes) {
      throw Error(Code::resource_exhausted, "a directory has too many names to list: more than " +
                                                std::to_string(names.size()));
    }
    names.emplace_back(name);
  }
  if (errno != 0) throw_errno("list a directory");
  std::sort(names.begin(), names.end());
  return names;
}

bool set_append_only(int fd, bool on) {
  int flags = 0;
  int result = ioctl(fd, FS_IOC_GETFLAGS, &flags);
  if (result == 0) {
    // An immutable file also rejects appends: clear both flags together.
    const int wanted = on ? flags | FS_APPEND_FL : flags & ~(FS_APPEND_FL | FS_IMMUTABLE_FL);
    if (wanted == flags) return true;
    result = ioctl(fd, FS_IOC_SETFLAGS, &wanted);
  }
  if (result == 0) return true;
  if (errno == ENOTTY || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL) return false;
  throw_errno("make a file append-only");
}

Space file_system_space(const std::string& path) {
  struct statvfs status;
  check(statvfs(path.c_str(), &status), "get the free space of " + path);
  return {status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize, status.f_files,
          status.f_ffree};
}

}  // namespace moorage::base
