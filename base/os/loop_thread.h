// A thread that runs an event loop. Watches and timers of the loop are made, changed and destroyed
// on it, by work that other threads post, or after stop().
#pragma once

#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/os/event_loop.h"
#include "base/os/fd.h"

namespace moorage::base {

class LoopThread {
 public:
  LoopThread();
  ~LoopThread() {
    stop([] {});
  }
  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;

  Loop& loop() { return loop_; }
  // In the order of the calls. Work posted after stop() is dropped.
  void post(std::function<void()> work);
  // Runs `last` on the thread, then ends it. A second call does nothing.
  void stop(std::function<void()> last);

 private:
  void run();

  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;  // under the mutex
  Fd wake_;
  Loop loop_;
  std::thread thread_;
};

}  // namespace moorage::base
