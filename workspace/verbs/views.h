// What clients see of workspaces: lists, details, changes, patches. Changes nothing but
// measurements.
#pragma once

#include <string>
#include <vector>

#include "workspace/access/access.h"
#include "workspace/chain/integrity.h"
#include "workspace/changes/changes.h"
#include "workspace/changes/measurer.h"
#include "workspace/exec/watcher.h"
#include "workspace/network/sightings.h"
#include "workspace/verbs/requests.h"

namespace moorage::workspace {

class Views {
 public:
  Views(Context& context, Leases& leases, ExecWatcher& watcher, RemoteCopy& remote,
        IntegrityCheck& integrity, Measurer& measurer, const Replica& replica,
        const Sightings& sightings)
      : context_(context),
        leases_(leases),
        watcher_(watcher),
        remote_(remote),
        integrity_(integrity),
        changes_(context.repos),
        measurer_(measurer),
        replica_(replica),
        sightings_(sightings) {}

  WorkspacePage list(const Caller& caller, const PageRequest& wanted);
  WorkspaceView view(const state_db::WorkspaceRow& row);
  WorkspaceView look(base::WorkspaceId id);  // as last measured; a deleted one as before
  // The result of an earlier request with the same key, if the daemon died before it answered, or
  // its client left. Conflict while it is still `doing`: "created".
  WorkspaceView made_before(const Caller& caller, base::WorkspaceId id, const std::string& doing);
  // With a summary of its changes; waits briefly for a new measurement.
  WorkspaceView show(const Caller& caller, const std::string& name);
  // Waits briefly until its changes after the exec `ended` are counted.
  void measure(const state_db::WorkspaceRow& row, base::ExecId ended);
  // Where its changes begin, as git inside has it now.
  void follow_base(const state_db::WorkspaceRow& row);
  ChangeList status(const Caller& caller, const std::string& name);
  // A file at the creation of the workspace, byte for byte; of a symlink its target.
  std::string base_file(const Caller& caller, const std::string& name, const std::string& path);
  Patch patch(const Caller& caller, const std::string& name, DiffBase base,
              const DiffScope& scope = {});
  std::vector<DiffStat> diff_stat(const Caller& caller, const std::string& name, DiffBase base,
                                  const DiffScope& scope = {});

 private:
  void complete(WorkspaceView& view);
  base::WorkspaceId current(const Caller& caller, const std::string& name);

  Context& context_;
  Leases& leases_;
  ExecWatcher& watcher_;
  RemoteCopy& remote_;
  IntegrityCheck& integrity_;
  Changes changes_;
  Measurer& measurer_;
  const Replica& replica_;
  const Sightings& sightings_;
};

}  // namespace moorage::workspace
