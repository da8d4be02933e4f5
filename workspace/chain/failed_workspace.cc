#include "workspace/chain/failed_workspace.h"

#include "base/os/files.h"
#include "state_db/store.h"
#include "state_db/tables/execs.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/snapshots.h"

namespace moorage::workspace {

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
