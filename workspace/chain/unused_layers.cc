#include "workspace/chain/unused_layers.h"

#include <algorithm>
#include <map>
#include <vector>

#include "base/crash_point.h"
#include "base/log.h"
#include "base/os/files.h"
#include "state_db/recovery_table.h"
#include "state_db/store.h"
#include "state_db/tables/integrity.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/sandboxes.h"
#include "workspace/chain/new_layers.h"
#include "workspace/context/try_step.h"

namespace moorage::workspace {
namespace {

MOORAGE_CRASH_POINT(after_files, "collect.after_files");

}  // namespace

void collect_layers(Context& context) {
  state_db::LayerTable table(context.store);
  std::map<base::LayerId, base::KeyedMutex::Guard> held;
  for (const auto& layer : table.unused()) {
    if (auto guard = lock_if_free(context, layer.id.str())) held[layer.id] = *std::move(guard);
  }
  if (held.empty()) return;
  // Ask again under the locks: a merge may have come into use and been released meanwhile.
  const auto rows = table.unused();
  std::map<base::LayerId, base::LayerId> ours;  // each with its parent
  for (const auto& row : rows) {
    if (held.contains(row.id)) ours[row.id] = row.parent;
  }
  for (const auto& row : rows) {
    if (held.contains(row.id)) continue;
    // Another operation holds this layer, so its parents belong to that operation, too.
    for (auto below = ours.find(row.parent); below != ours.end();) {
      const auto next = below->second;
      ours.erase(below);
      below = ours.find(next);
    }
  }
  std::vector<base::LayerId> unused;
  for (const auto& [id, parent] : ours) unused.push_back(id);
  if (unused.empty()) return;
  for (const auto layer : unused) context.storage.remove_layer(layer);
  // Before the rows go: btrfs does not order a removal before a later row write.
  base::sync_directory(context.options.store + "/layers");
  after_files.pass();
  table.remove(unused);
  for (const auto layer : unused)
    base::log(base::LogLevel::info, "layer.collected", {{"ly", layer}});
}

void release_replaced_layers(Context& context) {
  state_db::LayerTable table(context.store);
  for (const auto& replaced : table.replaced()) {
    // A lock holder may be mounting the chain that it read before the merge.
    std::vector<base::KeyedMutex::Guard> held;
    const auto above = table.workspaces_on(replaced.by);
    const bool unmounted = std::all_of(above.begin(), above.end(), [&](base::WorkspaceId id) {
      auto guard = lock_if_free(context, id.str());
      if (!guard) return false;
      held.push_back(*std::move(guard));
      return !context.live.mounted(id) ||
             state_db::WorkspaceTable(context.store).get(id).layer.value >
                 replaced.mounted_upto.value;
    });
    if (unmounted) table.forget_replaced(replaced.by);
  }
}

void settle_snapshot(Context& context, const state_db::SnapshotRow& row) {
  state_db::SnapshotTable table(context.store);
  const auto running = context.live.running(row.workspace);
  state_db::SnapshotSeen seen = state_db::SnapshotSeen::at_rest;
  const auto sandbox = running ? state_db::SandboxTable(context.store).find(running->sandbox)
                               : std::optional<state_db::SandboxRow>{};
  if (sandbox) {
    const bool exchanged = running->mounted->mounts.tree_device != sandbox->tree_device;
    seen = exchanged ? state_db::SnapshotSeen::new_mounts : state_db::SnapshotSeen::old_mounts;
  }
  switch (decide(row.way, seen)) {
    case state_db::Repair::finish:
      if (!sandbox) make_layers(context, {row.next_layer});  // else its sandbox writes to it
      context.store.transaction([&] {
        table.finish(row.id, 0);
        // A seal covers only synced files, and nobody has written since.
        if (!state_db::IntegrityTable(context.store).get(row.workspace).seal.empty())
          table.set_durable(row.id);
        if (sandbox) {
          const layers::ActiveMounts& mounts = running->mounted->mounts;
          state_db::SandboxTable(context.store)
              .set_devices(sandbox->id, mounts.tree_device, mounts.home_device);
        }
        state_db::IntegrityTable(context.store).clear_seal(row.workspace);
      });
      break;
    case state_db::Repair::undo:
      table.undo(row.id, "the daemon stopped during the snapshot");
      break;
    case state_db::Repair::unset:
    case state_db::Repair::nothing:
    case state_db::Repair::wait:
    case state_db::Repair::adopt:
    case state_db::Repair::redo:
    case state_db::Repair::keep_aside:
    case state_db::Repair::report:
      return;
  }
  base::log(base::LogLevel::warning, "snapshot.settled",
            {{"sn", row.id}, {"state", state_db::state_name(table.get(row.id).state)}});
}

}  // namespace moorage::workspace
