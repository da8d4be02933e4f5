#include "workspace/reconcile.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <set>

#include "backends/envd_client.h"
#include "backends/registry.h"
#include "base/crash_point.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "repo_cache/repo_cache.h"
#include "state_db/store.h"
#include "state_db/store_age.h"
#include "workspace/birth.h"
#include "workspace/lost_work.h"
#include "workspace/upload_note.h"

namespace moorage::workspace {
namespace {

using base::Error;
using base::LogLevel;
using state_db::ExecCategory;
using state_db::ExecState;
using state_db::SandboxState;
using state_db::WorkspaceState;

// Long enough for a client that lost its connection to come back for the end of the output.
constexpr int64_t kDisposableKept_ms = 10 * 60'000;
// A disposable workspace is made for one command; this long it may wait for it.
constexpr std::chrono::minutes kUnusedKept{10};
// At start many wardens may be slow, one after the other; later one has time.
constexpr std::chrono::milliseconds kAskAtStart{1'000};
constexpr std::chrono::milliseconds kAskAgain{10'000};

// One broken thing must not keep the daemon from starting: it is said, and tried again by
// `periodic`.
template <typename Step>
void attempt(const char* event, const std::string& subject, Step step) {
  try {
    step();
  } catch (const Error& error) {
    base::log(LogLevel::error, event, {{"subject", subject}, {"error", error.message()}});
  }
}

// Nothing: a verb is at work on it.
std::optional<base::KeyedMutex::Guard> lock_if_free(Context& context, base::WorkspaceId id) {
  try {
    return context.locks.lock(id.str(), "clean-up", std::chrono::milliseconds(0));
  } catch (const Error& error) {
    if (error.code() == base::Code::conflict) return std::nullopt;
    throw;
  }
}

// The sandbox's view of a mount, taken again through its init. The agent may have mounted something
// else in its place, so the device must be the one that was recorded.
base::Fd reopen_mount(const base::ProcessIdentity& init, const std::string& target,
                      uint64_t device) {
  base::Fd fd = base::open_file("/proc/" + std::to_string(init.pid) + "/root" + target,
                                O_PATH | O_DIRECTORY | O_NOFOLLOW);
  struct stat status {};
  base::check(fstat(fd.get(), &status), "fstat " + target);
  if (status.st_dev != device) {
    throw Error(base::Code::corrupted, target + " of the sandbox is not what was mounted there");
  }
  return fd;
}

// A base tree's row comes after it, so what has none was being written or removed when the daemon
// died, and nobody will ask for it by that name again.
void remove_unfinished_trees(Context& context, base::RepoId repository) {
  const std::string directory =
      context.repos.directory(Repositories::directory(repository)) + "/trees";
  if (!base::path_exists(directory)) return;
  state_db::BaseTrees table(context.store);
  for (const auto& name : base::list_directory(directory)) {
    if (table.find(repository, name)) continue;
    attempt("reconcile.base_tree", directory + "/" + name,
            [&] { base::remove_tree(directory + "/" + name); });
  }
}

}  // namespace

void Reconciler::at_start() {
  settle_repositories();
  for (const auto& row : state_db::Sandboxes(context_.store).not_destroyed()) {
    attempt("reconcile.sandbox", row.id.str(), [&] { reconcile_sandbox(row); });
  }
  // Those whose sandbox is gone for good: their journals still have the truth.
  for (const auto& exec : state_db::Execs(context_.store).running()) {
    if (active_.by_sandbox(exec.request.sandbox)) continue;
    attempt("reconcile.exec", exec.id.str(), [&] {
      watcher_.settle_exec(exec, ExecCategory::lost,
                           "its sandbox was gone when the daemon came back");
    });
  }
  attempt("reconcile.lost_work", "", [&] { keep_lost_work(context_); });
  attempt("reconcile.strangers", "", [&] { remove_strangers(); });
  settle_workspaces();
  finish_takeovers();
  attempt("reconcile.uploads", "", [&] { sweep_uploads(workspaces_, context_.options.uploads()); });
}

void Reconciler::settle_repositories() {
  using state_db::RepositoryState;
  for (const auto& row : state_db::Repositories(context_.store).list()) {
    if (row.state == RepositoryState::evicted) {
      // Most have nothing left on disk.
      attempt("reconcile.evicted", row.id.str(), [&] { remove_evicted(context_, row.id); });
    } else {
      remove_unfinished_trees(context_, row.id);
    }
    if (row.state != RepositoryState::cloning && row.state != RepositoryState::fetching) continue;
    const bool there = context_.repos.exists(Repositories::directory(row.id));
    context_.store.move(row.id, row.state, there ? RepositoryState::ready : RepositoryState::broken,
                        "interrupted; the next use goes on");
  }
}

void Reconciler::reconcile_sandbox(const state_db::SandboxRow& row) {
  const bool may_live = row.state == SandboxState::running || row.state == SandboxState::frozen;
  if (may_live && adopt(row)) return;
  workspaces_.clear_sandbox(row, may_live ? "its sandbox died while the daemon was away"
                                          : "the daemon was stopped in the middle");
}

bool Reconciler::adopt(const state_db::SandboxRow& row) {
  if (row.boot_id != base::boot_id() || !base::process_alive(row.init)) return false;
  auto& backend = context_.backends.get(row.backend);
  auto status = backend.inspect(row.name);
  if (status.state == backends::SandboxState::frozen) {
    backend.thaw(row.name);  // a freeze that was cut must not last
    status = backend.inspect(row.name);
  }
  if (status.state != backends::SandboxState::running || status.init != row.init) return false;

  auto running = std::make_shared<Running>();
  running->sandbox = row.id;
  running->workspace = row.workspace;
  running->name = row.name;
  running->backend = &backend;
  running->init = row.init;
  try {
    running->endpoint = backend.endpoint(row.name);
    Mounted mounted;
    mounted.mounts.tree = reopen_mount(row.init, "/workspace", row.tree_device);
    mounted.mounts.home = reopen_mount(row.init, "/home/user", row.home_device);
    mounted.mounts.tree_device = row.tree_device;
    mounted.mounts.home_device = row.home_device;
    mounted.user_host_id = context_.options.first_host_id(row.slot.value()) + kUser;
    running->mounted = active_.share(row.workspace, std::move(mounted));
  } catch (const Error& error) {
    base::log(LogLevel::warning, "sandbox.not_adopted",
              {{"sb", row.id}, {"error", error.message()}});
    return false;
  }
  if (row.state == SandboxState::frozen) {
    context_.store.move(row.id, SandboxState::frozen, SandboxState::running, "thawed at start");
  }
  active_.set_running(running);
  attempt("reconcile.sandbox", row.id.str(), [&] { watcher_.watch_sandbox(*running); });
  for (const auto& exec : state_db::Execs(context_.store).running(row.id)) {
    attempt("reconcile.exec", exec.id.str(), [&] { adopt_exec(exec, *running); });
  }
  attempt("reconcile.warden", row.id.str(), [&] { ask_warden(*running, kAskAtStart); });
  base::log(LogLevel::info, "sandbox.adopted",
            {{"ws", row.workspace},
             {"sb", row.id},
             {"pid", row.init.pid},
             {"release", status.release.empty() ? "-" : status.release}});
  return true;
}

void Reconciler::adopt_exec(const state_db::ExecRow& exec, const Running& running) {
  const std::string journal =
      journal_directory(context_.options, exec.request.workspace, exec.id) + "/output";
  if (!base::path_exists(journal)) {
    return watcher_.settle_exec(exec, ExecCategory::not_started,
                                "it was never started: the daemon was stopped before");
  }
  // Whether its files were to be synced at the end is not in the row: syncing too much is only
  // slow.
  const auto group = running.backend->exec_group(running.name, exec.id.str());
  watcher_.watch_exec(exec, true, count_refusals(running, *group));
  if (exec.cancel_requested) watcher_.kill_after(exec.id, std::chrono::milliseconds(0));
  unconfirmed_[exec.request.sandbox].push_back(exec);
}

// An adopted exec that the warden does not know has its end in the journal, or never reached it.
void Reconciler::ask_warden(const Running& running, std::chrono::milliseconds deadline) {
  const auto found = unconfirmed_.find(running.sandbox);
  if (found == unconfirmed_.end()) return;
  std::set<std::string> known;
  for (const auto& process : backends::EnvdClient(running.endpoint).list(deadline)) {
    known.insert(process.tag);
  }
  for (const auto& exec : found->second) {
    if (known.contains(exec.id.str())) continue;
    watcher_.settle_exec(exec, ExecCategory::not_started,
                         "it was never started: the daemon was stopped before");
  }
  unconfirmed_.erase(found);
}

void Reconciler::ask_again() {
  const auto waiting = unconfirmed_;
  for (const auto& [sandbox, execs] : waiting) {
    if (const auto running = active_.by_sandbox(sandbox)) {
      attempt("reconcile.warden", sandbox.str(), [&] { ask_warden(*running, kAskAgain); });
    } else {
      unconfirmed_.erase(sandbox);  // its execs were settled with it
    }
  }
}

// Sandboxes that carry our store's name but have no row: forgotten by an older state.
void Reconciler::remove_strangers() {
  std::set<std::string> names;
  std::set<std::string> sandboxes;
  for (const auto& row : state_db::Sandboxes(context_.store).not_destroyed()) {
    names.insert(row.name);
    sandboxes.insert(row.id.str());
  }
  for (auto* backend : context_.backends.all()) {
    if (!backend->capabilities().usable) continue;
    for (const auto& name : backend->list()) {
      if (names.contains(name)) continue;
      base::log(LogLevel::warning, "reconcile.stranger", {base::Field("name", name)});
      attempt("reconcile.stranger", name, [&] { backend->destroy(name); });
    }
  }
  const std::string directory = context_.options.store + "/sandboxes";
  if (!base::path_exists(directory)) return;
  for (const auto& name : base::list_directory(directory)) {
    if (!base::SandboxId::parse(name) || sandboxes.contains(name)) continue;
    base::log(LogLevel::warning, "reconcile.unknown_directory", {{"path", directory + "/" + name}});
    attempt("reconcile.unknown_directory", name,
            [&] { base::remove_tree(directory + "/" + name); });
  }
}

void Reconciler::settle_workspaces() {
  state_db::Workspaces table(context_.store);
  for (const auto& row : table.list()) {
    attempt("reconcile.workspace", row.id.str(), [&] {
      if (row.state == WorkspaceState::ready) return mend_birth(context_, row);
      settle(row, "the daemon was stopped while it was being created");
    });
  }
  purge_due();
}

// A verb that could not even write that it failed leaves its row in between. The age keeps off
// those whose verb is about to take the lock.
void Reconciler::settle_cut() {
  constexpr int64_t kNoLongerYoung_ms = 10'000;
  state_db::Workspaces table(context_.store);
  for (const auto state : {WorkspaceState::creating, WorkspaceState::deleting}) {
    state_db::WorkspaceQuery query;
    query.state = state;
    for (const auto& row : table.list(query)) {
      if (context_.store.clock().wall_ms() - row.created_wall_ms < kNoLongerYoung_ms) continue;
      attempt("reconcile.workspace", row.id.str(), [&] {
        if (const auto guard = lock_if_free(context_, row.id)) {
          settle(table.get(row.id), "it could not be finished");
        }
      });
    }
  }
}

void Reconciler::settle(const state_db::WorkspaceRow& row, const std::string& reason) {
  if (row.state == WorkspaceState::creating) {
    // Finished where it can be: the row may come from a copy of the database that was made in the
    // middle of the create, and the layer then has all that was done since.
    if (is_born(context_, row)) return finish_birth(row);
    workspaces_.abandon(row, reason);
  }
  if (row.state == WorkspaceState::failed) context_.storage.remove_layer(row.layer);
  if (row.state == WorkspaceState::deleting) {
    workspaces_.stop_sandbox(row, "being deleted");
    state_db::Workspaces(context_.store).finish_delete(row.id);
  }
}

void Reconciler::finish_birth(const state_db::WorkspaceRow& row) {
  state_db::Workspaces table(context_.store);
  table.set_ready(row.id);
  mend_birth(context_, table.get(row.id));
}

// A take-over that died between the new generation and the end of what ran under the old one.
void Reconciler::finish_takeovers() {
  for (const auto id : workspaces_.leases().being_cleared()) {
    attempt("reconcile.takeover", id.str(), [&] {
      if (const auto guard = lock_if_free(context_, id)) {
        workspaces_.finish_takeover(state_db::Workspaces(context_.store).get(id));
      }
    });
  }
}

void Reconciler::purge_due() {
  state_db::StoreAge(context_.store).save();
  state_db::Workspaces table(context_.store);
  const auto due = table.purgeable(
      {.usual_ms = context_.options.undelete_window_ms, .disposable_ms = kDisposableKept_ms});
  for (const auto& row : due) {
    attempt("reconcile.purge", row.id.str(), [&] { purge(row); });
  }
}

// A person may be purging it at this moment, or have brought it back since the list was made.
// Deleted again since then, it has its whole window before it.
void Reconciler::purge(const state_db::WorkspaceRow& due) {
  const auto guard = context_.locks.lock(due.id.str(), "purge");
  state_db::Workspaces table(context_.store);
  const auto row = table.get(due.id);
  if (row.purged_wall_ms || row.state != WorkspaceState::deleted ||
      row.deleted_age_ms != due.deleted_age_ms) {
    return;
  }
  table.begin_purge(row.id);
  workspaces_.finish_purge(table.get(row.id));
}

// What a burial or a verb could not finish: the disk was full, or a process would not die.
void Reconciler::clear_dead() {
  state_db::Sandboxes table(context_.store);
  const auto lives = [](const state_db::SandboxRow& row) {
    return (row.state == SandboxState::running || row.state == SandboxState::frozen) &&
           base::process_alive(row.init);
  };
  for (const auto& row : table.not_destroyed()) {
    if (lives(row)) continue;
    attempt("reconcile.sandbox", row.id.str(), [&] {
      const auto guard = lock_if_free(context_, row.workspace);
      if (!guard) return;
      const auto current = table.get(row.id);
      if (current.state == SandboxState::destroyed || lives(current)) return;
      workspaces_.clear_sandbox(current, "its sandbox died");
    });
  }
}

// Disposable workspaces whose command has ended, and those that none came for: the daemon died in
// between, or the removal failed.
void Reconciler::remove_used() {
  state_db::Workspaces table(context_.store);
  state_db::Execs execs(context_.store);
  state_db::WorkspaceQuery ready;
  ready.state = WorkspaceState::ready;
  const auto now = std::chrono::steady_clock::now();
  decltype(unused_) unused;
  for (const auto& row : table.list(ready)) {
    if (!row.disposable) continue;
    state_db::ExecQuery last;
    last.workspace = row.id;
    last.limit = 1;
    const bool used = !execs.list(last).empty();
    last.state = ExecState::running;
    if (used && !execs.list(last).empty()) continue;
    if (!used) {
      const auto known = unused_.find(row.id);
      const auto since = known == unused_.end() ? now : known->second;
      unused[row.id] = since;
      if (now - since < kUnusedKept) continue;
    }
    attempt("reconcile.disposable", row.id.str(),
            [&] { workspaces_.remove(daemon_for(row.owner_uid), row.id.str()); });
  }
  unused_ = std::move(unused);
}

void Reconciler::periodic() {
  attempt("reconcile.warden", "", [&] { ask_again(); });
  attempt("reconcile.sandboxes", "", [&] { clear_dead(); });
  attempt("reconcile.disposables", "", [&] { remove_used(); });
  attempt("reconcile.workspaces", "", [&] { settle_cut(); });
  finish_takeovers();
  attempt("reconcile.purge", "", [&] { purge_due(); });
  attempt("reconcile.seals", "", [&] { workspaces_.seal_unsealed(); });
}

}  // namespace moorage::workspace
