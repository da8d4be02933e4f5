#include "repo_cache/tree_diff.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <tuple>

#include "base/error.h"
#include "base/log.h"
#include "repo_cache/commit_tree_state.h"
#include "repo_cache/git_handles.h"
#include "repo_cache/memory_tree.h"
#include "repo_cache/text_cost.h"

namespace moorage::repo_cache {

namespace {

constexpr const char* kLookAt =
    "view the summary (--stat), or copy large files out with cp, and remove them";
constexpr uint64_t kPartBytes = 16 << 20;  // of contents, for more than one file
constexpr uint64_t kAllBytes = 1 << 30;    // of all contents: bounds the time to read them
constexpr uint64_t kChangeBytes = 256;     // in memory, with its name twice

std::string change_name(const git_diff_delta& delta) {
  if (delta.status == GIT_DELTA_ADDED) return "added";
  if (delta.status == GIT_DELTA_DELETED) return "deleted";
  return git_oid_equal(&delta.old_file.id, &delta.new_file.id) ? "mode" : "modified";
}

const char* path_of(const git_diff_delta& delta) {
  return delta.status == GIT_DELTA_DELETED ? delta.old_file.path : delta.new_file.path;
}

struct AttributeChanges {
  std::vector<Change> before;
  std::vector<Change> after;
};

struct Difference {
  ChangedTree before;
  ChangedTree after;
  std::set<std::string> paths;  // to compare; empty: all
};

uint64_t size_in(const ChangedTree& tree, const std::string& path, uint64_t kept) {
  const auto stand_in = tree.stand_ins.find(path);
  return stand_in == tree.stand_ins.end() ? kept : stand_in->second;
}

// Some files of a difference, while their memory is charged.
struct Part {
  const Difference& difference;
  DiffMemory& memory;
  std::function<bool(const std::string& path)> keeps;  // selects files
  bool may_halve = false;
};

DiffStat stat_of(const Difference& difference, git_diff* diff, size_t index, const TextCost& cost) {
  const git_diff_delta* delta = git_diff_get_delta(diff, index);
  DiffStat stat;
  stat.path = path_of(*delta);
  stat.change = change_name(*delta);
  stat.bytes_before = size_in(difference.before, stat.path, cost.bytes_before());
  stat.bytes_after = size_in(difference.after, stat.path, cost.bytes_after());
  if (cost.fits() != TextCost::Fits::text) {
    stat.binary = true;
    return stat;
  }
  const GitPatch patch = patch_at(diff, index);
  stat.binary = (delta->flags & GIT_DIFF_FLAG_BINARY) != 0;
  if (patch) {
    size_t added = 0;
    size_t removed = 0;
    check_git(git_patch_line_stats(nullptr, &added, &removed, patch.get()), "count lines");
    stat.added = added;
    stat.removed = removed;
  }
  return stat;
}

bool is_below(std::string_view path, std::string_view root) {  // or the same
  return path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/');
}

// Compares trees of one repository in memory.
class Differ {
 public:
  Differ(const MemoryRepository& repository, git_tree* root)
      : repository_(repository), root_(root) {}
  const MemoryRepository& repository() const { return repository_; }

  Difference difference(TwoTrees trees, const AttributeChanges& changed, const DiffLimits& limits,
                        DiffMemory& memory) const {
    Difference found;
    GitTree other;
    if (trees.after_commit.empty()) {
      found.paths = paths_of(trees.before);
      found.paths.merge(paths_of(trees.after));
    } else {  // all paths: the commits differ, too
      other = find_commit_tree(repository_.get(), trees.after_commit);
    }
    found.before = apply_changes(repository_, root_, std::move(trees.before), changed.before,
                                 limits, StandIn::before, memory);
    found.after = apply_changes(repository_, other ? other.get() : root_, std::move(trees.after),
                                changed.after, limits, StandIn::after, memory);
    return found;
  }

  // Null: no difference.
  GitDiff diff(const Difference& difference, uint32_t flags) const {
    git_tree* before = difference.before.tree.get();
    git_tree* after = difference.after.tree.get();
    if (git_oid_equal(git_tree_id(before), git_tree_id(after))) return nullptr;
    std::vector<char*> pathspec;
    pathspec.reserve(difference.paths.size());
    for (const std::string& path : difference.paths)
      pathspec.push_back(const_cast<char*>(path.c_str()));
    git_diff_options options = GIT_DIFF_OPTIONS_INIT;
    options.flags = flags | GIT_DIFF_DISABLE_PATHSPEC_MATCH;
    options.pathspec = {pathspec.data(), pathspec.size()};
    options.id_abbrev = GIT_OID_HEXSZ;  // git apply --binary needs whole ids
    return make_git<GitDiff>("compare two commits", git_diff_tree_to_tree, repository_.get(),
                             before, after, &options);
  }

