// A long verb whose progress is told while it runs: lines {"progress":{...}}, at most ten a second,
// and a last line {"result":...} or {"error":...}. The verb goes on when the client leaves; its
// answer is kept under its idempotency key.
#pragma once

#include <functional>
#include <memory>

#include "daemon/exchange.h"
#include "daemon/lanes.h"
#include "workspace/requests.h"

namespace moorage::daemon {

// `verb` runs on the lane once the reply is being written; it must not throw (an error is a reply).
std::unique_ptr<BodySource> stream_progress(Lanes& lanes, Lane lane,
                                            std::function<Reply(const workspace::Progress&)> verb);

}  // namespace moorage::daemon
