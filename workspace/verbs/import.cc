#include "workspace/verbs/import.h"

#include <fcntl.h>

#include "backends/registry.h"
#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "state_db/store.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/snapshots.h"
#include "workspace/access/keyed_request.h"
#include "workspace/access/placement.h"
#include "workspace/archive/import_check.h"
#include "workspace/archive/store.h"
#include "workspace/chain/initial_files.h"
#include "workspace/chain/layer_life.h"
#include "workspace/chain/workspace_note.h"
#include "workspace/context/free_space.h"

namespace moorage::workspace {
namespace {

MOORAGE_CRASH_POINT(import_intent, "import.after_intent");
MOORAGE_CRASH_POINT(import_rows, "import.after_rows");
MOORAGE_CRASH_POINT(import_files, "import.after_files");
MOORAGE_CRASH_POINT(import_outcome, "import.after_outcome");

constexpr size_t kReadBytes = 256 << 10;
constexpr size_t kExecsAtOnce = 500;
constexpr size_t kExecBytesAtOnce = 1 << 20;
constexpr size_t kMostOfOneUser = 4;
constexpr int kNameTries = 1000;

// The client's data. A client that sends almost nothing is cut off: a thread waits for it.
class Client {
 public:
  explicit Client(base::BytePipe& pipe) : pipe_(pipe) {}
  std::string_view next() {
    const auto began = Clock::now();
    piece_ = pipe_.read(kReadBytes);
    bytes_ += piece_.size();
    waited_ += Clock::now() - began;
    const auto waited_s = std::chrono::duration_cast<std::chrono::seconds>(waited_);
    if (waited_s > kGrace && bytes_ < static_cast<uint64_t>(waited_s.count()) * kLeastRate) {
      throw Error(Code::deadline_exceeded,
                  "the archive arrives too slowly: " + std::to_string(bytes_) + " bytes in " +
                      std::to_string(waited_s.count()) + " s",
                  "copy the file to the store's host first, then import it");
    }
    return piece_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kGrace{120};
  static constexpr uint64_t kLeastRate = 4 << 10;  // bytes a second, a modem's speed
  base::BytePipe& pipe_;
  std::string piece_;
  uint64_t bytes_ = 0;
  Clock::duration waited_{0};
};

class ImportVisitor : public ImportCheck {
 public:
  ImportVisitor(Context& context, Repositories& repositories, Admission& admission,
                const Caller& caller, std::string name)
      : ImportCheck([&context] { return ArchiveStore::spool(context.options.store); },
                    std::move(name)),
        context_(context),
        repositories_(repositories),
        admission_(admission),
        caller_(caller) {}

  void manifest(const Manifest& manifest) override {
    ImportCheck::manifest(manifest);
    find_image();
  }

  void pack(packs::ArchiveReader& reader, uint64_t) override {
    const base::Fd file = ArchiveStore::spool(context_.options.store);
    write_data(reader, file.get());
    repository_ = repositories_.adopt(caller_.uid, manifest_.repository, objects_, file.get());
    admission_.admit(caller_.uid, repository_);
    repositories_.ensure_base_tree(repository_, manifest_.workspace.base_commit, {});
    create();
  }

  void exec(const state_db::ExecRow& row) override {
    check_exec(row);
    execs_.push_back(row);
    exec_bytes_ += state_db::text_bytes(row.request);
    if (execs_.size() >= kExecsAtOnce || exec_bytes_ >= kExecBytesAtOnce) add_execs();
  }

  void journal(base::ExecId old, packs::ArchiveReader& reader) override {
    add_execs();
    const std::string directory = journal_directory(context_.options, id_, check_journal(old));
    base::make_directories(directory);
    const base::Fd file = base::open_file(directory + "/output", O_WRONLY | O_CREAT | O_EXCL, 0600);
    write_data(reader, file.get());
    base::set_append_only(file.get(), true);
  }

