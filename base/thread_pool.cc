#include "base/thread_pool.h"

#include <cassert>
#include <utility>

#include "base/error.h"

namespace moorage::base {

ThreadPool::ThreadPool(size_t threads, size_t max_queue) : max_queue_(max_queue) {
  assert(threads > 0);
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard guard(mutex_);
    stopping_ = true;
  }
  ready_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::submit(std::function<void()> work) {
  {
    std::lock_guard guard(mutex_);
    if (queue_.size() >= max_queue_) {
      throw Error(Code::resource_exhausted,
                  "too much work is waiting (" + std::to_string(queue_.size()) + " tasks)",
                  "try again in a moment");
    }
    queue_.push_back(std::move(work));
  }
  ready_.notify_one();
}

void ThreadPool::run() {
  std::unique_lock guard(mutex_);
  for (;;) {
    ready_.wait(guard, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    guard.unlock();
    work();
    work = nullptr;  // what it holds is freed outside the lock
    guard.lock();
  }
}

}  // namespace moorage::base
