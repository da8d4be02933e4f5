#include "state_db/tables/leases.h"

#include "base/clock.h"
#include "base/os/accounts.h"
#include "state_db/rows.h"
#include "state_db/store.h"

namespace moorage::state_db {
namespace {

constexpr std::string_view kSelect =
    "SELECT workspace, generation, holder, holder_uid, ttl_ms, acquired_wall_ms, ended, clearing, "
    "secret_hash, request_key FROM leases WHERE ";

void read_row(Statement& query, LeaseRow& row) {
  query.read(row.workspace, row.generation, row.holder, row.holder_uid, row.ttl_ms,
             row.acquired_wall_ms, row.ended, row.clearing, row.secret_hash, row.request_key);
}

std::string told(const std::string& holder, uint32_t uid, int64_t generation) {
  return holder + " (" + base::user_name(uid) + ", lease " + std::to_string(generation) + ")";
}

}  // namespace

LeaseRow LeaseTable::grant(const NewLease& lease) {
  return store_.transaction([&] {
    const auto before = find(lease.workspace);
    const int64_t generation = before ? before->generation + 1 : 1;
    const bool clearing = lease.end_execs || (before && before->clearing);
    insert(store_,
           "INSERT OR REPLACE INTO leases (workspace, generation, holder, holder_uid, ttl_ms, "
           "acquired_wall_ms, ended, clearing, secret_hash, request_key)",
           lease.workspace, generation, lease.holder, lease.holder_uid, lease.ttl_ms,
           store_.clock().wall_ms(), "", clearing, lease.secret_hash, lease.request_key);
    if (lease.end_execs) {
      change(store_,
             "UPDATE execs SET cancel_requested = 1, reason = ? WHERE state = 'running' "
             "AND workspace = ? AND cancel_requested = 0",
             "the lease was taken over by " + lease.holder, lease.workspace);
    }
    const bool over = before && before->held();
    std::string text = told(lease.holder, lease.holder_uid, generation);
    if (over) text += " from " + told(before->holder, before->holder_uid, before->generation);
    store_.add_event(over ? "lease.taken_over" : "lease.acquired", {.workspace = lease.workspace},
                     text);
    return *find(lease.workspace);
  });
}

void LeaseTable::end(base::WorkspaceId workspace, const std::string& how) {
  store_.transaction([&] {
    const auto row = find(workspace);
    if (!row || !row->held()) return;
    change(store_, "UPDATE leases SET ended = ? WHERE workspace = ?", how, workspace);
    store_.add_event("lease." + how, {.workspace = workspace},
                     told(row->holder, row->holder_uid, row->generation));
  });
}

void LeaseTable::renew_secret(base::WorkspaceId workspace, const std::string& secret_hash) {
  write(store_, "UPDATE leases SET secret_hash = ? WHERE workspace = ?", secret_hash, workspace);
}

void LeaseTable::set_cleared(base::WorkspaceId workspace) {
  write(store_, "UPDATE leases SET clearing = 0 WHERE workspace = ?", workspace);
}

std::optional<LeaseRow> LeaseTable::find(base::WorkspaceId workspace) {
  Statement query = store_.prepare(std::string(kSelect) + "workspace = ?");
  return query.first<LeaseRow>(read_row, workspace);
}

std::vector<LeaseRow> LeaseTable::list() {
  Statement query = store_.prepare(
      std::string(kSelect) +
      "workspace NOT IN (SELECT id FROM workspaces WHERE purged_wall_ms IS NOT NULL) ORDER BY "
      "workspace");
  return query.all<LeaseRow>(read_row);
}

}  // namespace moorage::state_db
