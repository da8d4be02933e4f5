#include "workspace/upkeep/gc_plan.h"

#include <algorithm>
#include <map>

#include "base/size_text.h"

namespace moorage::workspace {
namespace {

using state_db::RepositoryState;
using state_db::WorkspaceRow;
using state_db::WorkspaceState;

constexpr int64_t kHour_ms = 3'600'000;

std::string hours(int64_t ms) {
  if (ms < kHour_ms) return std::to_string(ms / 60'000) + " min";
  if (ms < 48 * kHour_ms) return std::to_string(ms / kHour_ms) + " h";
  return std::to_string(ms / kHour_ms / 24) + " days";
}

class Planner {
 public:
  Planner(const GcFacts& facts, const GcRules& rules) : facts_(facts), rules_(rules) {
    for (const auto& row : facts.repositories) repositories_[row.id] = &row;
    for (const auto& tree : facts.trees) {
      if (!tree.parent.empty()) deltas_.emplace(TreeKey{tree.repository, tree.parent}, &tree);
    }
    for (const auto& row : facts.workspaces) {
      if (row.state != WorkspaceState::failed) ++needed_by_[row.repository];
    }
  }

  std::vector<GcRow> run() {
    for (const auto& row : facts_.workspaces) caches(row);
    for (const auto* tree : by_use()) base_tree(*tree);
    for (const auto* row : by_rest()) workspace(*row);
    for (const auto& row : facts_.repositories) mirror(row);
    std::stable_partition(rows_.begin(), rows_.end(), [](const GcRow& row) { return row.goes; });
    return std::move(rows_);
  }

 private:
  // Why collection must not touch a workspace's files; empty: it may.
  std::string held(const WorkspaceRow& row) const {
    if (row.policy.pinned) return "pinned";
    if (facts_.leased.contains(row.id)) return "leased";
    if (facts_.running.contains(row.id)) return "its sandbox is running";
    if (facts_.mounted.contains(row.id)) return "its files are being transferred";
    if (row.state != WorkspaceState::ready)
      return "it is " + std::string(state_db::state_name(row.state));
    return {};
  }

  void add(GcRow row, const std::string& kept, const std::string& safe) {
    row.goes = kept.empty();
    row.why = kept.empty() ? safe : kept;
    rows_.push_back(std::move(row));
  }

  void caches(const WorkspaceRow& row) {
    for (const std::string& path : row.policy.caches) {
      GcRow cache;
      cache.rung = GcRung::cache;
      cache.repository = row.repository;
      cache.workspace = row.id;
      cache.path = path;
      cache.subject = row.name + ":" + path;
      add(std::move(cache), held(row),
          "declared as a cache; files from the base commit and paths tracked by git are kept");
    }
  }

  std::vector<const state_db::BaseTreeRow*> by_use() const {
    std::vector<const state_db::BaseTreeRow*> trees;
    for (const auto& tree : facts_.trees) trees.push_back(&tree);
    // The wall clock decides only the order, never which trees go.
    std::stable_sort(trees.begin(), trees.end(), [](const auto* one, const auto* other) {
      return one->last_used_wall_ms < other->last_used_wall_ms;
    });
    return trees;
  }

  // Takes the deltas over a tree before the tree; if one stays, the tree stays. True: it goes.
  bool base_tree(const state_db::BaseTreeRow& tree) {
    const TreeKey key{tree.repository, tree.commit};
    if (const auto known = trees_.find(key); known != trees_.end()) return known->second;
    trees_[key] = false;  // in a cycle of deltas, every tree stays
    std::string kept;
    for (auto [at, end] = deltas_.equal_range(key); at != end; ++at) {
      if (!base_tree(*at->second))
        kept = at->second->commit.substr(0, 12) + " builds on it and is kept";
    }
    GcRow row;
    row.rung = GcRung::base_tree;
    row.repository = tree.repository;
    row.commit = tree.commit;
    row.subject = name_of(tree.repository) + " " + tree.commit.substr(0, 12);
    row.bytes = tree.disk_bytes;
    row.files = tree.disk_files;
    if (facts_.depended_on.contains(key)) kept = "workspaces use it";
    if (kept.empty() && facts_.trees_used_lately.contains(key))
      kept = "it was made or requested a moment ago";
    trees_[key] = kept.empty();
    add(std::move(row), kept, "no layer uses it; the mirror can make it again when needed");
    return kept.empty();
  }

  std::vector<const WorkspaceRow*> by_rest() const {
    std::vector<const WorkspaceRow*> rows;
    for (const auto& row : facts_.workspaces) rows.push_back(&row);
    std::stable_sort(rows.begin(), rows.end(), [](const auto* one, const auto* other) {
      return one->rest_age_ms < other->rest_age_ms;
    });
    return rows;
  }

  // The bytes removed minus the archive, which also contains shared layers that stay.
  uint64_t gain(const WorkspaceRow& row) const {
    const auto found = facts_.frozen.find(row.id);
    const auto frozen = found == facts_.frozen.end() ? LayerUse{} : found->second;
    const uint64_t writable = row.disk_bytes.value_or(0);
    const uint64_t goes = writable + frozen.own_bytes;
    if (rules_.archive_elsewhere) return goes;
    const auto repository = repositories_.find(row.repository);
    const uint64_t objects = repository == repositories_.end() ? 0 : repository->second->bytes;
    return goes - std::min(goes, likely_archive_bytes(writable + frozen.all_bytes, objects));
  }

  void workspace(const WorkspaceRow& row) {
    if (row.state == WorkspaceState::deleted || row.state == WorkspaceState::failed) return;
    GcRow line;
    line.rung = GcRung::workspace;
    line.repository = row.repository;
    line.workspace = row.id;
    line.subject = row.name;
    line.bytes = gain(row);
    line.files = row.disk_files;
    const int64_t rested_ms = facts_.age_ms - row.rest_age_ms;
    std::string kept = held(row);
    if (kept.empty() && row.disposable) kept = "it is removed when its command ends";
    if (kept.empty() && !row.disk_bytes) kept = "its size was never measured";
    if (kept.empty() && rested_ms < rules_.archive_after_ms)
      kept = "idle for only " + hours(rested_ms);
    if (kept.empty() && gain(row) == 0) kept = "its archive would take as much as it frees";
    add(std::move(line), kept,
        "idle for " + hours(rested_ms) + "; archived and verified first; unarchive restores it");
  }

  void mirror(const state_db::RepositoryRow& row) {
    if (row.state == RepositoryState::evicted) return;
    GcRow line;
    line.rung = GcRung::mirror;
    line.repository = row.id;
    line.subject = row.name;
    line.bytes = row.bytes;
    std::string kept;
    const auto needed = needed_by_.find(row.id);
    if (needed != needed_by_.end())
      kept =
          "needed by " + base::count_text(needed->second, "workspace") + ", deleted ones included";
    if (kept.empty() && facts_.repos_used_lately.contains(row.id))
      kept = "it was requested a moment ago";
    if (kept.empty() && row.state != RepositoryState::ready && row.state != RepositoryState::broken)
      kept = "it is being fetched";
    add(std::move(line), kept,
        has_upstream(row.scope)
            ? "no workspace needs it; the next use clones it again from upstream"
            : "no workspace needs it; it copies a checkout, and the next create "
              "--from sends that again");
  }

  std::string name_of(base::RepoId id) const {
    const auto found = repositories_.find(id);
    return found == repositories_.end() ? id.str() : found->second->name;
  }

  const GcFacts& facts_;
  const GcRules& rules_;
  std::map<base::RepoId, const state_db::RepositoryRow*> repositories_;
  std::map<base::RepoId, uint64_t> needed_by_;
  std::multimap<TreeKey, const state_db::BaseTreeRow*> deltas_;  // by the tree they build on
  std::map<TreeKey, bool> trees_;  // decided so far: whether the tree goes
  std::vector<GcRow> rows_;
};

}  // namespace

std::vector<GcRow> plan_gc(const GcFacts& facts, const GcRules& rules) {
  return Planner(facts, rules).run();
}

}  // namespace moorage::workspace
