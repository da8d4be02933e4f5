#include "repo_cache/tree_diff.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "repo_cache/blob_id.h"
#include "repo_cache/git_handles.h"
#include "repo_cache/memory_tree.h"
#include "repo_cache/text_cost.h"

namespace moorage::repo_cache {

namespace {

using base::Code;
using base::Error;

struct PatchText {
  explicit PatchText(DiffMemory& charged, uint64_t max) : memory(charged), max_bytes(max) {}

  // A string that grows has both its old and its new room for a while.
  bool make_room(size_t more) {
    const size_t needed = bytes.size() + more;
    if (needed > max_bytes) return false;
    if (needed <= bytes.capacity()) return true;
    const size_t before = bytes.capacity();
    const size_t room = std::min<size_t>(std::max(2 * before, needed), max_bytes);
    if (!memory.memory().take(room)) return false;
    bytes.reserve(room);
    if (taken) memory.memory().give(taken);
    taken = room;
    return true;
  }

  std::string bytes;
  DiffMemory& memory;
  const uint64_t max_bytes;
  size_t taken = 0;
  bool full = false;
};

int append_line(const git_diff_delta* delta, const git_diff_hunk*, const git_diff_line* line,
                void* payload) {
  auto& text = *static_cast<PatchText*>(payload);
  // Of a binary file whose mode alone changed, libgit2 says "Binary files differ", which git apply
  // refuses.
  if (line->origin == GIT_DIFF_LINE_BINARY &&
      git_oid_equal(&delta->old_file.id, &delta->new_file.id)) {
    return 0;
  }
  if (!text.make_room(line->content_len + 1)) {
    text.full = true;
    return GIT_EUSER;
  }
  const char origin = line->origin;
  if (origin == GIT_DIFF_LINE_CONTEXT || origin == GIT_DIFF_LINE_ADDITION ||
      origin == GIT_DIFF_LINE_DELETION) {
    text.bytes += origin;
  }
  text.bytes.append(line->content, line->content_len);
  return 0;
}

std::string change_name(const git_diff_delta& delta) {
  if (delta.status == GIT_DELTA_ADDED) return "added";
  if (delta.status == GIT_DELTA_DELETED) return "deleted";
  return git_oid_equal(&delta.old_file.id, &delta.new_file.id) ? "mode" : "modified";
}

const char* path_of(const git_diff_delta& delta) {
  return delta.status == GIT_DELTA_DELETED ? delta.old_file.path : delta.new_file.path;
}

void list_below(git_repository* repository, git_tree* tree, const std::string& path,
                std::vector<std::string>& files) {
  for (size_t i = 0; i < git_tree_entrycount(tree); ++i) {
    const git_tree_entry* entry = git_tree_entry_byindex(tree, i);
    const std::string child = (path.empty() ? "" : path + "/") + git_tree_entry_name(entry);
    if (git_tree_entry_type(entry) != GIT_OBJECT_TREE) {
      files.push_back(child);
      continue;
    }
    git_tree* raw = nullptr;
    check_git_object(git_tree_lookup(&raw, repository, git_tree_entry_id(entry)), "read a tree");
    const GitTree below(raw);
    list_below(repository, raw, child, files);
  }
}

}  // namespace

namespace {

struct Difference {
  ChangedTree before;
  ChangedTree after;
  std::set<std::string> paths;  // to compare; none: all
};

}  // namespace

struct CommitTree::State {
  State(const RepoCache& cache, const std::string& repo, const std::string& commit)
      : repository(cache.mirror_directory(repo)),
        root(find_commit_tree(repository.get(), commit)),
        attributes(repository.get(), root.get()) {}

  GitTreeEntry find(std::string_view path) const { return entry_at(root.get(), std::string(path)); }

  GitOdbObject read(const git_oid& oid) const {
    git_odb_object* object = nullptr;
    check_git_object(git_odb_read(&object, repository.odb(), &oid), "read an object");
    return GitOdbObject(object);
  }

