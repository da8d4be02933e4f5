#include "workspace/archive/cold_storage.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "layers/seal/seal.h"
#include "state_db/reads.h"
#include "state_db/store.h"
#include "state_db/tables/archives.h"
#include "state_db/tables/integrity.h"
#include "state_db/tables/layer_disk.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/snapshots.h"
#include "workspace/archive/contents.h"
#include "workspace/archive/store.h"
#include "workspace/chain/workspace_note.h"
#include "workspace/context/free_space.h"
#include "workspace/context/try_step.h"

namespace moorage::workspace {
namespace {

using base::LayerId;
using base::WorkspaceId;
using state_db::LayerTable;

MOORAGE_CRASH_POINT(archive_intent, "archive.after_intent");
MOORAGE_CRASH_POINT(archive_written, "archive.after_write");
MOORAGE_CRASH_POINT(archive_named, "archive.after_rename");
MOORAGE_CRASH_POINT(archive_outcome, "archive.after_outcome");
MOORAGE_CRASH_POINT(archive_cold, "archive.after_hot_copy");
MOORAGE_CRASH_POINT(archive_cold_row, "archive.after_cold_row");
MOORAGE_CRASH_POINT(unarchive_intent, "unarchive.after_intent");
MOORAGE_CRASH_POINT(unarchive_files, "unarchive.after_files");
MOORAGE_CRASH_POINT(unarchive_outcome, "unarchive.after_outcome");

constexpr std::chrono::minutes kOtherReturn{30};  // of another workspace that shares a layer
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
    const auto [known, is_new] = away.try_emplace(row.workspace);
    if (is_new) known->second = is_away(context, row.workspace);
    (known->second ? wanted : kept).insert(row.layer);
  }
  std::map<LayerId, base::KeyedMutex::Guard> locked;
  for (const auto layer : wanted) {
    if (kept.contains(layer)) continue;
    if (auto guard = lock_if_free(context, layer.str())) locked[layer] = *std::move(guard);
  }
  return locked;
}

// The estimate of collection, plus the pack that is spooled at the same time.
uint64_t likely_bytes(Context& context, const state_db::WorkspaceRow& row) {
  const auto uses = use_of_frozen_layers(context);
  const auto use = uses.find(row.id);
  uint64_t bytes = 0;
  if (use != uses.end()) bytes = use->second.writable_bytes.value_or(0) + use->second.all_bytes;
  const uint64_t objects = state_db::RepositoryTable(context.store).get(row.repository).bytes;
  return likely_archive_bytes(bytes, objects) + objects;
}

// Restores the layers of a workspace into its own store.
class ReturnVisitor : public ArchiveVisitor {
 public:
  ReturnVisitor(Context& context, Repositories& repositories, const state_db::WorkspaceRow& row)
      : context_(context), repositories_(repositories), row_(row) {}

  void manifest(const Manifest& manifest) override {
    if (manifest.layers.front().id != row_.layer.str() || manifest.workspace.id != row_.id ||
        manifest.store != context_.store.store_id()) {
      throw Error(Code::corrupted, "it belongs to another workspace");
    }
    for (const auto& layer : manifest.layers) {
      const auto id = base::LayerId::parse(layer.id);
      if (!id) throw Error(Code::corrupted, "it has an invalid layer id: " + layer.id);
      layers_.push_back(*id);
    }
    choose();
  }
  void refs(const std::string& text) override {
    objects_ = ref_objects(text);
    objects_.push_back(row_.base_commit);
    objects_.push_back(state_db::began_at(row_));
    objects_.push_back(state_db::on_disk(row_));
  }
  void pack(packs::ArchiveReader& reader, uint64_t) override {
    if (repositories_.has_objects(row_.repository, objects_)) return;
    const base::Fd file = ArchiveStore::spool(context_.options.store);
    write_data(reader, file.get());
    repositories_.take_pack(row_.repository, objects_, file.get());
  }
  std::optional<std::string> upper(size_t layer, const std::string& part) override {
    const base::LayerId id = layers_.at(layer);
    if (!wanted_.contains(id)) return std::nullopt;
    const std::string top = context_.storage.layer_path(id);
    if (part == kLayerParts[0]) {
      // Remove the partial layer that an interrupted return left.
      if (id != row_.layer) context_.storage.remove_layer(id);
      context_.storage.make_layer(id);
    }
    return top + "/" + part + "/upper";
  }

