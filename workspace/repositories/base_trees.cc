// The part of Repositories that makes base trees. A commit close to one that has a tree becomes a
// delta over it. Deltas stack a few levels deep; then the newest is also written as a whole tree in
// the background, and later mounts use that.
#include <sys/types.h>

#include <algorithm>

#include "base/clock.h"
#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/process.h"
#include "repo_cache/repo_cache.h"
#include "state_db/store.h"
#include "workspace/context/free_space.h"
#include "workspace/context/try_step.h"
#include "workspace/repositories/repositories.h"

namespace moorage::workspace {
namespace {

using state_db::BaseTreeRow;

MOORAGE_CRASH_POINT(after_base_tree, "base_tree.after_write");
MOORAGE_CRASH_POINT(drop_after_row, "drop_base_tree.after_row");
MOORAGE_CRASH_POINT(drop_after_files, "drop_base_tree.after_files");
MOORAGE_CRASH_POINT(rebase_after_old_form, "rebase.after_old_form");

constexpr std::chrono::minutes kCheckoutDeadline{30};
// Limits how often a base tree is marked as used: each mark is a synchronous write.
constexpr int64_t kTouchInterval_ms = 3'600'000;

constexpr size_t kCandidates = 4;     // newest trees considered as a parent
constexpr uint64_t kSmallTree = 256;  // files: a whole tree is as quick as a delta
constexpr uint64_t kMostChanged = 10'000;
constexpr uint64_t kNearShare = 8;   // a delta has at most 1/8 of the files;
constexpr uint64_t kHeavyShare = 4;  // a stack beyond 1/4 of them is rebased,
constexpr size_t kDeep = 4;          // or with this many deltas
static_assert(kDeep < repo_cache::kMaxDeltas);

bool is_sound(Context& context, const std::optional<BaseTreeRow>& row) {
  return row && !is_torn(*row) &&
         context.base_trees.whole(repo_directory(row->repository), row->commit);
}

void put_row(Context& context, base::RepoId id, const std::string& commit,
             const repo_cache::BaseTreeInfo& info) {
  state_db::BaseTreeTable table(context.store);
  const auto before = table.find(id, commit);
  BaseTreeRow made;
  made.repository = id;
  made.commit = commit;
  made.files = info.files;
  made.bytes = info.bytes;
  made.submodules = info.submodules;
  made.lfs_files = info.lfs_files;
  made.boot_id = base::boot_id();
  made.created_wall_ms = made.last_used_wall_ms = context.store.clock().wall_ms();
  made.parent = info.parent;
  // Mounts may still use its delta: settle_forms() releases the parent later.
  if (made.parent.empty() && before) made.parent = before->parent;
  made.disk_files = info.own_files;
  made.disk_bytes = info.own_bytes;
  table.put(made);
}

// Depth of a tree if it can be the parent of a delta.
std::optional<size_t> depth_if_sound(Context& context, const BaseTreeRow& row) {
  const std::string repo = repo_directory(row.repository);
  std::optional<BaseTreeRow> at = row;
  for (size_t depth = 0; depth < repo_cache::kMaxDeltas; ++depth) {
    if (!is_sound(context, at)) return std::nullopt;
    const std::string parent = context.base_trees.info(repo, at->commit).parent;
    if (parent.empty()) return depth;
    at = state_db::BaseTreeTable(context.store).find(row.repository, parent);
  }
  return std::nullopt;
}

// The nearest among the newest trees.
std::optional<std::string> near_tree(Context& context, base::RepoId id, const std::string& commit) {
  auto rows = state_db::BaseTreeTable(context.store).list(id);
  std::erase_if(rows,
                [&](const auto& row) { return row.commit == commit || row.files < kSmallTree; });
  const size_t count = std::min(kCandidates, rows.size());
  std::partial_sort(
      rows.begin(), rows.begin() + static_cast<ptrdiff_t>(count), rows.end(),
      [](const auto& a, const auto& b) { return a.created_wall_ms > b.created_wall_ms; });
  rows.resize(count);
  std::vector<repo_cache::BaseTrees::Candidate> candidates;
  for (const auto& row : rows) {
    if (depth_if_sound(context, row))
      candidates.push_back({row.commit, std::min(kMostChanged, row.files / kNearShare)});
  }
  if (candidates.empty()) return std::nullopt;
  return context.base_trees.nearest(repo_directory(id), commit, candidates);
}

bool is_deep(Context& context, base::RepoId id, const std::string& commit) {
  const std::string repo = repo_directory(id);
  size_t depth = 0;
  uint64_t heavy = 0;
  auto info = context.base_trees.info(repo, commit);
  const uint64_t files = info.files;
  for (; !info.parent.empty() && depth < repo_cache::kMaxDeltas; ++depth) {
    heavy += info.own_files;
    info = context.base_trees.info(repo, info.parent);
  }
  return depth >= kDeep || heavy > files / kHeavyShare;
}

// replaced: the delta remains beside its whole tree, because mounts may use it.
enum class OldForm { none, cut, replaced };

OldForm old_form(Context& context, const BaseTreeRow& row) {
  const std::string repo = repo_directory(row.repository);
  if (!context.base_trees.exists(repo, row.commit)) return OldForm::none;
  const bool is_delta = !context.base_trees.info(repo, row.commit).parent.empty();
  const bool is_left = context.base_trees.has_old_form(repo, row.commit);
  if (is_delta) return is_left ? OldForm::cut : OldForm::none;
  return is_left || !row.parent.empty() ? OldForm::replaced : OldForm::none;
}

void remove_old_form(Context& context, const BaseTreeRow& row, OldForm form) {
  const auto guard = lock_if_free(context, row.repository.str() + "." + row.commit);
  if (!guard || old_form(context, row) != form) return;
  context.base_trees.remove_old_form(repo_directory(row.repository), row.commit);
  if (form == OldForm::cut) return;
  rebase_after_old_form.pass();
  state_db::BaseTreeTable(context.store).set_parent(row.repository, row.commit, "");
}

}  // namespace

Repositories::Repositories(Context& context)
    : context_(context), upstream_(context), rebases_(1, [this](int64_t key) {
        try_step("base_tree.rebase", base::RepoId{key}.str(), [&] { rebase(base::RepoId{key}); });
      }) {}

Repositories::~Repositories() { stopping_ = true; }

repo_cache::BaseTreePlaces Repositories::ensure_base_tree(base::RepoId id,
                                                          const std::string& commit,
                                                          const Progress& progress) {
  note_use(id);
  make_sound(id, commit, progress);
  note_use(id, commit);  // again: a checkout takes long
  return context_.base_trees.places(repo_directory(id), commit);
}

// A tree from another boot that was not synced may be torn: it is made again.
bool is_torn(const BaseTreeRow& row) { return !row.synced && row.boot_id != base::boot_id(); }

// Checks the tree and everything below it, top first.
void Repositories::make_sound(base::RepoId id, const std::string& commit,
                              const Progress& progress) {
  state_db::BaseTreeTable table(context_.store);
  std::string at = commit;
  for (size_t depth = 0; depth <= repo_cache::kMaxDeltas && !at.empty(); ++depth) {
    note_use(id, at);
    auto row = table.find(id, at);
    if (!is_sound(context_, row)) {
      const auto guard = context_.locks.lock(id.str() + "." + at, "checkout", kCheckoutDeadline);
      row = table.find(id, at);
      if (!is_sound(context_, row)) make_tree(id, at, progress, row.has_value() || depth > 0);
      row = table.find(id, at);
    } else if (context_.store.clock().wall_ms() - row->last_used_wall_ms > kTouchInterval_ms) {
      table.touch(id, at);
    }
    const std::string parent = context_.base_trees.info(repo_directory(id), at).parent;
    // A restored older state.db may list it as a whole tree.
    if (row && !parent.empty() && row->parent != parent) table.set_parent(id, at, parent);
    at = parent;
  }
}

// The origin of an import is only a name in the agent's git configuration: we never fetch it.
std::string Repositories::origin_of(const state_db::RepositoryRow& repository) {
  const bool is_named = has_upstream(repository.scope) || repository.fetch_url != repository.url;
  return is_named ? repository.fetch_url : "";
}

// Caller holds its lock. A tree made again is always whole, so stacks on it never get deeper.
void Repositories::make_tree(base::RepoId id, const std::string& commit, const Progress& progress,
                             bool again) {
  const std::string repo = repo_directory(id);
  const auto row = state_db::RepositoryTable(context_.store).get(id);
  const std::string refusal = "the files of " + row.name + " do not fit";
  const std::string old_index = again && context_.base_trees.exists(repo, commit)
                                    ? context_.base_trees.index(repo, commit)
                                    : "";
  // Running sandboxes may use a tree that was damaged, so the reconciler removes it later. None
  // uses a tree that was last written before this boot without a sync.
  const auto before = state_db::BaseTreeTable(context_.store).find(id, commit);
  const bool torn = before && is_torn(*before);
  using StoodOn = repo_cache::BaseTrees::StoodOn;
  context_.base_trees.set_aside(repo, commit, torn ? StoodOn::no : StoodOn::maybe);
  if (!again && make_delta(id, commit)) return;
  const auto info = context_.base_trees.write(
      repo, commit, origin_of(row), kCheckoutDeadline, adapt(progress),
      [&] { require_room(context_.options, refusal); }, old_index);
  after_base_tree.pass();
  put_row(context_, id, commit, info);
}

void Repositories::remake_base_tree(base::RepoId id, const std::string& commit) {
  const auto guard = context_.locks.lock(id.str() + "." + commit, "checkout", kCheckoutDeadline);
  make_tree(id, commit, {}, true);
}

// False: nothing near, or it failed; then write a whole tree.
bool Repositories::make_delta(base::RepoId id, const std::string& commit) {
  const std::string repo = repo_directory(id);
  try {
    const auto parent = near_tree(context_, id, commit);
    if (!parent) return false;
    require_room(context_.options, "cannot make a base tree");
    const auto info = context_.base_trees.write_over(repo, commit, *parent, kCheckoutDeadline);
    after_base_tree.pass();
    put_row(context_, id, commit, info);  // conflict: its parent was collected meanwhile
  } catch (const Error& error) {
    base::log(base::LogLevel::warning, "base_tree.no_delta",
              {{"repo", repo}, {"commit", commit}, {"error", error.message()}});
    context_.base_trees.remove(repo, commit);
    return false;
  }
  if (is_deep(context_, id, commit)) rebases_.request(id.value);
  return true;
}

// Rebases the newest deep tree: the next delta will use it.
void Repositories::rebase(base::RepoId id) {
  auto rows = state_db::BaseTreeTable(context_.store).list(id);
  std::sort(rows.begin(), rows.end(),
            [](const auto& a, const auto& b) { return a.created_wall_ms > b.created_wall_ms; });
  const auto deep = std::find_if(rows.begin(), rows.end(), [&](const auto& row) {
    return depth_if_sound(context_, row) && is_deep(context_, id, row.commit);
  });
  if (deep != rows.end()) rebase(*deep);
}

void Repositories::rebase(const BaseTreeRow& row) {
  const std::string repo = repo_directory(row.repository);
  const auto guard = lock_if_free(context_, row.repository.str() + "." + row.commit);
  if (!guard || !state_db::BaseTreeTable(context_.store).find(row.repository, row.commit)) return;
  const auto info = context_.base_trees.make_whole(
      repo, row.commit, origin_of(state_db::RepositoryTable(context_.store).get(row.repository)),
      kCheckoutDeadline, [&] {
        require_room(context_.options, "cannot rebase a base tree");
        if (stopping_) throw Error(Code::conflict, "the daemon is stopping");
      });
  put_row(context_, row.repository, row.commit, info);
  state_db::BaseTreeTable(context_.store).set_synced(row.repository, row.commit);
  base::log(base::LogLevel::info, "base_tree.rebased",
            {{"repo", repo}, {"commit", row.commit}, {"files", info.files}});
}

void Repositories::settle_forms(base::RepoId id, const MountedCommits& mounted) {
  std::vector<std::pair<BaseTreeRow, OldForm>> left;
  const auto trees = state_db::BaseTreeTable(context_.store).list(id);
  for (const auto& tree : trees) {
    try_step("reconcile.base_tree", id.str() + "/" + tree.commit, [&] {
      if (const auto form = old_form(context_, tree); form != OldForm::none)
        left.emplace_back(tree, form);
    });
  }
  if (left.empty()) return;
  // Order matters. Later callers of places() get the whole tree. Read in_use() before mounted(): a
  // caller that is about to mount leaves the first only once it is in the second.
  std::set<std::string> held = context_.base_trees.in_use(repo_directory(id));
  held.merge(mounted());
  for (bool more = true; more;) {
    more = false;
    for (const auto& tree : trees) {
      if (!tree.parent.empty() && held.contains(tree.commit))
        more = held.insert(tree.parent).second || more;
    }
  }
  for (const auto& [tree, form] : left) {
    if (form == OldForm::replaced && held.contains(tree.commit)) continue;
    try_step("reconcile.base_tree", id.str() + "/" + tree.commit,
             [&, &row = tree, seen = form] { remove_old_form(context_, row, seen); });
  }
}

void Repositories::drop_base_tree(base::RepoId id, const std::string& commit) {
  const auto guard = context_.locks.lock(id.str() + "." + commit, "collection", {});
  // One transaction with the check that no layer starts from it: a create from now on finds no row,
  // and makes the tree again once this lock is free.
  state_db::BaseTreeTable(context_.store).remove(id, commit);
  drop_after_row.pass();
  context_.base_trees.remove(repo_directory(id), commit);
  drop_after_files.pass();
}

void Repositories::sync_base_trees() {
  state_db::BaseTreeTable table(context_.store);
  decltype(sync_failures_) failures;
  for (const auto& repository : state_db::RepositoryTable(context_.store).list()) {
    for (const auto& tree : table.list(repository.id)) {
      if (tree.synced || tree.boot_id != base::boot_id()) continue;
      try {
        context_.base_trees.sync(repo_directory(repository.id), tree.commit);
        table.set_synced(repository.id, tree.commit);
      } catch (const Error& error) {  // sync the others; retry this one at the next call
        failures[{repository.id, tree.commit}] = error.message();
        base::log(base::LogLevel::warning, "base_tree.not_synced",
                  {{"repo", repository.id}, {"commit", tree.commit}, {"error", error.message()}});
      }
    }
  }
  const std::lock_guard lock(mutex_);
  sync_failures_ = std::move(failures);
}

std::string Repositories::sync_failure(base::RepoId id, const std::string& commit) {
  const std::lock_guard lock(mutex_);
  const auto found = sync_failures_.find({id, commit});
  return found == sync_failures_.end() ? "" : found->second;
}

}  // namespace moorage::workspace
