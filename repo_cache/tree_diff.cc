#include "repo_cache/tree_diff.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "repo_cache/formats/worktree_filter.h"
#include "repo_cache/git_handles.h"
#include "repo_cache/memory_tree.h"
#include "repo_cache/text_cost.h"
#include "repo_cache/tree_listing.h"

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

}  // namespace

// Some files of a difference, while their memory is charged.
struct CommitTree::Part {
  const Difference& difference;
  DiffMemory& memory;
  std::function<bool(const std::string& path)> keeps;  // selects files
  bool may_halve = false;
};

struct CommitTree::State {
  State(const RepoCache& cache, const std::string& repo, const std::string& commit)
      : repository(cache.mirror_directory(repo)),
        root(find_commit_tree(repository.get(), commit)),
        attributes(repository.get(), root.get()) {}

  GitTreeEntry find(std::string_view path) const { return entry_at(root.get(), std::string(path)); }

  // nullopt: not enough memory.
  std::optional<bool> equals_converted(const Conversion& conversion, const git_oid& oid, int fd,
                                       uint64_t size) const {
    const base::MemoryShare share(compared, size);
    if (!share) return std::nullopt;
    const std::string content = base::read_at(fd, size, 0);
    try {
      const auto clean = to_git(repository, conversion, content, &oid, compared);
      const std::string& bytes = clean ? *clean : content;
      git_oid found;
      check_git(git_odb_hash(&found, bytes.data(), bytes.size(), GIT_OBJECT_BLOB), "hash a file");
      return git_oid_equal(&found, &oid) != 0;
    } catch (const Error& error) {
      if (error.code() != Code::resource_exhausted) throw;
      return std::nullopt;
    }
  }

  // Paths in index order, each after `path` and a slash.
  void list_files(const git_oid& oid, const std::string& path,
                  std::vector<std::string>& files) const {
    const GitTree tree = read_tree(repository.get(), oid);
    for (size_t i = 0; i < git_tree_entrycount(tree.get()); ++i) {
      const git_tree_entry* entry = git_tree_entry_byindex(tree.get(), i);
      std::string child = child_path(path, git_tree_entry_name(entry));
      if (git_tree_entry_type(entry) == GIT_OBJECT_TREE) {
        list_files(*git_tree_entry_id(entry), child, files);
      } else {
        files.push_back(std::move(child));
      }
    }
  }

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
        const GitTreeEntry entry = find(parent);
        if (entry && git_tree_entry_type(entry.get()) != GIT_OBJECT_TREE) paths.insert(parent);
      }
    }
    return paths;
  }

  Difference difference(TwoTrees trees, const AttributeChanges& changed, const DiffLimits& limits,
                        bool refuse, DiffMemory& memory) const {
    Difference found;
    GitTree other;
    if (trees.after_commit.empty()) {
      found.paths = paths_of(trees.before);
      found.paths.merge(paths_of(trees.after));
    } else {  // all paths: the commits differ, too
      other = find_commit_tree(repository.get(), trees.after_commit);
    }
    found.before = apply_changes(repository, root.get(), std::move(trees.before), changed.before,
                                 limits, refuse ? Oversized::refuse : Oversized::stand_in, memory);
    found.after = apply_changes(repository, other ? other.get() : root.get(),
                                std::move(trees.after), changed.after, limits,
                                refuse ? Oversized::refuse : Oversized::another_stand_in, memory);
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
    return make_git<GitDiff>("compare two commits", git_diff_tree_to_tree, repository.get(), before,
                             after, &options);
  }

  // False: memory does not suffice for all its files at once; nothing was added.
  bool add_patch(const Part& part, const DiffLimits& limits, PatchText& text) const;
  bool add_stats(const Part& part, const DiffLimits& limits, std::vector<DiffStat>& result) const;

  MemoryRepository repository;
  GitTree root;
  mutable base::LookMemory compared{base::kAllLooksBytes};  // of one file and its conversion
  mutable PathAttributes attributes;
  mutable bool incomplete = false;
  TimeLimit deadline = TimeLimit::max();
};

CommitTree::CommitTree(const RepoCache& cache, const std::string& repo, const std::string& commit)
    : state_(std::make_unique<State>(cache, repo, commit)) {}
CommitTree::~CommitTree() = default;
CommitTree::CommitTree(CommitTree&&) noexcept = default;
CommitTree& CommitTree::operator=(CommitTree&&) noexcept = default;

