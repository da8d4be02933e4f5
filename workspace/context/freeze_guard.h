// Freezes a whole running sandbox for as short as possible; the destructor thaws it at the latest.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/error.h"
#include "base/log.h"
#include "workspace/context/live_sandboxes.h"

namespace moorage::workspace {

class FreezeGuard {
 public:
  // Throws deadline_exceeded if it could not be frozen; it then keeps running.
  explicit FreezeGuard(const LiveSandbox& running) : running_(running) {
    running_.backend->freeze(running_.name);
  }
  ~FreezeGuard() {
    try {
      if (!thawed_) thaw();
    } catch (const base::Error& error) {
      base::log(base::LogLevel::error, "sandbox.not_thawed",
                {{"sb", running_.sandbox}, {"error", error.message()}});
    }
  }
  FreezeGuard(const FreezeGuard&) = delete;
  FreezeGuard& operator=(const FreezeGuard&) = delete;
  // Microseconds that it was frozen.
  uint64_t thaw() {
    using std::chrono::steady_clock;
    running_.backend->thaw(running_.name);
    thawed_ = true;
    const auto paused = steady_clock::now() - since_;
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(paused).count());
  }

 private:
  const LiveSandbox& running_;
  const std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  bool thawed_ = false;
};

}  // namespace moorage::workspace
