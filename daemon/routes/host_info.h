// The constant parts of /v1/info: the probe's checks, the backends, and whether they are usable.
#pragma once

#include "backends/probe.h"
#include "backends/registry.h"
#include "daemon/json/json_views.h"
#include "state_db/store.h"

namespace moorage::daemon {

// Probes (about 10 ms), and logs a warning for each failed check.
InfoView look_at_host(const state_db::Store& store, backends::Registry& registry,
                      const backends::ProbeOptions& options);

// The current state of each: an engine may have started or stopped since.
std::vector<BackendView> look_at_backends(backends::Registry& registry);

}  // namespace moorage::daemon
