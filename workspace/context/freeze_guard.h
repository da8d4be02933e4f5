// Freezes a whole running sandbox for as short as possible; the destructor thaws it at the latest.
#pragma once

#include <chrono>
#include <cstdint>

#include "workspace/context/live_sandboxes.h"

namespace moorage::workspace {

class FreezeGuard {
 public:
  // Throws deadline_exceeded if it could not be frozen; it then keeps running.
  explicit FreezeGuard(const LiveSandbox& running);
  ~FreezeGuard();
  FreezeGuard(const FreezeGuard&) = delete;
  FreezeGuard& operator=(const FreezeGuard&) = delete;
  uint64_t thaw();  // microseconds that it was frozen

 private:
  const LiveSandbox& running_;
  const std::chrono::steady_clock::time_point since_;
  bool thawed_ = false;
};

}  // namespace moorage::workspace
