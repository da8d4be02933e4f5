#include "workspace/archives.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "base/clock.h"
#include "base/crash_point.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "repo_cache/repo_cache.h"
#include "state_db/integrity.h"
#include "state_db/layers.h"
#include "state_db/store.h"
#include "workspace/birth.h"
#include "workspace/disk_room.h"
#include "workspace/read_back.h"

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
constexpr size_t kExporters = 4;
constexpr size_t kImporters = 16;  // they wait for their clients
constexpr size_t kMaxWaiting = 16;
constexpr size_t kExecsAtOnce = 1000;
constexpr SealLimits kSealLimits{.time = std::chrono::minutes(10)};

// That nobody writes to a layer while it is read, whoever it is: a file that grew would be torn.
class Still {
 public:
  Still(const Context& context, const state_db::WorkspaceRow& row)
      : layer_(context.storage.layer_path(row.layer)), before_(look()) {}
  // The seal of what was read.
  std::string require() const {
    if (const std::string now = look(); now == before_) return now;
    throw Error(Code::conflict, "something wrote to " + layer_ + " while it was being read",
                "nothing of moorage's does: find it, then try again");
  }

 private:
  std::string look() const { return take_seal(layer_, kSealLimits).hash; }
  const std::string layer_;
  const std::string before_;
};

// The layers of a workspace as they come back into its own store.
class Return : public ArchiveVisitor {
 public:
  Return(Context& context, Repositories& repositories, const state_db::WorkspaceRow& row)
      : context_(context), repositories_(repositories), row_(row) {
    for (const auto& layer : state_db::Layers(context.store).chain(row.layer)) {
      chain_.insert(layer.id.str());
    }
  }

  void manifest(const Manifest& manifest) override {
    if (manifest.layers.empty() || manifest.layers.front() != row_.layer.str() ||
        manifest.workspace.id != row_.id || manifest.store != context_.store.store_id()) {
      throw Error(Code::corrupted, "it is the archive of another workspace");
    }
    layers_ = manifest.layers;
  }
  void refs(const std::string& text) override {
    objects_ = ref_objects(text);
    objects_.push_back(row_.base_commit);
  }
  void pack(ArchiveReader& reader, uint64_t) override {
    if (repositories_.has_objects(row_.repository, objects_)) return;
    const base::Fd file = ArchiveStore::spool(context_.options.store);
    for (ArchiveReader::Piece piece; reader.read(piece);) base::write_all(file.get(), piece.bytes);
    repositories_.take_pack(row_.repository, objects_, file.get());
  }
  std::optional<std::string> upper(size_t layer, const std::string& part) override {
    const auto id = base::LayerId::parse(layers_.at(layer));
    if (!id) throw Error(Code::corrupted, "it has a layer " + layers_.at(layer));
    const std::string top = context_.storage.layer_path(*id);
    if (part == kLayerParts[0]) {
      // A frozen layer may be there still, as others stand on it, too; or was merged meanwhile into
      // one that is.
      present_ = *id != row_.layer && (!chain_.contains(id->str()) || base::path_exists(top));
      if (!present_) context_.storage.make_layer(*id);
    }
    if (present_) return std::nullopt;
    return top + "/" + part + "/upper";
  }

 private:
  Context& context_;
  Repositories& repositories_;
  const state_db::WorkspaceRow& row_;
  std::set<std::string> chain_;      // as it is now
  std::vector<std::string> layers_;  // of the archive
  std::vector<std::string> objects_;
  bool present_ = false;
};

}  // namespace

Archives::Archives(Context& context, Repositories& repositories, Workspaces& workspaces,
                   Active& active)
    : context_(context),
      repositories_(repositories),
      workspaces_(workspaces),
      active_(active),
      integrity_(context),
      exporters_(kExporters, kMaxWaiting),
      importers_(kImporters, kMaxWaiting) {
  workspaces_.hooks().bring_back = [this](const state_db::WorkspaceRow& row) { bring_back(row); };
}

Archives::~Archives() = default;

// All rows of its commands, oldest first, and the journals that they have.
SpooledFile Archives::spool_execs(base::WorkspaceId id, const std::string& spool,
                                  ArchiveContents& contents) {
  SpooledFile file{ArchiveStore::spool(spool), 0};
  base::ExecId after;
  for (;;) {
    const auto rows = state_db::Execs(context_.store).list_after(id, after, kExecsAtOnce);
    if (rows.empty()) return file;
    std::string lines;
    for (const auto& row : rows) {
      lines += write_exec_line(row);
      const std::string path = journal_directory(context_.options, id, row.id) + "/output";
      if (base::path_exists(path)) contents.journals.push_back({row.id, path});
    }
    base::write_all(file.fd.get(), lines);
    file.bytes += lines.size();
    after = rows.back().id;
  }
}

