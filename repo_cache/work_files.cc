// The files that a workspace on uncommitted work has over the base tree of that work. Its git
// stands on HEAD: an index of HEAD, in which changed files have no times, so git reads them. And a
// checkout may give a file other bytes than it had on disk (CRLF under `text`): those are written
// here.
#include <fcntl.h>
#include <sys/stat.h>

#include <functional>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "repo_cache/base_manifest.h"
#include "repo_cache/base_tree.h"
#include "repo_cache/blob_writer.h"
#include "repo_cache/formats/worktree_filter.h"
#include "repo_cache/fsuid_threads.h"
#include "repo_cache/git_handles.h"
#include "repo_cache/tree_diff.h"
#include "repo_cache/workspace_git.h"

namespace moorage::repo_cache {

namespace {

constexpr uint32_t kFileOwner = 1000;  // over disk_first_id

using EachDelta = std::function<void(const git_diff_delta&)>;

void for_each_difference(git_repository* repository, const std::string& from, const std::string& to,
                         const EachDelta& work) {
  const GitTree before = find_commit_tree(repository, from);
  const GitTree after = find_commit_tree(repository, to);
  git_diff_options options = GIT_DIFF_OPTIONS_INIT;
  options.flags = GIT_DIFF_INCLUDE_TYPECHANGE | GIT_DIFF_SKIP_BINARY_CHECK;
  const auto diff = make_git<GitDiff>("compare two commits", git_diff_tree_to_tree, repository,
                                      before.get(), after.get(), &options);
  for (size_t n = 0; n < git_diff_num_deltas(diff.get()); ++n)
    work(*git_diff_get_delta(diff.get(), n));
}

bool is_file(uint32_t mode) { return mode == kModeFile || mode == kModeExecutable; }

class RawWriter {
 public:
  RawWriter(const RepoCache& cache, const std::string& repo, const std::string& work, int upper)
      : repository_(open_mirror(cache.mirror_directory(repo))),
        odb_(open_odb(repository_.get())),
        attributes_(read_attributes(repository_.get(), list_tree(repository_.get(), work),
                                    cache.options().max_attribute_steps)),
        // Not the time in the base tree's index, so that git reads these files.
        blobs_(cache.options(), cache.mirror_directory(repo), as_stored_,
               static_cast<uint32_t>(base::system_clock().wall_ms() / 1000)),
        upper_(upper) {}

  uint64_t write(const std::string& work, const std::string& raw) {
    for_each_difference(repository_.get(), work, raw, [this](const git_diff_delta& delta) {
      const std::string path = delta.new_file.path;
      if (delta.status != GIT_DELTA_MODIFIED || !is_file(delta.old_file.mode) ||
          delta.old_file.mode != delta.new_file.mode) {
        throw Error(Code::invalid_argument,
                    "the two forms of the uncommitted work are not the same files: " +
                        base::escape_for_message(path));
      }
      if (!checkout_gives(path, delta.old_file.id, delta.new_file.id)) put(path, delta.new_file);
    });
    return blobs_.counts().files;
  }

 private:
  bool checkout_gives(const std::string& path, const git_oid& stored, const git_oid& wanted) {
    const Conversion conversion = attributes_.conversion(path);
    if (!changes_in_checkout(conversion, stored)) return false;
    const GitOdbObject blob = read_object(odb_.get(), stored);
    const GitOdbObject raw = read_object(odb_.get(), wanted);
    return to_worktree(conversion, content_of(blob), format_oid(stored)) == content_of(raw);
  }

  bool changes_in_checkout(const Conversion& conversion, const git_oid& stored) {
    size_t size = 0;
    git_object_t type = GIT_OBJECT_INVALID;
    check_git_object(git_odb_read_header(&size, &type, odb_.get(), &stored), "read a file");
    return conversion.changes_bytes() && size <= kMaxConvertedBytes;
  }

  void put(const std::string& path, const git_diff_file& raw) {
    const size_t name_at = path.rfind('/') + 1;  // 0 without a slash
    const Fd directory = make_directory(path.substr(0, name_at ? name_at - 1 : 0));
    ListedFile file;
    file.path = path;
    file.name_at = static_cast<uint32_t>(name_at);
    file.mode = raw.mode;
    file.oid = raw.id;
    blobs_.write(directory.get(), path.c_str() + name_at, file);
  }

  Fd make_directory(const std::string& path) {
    Fd at = base::open_file_at(upper_, ".", O_RDONLY | O_DIRECTORY);
    for (size_t begin = 0; begin < path.size();) {
      const size_t end = std::min(path.find('/', begin), path.size());
      const std::string name = path.substr(begin, end - begin);
      if (mkdirat(at.get(), name.c_str(), 0755) < 0 && errno != EEXIST)
        base::throw_errno("create " + base::escape_for_message(path));
      at = base::open_file_at(at.get(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
      begin = end + 1;
    }
    return at;
  }

  const GitRepository repository_;
  const GitOdb odb_;
  const Attributes attributes_;  // of the work
  const Attributes as_stored_;   // none
  BlobWriter blobs_;
  const int upper_;
};

}  // namespace

uint64_t BaseTrees::write_raw_files(const std::string& repo, const std::string& work_commit,
                                    const std::string& raw_commit, int upper_fd) const {
  uint64_t files = 0;
  run_as_owner(cache_.options().disk_first_id + kFileOwner, 1, [&](unsigned) {
    files = RawWriter(cache_, repo, work_commit, upper_fd).write(work_commit, raw_commit);
  });
  return files;
}

std::string BaseTrees::index_at(const std::string& repo, const std::string& work_commit,
                                const std::string& head_commit) const {
  const std::string place = directory(repo, work_commit);
  const std::string old = base::read_file(
      files_of(place, read_manifest(place, work_commit)) + "/.git/index", kMaxIndexBytes);
  const GitRepository repository = open_mirror(cache_.mirror_directory(repo));
  IndexChanges changes;
  for_each_difference(repository.get(), work_commit, head_commit, [&](const git_diff_delta& delta) {
    if (delta.status == GIT_DELTA_DELETED) {
      changes.gone.insert(delta.old_file.path);
    } else {
      changes.put[delta.new_file.path] = {delta.new_file.mode, delta.new_file.id, {}};
    }
  });
  const GitTree head = find_commit_tree(repository.get(), head_commit);
  return merge_index(
             old, read_index(old), changes, *git_tree_id(head.get()),
             [&](const git_oid& tree) { return index_tree_entries(repository.get(), tree); })
      .bytes;
}

}  // namespace moorage::repo_cache
