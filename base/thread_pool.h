// A bounded pool for blocking work. A thread is made when work comes and none is idle, so there are
// only as many as were ever needed at once: each keeps its stack and its cache of malloc.
// `submit` refuses (resource_exhausted) when the queue is full, so that an overloaded daemon says
// so instead of growing. Destruction finishes what was accepted, also what accepted work submits
// meanwhile.
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
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Work must not throw. resource_exhausted, too, when not even one thread can be had. A thread of
  // the pool may be born here, and with what the caller's thread has of its own (user, namespaces,
  // signal mask): a thread that changed those for itself must not submit.
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
