// What a round of the reconciler does about single workspaces and sandboxes: side by side, each
// user with a share of the threads (base/fair_pool.h). The round waits for it for a short while, so
// that whoever looks after a round finds it done. A step that hangs, as an engine does that is down
// or a process that will not die, goes on alone: it delays neither the rest of the round nor
// others, and nothing more is begun for its subject before it is over.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>
#include <string>

#include "base/fair_pool.h"

namespace moorage::workspace {

class RoundWork {
 public:
  explicit RoundWork(std::chrono::milliseconds patience);

  // `share.subject` names what it is about. An error is logged as `event`, for the next round.
  void begin(const base::Share& share, const char* event, std::function<void()> step);
  // For what was begun since the last call, no longer than the patience.
  void wait();

 private:
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::set<std::string> at_work_;
  std::set<std::string> waited_for_;
  base::FairPool pool_;  // last: its work uses the rest
};

}  // namespace moorage::workspace
