// The part of the reconciler (reconcile.h) that settles sandboxes and their execs.
#include <linux/magic.h>
#include <sys/vfs.h>

#include <algorithm>
#include <set>

#include "backends/registry.h"
#include "base/crash_point.h"
#include "base/error.h"
#include "base/os/files.h"
#include "layers/sandbox_mounts.h"
#include "state_db/store.h"
#include "state_db/tables/snapshots.h"
#include "workspace/context/try_step.h"
#include "workspace/exec/ask_about.h"
#include "workspace/exec/evidence.h"
#include "workspace/recovery/reconcile.h"
#include "workspace/recovery/sandbox_ids.h"
#include "workspace/recovery/seen.h"

namespace moorage::workspace {
namespace {

using base::LogLevel;
using state_db::ExecCategory;
using state_db::ExecState;
using state_db::SandboxState;

MOORAGE_CRASH_POINT(after_adoption, "recovery.after_adoption");
MOORAGE_CRASH_POINT(after_sandbox, "recovery.after_sandbox");
MOORAGE_CRASH_POINT(before_exec, "recovery.before_exec");
MOORAGE_CRASH_POINT(after_execs, "recovery.after_execs");

constexpr size_t kAdopters = 8;
constexpr std::chrono::milliseconds kWardenPatience{5'000};

bool lives(const state_db::SandboxRow& row) {
  return decide(row.state, see(row)) == state_db::Repair::adopt;
}

bool is_overlay(const base::Fd& mount) {
  struct statfs status {};
  base::check(fstatfs(mount.get(), &status), "inspect a mount");
  return status.f_type == OVERLAYFS_SUPER_MAGIC;
}

// Accepts the recorded mounts, or those that a snapshot was putting in their place. Refuses others:
// the agent may have mounted something else there.
layers::ActiveMounts adopted_mounts(state_db::Store& store, const state_db::SandboxRow& row) {
  layers::ActiveMounts mounts = layers::copy_sandbox_mounts(row.init);
  const bool tree_is_old = mounts.tree_device == row.tree_device;
  const bool home_is_old = mounts.home_device == row.home_device;
  if (tree_is_old && home_is_old) return mounts;
  const auto taking = state_db::SnapshotTable(store).taking(row.workspace);
  const bool exchanging = taking && taking->way == state_db::SnapshotWay::restack;
  if (exchanging && !tree_is_old && !home_is_old && is_overlay(mounts.tree) &&
      is_overlay(mounts.home)) {
    return mounts;
  }
  throw Error(base::Code::corrupted, "the mounts in the sandbox are not those that Moorage made");
}

}  // namespace

// Several at a time: each takes a few milliseconds in the kernel. The pool ends when all are
// checked. A dead one is only marked lost, because ending its remaining processes may take long.
void Reconciler::adopt_sandboxes() {
  record_ids(context_);
  const auto rows = state_db::SandboxTable(context_.store).not_destroyed();
  base::ThreadPool pool(kAdopters, rows.size() + 1);
  for (const auto& row : rows) {
    pool.submit(
        [this, &row] { try_step("reconcile.sandbox", row.id.str(), [&] { adopt_or_note(row); }); });
  }
}

void Reconciler::adopt_or_note(const state_db::SandboxRow& row) {
  if (lives(row) && adopt(row)) return;
  if (relink(row)) return;
  const bool ran = row.state == SandboxState::running || row.state == SandboxState::frozen;
  sandboxes_.note_lost(row, ran ? "its sandbox died while the daemon was down"
                                : "the daemon stopped before this was finished");
}

bool Reconciler::adopt(const state_db::SandboxRow& row) {
  auto& backend = context_.backends.get(row.backend);
  auto status = backend.inspect(row.name);
  if (status.state == backends::SandboxState::frozen) {
    backend.thaw(row.name);  // end an interrupted freeze
    status = backend.inspect(row.name);
  }
  if (status.state != backends::SandboxState::running || status.init != row.init) return false;

  auto running = std::make_shared<LiveSandbox>();
  running->sandbox = row.id;
  running->workspace = row.workspace;
  running->owner = state_db::WorkspaceTable(context_.store).get(row.workspace).owner_uid;
  running->name = row.name;
  running->backend = &backend;
  running->remote = backend.known_capabilities().remote;
  running->init = row.init;
  try {
    running->endpoint = backend.endpoint(row.name);
    SharedMounts mounted;
    mounted.mounts = adopted_mounts(context_.store, row);
    mounted.user_host_id = row.first_host_id + layers::kUser;
    mounted.owner = running->owner;
    running->mounted = context_.live.share(row.workspace, std::move(mounted));
  } catch (const Error& error) {
    base::log(LogLevel::warning, "sandbox.not_adopted",
              {{"sb", row.id}, {"error", error.message()}});
    return false;
  }
  if (row.state == SandboxState::frozen) {
    context_.store.move(row.id, SandboxState::frozen, SandboxState::running, "thawed at start");
  }
  context_.live.set_running(running);
  try_step("reconcile.sandbox", row.id.str(), [&] { sandboxes_.watch(*running); });
  for (const auto& exec : state_db::ExecTable(context_.store).running(row.id)) {
    try_step("reconcile.exec", exec.id.str(), [&] { adopt_exec(exec, *running); });
  }
  after_adoption.pass();
  ask_wardens();
  base::log(LogLevel::info, "sandbox.adopted",
            {{"ws", row.workspace},
             {"sb", row.id},
             {"pid", row.init.pid},
             {"release", status.release.empty() ? "-" : status.release}});
  return true;
}

// One on another machine, whose process here died while the daemon was down.
bool Reconciler::relink(const state_db::SandboxRow& row) {
  using Relinked = Sandboxes::Relinked;
  const Relinked relinked = sandboxes_.relink(row);
  if (relinked == Relinked::lost) return false;
  if (relinked == Relinked::later) return true;  // a later round tries again
  const auto running = context_.live.by_sandbox(row.id);
  for (const auto& exec : state_db::ExecTable(context_.store).running(row.id)) {
    try_step("reconcile.exec", exec.id.str(), [&] { adopt_exec(exec, *running); });
  }
  ask_wardens();
  return true;
}

void Reconciler::adopt_exec(const state_db::ExecRow& exec, const LiveSandbox& running) {
  if (!base::path_exists(journal_path(context_.options, exec.request.workspace, exec.id))) {
    return watcher_.settle_exec(exec, ExecCategory::not_started,
                                "it was never started: the daemon stopped first");
  }
  // The row does not say whether to sync its files at the end: syncing too much is only slow.
  const auto group = running.backend->exec_group(running.name, exec.id.str());
  group->set_frozen(false);  // the daemon may have died during a disk walk
  watcher_.watch_exec(exec, true, count_refusals(running, *group));
  if (exec.cancel_requested) watcher_.kill_after(exec.id, std::chrono::milliseconds(0));
  watcher_.add_unconfirmed(exec, "it was never started: the daemon stopped first");
}

// An exec unknown to the warden has its end in the journal, or never reached the warden.
void Reconciler::ask_warden(const LiveSandbox& running,
                            const std::vector<ExecWatcher::Unconfirmed>& execs) {
  std::vector<base::ExecId> ids;
  for (const auto& [exec, why] : execs) ids.push_back(exec.id);
  const auto seen = ask_about(context_.live, running, ids, kWardenPatience);
  for (size_t n = 0; n < execs.size(); ++n) {
    const auto& [exec, why] = execs[n];
    const state_db::Repair repair = decide(seen[n]);
    if (repair == state_db::Repair::wait) watcher_.add_unconfirmed(exec, why);
    if (repair == state_db::Repair::undo)
      watcher_.settle_exec(exec, ExecCategory::not_started, why);
  }
}

// Nobody waits for the answers: a warden may get no CPU.
void Reconciler::ask_wardens() {
  std::map<base::SandboxId, std::vector<ExecWatcher::Unconfirmed>> unconfirmed;
  for (auto& one : watcher_.take_unconfirmed())
    unconfirmed[one.exec.request.sandbox].push_back(std::move(one));
  for (const auto& [sandbox, of_sandbox] : unconfirmed) {
    const auto running = context_.live.by_sandbox(sandbox);
    if (!running) continue;  // its execs were settled with it
    const auto ask = [this, running, execs = of_sandbox] {
      try {
        ask_warden(*running, execs);
      } catch (const Error&) {
        for (const auto& [exec, why] : execs) watcher_.add_unconfirmed(exec, why);
        throw;
      }
    };
    try {
      askers_.submit([ask, id = sandbox.str()] { try_step("reconcile.warden", id, ask); });
    } catch (const Error& error) {  // no thread: the next round asks
      for (const auto& [exec, why] : of_sandbox) watcher_.add_unconfirmed(exec, why);
      base::log(LogLevel::warning, "reconcile.warden",
                {{"subject", sandbox}, {"error", error.message()}});
    }
  }
}

// Sandboxes that died or that a verb or clean-up failed to clear (full disk, unkillable process),
// and commands whose sandbox is gone for good.
std::map<base::WorkspaceId, Reconciler::Remains> Reconciler::find_remains() {
  std::map<base::WorkspaceId, Remains> found;
  std::set<base::SandboxId> dead;
  state_db::SandboxTable table(context_.store);
  for (auto& row : table.not_destroyed()) {
    if (lives(row)) continue;
    dead.insert(row.id);
    found[row.workspace].dead.push_back(std::move(row));
  }
  for (auto& exec : state_db::ExecTable(context_.store).running()) {
    if (decide(state_db::ExecSeen::sandbox_gone) != state_db::Repair::finish) continue;
    const auto id = exec.request.sandbox;
    if (context_.live.running_sandbox(exec.request.workspace) == id) continue;
    const auto sandbox = table.find(id);
    // A start or clean-up of its sandbox is still running and settles it.
    if (sandbox && sandbox->state != SandboxState::destroyed && !dead.contains(id)) continue;
    found[exec.request.workspace].execs.push_back(std::move(exec));
  }
  return found;
}

// Holds the lock of the workspace. The journals still have the truth about the commands.
void Reconciler::clear(base::WorkspaceId workspace, const Remains& remains) {
  state_db::SandboxTable table(context_.store);
  for (const auto& row : remains.dead) {
    const auto current = table.get(row.id);
    if (current.state == SandboxState::destroyed || lives(current) || relink(current)) continue;
    try_step("reconcile.sandbox", row.id.str(), [&] {
      const std::string gone = sandboxes_.why_gone(current);
      sandboxes_.clear(current, gone.empty() ? "its sandbox died" : gone);
      after_sandbox.pass();
    });
  }
  for (const auto& exec : remains.execs) {
    if (state_db::ExecTable(context_.store).get(exec.id).state != ExecState::running) continue;
    const auto sandbox = table.find(exec.request.sandbox);
    if (sandbox && sandbox->state != SandboxState::destroyed) continue;
    before_exec.pass();
    try_step("reconcile.exec", exec.id.str(), [&] {
      watcher_.settle_exec(exec, ExecCategory::lost,
                           "its sandbox was gone when the daemon restarted");
    });
  }
  // The sandbox may have died during a snapshot.
  try_step("reconcile.snapshot", workspace.str(),
           [&] { chains_.settled(state_db::WorkspaceTable(context_.store).get(workspace)); });
}

// Reads each journal to its end: after a reboot the disk may have only part of the output.
void Reconciler::add_remains() {
  for (auto& [workspace, found] : find_remains())
    repairs_.add(workspace,
                 [this, id = workspace, remains = std::move(found)] { clear(id, remains); });
  repairs_.add_last([] { after_execs.pass(); });
}

void Reconciler::clear_remains() {
  for (auto& [workspace, found] : find_remains()) {
    begin("reconcile.sandboxes", workspace,
          [this, id = workspace, remains = std::move(found)] { clear(id, remains); });
  }
}

}  // namespace moorage::workspace
