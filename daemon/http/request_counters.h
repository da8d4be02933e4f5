// The server's own counters for GET /metrics: answers by route and status, and open connections.
// Owned by the router; counting is one atomic addition.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>

#include "base/metrics.h"

namespace moorage::daemon {

class Answers {
 public:
  static constexpr int kFirst = 100;
  static constexpr int kLast = 599;
  void add(int status) {
    if (status >= kFirst && status <= kLast) by_status_.at(index(status)).add();
  }
  uint64_t count(int status) const { return by_status_.at(index(status)).value(); }

 private:
  static size_t index(int status) { return static_cast<size_t>(status - kFirst); }
  std::array<base::Counter, kLast - kFirst + 1> by_status_;
};

struct RequestCounters {
  std::deque<Answers> routes;  // in the router's order
  Answers no_route;            // refused before routing
  std::atomic<uint64_t> connections{0};
};

}  // namespace moorage::daemon
