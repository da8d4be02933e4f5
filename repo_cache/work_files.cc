// The files that a workspace on uncommitted work has over the base tree of that work. Its git
// stands on HEAD: an index of HEAD, in which changed files have no times, so git reads them. And a
// checkout may give a file other bytes than it had on disk (CRLF under `text`): those are written
// here.
#include <fcntl.h>
#include <sys/stat.h>

#include <functional>
#include <unordered_map>

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

// The files of the work that a checkout of it would not give as they were on disk.
class RawFiles {
 public:
  RawFiles(const RepoCache& cache, const std::string& repo, const std::string& work)
      : repository_(open_mirror(cache.mirror_directory(repo))),
        odb_(open_odb(repository_.get())),
        listing_(list_tree(repository_.get(), work)),
        attributes_(
            read_attributes(repository_.get(), listing_, cache.options().max_attribute_steps)),
        work_(work) {}

  // Calls with each file as stored, and the id of its bytes on disk.
  void each(const std::string& raw,
            const std::function<void(const ListedFile&, const git_oid&)>& use) {
    std::unordered_map<std::string, git_oid> on_disk;
    for_each_difference(repository_.get(), work_, raw, [&](const git_diff_delta& delta) {
      if (delta.status != GIT_DELTA_MODIFIED || !is_file(delta.old_file.mode) ||
          delta.old_file.mode != delta.new_file.mode) {
        throw Error(Code::invalid_argument,
                    "the two forms of the uncommitted work are not the same files: " +
                        base::escape_for_message(delta.new_file.path));
      }
      on_disk.emplace(delta.new_file.path, delta.new_file.id);
    });
    for (const ListedFile& file : listing_.files) {
      if (!is_file(file.mode)) continue;
      const auto other = on_disk.find(file.path);
      const git_oid& wanted = other == on_disk.end() ? file.oid : other->second;
      if (!checkout_gives(file, wanted)) use(file, wanted);
    }
  }

 private:
  bool checkout_gives(const ListedFile& file, const git_oid& wanted) {
    const Conversion conversion = attributes_.conversion(file.path);
    if (!changes_in_checkout(conversion, file.oid)) return git_oid_equal(&file.oid, &wanted);
    const GitOdbObject blob = read_object(odb_.get(), file.oid);
    const GitOdbObject raw = read_object(odb_.get(), wanted);
    const auto converted = to_worktree(conversion, content_of(blob), format_oid(file.oid));
    return (converted ? std::string_view(*converted) : content_of(blob)) == content_of(raw);
  }

  bool changes_in_checkout(const Conversion& conversion, const git_oid& stored) {
    size_t size = 0;
    git_object_t type = GIT_OBJECT_INVALID;
    const bool adds_cr =
        conversion.line_ends == LineEnds::crlf || conversion.line_ends == LineEnds::auto_crlf;
    if (!adds_cr && !conversion.ident && conversion.encoding.empty()) return false;
    check_git_object(git_odb_read_header(&size, &type, odb_.get(), &stored), "read a file");
    return size <= kMaxConvertedBytes;
  }

  const GitRepository repository_;
  const GitOdb odb_;
  const TreeListing listing_;
  const Attributes attributes_;
  const std::string work_;
};

class RawWriter {
 public:
  RawWriter(const RepoCache& cache, const std::string& repo, int upper)
      // Not the time in the base tree's index, so that git reads these files.
      : blobs_(cache.options(), cache.mirror_directory(repo), as_stored_,
               static_cast<uint32_t>(base::system_clock().wall_ms() / 1000)),
        upper_(upper) {}

  void put(ListedFile file, const git_oid& raw) {
    const Fd directory = make_directory(file.directory());
    file.oid = raw;
    blobs_.write(directory.get(), file.name(), file);
  }
  uint64_t files() const { return blobs_.counts().files; }

 private:
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

  const Attributes as_stored_;  // none
  BlobWriter blobs_;
  const int upper_;
};

}  // namespace

uint64_t BaseTrees::write_raw_files(const std::string& repo, const std::string& work_commit,
                                    const std::string& raw_commit, int upper_fd) const {
  uint64_t files = 0;
  run_as_owner(cache_.options().disk_first_id + kFileOwner, 1, [&](unsigned) {
    RawWriter writer(cache_, repo, upper_fd);
    RawFiles(cache_, repo, work_commit).each(raw_commit, [&](const auto& file, const auto& raw) {
      writer.put(file, raw);
    });
    files = writer.files();
  });
  return files;
}

std::string BaseTrees::index_at(const std::string& repo, const std::string& work_commit,
                                const std::string& head_commit,
                                const std::string& raw_commit) const {
  const std::string place = directory(repo, work_commit);
  const std::string old = base::read_file(
      files_of(place, read_manifest(place, work_commit)) + "/.git/index", kMaxIndexBytes);
  const GitRepository repository = open_mirror(cache_.mirror_directory(repo));
  IndexChanges changes;
  // Their size in the base tree's index is another one, by which git would take them for changed.
  if (!raw_commit.empty()) {
    RawFiles(cache_, repo, work_commit).each(raw_commit, [&](const ListedFile& file, const auto&) {
      changes.put[file.path] = {file.mode, file.oid, {}};
    });
  }
  for_each_difference(repository.get(), work_commit, head_commit, [&](const git_diff_delta& delta) {
    if (delta.status == GIT_DELTA_DELETED) {
      changes.put.erase(delta.old_file.path);
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
