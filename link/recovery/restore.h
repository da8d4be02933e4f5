// Sends again what a machine lost while it was paused, once the files here are right: the daemon
// has applied all packs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/os/event_loop.h"
#include "link/start_up.h"
#include "link/sync_intake.h"

namespace moorage::link {

class Restore {
 public:
  Restore(base::Loop& loop, StartUp& start_up, const SyncIntake& syncs)
      : start_up_(start_up), syncs_(syncs), later_(loop) {}

  void run(Stream& stream, std::vector<std::string> paths, StartUp::Done done);
  void cancel() { later_.stop(); }                 // the stream ended
  uint64_t restored() const { return restored_; }  // paths, so far

 private:
  StartUp& start_up_;
  const SyncIntake& syncs_;
  uint64_t restored_ = 0;
  base::Timer later_;
};

}  // namespace moorage::link