  // False: in the transaction that makes it ready, after everything is synced. True also for a
  // layer whose files somebody removed: treat it as cold from now on.
  void set_cold(bool cold) {
    state_db::LayerTable(context_.store)
        .set_cold(std::vector<base::LayerId>(wanted_.begin(), wanted_.end()), cold);
  }

 private:
  // A frozen layer may still exist because others use it, or a merge may have put it into one that
  // does. The rest stay locked, always in the same order, and cold until they are complete.
  void choose() {
    std::set<base::LayerId> missing;
    for (const auto& layer : archived_layers(context_, row_, WithSnapshots::yes).layers) {
      if (layer.id == row_.layer || is_whole(layer.id)) continue;
      if (std::find(layers_.begin(), layers_.end(), layer.id) == layers_.end())
        throw Error(Code::corrupted, "it has no " + layer.id.str() + ", nor has the store");
      missing.insert(layer.id);
    }
    for (const auto layer : missing) {
      auto guard = context_.locks.lock(layer.str(), "unarchive", kOtherReturn);
      if (is_whole(layer)) continue;  // another return brought it back
      held_.push_back(std::move(guard));
      wanted_.insert(layer);
    }
    set_cold(true);
    wanted_.insert(row_.layer);
  }
  bool is_whole(base::LayerId layer) {
    return !state_db::LayerTable(context_.store).get(layer).cold &&
           base::path_exists(context_.storage.layer_path(layer));
  }

  Context& context_;
  Repositories& repositories_;
  const state_db::WorkspaceRow& row_;
  std::vector<base::LayerId> layers_;  // in the archive
  std::set<base::LayerId> wanted_;     // to be restored
  std::vector<base::KeyedMutex::Guard> held_;
  std::vector<std::string> objects_;
};

void require_room_for_return(Context& context, const state_db::WorkspaceRow& row) {
  const auto writable = state_db::LayerDisk(context.store).find(row.layer);
  uint64_t bytes = writable ? writable->bytes : 0;
  for (const auto& layer : archived_layers(context, row, WithSnapshots::yes).layers) {
    if (layer.cold) bytes += layer.disk_bytes.value_or(0);
  }
  require_room(context.options, row.name + " cannot be restored from its archive", bytes);
}

