// The end of a sandbox there, in order: its commands end, their last changes come, the machine is
// removed. A step that fails leaves the rest as it is, and the daemon asks again.
#pragma once

#include <boost/json/object.hpp>
#include <functional>
#include <memory>

#include "base/error.h"
#include "base/os/event_loop.h"
#include "link/call.h"
#include "link/sync_intake.h"
#include "link/uplink.h"

namespace moorage::link {

class Farewell {
 public:
  using Done = std::function<void(const Error* error)>;
  Farewell(base::Loop& loop, SyncIntake& syncs, Uplink& uplink)
      : loop_(loop), syncs_(syncs), uplink_(uplink) {}

  // As POST /moorage/shutdown asks: {"grace_ms"} between the two signals to its commands.
  void run(Stream& stream, const boost::json::object& request, Done done);
  void cancel() { stop_.reset(); }  // the stream ended
  // From run() on, unless it failed.
  bool under_way() const { return under_way_; }

 private:
  void last_sync(const Done& done);
  void remove(const Done& done);
  void fail(const Error& error, const Done& done);

  base::Loop& loop_;
  SyncIntake& syncs_;
  Uplink& uplink_;
  std::shared_ptr<Call> stop_;
  bool under_way_ = false;
};

}  // namespace moorage::link
