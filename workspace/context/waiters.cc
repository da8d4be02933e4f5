#include "workspace/context/waiters.h"

#include "base/log.h"

namespace moorage::workspace {
namespace {

constexpr std::chrono::seconds kTryAgain{1};

}  // namespace

// List first, then check: an end between the two is seen twice, never missed.
void Waiters::resume_later(const Waiting& waiting, Resume resume) {
  {
    const std::lock_guard lock(mutex_);
    if (left_) return;
    waiters_.push_back(
        {{waiting.execs.begin(), waiting.execs.end()}, waiting.until, std::move(resume)});
  }
  for (const auto exec : waiting.execs) {
    if (may_have_ended(exec)) exec_ended(exec);
  }
}

// A database that cannot be read counts as an end: the repeated verb meets the same error, and
// reports it to its caller.
bool Waiters::may_have_ended(base::ExecId exec) const {
  try {
    return has_ended_(exec);
  } catch (const base::Error& error) {
    base::log(base::LogLevel::warning, "verb.wait_unknown",
              {{"ex", exec}, {"error", error.message()}});
    return true;
  }
}

void Waiters::exec_ended(base::ExecId exec) {
  const std::lock_guard lock(mutex_);
  resume_if([&](const Waiter& waiter) { return waiter.execs.contains(exec); });
}

void Waiters::look() {
  const auto now = Waiting::Clock::now();
  const std::lock_guard lock(mutex_);
  resume_if([&](const Waiter& waiter) { return waiter.until && *waiter.until <= now; });
}

void Waiters::leave() {
  const std::lock_guard lock(mutex_);
  left_ = true;
  waiters_.clear();
}

size_t Waiters::size() {
  const std::lock_guard lock(mutex_);
  return waiters_.size();
}

void Waiters::resume_if(const std::function<bool(const Waiter&)>& due) {
  for (auto waiter = waiters_.begin(); waiter != waiters_.end();) {
    if (!due(*waiter)) {
      ++waiter;
      continue;
    }
    try {
      waiter->resume();
      waiter = waiters_.erase(waiter);
    } catch (const base::Error& error) {
      base::log(base::LogLevel::warning, "verb.not_resumed", {{"error", error.message()}});
      waiter->until = Waiting::Clock::now() + kTryAgain;
      ++waiter;
    }
  }
}

}  // namespace moorage::workspace
