// Bundles from clients. A bundle is untrusted: it is unpacked in a quarantine repository that
// borrows the mirror's objects, its commits are checked there, and then the mirror fetches the
// missing objects from the quarantine, with git's full object checks (index-pack makes none for a
// bundle in git 2.39).
#include <sys/stat.h>

#include <set>

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
constexpr const char* kRawRef = "refs/moorage/raw";
constexpr std::string_view kRefs = "refs/";
const std::string kLocal = "refs/local/";

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
  const int found = git_reference_name_to_id(&oid, repository, ref);
  if (found == GIT_ENOTFOUND)
    throw Error(Code::invalid_argument, std::string("the bundle has no ") + ref);
  check_git(found, std::string("read ") + ref);
  return oid;
}

// `later` is the same commit or follows it directly.
void check_follows(git_repository* repository, const git_oid& earlier, const git_oid& later,
                   const std::string& name) {
  git_commit* raw = nullptr;
  if (git_commit_lookup(&raw, repository, &later) < 0)
    throw Error(Code::invalid_argument, name + " of the bundle is not a commit");
  const GitCommit commit(raw);
  if (git_oid_equal(&earlier, &later)) return;
  if (!is_only_parent(raw, earlier))
    throw Error(Code::invalid_argument,
                name + " of the bundle does not follow the commit before it");
}

ImportResult read_commits(git_repository* repository) {
  const git_oid head = commit_of(repository, kHeadRef);
  const git_oid work = commit_of(repository, kWorkRef);
  git_oid raw = work;
  const int found = git_reference_name_to_id(&raw, repository, kRawRef);
  if (found != GIT_ENOTFOUND) check_git(found, std::string("read ") + kRawRef);
  check_follows(repository, head, head, kHeadRef);
  check_follows(repository, head, work, kWorkRef);
  check_follows(repository, work, raw, kRawRef);
  return {format_oid(head), format_oid(work), format_oid(raw)};
}

// Makes room for the imported refs. Workspaces show the tips of earlier imports: those that no ref
// names any more stay.
std::string commands_before(const Mirror& mirror, git_repository* imported) {
  std::set<std::string> names;
  std::set<std::string> present;
  for (const auto& [ref, oid] : list_references(imported)) {
    names.insert(kLocal + ref.substr(kRefs.size()));
    present.insert(oid);
  }
  std::string commands;
  const GitRepository repository = open_mirror(mirror.git_directory());
  for (const auto& [ref, oid] : list_references(repository.get())) {
    if (!ref.starts_with(kLocal)) continue;
    if (present.insert(oid).second) commands += keep_command(oid);
    if (!names.contains(ref)) commands += "delete " + ref + "\n";
  }
  return commands;
}

void unpack(const Mirror& mirror, const std::string& quarantine, int bundle_fd,
            const MirrorLock& lock, const ImportLimits& limits, const Deadline& deadline) {
  mirror.initialize_at(quarantine, deadline);
  borrow_objects(mirror, quarantine);
  const base::ProcessResult result =
      mirror.git().try_fetch_file("/proc/self/fd/" + std::to_string(bundle_fd),
                                  {"+refs/moorage/*:refs/moorage/*", "+refs/heads/*:refs/heads/*",
                                   "+refs/tags/*:refs/tags/*", "+refs/remotes/*:refs/remotes/*"},
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
  const GitRepository imported = open_mirror(quarantine.path());
  const ImportResult result = read_commits(imported.get());
  import_unpacked.pass();

  mirror.update_refs(commands_before(mirror, imported.get()), deadline);
  std::vector<std::string> refs{"+refs/heads/*:refs/local/heads/*",
                                "+refs/tags/*:refs/local/tags/*",
                                "+refs/remotes/*:refs/local/remotes/*"};
  std::set<std::string> kept;
  const auto take = [&](const std::string& from, const std::string& commit, const char* to) {
    if (kept.insert(commit).second) refs.push_back("+" + from + ":refs/keep/" + commit);
    refs.push_back("+" + from + ":" + to);
  };
  take(kHeadRef, result.head_commit, kHeadRef);
  take(kWorkRef, result.work_commit, kWorkRef);
  take(result.raw_commit == result.work_commit ? kWorkRef : kRawRef, result.raw_commit, kRawRef);
  const base::ProcessResult fetched =
      mirror.git().try_fetch_file(quarantine.path(), refs, deadline,
                                  {.directory = mirror.git_directory(),
                                   .inherit_fds = {lock.fd()},
                                   .max_file_bytes = limits.max_bytes});
  if (!fetched.ok()) throw git_failure(fetched, "import the bundle");
  import_fetched.pass();
  state_->forget(repo);
  return result;
}

}  // namespace moorage::repo_cache
