#include "link/errands.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "base/error.h"

namespace moorage::link {

Errands::Errands(base::Loop& loop)
    : wake_(base::make_pipe()),
      watch_(loop, wake_.read_end.get(), EPOLLIN, [this](uint32_t) { deliver(); }),
      thread_([this] { run(); }) {
  base::check(fcntl(wake_.read_end.get(), F_SETFL, O_NONBLOCK), "set up a pipe");
}

void Errands::post(Work work) {
  const std::lock_guard lock(mutex_);
  work_.push_back(std::move(work));
  changed_.notify_one();
}

void Errands::run() {
  for (;;) {
    Work work;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !work_.empty(); });
      work = std::move(work_.front());
      work_.pop_front();
    }
    Then then = work();
    const std::lock_guard lock(mutex_);
    done_.push_back(std::move(then));
    [[maybe_unused]] const ssize_t ignored = ::write(wake_.write_end.get(), "w", 1);
  }
}

void Errands::deliver() {
  std::array<char, 64> bytes;
  while (::read(wake_.read_end.get(), bytes.data(), bytes.size()) > 0) {
  }
  std::deque<Then> done;
  {
    const std::lock_guard lock(mutex_);
    done.swap(done_);
  }
  for (const Then& then : done) then();
}

}  // namespace moorage::link
