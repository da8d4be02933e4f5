// After a crash, and every few seconds: compares the database with the backends and the disk and
// makes them agree. One table, {state in the row, what is really there} -> {finish, redo, undo,
// adopt}:
//
//   sandbox  starting, any          undo: destroy; the next exec starts a new one
//            running, alive         adopt: mounts through its init's root, watch its execs
//            running, dead          lost: settle execs from their journals, destroy the remains
//            stopping, any          finish
//            (no row), alive        destroy: the name carries our store id
//   exec     running, end frame     finish      running, sandbox gone   interrupted
//   workspace creating              undo        deleting                finish
//   repository cloning, fetching    ready if its mirror is there, else broken
//            evicted, directory     remove
//   layer, journal   directory, no row       set aside, never removed (lost_work.h)
//            row of a live workspace, no directory   said by integrity
//   upload   note, file             remove both (upload_note.h)
#pragma once

#include <string>

#include "workspace/execs.h"
#include "workspace/workspaces.h"

namespace moorage::workspace {

class Reconciler {
 public:
  Reconciler(Context& context, Workspaces& workspaces, Active& active, ExecWatcher& watcher)
      : context_(context), workspaces_(workspaces), active_(active), watcher_(watcher) {}
  void at_start();  // before the API answers
  // Purges after the undo window, and finishes what a full disk has cut.
  void periodic();

 private:
  void settle_repositories();
  void reconcile_sandbox(const state_db::SandboxRow& row);
  bool adopt(const state_db::SandboxRow& row);
  void adopt_exec(const state_db::ExecRow& exec, const Running& running);
  void remove_strangers();
  void settle_workspaces();
  void settle_cut();
  void settle(const state_db::WorkspaceRow& row, const std::string& reason);
  void purge_due();
  void purge(const state_db::WorkspaceRow& due);

  Context& context_;
  Workspaces& workspaces_;
  Active& active_;
  ExecWatcher& watcher_;
};

}  // namespace moorage::workspace
