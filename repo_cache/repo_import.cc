// Bundles from clients. A bundle is untrusted: it is unpacked in a quarantine repository that
// borrows the mirror's objects, its two commits are checked there, and then the mirror fetches the
// missing objects from the quarantine, with git's full object checks (index-pack makes none for a
// bundle in git 2.39).
#include <sys/stat.h>

#include "base/crash_point.h"
#include "base/error.h"
#include "base/os/files.h"
#include "repo_cache/git_handles.h"
#include "repo_cache/mirror.h"
#include "repo_cache/repo_cache.h"
#include "repo_cache/repo_cache_state.h"

namespace moorage::repo_cache {

namespace {

MOORAGE_CRASH_POINT(import_unpacked, "repo.import.unpacked");
MOORAGE_CRASH_POINT(import_fetched, "repo.import.fetched");

constexpr const char* kHeadRef = "refs/moorage/head";
constexpr const char* kWorkRef = "refs/moorage/work";

void check_bundle_file(int fd, uint64_t max_bytes) {
  struct stat status {};
  base::check(fstat(fd, &status), "inspect the bundle");
  if (!S_ISREG(status.st_mode))
    throw Error(Code::invalid_argument, "the bundle is not a regular file");
  if (static_cast<uint64_t>(status.st_size) > max_bytes) {
    throw Error(Code::resource_exhausted, "the bundle is larger than the limit");
  }
  const std::string start = base::read_at(fd, 16, 0);
  if (!start.starts_with("# v2 git bundle\n") && !start.starts_with("# v3 git bundle\n")) {
    throw Error(Code::invalid_argument, "this is not a git bundle");
  }
}

// For a thin bundle git searches its missing commits behind the quarantine's own references.
void borrow_objects(const Mirror& mirror, const std::string& quarantine) {
  base::write_file(quarantine + "/objects/info/alternates", mirror.git_directory() + "/objects\n");
  std::string packed = "# pack-refs with: peeled fully-peeled sorted \n";
  for (const auto& oid : mirror.tip_commits())
    packed.append(oid).append(" refs/borrowed/").append(oid).append("\n");
  base::write_file(quarantine + "/packed-refs", packed);
}

git_oid commit_of(git_repository* repository, const char* ref) {
  git_oid oid;
  check_git(git_reference_name_to_id(&oid, repository, ref), std::string("read ") + ref);
  return oid;
}

ImportResult read_commits(const std::string& quarantine) {
  const GitRepository repository = open_mirror(quarantine);
  const git_oid head = commit_of(repository.get(), kHeadRef);
  const git_oid work = commit_of(repository.get(), kWorkRef);
  git_commit* raw = nullptr;
  if (git_commit_lookup(&raw, repository.get(), &work) < 0) {
    throw Error(Code::invalid_argument, std::string(kWorkRef) + " of the bundle is not a commit");
  }
  const GitCommit commit(raw);
  if (git_commit_parentcount(raw) != 1 || !git_oid_equal(git_commit_parent_id(raw, 0), &head)) {
    throw Error(Code::invalid_argument, "the bundle's work commit does not follow its head commit");
  }
  return {format_oid(head), format_oid(work)};
}

void unpack(const Mirror& mirror, const std::string& quarantine, int bundle_fd,
            const MirrorLock& lock, const ImportLimits& limits, const Deadline& deadline) {
  mirror.initialize_at(quarantine, deadline);
  borrow_objects(mirror, quarantine);
  const base::ProcessResult result = mirror.git().try_fetch_file(
      "/proc/self/fd/" + std::to_string(bundle_fd),
      {std::string("+") + kHeadRef + ":" + kHeadRef, std::string("+") + kWorkRef + ":" + kWorkRef},
      deadline,
      {.directory = quarantine,
       .inherit_fds = {lock.fd(), bundle_fd},
       .max_file_bytes = limits.max_bytes});
  if (result.ok()) return;
  if (result.error.find("prerequisite") != std::string::npos) {
    throw Error(Code::conflict, "the bundle needs commits that are not cached here",
                "send a bundle of the whole history");
  }
  const Error failure = git_failure(result, "unpack the bundle");
  const bool ours =
      failure.code() == Code::resource_exhausted || failure.code() == Code::unsupported;
  throw Error(ours ? failure.code() : Code::invalid_argument, failure.message(), failure.hint());
}

}  // namespace

void RepoCache::make_empty(const std::string& repo) const {
  const Deadline deadline(std::chrono::minutes(1));
  const MirrorLock lock(directory(repo), deadline);
  const Mirror mirror(options_, directory(repo));
  if (!mirror.exists()) mirror.initialize(lock, deadline);
}

ImportResult RepoCache::import_bundle(const std::string& repo, int bundle_fd,
                                      const ImportLimits& limits) {
  check_bundle_file(bundle_fd, limits.max_bytes);
  const Deadline deadline(limits.deadline);
  const std::string path = directory(repo);
  const MirrorLock lock(path, deadline);
  const Mirror mirror(options_, path);
  if (!mirror.exists()) mirror.initialize(lock, deadline);
  mirror.recover(deadline);
  const Quarantine quarantine(path + "/import.new");
  unpack(mirror, quarantine.path(), bundle_fd, lock, limits, deadline);
  ImportResult result = read_commits(quarantine.path());
  import_unpacked.pass();

  const std::string head = std::string("+") + kHeadRef + ":";
  const std::string work = std::string("+") + kWorkRef + ":";
  const base::ProcessResult fetched = mirror.git().try_fetch_file(
      quarantine.path(),
      {head + "refs/keep/" + result.head_commit, work + "refs/keep/" + result.work_commit,
       head + kHeadRef, work + kWorkRef},
      deadline,
      {.directory = mirror.git_directory(),
       .inherit_fds = {lock.fd()},
       .max_file_bytes = limits.max_bytes});
  if (!fetched.ok()) throw git_failure(fetched, "import the bundle");
  import_fetched.pass();
  state_->forget(repo);
  return result;
}

}  // namespace moorage::repo_cache
