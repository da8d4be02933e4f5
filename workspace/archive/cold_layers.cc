#include "workspace/archive/cold_layers.h"

#include <set>

#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "state_db/read_transaction.h"
#include "state_db/store.h"
#include "state_db/tables/archives.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/snapshots.h"
#include "workspace/archive/store.h"
#include "workspace/context/try_step.h"

namespace moorage::workspace {
namespace {

using base::LayerId;
using base::WorkspaceId;
using state_db::LayerTable;

MOORAGE_CRASH_POINT(after_row, "archive.after_cold_row");

constexpr base::UsageLimits kUsageLimits{.time = std::chrono::milliseconds(10'000)};

// Whether its archive is reliable, and the workspace has not returned unknown to the rows (after a
// restore of state.db).
bool is_away(Context& context, WorkspaceId id) {
  const auto archive = state_db::ArchiveTable(context.store).find(id);
  const auto row = state_db::WorkspaceTable(context.store).get(id);
  const bool back = row.layer && base::path_exists(context.storage.layer_path(row.layer));
  return archive && archive->whole && !back && ArchiveStore(context).is_there(*archive);
}

// Removable layers, with the locks that keep them so.
std::map<LayerId, base::KeyedMutex::Guard> removable(Context& context) {
  std::map<WorkspaceId, bool> away;
  std::set<LayerId> wanted;
  std::set<LayerId> kept;
  for (const auto& row : LayerTable(context.store).only_archived()) {
    // Cold and without files: already done.
    if (row.cold && !base::path_exists(context.storage.layer_path(row.layer))) continue;
    const auto known = away.find(row.workspace);
    const bool is =
        known != away.end()
            ? known->second
            : away.emplace(row.workspace, is_away(context, row.workspace)).first->second;
    (is ? wanted : kept).insert(row.layer);
  }
  std::map<LayerId, base::KeyedMutex::Guard> locked;
  for (const auto layer : wanted) {
    if (kept.contains(layer)) continue;
    if (auto guard = lock_if_free(context, layer.str())) locked[layer] = *std::move(guard);
  }
  return locked;
}

}  // namespace

uint64_t cool_layers(Context& context) {
  auto held = removable(context);
  if (held.empty()) return 0;
  LayerTable table(context.store);
  std::vector<LayerId> cold;
  context.store.transaction([&] {
    // Check again: before our lock one may have come back, or been forked.
    for (const auto& row : table.only_archived()) {
      if (held.contains(row.layer) && (cold.empty() || cold.back() != row.layer))
        cold.push_back(row.layer);
    }
    table.set_cold(cold, true);
  });
  after_row.pass();
  uint64_t freed = 0;
  for (const auto layer : cold) {
    const std::string path = context.storage.layer_path(layer);
    if (!base::path_exists(path)) continue;
    freed += base::tree_usage(path, kUsageLimits).bytes;
    context.storage.remove_layer(layer);
    base::log(base::LogLevel::info, "layer.cold", {{"ly", layer}});
  }
  base::sync_directory(context.options.store + "/layers");
  return freed;
}

std::map<WorkspaceId, LayerUse> use_of_frozen_layers(Context& context) {
  const state_db::ReadTransaction moment(context.store);
  std::map<LayerId, state_db::LayerRow> layers;
  for (auto& row : LayerTable(context.store).list()) layers.emplace(row.id, row);
  std::map<WorkspaceId, std::set<LayerId>> used;
  std::map<LayerId, size_t> hot;  // number of workspaces without an archive that need it
  state_db::WorkspaceQuery all;
  all.with_deleted = true;
  for (const auto& row : state_db::WorkspaceTable(context.store).list(all)) {
    std::set<LayerId>& of = used[row.id];
    const auto add = [&](LayerId layer) {
      for (auto at = layers.find(layer); at != layers.end(); at = layers.find(at->second.parent)) {
        if (!of.insert(at->first).second) return;
      }
    };
    add(row.layer);
    for (const auto& snapshot : state_db::SnapshotTable(context.store).kept(row.id))
      add(snapshot.layer);
    const auto archive = state_db::ArchiveTable(context.store).find(row.id);
    if (archive && archive->whole) continue;
    for (const auto layer : of) ++hot[layer];
  }
  std::map<WorkspaceId, LayerUse> uses;
  for (const auto& [workspace, of] : used) {
    LayerUse& use = uses[workspace];
    for (const auto layer : of) {
      const auto& row = layers.at(layer);
      if (!row.frozen) use.writable_bytes = row.disk_bytes;
      if (!row.frozen) continue;
      use.all_bytes += row.disk_bytes.value_or(0);
      if (hot[layer] == 1) use.own_bytes += row.disk_bytes.value_or(0);
    }
  }
  return uses;
}

}  // namespace moorage::workspace