ArchiveContents Archives::contents_of(const state_db::WorkspaceRow& row, const std::string& spool) {
  ArchiveContents contents;
  Manifest& manifest = contents.manifest;
  manifest.store = context_.store.store_id();
  manifest.made_wall_ms = context_.store.clock().wall_ms();
  manifest.workspace = row;
  manifest.repository = state_db::Repositories(context_.store).get(row.repository);
  const std::string repo = Repositories::directory(row.repository);
  const auto base = repositories_.ensure_base_tree(row.repository, row.base_commit, {});
  // Upstream's refs of today are not enough: an agent may have merged what is only kept here.
  contents.refs = context_.repos.all_refs(repo);
  contents.pack.fd = ArchiveStore::spool(spool);
  context_.repos.export_pack(repo, row.base_commit, contents.pack.fd.get(), kPackDeadline);
  struct stat status;
  base::check(fstat(contents.pack.fd.get(), &status), "look at the pack");
  contents.pack.bytes = static_cast<uint64_t>(status.st_size);
  contents.execs = spool_execs(row.id, spool, contents);

  const auto chain = state_db::Layers(context_.store).chain(row.layer);
  for (size_t n = 0; n < chain.size(); ++n) {
    manifest.layers.push_back(chain[n].id.str());
    for (const std::string part_name : kLayerParts) {
      LayerPart part;
      part.prefix = part_prefix(n, part_name);
      part.disk_first_id = context_.options.disk_first_id;
      for (size_t below = n; below < chain.size(); ++below) {
        part.uppers.push_back(context_.storage.layer_path(chain[below].id) + "/" + part_name +
                              "/upper");
      }
      if (part_name == kLayerParts[0]) {
        part.base = base.tree;
        part.uppers.insert(part.uppers.end(), base.deltas.begin(), base.deltas.end());
      }
      if (part_name == kLayerParts[1]) part.base = ensure_home_skeleton(context_.options);
      contents.parts.push_back(std::move(part));
    }
  }
  return contents;
}

WorkspaceView Archives::archive(const Caller& caller, const std::string& name,
                                const Progress& progress) {
  const auto found = workspaces_.find(caller, name, Right::write);
  workspaces_.leases().check(caller, found);
  const auto guard = context_.locks.lock(found.id.str(), "archive");
  const auto writing = workspaces_.leases().write(caller, found);
  const auto row = state_db::Workspaces(context_.store).get(found.id);
  if (row.state != WorkspaceState::archived)
    put_away(row, "archived by uid " + std::to_string(caller.uid), progress);
  return workspaces_.show(caller, row.id.str());
}

uint64_t Archives::collect(base::WorkspaceId id, const std::string& reason) {
  const auto guard = context_.locks.lock(id.str(), "collection", std::chrono::milliseconds(0));
  const auto row = state_db::Workspaces(context_.store).get(id);
  const Caller collector;  // root, without a lease: one that is held keeps it off
  const auto writing = workspaces_.leases().write(collector, row);
  if (row.policy.pinned || state_db::Sandboxes(context_.store).live(id) || active_.mounted(id))
    throw Error(Code::conflict, row.name + " is used again");
  put_away(row, "collected: " + reason, {});
  const auto archive = state_db::Archives(context_.store).find(id).value();
  const uint64_t had = row.disk_bytes.value_or(0);
  return ArchiveStore(context_).is_elsewhere() ? had : had - std::min(had, archive.bytes);
}

void Archives::put_away(const state_db::WorkspaceRow& row, const std::string& reason,
                        const Progress& progress) {
  require_ready(row);
  const ArchiveStore store(context_);
  store.require_writable();
  workspaces_.bring_to_rest(row, reason);
  integrity_.look(row);              // a part of one is not put away for the whole
  remove_archive(context_, row.id);  // the one that it came back from last, if that could not go
  state_db::Archives table(context_.store);
  const auto archive = table.begin(row.id);
  archive_intent.pass();
  try {
    if (progress) progress("archive", -1, row.name);
    const Still still(context_, row);
    std::string seal;
    auto contents = contents_of(row, context_.options.archive_directory);
    contents.before_end = [&] { seal = still.require(); };
    const auto file = store.write(archive, contents, [](const char* step) {
      (std::string_view(step) == "written" ? archive_written : archive_named).pass();
    });
    table.finish(row.id, {file.stream.bytes, file.stream.sha256, seal});
  } catch (Error& error) {
    settle_archive(context_, state_db::Workspaces(context_.store).get(row.id));
    throw error.add_context(row.name + " could not be archived, and is as it was");
  }
  archive_outcome.pass();
  settle_archive(context_, state_db::Workspaces(context_.store).get(row.id));
  archive_cold.pass();
  base::log(base::LogLevel::info, "workspace.archived",
            {{"ws", row.id}, {"name", row.name}, {"reason", reason}});
}

