// What /v1/info says of this host and what of it never changes while we run: the probe's checks,
// the backends and whether they can be used.
#pragma once

#include "backends/probe.h"
#include "backends/registry.h"
#include "daemon/json_views.h"
#include "state_db/store.h"

namespace moorage::daemon {

// Probes (about 10 ms), and warns in the log of each check that failed.
InfoView look_at_host(const state_db::Store& store, backends::Registry& registry,
                      const backends::ProbeOptions& options);

// What each can do now: an engine may have come or gone.
std::vector<BackendView> look_at_backends(backends::Registry& registry);

}  // namespace moorage::daemon
