// Puts the section `policy` of the configuration file into effect without a restart: on SIGHUP, and
// by POST /v1/config/reload. A wrong file changes nothing and is refused with its line. Other
// settings need a restart: the answer names those that differ. Sandboxes keep running; new rules
// about hosts hold for them at once, the others from their next start on.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/json/json_views.h"
#include "workspace/services/services.h"

namespace moorage::daemon {

struct PolicyRead {
  workspace::PlacementRules::Set rules;
  std::vector<SettingView> shown;
};

class PolicyReload {
 public:
  // `read` reads the configuration again; it throws for a wrong one.
  PolicyReload(workspace::Services& services, std::vector<SettingView> shown,
               std::function<PolicyRead()> read)
      : services_(services), shown_(std::move(shown)), read_(std::move(read)) {}

  ReloadView run();
  void run_logged();                       // a failure is logged
  std::vector<SettingView> shown() const;  // the settings in force

 private:
  workspace::Services& services_;
  mutable std::mutex mutex_;
  std::vector<SettingView> shown_;
  const std::function<PolicyRead()> read_;
};

}  // namespace moorage::daemon
