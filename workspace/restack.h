// The way of a snapshot when nothing inside holds the mounts of tree and home: the sandbox gets new
// ones, whose writable layer is the next one, and runs on. Whoever comes from outside waits
// meanwhile (Active::Exchange).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "state_db/snapshots.h"
#include "workspace/active.h"
#include "workspace/context.h"
#include "workspace/workspaces.h"

namespace moorage::workspace {

class Restack {
 public:
  Restack(Context& context, Workspaces& workspaces, Active& active)
      : context_(context), workspaces_(workspaces), active_(active) {}

  // Whether it is worth trying: the chain is short, and no process visibly holds them.
  bool is_likely(const state_db::WorkspaceRow& row, const Running& running);
  struct Done {
    std::shared_ptr<const Running> running;
    uint64_t pause_us = 0;
  };
  // The layer is there, and nobody has the mounts after this but who asked for `running` again.
  // Null: somebody holds them, nothing was changed, and taking.next_layer is as it was.
  // When anything is thrown, what was mounted before still is, or the sandbox was ended. Caller
  // holds the workspace's lock and gives up its own reference.
  std::optional<Done> exchange(const state_db::SnapshotRow& taking, state_db::WorkspaceRow row,
                               std::shared_ptr<const Running> running);

 private:
  Context& context_;
  Workspaces& workspaces_;
  Active& active_;
};

}  // namespace moorage::workspace
