#include "daemon/routes/host_info.h"

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
  info.backends = look_at_backends(registry);
  return info;
}

std::vector<BackendView> look_at_backends(backends::Registry& registry) {
  std::vector<BackendView> views;
  for (const auto& name : registry.names()) {
    const auto can = registry.get(name).capabilities();
    const std::string isolation(backends::isolation_name(can.isolation));
    BackendView& view =
        views.emplace_back(BackendView{name, can.usable, can.reason, isolation, {}});
    for (const auto& [runtime, its] : can.runtimes)
      view.runtimes[runtime] = backends::isolation_name(its);
  }
  return views;
}

}  // namespace moorage::daemon
