// Verbs on repositories: they join the mirror on disk (repo_cache) with its row. A repository is
// known by its normalised URL and credential scope; the directory is named after the row's id, so
// no two can collide.
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

#include "base/flights.h"
#include "repo_cache/base_tree.h"
#include "workspace/context.h"
#include "workspace/requests.h"

namespace moorage::workspace {

bool is_torn(const state_db::BaseTreeRow& row);  // it may lack what a power cut took

class Repositories {
 public:
  explicit Repositories(Context& context);
  ~Repositories();

  // Finds or adds the repository and brings its mirror up to upstream. Concurrent calls make one
  // clone. Upstream unreachable: the cached mirror is served, `stale_reason` says why; without one
  // it throws. The key of `by` is joined to it.
  state_db::RepositoryRow ensure(const std::string& url, const Progress& progress,
                                 const Caller& by = {});
  state_db::RepositoryRow fetch(const Caller& caller, base::RepoId id, const Progress& progress);
  std::vector<state_db::RepositoryRow> list(const Caller& caller);
  state_db::RepositoryRow get(const Caller& caller, base::RepoId id);
  uint64_t workspace_count(base::RepoId id);
  std::string tip(const state_db::RepositoryRow& row);  // commit of the default branch, or empty
  // conflict while a workspace (deleted ones that can come back included) stands on it.
  void remove(const Caller& caller, base::RepoId id);
  // The same for collection. Conflict also where it is being fetched or its row is locked.
  void evict(base::RepoId id, const std::string& reason, const Caller& by = {});
  // Removes a base tree that no layer stands on, and its row first. Conflict: one does, or it is
  // being made.
  void drop_base_tree(base::RepoId id, const std::string& commit);
  // Somebody has asked for it in this process, not longer ago than that.
  bool used_within(base::RepoId id, std::chrono::milliseconds age);
  bool used_within(base::RepoId id, const std::string& commit, std::chrono::milliseconds age);

  // A local checkout, streamed by the CLI as a git bundle. `label` is its path on the client,
  // opaque here; scope "local:<uid>": never shared between users.
  std::vector<std::string> import_tips(const Caller& caller, const std::string& label);
  // An unnamed file in the store's quarantine, to be filled with the bundle.
  base::Fd begin_import();
  ImportedWork finish_import(const Caller& caller, const std::string& label, base::Fd bundle);

  // Where a workspace out of an archive stands: the mirror of its URL if that is here and has all
  // of `objects`, else one of the caller's own, which takes the pack. `from` is a stranger's word.
  base::RepoId adopt(const Caller& caller, const state_db::RepositoryRow& from,
                     const std::vector<std::string>& objects, int pack_fd);
  // The same for a workspace of this store whose mirror may have been evicted or lost.
  bool has_objects(base::RepoId id, const std::vector<std::string>& objects);
  void take_pack(base::RepoId id, const std::vector<std::string>& objects, int pack_fd);

  // Directory below repos/, as repo_cache names it.
  static std::string directory(base::RepoId id) { return id.str(); }
  // Immutable checkout of a commit, made when missing: as a delta where a tree of another commit is
  // near. Single flight per commit.
  repo_cache::BaseTreePlaces ensure_base_tree(base::RepoId id, const std::string& commit,
                                              const Progress& progress);
  // Anew, whatever is there.
  void remake_base_tree(base::RepoId id, const std::string& commit);
  // After trees became whole in place of their deltas, or that was cut: removes what is left. Not a
  // delta that a mount has, or one of a tree above it, or whoever is about to make one.
  using Mounted = std::function<std::set<std::string>()>;  // commits that mounts stand on
  void settle_forms(base::RepoId id, const Mounted& mounted);
  // Syncs trees written since the last call and marks them, so that they survive a power cut.
  void sync_base_trees();
  // Why the last call could not sync this one; empty: it could, or has not come to it yet.
  std::string sync_failure(base::RepoId id, const std::string& commit);
  bool at_work(base::RepoId id);  // a verb of this process clones or fetches it

 private:
  class Work {  // as long as it lives, its repository is at work
   public:
    Work(Repositories& owner, base::RepoId id);
    ~Work();
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   private:
    Repositories& owner_;
    base::RepoId id_;
  };
  struct Begun {
    base::RepoId id;
    bool made = false;  // it is new
    std::unique_ptr<Work> work;
  };
  Begun begin(const state_db::NewRepository& wanted);
  state_db::RepositoryRow refresh(base::RepoId id, const std::string& url, const Progress& progress,
                                  const Caller& by);
  // `also` is in the commit of it.
  void settle_imported(base::RepoId id, state_db::RepositoryFacts facts,
                       const std::function<void()>& also = {});
  static repo_cache::ProgressFunction adapt(const Progress& progress);

  // base_trees.cc
  void make_sound(base::RepoId id, const std::string& commit, const Progress& progress);
  bool is_sound(const std::optional<state_db::BaseTreeRow>& row);
  void make_tree(base::RepoId id, const std::string& commit, const Progress& progress, bool again);
  bool make_delta(base::RepoId id, const std::string& commit);
  std::optional<std::string> near_tree(base::RepoId id, const std::string& commit);
  std::optional<size_t> depth_if_sound(const state_db::BaseTreeRow& row);
  void put_row(base::RepoId id, const std::string& commit, const repo_cache::BaseTreeInfo& info);
  std::string origin_of(base::RepoId id);
  bool is_deep(base::RepoId id, const std::string& commit);
  void rebase(base::RepoId id);
  void rebase(const state_db::BaseTreeRow& row);
  enum class OldForm { none, cut, replaced };
  OldForm old_form(const state_db::BaseTreeRow& row);
  void remove_old_form(const state_db::BaseTreeRow& row, OldForm form);

  static constexpr std::string_view kImported = "import:";  // before the URL an archive names
  Context& context_;
  // When upstream last answered: kept in memory, as a row's update a check would cost a sync.
  std::mutex checked_mutex_;
  std::map<base::RepoId, int64_t> checked_;
  std::mutex work_mutex_;
  std::map<base::RepoId, int> work_;
  void note_use(base::RepoId id, const std::string& commit = {});
  std::mutex used_mutex_;
  // By repository, and commit of a base tree; an empty commit: of the mirror.
  std::map<std::pair<base::RepoId, std::string>, std::chrono::steady_clock::time_point> used_;
  std::mutex failures_mutex_;
  std::map<std::pair<base::RepoId, std::string>, std::string> sync_failures_;
  std::atomic<bool> stopping_{false};
  base::Flights rebases_;  // by repository; last: its work uses the rest
};

// What an evicted repository has on disk, unless it is wanted again by now.
void remove_evicted(Context& context, base::RepoId id);

}  // namespace moorage::workspace
