#include "base/keyed_mutex.h"

#include <utility>

#include "base/error.h"

namespace moorage::base {

using std::chrono::steady_clock;

KeyedMutex::Guard::Guard(Guard&& other) noexcept
    : owner_(std::exchange(other.owner_, nullptr)), key_(std::move(other.key_)) {}

KeyedMutex::Guard& KeyedMutex::Guard::operator=(Guard&& other) noexcept {
  if (this != &other) {
    unlock();
    owner_ = std::exchange(other.owner_, nullptr);
    key_ = std::move(other.key_);
  }
  return *this;
}

void KeyedMutex::Guard::unlock() {
  if (owner_) std::exchange(owner_, nullptr)->unlock(key_);
}

bool KeyedMutex::is_free(const std::string& key, bool to_share) const {
  const auto found = held_.find(key);
  return found == held_.end() || (to_share && found->second.sharing > 0);
}

KeyedMutex::Guard KeyedMutex::acquire(const std::string& key, const std::string& operation,
                                      bool to_share, std::chrono::milliseconds patience) {
  const auto end = steady_clock::now() + patience;
  std::unique_lock guard(mutex_);
  while (!is_free(key, to_share)) {
    if (freed_.wait_until(guard, end) == std::cv_status::no_timeout) continue;
    if (is_free(key, to_share)) break;  // freed at the last moment
    const Holder& holder = held_.at(key);
    auto age = std::chrono::duration_cast<std::chrono::seconds>(steady_clock::now() - holder.since);
    throw Error(
        Code::conflict,
        key + " is busy: " + holder.operation + " (for " + std::to_string(age.count()) + " s)",
        "try again when it has ended");
  }
  Holder& holder = held_.emplace(key, Holder{operation, steady_clock::now(), 0}).first->second;
  if (to_share) ++holder.sharing;
  return Guard(this, key);
}

void KeyedMutex::unlock(const std::string& key) {
  {
    std::lock_guard guard(mutex_);
    const auto found = held_.find(key);
    if (found->second.sharing > 1) {
      --found->second.sharing;
      return;
    }
    held_.erase(found);
  }
  freed_.notify_all();
}

}  // namespace moorage::base
