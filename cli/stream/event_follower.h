// Reads the daemon's event log and, with `follow`, waits for new events, across restarts of the
// daemon.
#pragma once

#include <functional>
#include <string>

#include "cli/client/context.h"

namespace moorage::cli {

struct EventsWanted {
  std::string since = "0";  // only events after this number
  bool follow = false;
};

// `take` gets each event, parsed and as it came.
void read_events(Context& context, const EventsWanted& wanted,
                 const std::function<void(const Json& event, const std::string& text)>& take);

}  // namespace moorage::cli
