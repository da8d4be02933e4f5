// After a crash, and every few seconds: compares the database with the backends and the disk and
// makes them agree. One table, {state in the row, what is really there} -> {finish, redo, undo,
// adopt}:
//
//   sandbox  starting, any          undo: destroy; the next exec starts a new one
//            running, alive         adopt: mounts through its init's root, watch its execs. A
//            warden
//                                   that does not answer yet is asked again: it may have no CPU
//            running, dead          lost: settle execs from their journals, destroy the remains
//            stopping, stopped...   finish
//            (no row), alive        destroy: the name carries our store id
//   exec     running, end frame     finish      running, sandbox gone   interrupted
//   workspace creating, born        finish      creating   undo     deleting                finish
//            disposable, command ended, or none came                     delete
//   repository cloning, fetching    ready if its mirror is there, else broken
//            evicted, directory     remove
//   base tree  directory, no row     remove: it was being written
//   layer, journal   directory, no row       set aside, never removed (lost_work.h)
//            row of a live workspace, no directory   said by integrity
//   lease    held, still clearing   end what ran under the one before
//   upload   note, file             remove both (upload_note.h)
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "workspace/execs.h"
#include "workspace/workspaces.h"

namespace moorage::workspace {

class Reconciler {
 public:
  Reconciler(Context& context, Workspaces& workspaces, Active& active, ExecWatcher& watcher)
      : context_(context), workspaces_(workspaces), active_(active), watcher_(watcher) {}
  void at_start();  // before the API answers
  // Purges after the undo window, and finishes what a full disk has cut or a verb has not done.
  void periodic();

 private:
  void settle_repositories();
  void reconcile_sandbox(const state_db::SandboxRow& row);
  bool adopt(const state_db::SandboxRow& row);
  void adopt_exec(const state_db::ExecRow& exec, const Running& running);
  void ask_warden(const Running& running, std::chrono::milliseconds deadline);
  void ask_again();
  void clear_dead();
  void remove_used();
  void remove_strangers();
  void settle_workspaces();
  void settle_cut();
  void finish_takeovers();
  void settle(const state_db::WorkspaceRow& row, const std::string& reason);
  void finish_birth(const state_db::WorkspaceRow& row);
  void purge_due();
  void purge(const state_db::WorkspaceRow& due);

  Context& context_;
  Workspaces& workspaces_;
  Active& active_;
  ExecWatcher& watcher_;
  // Adopted execs of wardens that have not said yet whether they know them.
  std::map<base::SandboxId, std::vector<state_db::ExecRow>> unconfirmed_;
  // Disposable workspaces without a command, and since when they are known to be.
  std::map<base::WorkspaceId, std::chrono::steady_clock::time_point> unused_;
};

}  // namespace moorage::workspace