// Removes leftovers of archiving; what then remains is not ours.
void clear_place(Context& context, const state_db::WorkspaceRow& row) {
  settle_archive(context, row);
  if (const auto layer = context.storage.layer_path(row.layer); base::path_exists(layer)) {
    throw Error(Code::conflict,
                row.name + " is archived, but " + layer + " exists and differs from its archive",
                "compare both: moorage doctor. To use the archive, move " + layer +
                    " away and try again; then copy in the files that you need from it");
  }
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
  archive_cold_row.pass();
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

uint64_t ColdStorage::put_away(const state_db::WorkspaceRow& row, const std::string& reason,
                               const JoinKey& join, const Progress& progress) {
  const ArchiveStore store(context_);
  integrity_.look(row);              // never archive an incomplete workspace as a whole one
  remove_archive(context_, row.id);  // left over if its last return could not remove it
  store.require_room(row.name + " cannot be archived", likely_bytes(context_, row));
  state_db::ArchiveTable table(context_.store);
  const auto archive = context_.store.transaction([&] {
    if (join) join(state_db::move_under_way(row.id));
    return table.begin(row.id);
  });
  archive_intent.pass();
  try {
    if (progress) progress("archive", -1, row.name);
    const layers::LayerStill still(context_.storage.layer_path(row.layer));
    std::string seal;
    const auto archived = archived_layers(context_, row, WithSnapshots::yes);
    auto contents =
        contents_of(context_, repositories_, row, archived, context_.options.archive_directory);
    contents.before_end = [&] { seal = still.require(); };
    const auto file = store.write(archive, contents, [](const char* step) {
      (std::string_view(step) == "written" ? archive_written : archive_named).pass();
    });
    std::vector<base::LayerId> layers;
    for (const auto& layer : archived.layers) layers.push_back(layer.id);
    context_.store.transaction([&] {
      table.finish(row.id, {file.stream.bytes, file.stream.sha256, seal}, layers);
      if (join) join(row.id.str());
    });
  } catch (Error& error) {
    settle_archive(context_, state_db::WorkspaceTable(context_.store).get(row.id));
    throw error.add_context(row.name + " could not be archived and is unchanged");
  }
  archive_outcome.pass();
  // Without a database, the note points to the archive; the reconciler may run too late.
  keep_about(context_, state_db::WorkspaceTable(context_.store).get(row.id));
  const uint64_t hot = base::tree_usage(context_.storage.layer_path(row.layer), kUsageLimits).bytes;
  settle_archive(context_, state_db::WorkspaceTable(context_.store).get(row.id));
  archive_cold.pass();
  const uint64_t freed = hot + cool_layers(context_);
  base::log(base::LogLevel::info, "workspace.archived",
            {{"ws", row.id}, {"name", row.name}, {"reason", reason}});
  return freed;
}

void ColdStorage::bring_back(const state_db::WorkspaceRow& row, const JoinKey& join) {
  require_room_for_return(context_, row);
  state_db::ArchiveTable table(context_.store);
  const ArchiveStore store(context_);
  const auto archive = table.find(row.id).value();
  const base::Fd file = store.open(archive);  // open it before changing anything
  if (!store.is_there(archive)) {
    throw Error(Code::corrupted, store.path(archive) + " has the wrong size",
                "restore it from a backup; nothing was changed");
  }
  clear_place(context_, row);
  context_.store.transaction([&] {
    table.begin_restore(row.id);
    if (join) join(state_db::move_under_way(row.id));
    state_db::IntegrityTable(context_.store).clear_seal(row.id);
  });
  unarchive_intent.pass();
  try {
    ReturnVisitor visitor(context_, repositories_, row);
    const ReadOptions options =
        ArchiveStore::read_options(context_.options, context_.options.store);
    const auto facts = read_archive(read_file_in_pieces(file.get()), options, visitor);
    if (facts.stream.sha256 != archive.sha256) {
      throw Error(Code::corrupted, "the file differs from what was written");
    }
    const auto taken = integrity_.take(row.id, row.layer);
    base::sync_file_system(context_.storage.layer_path(row.layer));
    unarchive_files.pass();
    context_.store.transaction([&] {
      visitor.set_cold(false);
      table.finish_restore(row.id);
      if (join) join(row.id.str());
      integrity_.keep_returned(row, taken);
    });
  } catch (Error& error) {
    settle_archive(context_, state_db::WorkspaceTable(context_.store).get(row.id));
    cool_layers(context_);
    throw error.add_context(row.name + " could not be restored from " + store.path(archive));
  }
  unarchive_outcome.pass();
  try {
    settle_archive(context_, state_db::WorkspaceTable(context_.store).get(row.id));
  } catch (const Error& error) {  // it is restored; the reconciler removes the file later
    base::log(base::LogLevel::warning, "archive.not_removed",
              {{"ws", row.id}, {"error", error.message()}});
  }
  base::log(base::LogLevel::info, "workspace.unarchived", {{"ws", row.id}, {"name", row.name}});
}

}  // namespace moorage::workspace
