#include "workspace/verbs/workspaces.h"

#include <map>

#include "backends/registry.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "repo_cache/repo_cache.h"
#include "state_db/read_transaction.h"
#include "state_db/store.h"
#include "state_db/tables/archives.h"
#include "state_db/tables/integrity.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/snapshots.h"
#include "workspace/archive/store.h"
#include "workspace/chain/initial_files.h"
#include "workspace/chain/unused_layers.h"
#include "workspace/changes/stable_read.h"
#include "workspace/context/disk_use.h"
#include "workspace/upkeep/idle_stop.h"
#include "workspace/verbs/busy.h"

namespace moorage::workspace {
namespace {

using base::Code;
using base::Error;
using state_db::WorkspaceState;

// One user gets at most one thread of each.
constexpr size_t kSealers = 2;
constexpr size_t kDisposers = 2;
constexpr size_t kMostDisposals = 100'000;  // waiting, per user
constexpr std::chrono::seconds kTryAgain{1};
// Files of a stopped workspace are read one by one; do not compare it again for each.
constexpr std::chrono::milliseconds kComparedFor{10'000};

void request_seal(Context& context, base::SingleFlight& sealing, base::WorkspaceId id) {
  try {
    const auto row = state_db::WorkspaceTable(context.store).find(id);
    if (row) sealing.request(id.value, row->owner_uid);
  } catch (const Error& error) {  // its next stop or the reconciler (seal_unsealed) retries
    base::log(base::LogLevel::warning, "workspace.not_sealed",
              {{"ws", id}, {"error", error.message()}});
  }
}

// In commits; empty: unknown.
std::optional<uint64_t> behind(const repo_cache::RepoCache& repos, const WorkspaceView& view) {
  const auto& row = view.row;
  if (row.base_ref.empty() || !view.repo.scope.empty()) return std::nullopt;
  try {
    const int behind = repos.behind(repo_directory(row.repository), row.base_commit, row.base_ref);
    if (behind >= 0) return static_cast<uint64_t>(behind);
  } catch (const Error&) {
    // The mirror is being rebuilt, so the number is unknown for now.
  }
  return std::nullopt;
}

}  // namespace

Workspaces::Workspaces(Context& context, Repositories& repositories, ExecWatcher& watcher,
                       IntegrityCheck& integrity, BringBack& bring_back, const Replica& replica)
    : context_(context),
      repositories_(repositories),
      watcher_(watcher),
      starts_(context, watcher),
      changes_(context.repos),
      measurer_(context, changes_),
      waiters_([this](base::ExecId id) {
        return state_db::ExecTable(context_.store).get(id).state != state_db::ExecState::running;
      }),
      pre_stop_(context, watcher),
      leases_(context.store),
      integrity_(integrity),
      bring_back_(bring_back),
      replica_(replica),
      sealing_(
          kSealers, [this](int64_t key) { seal_at_rest({key}); }, base::SingleFlight::Fair{}),
      disposals_(kDisposers, kMostDisposals),
      listens_(watcher.listen(*this)) {
  context_.live.on_rest([this](base::WorkspaceId id) { request_seal(context_, sealing_, id); });
}

Workspaces::~Workspaces() { context_.live.on_rest({}); }

state_db::WorkspaceRow Workspaces::find(const Caller& caller, const std::string& name,
                                        Right right) {
  return find_workspace(context_.store, caller, name, right);
}

state_db::WorkspaceRow Workspaces::find_with_deleted(const Caller& caller, const std::string& name,
                                                     Right right) {
  return workspace::find_with_deleted(context_.store, caller, name, right);
}

void Workspaces::measure(const state_db::WorkspaceRow& row, base::ExecId ended) {
  if (row.state == WorkspaceState::ready) measurer_.refresh(row.id, ended);
}

void Workspaces::complete(WorkspaceView& view) {
  view.lease = held_lease(view.row.id);
  view.behind = behind(context_.repos, view);
  view.disk_quota = context_.storage.quota().name();
  view.off_host = replica_.view(view.row.id, view.integrity.seal);
  view.policy = effective_policy(view.row.policy, context_.options);
  if (view.sandbox && view.sandbox->state == state_db::SandboxState::running)
    view.rest = look_at_rest(view, context_);
  if (view.doing) {
    if (const auto progress = watcher_.progress(view.doing->id))
      view.last_output_ms = progress->last_output_ms;
  }
}

// Each row is found by index, so the cost of a page depends only on its length. Its rows are from
// one moment, and reading them does not wait for commits.
WorkspacePage Workspaces::list(const Caller& caller, const PageRequest& wanted) {
  state_db::WorkspaceQuery query;
  query.seen_by = caller.viewer();
  query.with_deleted = wanted.with_deleted;
  // Failed ones are reported by their create and by the events.
  query.with_failed = wanted.with_deleted;
  query.after = wanted.after;
  query.limit = wanted.limit + 1;
  WorkspacePage page;
  {
    const state_db::ReadTransaction moment(context_.store);
    state_db::WorkspaceTable table(context_.store);
    auto rows = table.list(query);
    page.more = rows.size() > wanted.limit;
    if (page.more) rows.pop_back();
    page.used_bytes = table.disk_seen_by(query.seen_by).bytes;
    std::map<base::RepoId, state_db::RepositoryRow> repos;
    for (auto& row : rows) {
      const auto [repo, is_new] = repos.try_emplace(row.repository);
      if (is_new) repo->second = state_db::RepositoryTable(context_.store).get(row.repository);
      page.views.push_back(outline(std::move(row), repo->second));
    }
  }
  for (WorkspaceView& view : page.views) complete(view);
  return page;
}

std::optional<LeaseView> Workspaces::held_lease(base::WorkspaceId id) {
  auto lease = leases_.look(id);
  if (lease && !lease->row.held()) lease.reset();
  return lease;
}

WorkspaceView Workspaces::outline(state_db::WorkspaceRow row, state_db::RepositoryRow repo) {
  WorkspaceView view;
  view.row = std::move(row);
  view.repo = std::move(repo);
  const auto id = view.row.id;
  view.integrity = state_db::IntegrityTable(context_.store).get(id);
  view.sandbox = state_db::SandboxTable(context_.store).live(id);
  if (view.sandbox) {
    auto running = state_db::ExecTable(context_.store).running(view.sandbox->id);
    if (!running.empty()) view.doing = std::move(running.back());
  }
  return view;
}

WorkspaceView Workspaces::view(const state_db::WorkspaceRow& row) {
  auto view = outline(row, state_db::RepositoryTable(context_.store).get(row.repository));
  complete(view);
  view.archive = state_db::ArchiveTable(context_.store).find(row.id);
  if (view.archive) view.archive_file = ArchiveStore(context_).path(*view.archive);
  view.base_tree = state_db::BaseTreeTable(context_.store).find(row.repository, row.base_commit);
  if (const auto running = context_.live.running(row.id)) {
    view.sandbox_status = running->backend->inspect(running->name);
  }
  return view;
}

// The state as its verb left it: a repeat of that verb, whose answer was lost when the daemon died,
// may come after the workspace was deleted.
WorkspaceView Workspaces::look(base::WorkspaceId id) {
  auto row = state_db::WorkspaceTable(context_.store).get(id);
  if (row.state == WorkspaceState::ready) measurer_.refresh_later(id, {});
  if (row.state == WorkspaceState::deleting || row.state == WorkspaceState::deleted) {
    const auto archive = state_db::ArchiveTable(context_.store).find(id);
    row.state = archive && archive->whole ? WorkspaceState::archived : WorkspaceState::ready;
    row.reason.clear();
    row.deleted_wall_ms.reset();
  }
  return view(row);
}

WorkspaceView Workspaces::show(const Caller& caller, const std::string& name) {
  const auto row = find(caller, name, Right::read);
  if (row.state == WorkspaceState::ready) {
    try {
      integrity_.look_for_loss(row);
      measurer_.refresh(row.id);
    } catch (const Error& error) {
      if (error.code() != Code::corrupted) throw;  // the row now records the loss and shows it
    }
  }
  return view(state_db::WorkspaceTable(context_.store).get(row.id));
}

ChangeList Workspaces::status(const Caller& caller, const std::string& name) {
  return look_at_changes(context_, {find(caller, name, Right::read).id},
                         [&](const auto& sources) { return changes_.status(sources[0]); });
}

std::string Workspaces::patch(const Caller& caller, const std::string& name) {
  return look_at_changes(context_, {find(caller, name, Right::read).id},
                         [&](const auto& sources) { return changes_.patch(sources[0]); });
}

std::vector<DiffStat> Workspaces::diff_stat(const Caller& caller, const std::string& name) {
  return look_at_changes(context_, {find(caller, name, Right::read).id},
                         [&](const auto& sources) { return changes_.stat(sources[0]); });
}

void Workspaces::exec_ended(const state_db::ExecRow& exec) {
  waiters_.exec_ended(exec.id);
  try {
    const auto row = state_db::WorkspaceTable(context_.store).find(exec.request.workspace);
    if (!row || row->state != WorkspaceState::ready) return;
    if (row->disposable && exec.request.hook.empty()) {
      dispose_later(*row);
    } else {
      measurer_.refresh_later(row->id, exec.id);
    }
  } catch (const std::exception& error) {
    base::log(base::LogLevel::warning, "workspace.after_exec",
              {{"ws", exec.request.workspace}, {"ex", exec.id}, {"error", error.what()}});
  }
}

void Workspaces::dispose_later(const state_db::WorkspaceRow& row) {
  disposals_.submit({.user = row.owner_uid}, [this, row] { remove_disposable(row); });
}

// Purges later, because its output may still be wanted. While other commands of it run, it does
// nothing: the end of the last one leads here again.
void Workspaces::remove_disposable(const state_db::WorkspaceRow& row) {
  const auto again = [&](const Waiting& waiting) {
    waiters_.resume_later(waiting, [this, row] { dispose_later(row); });
  };
  try {
    if (!commands_of(context_.store, row.id).empty()) return;
    remove(daemon_for(row.owner_uid), row.id.str(), {});
  } catch (const Waiting& waiting) {
    again(waiting);
  } catch (const Error& error) {
    if (error.code() == Code::conflict)  // a verb is running, or a command has just begun
      return again(Waiting({}, "", Waiting::Clock::now() + kTryAgain));
    base::log(base::LogLevel::warning, "workspace.not_disposed",
              {{"ws", row.id}, {"error", error.message()}});
  }
}

layers::ActiveMounts Workspaces::mount_for(const state_db::WorkspaceRow& row,
                                           const LiveSandbox& running) {
  return mount_layers(chain_at(row), running.mounted->user_host_id - layers::kUser);
}

FilesLease Workspaces::files(const Caller& caller, const std::string& name, Right right) {
  const auto row = find(caller, name, right);
  if (asks_lease(right)) leases_.check(caller, row);
  auto use = context_.live.use(row.id);
  auto mounted = mounts(row, right);
  const auto& [tree, home, tree_device, home_device] = mounted->mounts;
  const std::vector<layers::InsideRoot> roots{{"/workspace", tree.get()},
                                              {"/home/user", home.get()}};
  const layers::UploadNotes notes{context_.options.uploads(), row.id.str()};
  return {mounted, layers::TreeFiles(roots, mounted->user_host_id, notes), row, std::move(use)};
}

FileChange Workspaces::change_files(const Caller& caller, const state_db::WorkspaceRow& row) {
  auto alone = context_.locks.lock(row.id.str() + " files", "change of its files");
  return {std::move(alone), leases_.write(caller, row)};
}

std::shared_ptr<const SharedMounts> Workspaces::mounts(const state_db::WorkspaceRow& row,
                                                       Right right) {
  if (const auto running = context_.live.running(row.id)) return running->mounted;
  const auto guard = context_.locks.lock(row.id.str(), "file access");
  if (const auto running = context_.live.running(row.id)) return running->mounted;
  layers::Chain layers;
  const auto mount = [&] {
    const uint32_t first = context_.options.disk_first_id;  // no sandbox: use the ids on disk
    layers = chain(row, Compare::sometimes);
    // No agent writes through this mount, and it serves to remove files, so it may use root's room.
    return SharedMounts{mount_layers(layers, first, layers::MountRoom::roots),
                        first + layers::kUser, row.owner_uid};
  };
  auto mounted = context_.live.at_rest(row.id, mount, context_.options.transfer_patience);
  // Before the first byte: a seal that exists when we die must be true.
  if (asks_lease(right)) {
    state_db::IntegrityTable table(context_.store);
    if (table.get(row.id).state == state_db::IntegrityState::unknown) {
      integrity_.begin_writing(row.id);
    } else {
      table.clear_seal(row.id);
    }
  }
  return mounted;
}

// Its last mount was closed, or was found closed. A verb that holds the lock seals it itself or
// leaves it running.
void Workspaces::seal_at_rest(base::WorkspaceId id) {
  try {
    const auto guard = context_.locks.lock(id.str(), "seal", std::chrono::milliseconds(0));
    const auto row = state_db::WorkspaceTable(context_.store).find(id);
    if (!row || row->state != WorkspaceState::ready || context_.live.mounted(id)) return;
    const auto known = state_db::IntegrityTable(context_.store).get(id);
    using state_db::IntegrityState;
    // Files may have been written to a workspace that never ran.
    const bool is_new = known.state == IntegrityState::unknown;
    const bool seals = known.seal.empty() && (is_new || known.state == IntegrityState::intact);
    if (!seals || state_db::SandboxTable(context_.store).live(id)) return;
    const auto taken = integrity_.take(*row);
    if (!taken.seal) return;
    // Sync first: otherwise a power cut after the seal would look like a change from outside.
    base::sync_file_system(context_.storage.layer_path(row->layer));
    context_.store.transaction([&] {
      state_db::IntegrityTable table(context_.store);
      if (is_new) table.set(id, IntegrityState::intact);
      table.set_seal(id, taken.seal->hash);
    });
  } catch (const Error& error) {
    if (error.code() == Code::conflict) return;  // busy: its verb or the reconciler does it
    base::log(base::LogLevel::warning, "workspace.not_sealed",
              {{"ws", id}, {"error", error.what()}});
  }
}

void Workspaces::seal_unsealed() {
  for (const auto id : state_db::IntegrityTable(context_.store).unsealed_at_rest())
    request_seal(context_, sealing_, id);
}

void Workspaces::accept(const state_db::WorkspaceRow& row) {
  const auto guard = context_.locks.lock(row.id.str(), "accept");
  const bool rests =
      !context_.live.mounted(row.id) && !state_db::SandboxTable(context_.store).live(row.id);
  const auto taken = rests ? integrity_.take(row) : IntegrityCheck::Taken{};
  base::sync_file_system(context_.options.store);
  context_.store.transaction([&] { integrity_.keep(row, taken); });
}

// On a full disk it uses the reserve, because a workspace must start for its files to be removed.
// If the reserve is used up as well, it mounts in `last`.
layers::ActiveMounts Workspaces::mount_layers(const layers::Chain& layers, uint32_t first_host_id,
                                              layers::MountRoom last) {
  // Set the limit here, because every writer passes here: changed limits then apply.
  context_.storage.quota().limit(layers.writable, context_.storage.layer_path(layers.writable),
                                 layers.limit);
  try {
    return context_.storage.mount(layers, first_host_id);
  } catch (const Error& error) {
    if (error.code() != Code::resource_exhausted) throw;
    if (!context_.store.give_room() && last == layers::MountRoom::everybodys) throw;
    return context_.storage.mount(layers, first_host_id, last);
  }
}

void Workspaces::sync_active() {
  state_db::SnapshotTable snapshots(context_.store);
  const auto unsynced = snapshots.not_durable();
  if (!context_.live.all().empty() || !unsynced.empty())
    sync_all_initial_files(context_, [&] { base::sync_file_system(context_.options.store); });
  if (!unsynced.empty()) {
    context_.store.transaction([&] {
      for (const auto& row : unsynced) snapshots.set_durable(row.id);
    });
  }
  repositories_.sync_base_trees();
}

layers::Chain Workspaces::chain(const state_db::WorkspaceRow& row, Compare compare) {
  const auto current = settled(row);
  require_ready(current);
  if (hooks_.flatten) hooks_.flatten(current);
  integrity_.look(current,
                  compare == Compare::always ? std::chrono::milliseconds(0) : kComparedFor);
  repair_initial_files(context_, current);
  return chain_at(current);
}

layers::Chain Workspaces::chain_at(const state_db::WorkspaceRow& row) {
  layers::Chain chain;
  chain.writable = row.layer;
  chain.limit = DiskUse(context_).limit_of_writable(row);
  for (const auto& layer : state_db::LayerTable(context_.store).chain(row.layer)) {
    if (layer.id != row.layer) chain.frozen.push_back(layer.id);
  }
  const auto base = base_tree_of(row);
  chain.base_tree = base.tree;
  chain.deltas = base.deltas;
  chain.base_in_use = base.in_use;
  chain.image_home = ensure_home_skeleton(context_.options);
  return chain;
}

state_db::WorkspaceRow Workspaces::settled(const state_db::WorkspaceRow& row) {
  if (const auto taking = state_db::SnapshotTable(context_.store).taking(row.id))
    settle_snapshot(context_, *taking);
  return state_db::WorkspaceTable(context_.store).get(row.id);
}

// A mirror that lost the commit is updated from upstream once, which rebuilds a broken one.
repo_cache::BaseTreePlaces Workspaces::base_tree_of(const state_db::WorkspaceRow& row) {
  const auto is_loss = [](const Error& error) {
    return error.code() == Code::corrupted || error.code() == Code::not_found;
  };
  try {
    return repositories_.ensure_base_tree(row.repository, row.base_commit, {});
  } catch (const Error& error) {
    if (!is_loss(error)) throw;
  }
  try {
    repositories_.fetch(row.repository, {});
    return repositories_.ensure_base_tree(row.repository, row.base_commit, {});
  } catch (const Error& error) {
    if (!is_loss(error) && error.code() != Code::unsupported && error.code() != Code::unavailable)
      throw;
    integrity_.lose_base(row, error);
  }
}

}  // namespace moorage::workspace
