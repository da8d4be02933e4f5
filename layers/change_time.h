// Precision of change times (ctime, which nobody can set): the kernel takes them from a clock that
// advances in steps, so two changes within one step look alike.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <ctime>

namespace moorage::layers {

inline constexpr int64_t kTickNs = 20'000'000;  // its steps are at most 10 ms

inline int64_t nanoseconds(const timespec& time) {
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

// The current time of that clock.
inline int64_t kernel_time() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return nanoseconds(now);
}

}  // namespace moorage::layers
