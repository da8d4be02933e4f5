// Defaults of new workspaces' sandboxes (settings.h).
#pragma once

#include <cstdint>
#include <string>

namespace moorage::config {

struct SandboxSettings {
  std::string backend = "lxc";
  bool allow_process_backend = false;
  uint64_t memory_bytes = 4ULL << 30;
  double cpus = 2;
  uint32_t pids = 4096;
  int64_t start_deadline_s = 20;
  int64_t stop_grace_s = 5;
  bool sudo = true;
  std::string git_name{};  // author of commits by users without an own identity; empty: none
  std::string git_email{};
  uint32_t cpu_weight = 100;
  uint64_t disk_rate_bytes = 0;  // per second; 0: no limit
  bool nested_namespaces = false;
  int64_t idle_stop_s = 1800;  // 0: never
  int64_t max_lifetime_s = 0;  // 0: none
};

}  // namespace moorage::config
