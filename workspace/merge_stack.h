// The way from the root of a merge (layer_merge.h) down to the directory that is being filled: of
// each directory on it, the uppers that it is merged of, where it is made, and how far its names
// were read. Directories are known by descriptors, so no path is built and none can be too long;
// far from the bottom only by their file handles (open_by_handle_at), so that no depth takes all
// descriptors. No list of names is kept: a position in a stream is, which the next visit goes on
// from. The layers are frozen, so positions stay true.
#pragma once

#include <dirent.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"

namespace moorage::workspace {

// A directory that can be closed and opened again, wherever it lies.
class KnownDirectory {
 public:
  explicit KnownDirectory(base::Fd fd) : fd_(std::move(fd)) {}
  int fd() const { return fd_.get(); }  // while it is open
  void close();                         // io: the file system has no handles
  void open(int mount);                 // `mount`: any directory of its file system

 private:
  base::Fd fd_;
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
  std::unique_ptr<DIR, int (*)(DIR*)> stream{nullptr, closedir};  // of it; null: not open
  long position = 0;                                              // in the stream

  // The next name of the upper `listed`, or of the one after it; nothing: all were read. A name
  // that several uppers have comes once for each.
  std::optional<std::string> next_name();
};

class MergeStack {
 public:
  // Of the uppers and of the merged layer: what handles are opened by. They outlive the stack.
  MergeStack(const std::vector<base::Fd>& layers, const base::Fd& made)
      : layers_(layers), made_(made) {}

  bool empty() const { return levels_.empty(); }
  MergeLevel& top() { return levels_.back(); }
  // The one above the top; its descriptors may be closed.
  const MergeLevel& above() const { return levels_[levels_.size() - 2]; }
  size_t size() const { return levels_.size(); }
  void push(MergeLevel level);  // resource_exhausted: directories are nested too deep
  void pop();

 private:
  void close(MergeLevel& level);
  void open(MergeLevel& level);

  const std::vector<base::Fd>& layers_;
  const base::Fd& made_;
  std::vector<MergeLevel> levels_;
  size_t uppers_ = 0;       // of all levels
  size_t open_uppers_ = 0;  // of those whose descriptors are open
  size_t closed_ = 0;       // levels, counted from the root
};

}  // namespace moorage::workspace
