#include "daemon/host_info.h"

#include "base/log.h"

namespace moorage::daemon {

InfoView look_at_host(const state_db::Store& store, backends::Registry& registry,
                      const backends::ProbeOptions& options) {
  InfoView info;
  info.version = MOORAGE_VERSION;
  info.store_id = store.store_id();
  info.store = options.store;
  info.kernel = backends::kernel_release();
  info.cgroup = backends::cgroup_kind();
  for (const auto& check : backends::probe_host(options)) {
    info.checks.push_back({check.name, check.ok, check.text, check.hint});
    if (check.ok) continue;
    base::log(base::LogLevel::warning, "host.check",
              {{"name", check.name}, {"found", check.text}, {"hint", check.hint}});
  }
  for (const auto& name : registry.names()) {
    const auto capabilities = registry.get(name).capabilities();
    info.backends.push_back({name, capabilities.usable, capabilities.reason,
                             std::string(backends::isolation_name(capabilities.isolation))});
  }
  return info;
}

}  // namespace moorage::daemon
