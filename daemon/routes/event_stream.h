// Events as lines of JSON, starting at a sequence number; can follow new ones. The store wakes each
// follower, which reads the database itself: a slow one delays nobody and misses nothing.
// A caller sees the events of workspaces it may see; root sees all.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "daemon/http/exchange.h"

namespace moorage::state_db {
class Store;
}

namespace moorage::daemon {

class EventHub {
 public:
  // Takes the store's event hook: one hub per store, created before other threads use it.
  explicit EventHub(state_db::Store& store);
  ~EventHub();
  EventHub(const EventHub&) = delete;
  EventHub& operator=(const EventHub&) = delete;

  state_db::Store& store() { return store_; }
  uint64_t subscribe(std::function<void()> wake);
  void unsubscribe(uint64_t number);

 private:
  void wake_all();

  state_db::Store& store_;
  std::mutex mutex_;
  uint64_t next_ = 1;
  std::map<uint64_t, std::function<void()>> wakes_;
};

std::unique_ptr<BodySource> stream_events(EventHub& hub, const workspace::Caller& caller,
                                          int64_t since_seq, bool follow);

}  // namespace moorage::daemon
