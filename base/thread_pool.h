// A bounded pool for blocking work. It creates a thread when work arrives and none is idle, so
// there are only as many as were needed at once: each keeps its stack and malloc cache. `submit`
// refuses (resource_exhausted) when the queue is full, so that an overloaded daemon says so instead
// of growing. Destruction finishes accepted work and work submitted by it meanwhile.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace moorage::base {

class ThreadPool {
 public:
  ThreadPool(size_t threads, size_t max_queue);
  ~ThreadPool();
  ThreadPool(ThreadPool&&) = delete;

  // Work must not throw. Throws resource_exhausted also if no thread can be created. A thread of
  // the pool may start here and inherit the calling thread's own attributes (user, namespaces,
  // signal mask): a thread that changed its own must not submit.
  void submit(std::function<void()> work);

 private:
  void make_thread();  // under the lock
  void run();

  const size_t max_threads_;
  const size_t max_queue_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> queue_;
  size_t idle_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace moorage::base
