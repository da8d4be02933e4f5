#include "base/os/loop_thread.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"

namespace moorage::base {

LoopThread::LoopThread()
    : wake_(check(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "create an eventfd")),
      thread_([this] { run(); }) {}

void LoopThread::run() {
  const Watch woken(loop_, wake_.get(), EPOLLIN, [this](uint32_t) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t ignored = read(wake_.get(), &count, sizeof count);
    std::vector<std::function<void()>> posted;
    {
      const std::lock_guard lock(mutex_);
      posted.swap(posted_);
    }
    for (const auto& work : posted) work();
  });
  loop_.run();
}

void LoopThread::post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(work));
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = write(wake_.get(), &one, sizeof one);
}

void LoopThread::stop(std::function<void()> last) {
  if (!thread_.joinable()) return;
  post([this, last = std::move(last)] {
    last();
    loop_.stop();
  });
  thread_.join();
}

}  // namespace moorage::base
