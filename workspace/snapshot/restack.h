// The way of a snapshot when nothing inside holds the mounts of tree and home: the sandbox gets new
// mounts on the next writable layer and keeps running. Callers from outside wait meanwhile
// (LiveSandboxes::Exchange).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "state_db/tables/snapshots.h"
#include "workspace/chain/chains.h"
#include "workspace/context/context.h"
#include "workspace/context/live_sandboxes.h"
#include "workspace/sandbox/sandboxes.h"

namespace moorage::workspace {

class Restack {
 public:
  Restack(Context& context, Chains& chains, Sandboxes& sandboxes)
      : context_(context), chains_(chains), sandboxes_(sandboxes) {}

  // Whether a try is worthwhile: the chain is short, and no process visibly holds the mounts.
  bool is_likely(const state_db::WorkspaceRow& row, const LiveSandbox& running);
  struct Done {
    std::shared_ptr<const LiveSandbox> running;
    uint64_t pause_us = 0;
  };
  // The layer must exist. Afterwards only callers that requested `running` again use the mounts.
  // Null: a process holds them; nothing changed, including taking.next_layer. After an exception,
  // the old mounts are still in place or the sandbox was ended. The caller holds the workspace's
  // lock and gives up its own reference.
  std::optional<Done> exchange(const state_db::SnapshotRow& taking,
                               const state_db::WorkspaceRow& row,
                               std::shared_ptr<const LiveSandbox> running);

 private:
  Context& context_;
  Chains& chains_;
  Sandboxes& sandboxes_;
};

}  // namespace moorage::workspace
