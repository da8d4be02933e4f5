// Verbs that move a workspace to and from cold storage: archive, unarchive. Only a stopped
// workspace is archived: a busy or leased one is refused, an idle sandbox is stopped first.
#pragma once

#include <string>

#include "workspace/access/leases.h"
#include "workspace/archive/bring_back.h"
#include "workspace/archive/put_away.h"
#include "workspace/verbs/start_stop.h"
#include "workspace/verbs/views.h"

namespace moorage::workspace {

class Archives {
 public:
  Archives(Context& context, Leases& leases, StartStop& start_stop, Views& views, PutAway& put_away,
           BringBack& bring_back)
      : context_(context),
        leases_(leases),
        start_stop_(start_stop),
        views_(views),
        put_away_(put_away),
        bring_back_(bring_back) {}

  WorkspaceView archive(const Caller& caller, const std::string& name, const Progress& progress);
  WorkspaceView unarchive(const Caller& caller, const std::string& name, const Progress& progress);
  // Continues the move that a key joined before the daemon died (workspace/access/keyed_request.h).
  WorkspaceView resume(const Caller& caller, const std::string& subject);

  // For collection: archives an idle workspace and returns the bytes freed in the store. Conflict
  // if it is in use or locked by a verb.
  uint64_t collect(base::WorkspaceId id, const std::string& reason);

 private:
  // Brings a ready one to rest and archives it. Returns the bytes of layers that were freed.
  uint64_t put_away(const Caller& caller, const state_db::WorkspaceRow& present,
                    const std::string& reason, const Progress& progress);

  Context& context_;
  Leases& leases_;
  StartStop& start_stop_;
  Views& views_;
  PutAway& put_away_;
  BringBack& bring_back_;
};

}  // namespace moorage::workspace
