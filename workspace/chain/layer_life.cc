#include "workspace/chain/layer_life.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>

#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "layers/node_copy.h"
#include "layers/overlay.h"
#include "state_db/recovery_table.h"
#include "state_db/store.h"
#include "state_db/tables/execs.h"
#include "state_db/tables/integrity.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/sandboxes.h"
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
  const auto repair = decide(row.way, seen);
  if (repair == state_db::Repair::undo) {
    table.undo(row.id, "the daemon stopped during the snapshot");
  } else if (repair == state_db::Repair::finish) {
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
  } else {
    return;
  }
  base::log(base::LogLevel::warning, "snapshot.settled",
            {{"sn", row.id}, {"state", state_db::state_name(table.get(row.id).state)}});
}

void make_layer(Context& context, base::LayerId layer) {
  context.storage.make_layer(layer);
  const auto below = state_db::LayerTable(context.store).get(layer).parent;
  if (!below) return;
  for (const std::string part : {"/tree/upper", "/home/upper", "/system/upper"}) {
    const base::Fd from = base::open_directory(context.storage.layer_path(below) + part);
    const base::Fd to = base::open_directory(context.storage.layer_path(layer) + part);
    struct stat status {};
    base::check(fstat(from.get(), &status), "stat " + below.str() + part);
    layers::complete_copy(from.get(), to.get(), status);
  }
}

void make_layers(Context& context, const std::vector<base::LayerId>& layers) {
  for (const auto layer : layers) make_layer(context, layer);
  if (!layers.empty()) context.storage.sync_layer(layers.back());
}

void abandon(Context& context, const state_db::WorkspaceRow& row, const std::string& reason) {
  // The row first: a crash must not leave a ready row without its layer, nor let a complete layer
  // (as an import may have) be finished without its history.
  state_db::WorkspaceTable(context.store).fail(row.id, reason);
  remove_remains(context, row);
}

void remove_remains(Context& context, const state_db::WorkspaceRow& row) {
  // An import has snapshots before it is ready:
  state_db::SnapshotTable(context.store).drop_all(row.id, "its import failed");
  context.storage.remove_layer(row.layer);
  // A failed workspace must not keep its parent layers.
  if (row.layer && state_db::LayerTable(context.store).get(row.layer).parent) {
    context.store.transaction([&] {
      state_db::WorkspaceTable(context.store).set_layer(row.id, {});
      state_db::LayerTable(context.store).remove({row.layer});
    });
  }
  // Records of an import:
  base::remove_tree(context.options.store + "/workspaces/" + row.id.str());
  state_db::ExecTable(context.store).forget_past(row.id);
}

}  // namespace moorage::workspace
