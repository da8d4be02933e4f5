#include "base/thread_pool.h"

#include <cassert>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace moorage::base {

ThreadPool::ThreadPool(size_t threads, size_t max_queue)
    : max_threads_(threads), max_queue_(max_queue) {
  assert(threads > 0);
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
                  "too many tasks are waiting (" + std::to_string(queue_.size()) + ")",
                  "try again in a moment");
    }
    // While stopping, the submitter is one of the threads being joined: it takes the work itself.
    if (queue_.size() >= idle_ && threads_.size() < max_threads_ && !stopping_) make_thread();
    queue_.push_back(std::move(work));
  }
  ready_.notify_one();
}

void ThreadPool::make_thread() {
  try {
    threads_.emplace_back([this] { run(); });
  } catch (const std::system_error& error) {
    if (!threads_.empty()) return;  // the other threads will take it
    throw_no_task("create a thread", error.code().value());
  }
}

void ThreadPool::run() {
  std::unique_lock guard(mutex_);
  for (;;) {
    ++idle_;
    ready_.wait(guard, [this] { return stopping_ || !queue_.empty(); });
    --idle_;
    if (queue_.empty()) return;
    std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    guard.unlock();
    work();
    work = nullptr;  // frees what it holds outside the lock
    guard.lock();
  }
}

}  // namespace moorage::base
