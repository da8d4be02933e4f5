#include "base/background.h"

#include <linux/sched.h>
#include <linux/sched/types.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace moorage::base {
namespace {

constexpr int kNice = 10;
// Slightly longer than the slice of other threads (2.8 ms; 3 ms on older kernels), so that they
// preempt this one. The rest of a slice still runs after the thread is back to normal.
constexpr uint64_t kLongSliceNs = 5'000'000;
constexpr uint64_t kUsualSlice = 0;

int nice_of_thread() { return getpriority(PRIO_PROCESS, 0); }  // of the thread, on Linux

bool set(int nice, uint64_t slice_ns) {
  sched_attr attributes{};
  attributes.size = sizeof attributes;
  attributes.sched_policy = SCHED_NORMAL;
  attributes.sched_nice = nice;
  attributes.sched_runtime = slice_ns;
  return syscall(SYS_sched_setattr, 0, &attributes, 0U) == 0;
}

// Tested once, by a step that no thread depends on.
bool may_raise() {
  static const bool may = [] {
    const int nice = nice_of_thread();
    return set(nice + 1, kUsualSlice) && set(nice, kUsualSlice);
  }();
  return may;
}

}  // namespace

Background::Background() : nice_before_(nice_of_thread()) {
  lowered_ = nice_before_ < kNice && may_raise() && set(kNice, kLongSliceNs);
  if (lowered_) half_.emplace();
}

Background::~Background() {
  if (lowered_) set(nice_before_, kUsualSlice);
}

}  // namespace moorage::base
