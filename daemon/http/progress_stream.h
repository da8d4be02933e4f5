// A long verb that reports progress while it runs: lines {"progress":{...}}, at most ten a second,
// and a last line {"result":...} or {"error":...}. The verb continues if the client leaves; its
// answer is kept under its idempotency key.
#pragma once

#include <functional>
#include <memory>

#include "daemon/http/exchange.h"
#include "workspace/verbs/requests.h"

namespace moorage::daemon {

// Calls `begin` once the reply is being written. `begin` must not block: it submits the verb to a
// pool, which passes the reply or an error to `done` from any thread.
using Done = std::function<void(Reply)>;
std::unique_ptr<BodySource> stream_progress(
    std::function<void(const workspace::Progress&, const Done&)> begin);

}  // namespace moorage::daemon
