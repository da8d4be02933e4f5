// The path from the root of a merge (merge.h) down to the directory being filled. It holds
// for each directory on the path its uppers, the new directory, and how far its names were
// read. Directories are known by descriptor, so there are no paths that could be too long; far
// from the bottom only by file handle (open_by_handle_at), so that depth does not use up all
// descriptors. It keeps no list of names, only a position in a stream, where the next visit
// continues. The layers are frozen, so positions stay valid.
#pragma once

#include <dirent.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/os/fd.h"

namespace moorage::layers {

// A directory that can be closed and reopened, wherever it is.
class KnownDirectory {
 public:
  explicit KnownDirectory(Fd fd) : fd_(std::move(fd)) {}
  int fd() const { return fd_.get(); }  // while it is open
  void close();                         // throws io: the file system has no handles
  void open(int mount);                 // `mount`: any directory on its file system

 private:
  Fd fd_;
  std::string handle_;
};

struct MergedUpper {
  size_t layer;  // 0 is the newest
  KnownDirectory directory;
  bool marked_whiteouts = false;
};

struct MergeLevel {
  std::string name;                 // in the directory above it; empty: the root
  std::vector<MergedUpper> uppers;  // newest first, at least one
  std::optional<std::string> base;  // directory of the base that shows through; "" is its root
  KnownDirectory made;
  size_t listed = 0;  // the upper whose names are being read
  std::unique_ptr<DIR, int (*)(DIR*)> stream{nullptr, closedir};  // of `listed`; null: not open
  long position = 0;                                              // in the stream

  // The next name of the upper `listed`, or of the one after it; nullopt: all were read. A name in
  // several uppers comes once for each.
  std::optional<std::string> next_name();
};

class MergeStack {
 public:
  // Directories through which handles of the uppers and the merged layer open. Must outlive this.
  MergeStack(const std::vector<Fd>& layers, const Fd& made) : layers_(layers), made_(made) {}

  bool empty() const { return levels_.empty(); }
  MergeLevel& top() { return levels_.back(); }
  // The level above the top; its descriptors may be closed.
  const MergeLevel& above() const { return levels_[levels_.size() - 2]; }
  size_t size() const { return levels_.size(); }
  void push(MergeLevel level);  // throws resource_exhausted: directories are nested too deep
  void pop();

 private:
  void close(MergeLevel& level);
  void open(MergeLevel& level);

  const std::vector<Fd>& layers_;
  const Fd& made_;
  std::vector<MergeLevel> levels_;
  size_t uppers_ = 0;       // in all levels
  size_t open_uppers_ = 0;  // in the levels with open descriptors
  size_t closed_ = 0;       // closed levels, from the root
};

}  // namespace moorage::layers
