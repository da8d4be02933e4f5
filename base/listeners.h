// Listeners to one source of events, from any thread. Each listens while its handle exists: the
// handle's end waits for the calls that it is in, and none begins after that. So a listener keeps
// its handle as its last member, and must not drop it in a call.
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

namespace moorage::base {

template <typename Listener>
class Listeners {
  struct Entry {
    std::shared_mutex mutex;  // shared: during a call
    Listener* listener = nullptr;
  };

 public:
  using Handle = std::shared_ptr<void>;

  [[nodiscard]] Handle add(Listener& listener) {
    auto entry = std::make_shared<Entry>();
    entry->listener = &listener;
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [](const auto& one) { return one.use_count() == 1; });
    entries_.push_back(entry);
    return {entry.get(), [entry](Entry* ended) {
              const std::unique_lock ending(ended->mutex);
              ended->listener = nullptr;
            }};
  }

  // Calls each, in the order in which they were added. Calls from several threads run at once.
  template <typename Call>
  void each(const Call& call) {
    std::vector<std::shared_ptr<Entry>> now;
    {
      const std::lock_guard lock(mutex_);
      now = entries_;
    }
    for (const auto& entry : now) {
      const std::shared_lock lock(entry->mutex);
      if (entry->listener != nullptr) call(*entry->listener);
    }
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<Entry>> entries_;
};

}  // namespace moorage::base