 private:
  // The paths to compare. Without them libgit2 walks both trees whole (45 ms for 78,635 files). A
  // file replaced by a directory changes although the list lacks it.
  std::set<std::string> paths_of(const std::vector<Change>& changes) const {
    std::set<std::string> paths;
    std::set<std::string> seen;
    for (const Change& change : changes) {
      paths.insert(change.path);
      for (size_t slash = change.path.find('/'); slash != std::string::npos;
           slash = change.path.find('/', slash + 1)) {
        const std::string parent = change.path.substr(0, slash);
        if (!seen.insert(parent).second) continue;
        const GitTreeEntry entry = entry_at(root_, parent);
        if (entry && git_tree_entry_type(entry.get()) != GIT_OBJECT_TREE) paths.insert(parent);
      }
    }
    return paths;
  }

  const MemoryRepository& repository_;
  git_tree* root_;
};

// Writes a patch file by file. A file that cannot be in it is listed instead.
class PatchWriter {
 public:
  PatchWriter(const Differ& differ, const DiffLimits& limits, base::LookMemory& memory)
      : differ_(differ), limits_(limits), memory_(memory), text_(memory, limits.max_patch_bytes) {}

  // False: memory does not suffice for all its files at once; nothing was added.
  bool add(const Part& part) {
    const size_t size_before = text_.bytes.size();
    const size_t left_before = left_out_.size();
    const GitDiff found = differ_.diff(part.difference, GIT_DIFF_SHOW_BINARY);
    GitDiff binary;  // the same in binary form, created if needed
    for (size_t i = 0; found && i < git_diff_num_deltas(found.get()); ++i) {
      if (!part.keeps(path_of(*git_diff_get_delta(found.get(), i)))) continue;
      if (add_file(part, found.get(), binary, i)) continue;
      text_.bytes.resize(size_before);
      left_out_.resize(left_before);
      return false;
    }
    for (const auto* tree : {&part.difference.before, &part.difference.after}) {
      for (const std::string& path : tree->refused)
        if (part.keeps(path)) leave_out({path, LeftOut::kName});
    }
    return true;
  }

  Patch take() {
    const auto path_of = [](const LeftOut& file) { return std::tie(file.path, file.why); };
    std::sort(left_out_.begin(), left_out_.end(),
              [&](const LeftOut& a, const LeftOut& b) { return path_of(a) < path_of(b); });
    left_out_.erase(
        std::unique(left_out_.begin(), left_out_.end(),
                    [&](const LeftOut& a, const LeftOut& b) { return path_of(a) == path_of(b); }),
        left_out_.end());
    return {std::move(text_.bytes), std::move(left_out_)};
  }

 private:
  void leave_out(const LeftOut& file) {
    if (!memory_.take(kChangeBytes + file.path.size())) throw_no_memory();
    left_out_.push_back(file);
  }

  // False: the part must be halved.
  bool add_file(const Part& part, git_diff* found, GitDiff& binary, size_t index) {
    const git_diff_delta* delta = git_diff_get_delta(found, index);
    const std::string path = path_of(*delta);
    const bool removed = delta->status == GIT_DELTA_DELETED;
    const auto& [before, after, paths] = part.difference;
    if (before.stand_ins.contains(path) || after.stand_ins.contains(path)) {
      if (part.memory.memory().crowded()) throw_no_memory();
      leave_out({path, LeftOut::kTooLarge,
                 std::max(size_in(after, path, 0), size_in(before, path, 0)), removed});
      return true;
    }
    try {
      return add_readable(part, found, binary, index);
    } catch (const Error& error) {
      if (error.code() != Code::corrupted) throw;
      base::log(base::LogLevel::warning, "diff.unreadable",
                {{"path", path}, {"error", error.message()}});
      leave_out({path, LeftOut::kUnreadable, 0, removed});
      return true;
    }
  }

  bool add_readable(const Part& part, git_diff* found, GitDiff& binary, size_t index) {
    const git_diff_delta* delta = git_diff_get_delta(found, index);
    const std::string path = path_of(*delta);
    const TextCost cost(differ_.repository().odb(), *delta, limits_.max_file_bytes,
                        part.memory.memory());
    const LeftOut too_large{path, LeftOut::kTooLarge,
                            std::max(cost.bytes_before(), cost.bytes_after()),
                            delta->status == GIT_DELTA_DELETED};
    if (part.may_halve && cost.lacks_room()) return false;
    std::optional<base::MemoryShare> binary_share;
    GitPatch patch;
    if (cost.fits() == TextCost::Fits::text) {
      patch = patch_at(found, index);
    } else if (part.memory.memory().crowded()) {
      throw_no_memory();
    } else if (cost.fits() == TextCost::Fits::binary && cost.take_binary(binary_share)) {
      constexpr uint32_t kBinary = GIT_DIFF_SHOW_BINARY | GIT_DIFF_FORCE_BINARY;
      if (!binary) binary = differ_.diff(part.difference, kBinary);
      patch = patch_at(binary.get(), index);  // the flag keeps the order
    } else {
      if (part.memory.memory().crowded()) throw_no_memory();
      leave_out(too_large);
      return true;
    }
    if (patch && !print(*patch)) {
      leave_out(too_large);
    } else if (part.difference.after.unfaithful.contains(path)) {
      leave_out({path, LeftOut::kConverted, cost.bytes_after()});
    }
    return true;
  }

