#include "base/background.h"

#include <linux/sched.h>
#include <linux/sched/types.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>

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
  if (lowered_) halve_processors();
}

Background::~Background() {
  if (lowered_) set(nice_before_, kUsualSlice);
  if (halved_) syscall(SYS_sched_setaffinity, 0, sizeof processors_, processors_.data());
}

// Where this fails (too many processors for the mask, or it is forbidden), the thread's priority
// still tells the kernel which thread goes first. Bare system calls: the C library's header of them
// conflicts with the kernel's.
void Background::halve_processors() {
  if (syscall(SYS_sched_getaffinity, 0, sizeof processors_, processors_.data()) < 0) return;
  int count = 0;
  for (const uint64_t word : processors_) count += std::popcount(word);
  decltype(processors_) half{};
  int left = (count + 1) / 2;
  for (size_t i = 0; left > 0; ++i) {
    const uint64_t bit = processors_[i / 64] & uint64_t{1} << i % 64;
    half[i / 64] |= bit;
    if (bit != 0) --left;
  }
  halved_ = syscall(SYS_sched_setaffinity, 0, sizeof half, half.data()) == 0;
}

}  // namespace moorage::base
