// Every setting of the daemon, with its default and its unit in its name. A group is a section of
// the YAML file. Ranges, help texts and names: config/table.cc. Only daemon/settings.cc reads it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "config/network_presets.h"
#include "config/network_settings.h"
#include "config/policy_rules.h"
#include "config/remote_backends.h"
#include "config/sandbox_settings.h"

namespace moorage::config {

struct StoreSettings {
  std::string directory = "/var/lib/moorage";
  std::string image{};       // empty: store data directly in the directory
  uint64_t image_bytes = 0;  // allocated at once
  uint64_t reserve_bytes = 16ULL << 20;
  uint64_t min_free_bytes = 0;  // 0: 1 GiB, or 2 % of the disk if less
  uint64_t min_free_inodes = 0;
  std::string disk_quota = "auto";  // auto, watched
  uint64_t budget_bytes = 0;        // 0: none
  uint64_t budget_files = 0;
};

struct ApiSettings {
  std::string socket = "/run/moorage/mooraged.sock";
  std::string group = "moorage";
  uint32_t max_connections = 512;
  uint64_t max_body_bytes = 4ULL << 30;  // streams: files, bundles, standard input
  uint64_t max_json_bytes = 4ULL << 20;
};

struct LogSettings {
  std::string level = "info";  // debug, info, warning, error
  bool json = false;
  std::string file{};  // empty: standard error
};

struct RepoSettings {
  std::vector<std::string> file_roots{};  // parents of local repositories that may be cloned
  int64_t fetch_deadline_s = 3600;
  uint64_t max_fetch_bytes = 20ULL << 30;
  uint64_t max_git_memory_bytes = 4ULL << 30;
  uint64_t max_objects = 50'000'000;
  uint32_t checkout_threads = 0;  // 0: number of CPUs
  std::string https_proxy{};      // empty: none
  std::vector<std::string> no_proxy{};
  std::string ca_file{};      // empty: the system's
  std::string ssh_config{};   // empty: none
  int64_t access_s = 300;     // how long upstream's yes to a user holds
  uint64_t budget_bytes = 0;  // of one repository; 0: none
};

struct IdSettings {
  uint32_t disk_first_id = 1'900'000'000;
  uint32_t sandbox_first_id = 1'000'000'000;
  uint32_t sandbox_slots = 4096;
};

struct DockerSettings {
  std::string socket = "/var/run/docker.sock";
  std::string runtime{};  // empty: the engine's default
};

struct ExecSettings {
  uint64_t output_limit_bytes = 1ULL << 30;
  int64_t default_timeout_s = 0;  // 0: none
};

struct WorkspaceSettings {
  int64_t undelete_window_s = 604'800;
  bool delete_losers = false;
  uint64_t disk_limit_bytes = 20ULL << 30;  // 0: none
  uint64_t disk_limit_files = 2'000'000;
  int64_t sync_interval_s = 5;
  uint64_t output_limit_bytes = 4ULL << 30;  // 0: none
  int64_t output_keep_s = 0;                 // 0: forever
};

struct UserSettings {
  uint64_t budget_bytes = 0;  // of one user's workspaces; 0: none
};

struct GcSettings {
  int64_t archive_after_s = 7LL * 86'400;
  int64_t keep_unused_s = 600;
};

struct ArchiveSettings {
  std::string directory{};  // empty: archive/ in the store
  uint32_t level = 3;       // of zstd
  uint32_t threads = 2;
  uint64_t import_max_bytes = 1ULL << 40;
};

struct ReplicaSettings {
  std::string directory{};  // empty: no replica
  int64_t interval_s = 20;
  bool same_disk = false;
};

struct DaemonSettings {
  uint32_t threads = 16;
  int64_t reconcile_interval_s = 15;
};

struct Settings {
  StoreSettings store{};
  ApiSettings api{};
  LogSettings log{};
  RepoSettings repo{};
  IdSettings ids{};
  SandboxSettings sandbox{};
  NetworkSettings network{};
  DockerSettings docker{};
  RemoteSettings remote{};
  ExecSettings exec{};
  WorkspaceSettings workspace{};
  UserSettings user{};
  GcSettings gc{};
  ArchiveSettings archive{};
  ReplicaSettings replica{};
  DaemonSettings daemon{};
  std::vector<PolicyRule> policy{};
  RemoteBackends backends{};
  std::map<std::string, NetworkPreset> network_presets{};  // load() reads them
  std::string libexec_directory{};  // load() finds it near the program if unset
};

}  // namespace moorage::config
