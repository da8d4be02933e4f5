// Packs in archives (workspace/verbs/archives.h): exports everything that a workspace may need of
// its repository from a mirror, and imports it again. An imported pack is untrusted: it is indexed
// in a quarantine repository, from which the mirror then fetches, with git's full object checks.
// Its tips become refs/keep/<oid>, never upstream refs.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "base/crash_point.h"
#include "base/error.h"
#include "base/os/files.h"
#include "repo_cache/git_handles.h"
#include "repo_cache/mirror.h"
#include "repo_cache/repo_cache.h"
#include "repo_cache/repo_cache_state.h"

namespace moorage::repo_cache {

namespace {

MOORAGE_CRASH_POINT(pack_indexed, "repo.pack.indexed");
MOORAGE_CRASH_POINT(pack_fetched, "repo.pack.fetched");

std::string keep_ref(const std::string& oid) { return "refs/keep/" + oid; }

// A failure of git on untrusted objects is the sender's fault, except for our disk or memory.
[[noreturn]] void throw_bad_pack(const base::ProcessResult& result) {
  const Error failure = git_failure(result, "import the archive's objects");
  const bool ours =
      failure.code() == Code::resource_exhausted || failure.code() == Code::deadline_exceeded;
  throw Error(ours ? failure.code() : Code::invalid_argument, failure.message(), failure.hint());
}

void index_pack(const Mirror& mirror, const std::string& quarantine, int pack_fd,
                const MirrorLock& lock, const ImportLimits& limits, const Deadline& deadline) {
  base::check(lseek(pack_fd, 0, SEEK_SET), "rewind the pack");
  mirror.initialize_at(quarantine, deadline);
  const GitRun run{.directory = quarantine,
                   .input_fd = pack_fd,
                   .inherit_fds = {lock.fd()},
                   .max_file_bytes = limits.max_bytes};
  const base::ProcessResult result = mirror.git().try_run({"index-pack", "--stdin"}, deadline, run);
  if (!result.ok()) throw_bad_pack(result);
}

// A mirror created for a pack, removed if the import fails: an empty one would seem complete.
class MadeMirror {
 public:
  MadeMirror(const Mirror& mirror, const MirrorLock& lock, const Deadline& deadline)
      : mirror_(mirror), made_(!mirror.exists()) {
    if (made_) mirror.initialize(lock, deadline);
  }
  ~MadeMirror() {
    try {
      if (made_) base::remove_tree(mirror_.git_directory());
    } catch (const Error&) {
      // The reconciler removes leftovers of an evicted repository.
    }
  }
  MadeMirror(MadeMirror&&) = delete;
  void keep() { made_ = false; }

 private:
  const Mirror& mirror_;
  bool made_;
};

}  // namespace

void RepoCache::export_pack(const std::string& repo, const std::string& commit, int pack_fd,
                            Duration patience) const {
  const Deadline deadline(patience);
  const Mirror mirror(options_, directory(repo));
  if (!mirror.exists()) throw Error(Code::not_found, "there is no mirror of " + repo);
  const GitRun run{.directory = mirror.git_directory(),
                   .input = format_oid(parse_oid(commit)) + "\n",
                   .output_fd = pack_fd};
  // Reuses deltas from the mirror's packs; computes none.
  mirror.git().run({"pack-objects", "--revs", "--all", "--stdout", "--quiet", "--delta-base-offset",
                    "--threads=1", "--window=0"},
                   deadline, run, "pack the repository");
}

bool RepoCache::has_objects(const std::string& repo, const std::vector<std::string>& oids) const {
  if (!exists(repo) || base::path_exists(directory(repo) + "/suspect")) return false;
  const GitRepository repository = open_mirror(mirror_directory(repo));
  const GitOdb odb = open_odb(repository.get());
  return std::all_of(oids.begin(), oids.end(), [&](const std::string& hex) {
    const git_oid oid = parse_oid(hex);
    return git_odb_exists(odb.get(), &oid) == 1;
  });
}

void RepoCache::import_pack(const std::string& repo, int pack_fd,
                            const std::vector<std::string>& tips, const ImportLimits& limits) {
  const Deadline deadline(limits.deadline);
  const std::string path = directory(repo);
  const MirrorLock lock(path, deadline);
  const Mirror mirror(options_, path);
  MadeMirror made(mirror, lock, deadline);
  mirror.recover(deadline);
  const Quarantine quarantine(path + "/import.new");
  index_pack(mirror, quarantine.path(), pack_fd, lock, limits, deadline);
  std::vector<std::string> sorted;
  for (const auto& tip : tips) sorted.push_back(format_oid(parse_oid(tip)));
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  std::string packed = "# pack-refs with: sorted \n";
  for (const auto& tip : sorted) packed += tip + " " + keep_ref(tip) + "\n";
  base::write_file(quarantine.path() + "/packed-refs", packed);
  pack_indexed.pass();

  const base::ProcessResult result =
      mirror.git().try_fetch_file(quarantine.path(), {"+refs/keep/*:refs/keep/*"}, deadline,
                                  {.directory = mirror.git_directory(),
                                   .inherit_fds = {lock.fd()},
                                   .max_file_bytes = limits.max_bytes});
  if (!result.ok()) throw_bad_pack(result);
  made.keep();
  pack_fetched.pass();
  state_->forget(repo);
}

}  // namespace moorage::repo_cache
