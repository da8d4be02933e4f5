// Whole trees with untrusted contents (base/os/files.h): removal and measuring. A chain of
// directories may be longer than any path or descriptor table, so neither operation recurses,
// builds a path, holds a descriptor per level, or crosses a mount.
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <memory>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/os/files.h"
#include "base/os/open_beneath.h"

namespace moorage::base {
namespace {

using Stream = std::unique_ptr<DIR, int (*)(DIR*)>;

// Opens a subdirectory, never through a link or a mount. Empty with errno set on failure.
Stream open_level(int parent, const char* name) {
  Fd fd = try_open_directory_beneath(parent, name);
  Stream stream(fd ? fdopendir(fd.get()) : nullptr, closedir);
  if (stream) fd.release();
  return stream;
}

// The next entry except "." and "..", or null at the end.
dirent* next_entry(DIR* stream, const std::string& path) {
  for (;;) {
    errno = 0;
    dirent* entry = readdir(stream);
    if (!entry && errno != 0) throw_errno("list files below " + path);
    if (!entry) return nullptr;
    std::string_view name = entry->d_name;
    if (name != "." && name != "..") return entry;
  }
}

// "/a/b" as an open "/a" and "b"; empty if "/a" does not exist.
std::optional<std::pair<Fd, std::string>> open_parent(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  size_t slash = path.rfind('/');
  std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  if (name.empty() || name == "." || name == "..") {
    throw Error(Code::invalid_argument, "invalid tree name: \"" + path + "\"");
  }
  std::string parent = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  int fd = open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
  return std::pair{Fd(check(fd, "open " + parent)), name};
}

class TreeRemover {
 public:
  explicit TreeRemover(const std::string& path) : path_(path) {}

  void remove(int parent, const std::string& name) {
    if (!is_directory(parent, name.c_str())) {
      remove_entry(parent, name.c_str(), 0);
      return;
    }
    top_parent_ = parent;
    descend(parent, name);
    while (!levels_.empty()) {
      if (dirent* entry = next_entry(levels_.back().stream.get(), path_)) {
        visit(*entry);
      } else {
        leave();
      }
    }
  }

 private:
  // Deeper directories are first moved to the top, so 64 descriptors are enough for any depth.
  static constexpr size_t kMaxLevels = 64;
  // Scans of a directory that stays non-empty although no entry is left to remove.
  static constexpr int kMaxIdleScans = 100;

  struct Level {
    Stream stream;
    std::string name;
    bool progress = false;
    int idle_scans = 0;
  };

  static bool is_directory(int parent, const char* name) {
    struct stat status;
    return fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode);
  }

  int parent_of_last() const {
    return levels_.size() == 1 ? top_parent_ : dirfd(levels_[levels_.size() - 2].stream.get());
  }

  void visit(const dirent& entry) {
    const std::string name = entry.d_name;  // the next call overwrites the buffer
    int directory = dirfd(levels_.back().stream.get());
    bool is_dir =
        entry.d_type == DT_UNKNOWN ? is_directory(directory, name.c_str()) : entry.d_type == DT_DIR;
    levels_.back().progress = true;
    if (!is_dir) {
      remove_entry(directory, name.c_str(), 0);
    } else if (levels_.size() < kMaxLevels) {
      descend(directory, name);
    } else {
      move_to_top(directory, name);
    }
  }

  void descend(int parent, const std::string& name) {
    Stream stream = open_level(parent, name.c_str());
    if (stream) {
      levels_.push_back({std::move(stream), name});
    } else if (errno == EXDEV) {
      throw Error(Code::conflict, "cannot remove " + path_ + ": " + name + " is a mount point",
                  "unmount it first");
    } else if (errno != ENOENT) {
      throw_errno("remove " + path_ + ": open " + name);
    }
  }

  void move_to_top(int directory, const std::string& name) {
    int top = dirfd(levels_.front().stream.get());
    for (bool cleared = false;;) {
      std::string new_name = ".removed-" + std::to_string(++moved_);
      if (renameat2(directory, name.c_str(), top, new_name.c_str(), RENAME_NOREPLACE) == 0) break;
      if (errno == ENOENT) return;
      const int error_number = errno;
      if (error_number == EPERM && !cleared) {
        cleared = true;
        if (clear_append_only(directory, name.c_str())) continue;
      }
      if (error_number != EEXIST) throw_errno("remove " + path_ + ": move " + name, error_number);
    }
    levels_.front().progress = true;
  }

  void leave() {
    Level& level = levels_.back();
    int parent = parent_of_last();
    if (remove_entry(parent, level.name.c_str(), AT_REMOVEDIR)) {
      levels_.pop_back();
      return;
    }
    // Not empty: a subdirectory was moved here, or someone still writes here.
    level.idle_scans = level.progress ? 0 : level.idle_scans + 1;
    level.progress = false;
    if (level.idle_scans > kMaxIdleScans) {
      throw Error(Code::conflict,
                  "cannot remove " + path_ + ": new files keep appearing in " + level.name,
                  "stop the process that writes there");
    }
    rewinddir(level.stream.get());
  }

