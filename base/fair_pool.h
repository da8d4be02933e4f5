// A bounded pool for blocking work of several users. A user takes one more thread only while more
// are free than that user has, and one subject (a workspace, say) at most a quarter of all. So
// whatever one user does, half of the threads are there for the others, and a user who comes while
// n others hold all they may finds one of threads / (n + 1). The user with the fewest threads goes
// first, of several the one who has waited longest for a turn; the work of one user and subject
// begins in the order in which it came.
//
// `submit` refuses (resource_exhausted) when `max_queue` tasks of that user wait. Threads and
// destruction as in thread_pool.h.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "base/thread_pool.h"

namespace moorage::base {

struct Share {
  uint32_t user = 0;
  std::string subject{};  // empty: none, only the user's share counts
};

class FairPool {
 public:
  FairPool(size_t threads, size_t max_queue);
  FairPool(const FairPool&) = delete;
  FairPool& operator=(const FairPool&) = delete;
  // Finishes what was accepted.
  ~FairPool();

  void submit(const Share& share, std::function<void()> work);  // work must not throw

 private:
  struct Task {
    Share share;
    std::function<void()> work;
  };
  struct User {
    std::deque<Task> waiting;
    size_t running = 0;
    uint64_t turn = 0;                       // when work of it began last, or it came
    std::map<std::string, size_t> subjects;  // threads that each has
  };
  void dispatch();               // under the lock: begins what may begin
  void end(const Share& share);  // under the lock: one thread of it is free
  std::deque<Task>::iterator next_of(User& user);
  void run(Task& task);

  const size_t threads_;
  const size_t max_queue_;
  std::mutex mutex_;
  std::condition_variable drained_;
  size_t running_ = 0;
  uint64_t turns_ = 0;
  std::map<uint32_t, User> users_;  // those with work
  ThreadPool pool_;                 // last: its work uses the rest
};

}  // namespace moorage::base
