// While it lives, its thread runs on at most half of its previous processors, rounded up: with two
// or more, some stay free for other threads.
#pragma once

#include <array>

namespace moorage::base {

class HalfOfProcessors {
 public:
  HalfOfProcessors();
  ~HalfOfProcessors();
  HalfOfProcessors(HalfOfProcessors&&) = delete;

 private:
  std::array<unsigned long, 16> before_{};  // a cpu_set_t; its header conflicts with the kernel's
  bool halved_ = false;
};

}  // namespace moorage::base
