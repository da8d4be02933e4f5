// A bounded pool for blocking work of several users. A user gets another thread only while more
// threads are free than the user already has; one subject (a workspace, say) gets at most a quarter
// of all. So one user always leaves half of the threads to the others, and a user who arrives while
// n others use their maximum finds one of threads / (n + 1). The user with the fewest threads goes
// first; on a tie, the one who has waited longest. Work of one user and subject starts in order.
//
// `submit` refuses (resource_exhausted) when `max_queue` tasks of that user wait. For threads and
// destruction see thread_pool.h.
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
  FairPool(FairPool&&) = delete;
  // Finishes all accepted work.
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
    uint64_t turn = 0;                       // when its last work started, or when it arrived
    std::map<std::string, size_t> subjects;  // threads in use by each
  };
  void dispatch();               // under the lock: starts what may start
  void end(const Share& share);  // under the lock: frees one of its threads
  std::deque<Task>::iterator next_of(User& user);
  void run(Task& task);

  const size_t threads_;
  const size_t max_queue_;
  std::mutex mutex_;
  std::condition_variable drained_;
  size_t running_ = 0;
  uint64_t turns_ = 0;
  std::map<uint32_t, User> users_;  // those with work
  ThreadPool pool_;                 // last: its work uses the other members
};

}  // namespace moorage::base
