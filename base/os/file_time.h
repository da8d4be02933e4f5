// Times of files as one number.
#pragma once

#include <sys/stat.h>

#include <array>
#include <cstdint>
#include <ctime>

namespace moorage::base {

// Since 1970. Not all times of files fit, and anyone may set them: one after 2262 or before 1677
// becomes the last or the first that does.
inline int64_t file_time_ns(const timespec& time) {
  int64_t ns = 0;
  if (__builtin_mul_overflow(int64_t{time.tv_sec}, int64_t{1'000'000'000}, &ns) ||
      __builtin_add_overflow(ns, int64_t{time.tv_nsec}, &ns))
    return time.tv_sec < 0 ? INT64_MIN : INT64_MAX;
  return ns;
}

// For futimens: the access now, the modification then.
inline std::array<timespec, 2> modified_at(int64_t ns) {
  constexpr int64_t kNsPerSecond = 1'000'000'000;
  int64_t seconds = ns / kNsPerSecond;
  int64_t rest = ns % kNsPerSecond;
  if (rest < 0) {
    rest += kNsPerSecond;
    --seconds;
  }
  return {timespec{0, UTIME_NOW}, timespec{seconds, rest}};
}

}  // namespace moorage::base