WorkspaceView Archives::unarchive(const Caller& caller, const std::string& name,
                                  const Progress& progress) {
  const auto found = workspaces_.find(caller, name, Right::write);
  workspaces_.leases().check(caller, found);
  const auto guard = context_.locks.lock(found.id.str(), "unarchive");
  const auto writing = workspaces_.leases().write(caller, found);
  const auto row = state_db::Workspaces(context_.store).get(found.id);
  if (row.state != WorkspaceState::ready) {
    if (row.state != WorkspaceState::archived) require_ready(row);
    if (progress) progress("unarchive", -1, row.name);
    bring_back(row);
  }
  return workspaces_.show(caller, row.id.str());
}

void Archives::bring_back(const state_db::WorkspaceRow& row) {
  require_room(context_.options, row.name + " stays in its archive", row.disk_bytes.value_or(0));
  state_db::Archives table(context_.store);
  const ArchiveStore store(context_);
  const auto archive = table.find(row.id).value();
  const base::Fd file = store.open(archive);  // before anything goes for it
  if (!store.is_there(archive)) {
    throw Error(Code::corrupted, store.path(archive) + " is not as long as it was written",
                "restore it from a backup; nothing was changed");
  }
  settle_archive(context_, row);  // what its archiving could not remove
  if (const auto layer = context_.storage.layer_path(row.layer); base::path_exists(layer)) {
    throw Error(Code::conflict,
                row.name + " is archived, and " + layer + " is there and is not what was archived",
                "look at both: moorage doctor. To have what is in the archive, move " + layer +
                    " away and try again; what is needed of it can be copied in then");
  }
  context_.store.transaction([&] {
    table.begin_restore(row.id);
    state_db::Integrity(context_.store).clear_seal(row.id);
  });
  unarchive_intent.pass();
  try {
    Return visitor(context_, repositories_, row);
    const ReadOptions options{.limits = {}, .disk_first_id = context_.options.disk_first_id};
    const auto facts = read_archive(read_file_in_pieces(file.get()), options, visitor);
    if (facts.stream.sha256 != archive.sha256) {
      throw Error(Code::corrupted, "it is not the file that was written");
    }
    const auto taken = integrity_.take(row);
    base::sync_file_system(context_.storage.layer_path(row.layer));
    unarchive_files.pass();
    context_.store.transaction([&] {
      table.finish_restore(row.id);
      integrity_.keep_returned(row, taken);
    });
  } catch (Error& error) {
    settle_archive(context_, state_db::Workspaces(context_.store).get(row.id));
    throw error.add_context(row.name + " could not be brought back from " + store.path(archive));
  }
  unarchive_outcome.pass();
  try {
    settle_archive(context_, state_db::Workspaces(context_.store).get(row.id));
  } catch (const Error& error) {  // it is back; the next look removes the file
    base::log(base::LogLevel::warning, "archive.not_removed",
              {{"ws", row.id}, {"error", error.message()}});
  }
  base::log(base::LogLevel::info, "workspace.unarchived", {{"ws", row.id}, {"name", row.name}});
}

std::shared_ptr<ByteSpool> Archives::begin_export(const Caller& caller, const std::string& name) {
  const auto found = workspaces_.find(caller, name, Right::read);
  auto guard =
      std::make_shared<base::KeyedMutex::Guard>(context_.locks.lock(found.id.str(), "export"));
  const auto row = state_db::Workspaces(context_.store).get(found.id);
  require_ready(row);
  {
    // Reading is free for all who may see it; to stop what runs is for the lease's holder.
    std::optional<Leases::Writing> writing;
    if (state_db::Sandboxes(context_.store).live(row.id))
      writing.emplace(workspaces_.leases().write(caller, row));
    workspaces_.bring_to_rest(row, "exported by uid " + std::to_string(caller.uid));
  }
  integrity_.look(row);  // a part of one is not sent for the whole
  auto pipe = std::make_shared<ByteSpool>(ArchiveStore::spool(context_.options.store), [this] {
    return look_at_room(context_.options).level() == RoomLevel::enough;
  });
  exporters_.submit([this, pipe, guard, row] {
    try {
      const std::string spool = context_.options.store;
      WriterOptions options{.level = context_.options.archive_level,
                            .threads = context_.options.archive_threads,
                            .index = ArchiveStore::spool(spool)};
      const Still still(context_, row);
      auto contents = contents_of(row, spool);
      contents.before_end = [&still] { still.require(); };
      ReadBack check([&pipe](std::string_view bytes) { pipe->write(bytes); },
                     {.limits = {}, .disk_first_id = context_.options.disk_first_id});
      check.finish(write_archive(contents, std::move(options),
                                 [&check](std::string_view bytes) { check.write(bytes); }));
      base::log(base::LogLevel::info, "workspace.exported", {{"ws", row.id}});
      guard->unlock();
      pipe->finish();
    } catch (const Error& error) {
      guard->unlock();
      pipe->fail(error);
    } catch (const std::exception& error) {
      guard->unlock();
      pipe->fail(Error(Code::internal, error.what()));
    }
  });
  return pipe;
}

}  // namespace moorage::workspace
