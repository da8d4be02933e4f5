// From a workspace's row to its mounted layers: the writable one, the frozen ones below it and the
// base tree. Every mount of a workspace comes through here, so its limits apply and its files were
// checked before.
#pragma once

#include "layers/overlay.h"
#include "repo_cache/base_tree.h"
#include "workspace/chain/flattening.h"
#include "workspace/chain/integrity.h"
#include "workspace/context/live_sandboxes.h"
#include "workspace/repositories/repositories.h"

namespace moorage::workspace {

class Chains {
 public:
  Chains(Context& context, Repositories& repositories, Flattening& flattening,
         IntegrityCheck& integrity)
      : context_(context),
        repositories_(repositories),
        flattening_(flattening),
        integrity_(integrity) {}

  // The row after settling a snapshot whose outcome was not written. Caller holds the lock.
  state_db::WorkspaceRow settled(const state_db::WorkspaceRow& row);
  enum class Compare { always, sometimes };
  // Ready to be mounted: settled, shallow, compared with its seal, and with its initial files.
  // Throws corrupted if files are lost. Caller holds the lock.
  layers::Chain chain(const state_db::WorkspaceRow& row, Compare compare = Compare::always);
  // `last`: where to mount on a full disk whose reserve is used up.
  layers::ActiveMounts mount(const layers::Chain& layers, uint32_t first_host_id,
                             layers::MountRoom last = {});
  // The directories below all layers of a workspace. Fetches what the mirror has lost.
  repo_cache::BaseTreePlaces base_tree_of(const state_db::WorkspaceRow& row);
  // New mounts for the running sandbox, with `layer` as the writable one. Caller holds the lock.
  layers::ActiveMounts mount_for(const state_db::WorkspaceRow& row, base::LayerId layer,
                                 const LiveSandbox& running);

  // To complete the files of a sandbox that is gone; in any state of the workspace.
  // Caller holds the lock.
  SharedMounts mount_rest(const state_db::WorkspaceRow& row);

 private:
  layers::Chain at(const state_db::WorkspaceRow& row, base::LayerId layer);

  Context& context_;
  Repositories& repositories_;
  Flattening& flattening_;
  IntegrityCheck& integrity_;
};

}  // namespace moorage::workspace
