// Work that takes as much processor time as an outsider decides, such as a walk over an
// agent-written tree. While this object lives, its thread has a ninth of the normal weight and runs
// on half of its previous processors, rounded up; threads that wake up preempt it at once
// (Linux 6.12 and later: by its long slice, sched_setattr(2); before: by its weight). It still
// makes progress on a busy host. Without CAP_SYS_NICE a thread could not raise its priority again,
// so nothing is changed.
//
// The weight alone is not enough. The kernel first divides processors among groups (control groups,
// sessions), so a daemon group busy with such work falls behind all others, with its urgent work.
//
// Hold no lock that others need: they would wait as long as this thread runs. Start no thread or
// process: it would inherit the low priority.
#pragma once

#include <array>
#include <cstdint>

namespace moorage::base {

class Background {
 public:
  Background();
  ~Background();
  Background(Background&&) = delete;

 private:
  void halve_processors();

  int nice_before_ = 0;
  bool lowered_ = false;                   // also false when nested in another one
  std::array<uint64_t, 16> processors_{};  // before: a mask as in sched_setaffinity(2)
  bool halved_ = false;
};

}  // namespace moorage::base