  std::optional<std::string> upper(size_t layer, const std::string& part) override {
    add_execs();
    return context_.storage.layer_path(layers_.at(layer)) + "/" + part + "/upper";
  }

  base::WorkspaceId id() const { return id_; }  // 0: not created yet
  // Adds its snapshots, once its files are complete.
  void add_snapshots() {
    state_db::SnapshotTable table(context_.store);
    std::vector<base::SnapshotId> made;
    for (const auto& past : manifest_.snapshots) {
      state_db::SnapshotRow row;
      row.workspace = id_;
      if (past.parent) row.parent = made.at(*past.parent);
      row.layer = layers_.at(past.layer);
      row.name = past.name;
      row.external_id = past.external_id;
      row.cause = past.cause;
      row.exec = ids_.find(past.exec).value_or(base::ExecId{});
      row.created_wall_ms = past.created_wall_ms;
      row.moved_commit = known_commit(past.moved_commit);
      made.push_back(table.add_past(row));
    }
    if (manifest_.stands_on) table.set_stands_on(id_, made.at(*manifest_.stands_on));
  }
  // Unlocks its layers: they are in use now, or may be collected.
  void let_go() { frozen_.clear(); }
  // The limits that the host's rules lowered.
  const std::string& lowered() const { return lowered_; }

 private:
  // Finds the same image by digest: installed packages only fit that one.
  void find_image() {
    std::string& image = manifest_.workspace.image;
    if (image == "host") return;
    const ManifestImage& wanted = manifest_.image;
    auto* backend = context_.backends.find(manifest_.workspace.backend);
    if (backend && backend->capabilities().usable) {
      for (const std::string& name : {image, wanted.id}) {
        if (name.empty()) continue;
        const auto found = backend->find_image(name);
        if (!found || (!wanted.id.empty() && found->id != wanted.id)) continue;
        image = name;
        return;
      }
    }
    throw Error(Code::unsupported,
                "the archive needs image " + base::escape_for_message(image) +
                    (wanted.id.empty() ? "" : " (" + wanted.id + ")") + " on backend " +
                    base::escape_for_message(manifest_.workspace.backend) +
                    ", which this host does not have",
                way_to_image(image, wanted));
  }

  static std::string way_to_image(const std::string& image, const ManifestImage& wanted) {
    const std::string copy = "docker save " + base::escape_for_message(image) +
                             " where it was exported, docker load here";
    if (wanted.source.empty()) return copy + "; then import it again";
    return "docker pull " + wanted.source + "; or " + copy + "; then import it again";
  }

  // Empty unless it is a commit here: its changes are compared with it.
  std::string known_commit(const std::string& id) const {
    try {
      const std::string repo = repo_directory(repository_);
      if (!id.empty() && context_.repos.resolve(repo, id).commit == id) return id;
    } catch (const Error&) {
      // Another object, or none. Then they are compared with the base commit.
    }
    return {};
  }

  // As create does: the first free one of name, name-2, ... unless a name was given.
  void create() {
    state_db::WorkspaceTable table(context_.store);
    const auto& from = manifest_.workspace;
    state_db::NewWorkspace wanted;
    wanted.owner_uid = caller_.uid;
    wanted.repository = repository_;
    wanted.base_ref = from.base_ref;
    wanted.base_commit = from.base_commit;
    wanted.head_commit = from.head_commit;
    wanted.raw_commit = from.raw_commit;
    wanted.moved_commit = known_commit(from.moved_commit);
    wanted.branch = from.branch;
    wanted.image = from.image;
    wanted.policy = from.policy;
    wanted.labels = from.labels;
    wanted.forked_from = origin();
    if (!wanted.forked_from) wanted.fork_of = manifest_.forked_from;
    auto* backend = context_.backends.find(from.backend);
    // Backend rules do not restrict an import: a start checks them. Limits apply from now on.
    const Placement placement(context_, caller_.uid, from.labels);
    wanted.backend = from.backend;
    if (!backend || !backend->capabilities().usable) {
      const auto usual = placement.place_or({context_.options.default_backend, from.image, ""});
      wanted.backend = usual.backend;
      wanted.runtime = usual.runtime;
    }
    lowered_ = placement.lower(wanted.policy.limits);
    const std::string& name = wanted_name();
    for (int attempt = 1; !id_; ++attempt) {
      wanted.name = attempt == 1 ? name : name.substr(0, 55) + "-" + std::to_string(attempt);
      try {
        insert(table, wanted);
      } catch (const Error& error) {
        const bool taken = error.code() == Code::already_exists;
        if (!taken || !name_.empty() || attempt >= kNameTries) throw;
      }
    }
    import_intent.pass();
    for (const auto layer : layers_) context_.storage.make_layer(layer);
    set_incoming_mark(context_, layers_.front());
  }

