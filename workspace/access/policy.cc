#include "workspace/access/policy.h"

#include "base/error.h"
#include "base/limit_ranges.h"
#include "base/net/push_policy.h"
#include "layers/declared_caches.h"

namespace moorage::workspace {
namespace {

constexpr size_t kMaxHookBytes = 16 << 10;
constexpr size_t kMostPatterns = 100;

int64_t value_or(int64_t value, int64_t configured) {
  return value == state_db::kAsConfigured ? configured : value;
}
constexpr int64_t kMinSnapshotEvery_s = 10;

}  // namespace

void check_policy(const PolicyChange& change) {
  const auto refuse_if = [&](const char* name, bool wrong, const char* why) {
    if (change.named.contains(name) && wrong) throw Error(Code::invalid_argument, why);
  };
  const auto& limits = change.to.limits;
  refuse_if(
      "memory_bytes",
      limits.memory_bytes < base::kLeastMemoryBytes || limits.memory_bytes > base::kMostMemoryBytes,
      "limits.memory_bytes must be from 16M to 1024T");
  refuse_if("cpus", !(limits.cpus >= base::kLeastCpus && limits.cpus <= base::kMostCpus),
            "limits.cpus must be from 0.01 to 4096");
  refuse_if("pids", limits.pids < base::kLeastPids || limits.pids > base::kMostPids,
            "limits.pids must be from 4 to 4194304");
  const auto& words = change.to.pre_stop;
  size_t bytes = 0;
  bool nul = false;
  for (const auto& word : words) {
    bytes += word.size() + 1;
    nul = nul || word.find('\0') != std::string::npos;
  }
  refuse_if("pre_stop", bytes > kMaxHookBytes, "pre_stop is longer than 16 KiB");
  refuse_if("pre_stop", nul, "pre_stop must not contain a NUL byte");
  refuse_if("pre_stop", !words.empty() && words.front().empty(), "pre_stop: the command is empty");
  refuse_if("disk_limit_bytes",
            limits.disk_bytes > 0 && (limits.disk_bytes < base::kLeastDiskBytes ||
                                      limits.disk_bytes > base::kMostDiskBytes),
            "limits.disk_bytes must be from 1M to 1024T, or 0 for no limit");
  refuse_if("disk_limit_files",
            limits.disk_files > 0 && (limits.disk_files < base::kLeastDiskFiles ||
                                      limits.disk_files > base::kMostDiskFiles),
            "limits.disk_files must be from 100 to 4000000000, or 0 for no limit");
  refuse_if("snapshot_every_s",
            change.to.snapshot_every_s > 0 && change.to.snapshot_every_s < kMinSnapshotEvery_s,
            "snapshot_every_s must be at least 10, or 0 for never");
  const std::string& push = change.to.push;
  refuse_if("push", push != "refuse" && push != "ask" && push != "allow",
            "push must be refuse, ask or allow");
  refuse_if("push_refs", change.to.push_refs.size() > kMostPatterns,
            "push_refs has more than 100 patterns");
  if (change.named.contains("push_refs")) {
    for (const std::string& pattern : change.to.push_refs) base::check_ref_pattern(pattern);
  }
  if (change.named.contains("caches")) layers::check_cache_paths(change.to.caches);
}

state_db::WorkspacePolicy effective_policy(const state_db::WorkspacePolicy& policy,
                                           const Options& options) {
  state_db::WorkspacePolicy effective = policy;
  effective.idle_stop_s = value_or(policy.idle_stop_s, options.idle_stop_s);
  effective.max_lifetime_s = value_or(policy.max_lifetime_s, options.max_lifetime_s);
  return effective;
}

void apply_policy(const PolicyChange& change, state_db::WorkspacePolicy& policy) {
  state_db::each_policy_field(
      [&](const char* name, auto& field, const auto& wanted) {
        if (change.named.contains(name)) field = wanted;
      },
      policy, change.to);
}

std::string policy_hash_text(const PolicyChange& change) {
  std::string all;
  state_db::each_policy_field(
      [&](const char* name, const auto& wanted) {
        if (!change.named.contains(name)) return;
        const std::string text = std::string(name) + "=" + state_db::policy_text(wanted);
        all += std::to_string(text.size()) + ":" + text;
      },
      change.to);
  return all;
}

}  // namespace moorage::workspace
