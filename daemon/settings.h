// The options of every layer, made from the configuration. Only this file's source and main.cc see
// `config`.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "backends/probe.h"
#include "base/log.h"
#include "daemon/http/server.h"
#include "daemon/json/json_views.h"
#include "layers/store_image.h"
#include "workspace/services/services.h"

namespace moorage::config {
struct Loaded;
}

namespace moorage::daemon {

struct Settings {
  base::LogOptions log;
  std::vector<std::string> unknown_variables;  // MOORAGE_... that name no setting
  std::vector<SettingView> shown;              // for GET /v1/config
  layers::StoreImageOptions image;
  uint64_t reserve_bytes = 0;
  workspace::ServiceOptions services;  // without backends.name_prefix, which needs the store's id
  backends::ProbeOptions probe;
  std::string socket;
  std::string group;   // may connect to it
  size_t threads = 1;  // per lane
  Limits limits;
  std::chrono::seconds sync_interval{0};
  std::chrono::seconds reconcile_interval{0};

  // Reads the configuration again, as at the start; throws for a wrong one.
  std::function<Settings()> read_again{};

  const std::string& store() const { return services.workspace.store; }
};

Settings settings_of(const config::Loaded& loaded);

}  // namespace moorage::daemon
