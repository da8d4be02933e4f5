// GET /v1/du: waits, without a thread, for a look at the store that is as of now
// (workspace/store_usage.h), and tells the caller's part of it.
#pragma once

#include <memory>
#include <optional>

#include "daemon/exchange.h"
#include "daemon/routes.h"

namespace moorage::daemon {

// `only`: one workspace of the caller, else all of them.
std::unique_ptr<BodySource> tell_disk_usage(Api& api, const workspace::Caller& caller,
                                            std::optional<base::WorkspaceId> only);

}  // namespace moorage::daemon