  // The parent, if the caller has it in this store. An archive may claim anything, so the parent
  // must be one that the caller may write to.
  base::SnapshotId origin() const {
    if (!manifest_.forked_from || manifest_.forked_from->store != context_.store.store_id())
      return {};
    const auto found =
        state_db::SnapshotTable(context_.store).find(manifest_.forked_from->snapshot);
    if (!found || found->workspace != manifest_.forked_from->workspace) return {};
    const auto row = state_db::WorkspaceTable(context_.store).get(found->workspace);
    const bool same_base =
        row.repository == repository_ && row.base_commit == manifest_.workspace.base_commit;
    return same_base && !row.purged_wall_ms && owns(caller_, row) ? found->id : base::SnapshotId{};
  }

  // Bottom layer first. Before it is ready, only the layers of its own chain count as in use.
  void make_frozen(state_db::NewWorkspace& wanted) {
    state_db::LayerTable layers(context_.store);
    layers_.assign(manifest_.layers.size(), {});
    frozen_.clear();
    for (size_t n = layers_.size(); n-- > 1;) {
      const auto below = manifest_.layers[n].below;
      layers_[n] = layers.create({.parent = below ? layers_[*below] : base::LayerId{},
                                  .repository = repository_,
                                  .base_commit = wanted.base_commit});
      layers.freeze(layers_[n]);
      frozen_.push_back(
          context_.locks.lock(layers_[n].str(), "import", std::chrono::milliseconds(0)));
    }
    const auto below = manifest_.layers.front().below;
    wanted.stands_on = below ? layers_[*below] : base::LayerId{};
  }

  void insert(state_db::WorkspaceTable& table, state_db::NewWorkspace& wanted) {
    context_.store.transaction([&] {
      if (!state_db::BaseTreeTable(context_.store).find(repository_, wanted.base_commit)) {
        throw Error(Code::conflict, "its repository was removed during the import", "try again");
      }
      make_frozen(wanted);
      const auto made = table.create(wanted);
      sandbox_ = state_db::SandboxTable(context_.store)
                     .add_past({made.id, wanted.backend, wanted.image}, "of an imported workspace");
      guard_ = hold_new(context_, made.id, "import");
      join_key(context_.store, caller_, made.id.str());
      id_ = made.id;
      layers_.front() = made.layer;
    });
  }

  void add_execs() {
    if (execs_.empty()) return;
    context_.store.transaction([&] {
      for (auto& exec : execs_) {
        const base::ExecId old = exec.id;
        if (exec.imported_from.empty()) exec.imported_from = manifest_.store + "/" + old.str();
        exec.request.workspace = id_;
        exec.request.sandbox = sandbox_;
        exec.request.owner_uid = caller_.uid;
        ids_.add(old, state_db::ExecTable(context_.store).add_past(exec));
      }
    });
    execs_.clear();
    exec_bytes_ = 0;
    context_.store.checkpoint();
  }

