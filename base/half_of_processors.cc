#include "base/half_of_processors.h"

#include <sched.h>

#include <bit>

namespace moorage::base {

// Where this fails (too many processors for the set, or it is forbidden), the thread's priority
// still tells the kernel which thread goes first.
HalfOfProcessors::HalfOfProcessors() {
  cpu_set_t all{};
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  cpu_set_t half{};
  int left = (CPU_COUNT(&all) + 1) / 2;
  for (size_t cpu = 0; cpu < CPU_SETSIZE && left > 0; ++cpu) {
    if (!CPU_ISSET(cpu, &all)) continue;
    CPU_SET(cpu, &half);
    --left;
  }
  before_ = std::bit_cast<decltype(before_)>(all);
  halved_ = sched_setaffinity(0, sizeof half, &half) == 0;
}

HalfOfProcessors::~HalfOfProcessors() {
  if (!halved_) return;
  const auto all = std::bit_cast<cpu_set_t>(before_);
  sched_setaffinity(0, sizeof all, &all);
}

}  // namespace moorage::base