std::optional<TreeEntry> CommitTree::lookup(std::string_view path) const {
  if (path.empty())
    return TreeEntry{GIT_FILEMODE_TREE, format_oid(*git_tree_id(state_->root.get())), 0};
  const GitTreeEntry entry = state_->find(path);
  if (!entry) return std::nullopt;
  TreeEntry result;
  result.mode = static_cast<uint32_t>(git_tree_entry_filemode(entry.get()));
  result.oid = format_oid(*git_tree_entry_id(entry.get()));
  if (git_tree_entry_type(entry.get()) == GIT_OBJECT_BLOB) {
    size_t size = 0;
    git_object_t type = GIT_OBJECT_INVALID;
    check_git(
        git_odb_read_header(&size, &type, state_->repository.odb(), git_tree_entry_id(entry.get())),
        "find \"" + base::escape_for_message(path) + "\"");
    result.size = size;
  }
  return result;
}

bool CommitTree::is_tracked(std::string_view path) const {
  const GitTreeEntry entry = state_->find(path);
  return entry && git_tree_entry_type(entry.get()) != GIT_OBJECT_TREE;
}

std::string CommitTree::read_blob(std::string_view path, uint64_t max_bytes) const {
  const std::optional<TreeEntry> entry = lookup(path);
  if (!entry || entry->mode == kModeSubmodule || entry->mode == GIT_FILEMODE_TREE) {
    throw Error(Code::not_found,
                "no file \"" + base::escape_for_message(path) + "\" in this commit");
  }
  if (entry->size > max_bytes) {
    throw Error(Code::resource_exhausted,
                "\"" + base::escape_for_message(path) + "\" is too large to read");
  }
  return std::string(content_of(read_object(state_->repository.odb(), parse_oid(entry->oid))));
}

std::string CommitTree::checked_out(std::string_view path, uint64_t max_bytes) const {
  std::string bytes = read_blob(path, max_bytes);
  const TreeEntry entry = lookup(path).value();
  if (entry.mode == kModeSymlink) return bytes;
  const Conversion conversion = state_->attributes.conversion(std::string(path));
  if (!repo_cache::changes_bytes(conversion, bytes.size())) return bytes;
  return to_worktree(conversion, bytes, entry.oid).value_or(bytes);
}

bool CommitTree::content_equals(std::string_view path, uint32_t mode, int fd) const {
  const std::optional<TreeEntry> entry = lookup(path);
  if (!entry || entry->mode != mode || mode == kModeSymlink) return false;
  struct stat status {};
  base::check(fstat(fd, &status), "inspect a changed file");
  const auto size = static_cast<uint64_t>(status.st_size);
  const git_oid oid = parse_oid(entry->oid);
  const Conversion conversion = state_->attributes.conversion(std::string(path));
  state_->incomplete |= state_->attributes.incomplete();
  if (changes_bytes(conversion, size)) {
    if (const auto same = state_->equals_converted(conversion, oid, fd, size)) return *same;
    state_->incomplete = true;
  }
  if (size != entry->size) return false;
  const std::optional<git_oid> found = blob_id(fd, size, state_->deadline);
  return found && git_oid_equal(&*found, &oid);
}

void CommitTree::set_deadline(TimeLimit deadline) {
  state_->deadline = deadline;
  state_->attributes.set_deadline(deadline);
}

bool CommitTree::late() const { return std::chrono::steady_clock::now() > state_->deadline; }

bool CommitTree::incomplete() const { return state_->incomplete; }

bool CommitTree::link_equals(std::string_view path, std::string_view target) const {
  const std::optional<TreeEntry> entry = lookup(path);
  if (!entry || entry->mode != kModeSymlink || entry->size != target.size()) return false;
  return read_blob(path, entry->size) == target;
}

std::vector<std::string> CommitTree::files_below(std::string_view directory) const {
  std::vector<std::string> files;
  if (directory.empty()) {
    state_->list_files(*git_tree_id(state_->root.get()), "", files);
    return files;
  }
  // Not lookup(): that reads the size of a file, whose blob may be missing.
  const GitTreeEntry entry = state_->find(directory);
  if (entry && git_tree_entry_type(entry.get()) == GIT_OBJECT_TREE)
    state_->list_files(*git_tree_entry_id(entry.get()), std::string(directory), files);
  return files;
}

