// The steps of a reconciler's round on single workspaces and sandboxes: they run in parallel, each
// user with a share of the threads (base/fair_pool.h). The round waits briefly, so that usually
// they are done when it ends. A step that hangs, because an engine is down or a process is
// unkillable, continues alone: it delays neither the round nor other steps, and its subject gets no
// further step until it ends.
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

  // `share.subject` names the subject. An error is logged as `event` and left to the next round.
  void begin(const base::Share& share, const char* event, std::function<void()> step);
  // Waits for the steps begun since the last call, up to the patience.
  void wait();

 private:
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::set<std::string> at_work_;
  std::set<std::string> waited_for_;
  base::FairPool pool_;  // last: its work uses the members above
};

}  // namespace moorage::workspace
