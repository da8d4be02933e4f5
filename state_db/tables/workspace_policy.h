// The owner's rules for a workspace: set by create, changed by update, read and written as a whole.
// To add a field, add a member with ==, a line in each_policy_field, and a column of that name
// (schema.sql, migrations.cc).
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <vector>

namespace moorage::state_db {

struct WorkspaceLimits {
  uint64_t memory_bytes = 0;
  double cpus = 0;
  uint32_t pids = 0;
  uint64_t disk_bytes = 0;  // of its layers; 0: none
  uint64_t disk_files = 0;  // inodes
  bool operator==(const WorkspaceLimits&) const = default;
};

inline constexpr int64_t kAsConfigured = -1;  // use the setting of this name

struct WorkspacePolicy {
  WorkspaceLimits limits{};  // of its sandboxes, from the next one on; disk limits apply at once
  int64_t idle_stop_s = kAsConfigured;     // stop a sandbox idle for so long; 0: never
  int64_t max_lifetime_s = kAsConfigured;  // stop any sandbox after so long; 0: never
  std::vector<std::string> pre_stop{};     // command to run before a sandbox stops; empty: none
  int64_t pre_stop_deadline_s = 30;
  int64_t max_exec_s = 0;             // of one command; 0: no limit, as for the next two
  int64_t max_execs = 0;              // total number of commands
  int64_t max_exec_total_s = 0;       // total wall time of all commands
  bool pinned = false;                // exempt from collection
  std::vector<std::string> caches{};  // inside paths that collection may remove when idle
  bool snapshot_before_exec = false;  // so that any command can be undone
  bool snapshot_on_stop = false;
  int64_t snapshot_every_s = 0;              // while it runs and works; 0: never
  std::string network{};                     // none, or the name of a preset; empty: as configured
  std::vector<std::string> network_rules{};  // before the preset's: "allow github.com:22"
  std::string push = "ask";                  // by git, where TLS ends outside: refuse, ask, allow
  std::vector<std::string> push_refs{};      // patterns of refs; empty: refs/heads/*
  bool operator==(const WorkspacePolicy&) const = default;
};

// Calls visit(name, field...) for each field, with that field of each given policy.
template <typename Visit, typename... Policies>
void each_policy_field(const Visit& visit, Policies&... policies) {
  visit("memory_bytes", policies.limits.memory_bytes...);
  visit("cpus", policies.limits.cpus...);
  visit("pids", policies.limits.pids...);
  visit("idle_stop_s", policies.idle_stop_s...);
  visit("max_lifetime_s", policies.max_lifetime_s...);
  visit("pre_stop", policies.pre_stop...);
  visit("pre_stop_deadline_s", policies.pre_stop_deadline_s...);
  visit("max_exec_s", policies.max_exec_s...);
  visit("max_execs", policies.max_execs...);
  visit("max_exec_total_s", policies.max_exec_total_s...);
  visit("disk_limit_bytes", policies.limits.disk_bytes...);
  visit("disk_limit_files", policies.limits.disk_files...);
  visit("pinned", policies.pinned...);
  visit("caches", policies.caches...);
  visit("snapshot_before_exec", policies.snapshot_before_exec...);
  visit("snapshot_on_stop", policies.snapshot_on_stop...);
  visit("snapshot_every_s", policies.snapshot_every_s...);
  visit("network", policies.network...);
  visit("network_rules", policies.network_rules...);
  visit("push", policies.push...);
  visit("push_refs", policies.push_refs...);
}

// A field's value for people, also used to compare two requests.
std::string policy_text(bool value);
std::string policy_text(std::integral auto value) { return std::to_string(value); }
std::string policy_text(double value);
std::string policy_text(const std::string& value);
std::string policy_text(const std::vector<std::string>& words);

// "memory_bytes 4294967296 -> 1073741824, pids 4096 -> 512"; empty: no difference.
std::string policy_difference(const WorkspacePolicy& from, const WorkspacePolicy& to);

}  // namespace moorage::state_db
