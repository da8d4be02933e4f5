// A bounded pool for blocking work. `submit` refuses (resource_exhausted) when the queue is full,
// so that an overloaded daemon says so instead of growing. Destruction finishes what was accepted,
// also what accepted work submits meanwhile.
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

  void submit(std::function<void()> work);  // work must not throw

 private:
  void run();

  const size_t max_queue_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace moorage::base