  // nullopt: there is no memory for it.
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

  // The paths to compare. Without them libgit2 walks both trees whole (45 ms for 78,635 files). A
  // file that gave way to a directory is a change that nobody named.
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

  Difference difference(std::vector<Change> changes, const DiffLimits& limits, bool refuse,
                        DiffMemory& memory) const {
    Difference found;
    found.paths = paths_of(changes);
    ChangedTree changed = apply_changes(repository, root.get(), std::move(changes), limits,
                                        refuse ? Oversized::refuse : Oversized::stand_in, memory);
    git_tree* before = nullptr;
    check_git(git_tree_dup(&before, root.get()), "look up a tree");
    found.before = {GitTree(before), {}};
    found.after = std::move(changed);
    return found;
  }

  Difference difference(TwoTrees trees, const DiffLimits& limits, bool refuse,
                        DiffMemory& memory) const {
    Difference found;
    GitTree other;
    if (trees.after_commit.empty()) {
      found.paths = paths_of(trees.before);
      found.paths.merge(paths_of(trees.after));
    } else {  // all paths: the commits differ, too
      other = find_commit_tree(repository.get(), trees.after_commit);
    }
    found.before = apply_changes(repository, root.get(), std::move(trees.before), limits,
                                 refuse ? Oversized::refuse : Oversized::stand_in, memory);
    found.after =
        apply_changes(repository, other ? other.get() : root.get(), std::move(trees.after), limits,
                      refuse ? Oversized::refuse : Oversized::another_stand_in, memory);
    return found;
  }

  // Nothing if there is none.
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
    git_diff* diff = nullptr;
    check_git(git_diff_tree_to_tree(&diff, repository.get(), before, after, &options),
              "compare trees");
    return GitDiff(diff);
  }

  std::string patch_text(const Difference& difference, const DiffLimits& limits,
                         DiffMemory& memory) const;
  std::vector<DiffStat> stats(const Difference& difference, const DiffLimits& limits,
                              DiffMemory& memory) const;

  MemoryRepository repository;
  GitTree root;
  mutable base::LookMemory compared{base::kAllLooksBytes};  // of one file, and what it becomes
  mutable PathAttributes attributes;
  mutable bool incomplete = false;
  Deadline deadline = Deadline::max();
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
        "look up \"" + base::escape_for_message(path) + "\"");
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
                "\"" + base::escape_for_message(path) + "\" is too large");
  }
  const GitOdbObject object = state_->read(parse_oid(entry->oid));
  return {static_cast<const char*>(git_odb_object_data(object.get())),
          git_odb_object_size(object.get())};
}

bool CommitTree::content_equals(std::string_view path, uint32_t mode, int fd) const {
  const std::optional<TreeEntry> entry = lookup(path);
  if (!entry || entry->mode != mode || mode == kModeSymlink) return false;
  struct stat status {};
  base::check(fstat(fd, &status), "look at a file");
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

void CommitTree::set_deadline(Deadline deadline) {
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
    list_below(state_->repository.get(), state_->root.get(), "", files);
    return files;
  }
  const GitTreeEntry entry = state_->find(directory);
  if (!entry || git_tree_entry_type(entry.get()) != GIT_OBJECT_TREE) return files;
  git_tree* raw = nullptr;
  check_git_object(git_tree_lookup(&raw, state_->repository.get(), git_tree_entry_id(entry.get())),
                   "read a tree");
  const GitTree tree(raw);
  list_below(state_->repository.get(), raw, std::string(directory), files);
  return files;
}

