// Waits for a daemon that restarts: with growing pauses of at most a second, up to a limit.
#pragma once

#include <chrono>

namespace moorage::cli {

class Backoff {
 public:
  explicit Backoff(std::chrono::milliseconds patience);
  // Sleeps before the next attempt. False: give up, because wake_fd (-1: none) became readable or
  // the limit is reached, counted from the first call since the last reset().
  bool wait(int wake_fd = -1);
  void reset();
  std::chrono::milliseconds waited() const;  // since the first failure; 0 without one

 private:
  const std::chrono::milliseconds patience_;
  std::chrono::milliseconds pause_;
  std::chrono::steady_clock::time_point began_{};
};

// How long a followed command waits for its daemon: MOORAGE_RECONNECT_S, or ten minutes.
std::chrono::milliseconds reconnect_patience();

}  // namespace moorage::cli
