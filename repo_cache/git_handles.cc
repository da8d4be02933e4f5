#include "repo_cache/git_handles.h"

#include <sys/stat.h>
#include <unistd.h>

#include <mutex>

#include "base/error.h"

namespace moorage::repo_cache {

namespace {

void set_up_library() {
  if (git_libgit2_init() < 0) {
    throw Error(Code::internal, "cannot initialize libgit2");
  }
  for (int level : {GIT_CONFIG_LEVEL_PROGRAMDATA, GIT_CONFIG_LEVEL_SYSTEM, GIT_CONFIG_LEVEL_XDG,
                    GIT_CONFIG_LEVEL_GLOBAL}) {
    check_git(git_libgit2_opts(GIT_OPT_SET_SEARCH_PATH, level, ""), "set up libgit2");
  }
  check_git(git_libgit2_opts(GIT_OPT_SET_OWNER_VALIDATION, 1), "set up libgit2");
  check_git(git_libgit2_opts(GIT_OPT_ENABLE_STRICT_OBJECT_CREATION, 1), "set up libgit2");
  check_git(git_libgit2_opts(GIT_OPT_ENABLE_FSYNC_GITDIR, 1), "set up libgit2");
  // Keeps the parsed trees of a usual repository in memory: each path lookup needs its parents.
  check_git(git_libgit2_opts(GIT_OPT_SET_CACHE_OBJECT_LIMIT, GIT_OBJECT_TREE, size_t{256} << 10),
            "set up libgit2");
  // index-pack checks incoming objects, with fsck. Hashing every object again on every read halves
  // the speed of a checkout (78,635 files: 3.1 s against 1.9 s) and git does not do it either;
  // zlib's checksum remains.
  check_git(git_libgit2_opts(GIT_OPT_ENABLE_STRICT_HASH_VERIFICATION, 0), "set up libgit2");
}

Code code_of(int result, int error_class) {
  switch (result) {
    case GIT_ENOTFOUND:
      return Code::not_found;
    case GIT_EAMBIGUOUS:
    case GIT_EINVALIDSPEC:
      return Code::invalid_argument;
    case GIT_EOWNER:
      return Code::permission_denied;
    case GIT_EMISMATCH:
      return Code::corrupted;
    case GIT_ELOCKED:
    case GIT_EMODIFIED:
      return Code::conflict;
    default:
      break;
  }
  switch (error_class) {
    case GIT_ERROR_NOMEMORY:
      return Code::resource_exhausted;
    case GIT_ERROR_ZLIB:
    case GIT_ERROR_ODB:
    case GIT_ERROR_OBJECT:
    case GIT_ERROR_TREE:
    case GIT_ERROR_REFERENCE:
      return Code::corrupted;
    default:
      return Code::io;
  }
}

}  // namespace

void initialize_git() {
  static std::once_flag once;
  std::call_once(once, set_up_library);
}

void check_git(int result, std::string_view what) {
  if (result >= 0) return;
  const git_error* error = git_error_last();
  const int error_class = error ? error->klass : GIT_ERROR_NONE;
  const std::string text = error && error->message ? error->message : "unknown libgit2 error";
  throw Error(code_of(result, error_class), "cannot " + std::string(what) + ": " + text);
}

void check_git_object(int result, std::string_view what) {
  if (result != GIT_ENOTFOUND) return check_git(result, what);
  throw Error(Code::corrupted, "cannot " + std::string(what) + ": the object is missing");
}

GitRepository open_mirror(const std::string& git_directory) {
  initialize_git();
  // libgit2 checks the owner only of repositories with a working tree.
  struct stat info;
  base::check(stat(git_directory.c_str(), &info), "open mirror " + git_directory);
  if (info.st_uid != geteuid()) {
    throw Error(
        Code::permission_denied,
        "mirror " + git_directory + " belongs to another user, " + std::to_string(info.st_uid),
        "find out who changed it; then: chown -R root: " + git_directory);
  }
  return make_git<GitRepository>("open mirror " + git_directory, git_repository_open_ext,
                                 git_directory.c_str(),
                                 GIT_REPOSITORY_OPEN_NO_SEARCH | GIT_REPOSITORY_OPEN_BARE, nullptr);
}

GitOdb open_odb(git_repository* repository) {
  return make_git<GitOdb>("open the object database", git_repository_odb, repository);
}

git_oid parse_oid(std::string_view hex) {
  git_oid oid;
  if (hex.size() != GIT_OID_HEXSZ || git_oid_fromstrn(&oid, hex.data(), hex.size()) < 0) {
    throw Error(Code::invalid_argument, "not a commit id: " + std::string(hex.substr(0, 64)));
  }
  return oid;
}

std::string format_oid(const git_oid& oid) {
  std::string hex(GIT_OID_HEXSZ, '0');
  git_oid_fmt(hex.data(), &oid);
  return hex;
}

GitCommit find_commit(git_repository* repository, const std::string& hex) {
  const git_oid oid = parse_oid(hex);
  return make_git<GitCommit>("read commit " + hex, git_commit_lookup, repository, &oid);
}

bool is_only_parent(const git_commit* commit, const git_oid& parent) {
  return git_commit_parentcount(commit) == 1 &&
         git_oid_equal(git_commit_parent_id(commit, 0), &parent);
}

GitTree find_commit_tree(git_repository* repository, const std::string& hex) {
  const GitCommit commit = find_commit(repository, hex);
  git_tree* tree = nullptr;
  check_git_object(git_commit_tree(&tree, commit.get()), "read the tree of commit " + hex);
  return GitTree(tree);
}

GitTree read_tree(git_repository* repository, const git_oid& oid) {
  git_tree* tree = nullptr;
  check_git_object(git_tree_lookup(&tree, repository, &oid), "read a directory of the commit");
  return GitTree(tree);
}

GitOdbObject read_object(git_odb* odb, const git_oid& oid, std::string_view what) {
  git_odb_object* object = nullptr;
  check_git_object(git_odb_read(&object, odb, &oid), what);
  return GitOdbObject(object);
}

std::string_view content_of(const GitOdbObject& object) {
  return {static_cast<const char*>(git_odb_object_data(object.get())),
          git_odb_object_size(object.get())};
}

std::map<std::string, std::string> list_references(git_repository* repository) {
  std::map<std::string, std::string> result;
  for_each_reference(repository, [&](const git_reference* reference, const git_oid& oid) {
    result.emplace(git_reference_name(reference), format_oid(oid));
  });
  return result;
}

void for_each_reference(git_repository* repository,
                        const std::function<void(const git_reference*, const git_oid&)>& work) {
  const auto iterator =
      make_git<GitReferenceIterator>("list references", git_reference_iterator_new, repository);
  for (;;) {
    git_reference* next = nullptr;
    const int answer = git_reference_next(&next, iterator.get());
    if (answer == GIT_ITEROVER) return;
    check_git(answer, "list references");
    const GitReference reference(next);
    if (const git_oid* oid = git_reference_target(next)) work(next, *oid);
  }
}

}  // namespace moorage::repo_cache
