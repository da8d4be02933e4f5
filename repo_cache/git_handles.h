// Owning wrappers for libgit2's handles; its errors become Error. Private to this folder:
// only .cc files include it. The library's configuration search is off: it never reads a system,
// global or XDG file.
#pragma once

#include <git2.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace moorage::repo_cache {

template <auto Free>
struct GitFree {
  template <typename T>
  void operator()(T* handle) const {
    Free(handle);
  }
};
template <typename T, auto Free>
using GitHandle = std::unique_ptr<T, GitFree<Free>>;

using GitRepository = GitHandle<git_repository, git_repository_free>;
using GitOdb = GitHandle<git_odb, git_odb_free>;
using GitOdbObject = GitHandle<git_odb_object, git_odb_object_free>;
using GitObject = GitHandle<git_object, git_object_free>;
using GitCommit = GitHandle<git_commit, git_commit_free>;
using GitTree = GitHandle<git_tree, git_tree_free>;
using GitTreeEntry = GitHandle<git_tree_entry, git_tree_entry_free>;
using GitTreeBuilder = GitHandle<git_treebuilder, git_treebuilder_free>;
using GitReference = GitHandle<git_reference, git_reference_free>;
using GitReferenceIterator = GitHandle<git_reference_iterator, git_reference_iterator_free>;
using GitRevwalk = GitHandle<git_revwalk, git_revwalk_free>;
using GitDiff = GitHandle<git_diff, git_diff_free>;
using GitPatch = GitHandle<git_patch, git_patch_free>;

// Initializes the library once per process. All functions below call it.
void initialize_git();

// Throws "cannot WHAT: ..." for a negative answer of libgit2: not_found, corrupted,
// resource_exhausted, permission_denied, io.
void check_git(int result, std::string_view what);

// The same for an object that a commit reaches: if it is missing, the mirror is broken.
void check_git_object(int result, std::string_view what);

// Calls a function of libgit2 that returns a handle through its first parameter.
template <typename Handle, typename Function, typename... Arguments>
Handle make_git(std::string_view what, Function function, Arguments... arguments) {
  typename Handle::pointer made = nullptr;
  check_git(function(&made, arguments...), what);
  return Handle(made);
}

GitRepository open_mirror(const std::string& git_directory);  // bare, no search upwards
GitOdb open_odb(git_repository* repository);
git_oid parse_oid(std::string_view hex);  // exactly 40 digits, else invalid_argument
std::string format_oid(const git_oid& oid);
GitCommit find_commit(git_repository* repository, const std::string& hex);
bool is_only_parent(const git_commit* commit, const git_oid& parent);
GitTree find_commit_tree(git_repository* repository, const std::string& hex);
// Objects that a commit reaches.
GitTree read_tree(git_repository* repository, const git_oid& oid);
GitOdbObject read_object(git_odb* odb, const git_oid& oid,
                         std::string_view what = "read a file of the commit");
std::string_view content_of(const GitOdbObject& object);

// All direct references with their objects.
void for_each_reference(git_repository* repository,
                        const std::function<void(const git_reference*, const git_oid&)>& work);

std::map<std::string, std::string> list_references(git_repository* repository);

}  // namespace moorage::repo_cache