  // False: no room for it.
  bool print(git_patch& patch) {
    const size_t size_before = text_.bytes.size();
    const int answer = git_patch_print(&patch, append_line, &text_);
    if (text_.full) {
      if (memory_.crowded()) throw_no_memory();
      text_.bytes.resize(size_before);
      text_.full = false;
      return false;
    }
    check_git(answer, "print the diff");
    return true;
  }

  const Differ& differ_;
  const DiffLimits& limits_;
  base::LookMemory& memory_;
  PatchText text_;
  std::vector<LeftOut> left_out_;
};

// False: memory does not suffice for all its files at once; nothing was added.
bool add_stats(const Differ& differ, const Part& part, const DiffLimits& limits,
               std::vector<DiffStat>& result) {
  const size_t size_before = result.size();
  const GitDiff found = differ.diff(part.difference, 0);
  for (size_t i = 0; found && i < git_diff_num_deltas(found.get()); ++i) {
    const git_diff_delta* delta = git_diff_get_delta(found.get(), i);
    if (!part.keeps(path_of(*delta))) continue;
    const TextCost cost(differ.repository().odb(), *delta, limits.max_file_bytes,
                        part.memory.memory());
    if (part.may_halve && cost.lacks_room()) {
      result.resize(size_before);
      return false;
    }
    DiffStat stat = stat_of(part.difference, found.get(), i, cost);
    if (!result.empty() && result.back().path == stat.path) {
      // A file that became a link, or vice versa, appears as deleted and added.
      stat.added += result.back().added;
      stat.removed += result.back().removed;
      stat.binary |= result.back().binary;
      stat.bytes_before += result.back().bytes_before;
      stat.bytes_after += result.back().bytes_after;
      stat.change = "type";
      result.pop_back();
    }
    result.push_back(std::move(stat));
  }
  return true;
}

// A diff in parts, in the order of paths. A part's memory is freed before the next one; a part that
// needs too much is split in half. If the commits differ there is one part, as files may differ
// without being a change of either tree.
class Parts {
 public:
  enum class Late { refused, by_size };  // for files that are left at the deadline
  Parts(const Differ& differ, TwoTrees trees, const DiffLimits& limits, Late late,
        base::LookMemory& memory)
      : differ_(differ), trees_(std::move(trees)), limits_(limits), late_(late), memory_(memory) {
    attributes_ = {attributes_among(trees_.before), attributes_among(trees_.after)};
    for (auto* changes : {&trees_.before, &trees_.after}) {
      std::erase_if(*changes, [this](const Change& change) { return !matters(change.path); });
      std::sort(changes->begin(), changes->end(),
                [](const Change& a, const Change& b) { return a.path < b.path; });
      for (const Change& change : *changes) {
        if (!memory.take(kChangeBytes + 2 * change.path.size())) throw_no_memory();
        names_.push_back(change.path);
      }
    }
    std::sort(names_.begin(), names_.end());
    names_.erase(std::unique(names_.begin(), names_.end()), names_.end());
  }

  using Use = std::function<bool(const Part&)>;  // false: it needs too much memory
  void run(const Use& use) {
    if (!trees_.after_commit.empty()) {
      DiffMemory memory = begin();
      const auto whole = differ_.difference(std::move(trees_), attributes_, limits_, memory);
      use({whole, memory, [this](const std::string& path) { return selected(path); }});
      return;
    }
    for (size_t first = 0; first < names_.size(); first += limits_.part_files)
      part(first, std::min(names_.size(), first + limits_.part_files), use);
  }

 private:
  // Contents get the memory that the lists and the text leave.
  DiffMemory begin() const {
    const uint64_t held = std::min(base::kAllLooksBytes, memory_.used_bytes() + limits_.held_bytes);
    return DiffMemory(differ_.repository(), base::kAllLooksBytes - held);
  }

  bool selected(std::string_view path) const { return is_selected(path, trees_.only); }

