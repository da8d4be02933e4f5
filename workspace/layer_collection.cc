#include "workspace/layer_collection.h"

#include <vector>

#include "base/crash_point.h"
#include "base/files.h"
#include "base/log.h"
#include "state_db/integrity.h"
#include "state_db/layers.h"
#include "state_db/sandboxes.h"
#include "state_db/store.h"
#include "workspace/layer_birth.h"
#include "workspace/reconcile_step.h"
#include "workspace/recovery_table.h"

namespace moorage::workspace {
namespace {

MOORAGE_CRASH_POINT(after_files, "collect.after_files");

}  // namespace

void collect_layers(Context& context) {
  state_db::Layers table(context.store);
  // Each round may leave the one below it with nothing on it.
  for (auto unused = table.unused(); !unused.empty(); unused = table.unused()) {
    // One that is being made by a merge is held by it.
    std::vector<base::KeyedMutex::Guard> held;
    std::erase_if(unused, [&](const auto& layer) {
      auto guard = lock_if_free(context, layer.id.str());
      if (guard) held.push_back(*std::move(guard));
      return !guard;
    });
    if (unused.empty()) return;
    for (const auto& layer : unused) context.storage.remove_layer(layer.id);
    // Before the rows forget them: btrfs keeps no order between a removal and the write of a row.
    base::sync_directory(context.options.store + "/layers");
    after_files.pass();
    context.store.transaction([&] {
      for (const auto& layer : unused) table.remove(layer.id);
    });
    for (const auto& layer : unused)
      base::log(base::LogLevel::info, "layer.collected", {{"ly", layer.id}});
  }
}

void settle_snapshot(Context& context, Active& active, const state_db::SnapshotRow& row) {
  state_db::Snapshots table(context.store);
  const auto running = active.running(row.workspace);
  SnapshotSeen seen = SnapshotSeen::at_rest;
  const auto sandbox = running ? state_db::Sandboxes(context.store).find(running->sandbox)
                               : std::optional<state_db::SandboxRow>{};
  if (sandbox) {
    const bool exchanged = running->mounted->mounts.tree_device != sandbox->tree_device;
    seen = exchanged ? SnapshotSeen::new_mounts : SnapshotSeen::old_mounts;
  }
  switch (decide(row.way, seen)) {
    case Mend::finish:
      if (!sandbox) make_layer(context, row.next_layer);  // else it is at work in it
      context.store.transaction([&] {
        table.finish(row.id, 0);
        if (sandbox) {
          const ActiveMounts& mounts = running->mounted->mounts;
          state_db::Sandboxes(context.store)
              .set_devices(sandbox->id, mounts.tree_device, mounts.home_device);
        }
        state_db::Integrity(context.store).clear_seal(row.workspace);
      });
      break;
    case Mend::undo:
      table.undo(row.id, "the daemon was stopped in the middle");
      break;
    case Mend::unset:
    case Mend::nothing:
    case Mend::wait:
    case Mend::adopt:
    case Mend::redo:
    case Mend::keep_aside:
    case Mend::tell:
      return;
  }
  base::log(base::LogLevel::warning, "snapshot.settled",
            {{"sn", row.id}, {"state", state_db::state_name(table.get(row.id).state)}});
}

}  // namespace moorage::workspace
