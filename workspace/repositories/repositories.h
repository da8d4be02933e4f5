// Mirrors and base trees: connects what repo_cache keeps on disk with its rows. A repository's
// identity is its normalized URL and credential scope; its directory is named after the row's id,
// so names cannot collide. Who may see one is decided in workspace/verbs/repositories.h.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/single_flight.h"
#include "repo_cache/base_tree.h"
#include "state_db/tables/repositories.h"
#include "workspace/context/context.h"
#include "workspace/repositories/upstream_access.h"

namespace moorage::workspace {

bool is_torn(const state_db::BaseTreeRow& row);  // a power cut may have damaged it

// The work of a local checkout that its owner uploaded: commits of an imported repository.
struct ImportedWork {
  base::RepoId repo;
  std::string head_commit;
  std::string work_commit;  // child of head: uncommitted and untracked files; may equal head_commit
  std::string raw_commit;   // child of work: its files as they were on disk; may equal work_commit

  std::string subject() const;  // what its upload joins to its key
  static ImportedWork parse(const std::string& subject);
};

// With the time at which upstream last answered. A row has that of the last news: to write it each
// time would cost a sync.
state_db::RepositoryRow with_last_check(const Context& context, state_db::RepositoryRow row);

class Repositories {
 public:
  explicit Repositories(Context& context);
  ~Repositories();

  // Finds or adds the repository and updates its mirror from upstream. Concurrent calls share one
  // clone. If upstream is unreachable, it serves the cached mirror and `stale_reason` says why;
  // without a mirror it throws, and for a private one whose asker has not shown access lately.
  // Joins the key to the repository.
  state_db::RepositoryRow ensure(const std::string& url, const Asker& asker,
                                 const Progress& progress, const JoinKey& join = {});
  // Without asking upstream: if the mirror has that commit, and the asker has shown access lately.
  std::optional<state_db::RepositoryRow> find_commit(const std::string& url, const Asker& asker,
                                                     const std::string& commit);
  // Fetches what that person named and no branch or tag has; see RepoCache::fetch_more.
  void fetch_more(base::RepoId id, const std::string& url, const Asker& asker,
                  const std::string& ref, const Progress& progress);
  // The same as ensure for a known one. unsupported: it came from a local checkout.
  state_db::RepositoryRow fetch(base::RepoId id, const Progress& progress,
                                const JoinKey& join = {});
  // The URL of origin in its workspaces; empty: none.
  static std::string origin_of(const state_db::RepositoryRow& repository);
  // conflict while a workspace is based on it, including deleted ones that can be restored, and
  // while it is being fetched or its row is locked.
  void evict(base::RepoId id, const std::string& reason, const JoinKey& join = {});
  // Removes a base tree, its row first. Conflict: a layer is based on it, or it is being created.
  void drop_base_tree(base::RepoId id, const std::string& commit);
  // Somebody used it in this process within that time; an empty commit means the mirror.
  bool used_within(base::RepoId id, const std::string& commit, std::chrono::milliseconds age);

  // Finds or adds `wanted` and takes the commits of a git bundle into it.
  ImportedWork take_bundle(const state_db::NewRepository& wanted, int bundle_fd,
                           const JoinKey& join);
  // The repository for a workspace from an archive: the mirror of its URL if it exists and has all
  // `objects`, else one of this user's own, which takes the pack. `from` is untrusted.
  base::RepoId adopt(uint32_t uid, const state_db::RepositoryRow& from,
                     const std::vector<std::string>& objects, int pack_fd);
  // The same for a workspace of this store whose mirror may have been evicted or lost.
  bool has_objects(base::RepoId id, const std::vector<std::string>& objects);
  void take_pack(base::RepoId id, const std::vector<std::string>& objects, int pack_fd);

  // Immutable checkout of a commit, created if missing: as a delta if a tree of another commit is
  // close enough. Single flight per commit.
  repo_cache::BaseTreePlaces ensure_base_tree(base::RepoId id, const std::string& commit,
                                              const Progress& progress);
  // Recreates it, whatever exists.
  void remake_base_tree(base::RepoId id, const std::string& commit);
  // Removes leftovers after trees replaced their deltas, even if that was interrupted. Keeps deltas
  // that a mount uses, those of a tree above it, and those about to be mounted.
  using MountedCommits = std::function<std::set<std::string>()>;
  void settle_forms(base::RepoId id, const MountedCommits& mounted);
  // Syncs trees written since the last call and marks them, so that they survive a power cut.
  void sync_base_trees();
  // Why the last sync of this one failed; empty: it succeeded or has not run yet.
  std::string sync_failure(base::RepoId id, const std::string& commit);
  bool at_work(base::RepoId id);  // a verb of this process clones or fetches it

 private:
  std::shared_ptr<void> work_on(base::RepoId id);  // marks it as at work while held
  struct Begun {
    base::RepoId id;
    bool made = false;  // newly created
    std::shared_ptr<void> work;
  };
  Begun begin(const state_db::NewRepository& wanted);
  using Covering = std::optional<UpstreamAccess::Covering>;
  repo_cache::RefreshResult ask_upstream(base::RepoId id, const repo_cache::RepoUrl& url,
                                         const Covering& credential, const Progress& progress);
  state_db::RepositoryRow refresh(base::RepoId id, const repo_cache::RepoUrl& url,
                                  const Covering& credential, const Progress& progress,
                                  const JoinKey& join);
  void settle_imported(base::RepoId id, state_db::RepositoryFacts facts, const JoinKey& join = {},
                       const std::string& subject = {});
  static repo_cache::ProgressFunction adapt(const Progress& progress);

  // base_trees.cc
  void make_sound(base::RepoId id, const std::string& commit, const Progress& progress);
  void make_tree(base::RepoId id, const std::string& commit, const Progress& progress, bool again);
  bool make_delta(base::RepoId id, const std::string& commit);
  void rebase(base::RepoId id);
  void rebase(const state_db::BaseTreeRow& row);

  static constexpr std::string_view kImported = "import:";  // before the URL an archive names
  Context& context_;
  UpstreamAccess upstream_;
  std::mutex mutex_;  // of the maps below
  std::map<base::RepoId, int> work_;
  void note_use(base::RepoId id, const std::string& commit = {});
  // By repository and commit of a base tree; an empty commit means the mirror.
  std::map<std::pair<base::RepoId, std::string>, std::chrono::steady_clock::time_point> used_;
  std::map<std::pair<base::RepoId, std::string>, std::string> sync_failures_;
  std::atomic<bool> stopping_{false};
  base::SingleFlight rebases_;  // by repository; last: its work uses the members above
};

// Removes the files of an evicted repository, unless it is wanted again by now.
void remove_evicted(Context& context, base::RepoId id);

}  // namespace moorage::workspace
