// When the disk watcher runs (quota_watch.h): often while a sandbox lives or is about to.
#include <chrono>

#include "workspace/upkeep/quota_watch.h"

namespace moorage::workspace {
namespace {

// Longer than a sandbox start with the usual deadline.
constexpr std::chrono::seconds kExpected{30};
constexpr std::chrono::seconds kAgain{1};

}  // namespace

// Sandboxes of the previous daemon are about to be adopted, and their commands never stopped.
QuotaWatch::Work::Work(QuotaWatch& watch) : watch_(watch) {
  watch_.expect_command();
  thread_ = std::thread([this] { run(); });
}

QuotaWatch::Work::~Work() {
  {
    const std::lock_guard lock(watch_.mutex_);
    ending_ = true;
  }
  watch_.awaited_.notify_all();
  thread_.join();
}

void QuotaWatch::Work::run() {
  std::unique_lock lock(watch_.mutex_);
  while (!ending_) {
    const auto expected = watch_.expects_until_;
    lock.unlock();
    const auto next = watch_.look();
    lock.lock();
    watch_.awaited_.wait_until(lock, next,
                               [&] { return ending_ || watch_.expects_until_ != expected; });
  }
}

void QuotaWatch::expect_command() {
  const auto until = Clock::now() + kExpected;
  const std::lock_guard lock(mutex_);
  if (until < expects_until_ + kAgain) return;
  expects_until_ = until;
  awaited_.notify_all();
}

}  // namespace moorage::workspace
