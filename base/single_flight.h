// Work that many callers want and whose result is the same for all: at most one run per key at a
// time and `threads` runs in total. Callers that arrive during a run share one more run after it.
// They wait for a bounded time, and not at all when the wait would be in vain. `Fair`: each user
// has a share of the threads (base/fair_pool.h); a run counts for the user who first requested it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "base/fair_pool.h"
#include "base/thread_pool.h"

namespace moorage::base {

class SingleFlight {
 public:
  using Key = int64_t;
  using Milliseconds = std::chrono::milliseconds;

  struct Fair {};
  SingleFlight(size_t threads, std::function<void(Key)> work);  // work must not throw
  SingleFlight(size_t threads, std::function<void(Key)> work, Fair fair);
  ~SingleFlight();  // waits for running work, drops queued work

  // Never blocks; does nothing if the queue is full.
  void request(Key key, uint32_t user = 0);
  // Requests a run that begins after this call and waits for its end. False after `patience`, or at
  // once if this key's last or current run takes longer, or all threads are busy so long.
  bool wait(Key key, Milliseconds patience, uint32_t user = 0);
  bool ran_within(Key key, Milliseconds age);  // a run ended no longer ago than `age`
  void forget(Key key);                        // drops its history: no run will follow

 private:
  using Clock = std::chrono::steady_clock;
  struct Flight {
    bool queued = false;
    bool running = false;
    uint32_t user = 0;
    Clock::time_point since{};  // when the current run began
    uint64_t begun = 0;
    uint64_t ended = 0;
  };
  struct Past {
    Clock::time_point ended;
    Clock::duration took;
  };

  void enqueue(Key key, uint32_t user);  // this one and the next two under the lock
  void submit(Key key, uint32_t user);
  bool in_vain(Key key, Milliseconds patience) const;
  void run(Key key);

  const size_t threads_;
  const std::function<void(Key)> work_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::map<Key, std::shared_ptr<Flight>> flights_;  // queued or running
  std::map<Key, Past> past_;                        // of the last minutes
  bool stopping_ = false;
  std::unique_ptr<ThreadPool> pool_;  // one of these two
  std::unique_ptr<FairPool> fair_pool_;
};

}  // namespace moorage::base
