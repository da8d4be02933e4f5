// Work that many ask for and that tells all of them the same: at most one run a key at a time, at
// most `threads` in total, and who asks during a run gets one more run after it, not one each. Who
// waits does so for a bounded time, and not at all where waiting is known to be in vain. `Fair`:
// each user has a share of the threads (base/fair_pool.h); a run is the user's who asked for it
// first.
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

class Flights {
 public:
  using Key = int64_t;
  using Milliseconds = std::chrono::milliseconds;

  struct Fair {};
  Flights(size_t threads, std::function<void(Key)> work);  // work must not throw
  Flights(size_t threads, std::function<void(Key)> work, Fair fair);
  ~Flights();  // what runs is waited for, what is queued is dropped

  // Never waits; nothing happens if too much is queued.
  void request(Key key, uint32_t user = 0);
  // Requests a run that begins after this call and waits until it ended. False after `patience`, or
  // at once if this key's last run or this one takes longer than that, or all threads are so taken.
  bool wait(Key key, Milliseconds patience, uint32_t user = 0);
  bool ran_within(Key key, Milliseconds age);  // a run has ended, not longer than that ago
  void forget(Key key);                        // what runs of it there were; there will be none

 private:
  using Clock = std::chrono::steady_clock;
  struct Flight {
    bool queued = false;
    bool running = false;
    uint32_t user = 0;
    Clock::time_point since{};  // when the running one began
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
