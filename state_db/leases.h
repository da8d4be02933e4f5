// The writer leases: at most one a workspace, told apart by a generation that only grows. The
// holder proves a lease by its secret, of which only the SHA-256 is kept. Heartbeats are not
// written here: workspace/leases.h keeps them in memory.
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
  bool end_execs = false;  // what runs under the lease before is to end: marked, and `clearing`
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
  bool clearing = false;      // what ran under the lease before has not ended yet
  std::string secret_hash{};  // empty: acquired before leases had secrets, nobody can prove it
  std::optional<std::string> request_key{};
  bool held() const { return ended.empty(); }
};

class Leases {
 public:
  explicit Leases(Store& store) : store_(store) {}

  // One commit: the next generation, its event ("lease.taken_over" over a held one, else
  // "lease.acquired"), and the cancel marks of what runs, if it is to end.
  LeaseRow grant(const NewLease& lease);
  void end(base::WorkspaceId workspace, const std::string& how);  // with an event; only a held one
  void renew_secret(base::WorkspaceId workspace, const std::string& secret_hash);
  void set_cleared(base::WorkspaceId workspace);
  std::optional<LeaseRow> find(base::WorkspaceId workspace);
  std::vector<LeaseRow> list();  // all there ever were, but those of purged workspaces

 private:
  Store& store_;
};

}  // namespace moorage::state_db
