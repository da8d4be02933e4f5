// Waiting for a daemon that restarts: short pauses at first, a second at most, and an end.
#pragma once

#include <chrono>

namespace moorage::cli {

class Backoff {
 public:
  explicit Backoff(std::chrono::milliseconds patience);
  // Sleeps before the next attempt. False: there shall be none, because wake_fd (-1: none) became
  // readable or because patience is over, counted from the first call since the last reset().
  bool wait(int wake_fd = -1);
  void reset();
  std::chrono::milliseconds waited() const;  // since the trouble began; 0 when there is none

 private:
  const std::chrono::milliseconds patience_;
  std::chrono::milliseconds pause_;
  std::chrono::steady_clock::time_point began_{};
};

// How long a followed command waits for its daemon: MOORAGE_RECONNECT_S, or ten minutes.
std::chrono::milliseconds reconnect_patience();

}  // namespace moorage::cli
