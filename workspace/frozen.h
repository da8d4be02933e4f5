// All of a running sandbox frozen, for as short as can be: thawed at the latest when this goes.
#pragma once

#include <chrono>
#include <cstdint>

#include "workspace/active.h"

namespace moorage::workspace {

class Frozen {
 public:
  // deadline_exceeded: it could not be frozen, and runs on.
  explicit Frozen(const Running& running);
  ~Frozen();
  Frozen(const Frozen&) = delete;
  Frozen& operator=(const Frozen&) = delete;
  uint64_t thaw();  // microseconds for which it was frozen

 private:
  const Running& running_;
  const std::chrono::steady_clock::time_point since_;
  bool thawed_ = false;
};

}  // namespace moorage::workspace
