#include "workspace/verbs/export.h"

#include "backends/registry.h"
#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "layers/seal/seal.h"
#include "state_db/store.h"
#include "state_db/tables/integrity.h"
#include "state_db/tables/layers.h"
#include "workspace/archive/import_check.h"
#include "workspace/archive/store.h"
#include "workspace/chain/layer_life.h"
#include "workspace/context/free_space.h"

namespace moorage::workspace {
namespace {

MOORAGE_CRASH_POINT(before_read, "export.before_read");

}  // namespace

struct Exports::Source {
  state_db::WorkspaceRow row;
  ArchivedLayers layers;
  // Stopped: this lock prevents a start. Running: collection skips its layers, locked by each
  // export.
  base::KeyedMutex::Guard workspace;
  std::vector<base::KeyedMutex::Guard> frozen;
  base::SnapshotId snapshot{};  // taken for this export; 0: the workspace is stopped
};

Exports::Source Exports::hold(const state_db::WorkspaceRow& row, base::KeyedMutex::Guard guard,
                              WithSnapshots with) {
  Source source;
  source.row = row;
  if (context_.live.running(row.id)) {
    const auto taken = taker_.for_export(row);
    source.snapshot = taken.id;
    try {
      source.layers = archived_layers(context_, taken, with);
      for (const auto& layer : source.layers.layers)
        source.frozen.push_back(context_.locks.share(layer.id.str(), "export"));
    } catch (const Error&) {
      guard.unlock();
      release(source);
      throw;
    }
    return source;  // the workspace keeps running
  }
  source.workspace = std::move(guard);
  start_stop_.bring_to_rest(row, "exported");  // first finish transfers and clean up after a crash
  source.row = state_db::WorkspaceTable(context_.store).get(row.id);
  integrity_.look(source.row);  // never export an incomplete workspace as a whole one
  source.layers = archived_layers(context_, source.row, with);
  return source;
}

void Exports::release(Source& source) {
  source.frozen.clear();
  source.workspace.unlock();
  if (!source.snapshot) return;
  try {
    const auto guard = context_.locks.lock(source.row.id.str(), "end of an export");
    state_db::SnapshotTable(context_.store).drop(source.snapshot, "the export has ended");
    collect_layers(context_);
  } catch (const Error& error) {  // retention removes it like any automatic snapshot
    base::log(base::LogLevel::warning, "export.snapshot_left",
              {{"sn", source.snapshot}, {"error", error.message()}});
  }
}

void Exports::write_export(const Source& source, base::ByteSpool& stream) {
  before_read.pass();
  const std::string spool = context_.options.store;
  const auto unnamed_file = [spool] { return ArchiveStore::spool(spool); };
  const packs::WriterOptions options{.level = context_.options.archive_level,
                                     .threads = context_.options.archive_threads,
                                     .unnamed_file = unnamed_file};
  // A snapshot's layers are frozen; a stopped workspace's writable layer must not change meanwhile.
  std::optional<layers::LayerStill> still;
  if (!source.snapshot) still.emplace(context_.storage.layer_path(source.row.layer));
  auto contents = contents_of(context_, repositories_, source.row, source.layers, spool);
  contents.before_end = [&still] {
    if (still) still->require();
  };
  ReadBack check([&stream](std::string_view bytes) { stream.write(bytes); },
                 ArchiveStore::read_options(context_.options, spool));
  check.finish(
      write_archive(contents, options, [&check](std::string_view bytes) { check.write(bytes); }));
}

Exports::Export Exports::begin(const Caller& caller, const std::string& name, WithSnapshots with) {
  const auto found = find_workspace(context_.store, caller, name, Right::read);
  Export made;
  made.stream = spools_.make(caller.uid);
  // The repository's objects go into a file first; the rest is spooled only while the reader lags.
  require_room(context_.options, found.name + " cannot be exported",
               state_db::RepositoryTable(context_.store).get(found.repository).bytes);
  auto guard = context_.locks.lock(found.id.str(), "export");
  const auto row = state_db::WorkspaceTable(context_.store).get(found.id);
  require_ready(row);
  auto source = std::make_shared<Source>(hold(row, std::move(guard), with));
  made.snapshots = source->layers.snapshots.size();
  made.image = row.image;
  made.identity = identify_image(context_, row);
  const auto work = [this, stream = made.stream, source] {
    std::optional<Error> failure;
    try {
      write_export(*source, *stream);
      base::log(base::LogLevel::info, "workspace.exported", {{"ws", source->row.id}});
    } catch (const Error& error) {
      failure = error;
    } catch (const std::exception& error) {
      failure = Error(Code::internal, error.what());
    }
    release(*source);
    failure ? stream->fail(*failure) : stream->finish();
  };
  try {
    exporters_.submit(work);
  } catch (const Error&) {  // too many exports
    release(*source);
    throw;
  }
  return made;
}

}  // namespace moorage::workspace
