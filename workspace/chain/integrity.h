// Whether a workspace is still as Moorage left it. An orderly stop seals the layer
// (layers/seal/seal.h); before the layer is mounted again it is compared:
//
//   intact           matches its seal; or its sandbox or the host died while it ran, and the reason
//                    says what may be lost
//   changed-outside  something other than Moorage wrote to it; it remains usable, and this is shown
//                    until the next orderly stop, or until a person accepts it
//   lost             one of its directories, or its base commit, is missing: it does not start, and
//                    nothing replaces the missing part
//   needs-repair     a repair failed, or has not finished (workspace/recovery/repairs.h)
//
// Before Moorage writes to the layer of a stopped workspace, it clears the seal in the database;
// the next orderly stop takes a new one. All calls except `all` need the workspace's lock.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/error.h"
#include "layers/seal/seal.h"
#include "state_db/tables/integrity.h"
#include "state_db/tables/sandboxes.h"
#include "state_db/tables/workspaces.h"
#include "workspace/context/context.h"

namespace moorage::workspace {

class IntegrityCheck {
 public:
  explicit IntegrityCheck(Context& context) : context_(context) {}

  // Before a mount: compares, unless done within `max_age`, and stores a changed result. Throws
  // corrupted, with the reason, if it is lost.
  void look(const state_db::WorkspaceRow& row, std::chrono::milliseconds max_age = {});
  // Checks only for loss, without the comparison; for queries.
  void look_for_loss(const state_db::WorkspaceRow& row);
  // The base commit is not available; stores that and throws corrupted.
  [[noreturn]] void lose_base(const state_db::WorkspaceRow& row, const base::Error& error);

  // In the transaction that lets a sandbox write: voids the seal. Call `look` just before.
  void begin_writing(base::WorkspaceId id);
  struct Taken {
    std::optional<layers::Seal> seal;
    std::string why_none;  // for people
  };
  Taken take(base::WorkspaceId workspace, base::LayerId layer);  // the layer must not be mounted
  // In the transaction that records an orderly stop. Also stores the layer's size.
  void keep(const state_db::WorkspaceRow& row, const Taken& taken);
  // In the transaction that records its return from its archive, unchanged: its state from before
  // the archiving still holds.
  void keep_returned(const state_db::WorkspaceRow& row, const Taken& taken);
  // In the transaction that records the loss of the sandbox.
  void set_recovered(const state_db::SandboxRow& sandbox);

 private:
  Context& context_;
  std::mutex mutex_;
  std::map<base::WorkspaceId, std::chrono::steady_clock::time_point> looked_;
};

// Records that a workspace's repair failed, or that it is repaired.
void set_needs_repair(Context& context, base::WorkspaceId workspace, const std::string& reason);
void clear_needs_repair(Context& context, base::WorkspaceId workspace);

}  // namespace moorage::workspace
