// While it lives, the thread runs on at most half of the processors that it had before, rounded up:
// whatever it does, whoever wakes up finds one that it does not take.
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
