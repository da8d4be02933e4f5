// A long verb whose progress is told while it runs: lines {"progress":{...}}, at most ten a second,
// and a last line {"result":...} or {"error":...}. The verb goes on when the client leaves; its
// answer is kept under its idempotency key.
#pragma once

#include <functional>
#include <memory>

#include "daemon/exchange.h"
#include "workspace/requests.h"

namespace moorage::daemon {

// `begin` is called once the reply is being written, and must not block: it gives the verb to a
// pool, and `done` its reply, which may be an error, from any thread.
using Done = std::function<void(Reply)>;
std::unique_ptr<BodySource> stream_progress(
    std::function<void(const workspace::Progress&, const Done&)> begin);

}  // namespace moorage::daemon