  Context& context_;
  Repositories& repositories_;
  Admission& admission_;
  const Caller caller_;
  base::RepoId repository_;
  base::WorkspaceId id_;
  std::vector<base::LayerId> layers_;  // by their place in the manifest, the writable one first
  std::vector<base::KeyedMutex::Guard> frozen_;
  base::SandboxId sandbox_;
  std::string lowered_;
  base::KeyedMutex::Guard guard_;
  std::vector<state_db::ExecRow> execs_;
  size_t exec_bytes_ = 0;
};

}  // namespace

WorkspaceView Imports::take_in(const Caller& caller, const std::string& name,
                               packs::ByteSource source) {
  base::WorkspaceId id;
  std::string lowered;
  {
    ImportVisitor incoming(context_, repositories_, admission_, caller, name);
    ReadOptions options{.limits = {.max_bytes = context_.options.import_max_bytes},
                        .disk_first_id = context_.options.disk_first_id,
                        .unnamed_file = {}};  // everything is written, nothing is only checked
    // Keep the disk reserve free for running workspaces, however much a few bytes unpack to.
    options.limits.check = [this] {
      require_room(context_.options, "cannot import more of the archive");
    };
    state_db::WorkspaceTable table(context_.store);
    try {
      read_archive(std::move(source), options, incoming);
      id = incoming.id();
      lowered = incoming.lowered();
      const auto row = table.get(id);
      const auto taken = integrity_.take(row.id, row.layer);
      base::sync_file_system(context_.options.store);
      context_.store.transaction([&] {
        incoming.add_snapshots();
        integrity_.keep(row, taken);
      });
      import_rows.pass();
      // If the daemon dies after this point, its next start completes the import.
      remove_incoming_mark(context_, row.layer);
      import_files.pass();
      table.set_ready(id);
    } catch (Error& error) {
      incoming.let_go();
      if (incoming.id()) abandon(context_, table.get(incoming.id()), error.message());
      collect_layers(context_);
      // Corrupt data from a client is invalid input, not damage in this store.
      if (error.code() == Code::corrupted) {
        throw Error(Code::invalid_argument, error.message(), "export it again, or copy it again");
      }
      throw;
    }
    import_outcome.pass();
    keep_about(context_, table.get(id));
  }
  base::log(base::LogLevel::info, "workspace.imported", {{"ws", id}});
  Caller owner = caller;  // the import route names no workspace; the caller owns this one
  owner.route = Right::read;
  auto view = views_.show(owner, id.str());
  if (!lowered.empty()) view.notice = "its limits were lowered: " + lowered;
  return view;
}

// Each import occupies a thread while it waits for its client: limit one user's share.
std::shared_ptr<void> Imports::count(uint32_t uid) {
  const std::lock_guard lock(mutex_);
  if (uid != 0 && running_[uid] >= kMostOfOneUser) {
    throw Error(Code::conflict, std::to_string(kMostOfOneUser) + " of your imports are running",
                "wait until one of them ends");
  }
  running_[uid] += 1;
  return {nullptr, [this, uid](void*) {
            const std::lock_guard again(mutex_);
            if (--running_[uid] == 0) running_.erase(uid);
          }};
}

Imports::Import Imports::begin(const Caller& caller, const std::string& name) {
  if (!name.empty()) {
    check_workspace_name(name);
    if (state_db::WorkspaceTable(context_.store).find_live(caller.uid, name)) {
      throw Error(Code::already_exists, "there is already a workspace '" + name + "'",
                  "choose another name: moorage import FILE --name NAME");
    }
  }
  require_room(context_.options, "cannot import a workspace");
  auto pipe = std::make_shared<base::BytePipe>();
  const auto work = std::make_shared<std::packaged_task<WorkspaceView()>>(
      [this, caller, name, pipe, counted = count(caller.uid)]() mutable {
        Client client(*pipe);
        const std::shared_ptr<void> leaving(nullptr, [&](void*) {  // before anybody sees the result
          pipe->leave();
          counted.reset();
        });
        return take_in(caller, name, [&client] { return client.next(); });
      });
  importers_.submit([work] { (*work)(); });
  return {std::move(pipe), work->get_future().share()};
}

}  // namespace moorage::workspace
