// The event loop of the small programs, moorage-warden and moorage-egress: one thread, epoll,
// timers. All else in them runs inside its handlers and must not block. A Watch and a Timer belong
// to their creator and end with it, so no callback outlives its owner; a handler may destroy its own
// owner. An exception from a handler is printed to standard error and swallowed: the process lives.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/os/fd.h"

namespace moorage::base {

class Loop {
 public:
  using Handler = std::function<void(uint32_t events)>;  // EPOLLIN...
  using Task = std::function<void()>;

  Loop();
  void run();  // until stop(); may be called again
  void stop() { stopped_ = true; }

 private:
  friend class Watch;
  friend class Timer;
  using TimerKey = std::pair<int64_t, uint64_t>;  // due time (monotonic ms), serial
  struct Registration {
    uint32_t serial = 0;  // identifies a stale event of an earlier owner
    uint32_t events = 0;
    std::shared_ptr<Handler> handler;
  };

  void watch(int fd, uint32_t events, Handler handler);
  void set_events(int fd, uint32_t events);
  void forget(int fd);
  TimerKey add_timer(std::chrono::milliseconds delay, Task task);
  void run_due_timers();
  int next_timeout_ms() const;
  void dispatch(uint64_t key, uint32_t events);

  Fd epoll_;
  bool stopped_ = false;
  uint32_t watch_serial_ = 0;
  uint64_t timer_serial_ = 0;
  std::unordered_map<int, Registration> watches_;
  std::map<TimerKey, Task> timers_;
};

// Watches a descriptor, which must outlive it (declare the Fd before the Watch).
class Watch {
 public:
  Watch(Loop& loop, int fd, uint32_t events, Loop::Handler handler);
  ~Watch() { loop_.forget(fd_); }
  Watch(Watch&&) = delete;
  // 0 removes it from epoll, which would otherwise report errors and hang-ups repeatedly.
  void set_events(uint32_t events) { loop_.set_events(fd_, events); }

 private:
  Loop& loop_;
  int fd_;
};

// One shot; start() again replaces the previous setting.
class Timer {
 public:
  explicit Timer(Loop& loop) : loop_(loop) {}
  ~Timer() { stop(); }
  Timer(Timer&&) = delete;
  void start(std::chrono::milliseconds delay, Loop::Task task);
  void stop();
  bool running() const { return key_.second != 0; }

 private:
  Loop& loop_;
  Loop::TimerKey key_{0, 0};
};

int64_t monotonic_ms();

// The one large buffer of a process with a loop: all reads use it, one event at a time, and its
// contents are consumed before the handler returns. Never nested.
inline std::span<char> io_buffer() {
  static std::array<char, 64 << 10> buffer;
  return buffer;
}

}  // namespace moorage::base
