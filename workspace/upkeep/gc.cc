#include "workspace/upkeep/gc.h"

#include <algorithm>
#include <utility>

#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/size_text.h"
#include "layers/declared_caches.h"
#include "layers/home_skeleton.h"
#include "repo_cache/base_tree.h"
#include "state_db/store.h"
#include "state_db/store_age.h"
#include "state_db/tables/integrity.h"
#include "state_db/tables/layer_disk.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/sandboxes.h"
#include "workspace/archive/cold_storage.h"
#include "workspace/chain/initial_files.h"
#include "workspace/context/disk_use.h"
#include "workspace/context/free_space.h"
#include "workspace/context/metrics.h"

namespace moorage::workspace {
namespace {

using std::chrono::milliseconds;

// Archiving an idle workspace may take long; a create over its budget must not wait for it.
constexpr milliseconds kPatience{20'000};

MOORAGE_CRASH_POINT(before_cache, "gc.before_cache");
MOORAGE_CRASH_POINT(after_cache, "gc.after_cache");

}  // namespace

std::vector<GcRow> Gc::plan(const Scope& scope) {
  GcFacts facts;
  state_db::WorkspaceQuery query;
  query.with_deleted = true;
  facts.workspaces = state_db::WorkspaceTable(context_.store).list(query);
  facts.repositories = state_db::RepositoryTable(context_.store).list();
  state_db::BaseTreeTable trees(context_.store);
  for (const auto& repository : facts.repositories) {
    for (auto& tree : trees.list(repository.id)) facts.trees.push_back(std::move(tree));
    if (repositories_.used_within(repository.id, {}, rules_.lately))
      facts.repos_used_lately.insert(repository.id);
  }
  for (const auto& tree : facts.trees) {
    if (repositories_.used_within(tree.repository, tree.commit, rules_.lately))
      facts.trees_used_lately.insert({tree.repository, tree.commit});
  }
  facts.depended_on = state_db::LayerTable(context_.store).bases();
  for (const auto& [workspace, sandbox] : state_db::SandboxTable(context_.store).all_live())
    facts.running.insert(workspace);
  facts.mounted = context_.live.mounted();
  for (const auto& row : facts.workspaces) {
    if (leases_.is_held(row.id)) facts.leased.insert(row.id);
  }
  facts.frozen = use_of_frozen_layers(context_);
  for (auto& row : facts.workspaces)  // frozen layers are counted separately
    row.disk_bytes = facts.frozen[row.id].writable_bytes;
  facts.age_ms = state_db::StoreAge(context_.store).now_ms();
  auto rows = plan_gc(facts, rules_);

  std::set<base::WorkspaceId> owned;
  for (const auto& row : facts.workspaces) {
    if (scope.owner_uid && row.owner_uid == *scope.owner_uid) owned.insert(row.id);
  }
  const auto outside = [&](const GcRow& row) {
    if (scope.repository && row.repository != scope.repository) return true;
    return scope.owner_uid && !owned.contains(row.workspace);
  };
  std::erase_if(rows, outside);
  return rows;
}

std::shared_ptr<void> Gc::begin_run() {
  std::unique_lock lock(mutex_);
  if (!run_ended_.wait_for(lock, kPatience, [this] { return !runs_; })) {
    throw Error(Code::conflict, "another collection is still running",
                "try again when it has ended: moorage events shows what it reclaims");
  }
  runs_ = true;
  return {this, [](Gc* gc) {
            const std::lock_guard ending(gc->mutex_);
            gc->runs_ = false;
            gc->run_ended_.notify_one();
          }};
}

Gc::Result Gc::run(const std::string& reason, const Scope& scope,
                   const std::function<bool()>& enough) {
  const auto running = begin_run();
  Result result;
  clear_strays();
  result.freed_bytes += cool_layers(context_);  // of workspaces that others no longer depend on
  for (GcRow& row : plan(scope)) {
    if (!row.goes) continue;
    if (enough()) break;
    try {
      row.bytes = take(row, reason);
      row.goes = row.bytes.has_value();
      if (row.goes) {
        result.freed_bytes += *row.bytes;
        record(row, reason);
      } else {
        row.why = "nothing to reclaim";
      }
    } catch (const Error& error) {  // used again meanwhile, or not safe after all
      row.goes = false;
      row.why = error.message();
    }
    result.rows.push_back(std::move(row));
  }
  result.enough = enough();
  base::log(base::LogLevel::info, "gc.ran",
            {{"reason", reason},
             {"freed_bytes", result.freed_bytes},
             {"rows", result.rows.size()},
             {"enough", result.enough ? "yes" : "no"}});
  return result;
}

std::optional<uint64_t> Gc::take(const GcRow& row, const std::string& reason) {
  switch (row.rung) {
    case GcRung::cache:
      return take_cache(row, reason);
    case GcRung::base_tree:
      repositories_.drop_base_tree(row.repository, row.commit);
      return row.bytes.value_or(0);
    case GcRung::workspace:
      return take_workspace(row, reason);
    case GcRung::mirror:
      repositories_.evict(row.repository, "collected: " + reason);
      return row.bytes.value_or(0);
  }
  return std::nullopt;
}

std::optional<uint64_t> Gc::take_cache(const GcRow& row, const std::string& reason) {
  const auto guard = context_.locks.lock(row.workspace.str(), "collection", milliseconds(0));
  const auto current = state_db::WorkspaceTable(context_.store).get(row.workspace);
  const auto& caches = current.policy.caches;
  const bool declared = std::find(caches.begin(), caches.end(), row.path) != caches.end();
  if (current.state != state_db::WorkspaceState::ready || current.policy.pinned || !declared ||
      state_db::SandboxTable(context_.store).live(row.workspace) ||
      leases_.is_held(row.workspace)) {
    throw Error(Code::conflict, "it is in use again");
  }
  context_.live.wait_unmounted(row.workspace, milliseconds(0));
  const layers::CachePlace place = layers::place_of_cache(row.path);
  std::vector<std::string> uppers;
  for (const auto& layer : state_db::LayerTable(context_.store).chain(current.layer))
    uppers.push_back(context_.storage.layer_path(layer.id) + "/" + place.part + "/upper");
  if (place.part == "tree") {
    const auto base = repositories_.ensure_base_tree(current.repository, current.base_commit, {});
    uppers.insert(uppers.end(), base.deltas.begin(), base.deltas.end());
    uppers.push_back(base.tree);
  } else {
    uppers.push_back(
        layers::ensure_home_skeleton(context_.options.store, context_.options.disk_first_id));
  }
  const layers::DeclaredCache cache(uppers, place.path);
  if (!cache.exists()) return std::nullopt;
  const auto usage = cache.usage();
  integrity_.look(current);  // first: after the removal, outside changes would go unnoticed
  // Record the decision before acting, so that the event survives if the daemon dies here.
  context_.store.add_event("gc.cache", {.workspace = row.workspace},
                           row.subject + ", " + base::size_text(usage.bytes) + ": " + reason);
  state_db::IntegrityTable(context_.store).clear_seal(row.workspace);
  before_cache.pass();
  cache.remove();
  after_cache.pass();
  const auto less = [](uint64_t known, uint64_t gone) { return known - std::min(known, gone); };
  if (const auto known = state_db::LayerDisk(context_.store).find(current.layer)) {
    // An estimate until the next measurement.
    DiskUse(context_).keep_writable(current, less(known->bytes, usage.bytes),
                                    less(known->files, usage.inodes));
  }
  return usage.bytes;
}

std::optional<uint64_t> Gc::take_workspace(const GcRow& row, const std::string& reason) {
  const auto current = state_db::WorkspaceTable(context_.store).get(row.workspace);
  if (current.policy.pinned) throw Error(Code::conflict, "pinned");
  return archives_.collect(row.workspace, reason);
}

void Gc::record(const GcRow& row, const std::string& reason) {
  const std::string rung(kGcRungNames.at(static_cast<size_t>(row.rung)));
  base::log(base::LogLevel::info, "gc.took",
            {{"rung", rung}, {"subject", row.subject}, {"bytes", row.bytes.value_or(0)}});
  context_.metrics.collected.at(static_cast<size_t>(row.rung)).add();
  context_.metrics.collected_bytes.add(row.bytes.value_or(0));
  if (row.rung == GcRung::cache) return;  // take_cache() added its event
  state_db::Subject subject;
  subject.repository = row.repository;
  subject.workspace = row.workspace;
  context_.store.add_event(
      "gc." + rung, subject,
      row.subject + ", " + base::size_text(row.bytes.value_or(0)) + ": " + reason + "; " + row.why);
}

// Removes base tree directories without a row: a removal or a checkout was interrupted.
void Gc::clear_strays() {
  state_db::BaseTreeTable trees(context_.store);
  for (const auto& repository : state_db::RepositoryTable(context_.store).list()) {
    if (repository.state == state_db::RepositoryState::evicted) continue;
    for (const auto& commit : context_.base_trees.list(repo_directory(repository.id))) {
      if (trees.find(repository.id, commit)) continue;
      try {
        repositories_.drop_base_tree(repository.id, commit);
      } catch (const Error& error) {  // it is being made right now
        base::log(base::LogLevel::debug, "gc.stray_kept",
                  {{"repo", repository.id}, {"commit", commit}, {"error", error.message()}});
      }
    }
  }
}

void Gc::make_room() {
  try {
    run("the disk of the store is nearly full", {}, [this] {
      auto room = look_at_room(context_.options);
      room.min_free_bytes *= 2;
      room.min_free_inodes *= 2;
      return room.level() == RoomLevel::enough;
    });
  } catch (const std::exception& error) {
    base::log(base::LogLevel::error, "gc.failed", {{"error", error.what()}});
  }
}

}  // namespace moorage::workspace
