#include "base/os/event_loop.h"

#include <errno.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>

#include "base/error.h"

namespace moorage::base {
namespace {

constexpr int kMaxWaitMs = 60'000;

// Not stdio: its buffers would be the largest thing in this process.
void complain(std::string_view text) {
  std::string line = std::string(program_invocation_short_name) + ": " + std::string(text.substr(0, 500)) + "\n";
  [[maybe_unused]] ssize_t ignored = ::write(STDERR_FILENO, line.data(), line.size());
}

template <typename Call>
void guarded(Call&& call) {
  try {
    call();
  } catch (const std::exception& error) {
    complain(error.what());
  }
}

}  // namespace

int64_t monotonic_ms() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

Loop::Loop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw_errno("create an epoll set");
}

void Loop::watch(int fd, uint32_t events, Handler handler) {
  Registration& entry = watches_[fd];
  entry = {.serial = ++watch_serial_,
           .events = 0,
           .handler = std::make_shared<Handler>(std::move(handler))};
  try {
    set_events(fd, events);
  } catch (...) {
    watches_.erase(fd);
    throw;
  }
}

void Loop::set_events(int fd, uint32_t events) {
  auto found = watches_.find(fd);
  if (found == watches_.end() || found->second.events == events) return;
  Registration& entry = found->second;
  int operation = EPOLL_CTL_MOD;
  if (entry.events == 0) operation = EPOLL_CTL_ADD;
  if (events == 0) operation = EPOLL_CTL_DEL;
  epoll_event event{};
  event.events = events;
  event.data.u64 = (uint64_t{entry.serial} << 32) | static_cast<uint32_t>(fd);
  check_allowance(::epoll_ctl(epoll_.get(), operation, fd, &event), "watch events",
                        "fs.epoll.max_user_watches");
  entry.events = events;
}

void Loop::forget(int fd) {
  auto found = watches_.find(fd);
  if (found == watches_.end()) return;
  if (found->second.events != 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  watches_.erase(found);
}

Loop::TimerKey Loop::add_timer(std::chrono::milliseconds delay, Task task) {
  TimerKey key{monotonic_ms() + std::max<int64_t>(delay.count(), 0), ++timer_serial_};
  timers_.emplace(key, std::move(task));
  return key;
}

void Loop::run_due_timers() {
  const int64_t now = monotonic_ms();
  // A task that sets a 0 ms timer waits for the next round, so that descriptors get their turn.
  const uint64_t newest = timer_serial_;
  while (!timers_.empty()) {
    auto first = timers_.begin();
    if (first->first.first > now || first->first.second > newest) return;
    Task task = std::move(first->second);
    timers_.erase(first);
    guarded(task);
  }
}

int Loop::next_timeout_ms() const {
  if (timers_.empty()) return kMaxWaitMs;
  int64_t wait = timers_.begin()->first.first - monotonic_ms();
  return static_cast<int>(std::clamp<int64_t>(wait, 0, kMaxWaitMs));
}

void Loop::dispatch(uint64_t key, uint32_t events) {
  auto found = watches_.find(static_cast<int>(key & 0xffffffff));
  if (found == watches_.end() || found->second.serial != key >> 32) return;
  std::shared_ptr<Handler> handler = found->second.handler;  // survives its own removal
  guarded([&] { (*handler)(events); });
}

void Loop::run() {
  std::array<epoll_event, 32> events;
  while (!stopped_) {
    int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                             next_timeout_ms());
    if (count < 0 && errno != EINTR) throw_errno("wait for events");
    for (int i = 0; i < count && !stopped_; ++i) dispatch(events[i].data.u64, events[i].events);
    if (!stopped_) run_due_timers();
  }
  stopped_ = false;
}

Watch::Watch(Loop& loop, int fd, uint32_t events, Loop::Handler handler) : loop_(loop), fd_(fd) {
  loop_.watch(fd, events, std::move(handler));
}

void Timer::start(std::chrono::milliseconds delay, Loop::Task task) {
  stop();
  key_ = loop_.add_timer(delay, [this, task = std::move(task)] {
    key_ = {0, 0};
    task();
  });
}

void Timer::stop() {
  if (!running()) return;
  loop_.timers_.erase(key_);
  key_ = {0, 0};
}

}  // namespace moorage::base
