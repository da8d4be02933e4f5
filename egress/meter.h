// What one sandbox uses of the network, and its limits. Bytes are counted in both directions
// together; the rate is a bucket that holds a quarter of a second.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/net/network_settings.h"
#include "base/os/event_loop.h"

namespace moorage::egress {

using base::NetworkLimits;
using base::NetworkUse;

class Meter {
 public:
  // Called at every change of `use`, so it must be quick.
  void on_change(std::function<void()> listener) { listener_ = std::move(listener); }
  const NetworkUse& use() const { return use_; }
  void opened() {
    ++use_.connections;
    ++use_.connected;
    changed();
  }
  void closed() {
    --use_.connections;
    changed();
  }
  void refused() {
    ++use_.refused;
    changed();
  }
  // Whether one more connection is within the limits; counts it if not.
  bool admits() {
    if (use_.connections < limits_.connections && !used_up()) return true;
    ++use_.over_limit;
    changed();
    return false;
  }

  void set_limits(const NetworkLimits& limits) {
    limits_ = limits;
    bucket_ = static_cast<int64_t>(limits.rate_bytes / kPart);
  }
  const NetworkLimits& limits() const { return limits_; }
  bool counts_closely() const { return limits_.rate_bytes > 0 || limits_.total_bytes > 0; }
  bool used_up() const {
    return limits_.total_bytes > 0 && use_.bytes_in + use_.bytes_out >= limits_.total_bytes;
  }
  // How long to wait before more may be read; 0: now.
  int64_t pause_ms() {
    if (limits_.rate_bytes == 0) return 0;
    const int64_t now = base::monotonic_ms();
    const auto rate = static_cast<int64_t>(limits_.rate_bytes);
    const int64_t most = rate / kPart;
    const int64_t passed = std::min<int64_t>(now - filled_ms_, 1000);
    bucket_ = std::min(most, bucket_ + rate * passed / 1000);
    filled_ms_ = now;
    return bucket_ > 0 ? 0 : std::max<int64_t>(1, -bucket_ * 1000 / rate + 5);
  }
  void count(bool to_sandbox, size_t bytes) {
    (to_sandbox ? use_.bytes_in : use_.bytes_out) += bytes;
    bucket_ -= static_cast<int64_t>(bytes);
    changed();
  }

 private:
  void changed() const {
    if (listener_) listener_();
  }

  static constexpr uint64_t kPart = 4;
  NetworkUse use_;
  std::function<void()> listener_;
  NetworkLimits limits_;
  int64_t bucket_ = 0;
  int64_t filled_ms_ = 0;
};

}  // namespace moorage::egress
