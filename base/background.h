// Work that takes processors for as long as somebody else likes, such as a walk over a tree that an
// agent wrote. While one of these lives, its thread has a ninth of the weight of others and runs on
// half of the processors, and what wakes up goes before it at once (Linux 6.12 and later: by its
// long slice, sched_setattr(2); before: by its weight). It still goes on when the host is busy.
// Without CAP_SYS_NICE a thread could not raise its priority again: then nothing is changed.
//
// The weight alone is not enough: the kernel shares out processors by groups first (control groups,
// sessions), and the daemon's group, busy with such work, goes behind all the others with what is
// urgent in it.
//
// Hold no lock that others wait for: whoever wants it waits as long as this thread does. Begin no
// thread or process: it would begin as this one is.
#pragma once

#include <optional>

#include "base/half_of_processors.h"

namespace moorage::base {

class Background {
 public:
  Background();
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

 private:
  int nice_before_ = 0;
  bool lowered_ = false;  // false, too, inside of another one
  std::optional<HalfOfProcessors> half_;
};

}  // namespace moorage::base
