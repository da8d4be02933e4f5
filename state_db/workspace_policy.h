// What a workspace may and may not do, as its owner wishes: set by create, changed by update, read
// and written as a whole. A field more is a member, a line in each_policy_field, and a column of
// its name (schema.sql, migrations.cc). It must have ==.
#pragma once

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

inline constexpr int64_t kAsConfigured = -1;  // as the setting of this name says

struct WorkspacePolicy {
  WorkspaceLimits limits{};  // of its sandboxes, from the next one on; those of the disk at once
  int64_t idle_stop_s = kAsConfigured;     // an idle sandbox is stopped after; 0: never
  int64_t max_lifetime_s = kAsConfigured;  // any sandbox is stopped after; 0: never
  std::vector<std::string> pre_stop{};     // command before a sandbox is stopped; empty: none
  int64_t pre_stop_deadline_s = 30;
  int64_t max_exec_s = 0;             // of one command; 0: no limit, as with the next two
  int64_t max_execs = 0;              // commands, ever
  int64_t max_exec_total_s = 0;       // wall time of all commands together, ever
  bool pinned = false;                // collection leaves it alone
  std::vector<std::string> caches{};  // inside paths that collection may remove at rest
  bool snapshot_before_exec = false;  // so that any command can be undone
  bool snapshot_on_stop = false;
  int64_t snapshot_every_s = 0;  // while it runs and works; 0: never
  bool operator==(const WorkspacePolicy&) const = default;
};

// Calls visit(name, field...) for each field, with that field of each of the policies given.
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
}

// A field's value for people, and for telling two requests apart.
std::string policy_text(bool value);
std::string policy_text(uint32_t value);
std::string policy_text(uint64_t value);
std::string policy_text(int64_t value);
std::string policy_text(double value);
std::string policy_text(const std::string& value);
std::string policy_text(const std::vector<std::string>& words);

// "memory_bytes 4294967296 -> 1073741824, pids 4096 -> 512"; empty: they are the same.
std::string policy_difference(const WorkspacePolicy& from, const WorkspacePolicy& to);

}  // namespace moorage::state_db
