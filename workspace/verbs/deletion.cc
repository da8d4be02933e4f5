#include "workspace/verbs/deletion.h"

#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "state_db/store.h"
#include "state_db/tables/archives.h"
#include "state_db/tables/integrity.h"
#include "state_db/tables/layer_disk.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/snapshots.h"
#include "workspace/access/keyed_request.h"
#include "workspace/archive/cold_storage.h"
#include "workspace/archive/store.h"
#include "workspace/chain/initial_files.h"
#include "workspace/chain/layer_life.h"
#include "workspace/chain/workspace_note.h"

namespace moorage::workspace {
namespace {

using state_db::WorkspaceState;

MOORAGE_CRASH_POINT(delete_before_intent, "delete.before_intent");
MOORAGE_CRASH_POINT(delete_after_intent, "delete.after_intent");
MOORAGE_CRASH_POINT(purge_after_intent, "purge.after_intent");
MOORAGE_CRASH_POINT(purge_after_files, "purge.after_files");

constexpr std::chrono::seconds kTryAgain{1};

}  // namespace

// The intent. Returns the commands that it ends.
std::vector<base::ExecId> Deletion::begin_remove(const Caller& caller,
                                                 const state_db::WorkspaceRow& row,
                                                 const BusyRule& busy, const std::string& reason) {
  make_way(context_.store, caller, row, busy);
  pre_stop_.run(row);
  const auto sandbox = state_db::SandboxTable(context_.store).live(row.id);
  delete_before_intent.pass();
  JoinedVerb joined{.workspace = row.id};
  try {
    context_.store.transaction([&] {
      joined.ended = make_way(context_.store, caller, row, busy);  // also newer commands
      context_.store.move(row.id, row.state, WorkspaceState::deleting, reason);
      join_key(context_.store, caller, joined.subject());
    });
  } catch (...) {
    if (sandbox) pre_stop_.forget(sandbox->id);
    throw;
  }
  return joined.ended;
}

WorkspaceView Deletion::remove(const Caller& caller, const std::string& name,
                               const BusyRule& busy) {
  const auto row = find_workspace(context_.store, caller, name, Right::destroy);
  const auto guard = context_.locks.lock(row.id.str(), "delete");
  leases_.check(caller, row);  // a later acquire waits for the lock
  state_db::WorkspaceTable table(context_.store);
  const std::string reason = "deleted by " + user_name(caller.uid);
  // Its create died without an outcome, or waits for the lock and will find it abandoned.
  if (table.get(row.id).state == WorkspaceState::creating)
    abandon(context_, table.get(row.id), reason);
  const auto current = table.get(row.id);
  JoinedVerb joined{.workspace = row.id};
  if (current.state == WorkspaceState::deleted || current.state == WorkspaceState::deleting)
    join_key(context_.store, caller, joined.subject());
  if (current.state == WorkspaceState::ready && !busy.force) start_stop_.require_fetched(current);
  if (current.state != WorkspaceState::deleted) {
    if (current.state != WorkspaceState::deleting)
      joined.ended = begin_remove(caller, current, busy, reason);
    delete_after_intent.pass();
    start_stop_.stop_sandbox(row, reason, {.gives_up = true});
    // Recovery skips the layers of deleted workspaces (workspace/chain/initial_files.h), and this
    // one may be undeleted.
    if (base::path_exists(context_.storage.layer_path(row.layer) + "/tree/upper"))
      sync_initial_files(context_, row);
    leases_.end(row.id, "deleted");
    table.finish_delete(row.id);
    base::log(base::LogLevel::info, "workspace.deleted", {{"ws", row.id}, {"name", row.name}});
  }
  return joined.in(views_.view(state_db::WorkspaceTable(context_.store).get(joined.workspace)));
}

WorkspaceView Deletion::undelete(const Caller& caller, const std::string& name,
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
  return views_.view(back);
}

void Deletion::purge(const Caller& caller, const std::string& name, const BusyRule& busy) {
  state_db::WorkspaceTable table(context_.store);
  const auto id = base::WorkspaceId::parse(name);
  // A repeat after a lost answer: the workspace is already purged.
  if (const auto known = id ? table.find(*id) : std::nullopt;
      known && known->purged_wall_ms && owns(caller, *known)) {
    return;
  }
  const auto row = workspace::find_with_deleted(context_.store, caller, name, Right::destroy);
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
WorkspaceView Deletion::resume_remove(const Caller& caller, const std::string& subject,
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
  return joined.in(views_.view(state_db::WorkspaceTable(context_.store).get(joined.workspace)));
}

void Deletion::finish_purge(const state_db::WorkspaceRow& row) {
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

void Deletion::exec_ended(const state_db::ExecRow& exec) {
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

void Deletion::dispose_later(const state_db::WorkspaceRow& row) {
  disposals_.submit({.user = row.owner_uid}, [this, row] { remove_disposable(row); });
}

// Purges later, because its output may still be wanted. While other commands of it run, it does
// nothing: the end of the last one leads here again.
void Deletion::remove_disposable(const state_db::WorkspaceRow& row) {
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

}  // namespace moorage::workspace