namespace {

uint64_t size_in(const ChangedTree& tree, const std::string& path, uint64_t kept) {
  const auto stand_in = tree.stand_ins.find(path);
  return stand_in == tree.stand_ins.end() ? kept : stand_in->second;
}

GitPatch patch_at(git_diff* diff, size_t index) {
  git_patch* patch = nullptr;
  check_git(git_patch_from_diff(&patch, diff, index), "compare a file");
  return GitPatch(patch);
}

DiffStat stat_of(const MemoryRepository& repository, const Difference& difference, git_diff* diff,
                 size_t index, const DiffLimits& limits, DiffMemory& memory) {
  const git_diff_delta* delta = git_diff_get_delta(diff, index);
  DiffStat stat;
  stat.path = path_of(*delta);
  stat.change = change_name(*delta);
  const TextCost cost(repository.odb(), *delta, limits.max_file_bytes, memory.memory());
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

std::string CommitTree::State::patch_text(const Difference& difference, const DiffLimits& limits,
                                          DiffMemory& memory) const {
  const GitDiff found = diff(difference, GIT_DIFF_SHOW_BINARY);
  GitDiff binary;  // the same in binary form, made when a file needs that
  PatchText text(memory, limits.max_patch_bytes);
  for (size_t i = 0; found && i < git_diff_num_deltas(found.get()); ++i) {
    const git_diff_delta* delta = git_diff_get_delta(found.get(), i);
    const TextCost cost(repository.odb(), *delta, limits.max_file_bytes, memory.memory());
    std::optional<base::MemoryShare> binary_share;
    GitPatch patch;
    if (cost.fits() == TextCost::Fits::text) {
      patch = patch_at(found.get(), i);
    } else if (cost.fits() == TextCost::Fits::binary && cost.take_binary(binary_share)) {
      if (!binary) binary = diff(difference, GIT_DIFF_SHOW_BINARY | GIT_DIFF_FORCE_BINARY);
      patch = patch_at(binary.get(), i);  // the flag changes no order
    } else {
      throw Error(Code::resource_exhausted,
                  "\"" + base::escape_for_message(path_of(*delta)) + "\" is too large for a diff",
                  "look at the summary (--stat), or take it out of the workspace with cp");
    }
    const int answer = patch ? git_patch_print(patch.get(), append_line, &text) : 0;
    if (text.full) {
      throw Error(Code::resource_exhausted,
                  "the diff is larger than " + std::to_string(limits.max_patch_bytes) +
                      " bytes, or than there is memory for now",
                  "look at its summary, or at single files");
    }
    check_git(answer, "print the diff");
  }
  return std::move(text.bytes);
}

std::vector<DiffStat> CommitTree::State::stats(const Difference& difference,
                                               const DiffLimits& limits, DiffMemory& memory) const {
  const GitDiff found = diff(difference, 0);
  std::vector<DiffStat> result;
  for (size_t i = 0; found && i < git_diff_num_deltas(found.get()); ++i) {
    DiffStat stat = stat_of(repository, difference, found.get(), i, limits, memory);
    if (!result.empty() && result.back().path == stat.path) {
      // A file that became a link, or the other way round, comes as deleted and added.
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
  return result;
}

std::string CommitTree::patch(std::vector<Change> changes, const DiffLimits& limits) const {
  DiffMemory memory(state_->repository);
  return state_->patch_text(state_->difference(std::move(changes), limits, true, memory), limits,
                            memory);
}

std::vector<DiffStat> CommitTree::stat(std::vector<Change> changes,
                                       const DiffLimits& limits) const {
  DiffMemory memory(state_->repository);
  return state_->stats(state_->difference(std::move(changes), limits, false, memory), limits,
                       memory);
}

std::string CommitTree::patch_between(TwoTrees trees, const DiffLimits& limits) const {
  DiffMemory memory(state_->repository);
  return state_->patch_text(state_->difference(std::move(trees), limits, true, memory), limits,
                            memory);
}

std::vector<DiffStat> CommitTree::stat_between(TwoTrees trees, const DiffLimits& limits) const {
  DiffMemory memory(state_->repository);
  return state_->stats(state_->difference(std::move(trees), limits, false, memory), limits, memory);
}

}  // namespace moorage::repo_cache
