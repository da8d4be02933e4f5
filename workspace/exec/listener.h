// Those who listen to the watcher (watcher.h). Its pools call them: they may block, and must not
// throw unless it says so.
#pragma once

#include <optional>
#include <string>

#include "base/listeners.h"
#include "state_db/tables/execs.h"

namespace moorage::workspace {

class ExecListener {
 public:
  virtual ~ExecListener() = default;
  // After its outcome is written.
  virtual void exec_ended(const state_db::ExecRow&) {}
  // Its init died. False: another operation holds the workspace; called again a second later.
  virtual bool sandbox_died(base::WorkspaceId, base::SandboxId) { return true; }
  // Before its outcome is written: why a command that ended by itself exceeded the disk limit. The
  // first is called at each end and must be quick; the second only if the first says so. Both may
  // throw Error.
  virtual bool suspects_disk(const state_db::ExecRow&) { return false; }
  virtual std::optional<std::string> judge_disk(const state_db::ExecRow&) { return std::nullopt; }
  // Likewise, quick: which host it was refused, if any.
  virtual std::optional<std::string> refused_host(const state_db::ExecRow&) { return std::nullopt; }
};

using ExecListeners = base::Listeners<ExecListener>;

}  // namespace moorage::workspace
