#include "backends/remote/pending_kills.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "base/error.h"

namespace moorage::backends {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kThreads = 32;
constexpr milliseconds kFirstPause{200};
constexpr milliseconds kLongestPause{10'000};

}  // namespace

PendingKills::PendingKills(Kill kill)
    : kill_(std::move(kill)), pool_(kThreads, std::numeric_limits<size_t>::max()) {
  thread_ = std::thread([this] { run(); });
}

PendingKills::~PendingKills() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    tries_.clear();
  }
  changed_.notify_all();
  thread_.join();
}

void PendingKills::add(const std::string& sandbox, const std::string& tag) {
  const std::lock_guard lock(mutex_);
  tries_.insert({{sandbox, tag}, {Clock::now(), kFirstPause}});
  changed_.notify_all();
}

void PendingKills::forget(const std::string& sandbox) {
  const std::lock_guard lock(mutex_);
  std::erase_if(tries_, [&](const auto& entry) { return entry.first.first == sandbox; });
}

size_t PendingKills::count() {
  const std::lock_guard lock(mutex_);
  return tries_.size();
}

void PendingKills::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const auto now = Clock::now();
    std::optional<Clock::time_point> next;
    for (const auto& [key, one] : tries_) {
      // A machine that does not answer holds one thread for its own sandbox.
      if (busy_.contains(key.first)) continue;
      if (one.at > now) {
        next = next ? std::min(*next, one.at) : one.at;
        continue;
      }
      try {
        pool_.submit([this, key = key] { attempt(key); });
        busy_.insert(key.first);
      } catch (const Error&) {
        next = now + kFirstPause;  // no thread can be created now
        break;
      }
    }
    if (next)
      changed_.wait_until(lock, *next);
    else
      changed_.wait(lock);
  }
}

void PendingKills::attempt(const Key& key) {
  bool done = true;
  try {
    kill_(key.first, key.second);
  } catch (const Error&) {
    done = false;
  }
  const std::lock_guard lock(mutex_);
  busy_.erase(key.first);
  changed_.notify_all();
  const auto found = tries_.find(key);
  if (found == tries_.end()) return;
  if (done) {
    tries_.erase(found);
    return;
  }
  found->second.at = Clock::now() + found->second.pause;
  found->second.pause = std::min(found->second.pause * 2, kLongestPause);
}

}  // namespace moorage::backends
