#include "state_db/tables/sandboxes.h"

#include <algorithm>
#include <set>

#include "base/clock.h"
#include "base/error.h"
#include "base/os/process.h"
#include "state_db/rows.h"
#include "state_db/store.h"

namespace moorage::state_db {

namespace {

constexpr std::string_view kSelect =
    "SELECT sandboxes.id, workspace, backend, image, slot, state, reason, init_pid, "
    "init_start_ticks, boot_id, tree_device, home_device, created_wall_ms, started_wall_ms, "
    "ended_wall_ms, runtime, isolation, first_host_id, standby FROM sandboxes "
    "LEFT JOIN id_ranges ON id_ranges.sandbox = sandboxes.id WHERE ";

std::vector<SandboxRow> select(Store& store, std::string_view where, const auto&... values) {
  const auto read_row = [&](Statement& query, SandboxRow& row) {
    query.read(row.id, row.workspace, row.backend, row.image, row.slot, row.state, row.reason,
               row.init.pid, row.init.start_ticks, row.boot_id, row.tree_device, row.home_device,
               row.created_wall_ms, row.started_wall_ms, row.ended_wall_ms, row.runtime,
               row.isolation, row.first_host_id, row.standby);
    row.name = "moorage-" + store.store_id() + "-" + row.id.str();
  };
  return store.prepare(std::string(kSelect) + std::string(where))
      .all<SandboxRow>(read_row, values...);
}

// The lowest slot of this pool whose ids are free. Older sandboxes may come from a pool at another
// place.
uint32_t lowest_free_slot(Store& store, const NewSandbox& wanted) {
  Statement query = store.prepare(
      "SELECT slot, first_host_id FROM id_ranges JOIN sandboxes ON sandboxes.id = sandbox");
  std::set<uint64_t> taken;
  const uint64_t pool = wanted.pool_first_id;
  while (query.step()) {
    uint64_t slot = 0;
    uint64_t first = 0;
    query.read(slot, first);
    taken.insert(slot);
    const uint64_t last = first + kIdsOfSandbox - 1;
    if (last < pool) continue;
    taken.insert((std::max(first, pool) - pool) / kIdsOfSandbox);
    taken.insert((last - pool) / kIdsOfSandbox);
  }
  uint32_t slot = 0;
  while (taken.contains(slot)) ++slot;
  if (slot < wanted.slots) return slot;
  throw Error(Code::resource_exhausted,
              "all " + std::to_string(wanted.slots) + " id ranges are in use by sandboxes",
              "stop workspaces that you do not need, or raise ids.sandbox_slots");
}

void end(Store& store, base::SandboxId id, SandboxState from, SandboxState to,
         std::string_view reason) {
  store.transaction([&] {
    store.move(id, from, to, reason);
    change(store, "UPDATE sandboxes SET ended_wall_ms = ? WHERE id = ? AND ended_wall_ms = 0",
           store.clock().wall_ms(), id);
  });
}

}  // namespace

SandboxRow SandboxTable::create(const NewSandbox& wanted) {
  return store_.transaction([&] {
    const auto present = live(wanted.workspace);
    if (present && !wanted.standby) {
      throw Error(Code::conflict, wanted.workspace.str() + " already has " + present->id.str() +
                                      ", which is " + std::string(state_name(present->state)));
    }
    const uint32_t slot = lowest_free_slot(store_, wanted);
    const uint32_t first_host_id = wanted.first_host_id != 0
                                       ? wanted.first_host_id
                                       : wanted.pool_first_id + slot * kIdsOfSandbox;
    const base::SandboxId id{
        insert(store_,
               "INSERT INTO sandboxes (workspace, backend, image, state, boot_id, created_wall_ms, "
               "runtime, isolation, first_host_id, standby)",
               wanted.workspace, wanted.backend, wanted.image, LifeCycle<SandboxState>::kFirst,
               base::boot_id(), store_.clock().wall_ms(), wanted.runtime, wanted.isolation,
               first_host_id, wanted.standby)};
    insert(store_, "INSERT INTO id_ranges (slot, sandbox)", slot, id);
    store_.record_new<SandboxState>(id);
    return get(id);
  });
}

base::SandboxId SandboxTable::add_past(const NewSandbox& past, std::string_view reason) {
  return store_.transaction([&] {
    const base::SandboxId id{
        insert(store_,
               "INSERT INTO sandboxes (workspace, backend, image, state, boot_id, created_wall_ms)",
               past.workspace, past.backend, past.image, LifeCycle<SandboxState>::kFirst,
               base::boot_id(), store_.clock().wall_ms())};
    store_.record_new<SandboxState>(id);
    set_lost(id, SandboxState::starting, reason);
    set_destroyed(id, SandboxState::lost, reason);
    return id;
  });
}

void SandboxTable::set_running(base::SandboxId id, const SandboxStart& start) {
  store_.transaction([&] {
    store_.move(id, SandboxState::starting, SandboxState::running);
    change(store_,
           "UPDATE sandboxes SET init_pid = ?, init_start_ticks = ?, tree_device = ?, "
           "home_device = ?, started_wall_ms = ?, standby = 0 WHERE id = ?",
           start.init.pid, start.init.start_ticks, start.tree_device, start.home_device,
           store_.clock().wall_ms(), id);
  });
}

void SandboxTable::set_first_host_id(base::SandboxId id, uint32_t first_host_id) {
  write(store_, "UPDATE sandboxes SET first_host_id = ? WHERE id = ?", first_host_id, id);
}

void SandboxTable::set_init(base::SandboxId id, const SandboxStart& start) {
  write(store_,
        "UPDATE sandboxes SET init_pid = ?, init_start_ticks = ?, boot_id = ?, tree_device = ?, "
        "home_device = ? WHERE id = ?",
        start.init.pid, start.init.start_ticks, base::boot_id(), start.tree_device,
        start.home_device, id);
}

void SandboxTable::set_devices(base::SandboxId id, uint64_t tree, uint64_t home) {
  write(store_, "UPDATE sandboxes SET tree_device = ?, home_device = ? WHERE id = ?", tree, home,
        id);
}

void SandboxTable::set_stopped(base::SandboxId id, std::string_view reason) {
  end(store_, id, SandboxState::stopping, SandboxState::stopped, reason);
}

void SandboxTable::set_lost(base::SandboxId id, SandboxState from, std::string_view reason) {
  end(store_, id, from, SandboxState::lost, reason);
}

void SandboxTable::set_destroyed(base::SandboxId id, SandboxState from, std::string_view reason) {
  store_.transaction([&] {
    const std::string why = reason.empty() ? get(id).reason : std::string(reason);
    end(store_, id, from, SandboxState::destroyed, why);
    change(store_, "DELETE FROM id_ranges WHERE sandbox = ?", id);
  });
}

SandboxRow SandboxTable::get(base::SandboxId id) { return require_row(find(id), id); }

std::optional<SandboxRow> SandboxTable::find(base::SandboxId id) {
  return only(select(store_, "sandboxes.id = ?", id));
}

std::optional<SandboxRow> SandboxTable::live(base::WorkspaceId workspace) {
  return only(select(
      store_, "workspace = ? AND state NOT IN ('stopped','destroyed') AND standby = 0", workspace));
}

std::optional<SandboxRow> SandboxTable::last_ended(base::WorkspaceId workspace) {
  return only(select(store_,
                     "workspace = ? AND started_wall_ms > 0 AND ended_wall_ms > 0 "
                     "ORDER BY sandboxes.id DESC LIMIT 1",
                     workspace));
}

std::optional<SandboxRow> SandboxTable::last(base::WorkspaceId workspace) {
  return only(select(store_, "workspace = ? ORDER BY sandboxes.id DESC LIMIT 1", workspace));
}

std::vector<SandboxRow> SandboxTable::of_workspace(base::WorkspaceId workspace) {
  return select(store_, "workspace = ? ORDER BY sandboxes.id", workspace);
}

std::vector<SandboxRow> SandboxTable::in_state(SandboxState state) {
  return select(store_, "state = ? ORDER BY sandboxes.id", state);
}

SandboxTable::Counts SandboxTable::count_by_state() {
  return state_db::count_by_state<SandboxState, Counts>(
      store_, "SELECT state, count(*) FROM sandboxes WHERE state <> 'destroyed' GROUP BY state");
}

int64_t SandboxTable::lived_ms(uint32_t owner_uid, const std::vector<std::string>& backends,
                               int64_t since_wall_ms) {
  const int64_t now_ms = store_.clock().wall_ms();
  int64_t lived_ms = 0;
  for (const std::string& backend : backends) {
    // A clock that was set back must not make it negative.
    Statement query = store_.prepare(
        "SELECT sum(max(0, iif(ended_wall_ms = 0, ?, ended_wall_ms) - "
        "max(sandboxes.created_wall_ms, "
        "?))) FROM sandboxes JOIN workspaces ON workspaces.id = sandboxes.workspace "
        "WHERE owner_uid = ? AND sandboxes.backend = ? AND (ended_wall_ms = 0 OR ended_wall_ms > "
        "?)");
    lived_ms +=
        query
            .value<std::optional<int64_t>>(now_ms, since_wall_ms, owner_uid, backend, since_wall_ms)
            .value_or(std::nullopt)
            .value_or(0);
  }
  return lived_ms;
}

std::map<base::WorkspaceId, SandboxRow> SandboxTable::all_live() {
  std::map<base::WorkspaceId, SandboxRow> live;
  for (SandboxRow& row : not_destroyed()) {
    if (row.state != SandboxState::stopped && !row.standby) live[row.workspace] = std::move(row);
  }
  return live;
}

std::vector<SandboxRow> SandboxTable::not_destroyed() {
  // The plus makes SQLite use the short index instead of walking all rows in id order.
  return select(store_, "state <> 'destroyed' ORDER BY +sandboxes.id");
}

}  // namespace moorage::state_db
