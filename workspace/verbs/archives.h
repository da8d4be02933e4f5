// Verbs that move a workspace to and from cold storage: archive, unarchive. Only a stopped
// workspace is archived: a busy or leased one is refused, an idle sandbox is stopped first.
#pragma once

#include <string>

#include "workspace/access/leases.h"
#include "workspace/archive/cold_storage.h"
#include "workspace/verbs/start_stop.h"
#include "workspace/verbs/views.h"

namespace moorage::workspace {

class Archives {
 public:
  Archives(Context& context, Leases& leases, StartStop& start_stop, Views& views,
           ColdStorage& cold_storage)
      : context_(context),
        leases_(leases),
        start_stop_(start_stop),
        views_(views),
        cold_storage_(cold_storage) {}

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
  ColdStorage& cold_storage_;
};

}  // namespace moorage::workspace
