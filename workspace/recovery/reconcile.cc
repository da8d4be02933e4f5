#include "workspace/recovery/reconcile.h"

#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/os/process.h"
#include "state_db/store.h"
#include "state_db/store_age.h"
#include "state_db/tables/integrity.h"
#include "workspace/archive/cold_storage.h"
#include "workspace/archive/store.h"
#include "workspace/chain/initial_files.h"
#include "workspace/chain/layer_life.h"
#include "workspace/chain/workspace_note.h"
#include "workspace/context/credentials.h"
#include "workspace/context/try_step.h"
#include "workspace/recovery/lost_work.h"
#include "workspace/recovery/seen.h"

namespace moorage::workspace {
namespace {

using base::LogLevel;
using state_db::ExecState;
using state_db::WorkspaceState;

// Long enough for a client to reconnect and read the end of the output.
constexpr int64_t kDisposableKept_ms = 10 * 60'000;
// A disposable workspace waits this long for its one command, by the store's age.
constexpr int64_t kUntouchedKept_ms = 10 * 60'000;
MOORAGE_CRASH_POINT(after_repositories, "recovery.after_repositories");
MOORAGE_CRASH_POINT(after_sandboxes, "recovery.after_sandboxes");
MOORAGE_CRASH_POINT(after_snapshots, "recovery.after_snapshots");
MOORAGE_CRASH_POINT(after_strangers, "recovery.after_strangers");
MOORAGE_CRASH_POINT(after_workspaces, "recovery.after_workspaces");

}  // namespace

void Reconciler::at_start() {
  try_step("reconcile.repositories", "", [&] { settle_repositories(); });
  after_repositories.pass();
  adopt_sandboxes();
  after_sandboxes.pass();
  drop_cut_copies();
  add_remains();
  settle_snapshots();
  after_snapshots.pass();
  try_step("reconcile.lost_work", "", [&] { raise_ids(context_); });
  try_step("reconcile.lost_work", "", [&] { keep_lost_work(context_); });
  try_step("reconcile.strangers", "", [&] { remove_strangers(); });
  round_.wait();
  try_step("reconcile.archives", "", [&] { ArchiveStore(context_).remove_temporary(); });
  try_step("reconcile.credentials", "",
           [&] { remove_unused_sealed(context_.store, context_.options.store); });
  after_strangers.pass();
  settle_workspaces();
  add_takeovers();
  repairs_.add_last([&] { settle_base_trees(); });
  repairs_.add_last([&] { cool_layers(context_); });
  repairs_.add_last([&] { purge_due(); });
  repairs_.add_last([&] { collect_layers(context_); });
  repairs_.add_last([&] { sweep_uploads(); });
  after_workspaces.pass();
}

void Reconciler::after_ready() { repairs_.start(); }

// A busy workspace is skipped: its verb holds the lock and settles the snapshot itself.
void Reconciler::settle_snapshots() {
  state_db::SnapshotTable table(context_.store);
  for (const auto& row : table.taking()) {
    try_step("reconcile.snapshot", row.id.str(), [&] {
      const auto guard = lock_if_free(context_, row.workspace.str());
      if (!guard || table.get(row.id).state != state_db::SnapshotState::taking) return;
      settle_snapshot(context_, row);
    });
  }
}

// A power cut may have torn such a copy undetectably. No layer is based on it, and the
// workspace still has its source. Only copies taken beside a sandbox of an earlier boot qualify.
// Their layers are collected later, because the daemon does not answer yet.
void Reconciler::drop_cut_copies() {
  state_db::SnapshotTable table(context_.store);
  for (const auto& row : table.not_durable()) {
    if (row.way != state_db::SnapshotWay::copy) continue;
    const auto sandboxes = state_db::SandboxTable(context_.store).of_workspace(row.workspace);
    const bool of_this_boot =
        std::any_of(sandboxes.begin(), sandboxes.end(),
                    [](const auto& sandbox) { return sandbox.boot_id == base::boot_id(); });
    if (of_this_boot) continue;
    try_step("reconcile.snapshot", row.id.str(), [&] {
      const auto guard = lock_if_free(context_, row.workspace.str());
      const auto now = table.get(row.id);
      if (!guard || now.state != state_db::SnapshotState::kept || now.durable) return;
      table.drop(row.id, "the machine stopped before it reached the disk");
      base::log(base::LogLevel::warning, "snapshot.cut", {{"sn", row.id}, {"ws", row.workspace}});
    });
  }
}

// Only rows change here, because the daemon does not answer yet: an interrupted create frees its
// name. Repairs (repairs.h) work on the files, and a verb on such a workspace waits for it.
void Reconciler::settle_workspaces() {
  const std::string reason = "the daemon stopped while creating it";
  state_db::WorkspaceTable table(context_.store);
  for (const auto& row : table.list()) {
    try_step("reconcile.workspace", row.id.str(), [&] {
      const state_db::Repair mend = decide(row.state, see(context_, row));
      if (row.state == WorkspaceState::creating && mend == state_db::Repair::undo) {
        table.fail(row.id, reason);
      } else if (row.state == WorkspaceState::creating && mend == state_db::Repair::finish) {
        table.set_ready(row.id);
      }
      if (row.state != WorkspaceState::ready ? mend == state_db::Repair::nothing
                                             : !is_left_over(row))
        return;
      repairs_.add(row.id, [this, id = row.id, reason] {
        state_db::WorkspaceTable now(context_.store);
        const auto current = now.get(id);
        if (current.state == WorkspaceState::failed) return remove_remains(context_, current);
        if (current.state != WorkspaceState::ready) return settle(current, reason);
        settle_archive(context_, current);
        repair_initial_files(context_, current);
      });
    });
  }
}

bool Reconciler::is_left_over(const state_db::WorkspaceRow& row) {
  const auto archive = state_db::ArchiveTable(context_.store).find(row.id);
  return (archive && !archive->whole) || needs_repair(context_, row) ||
         state_db::IntegrityTable(context_.store).get(row.id).state ==
             state_db::IntegrityState::needs_repair;
}

// A workspace keeps either its archive or its hot copy. This removes the one that the verb could
// not remove because the disk or the directory of archives was unavailable.
void Reconciler::settle_archives() {
  state_db::WorkspaceTable table(context_.store);
  for (const auto& archive : state_db::ArchiveTable(context_.store).places()) {
    // There may be ten thousand archives: of those in good order, check only this.
    const bool file_is_left = archive.state == WorkspaceState::ready && !archive.whole;
    const bool copy_is_left = archive.state == WorkspaceState::archived && archive.layer &&
                              base::path_exists(context_.storage.layer_path(archive.layer));
    if (!file_is_left && !copy_is_left) continue;
    try_step("reconcile.archive", archive.workspace.str(), [&] {
      if (const auto guard = lock_if_free(context_, archive.workspace.str()))
        settle_archive(context_, table.get(archive.workspace));
    });
  }
}

// A verb that failed even to record its failure leaves its row in a transient state, and a failed
// create may leave its layer. A working verb holds the lock from the write of its row on.
void Reconciler::settle_cut() {
  for (const auto& row : unsettled_workspaces(context_)) {
    if (decide(row.state, see(context_, row)) == state_db::Repair::nothing) continue;
    begin("reconcile.workspace", row.id, [this, id = row.id] {
      settle(state_db::WorkspaceTable(context_.store).get(id), "creating it failed midway");
    });
  }
}

// Runs beside other steps, unless a verb holds the lock.
void Reconciler::begin(const char* event, base::WorkspaceId workspace,
                       const std::function<void()>& step) {
  const auto row = state_db::WorkspaceTable(context_.store).find(workspace);
  round_.begin({.user = row ? row->owner_uid : 0, .subject = workspace.str()}, event,
               [this, key = workspace.str(), step] {
                 if (const auto guard = lock_if_free(context_, key)) step();
               });
}

void Reconciler::settle(const state_db::WorkspaceRow& row, const std::string& reason) {
  const state_db::Repair mend = decide(row.state, see(context_, row));
  if (mend == state_db::Repair::undo) {
    if (row.state == WorkspaceState::creating) return abandon(context_, row, reason);
    if (row.state == WorkspaceState::failed) return remove_remains(context_, row);
    return settle_archive(context_, row);
  }
  if (mend != state_db::Repair::finish) return;  // a loss is reported at its next start, or shown
  if (row.state == WorkspaceState::creating) return finish_initial_files(row);
  if (row.state == WorkspaceState::archived) return settle_archive(context_, row);
  start_stop_.stop_sandbox(row, "being deleted", {.gives_up = true});
  leases_.end(row.id, "deleted");
  state_db::WorkspaceTable(context_.store).finish_delete(row.id);
}

// Writes notes of new workspaces, and now and then of all; in portions, to keep a round short.
void Reconciler::keep_notes() {
  constexpr size_t kARound = 500;
  constexpr std::chrono::minutes kNextPass{10};
  const auto now = std::chrono::steady_clock::now();
  if (now >= notes_due_) {
    noted_ = {};
    notes_due_ = now + kNextPass;
  }
  state_db::WorkspaceTable table(context_.store);
  auto wanted = std::exchange(unnoted_, {});
  for (const auto& row : table.at_rest_after(noted_, kARound)) wanted.insert(noted_ = row.id);
  for (const auto id : wanted) {
    const auto guard = lock_if_free(context_, id.str());
    if (!guard) {
      unnoted_.insert(id);
      continue;
    }
    const auto row = table.get(id);
    if (row.state == WorkspaceState::ready || row.state == WorkspaceState::archived)
      keep_about(context_, row);
  }
}

void Reconciler::finish_initial_files(const state_db::WorkspaceRow& row) {
  state_db::WorkspaceTable table(context_.store);
  table.set_ready(row.id);
  repair_initial_files(context_, table.get(row.id));
}

void Reconciler::add_takeovers() {
  for (const auto id : leases_.being_cleared()) {
    repairs_.add(id, [this, id] {
      lease_verbs_.finish_takeover(state_db::WorkspaceTable(context_.store).get(id));
    });
  }
}

// For a take-over that died after the new generation and before it ended the old one's commands.
void Reconciler::finish_takeovers() {
  for (const auto id : leases_.being_cleared()) {
    begin("reconcile.takeover", id, [this, id] {
      lease_verbs_.finish_takeover(state_db::WorkspaceTable(context_.store).get(id));
    });
  }
}

void Reconciler::purge_due() {
  state_db::StoreAge(context_.store).save();
  state_db::WorkspaceTable table(context_.store);
  const auto due = table.purgeable(
      {.usual_ms = context_.options.undelete_window_ms, .disposable_ms = kDisposableKept_ms});
  for (const auto& row : due) {
    try_step("reconcile.purge", row.id.str(), [&] { purge(row); });
  }
}

// A person may be purging it right now, or may have restored it since the list was made. If it was
// deleted again since, its whole window starts over.
void Reconciler::purge(const state_db::WorkspaceRow& due) {
  const auto guard = context_.locks.lock(due.id.str(), "purge");
  state_db::WorkspaceTable table(context_.store);
  const auto row = table.get(due.id);
  if (row.purged_wall_ms || row.state != WorkspaceState::deleted ||
      row.deleted_age_ms != due.deleted_age_ms) {
    return;
  }
  table.begin_purge(row.id);
  deletion_.finish_purge(table.get(row.id));
}

// True if nobody has done anything with it since its creation: it equals its repository.
bool Reconciler::is_untouched(const state_db::WorkspaceRow& row) {
  return !row.policy.pinned && !context_.live.in_use(row.id) && !leases_.look(row.id) &&
         state_db::IntegrityTable(context_.store).get(row.id).state ==
             state_db::IntegrityState::unknown &&  // no sandbox began, no file was written
         state_db::SnapshotTable(context_.store).kept(row.id).empty();
}

// Removes disposable workspaces whose commands have ended (the daemon died before, or the removal
// failed), and those that nobody used after their creation
// (docs/decisions/0350-abandoned-disposables.md).
void Reconciler::remove_used() {
  state_db::ExecTable execs(context_.store);
  state_db::WorkspaceQuery ready;
  ready.state = WorkspaceState::ready;
  ready.only_disposable = true;
  const int64_t now_ms = state_db::StoreAge(context_.store).now_ms();
  for (const auto& row : state_db::WorkspaceTable(context_.store).list(ready)) {
    state_db::ExecQuery last;
    last.workspace = row.id;
    last.limit = 1;
    const bool used = !execs.list(last).empty();
    last.state = ExecState::running;
    if (used && !execs.list(last).empty()) continue;
    if (!used && (now_ms - row.rest_age_ms < kUntouchedKept_ms || !is_untouched(row))) continue;
    round_.begin({.user = row.owner_uid, .subject = row.id.str()}, "reconcile.disposable",
                 [this, row] { deletion_.remove_disposable(row); });
  }
}

void Reconciler::periodic() {
  const std::lock_guard one_at_a_time(periodic_mutex_);
  try_step("reconcile.repositories", "", [&] { settle_repositories(); });
  try_step("reconcile.warden", "", [&] { ask_wardens(); });
  try_step("reconcile.sandboxes", "", [&] { clear_remains(); });
  round_.wait();
  try_step("reconcile.lost_work", "", [&] { keep_lost_work(context_); });
  try_step("reconcile.strangers", "", [&] { remove_strangers(); });
  try_step("reconcile.base_trees", "", [&] { settle_base_trees(); });
  try_step("reconcile.disposables", "", [&] { remove_used(); });
  try_step("reconcile.snapshots", "", [&] { settle_snapshots(); });
  try_step("reconcile.snapshots", "", [&] { drop_cut_copies(); });
  try_step("reconcile.workspaces", "", [&] { settle_cut(); });
  try_step("reconcile.takeovers", "", [&] { finish_takeovers(); });
  round_.wait();
  try_step("reconcile.layers", "", [&] {
    release_replaced_layers(context_);
    collect_layers(context_);
  });
  try_step("reconcile.archives", "", [&] { settle_archives(); });
  try_step("reconcile.purge", "", [&] { purge_due(); });
  try_step("reconcile.uploads", "", [&] { sweep_uploads(); });
  try_step("reconcile.seals", "", [&] { sealing_.seal_unsealed(); });
  try_step("reconcile.notes", "", [&] { keep_notes(); });
  try_step("reconcile.machines", "", [&] { machines_.sweep(); });
}

}  // namespace moorage::workspace
