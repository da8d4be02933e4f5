// A difference of two trees in memory, and the parts in which a large one is made: the memory of a
// part is returned before the next one begins. Private to tree_diff.cc, which makes patches and
// summaries of the parts.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/look_memory.h"
#include "repo_cache/git_handles.h"
#include "repo_cache/memory_tree.h"
#include "repo_cache/tree_diff.h"

namespace moorage::repo_cache {

inline constexpr uint64_t kLeftOutBytes = 128;  // in memory, for each file besides its name

struct AttributeChanges {
  std::vector<Change> before;
  std::vector<Change> after;
};

struct Difference {
  ChangedTree before;
  ChangedTree after;
  std::set<std::string> paths;  // to compare; empty: all
};

// Some files of a difference, while their memory is charged.
struct Part {
  const Difference& difference;
  DiffMemory& memory;
  std::function<bool(const std::string& path)> keeps;  // selects files
  bool may_halve = false;
};

// Compares trees of one repository in memory.
class Differ {
 public:
  Differ(const MemoryRepository& repository, git_tree* root)
      : repository_(repository), root_(root) {}
  const MemoryRepository& repository() const { return repository_; }
  Difference difference(TwoTrees trees, const AttributeChanges& changed, const DiffLimits& limits,
                        DiffMemory& memory) const;
  GitDiff diff(const Difference& difference, uint32_t flags) const;  // null: no difference

 private:
  std::set<std::string> paths_of(const std::vector<Change>& changes) const;

  const MemoryRepository& repository_;
  git_tree* root_;
};

// Memory that a patch sets aside before its text and contents take the rest.
struct Reserve {
  uint64_t left_out = 0;   // to list each changed file as left out
  uint64_t next_part = 0;  // to begin a part of one file
};

// A diff in parts, in the order of paths. A part that needs too much memory is split in half. If
// the commits differ there is one part, as files may differ without being a change of either tree.
class Parts {
 public:
  enum class Late { refused, by_size };  // for files that are left at the deadline
  // `memory` is that of the whole diff: of the lists, the text and each part.
  Parts(const Differ& differ, TwoTrees trees, const DiffLimits& limits, Late late,
        base::LookMemory& memory);
  Reserve reserve() const;

  using Use = std::function<bool(const Part&)>;  // false: it needs too much memory
  void run(const Use& use);

 private:
  DiffMemory begin() const;
  bool selected(std::string_view path) const { return is_selected(path, trees_.only); }
  bool matters(std::string_view path) const;
  void part(size_t first, size_t last, const Use& use);
  bool done(size_t first, size_t last, const Use& use);
  std::optional<Difference> difference(size_t first, size_t last, bool may_halve,
                                       DiffMemory& memory) const;
  std::vector<Change> among(const std::vector<Change>& changes, size_t first, size_t last) const;

  const Differ& differ_;
  TwoTrees trees_;
  const DiffLimits limits_;
  const Late late_;
  base::LookMemory& memory_;
  AttributeChanges attributes_;
  std::vector<std::string> names_;
  std::set<std::string> unnamed_;
  uint64_t left_;
};

}  // namespace moorage::repo_cache
