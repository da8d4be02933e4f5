#include "workspace/verbs/archives.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "backends/registry.h"
#include "base/clock.h"
#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/wire/journal_middle.h"
#include "layers/seal/still_layer.h"
#include "repo_cache/repo_cache.h"
#include "state_db/store.h"
#include "state_db/tables/integrity.h"
#include "state_db/tables/layer_disk.h"
#include "state_db/tables/layers.h"
#include "workspace/access/keyed_request.h"
#include "workspace/archive/cold_layers.h"
#include "workspace/chain/initial_files.h"
#include "workspace/chain/workspace_note.h"
#include "workspace/context/free_space.h"
#include "workspace/upkeep/gc_plan.h"

namespace moorage::workspace {
namespace {

using base::Code;
using base::Error;
using state_db::WorkspaceState;

MOORAGE_CRASH_POINT(archive_intent, "archive.after_intent");
MOORAGE_CRASH_POINT(archive_written, "archive.after_write");
MOORAGE_CRASH_POINT(archive_named, "archive.after_rename");
MOORAGE_CRASH_POINT(archive_outcome, "archive.after_outcome");
MOORAGE_CRASH_POINT(archive_cold, "archive.after_hot_copy");
MOORAGE_CRASH_POINT(unarchive_intent, "unarchive.after_intent");
MOORAGE_CRASH_POINT(unarchive_files, "unarchive.after_files");
MOORAGE_CRASH_POINT(unarchive_outcome, "unarchive.after_outcome");

constexpr std::chrono::hours kPackDeadline{2};
constexpr base::UsageLimits kUsageLimits{.time = std::chrono::milliseconds(10'000)};
constexpr size_t kExporters = 4;
constexpr size_t kImporters = 16;  // they wait for their clients
constexpr size_t kMaxWaiting = 16;
constexpr size_t kExecsAtOnce = 1000;
constexpr std::chrono::minutes kOtherReturn{30};  // of another workspace that shares a layer

// Restores the layers of a workspace into its own store.
class Return : public ArchiveVisitor {
 public:
  Return(Context& context, Repositories& repositories, const state_db::WorkspaceRow& row)
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
  }
  void pack(packs::ArchiveReader& reader, uint64_t) override {
    if (repositories_.has_objects(row_.repository, objects_)) return;
    const base::Fd file = ArchiveStore::spool(context_.options.store);
    for (packs::ArchiveReader::Piece piece; reader.read(piece);)
      base::write_all(file.get(), piece.bytes);
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

  // Called in the transaction that makes it ready, after everything is synced.
  void set_hot() {
    state_db::LayerTable(context_.store)
        .set_cold(std::vector<base::LayerId>(wanted_.begin(), wanted_.end()), false);
  }

 private:
  // A frozen layer may still exist because others use it, or a merge may have put it into one that
  // does. The rest stay locked, always in the same order, and cold until they are complete.
  void choose() {
    state_db::LayerTable table(context_.store);
    std::set<base::LayerId> missing;
    for (const auto& layer : archived_layers(context_, row_, WithSnapshots::yes).layers) {
      if (layer.id == row_.layer || is_whole(layer.id)) continue;
      if (std::find(layers_.begin(), layers_.end(), layer.id) == layers_.end())
        throw Error(Code::corrupted, "it lacks " + layer.id.str() + ", and so does the store");
      missing.insert(layer.id);
    }
    for (const auto layer : missing) {
      auto guard = context_.locks.lock(layer.str(), "unarchive", kOtherReturn);
      if (is_whole(layer)) continue;  // another return brought it back
      held_.push_back(std::move(guard));
      wanted_.insert(layer);
    }
    set_cold();
    wanted_.insert(row_.layer);
  }
  bool is_whole(base::LayerId layer) {
    return !state_db::LayerTable(context_.store).get(layer).cold &&
           base::path_exists(context_.storage.layer_path(layer));
  }
  // Also for a layer whose files somebody removed: treat it as cold from now on.
  void set_cold() {
    state_db::LayerTable(context_.store)
        .set_cold(std::vector<base::LayerId>(wanted_.begin(), wanted_.end()), true);
  }

  Context& context_;
  Repositories& repositories_;
  const state_db::WorkspaceRow& row_;
  std::vector<base::LayerId> layers_;  // in the archive
  std::set<base::LayerId> wanted_;     // to be restored
  std::vector<base::KeyedMutex::Guard> held_;
  std::vector<std::string> objects_;
};

}  // namespace

Archives::Archives(Context& context, Repositories& repositories, Workspaces& workspaces,
                   LiveSandboxes& active)
    : context_(context),
      repositories_(repositories),
      workspaces_(workspaces),
      active_(active),
      integrity_(context),
      exports_(context),
      exporters_(kExporters, kMaxWaiting),
      importers_(kImporters, kMaxWaiting) {
  workspaces_.hooks().bring_back = [this](const state_db::WorkspaceRow& row) {
    bring_back({}, row);  // the key belongs to the request that needs it
  };
}

Archives::~Archives() = default;

// Exports a running command as interrupted, with a copy of its output so far if it has a journal.
// nullopt: it has no journal, or has ended.
std::optional<SpooledFile> Archives::cut_short(state_db::ExecRow& row, const std::string& path,
                                               const std::string& spool) {
  std::optional<SpooledFile> copy;
  base::JournalCopy copied;
  if (base::path_exists(path)) {
    const base::Fd file = base::open_file(path, O_RDONLY | O_NOFOLLOW);
    copy.emplace().fd = ArchiveStore::spool(spool);
    copied = base::copy_journal(file.get(), [&copy](std::string_view bytes) {
      base::write_all(copy->fd.get(), bytes);
      copy->bytes += bytes.size();
    });
  }
  row = state_db::ExecTable(context_.store).get(row.id);
  if (row.state != state_db::ExecState::running) return std::nullopt;  // it ended meanwhile
  row.state = row.outcome.state = state_db::ExecState::interrupted;
  row.outcome.category = state_db::ExecCategory::lost;
  row.outcome.error = "it was still running when it was exported";
  row.outcome.ended_wall_ms = context_.store.clock().wall_ms();
  row.outcome.output_bytes = copied.output_bytes;
  row.outcome.omitted_bytes = copied.dropped_bytes;
  return copy;
}

// Spools all rows of its commands, oldest first, and collects their journals.
SpooledFile Archives::spool_execs(base::WorkspaceId id, const std::string& spool,
                                  ArchiveContents& contents) {
  SpooledFile file{ArchiveStore::spool(spool), 0};
  auto& journals = contents.journals;
  journals.path = [this, id](base::ExecId exec) {
    return journal_directory(context_.options, id, exec) + "/output";
  };
  base::ExecId after;
  for (;;) {
    const auto rows = state_db::ExecTable(context_.store).list_after(id, after, kExecsAtOnce);
    if (rows.empty()) return file;
    std::string lines;
    for (auto row : rows) {
      const std::string path = journals.path(row.id);
      std::optional<SpooledFile> copy;
      if (row.state == state_db::ExecState::running) copy = cut_short(row, path, spool);
      lines += write_exec_line(row);
      if (copy || base::path_exists(path)) journals.of.push_back(row.id);
      if (copy) journals.copies.emplace(row.id, *std::move(copy));
    }
    base::write_all(file.fd.get(), lines);
    file.bytes += lines.size();
    after = rows.back().id;
  }
}

// The engine's id of the image, so that another host knows which one it needs. A silent engine must
// not prevent archiving.
ManifestImage Archives::identify_image(const state_db::WorkspaceRow& row) {
  auto* backend = context_.backends.find(row.backend);
  if (row.image == "host" || !backend) return {};
  try {
    const auto found = backend->find_image(row.image);
    return found ? ManifestImage{found->id, found->source} : ManifestImage{};
  } catch (const Error& error) {
    base::log(base::LogLevel::warning, "archive.image_unknown",
              {{"ws", row.id}, {"image", row.image}, {"error", error.message()}});
    return {};
  }
}

ArchiveContents Archives::contents_of(const state_db::WorkspaceRow& row,
                                      const ArchivedLayers& archived, const std::string& spool) {
  ArchiveContents contents;
  Manifest& manifest = contents.manifest;
  manifest.store = context_.store.store_id();
  manifest.made_wall_ms = context_.store.clock().wall_ms();
  manifest.workspace = row;
  manifest.repository = state_db::RepositoryTable(context_.store).get(row.repository);
  manifest.image = identify_image(row);
  describe(archived, manifest);
  manifest.forked_from = row.fork_of;
  if (row.forked_from) {
    const auto origin = state_db::SnapshotTable(context_.store).get(row.forked_from);
    manifest.forked_from = {manifest.store, origin.workspace, origin.id,
                            state_db::WorkspaceTable(context_.store).get(origin.workspace).name};
  }
  const std::string repo = repo_directory(row.repository);
  const auto base = repositories_.ensure_base_tree(row.repository, row.base_commit, {});
  // Upstream's current refs are not enough: an agent may have merged commits that only exist here.
  contents.refs = context_.repos.all_refs(repo);
  contents.pack.fd = ArchiveStore::spool(spool);
  context_.repos.export_pack(repo, row.base_commit, contents.pack.fd.get(), kPackDeadline);
  struct stat status;
  base::check(fstat(contents.pack.fd.get(), &status), "stat the pack");
  contents.pack.bytes = static_cast<uint64_t>(status.st_size);
  contents.execs = spool_execs(row.id, spool, contents);
  contents.parts = parts_of(context_, archived, base);
  contents.base_in_use = base.in_use;
  return contents;
}

// The estimate of workspace/upkeep/gc_plan.h, plus the pack that is spooled at the same time.
uint64_t Archives::likely_bytes(const state_db::WorkspaceRow& row) {
  const auto uses = use_of_frozen_layers(context_);
  const auto use = uses.find(row.id);
  const LayerUse known = use == uses.end() ? LayerUse{} : use->second;
  const uint64_t objects = state_db::RepositoryTable(context_.store).get(row.repository).bytes;
  return likely_archive_bytes(known.writable_bytes.value_or(0) + known.all_bytes, objects) +
         objects;
}

WorkspaceView Archives::archive(const Caller& caller, const std::string& name,
                                const Progress& progress) {
  const auto found = workspaces_.find(caller, name, Right::write);
  workspaces_.leases().check(caller, found);
  const auto guard = context_.locks.lock(found.id.str(), "archive");
  const auto writing = workspaces_.leases().write(caller, found);
  const auto row = state_db::WorkspaceTable(context_.store).get(found.id);
  if (row.state == WorkspaceState::archived) {
    join_key(context_.store, caller, row.id.str());
  } else {
    put_away(caller, row, "archived by uid " + std::to_string(caller.uid), progress);
  }
  return workspaces_.show(caller, row.id.str());
}

uint64_t Archives::collect(base::WorkspaceId id, const std::string& reason) {
  const auto guard = context_.locks.lock(id.str(), "collection", std::chrono::milliseconds(0));
  const auto row = state_db::WorkspaceTable(context_.store).get(id);
  const Caller collector;  // root without a lease: a held lease stops collection
  const auto writing = workspaces_.leases().write(collector, row);
  if (row.policy.pinned || state_db::SandboxTable(context_.store).live(id) || active_.mounted(id))
    throw Error(Code::conflict, row.name + " is in use again");
  const uint64_t freed = put_away(collector, row, "collected: " + reason, {});
  const auto archive = state_db::ArchiveTable(context_.store).find(id).value();
  return ArchiveStore(context_).is_elsewhere() ? freed : freed - std::min(freed, archive.bytes);
}

uint64_t Archives::put_away(const Caller& caller, const state_db::WorkspaceRow& present,
                            const std::string& reason, const Progress& progress) {
  require_ready(present);
  const ArchiveStore store(context_);
  store.require_writable();
  workspaces_.bring_to_rest(present, reason);
  // If its policy takes a snapshot at each stop, it is now on another layer.
  const auto row = state_db::WorkspaceTable(context_.store).get(present.id);
  integrity_.look(row);              // never archive an incomplete workspace as a whole one
  remove_archive(context_, row.id);  // left over if its last return could not remove it
  store.require_room(row.name + " cannot be archived", likely_bytes(row));
  state_db::ArchiveTable table(context_.store);
  const auto archive = context_.store.transaction([&] {
    join_key(context_.store, caller, state_db::move_under_way(row.id));
    return table.begin(row.id);
  });
  archive_intent.pass();
  try {
    if (progress) progress("archive", -1, row.name);
    const layers::LayerStill still(context_.storage.layer_path(row.layer));
    std::string seal;
    const auto archived = archived_layers(context_, row, WithSnapshots::yes);
    auto contents = contents_of(row, archived, context_.options.archive_directory);
    contents.before_end = [&] { seal = still.require(); };
    const auto file = store.write(archive, contents, [](const char* step) {
      (std::string_view(step) == "written" ? archive_written : archive_named).pass();
    });
    std::vector<base::LayerId> layers;
    for (const auto& layer : archived.layers) layers.push_back(layer.id);
    context_.store.transaction([&] {
      table.finish(row.id, {file.stream.bytes, file.stream.sha256, seal}, layers);
      join_key(context_.store, caller, row.id.str());
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

WorkspaceView Archives::unarchive(const Caller& caller, const std::string& name,
                                  const Progress& progress) {
  const auto found = workspaces_.find(caller, name, Right::write);
  workspaces_.leases().check(caller, found);
  const auto guard = context_.locks.lock(found.id.str(), "unarchive");
  const auto writing = workspaces_.leases().write(caller, found);
  const auto row = state_db::WorkspaceTable(context_.store).get(found.id);
  if (row.state == WorkspaceState::ready) {
    join_key(context_.store, caller, row.id.str());
  } else {
    if (row.state != WorkspaceState::archived) require_ready(row);
    if (progress) progress("unarchive", -1, row.name);
    bring_back(caller, row);
  }
  return workspaces_.show(caller, row.id.str());
}

WorkspaceView Archives::resume(const Caller& caller, const std::string& subject) {
  const auto id = base::WorkspaceId::parse(subject.substr(0, subject.find(' '))).value();
  const auto row = state_db::WorkspaceTable(context_.store).get(id);
  if (subject == state_db::move_under_way(id))
    refuse_unsettled(caller, "an interrupted move of " + row.name + " is being cleaned up");
  return workspaces_.look(id);
}

void Archives::bring_back(const Caller& caller, const state_db::WorkspaceRow& row) {
  const auto writable = state_db::LayerDisk(context_.store).find(row.layer);
  uint64_t bytes = writable ? writable->bytes : 0;
  for (const auto& layer : archived_layers(context_, row, WithSnapshots::yes).layers) {
    if (layer.cold) bytes += layer.disk_bytes.value_or(0);
  }
  require_room(context_.options, row.name + " cannot be restored from its archive", bytes);
  state_db::ArchiveTable table(context_.store);
  const ArchiveStore store(context_);
  const auto archive = table.find(row.id).value();
  const base::Fd file = store.open(archive);  // open it before changing anything
  if (!store.is_there(archive)) {
    throw Error(Code::corrupted, store.path(archive) + " has the wrong size",
                "restore it from a backup; nothing was changed");
  }
  settle_archive(context_, row);  // removes leftovers of archiving
  if (const auto layer = context_.storage.layer_path(row.layer); base::path_exists(layer)) {
    throw Error(Code::conflict,
                row.name + " is archived, but " + layer + " exists and differs from its archive",
                "compare both: moorage doctor. To use the archive, move " + layer +
                    " away and try again; then copy in the files that you need from it");
  }
  context_.store.transaction([&] {
    table.begin_restore(row.id);
    join_key(context_.store, caller, state_db::move_under_way(row.id));
    state_db::IntegrityTable(context_.store).clear_seal(row.id);
  });
  unarchive_intent.pass();
  try {
    Return visitor(context_, repositories_, row);
    const ReadOptions options =
        ArchiveStore::read_options(context_.options, context_.options.store);
    const auto facts = read_archive(read_file_in_pieces(file.get()), options, visitor);
    if (facts.stream.sha256 != archive.sha256) {
      throw Error(Code::corrupted, "the file differs from what was written");
    }
    const auto taken = integrity_.take(row);
    base::sync_file_system(context_.storage.layer_path(row.layer));
    unarchive_files.pass();
    context_.store.transaction([&] {
      visitor.set_hot();
      table.finish_restore(row.id);
      join_key(context_.store, caller, row.id.str());
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
