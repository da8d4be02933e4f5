// GET /v1/du: waits, without a thread, for an up-to-date measurement of the store
// (workspace/upkeep/store_usage.h) and returns the caller's part of it.
#pragma once

#include <memory>
#include <optional>

#include "daemon/http/exchange.h"
#include "daemon/routes/routes.h"

namespace moorage::daemon {

// `only`: one workspace of the caller; otherwise all of them.
std::unique_ptr<BodySource> tell_disk_usage(Api& api, const workspace::Caller& caller,
                                            std::optional<base::WorkspaceId> only);

}  // namespace moorage::daemon
