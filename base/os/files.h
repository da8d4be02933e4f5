// Files of Moorage's own store, and guarded access to trees with untrusted contents. "durable"
// means: the bytes, then the name, are on disk when the call returns (fsync of the file, rename,
// fsync of the directory). A failed fsync throws Error(io): the caller must stop acknowledging.
#pragma once

#include <sys/stat.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/fd.h"

namespace moorage::base {

Fd open_file(const std::string& path, int flags, mode_t mode = 0);  // adds O_CLOEXEC; throws
Fd open_file_at(int dir, const std::string& path, int flags, mode_t mode = 0);
Fd open_directory(const std::string& path);  // without O_PATH: can be fsynced and listed

std::string read_file(const std::string& path, uint64_t max_bytes = 64 << 20);
std::optional<std::string> read_file_if_exists(const std::string& path,
                                               uint64_t max_bytes = 64 << 20);

void write_file_durable(const std::string& path, std::string_view bytes, mode_t mode = 0600);
void write_file(const std::string& path, std::string_view bytes,
                mode_t mode = 0600);  // atomic, not synced

bool path_exists(const std::string& path);  // lstat
void make_directories(const std::string& path, mode_t mode = 0700);
// Each throws Error(io) on failure. Unless the cause is only a full disk, each first calls the
// handler given to `on_failed_sync`: a daemon must exit there. No other product code calls fsync.
void on_failed_sync(std::function<void(const std::string& what)> handler);  // before threads start
void sync_file(int fd, const std::string& what);
void sync_directory(const std::string& path);
// For a file or directory outside the store, such as a copy elsewhere: throws the same error but
// skips the handler. A failure of another disk does not endanger the store.
void sync_elsewhere(int fd, const std::string& what);
void sync_file_system(const std::string& path);  // syncfs
// flock(2), exclusive, as long as the file is open. Tries for a second, because a killed owner
// keeps the lock until the kernel has cleaned it up. False: another process holds it.
bool lock_file(int fd, const std::string& what);
// Moves atomically within one file system; replaces nothing (RENAME_NOREPLACE).
void rename_into_place(const std::string& from, const std::string& to);

// Removes a tree without following links and without recursion (an untrusted tree may be thousands
// of directories deep). A missing tree is fine. Clears append-only flags. Throws conflict, with a
// part removed, when a mount lies inside or someone still writes there.
void remove_tree(const std::string& path);
void remove_tree_at(int directory, const std::string& name);  // name: one part, no slash
// Bytes in use (st_blocks) and inodes of path and everything below. Links are not followed, mounts
// not entered; a hard-linked file counts once. Beyond the memory limit the figures are lower bounds
// and `complete` is false: the walk skips directories it cannot remember and counts other
// hard-linked files as a share per name. Throws conflict when directories keep moving during the
// walk.
struct Usage {
  uint64_t bytes = 0;
  uint64_t inodes = 0;
  bool complete = true;
};
struct UsageLimits {
  uint64_t max_memory_bytes = 32 << 20;  // directories still to visit, and hard-linked files
  std::chrono::milliseconds time{60'000};
};
Usage tree_usage(const std::string& path, const UsageLimits& limits = {});
// For files that also have names in other trees: each name counts as a share of the file's bytes
// and inode, so the sum over all trees is their total usage.
Usage shared_tree_usage(const std::string& path, const UsageLimits& limits = {});

std::vector<std::string> list_directory(
    const std::string& path);  // names, sorted, without . and ..
std::vector<std::string> list_directory(int dir_fd);
std::vector<std::string> list_directory_if_exists(const std::string& path);

// Opens below root_fd and never leaves it: openat2 with RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
// O_NONBLOCK | O_NOCTTY added. "" and "/" mean the root itself. Throws not_found,
// permission_denied...
Fd open_in_root(int root_fd, const std::string& path, int flags, mode_t mode = 0);
// As above, but refuses anything except a regular file (invalid_argument).
Fd open_regular_in_root(int root_fd, const std::string& path, int flags, mode_t mode = 0);

// Sets or clears the inode's append-only attribute (FS_APPEND_FL). False where the file system does
// not support it (tmpfs before 6.6, NFS).
bool set_append_only(int fd, bool on);

struct Space {
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;    // for ordinary users, as df shows it
  uint64_t total_inodes = 0;  // 0: created on demand (btrfs)
  uint64_t free_inodes = 0;
};
Space file_system_space(const std::string& path);

}  // namespace moorage::base
