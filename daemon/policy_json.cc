#include "daemon/policy_json.h"

namespace moorage::daemon {

workspace::PolicyChange policy_change(JsonFields& fields) {
  workspace::PolicyChange change;
  if (auto limits = fields.object("limits")) {
    auto& to = change.to.limits;
    change.take("memory_bytes", limits->whole("memory_bytes", 1, INT64_MAX), to.memory_bytes);
    change.take("cpus", limits->number("cpus"), to.cpus);
    change.take("pids", limits->whole("pids", 1, UINT32_MAX), to.pids);
    limits->finish();
  }
  return change;
}

void put_policy(JsonObject& object, const state_db::WorkspacePolicy& policy) {
  object["limits"] = {{"memory_bytes", policy.limits.memory_bytes},
                      {"cpus", policy.limits.cpus},
                      {"pids", policy.limits.pids}};
}

}  // namespace moorage::daemon
