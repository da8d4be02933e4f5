#include "workspace/recovery/round_work.h"

#include <limits>

#include "base/log.h"

namespace moorage::workspace {
namespace {

constexpr size_t kThreads = 8;

}  // namespace

RoundWork::RoundWork(std::chrono::milliseconds patience)
    : patience_(patience), pool_(kThreads, std::numeric_limits<size_t>::max()) {}

void RoundWork::begin(const base::Share& share, const char* event, std::function<void()> step) {
  {
    const std::lock_guard lock(mutex_);
    if (!at_work_.insert(share.subject).second) return;
    waited_for_.insert(share.subject);
  }
  pool_.submit(share, [this, subject = share.subject, event, step = std::move(step)] {
    try {
      step();
    } catch (const std::exception& error) {
      base::log(base::LogLevel::error, event, {{"subject", subject}, {"error", error.what()}});
    }
    const std::lock_guard lock(mutex_);
    at_work_.erase(subject);
    waited_for_.erase(subject);
    ended_.notify_all();
  });
}

void RoundWork::wait() {
  std::unique_lock lock(mutex_);
  ended_.wait_for(lock, patience_, [this] { return waited_for_.empty(); });
  waited_for_.clear();
}

}  // namespace moorage::workspace