  // False for a non-empty directory; a missing entry is fine.
  bool remove_entry(int parent, const char* name, int flags) {
    for (bool cleared = false;; cleared = true) {
      if (unlinkat(parent, name, flags) == 0 || errno == ENOENT) return true;
      int error_number = errno;
      if (error_number == ENOTEMPTY || error_number == EEXIST) return false;
      if (error_number != EPERM || cleared || !clear_append_only(parent, name)) {
        throw_errno("remove " + path_ + ": remove " + std::string(name), error_number);
      }
    }
  }

  // Of the entry and of its directory: either flag prevents the removal.
  bool clear_append_only(int parent, const char* name) {
    if (!set_append_only(parent, false)) return false;
    struct stat status;
    if (fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
      return errno == ENOENT;                                               // already gone
    if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) return true;  // cannot have the flag
    const Fd fd = try_open_beneath(parent, name, O_RDONLY);
    return fd && set_append_only(fd.get(), false);
  }

  const std::string& path_;
  int top_parent_ = -1;
  std::vector<Level> levels_;
  uint64_t moved_ = 0;
};

enum class Names { once, share };  // how a hard-linked file counts

// Walks with one descriptor: down by name, up by ".." (verified to be the expected directory). An
// agent decides the width and depth of a tree, so the walk has a memory budget. Each level keeps a
// batch of directories to visit and continues its listing after the batch; high levels give up
// their batches for lower ones. So any width works. The fixed cost of a level limits the depth;
// beyond it the usage is incomplete. Hard-linked files that find no room count as a share per name.
class TreeMeter {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  TreeMeter(const std::string& path, Names names, uint64_t max_memory_bytes, Deadline deadline)
      : path_(path),
        shares_names_(names == Names::share),
        links_left_(max_memory_bytes / 2),
        memory_left_(max_memory_bytes - links_left_),
        batch_bytes_(std::min(kBatchBytes, memory_left_ / 16)),
        deadline_(deadline) {}

  // False when a directory was moved away during the walk.
  bool measure(int parent, const std::string& name) {
    struct stat status;
    if (fstatat(parent, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) < 0) return true;
    count(status);
    if (!S_ISDIR(status.st_mode)) return true;
    enter(parent, name);
    while (!levels_.empty() && !late()) {
      Level& level = levels_.back();
      if (level.batch.empty() && level.has_more) read_on();
      if (!level.batch.empty()) {
        const std::string next = take(level);
        enter(here_.get(), next);
      } else if (!climb()) {
        return false;
      }
    }
    return true;
  }

  Usage usage() const {
    Usage usage = usage_;
    usage.inodes += static_cast<uint64_t>(shared_inodes_);
    return usage;
  }

 private:
  using Inode = std::pair<dev_t, ino_t>;
  struct Directory {
    std::string name;
    off_t place = 0;  // in the listing, after this one
  };
  struct Level {
    Inode inode{};
    std::vector<Directory> batch{};  // to visit next
    size_t taken = 0;                // how many of these were visited
    uint64_t bytes = 0;              // the batch's share of the budget
    off_t place = 0;                 // after the last visited one
    bool has_more = false;           // more directories follow the batch
  };

  static constexpr uint64_t kNodeBytes = 64;  // overhead per set entry or name on the heap
  static constexpr uint64_t kBatchBytes = 64 << 10;

  static uint64_t cost(std::string_view name) {
    return sizeof(Directory) + name.size() + kNodeBytes;
  }

  bool late() {
    if (std::chrono::steady_clock::now() < deadline_) return false;
    usage_.complete = false;
    return true;
  }

  // Takes room from the batches of higher levels, the highest first: they are needed last.
  bool afford(uint64_t bytes) {
    for (; memory_left_ < bytes && first_batch_ + 1 < levels_.size(); ++first_batch_) {
      Level& level = levels_[first_batch_];
      level.has_more = level.has_more || !level.batch.empty();
      drop_batch(level);
    }
    if (memory_left_ < bytes) return false;
    memory_left_ -= bytes;
    return true;
  }

  void drop_batch(Level& level) {
    memory_left_ += level.bytes;
    level.bytes = 0;
    level.batch = {};
    level.taken = 0;
  }

  std::string take(Level& level) {
    Directory& next = level.batch[level.taken++];
    level.place = next.place;
    std::string name = std::move(next.name);
    if (level.taken == level.batch.size()) drop_batch(level);
    return name;
  }

