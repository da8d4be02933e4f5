// Acquires the lease of a workspace. A takeover commits the new generation and the cancel marks
// together; from then on the former holder is refused. Then it stops the sandbox, because a process
// that a command left behind could still write. A crash in between leaves the lease `clearing`, and
// workspace/recovery/reconcile.h finishes it.
#pragma once

#include <string>

#include "workspace/verbs/start_stop.h"

namespace moorage::workspace {

class LeaseVerbs {
 public:
  LeaseVerbs(Context& context, Leases& leases, StartStop& start_stop)
      : context_(context), leases_(leases), start_stop_(start_stop) {}

  // Conflict if another holds it; ends commands of the previous lease unless they are to be kept.
  LeaseView acquire(const Caller& caller, const std::string& name, const Leases::Wanted& wanted);
  // Ends the last lease's execs. Caller holds the lock.
  void finish_takeover(const state_db::WorkspaceRow& row);

 private:
  Context& context_;
  Leases& leases_;
  StartStop& start_stop_;
};

}  // namespace moorage::workspace
