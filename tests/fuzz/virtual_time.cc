#include "virtual_time.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <utility>

#include "fuzz.h"

namespace moorage::fuzz {
namespace {

using Clock = std::chrono::steady_clock;

// A loop that looks at the clock without a wait comes to its end, too.
constexpr std::chrono::microseconds kLook{1};

OtherEnds* other_ends = nullptr;
Clock::duration now = std::chrono::hours(1);

}  // namespace

void set_other_ends(OtherEnds& ends) { other_ends = &ends; }

Clock::time_point virtual_now() __asm__("__wrap__ZNSt6chrono3_V212steady_clock3nowEv");
Clock::time_point virtual_now() { return Clock::time_point(now += kLook); }

}  // namespace moorage::fuzz

using namespace moorage;

extern "C" int __real_poll(pollfd* polled, nfds_t count, int timeout_ms);
extern "C" int __wrap_poll(pollfd* polled, nfds_t count, int timeout_ms) {
  while (fuzz::other_ends && fuzz::other_ends->act()) continue;
  const int ready = __real_poll(polled, count, 0);
  if (ready != 0 || timeout_ms == 0) return ready;
  fuzz::require(timeout_ms > 0, "a wait has an end");
  fuzz::now += std::chrono::milliseconds(timeout_ms);
  return 0;
}

extern "C" int __wrap_nanosleep(const timespec* time, timespec* /*left*/) {
  fuzz::now += std::chrono::seconds(time->tv_sec) + std::chrono::nanoseconds(time->tv_nsec);
  return 0;
}

extern "C" int __wrap_connect(int fd, const sockaddr* /*address*/, socklen_t /*size*/) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0)
    return -1;
  const base::Fd ours(ends[0]);
  base::Fd theirs(ends[1]);
  if (dup3(ours.get(), fd, O_CLOEXEC) < 0) return -1;
  fuzz::other_ends->connected(std::move(theirs));
  return 0;
}