  void count(const struct stat& status) {
    const uint64_t bytes = static_cast<uint64_t>(status.st_blocks) * 512;
    if (!S_ISDIR(status.st_mode) && status.st_nlink > 1) {
      // A hard-linked file counts its blocks once.
      const Inode inode{status.st_dev, status.st_ino};
      if (linked_.contains(inode)) return;
      if (shares_names_ || links_left_ < kNodeBytes) {
        usage_.bytes += bytes / status.st_nlink;
        shared_inodes_ += 1.0 / static_cast<double>(status.st_nlink);
        return;
      }
      links_left_ -= kNodeBytes;
      linked_.insert(inode);
    }
    usage_.bytes += bytes;
    usage_.inodes += 1;
  }

  // Enters a directory: counts its entries; it becomes a level if it has subdirectories.
  void enter(int parent, const std::string& name) {
    Stream stream = open_level(parent, name.c_str());
    if (!stream) {
      // Gone, replaced, or a mount: do not count it.
      if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == EXDEV) return;
      throw_errno("measure " + path_ + ": open " + name);
    }
    if (!afford(sizeof(Level))) {
      usage_.complete = false;
      return;
    }
    Level& level = levels_.emplace_back();
    read(stream.get(), level, true);
    if (level.batch.empty() && !level.has_more) {
      leave();
      return;
    }
    struct stat status;
    check(fstat(dirfd(stream.get()), &status), "measure " + path_);
    level.inode = {status.st_dev, status.st_ino};
    here_ = Fd(check(fcntl(dirfd(stream.get()), F_DUPFD_CLOEXEC, 3), "measure " + path_));
  }

  // Reads a batch from the listing's position. `first`: reads and counts the whole listing. Only
  // after a batch that covers the whole listing are there no more directories.
  void read(DIR* stream, Level& level, bool first) {
    level.has_more = false;
    struct stat status;
    while (dirent* entry = late() ? nullptr : next_entry(stream, path_)) {
      const bool known = entry->d_type != DT_UNKNOWN;
      if ((first || !known) &&
          fstatat(dirfd(stream), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0) {
        continue;
      }
      if (first) count(status);
      const bool is_directory = first || !known ? S_ISDIR(status.st_mode) : entry->d_type == DT_DIR;
      if (!is_directory || level.has_more) continue;
      const uint64_t bytes = cost(entry->d_name);
      const bool fits = level.batch.empty() || level.bytes + bytes <= batch_bytes_;
      if (fits && afford(bytes)) {
        level.bytes += bytes;
        level.batch.push_back({entry->d_name, entry->d_off});
        continue;
      }
      if (level.batch.empty()) {
        usage_.complete = false;  // the levels use the whole budget
        return;
      }
      level.has_more = true;
      if (!first) return;
    }
  }

  void read_on() {
    Level& level = levels_.back();
    level.has_more = false;
    const Stream stream = open_level(here_.get(), "");
    if (!stream && errno == ENOENT) return;  // it was removed
    if (!stream) throw_errno("measure " + path_);
    seekdir(stream.get(), level.place);
    read(stream.get(), level, false);
  }

  void leave() {
    levels_.pop_back();
    memory_left_ += sizeof(Level);
    first_batch_ = std::min(first_batch_, levels_.empty() ? 0 : levels_.size() - 1);
  }

  bool climb() {
    leave();
    if (levels_.empty()) return true;
    const Inode& above = levels_.back().inode;
    here_ = try_open_parent(here_.get(), above.first, above.second);
    return static_cast<bool>(here_);
  }

  const std::string& path_;
  const bool shares_names_;
  double shared_inodes_ = 0;
  uint64_t links_left_;
  uint64_t memory_left_;
  const uint64_t batch_bytes_;
  const Deadline deadline_;
  Fd here_;
  std::deque<Level> levels_;
  size_t first_batch_ = 0;  // no level above this one has a batch
  std::set<Inode> linked_;
  Usage usage_;
};

Usage measure_tree(const std::string& path, Names names, const UsageLimits& limits) {
  constexpr int kMaxWalks = 5;
  const auto deadline = std::chrono::steady_clock::now() + limits.time;
  auto place = open_parent(path);
  if (!place) throw Error(Code::not_found, path + " does not exist");
  for (int i = 0; i < kMaxWalks; ++i) {
    TreeMeter meter(path, names, limits.max_memory_bytes, deadline);
    if (meter.measure(place->first.get(), place->second)) return meter.usage();
  }
  throw Error(Code::conflict, path + " changed while it was measured", "try again");
}

}  // namespace

void remove_tree(const std::string& path) {
  if (auto place = open_parent(path)) TreeRemover(path).remove(place->first.get(), place->second);
}

void remove_tree_at(int directory, const std::string& name) {
  TreeRemover(name).remove(directory, name);
}

Usage tree_usage(const std::string& path, const UsageLimits& limits) {
  return measure_tree(path, Names::once, limits);
}

Usage shared_tree_usage(const std::string& path, const UsageLimits& limits) {
  return measure_tree(path, Names::share, limits);
}

}  // namespace moorage::base
