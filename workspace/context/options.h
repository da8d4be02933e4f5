// The settings that verbs use, and the host's rules of placement. Plain data from config/, filled
// in by daemon/settings.cc.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/git_identity.h"
#include "base/ids.h"
#include "base/net/network_policy.h"
#include "layers/ids.h"

namespace moorage::workspace {

struct PlacementLimits {  // an unset limit is left alone
  std::optional<uint64_t> memory_bytes{};
  std::optional<double> cpus{};
  std::optional<uint32_t> pids{};
  std::optional<uint64_t> disk_bytes{};
};

// A rule of the host: where whose workspaces may run and how much they may use. Plain data from the
// configuration's `policy:`; workspace/access/placement.h gives its meaning.
struct PlacementRule {
  std::string name{};  // "policy rule 2 (/etc/moorage/moorage.yaml:14)"
  std::string text{};  // as in the file
  // Whose workspaces it applies to. Empty: all.
  std::vector<uint32_t> users{};   // their owners
  std::vector<uint32_t> groups{};  // any of the owner's
  std::map<std::string, std::string> labels{};
  // What it requires. Empty or unset: nothing.
  std::vector<std::string> backends{};
  std::optional<backends::Isolation> min_isolation{};
  std::string default_backend{};
  std::string default_runtime{};  // of that backend
  std::string default_image{};
  std::string default_network{};
  std::vector<std::string> networks{};
  std::vector<base::NetworkRule> hosts{};
  std::vector<base::NetworkRule> refuse_hosts{};
  PlacementLimits usual{};  // for new workspaces that name none
  PlacementLimits most{};
};

// The rules in force. A reload replaces them as a whole; a reader keeps the set that it took.
class PlacementRules {
 public:
  using Set = std::shared_ptr<const std::vector<PlacementRule>>;

  Set get() const {
    const std::lock_guard lock(mutex_);
    return set_;
  }
  void replace(Set set) {
    const std::lock_guard lock(mutex_);
    set_ = std::move(set);
  }

 private:
  mutable std::mutex mutex_;
  Set set_ = std::make_shared<const std::vector<PlacementRule>>();
};

struct Options {
  std::string store;  // /var/lib/moorage
  std::string uploads() const { return store + "/uploads"; }
  std::string lost() const { return store + "/lost"; }
  std::string sandbox_directory(const std::string& id) const { return store + "/sandboxes/" + id; }
  std::string archive_directory;  // may be another file system
  int archive_level = 3;          // for zstd
  unsigned archive_threads = 2;
  uint64_t import_max_bytes = 1ULL << 40;  // limit for an imported archive, unpacked
  uint64_t upload_max_bytes = 4ULL << 30;  // of a file or bundle
  uint32_t disk_first_id = 1'900'000'000;  // owners on disk, see layers/overlay.h
  uint32_t sandbox_first_id = 1'000'000'000;
  uint32_t sandbox_slots = 4096;
  uint32_t first_host_id(uint32_t slot) const {
    return sandbox_first_id + slot * layers::kIdsPerSandbox;
  }
  std::string default_backend = "lxc";
  std::string default_network = "none";
  std::string ca_file;                                // see certificates.h; empty: none
  std::string credential_key;                         // opens sealed secrets; outside of the store
  std::vector<std::string> networks{"none", "open"};  // all that a workspace may name
  std::shared_ptr<PlacementRules> placement_rules = std::make_shared<PlacementRules>();
  uint64_t memory_bytes = 4ULL << 30;
  double cpus = 2;
  uint32_t pids = 4096;
  bool sudo = true;
  std::chrono::milliseconds start_deadline{20'000};
  std::chrono::milliseconds stop_grace{5'000};
  base::GitIdentity git_author{};  // of commits by users without an own identity; may be empty
  std::chrono::milliseconds transfer_patience{30'000};  // wait for other users of the files
  std::chrono::milliseconds fetch_deadline{3'600'000};
  std::string ssh_config;                            // for upstream's ssh; empty: none
  std::chrono::milliseconds access_memory{300'000};  // how long upstream's yes to a user holds
  uint64_t output_limit_bytes = 1ULL << 30;          // on disk, for the journal of one command
  uint64_t workspace_output_bytes = 4ULL << 30;      // for all journals of a workspace; 0: no limit
  int64_t default_timeout_ms = 0;
  int64_t idle_stop_s = 1800;  // 0: never
  int64_t max_lifetime_s = 0;  // 0: no limit
  // Of one user's sandboxes on other machines, all together in 24 hours; 0: no limit.
  uint32_t remote_hours_a_day = 0;
  bool delete_losers = false;  // of a best-of with a promotion; undelete restores them
  int64_t undelete_window_ms = 7LL * 24 * 3600 * 1000;
  uint64_t min_free_bytes = 0;  // of the store's file system, see free_space.h; 0: default
  uint64_t min_free_inodes = 0;
  uint64_t disk_limit_bytes = 0;  // for new workspaces; 0: no limit
  uint64_t disk_limit_files = 0;
};

inline std::string journal_directory(const Options& options, base::WorkspaceId workspace,
                                     base::ExecId exec) {
  return options.store + "/workspaces/" + workspace.str() + "/journal/" + exec.str();
}
inline std::string journal_path(const Options& options, base::WorkspaceId workspace,
                                base::ExecId exec) {
  return journal_directory(options, workspace, exec) + "/output";
}

}  // namespace moorage::workspace
