// What a change time (ctime, which nobody can set) can tell: the kernel takes it from a clock that
// moves in steps, so that two changes within one step look alike.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <ctime>

namespace moorage::workspace {

inline constexpr int64_t kTickNs = 20'000'000;  // its steps are 10 ms at most

inline int64_t nanoseconds(const timespec& time) {
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

// The present, by that clock.
inline int64_t kernel_time() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  return nanoseconds(now);
}

}  // namespace moorage::workspace
