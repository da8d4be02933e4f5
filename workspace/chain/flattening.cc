#include "workspace/chain/flattening.h"

#include <algorithm>
#include <vector>

#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "layers/home_skeleton.h"
#include "layers/merge.h"
#include "state_db/store.h"
#include "state_db/tables/layer_disk.h"
#include "state_db/tables/layers.h"
#include "workspace/chain/layer_life.h"
#include "workspace/context/try_step.h"

namespace moorage::workspace {
namespace {

using base::LayerId;

MOORAGE_CRASH_POINT(after_intent, "flatten.after_intent");
MOORAGE_CRASH_POINT(after_files, "flatten.after_files");
MOORAGE_CRASH_POINT(after_outcome, "flatten.after_outcome");

constexpr size_t kMergers = 2;  // one user gets one of them
// Leave the newest alone, so that the next snapshot does not have to merge these again.
constexpr size_t kLeft = 4;
// How long a snapshot waits for a merge.
constexpr std::chrono::seconds kPatience{10};

// The chain includes the writable layer, which becomes one of the frozen ones.
bool has_room(Context& context, const state_db::WorkspaceRow& row) {
  return state_db::LayerTable(context.store).chain(row.layer).size() <= Flattening::kMost;
}

}  // namespace

Flattening::Flattening(Context& context, Repositories& repositories)
    : context_(context),
      repositories_(repositories),
      flights_(
          kMergers,
          [this](int64_t key) {
            try_step("layers.flatten", base::WorkspaceId{key}.str(),
                     [&] { tidy(base::WorkspaceId{key}); });
          },
          base::SingleFlight::Fair{}) {}

void Flattening::request(base::WorkspaceId workspace) {
  const auto row = state_db::WorkspaceTable(context_.store).find(workspace);
  if (!row || !row->layer) return;
  state_db::LayerTable table(context_.store);
  if (table.chain(row->layer).size() > kDeep + 1 || !table.replaced().empty())
    flights_.request(workspace.value, row->owner_uid);
}

void Flattening::require_shallow(const state_db::WorkspaceRow& row) {
  if (state_db::LayerTable(context_.store).chain(row.layer).size() > kMost + 1) flatten(row);
}

void Flattening::require_room(const state_db::WorkspaceRow& row) {
  if (has_room(context_, row)) return;
  std::unique_lock lock(mutex_);
  failures_.erase(row.id);
  flights_.request(row.id.value, row.owner_uid);
  bool room = false;
  merged_.wait_for(lock, kPatience, [&] {
    room = has_room(context_, row);
    return room || failures_.contains(row.id);
  });
  if (room) return;
  const std::string deep = row.name + " has " + std::to_string(kMost) +
                           " layers of earlier snapshots, as many as can be mounted";
  const auto failed = failures_.find(row.id);
  if (failed == failures_.end()) {
    throw base::Error(base::Code::resource_exhausted, deep + ", and they are still being merged",
                      "try again in a minute");
  }
  throw base::Error(base::Code::resource_exhausted,
                    deep + ", and they cannot be merged: " + failed->second,
                    row.name + " remains usable without new snapshots; moorage fork " + row.name +
                        " --snapshot ID continues from an earlier one");
}

void Flattening::tidy(base::WorkspaceId workspace) {
  const auto row = state_db::WorkspaceTable(context_.store).find(workspace);
  std::string failure;
  try {
    if (row && row->state == state_db::WorkspaceState::ready) flatten(*row);
  } catch (const base::Error& error) {
    failure = error.message();
    base::log(base::LogLevel::error, "layers.flatten",
              {{"subject", workspace}, {"error", failure}});
  }
  {
    const std::lock_guard lock(mutex_);
    failures_.erase(workspace);
    if (!failure.empty()) failures_[workspace] = failure;
  }
  merged_.notify_all();
  // The replaced layers can go once the verb that requested the merge has ended.
  context_.locks.lock(workspace.str(), "flatten");
  release_replaced_layers(context_);
  collect_layers(context_);
}

void Flattening::flatten(const state_db::WorkspaceRow& row) {
  state_db::LayerTable table(context_.store);
  const auto chain = table.chain(row.layer);
  if (chain.size() <= kDeep + 1) return;
  std::vector<LayerId> merged;
  for (size_t n = kLeft + 1; n < chain.size(); ++n) merged.push_back(chain[n].id);

  // Nothing uses the merged layer before the end, and collection skips locked layers.
  base::KeyedMutex::Guard making;
  const LayerId into = context_.store.transaction([&] {
    const LayerId made =
        table.create({.parent = {}, .repository = row.repository, .base_commit = row.base_commit});
    making = context_.locks.lock(made.str(), "merge", std::chrono::milliseconds(0));
    table.freeze(made);
    return made;
  });
  after_intent.pass();
  merge(row, merged, into);
  after_files.pass();
  const bool wanted = context_.store.transaction([&] {
    // Another merge may have finished first. And layers that the workspace no longer uses may be
    // half collected, so nothing may use a merge of them; then this merge is collected, too.
    const auto now = state_db::WorkspaceTable(context_.store).find(row.id);
    const auto stands_on = now && now->layer ? table.chain(now->layer) : decltype(chain){};
    const bool is_there = std::any_of(stands_on.begin(), stands_on.end(), [&](const auto& layer) {
      return layer.id == chain[kLeft].id && layer.parent == merged.front();
    });
    if (!is_there) return false;
    table.exchange_parent(chain[kLeft].id, merged.front(), into);
    auto kin = merged;
    kin.push_back(into);
    state_db::LayerDisk(context_.store).share(kin);
    return true;
  });
  if (!wanted) {
    base::log(base::LogLevel::info, "layers.not_flattened", {{"ws", row.id}, {"ly", into}});
    return;
  }
  after_outcome.pass();
  base::log(base::LogLevel::info, "layers.flattened",
            {{"ws", row.id}, {"ly", into}, {"of", merged.size()}});
}

void Flattening::merge(const state_db::WorkspaceRow& row, const std::vector<LayerId>& merged,
                       LayerId into) {
  context_.storage.make_layer(into);
  const std::string made = context_.storage.layer_path(into);
  const auto merge_part = [&](const std::string& part, const repo_cache::BaseTreePlaces& base) {
    layers::MergeParts parts;
    for (const LayerId layer : merged)
      parts.uppers.push_back(context_.storage.layer_path(layer) + part + "/upper");
    parts.base = base.tree;
    parts.deltas = base.deltas;
    parts.merged = made + part + "/upper";
    parts.work = made + part + "/work";
    merge_layers(parts);
  };
  merge_part("/tree", repositories_.ensure_base_tree(row.repository, row.base_commit, {}));
  merge_part(
      "/home",
      {layers::ensure_home_skeleton(context_.options.store, context_.options.disk_first_id), {}});
  merge_part("/system", {});
  base::sync_file_system(made);
}

}  // namespace moorage::workspace