bool CommitTree::State::add_patch(const Part& part, const DiffLimits& limits,
                                  PatchText& text) const {
  const size_t size_before = text.bytes.size();
  const GitDiff found = diff(part.difference, GIT_DIFF_SHOW_BINARY);
  GitDiff binary;  // the same in binary form, created if needed
  for (size_t i = 0; found && i < git_diff_num_deltas(found.get()); ++i) {
    const git_diff_delta* delta = git_diff_get_delta(found.get(), i);
    if (!part.keeps(path_of(*delta))) continue;
    const TextCost cost(repository.odb(), *delta, limits.max_file_bytes, part.memory.memory());
    if (part.may_halve && cost.lacks_room()) {
      text.bytes.resize(size_before);
      return false;
    }
    std::optional<base::MemoryShare> binary_share;
    GitPatch patch;
    if (cost.fits() == TextCost::Fits::text) {
      patch = patch_at(found.get(), i);
    } else if (cost.fits() == TextCost::Fits::binary && !cost.lacks_room() &&
               cost.take_binary(binary_share)) {
      if (!binary) binary = diff(part.difference, GIT_DIFF_SHOW_BINARY | GIT_DIFF_FORCE_BINARY);
      patch = patch_at(binary.get(), i);  // the flag keeps the order
    } else if (cost.lacks_room()) {
      throw_no_memory();
    } else {
      throw Error(Code::resource_exhausted,
                  "\"" + base::escape_for_message(path_of(*delta)) + "\" is too large for a diff",
                  "view the summary (--stat), or copy the file out with cp");
    }
    const int answer = patch ? git_patch_print(patch.get(), append_line, &text) : 0;
    if (text.full) {
      throw Error(Code::resource_exhausted,
                  "the diff is larger than " + std::to_string(limits.max_patch_bytes) +
                      " bytes, or than the memory available now",
                  "view its summary, or diff single files");
    }
    check_git(answer, "print the diff");
  }
  return true;
}

bool CommitTree::State::add_stats(const Part& part, const DiffLimits& limits,
                                  std::vector<DiffStat>& result) const {
  const size_t size_before = result.size();
  const GitDiff found = diff(part.difference, 0);
  for (size_t i = 0; found && i < git_diff_num_deltas(found.get()); ++i) {
    const git_diff_delta* delta = git_diff_get_delta(found.get(), i);
    if (!part.keeps(path_of(*delta))) continue;
    const TextCost cost(repository.odb(), *delta, limits.max_file_bytes, part.memory.memory());
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
class CommitTree::Parts {
 public:
  Parts(const State& state, TwoTrees trees, const DiffLimits& limits, bool refuse,
        base::LookMemory& memory)
      : state_(state), trees_(std::move(trees)), limits_(limits), refuse_(refuse) {
    attributes_ = {attributes_among(trees_.before), attributes_among(trees_.after)};
    for (auto* changes : {&trees_.before, &trees_.after}) {
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
      DiffMemory memory(state_.repository);
      const auto whole =
          state_.difference(std::move(trees_), attributes_, limits_, refuse_, memory);
      use({whole, memory, [](const std::string&) { return true; }});
      return;
    }
    for (size_t first = 0; first < names_.size(); first += limits_.part_files)
      part(first, std::min(names_.size(), first + limits_.part_files), use);
  }

 private:
  void part(size_t first, size_t last, const Use& use) {
    if (done(first, last, use)) return;
    const size_t middle = first + (last - first) / 2;
    part(first, middle, use);
    part(middle, last, use);
  }

  bool done(size_t first, size_t last, const Use& use) {
    if (std::chrono::steady_clock::now() > limits_.deadline) {
      if (refuse_) throw Error(Code::resource_exhausted, "the comparison takes too long", kLookAt);
      left_ = 0;  // the rest by size only
    }
    const bool may_halve = last - first > 1 && left_ >= kPartBytes;
    DiffMemory memory(state_.repository);
    const auto found = difference(first, last, may_halve, memory);
    if (!found) return false;
    // Files replaced by a directory, or below a directory replaced by a file, are in no list.
    std::vector<std::string> unnamed;
    const auto keeps = [&](const std::string& path) {
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
    TwoTrees some{among(trees_.before, first, last), among(trees_.after, first, last), ""};
    try {
      auto found = state_.difference(std::move(some), attributes_, limits, refuse_, memory);
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

  const State& state_;
  TwoTrees trees_;
  const DiffLimits limits_;
  const bool refuse_;
  AttributeChanges attributes_;
  std::vector<std::string> names_;
  std::set<std::string> unnamed_;
  uint64_t left_ = kAllBytes;
};

std::string CommitTree::patch(std::vector<Change> changes, const DiffLimits& limits) const {
  return patch_between({{}, std::move(changes), ""}, limits);
}

std::vector<DiffStat> CommitTree::stat(std::vector<Change> changes,
                                       const DiffLimits& limits) const {
  return stat_between({{}, std::move(changes), ""}, limits);
}

std::string CommitTree::patch_between(TwoTrees trees, const DiffLimits& limits) const {
  base::LookMemory memory(base::kAllLooksBytes);
  PatchText text(memory, limits.max_patch_bytes);
  Parts(*state_, std::move(trees), limits, true, memory).run([&](const Part& part) {
    return state_->add_patch(part, limits, text);
  });
  return std::move(text.bytes);
}

std::vector<DiffStat> CommitTree::stat_between(TwoTrees trees, const DiffLimits& limits) const {
  base::LookMemory memory(base::kAllLooksBytes);
  std::vector<DiffStat> result;
  Parts(*state_, std::move(trees), limits, false, memory).run([&](const Part& part) {
    return state_->add_stats(part, limits, result);
  });
  return result;
}

}  // namespace moorage::repo_cache
