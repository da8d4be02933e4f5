#include "workspace/layer_collection.h"

#include <vector>

#include "base/crash_point.h"
#include "base/files.h"
#include "base/log.h"
#include "state_db/integrity.h"
#include "state_db/layers.h"
#include "state_db/store.h"
#include "workspace/recovery_table.h"

namespace moorage::workspace {
namespace {

MOORAGE_CRASH_POINT(after_files, "collect.after_files");

}  // namespace

void collect_layers(Context& context) {
  state_db::Layers table(context.store);
  // Each round may leave the one below it with nothing on it.
  for (auto unused = table.unused(); !unused.empty(); unused = table.unused()) {
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
  if (running) {
    const bool exchanged =
        row.tree_device != 0 && running->mounted->mounts.tree_device == row.tree_device;
    seen = exchanged ? SnapshotSeen::new_mounts : SnapshotSeen::old_mounts;
  }
  switch (decide(row.way, seen)) {
    case Mend::finish:
      context.storage.make_layer(row.next_layer);
      context.store.transaction([&] {
        table.finish(row.id, 0);
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
