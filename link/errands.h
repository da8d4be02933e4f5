// One thread for the calls of a driver, which block. Work runs there in order; what it returns is
// called in the event loop. So a provider that does not answer holds up nothing here but this.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "base/os/event_loop.h"
#include "base/os/fd.h"

namespace moorage::link {

class Errands {
 public:
  using Then = std::function<void()>;
  using Work = std::function<Then()>;  // must not throw

  explicit Errands(base::Loop& loop);
  // Never joined: the process ends with _exit, whatever a driver waits for.
  ~Errands() { thread_.detach(); }
  Errands(Errands&&) = delete;

  void post(Work work);

 private:
  void run();
  void deliver();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Work> work_;
  std::deque<Then> done_;
  base::Pipe wake_;
  base::Watch watch_;
  std::thread thread_;
};

}  // namespace moorage::link
