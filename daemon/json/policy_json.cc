#include "daemon/json/policy_json.h"

namespace moorage::daemon {
namespace {

constexpr int64_t kMost_s = 366LL * 86'400;
constexpr int64_t kMostHook_s = 600;
constexpr int64_t kMostTotal_s = 1000 * kMost_s;

}  // namespace

workspace::PolicyChange policy_change(JsonFields& fields) {
  workspace::PolicyChange change;
  if (auto limits = fields.object("limits")) {
    auto& to = change.to.limits;
    change.take("memory_bytes", limits->whole("memory_bytes", 0, INT64_MAX), to.memory_bytes);
    change.take("cpus", limits->number("cpus"), to.cpus);
    change.take("pids", limits->whole("pids", 0, UINT32_MAX), to.pids);
    change.take("disk_limit_bytes", limits->whole("disk_bytes", 0, INT64_MAX), to.disk_bytes);
    change.take("disk_limit_files", limits->whole("disk_files", 0, INT64_MAX), to.disk_files);
    limits->finish();
  }
  auto& to = change.to;
  change.take("idle_stop_s", fields.whole("idle_stop_s", -1, kMost_s), to.idle_stop_s);
  change.take("max_lifetime_s", fields.whole("max_lifetime_s", -1, kMost_s), to.max_lifetime_s);
  change.take("pre_stop", fields.command("pre_stop"), to.pre_stop);
  change.take("pre_stop_deadline_s", fields.whole("pre_stop_deadline_s", 1, kMostHook_s),
              to.pre_stop_deadline_s);
  change.take("max_exec_s", fields.whole("max_exec_s", 0, kMost_s), to.max_exec_s);
  change.take("max_execs", fields.whole("max_execs", 0, INT64_MAX), to.max_execs);
  change.take("max_exec_total_s", fields.whole("max_exec_total_s", 0, kMostTotal_s),
              to.max_exec_total_s);
  change.take("pinned", fields.given_flag("pinned"), to.pinned);
  change.take("caches", fields.byte_list("caches"), to.caches);
  change.take("snapshot_before_exec", fields.given_flag("snapshot_before_exec"),
              to.snapshot_before_exec);
  change.take("snapshot_on_stop", fields.given_flag("snapshot_on_stop"), to.snapshot_on_stop);
  change.take("snapshot_every_s", fields.whole("snapshot_every_s", 0, kMost_s),
              to.snapshot_every_s);
  change.take("network", fields.text("network"), to.network);
  change.take("push", fields.text("push"), to.push);
  change.take("push_refs", fields.byte_list("push_refs"), to.push_refs);
  return change;
}

void put_policy(JsonObject& object, const state_db::WorkspacePolicy& policy) {
  object["limits"] = {{"memory_bytes", policy.limits.memory_bytes},
                      {"cpus", policy.limits.cpus},
                      {"pids", policy.limits.pids},
                      {"disk_bytes", policy.limits.disk_bytes},
                      {"disk_files", policy.limits.disk_files}};
  object["idle_stop_s"] = policy.idle_stop_s;
  object["max_lifetime_s"] = policy.max_lifetime_s;
  if (!policy.pre_stop.empty()) {
    put_byte_list(object, "pre_stop", policy.pre_stop);
    object["pre_stop_deadline_s"] = policy.pre_stop_deadline_s;
  }
  object["max_exec_s"] = policy.max_exec_s;
  object["max_execs"] = policy.max_execs;
  object["max_exec_total_s"] = policy.max_exec_total_s;
  object["pinned"] = policy.pinned;
  put_byte_list(object, "caches", policy.caches);
  object["snapshot_before_exec"] = policy.snapshot_before_exec;
  object["snapshot_on_stop"] = policy.snapshot_on_stop;
  object["snapshot_every_s"] = policy.snapshot_every_s;
  object["network"] = policy.network;
  put_byte_list(object, "network_rules", policy.network_rules);
  object["push"] = policy.push;
  put_byte_list(object, "push_refs", policy.push_refs);
}

}  // namespace moorage::daemon
