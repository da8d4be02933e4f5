#include "daemon/policy_json.h"

namespace moorage::daemon {
namespace {

constexpr int64_t kMost_s = 366LL * 86'400;

}  // namespace

workspace::PolicyChange policy_change(JsonFields& fields) {
  workspace::PolicyChange change;
  if (auto limits = fields.object("limits")) {
    auto& to = change.to.limits;
    change.take("memory_bytes", limits->whole("memory_bytes", 1, INT64_MAX), to.memory_bytes);
    change.take("cpus", limits->number("cpus"), to.cpus);
    change.take("pids", limits->whole("pids", 1, UINT32_MAX), to.pids);
    limits->finish();
  }
  auto& to = change.to;
  change.take("idle_stop_s", fields.whole("idle_stop_s", -1, kMost_s), to.idle_stop_s);
  change.take("max_lifetime_s", fields.whole("max_lifetime_s", -1, kMost_s), to.max_lifetime_s);
  return change;
}

void put_policy(JsonObject& object, const state_db::WorkspacePolicy& policy) {
  object["limits"] = {{"memory_bytes", policy.limits.memory_bytes},
                      {"cpus", policy.limits.cpus},
                      {"pids", policy.limits.pids}};
  object["idle_stop_s"] = policy.idle_stop_s;
  object["max_lifetime_s"] = policy.max_lifetime_s;
}

}  // namespace moorage::daemon