  // A file at "d" decides about a selected "d/x".
  bool matters(std::string_view path) const {
    if (selected(path)) return true;
    return std::any_of(trees_.only.begin(), trees_.only.end(),
                       [path](const std::string& root) { return is_below(root, path); });
  }

  void part(size_t first, size_t last, const Use& use) {
    if (done(first, last, use)) return;
    const size_t middle = first + (last - first) / 2;
    part(first, middle, use);
    part(middle, last, use);
  }

  bool done(size_t first, size_t last, const Use& use) {
    if (std::chrono::steady_clock::now() > limits_.deadline) {
      if (late_ == Late::refused)
        throw Error(Code::resource_exhausted, "the comparison takes too long", kLookAt);
      left_ = 0;  // the rest by size only
    }
    const bool may_halve = last - first > 1 && left_ >= kPartBytes;
    DiffMemory memory = begin();
    const auto found = difference(first, last, may_halve, memory);
    if (!found) return false;
    // Files replaced by a directory, or below a directory replaced by a file, are in no list.
    std::vector<std::string> unnamed;
    const auto keeps = [&](const std::string& path) {
      if (!selected(path)) return false;
      const auto named = std::lower_bound(names_.begin(), names_.end(), path);
      if (named == names_.end() || *named != path) {
        if (!unnamed_.insert(path).second) return false;
        unnamed.push_back(path);
        return true;
      }
      const auto at = static_cast<size_t>(named - names_.begin());
      return first <= at && at < last;
    };
    if (!use({*found, memory, keeps, may_halve})) {
      for (const auto& path : unnamed) unnamed_.erase(path);
      return false;
    }
    left_ -= std::min(left_, found->before.bytes + found->after.bytes);
    return true;
  }

  // Empty: it needs too much memory at once.
  std::optional<Difference> difference(size_t first, size_t last, bool may_halve,
                                       DiffMemory& memory) const {
    DiffLimits limits = limits_;
    limits.max_changed_bytes =
        std::min({left_, limits_.max_changed_bytes, last - first > 1 ? kPartBytes : left_});
    TwoTrees some{among(trees_.before, first, last), among(trees_.after, first, last), {}, {}};
    try {
      auto found = differ_.difference(std::move(some), attributes_, limits, memory);
      const bool whole = found.before.stand_ins.empty() && found.after.stand_ins.empty();
      if (whole || !may_halve) return found;
    } catch (const Error& error) {
      if (!may_halve || error.code() != Code::resource_exhausted) throw;
    }
    return std::nullopt;
  }

  std::vector<Change> among(const std::vector<Change>& changes, size_t first, size_t last) const {
    const auto before = [](const Change& change, const std::string& path) {
      return change.path < path;
    };
    const auto begin = std::lower_bound(changes.begin(), changes.end(), names_[first], before);
    if (last == names_.size()) return {begin, changes.end()};
    return {begin, std::lower_bound(begin, changes.end(), names_[last], before)};
  }

  const Differ& differ_;
  TwoTrees trees_;
  const DiffLimits limits_;
  const Late late_;
  base::LookMemory& memory_;  // of the lists and the text
  AttributeChanges attributes_;
  std::vector<std::string> names_;
  std::set<std::string> unnamed_;
  uint64_t left_ = kAllBytes;
};

}  // namespace

bool is_selected(std::string_view path, const std::vector<std::string>& only) {
  if (only.empty()) return true;
  return std::any_of(only.begin(), only.end(),
                     [path](const std::string& root) { return is_below(path, root); });
}

Patch CommitTree::patch(std::vector<Change> changes, const DiffLimits& limits) const {
  return patch_between({{}, std::move(changes), "", {}}, limits);
}

std::vector<DiffStat> CommitTree::stat(std::vector<Change> changes,
                                       const DiffLimits& limits) const {
  return stat_between({{}, std::move(changes), "", {}}, limits);
}

Patch CommitTree::patch_between(TwoTrees trees, const DiffLimits& limits) const {
  base::LookMemory memory(base::kAllLooksBytes);
  const Differ differ(state_->repository, state_->root.get());
  PatchWriter writer(differ, limits, memory);
  Parts(differ, std::move(trees), limits, Parts::Late::refused, memory).run([&](const Part& part) {
    return writer.add(part);
  });
  return writer.take();
}

std::vector<DiffStat> CommitTree::stat_between(TwoTrees trees, const DiffLimits& limits) const {
  base::LookMemory memory(base::kAllLooksBytes);
  const Differ differ(state_->repository, state_->root.get());
  std::vector<DiffStat> result;
  Parts(differ, std::move(trees), limits, Parts::Late::by_size, memory).run([&](const Part& part) {
    return add_stats(differ, part, limits, result);
  });
  return result;
}

}  // namespace moorage::repo_cache
