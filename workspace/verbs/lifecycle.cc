// Workspaces: start, stop, delete, undelete, purge.
#include "backends/envd_client.h"
#include "backends/registry.h"
#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "layers/sandbox_mounts.h"
#include "repo_cache/repo_cache.h"
#include "state_db/store.h"
#include "state_db/store_age.h"
#include "state_db/tables/archives.h"
#include "state_db/tables/integrity.h"
#include "state_db/tables/layer_disk.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/snapshots.h"
#include "workspace/access/keyed_request.h"
#include "workspace/access/placement.h"
#include "workspace/archive/cold_layers.h"
#include "workspace/archive/store.h"
#include "workspace/chain/initial_files.h"
#include "workspace/chain/unused_layers.h"
#include "workspace/chain/workspace_note.h"
#include "workspace/context/metrics.h"
#include "workspace/context/try_step.h"
#include "workspace/verbs/busy.h"
#include "workspace/verbs/workspaces.h"

namespace moorage::workspace {
namespace {

using base::Code;
using base::Error;
using state_db::SandboxState;
using state_db::WorkspaceState;

MOORAGE_CRASH_POINT(start_after_intent, "start.after_intent");
MOORAGE_CRASH_POINT(start_after_mount, "start.after_mount");
MOORAGE_CRASH_POINT(start_after_backend, "start.after_backend");
MOORAGE_CRASH_POINT(start_after_outcome, "start.after_outcome");
MOORAGE_CRASH_POINT(stop_before_intent, "stop.before_intent");
MOORAGE_CRASH_POINT(stop_after_intent, "stop.after_intent");
MOORAGE_CRASH_POINT(stop_after_backend, "stop.after_backend");
MOORAGE_CRASH_POINT(delete_before_intent, "delete.before_intent");
MOORAGE_CRASH_POINT(delete_after_intent, "delete.after_intent");
MOORAGE_CRASH_POINT(purge_after_intent, "purge.after_intent");
MOORAGE_CRASH_POINT(purge_after_files, "purge.after_files");

constexpr std::chrono::milliseconds kUnmountPatience{2'000};

}  // namespace

LiveSandboxPtr Workspaces::ensure_running(const state_db::WorkspaceRow& row, const Also& also) {
  const auto found = [&also](LiveSandboxPtr running) {
    if (also) also();
    return running;
  };
  if (auto running = context_.live.running(row.id); running && base::process_alive(running->init))
    return found(std::move(running));
  const auto guard =
      context_.locks.lock(row.id.str(), "start", context_.options.start_deadline * 2);
  if (auto running = context_.live.running(row.id)) {
    if (base::process_alive(running->init)) return found(std::move(running));
    watcher_.forget_sandbox(running->sandbox);
  }
  if (const auto old = state_db::SandboxTable(context_.store).live(row.id)) {
    clear_sandbox(*old, "found dead at start");
  }
  const auto current = state_db::WorkspaceTable(context_.store).get(row.id);
  check_start(context_, current);  // first, so that a refused start does not unarchive it
  // The key belongs to the request that needs it.
  if (current.state == WorkspaceState::archived) bring_back_.run(current);
  // Read the row again: a move may have changed it since the caller read it.
  return start_sandbox(state_db::WorkspaceTable(context_.store).get(row.id), also);
}

LiveSandboxPtr Workspaces::start_sandbox(const state_db::WorkspaceRow& row, const Also& also) {
  const auto began = base::Histogram::Clock::now();
  const auto wanted = starts_.plan(row);
  const layers::Chain layers = chain(row);
  context_.live.wait_unmounted(row.id, context_.options.transfer_patience);
  state_db::SandboxTable table(context_.store);
  const auto sandbox = context_.store.transaction([&] {
    integrity_.begin_writing(row.id);
    return table.create(wanted);
  });
  start_after_intent.pass();
  std::shared_ptr<const LiveSandbox> running;
  try {
    const layers::ActiveMounts mounts = mount_layers(layers, sandbox.first_host_id);
    start_after_mount.pass();
    auto begun = starts_.begin(row, sandbox, &mounts);
    start_after_backend.pass();
    running = starts_.finish(sandbox, std::move(begun), mounts, also);
  } catch (Error& error) {
    clear_sandbox(table.get(sandbox.id), error.message());
    throw error.add_context(row.name + " could not be started");
  }
  start_after_outcome.pass();
  context_.metrics.sandbox_start.observe_since(began);
  starts_.take_up(running);
  return running;
}

// Leaves no process, mount or directory behind, and the row `destroyed`. Throws if processes
// remain: the row then stays, and keeps its id range and upper directory, which nobody else may
// use.
void Workspaces::clear_sandbox(const state_db::SandboxRow& sandbox, const std::string& reason) {
  watcher_.forget_sandbox(sandbox.id);
  pre_stop_.forget(sandbox.id);
  context_.backends.get(sandbox.backend).destroy(sandbox.name);
  watcher_.settle(sandbox.id, reason);
  context_.live.clear_running(sandbox.id);
  base::remove_tree(context_.options.sandbox_directory(sandbox.id.str()));
  state_db::SandboxTable table(context_.store);
  context_.store.transaction([&] {
    note_lost(sandbox, reason);
    const auto state = table.get(sandbox.id).state;
    if (state != SandboxState::destroyed) table.set_destroyed(sandbox.id, state);
  });
}

// For a sandbox that died, or that a crash interrupted: it was not stopped cleanly.
void Workspaces::note_lost(const state_db::SandboxRow& sandbox, const std::string& reason) {
  state_db::SandboxTable table(context_.store);
  context_.store.transaction([&] {
    const auto current = table.get(sandbox.id);
    if (current.state == SandboxState::destroyed || current.state == SandboxState::stopped ||
        current.state == SandboxState::lost) {
      return;
    }
    if (!sandbox.standby) integrity_.set_recovered(current);
    table.set_lost(sandbox.id, current.state, reason);
  });
}

bool Workspaces::sandbox_died(base::WorkspaceId workspace, base::SandboxId sandbox) {
  try {
    return clear_dead(workspace, sandbox);
  } catch (const std::exception& error) {  // the reconciler retries it
    base::log(base::LogLevel::error, "sandbox.not_cleared",
              {{"ws", workspace}, {"sb", sandbox}, {"error", error.what()}});
  }
  return true;
}

bool Workspaces::clear_dead(base::WorkspaceId workspace, base::SandboxId sandbox) {
  const auto guard = lock_if_free(context_, workspace.str());
  if (!guard) return false;
  const auto row = state_db::SandboxTable(context_.store).get(sandbox);
  if (row.state != SandboxState::running && row.state != SandboxState::frozen)
    return true;  // a verb handled it
  base::log(base::LogLevel::warning, "sandbox.died", {{"ws", workspace}, {"sb", sandbox}});
  clear_sandbox(row, "its sandbox died");
  return true;
}

void Workspaces::stop_sandbox(const state_db::WorkspaceRow& present, const std::string& reason,
                              const std::function<void()>& begin) {
  state_db::SandboxTable table(context_.store);
  const auto sandbox = table.live(present.id);
  if (!sandbox) return;
  const auto row = settled(present);
  if (sandbox->state == SandboxState::lost) return clear_sandbox(*sandbox, reason);
  if (sandbox->state != SandboxState::stopping) {
    context_.store.transaction([&] {
      if (begin) begin();
      context_.store.move(sandbox->id, sandbox->state, SandboxState::stopping, reason);
    });
  }
  watcher_.forget_sandbox(sandbox->id);
  // The record of each command says who ended it, and why.
  watcher_.end_all(sandbox->id,
                   {{}, state_db::ExecCategory::stopped, "ended with its sandbox: " + reason}, {});
  stop_after_intent.pass();
  auto& backend = context_.backends.get(sandbox->backend);
  backend.stop(sandbox->name, context_.options.stop_grace);
  stop_after_backend.pass();
  watcher_.settle(sandbox->id, reason);
  context_.live.clear_running(sandbox->id);
  const auto taken = seal_stopped(row);
  // once stop answers, everything is durable
  base::sync_file_system(base::path_exists(context_.storage.layer_path(row.layer))
                             ? context_.storage.layer_path(row.layer)
                             : context_.options.store);
  context_.store.transaction([&] {
    table.set_stopped(sandbox->id, reason);
    integrity_.keep(row, taken);
    state_db::SnapshotTable(context_.store).set_durable(row.id);
    state_db::WorkspaceFacts facts;
    facts.rest_age_ms = state_db::StoreAge(context_.store).now_ms();
    state_db::WorkspaceTable(context_.store).set_facts(row.id, facts);
  });
  clear_sandbox(table.get(sandbox->id), reason);
  if (row.state == WorkspaceState::ready && hooks_.after_stop) hooks_.after_stop(row);
}

void Workspaces::refuse_busy(const state_db::WorkspaceRow& row) {
  if (const auto running = commands_of(context_.store, row.id); !running.empty()) {
    throw Error(Code::conflict, row.name + " is busy: " + name_commands(running),
                "wait for it, or end it: moorage kill " + running.front().id.str());
  }
  if (context_.live.in_use(row.id)) {
    throw Error(Code::conflict, row.name + " is busy: a command is starting, or a file in transfer",
                "try again in a moment");
  }
}

void Workspaces::bring_to_rest(const state_db::WorkspaceRow& row, const std::string& reason,
                               Hook hook) {
  refuse_busy(row);
  if (auto running = context_.live.running(row.id)) {
    measurer_.before_stop(row);
    if (hook == Hook::run) pre_stop_.run(row);
    auto taken = context_.live.take_unused(*running);
    const auto sandbox = running->sandbox;
    running.reset();  // release the mounts
    try {
      refuse_busy(row);  // a command may have begun meanwhile
      if (!taken) throw Error(Code::conflict, row.name + " was just used", "try again");
    } catch (const Error&) {
      if (taken) context_.live.set_running(std::move(taken));
      pre_stop_.forget(sandbox);
      throw;
    }
  }
  stop_sandbox(row, reason);
  context_.live.wait_unmounted(row.id, context_.options.transfer_patience);
}

// A transfer that holds the mounts continues after the stop; the seal is taken when it ends.
IntegrityCheck::Taken Workspaces::seal_stopped(const state_db::WorkspaceRow& row) {
  try {
    context_.live.wait_unmounted(row.id, kUnmountPatience);
  } catch (const Error&) {
    return {};
  }
  return integrity_.take(row);
}

WorkspaceView Workspaces::start(const Caller& caller, const std::string& name) {
  const auto row = find(caller, name, Right::write);
  leases_.check(caller, row);  // enough: a sandbox without a command writes nothing
  ensure_running(row, [&] { join_key(context_.store, caller, row.id.str()); });
  return view(state_db::WorkspaceTable(context_.store).get(row.id));
}

WorkspaceView Workspaces::stop(const Caller& caller, const std::string& name,
                               const StopRequest& request) {
  const auto row = find(caller, name, Right::write);
  leases_.check(caller, row);
  make_way(context_.store, caller, row, request.busy);  // before it is measured
  if (row.state == WorkspaceState::ready) measurer_.before_stop(row);
  JoinedVerb joined{.workspace = row.id};
  {
    const auto guard = context_.locks.lock(row.id.str(), "stop");
    const auto writing = leases_.write(caller, row);
    make_way(context_.store, caller, row, request.busy);
    if (request.run_hook)
      joined.notice = pre_stop_.run(state_db::WorkspaceTable(context_.store).get(row.id));
    const auto sandbox = state_db::SandboxTable(context_.store).live(row.id);
    bool is_joined = false;
    stop_before_intent.pass();
    try {
      stop_sandbox(row, "stopped by " + user_name(caller.uid), [&] {
        joined.ended = make_way(context_.store, caller, row, request.busy);  // also newer commands
        join_key(context_.store, caller, joined.subject());
        is_joined = true;
      });
      if (!is_joined) join_key(context_.store, caller, joined.subject());  // was already stopped
    } catch (...) {
      if (sandbox) pre_stop_.forget(sandbox->id);
      throw;
    }
  }
  if (row.state == WorkspaceState::ready) measurer_.refresh(row.id);
  return joined.in(view(state_db::WorkspaceTable(context_.store).get(joined.workspace)));
}

WorkspaceView Workspaces::resume(const std::string& subject, bool stops) {
  const auto joined = JoinedVerb::parse(subject);
  const auto row = state_db::WorkspaceTable(context_.store).get(joined.workspace);
  state_db::SandboxTable sandboxes(context_.store);
  const auto is_stopping = [&] {
    const auto sandbox = sandboxes.live(joined.workspace);
    return sandbox &&
           (sandbox->state == SandboxState::stopping || sandbox->state == SandboxState::lost);
  };
  if (stops && is_stopping()) {
    const auto guard = context_.locks.lock(joined.workspace.str(), "stop");
    if (is_stopping()) stop_sandbox(row, "stopped");
  }
  if (!stops) {  // redo the steps after the row's commit
    hold_to_limit(row);
    keep_about(context_, row);
  }
  return joined.in(look(joined.workspace));
}

void Workspaces::stop_because(base::WorkspaceId id, const std::string& reason) {
  const auto guard = context_.locks.lock(id.str(), "stop", std::chrono::milliseconds(0));
  stop_sandbox(state_db::WorkspaceTable(context_.store).get(id), reason);
}

WorkspaceView Workspaces::remove(const Caller& caller, const std::string& name,
                                 const BusyRule& busy) {
  const auto row = find(caller, name, Right::destroy);
  const auto guard = context_.locks.lock(row.id.str(), "delete");
  leases_.check(caller, row);  // whoever acquires it now waits for the lock
  state_db::WorkspaceTable table(context_.store);
  const std::string reason = "deleted by " + user_name(caller.uid);
  // Its create died without an outcome, or waits for the lock and will find it abandoned.
  if (table.get(row.id).state == WorkspaceState::creating) abandon(table.get(row.id), reason);
  const auto current = table.get(row.id);
  JoinedVerb joined{.workspace = row.id};
  if (current.state == WorkspaceState::deleted || current.state == WorkspaceState::deleting)
    join_key(context_.store, caller, joined.subject());
  if (current.state != WorkspaceState::deleted) {
    if (current.state != WorkspaceState::deleting) {
      make_way(context_.store, caller, current, busy);
      pre_stop_.run(current);
      const auto sandbox = state_db::SandboxTable(context_.store).live(row.id);
      delete_before_intent.pass();
      try {
        context_.store.transaction([&] {
          joined.ended = make_way(context_.store, caller, current, busy);  // also newer commands
          context_.store.move(row.id, current.state, WorkspaceState::deleting, reason);
          join_key(context_.store, caller, joined.subject());
        });
      } catch (...) {
        if (sandbox) pre_stop_.forget(sandbox->id);
        throw;
      }
    }
    delete_after_intent.pass();
    stop_sandbox(row, reason);
    // Recovery skips the layers of deleted workspaces (workspace/chain/initial_files.h), and this
    // one may be undeleted.
    if (base::path_exists(context_.storage.layer_path(row.layer) + "/tree/upper"))
      sync_initial_files(context_, row);
    leases_.end(row.id, "deleted");
    table.finish_delete(row.id);
    base::log(base::LogLevel::info, "workspace.deleted", {{"ws", row.id}, {"name", row.name}});
  }
  return joined.in(view(state_db::WorkspaceTable(context_.store).get(joined.workspace)));
}

WorkspaceView Workspaces::undelete(const Caller& caller, const std::string& name,
                                   const std::string& new_name) {
  if (!new_name.empty()) check_workspace_name(new_name);
  const auto row = find_deleted(context_.store, caller, name, Right::destroy);
  const auto guard = context_.locks.lock(row.id.str(), "undelete");
  leases_.check(caller, row);
  state_db::WorkspaceTable table(context_.store);
  const auto archive = state_db::ArchiveTable(context_.store).find(row.id);
  if (!(archive && archive->whole) && !base::path_exists(context_.storage.layer_path(row.layer))) {
    throw Error(Code::not_found, row.name + " has no files to restore",
                "its create failed, or its layer was removed from the store");
  }
  context_.store.transaction([&] {
    table.undelete(row.id, new_name);
    join_key(context_.store, caller, row.id.str());
  });
  const auto back = table.get(row.id);
  keep_about(context_, back);
  base::log(base::LogLevel::info, "workspace.undeleted", {{"ws", back.id}, {"name", back.name}});
  return view(back);
}

void Workspaces::purge(const Caller& caller, const std::string& name, const BusyRule& busy) {
  state_db::WorkspaceTable table(context_.store);
  const auto id = base::WorkspaceId::parse(name);
  // A repeat after a lost answer: the workspace is already purged.
  if (const auto known = id ? table.find(*id) : std::nullopt;
      known && known->purged_wall_ms && owns(caller, *known)) {
    return;
  }
  const auto row = find_with_deleted(caller, name, Right::destroy);
  Caller after = caller;
  if (row.state != WorkspaceState::deleted) {
    remove(caller, row.id.str(), busy);
    after.leases.clear();  // this workspace's lease ended with it
  }
  const auto guard = context_.locks.lock(row.id.str(), "purge");
  leases_.check(after, row);
  context_.store.transaction([&] {
    table.begin_purge(row.id);
    join_key(context_.store, caller, row.id.str());
  });
  purge_after_intent.pass();
  finish_purge(table.get(row.id));
}

// Finishes a remove or a purge that a daemon crash interrupted (workspace/access/keyed_request.h).
WorkspaceView Workspaces::resume_remove(const Caller& caller, const std::string& subject,
                                        bool purges) {
  const auto joined = JoinedVerb::parse(subject);
  const auto id = joined.workspace;
  state_db::WorkspaceTable table(context_.store);
  Caller now = caller;
  if (!leases_.is_held(id)) now.leases.clear();  // this workspace's lease ended with it
  const auto state = table.get(id).state;
  if (state == WorkspaceState::deleting) remove(now, id.str(), {.force = true});
  if (purges) {
    if (state != WorkspaceState::deleting && state != WorkspaceState::deleted)
      throw Error(Code::conflict, table.get(id).name + " was deleted, and undeleted since");
    purge(now, id.str(), {.force = true});
  }
  return joined.in(view(state_db::WorkspaceTable(context_.store).get(joined.workspace)));
}

void Workspaces::finish_purge(const state_db::WorkspaceRow& row) {
  context_.live.wait_unmounted(row.id, context_.options.transfer_patience);
  collect_layers(context_);  // for example a layer above it, from an undone snapshot
  if (row.layer) context_.storage.remove_layer(row.layer);
  remove_archive(context_, row.id);
  const std::string histories = context_.options.store + "/workspaces";
  base::remove_tree(histories + "/" + row.id.str());
  // Before the row forgets them: btrfs does not order a removal before a later row write, so a
  // power cut could bring back files without a row, which would look like somebody's lost work.
  if (row.layer) base::sync_directory(context_.options.store + "/layers");
  if (base::path_exists(histories)) base::sync_directory(histories);
  purge_after_files.pass();
  state_db::LayerDisk disk(context_.store);
  const auto owned = disk.owned_by(row.id);
  state_db::ExecTable(context_.store).forget_past(row.id);  // keeps the history of its commands
  context_.store.transaction([&] {
    state_db::WorkspaceTable(context_.store).finish_purge(row.id);
    state_db::IntegrityTable(context_.store).remove(row.id);
    if (row.layer) state_db::LayerTable(context_.store).remove({row.layer});
    state_db::SnapshotTable(context_.store).drop_all(row.id, "purged with its workspace");
  });
  // Layers that it shared now count for the oldest of the other workspaces.
  for (const auto heir : disk.owners_of(owned)) disk.recount(heir);
  collect_layers(context_);
  cool_layers(context_);  // layers that now only archived workspaces use
  measurer_.forget(row.id);
  base::log(base::LogLevel::info, "workspace.purged", {{"ws", row.id}, {"name", row.name}});
}

}  // namespace moorage::workspace
