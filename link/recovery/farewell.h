// The end of a sandbox there, in order: its commands end, their last changes come, the machine is
// removed, or emptied and paused for the workspace's next sandbox. A step that fails leaves the
// rest as it is, and the daemon asks again. A machine that cannot be paused is removed.
#pragma once

#include <boost/json/object.hpp>
#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/os/event_loop.h"
#include "link/call.h"
#include "link/sync_intake.h"
#include "link/uplink.h"

namespace moorage::link {

class Farewell {
 public:
  // {"kept":bool,"why":"..."}: whether it is paused, or why not although that was wanted.
  using Done = std::function<void(const std::string& body, const Error* error)>;
  Farewell(base::Loop& loop, SyncIntake& syncs, Uplink& uplink)
      : loop_(loop), syncs_(syncs), uplink_(uplink) {}

  // As POST /moorage/shutdown asks: {"grace_ms"} between the two signals to its commands; "keep":
  // to pause it.
  void run(Stream& stream, const boost::json::object& request, Done done);
  void cancel() { call_.reset(); }  // the stream ended
  // From run() on, unless it failed.
  bool under_way() const { return under_way_; }

 private:
  void last_sync(const Done& done);
  void keep(const Done& done);
  void remove(const std::string& why, const Done& done);
  void fail(const Error& error, const Done& done);

  base::Loop& loop_;
  SyncIntake& syncs_;
  Uplink& uplink_;
  std::shared_ptr<Call> call_;
  bool under_way_ = false;
  bool keeps_ = false;
};

}  // namespace moorage::link
