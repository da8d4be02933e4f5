// What a commit contains: its files, and whether a file of a worktree equals one of them.
#include <fcntl.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/log.h"
#include "repo_cache/commit_tree_state.h"
#include "repo_cache/formats/worktree_filter.h"
#include "repo_cache/tree_listing.h"

namespace moorage::repo_cache {

CommitTree::State::State(const RepoCache& cache, const std::string& repo, const std::string& commit)
    : repository(cache.mirror_directory(repo)),
      root(find_commit_tree(repository.get(), commit)),
      attributes(repository.get(), root.get()) {}

std::optional<bool> CommitTree::State::equals_converted(const Conversion& conversion,
                                                        const git_oid& oid, int fd,
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

void CommitTree::State::list_files(const git_oid& oid, const std::string& path,
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

uint64_t CommitTree::memory_bytes() const { return state_->attributes.memory_bytes(); }

bool CommitTree::incomplete() const { return state_->incomplete; }

bool CommitTree::link_equals(std::string_view path, std::string_view target) const {
  const std::optional<TreeEntry> entry = lookup(path);
  if (!entry || entry->mode != kModeSymlink || entry->size != target.size()) return false;
  return read_blob(path, entry->size) == target;
}

bool CommitTree::each_difference(const CommitTree& other,
                                 const std::function<bool(std::string_view path)>& visit) const {
  constexpr uint64_t kMostDirectories = 1'000'000;
  return repo_cache::each_difference(state_->repository.get(), *git_tree_id(state_->root.get()),
                                     *git_tree_id(other.state_->root.get()), kMostDirectories,
                                     visit);
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

}  // namespace moorage::repo_cache
