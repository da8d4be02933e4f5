// Files of our own store, and the guarded way into trees that strangers write.
// "durable" means: the bytes, then the name, are on disk when the call returns (fsync of the file,
// rename, fsync of the directory). A failed fsync throws Error(io): the caller must stop
// acknowledging.
#pragma once

#include <sys/stat.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"

namespace moorage::base {

Fd open_file(const std::string& path, int flags, mode_t mode = 0);  // adds O_CLOEXEC; throws
Fd open_file_at(int dir, const std::string& path, int flags, mode_t mode = 0);
Fd open_directory(const std::string& path);  // O_PATH is not set: can be fsynced and listed

std::string read_file(const std::string& path, uint64_t max_bytes = 64 << 20);
std::optional<std::string> read_file_if_exists(const std::string& path,
                                               uint64_t max_bytes = 64 << 20);

// A file beside its final place; removed again unless commit() gave it its name.
class NewFile {
 public:
  NewFile(const std::string& path, mode_t mode);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::string_view bytes);
  void sync();
  void commit();  // replaces what is there; the directory is not synced

 private:
  std::string path_;
  std::string temporary_;
  Fd fd_;
};

void write_file_durable(const std::string& path, std::string_view bytes, mode_t mode = 0600);
void write_file(const std::string& path, std::string_view bytes,
                mode_t mode = 0600);  // atomic, not synced

bool path_exists(const std::string& path);  // lstat
void make_directories(const std::string& path, mode_t mode = 0700);
// Each throws Error(io) when it fails, and first calls what `on_failed_sync` was given, unless only
// the room was missing: a daemon must end there. Nothing else in the product calls fsync.
void on_failed_sync(std::function<void(const std::string& what)> handler);  // before any thread
void sync_file(int fd, const std::string& what);
void sync_directory(const std::string& path);
// Of a file or directory that is no part of the store, such as a copy of it elsewhere: throws
// alike, and calls nobody. The store has nothing to fear from a disk that it does not lie on.
void sync_elsewhere(int fd, const std::string& what);
void sync_file_system(const std::string& path);  // syncfs
// flock(2), exclusive, for as long as the file is open. Tried for a second, as an owner that was
// killed holds on until the kernel has taken it apart. False: somebody has it.
bool lock_file(int fd, const std::string& what);
// Moves atomically within one file system; replaces nothing (RENAME_NOREPLACE).
void rename_into_place(const std::string& from, const std::string& to);

// Removes a tree without following links and without recursion (a stranger's tree may be thousands
// of directories deep); missing is fine. Clears the append-only flag where it stands in the way.
// Throws conflict, with a part removed, when something is mounted inside or still writes there.
void remove_tree(const std::string& path);
void remove_tree_at(int directory, const std::string& name);  // name: one part, no slash
// Bytes in use (st_blocks) and inodes of path and all below it; links are not followed, other
// mounts not entered, and a file with several names counts once. Beyond a limit the figures are
// lower bounds and `complete` is false: a directory that cannot be remembered is not entered, and a
// file of several names that cannot be counts with its share for each name. Throws conflict when
// directories are moved about under the walk, again and again.
struct Usage {
  uint64_t bytes = 0;
  uint64_t inodes = 0;
  bool complete = true;
};
struct UsageLimits {
  uint64_t max_memory_bytes = 32 << 20;  // directories still to visit, and files of several names
  std::chrono::milliseconds time{60'000};
};
Usage tree_usage(const std::string& path, const UsageLimits& limits = {});

std::vector<std::string> list_directory(
    const std::string& path);  // names, sorted, without . and ..
std::vector<std::string> list_directory(int dir_fd);

// Opens below root_fd and never leaves it: openat2 with RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
// O_NONBLOCK | O_NOCTTY added. "" and "/" mean the root itself. Throws not_found,
// permission_denied...
Fd open_in_root(int root_fd, const std::string& path, int flags, mode_t mode = 0);
// As above, but refuses (invalid_argument) what is not a regular file.
Fd open_regular_in_root(int root_fd, const std::string& path, int flags, mode_t mode = 0);

// Sets or clears the inode's append-only attribute (FS_APPEND_FL). False where the file system
// has none (tmpfs before 6.6, NFS).
bool set_append_only(int fd, bool on);

struct Space {
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;    // for ordinary users, as df tells it
  uint64_t total_inodes = 0;  // 0: made as they are needed (btrfs)
  uint64_t free_inodes = 0;
};
Space file_system_space(const std::string& path);

}  // namespace moorage::base
