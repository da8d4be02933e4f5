#include "workspace/archive/put_away.h"

#include <string_view>
#include <vector>

#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "layers/seal/still_layer.h"
#include "state_db/store.h"
#include "workspace/archive/cold_layers.h"
#include "workspace/archive/contents.h"
#include "workspace/archive/store.h"
#include "workspace/chain/workspace_note.h"

namespace moorage::workspace {
namespace {

MOORAGE_CRASH_POINT(archive_intent, "archive.after_intent");
MOORAGE_CRASH_POINT(archive_written, "archive.after_write");
MOORAGE_CRASH_POINT(archive_named, "archive.after_rename");
MOORAGE_CRASH_POINT(archive_outcome, "archive.after_outcome");
MOORAGE_CRASH_POINT(archive_cold, "archive.after_hot_copy");

constexpr base::UsageLimits kUsageLimits{.time = std::chrono::milliseconds(10'000)};

// The estimate of collection, plus the pack that is spooled at the same time.
uint64_t likely_bytes(Context& context, const state_db::WorkspaceRow& row) {
  const auto uses = use_of_frozen_layers(context);
  const auto use = uses.find(row.id);
  uint64_t bytes = 0;
  if (use != uses.end()) bytes = use->second.writable_bytes.value_or(0) + use->second.all_bytes;
  const uint64_t objects = state_db::RepositoryTable(context.store).get(row.repository).bytes;
  return likely_archive_bytes(bytes, objects) + objects;
}

}  // namespace

uint64_t PutAway::run(const state_db::WorkspaceRow& row, const std::string& reason,
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

}  // namespace moorage::workspace
