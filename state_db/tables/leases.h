// The writer leases: at most one per workspace, identified by an increasing generation. The holder
// proves a lease by its secret, of which only the SHA-256 is stored. Heartbeats stay in memory
// (workspace/access/leases.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"

namespace moorage::state_db {

class Store;

struct NewLease {
  base::WorkspaceId workspace{};
  std::string holder{};
  uint32_t holder_uid = 0;
  int64_t ttl_ms = 0;
  bool end_execs = false;  // end commands of the previous lease: marks them and sets `clearing`
  std::string secret_hash{};
  std::optional<std::string> request_key{};
};

struct LeaseRow {
  base::WorkspaceId workspace{};
  int64_t generation = 0;
  std::string holder{};
  uint32_t holder_uid = 0;
  int64_t ttl_ms = 0;
  int64_t acquired_wall_ms = 0;
  std::string ended{};        // "released", "lapsed", "deleted"; empty: it is held
  bool clearing = false;      // commands of the previous lease still run
  std::string secret_hash{};  // empty: from before leases had secrets; cannot be proved
  std::optional<std::string> request_key{};
  bool held() const { return ended.empty(); }
};

class LeaseTable {
 public:
  explicit LeaseTable(Store& store) : store_(store) {}

  // One commit: the next generation, its event ("lease.taken_over" over a held one, else
  // "lease.acquired"), and the cancel marks of running commands if `end_execs`.
  LeaseRow grant(const NewLease& lease);
  void end(base::WorkspaceId workspace, const std::string& how);  // with an event; only a held one
  void renew_secret(base::WorkspaceId workspace, const std::string& secret_hash);
  void set_cleared(base::WorkspaceId workspace);
  std::optional<LeaseRow> find(base::WorkspaceId workspace);
  std::vector<LeaseRow> list();  // of all workspaces that are not purged

 private:
  Store& store_;
};

}  // namespace moorage::state_db
