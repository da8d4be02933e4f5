// How often a running sandbox is checked for idleness, and how old it is. For the check itself
// (workspace/upkeep/idle_stop.h) and for views.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "base/clock.h"
#include "base/os/process.h"

namespace moorage::workspace {

inline constexpr int64_t kMostIdlePause_ms = 10'000;  // between two checks

// From the kernel's start time of the init: a daemon restart does not reset the age.
inline int64_t age_ms(const base::ProcessIdentity& init, const base::Clock& clock) {
  static const auto ticks_a_second = static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
  const auto started_ms = static_cast<int64_t>(init.start_ticks * 1000 / ticks_a_second);
  return std::max<int64_t>(0, clock.boot_ms() - started_ms);
}

}  // namespace moorage::workspace
