// The names that the upper directories of an overlay hold under one merged directory, and what
// each of them means for the merged view. Works by the rules of layers/overlay_lookup.h.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/os/fd.h"
#include "layers/overlay_lookup.h"
#include "layers/sorted_names.h"

namespace moorage::packs {

struct IndexDirectory {
  size_t layer = 0;  // 0 is the newest
  Fd fd;
  bool marked_whiteouts = false;
};

struct IndexedName {
  layers::EntryKind kind = layers::EntryKind::absent;  // absent: whited out
  struct stat status {};                               // of its newest node; not if absent
  size_t layer = 0;                                    // of that node
  std::vector<IndexDirectory> directories;             // those merged here, newest first
  bool whole = false;  // a directory that hides or moves what lies below the upper directories
};

class UpperIndex {
 public:
  UpperIndex(const std::vector<int>& uppers, layers::OverlayMarks marks)
      : uppers_(uppers), marks_(marks) {}
  std::vector<IndexDirectory> root() const;
  // nullopt: none of them has the name.
  std::optional<IndexedName> find(const std::vector<IndexDirectory>& here,
                                  const std::string& name) const;

 private:
  const std::vector<int>& uppers_;  // newest first
  const layers::OverlayMarks marks_;
};

// The names of several directories in the order of the walk, each once, with bounded memory.
class NameWalk {
 public:
  // `names_bytes` counts the names of all walks in progress.
  explicit NameWalk(uint64_t& names_bytes) : names_bytes_(names_bytes) {}
  ~NameWalk();
  NameWalk(NameWalk&&) = delete;
  void add(int directory);
  std::optional<std::string> next();

 private:
  struct Source {
    int directory;
    layers::SortedNames names;
    std::optional<std::string> next;
    uint64_t counted = 0;
  };
  void advance(Source& source);

  uint64_t& names_bytes_;
  std::vector<Source> sources_;
  bool has_last_ = false;
};

}  // namespace moorage::packs
