// The end of the warden: SIGTERM to every process, SIGKILL after the grace period, the last journal
// frames, an answer to the requester; then the loop stops.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "warden/io/connection.h"
#include "warden/io/loop.h"

namespace moorage::warden {

class Shutdown {
 public:
  struct Checks {
    std::function<bool()> childless;
    std::function<bool()> recorded;  // every exec's end is in its journal
  };
  Shutdown(Loop& loop, Checks checks) : loop_(loop), checks_(std::move(checks)), step_(loop) {}
  void begin(std::chrono::milliseconds grace, const std::shared_ptr<Connection>& asked);

 private:
  void step();

  Loop& loop_;
  Checks checks_;
  Timer step_;
  int64_t kill_at_ms_ = 0;
  std::vector<std::weak_ptr<Connection>> asked_;
};

}  // namespace moorage::warden
