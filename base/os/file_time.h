// Times of files as one number.
#pragma once

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

}  // namespace moorage::base
