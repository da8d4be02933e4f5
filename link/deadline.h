// When a call must have ended.
#pragma once

#include <chrono>

namespace moorage::link {

using Deadline = std::chrono::steady_clock::time_point;

inline Deadline after(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

}  // namespace moorage::link
