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
  class Handle {
   public:
    Handle() = default;
    explicit Handle(std::shared_ptr<Entry> entry) : entry_(std::move(entry)) {}
    Handle(Handle&&) noexcept = default;
    Handle& operator=(Handle&& other) noexcept {
      std::swap(entry_, other.entry_);
      return *this;
    }
    ~Handle() {
      if (!entry_) return;
      const std::unique_lock lock(entry_->mutex);
      entry_->listener = nullptr;
    }

   private:
    std::shared_ptr<Entry> entry_;
  };

  [[nodiscard]] Handle add(Listener& listener) {
    auto entry = std::make_shared<Entry>();
    entry->listener = &listener;
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [](const auto& one) { return one.use_count() == 1; });
    entries_.push_back(entry);
    return Handle(std::move(entry));
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
