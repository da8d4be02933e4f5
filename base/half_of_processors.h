// While it lives, its thread runs on at most half of the processors that it had before, rounded up:
// where there are two or more, some are left to the other threads.
#pragma once

#include <array>

namespace moorage::base {

class HalfOfProcessors {
 public:
  HalfOfProcessors();
  ~HalfOfProcessors();
  HalfOfProcessors(const HalfOfProcessors&) = delete;
  HalfOfProcessors& operator=(const HalfOfProcessors&) = delete;

 private:
  std::array<unsigned long, 16> before_{};  // a cpu_set_t; its header and the kernel's cannot meet
  bool halved_ = false;
};

}  // namespace moorage::base
