#include "daemon/routes/policy_reload.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"

namespace moorage::daemon {
namespace {

// "policy[1]", or "policy" without any.
bool is_rule(const SettingView& setting) {
  return setting.name == "policy" || setting.name.starts_with("policy[");
}

// Names of those that differ; both lists have the other settings in one order.
std::vector<std::string> differing(const std::vector<SettingView>& before,
                                   const std::vector<SettingView>& after) {
  std::vector<std::string> names;
  for (const SettingView& setting : after) {
    if (is_rule(setting)) continue;
    const auto same = [&](const SettingView& one) {
      return one.name == setting.name && one.value == setting.value;
    };
    if (std::none_of(before.begin(), before.end(), same)) names.push_back(setting.name);
  }
  return names;
}

}  // namespace

ReloadView PolicyReload::run() {
  const std::lock_guard lock(mutex_);
  PolicyRead fresh = read_();
  workspace::check_rules(*fresh.rules, services_.context.backends.names());
  services_.context.options.placement_rules->replace(fresh.rules);
  const ReloadView done{fresh.rules->size(), differing(shown_, fresh.shown)};
  std::erase_if(shown_, is_rule);
  std::copy_if(fresh.shown.begin(), fresh.shown.end(), std::back_inserter(shown_), is_rule);
  for (const auto& running : services_.context.live.all())
    services_.networks.apply(running.workspace);
  base::log(base::LogLevel::info, "config.policy_reloaded",
            {{"rules", done.rules}, {"need_restart", done.need_restart.size()}});
  return done;
}

void PolicyReload::run_logged() {
  try {
    run();
  } catch (const base::Error& error) {
    base::log(base::LogLevel::error, "config.policy_not_reloaded",
              {{"error", error.message()}, {"effect", "the former rules hold"}});
  }
}

std::vector<SettingView> PolicyReload::shown() const {
  const std::lock_guard lock(mutex_);
  return shown_;
}

}  // namespace moorage::daemon
