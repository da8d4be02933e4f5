// Listeners to one source of events, from any thread. Each listens while its handle exists: the
// handle's end waits for the calls that it is in, and none begins after that. So a listener keeps
// its handle as its last member, and must not drop it in a call.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace moorage::base {

template <typename Listener>
class Listeners {
  struct Entry {
    std::mutex mutex;
    std::condition_variable ended;
    Listener* listener = nullptr;  // null: it no longer listens
    size_t calls = 0;              // calls may nest
  };
  struct Call {
    explicit Call(Entry& one) : entry(one) {
      const std::lock_guard lock(entry.mutex);
      listener = entry.listener;
      if (listener != nullptr) ++entry.calls;
    }
    Call(const Call&) = delete;
    ~Call() {
      if (listener == nullptr) return;
      const std::lock_guard lock(entry.mutex);
      if (--entry.calls == 0) entry.ended.notify_all();
    }
    Entry& entry;
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
              std::unique_lock ending(ended->mutex);
              ended->listener = nullptr;
              ended->ended.wait(ending, [ended] { return ended->calls == 0; });
            }};
  }

  // Calls each, in the order in which they were added. Calls from several threads run at once.
  template <typename Function>
  void each(const Function& function) {
    std::vector<std::shared_ptr<Entry>> now;
    {
      const std::lock_guard lock(mutex_);
      now = entries_;
    }
    for (const auto& entry : now) {
      const Call call(*entry);
      if (call.listener != nullptr) function(*call.listener);
    }
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<Entry>> entries_;
};

}  // namespace moorage::base
