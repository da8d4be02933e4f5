// Which hook runs for the stop of which sandbox, until the sandbox is gone or the stop is given up.
// Only in memory: after a crash the next stop starts a new hook.
#pragma once

#include <map>
#include <mutex>
#include <optional>

#include "base/ids.h"

namespace moorage::workspace {

class PreStops {
 public:
  std::optional<base::ExecId> begun(base::SandboxId sandbox) {
    const std::lock_guard lock(mutex_);
    const auto found = hooks_.find(sandbox);
    return found == hooks_.end() ? std::nullopt : std::optional(found->second);
  }
  void begin(base::SandboxId sandbox, base::ExecId hook) {
    const std::lock_guard lock(mutex_);
    hooks_[sandbox] = hook;
  }
  void forget(base::SandboxId sandbox) {
    const std::lock_guard lock(mutex_);
    hooks_.erase(sandbox);
  }

 private:
  std::mutex mutex_;
  std::map<base::SandboxId, base::ExecId> hooks_;
};

}  // namespace moorage::workspace
