#include "state_db/tables/integrity.h"

#include <array>

#include "base/clock.h"
#include "base/error.h"
#include "state_db/rows.h"
#include "state_db/store.h"

namespace moorage::state_db {
namespace {

constexpr std::array<std::string_view, 5> kNames{"", "intact", "changed-outside", "lost",
                                                 "needs-repair"};

IntegrityState state_of(const std::string& name) {
  const auto state = from_word<IntegrityState>(kNames, name);
  if (name.empty() || !state) throw Error(Code::corrupted, "state.db: unknown state " + name);
  return *state;
}

void read_row(Statement& query, IntegrityRow& row) {
  std::string state;
  query.read(state, row.reason, row.wall_ms, row.seal, row.sealed_wall_ms);
  row.state = state_of(state);
}

}  // namespace

std::string_view integrity_name(IntegrityState state) { return to_word(kNames, state); }

IntegrityRow IntegrityTable::get(base::WorkspaceId id) {
  Statement query = store_.prepare(
      "SELECT state, reason, wall_ms, seal, sealed_wall_ms FROM workspace_integrity "
      "WHERE workspace = ?");
  return query.first<IntegrityRow>(read_row, id).value_or(IntegrityRow{});
}

std::map<base::WorkspaceId, IntegrityRow> IntegrityTable::all() {
  Statement query = store_.prepare(
      "SELECT workspace, state, reason, wall_ms, seal, sealed_wall_ms FROM workspace_integrity");
  std::map<base::WorkspaceId, IntegrityRow> rows;
  base::WorkspaceId id;
  while (query.step()) {
    query.read(id);
    read_row(query, rows[id]);
  }
  return rows;
}

void IntegrityTable::set(base::WorkspaceId id, IntegrityState state, const std::string& reason) {
  store_.transaction([&] {
    const IntegrityRow before = get(id);
    change(store_,
           "INSERT INTO workspace_integrity (workspace, state, reason, wall_ms) VALUES (?1, ?2, "
           "?3, ?4) ON CONFLICT (workspace) DO UPDATE SET state = ?2, reason = ?3, wall_ms = ?4",
           id, integrity_name(state), reason, store_.clock().wall_ms());
    if (before.state == state && before.reason == reason) return;
    if (before.state == IntegrityState::unknown && reason.empty()) return;  // nothing to report
    const std::string name(integrity_name(state));
    store_.add_event("workspace.integrity", {.workspace = id},
                     reason.empty() ? name : name + ": " + reason);
  });
}

void IntegrityTable::set_seal(base::WorkspaceId id, const std::string& seal) {
  write(store_,
        "UPDATE workspace_integrity SET seal = ?2, "
        "sealed_wall_ms = CASE ?2 WHEN '' THEN sealed_wall_ms ELSE ?3 END WHERE workspace = ?1",
        id, seal, store_.clock().wall_ms());
}

void IntegrityTable::clear_seal(base::WorkspaceId id) {
  write(store_, "UPDATE workspace_integrity SET seal = '' WHERE workspace = ? AND seal <> ''", id);
}

void IntegrityTable::remove(base::WorkspaceId id) {
  write(store_, "DELETE FROM workspace_integrity WHERE workspace = ?", id);
}

std::vector<base::WorkspaceId> IntegrityTable::unsealed_at_rest() {
  Statement query = store_.prepare(
      "SELECT i.workspace FROM workspace_integrity i JOIN workspaces w ON w.id = i.workspace "
      "WHERE i.seal = '' AND i.sealed_wall_ms > 0 AND i.state = 'intact' AND w.state = 'ready' "
      "AND NOT EXISTS (SELECT 1 FROM sandboxes s WHERE s.workspace = w.id "
      "AND s.state NOT IN ('stopped','destroyed'))");
  return query.column<base::WorkspaceId>();
}

}  // namespace moorage::state_db
