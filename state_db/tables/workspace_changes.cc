// The part of Workspaces (workspaces.h) that changes existing rows.
#include "base/clock.h"
#include "base/error.h"
#include "state_db/rows.h"
#include "state_db/store.h"
#include "state_db/store_age.h"
#include "state_db/tables/archives.h"
#include "state_db/tables/workspaces.h"

namespace moorage::state_db {

void WorkspaceTable::set_facts(base::WorkspaceId id, const WorkspaceFacts& facts) {
  std::optional<int64_t> counted_wall_ms;
  if (facts.changes_files) counted_wall_ms = store_.clock().wall_ms();
  require_row(
      write(store_,
            "UPDATE workspaces SET changes_files = coalesce(?, changes_files), changes_wall_ms = "
            "coalesce(?, changes_wall_ms), unpushed = coalesce(?, unpushed), disk_bytes = "
            "coalesce(?, disk_bytes), disk_files = coalesce(?, disk_files), rest_age_ms = "
            "coalesce(?, rest_age_ms), branch = coalesce(?, branch), moved_commit = "
            "coalesce(?, moved_commit) WHERE id = ?",
            facts.changes_files, counted_wall_ms, facts.unpushed, facts.disk_bytes,
            facts.disk_files, facts.rest_age_ms, facts.branch, facts.moved_commit, id) > 0,
      id);
}

void WorkspaceTable::set_label(base::WorkspaceId id, const std::string& key,
                               const std::string& value) {
  write(store_, "INSERT OR REPLACE INTO workspace_labels (workspace, name, value) VALUES (?, ?, ?)",
        id, key, value);
}

void WorkspaceTable::rename(base::WorkspaceId id, const std::string& name, const std::string& by) {
  store_.transaction([&] {
    const WorkspaceRow row = get(id);
    if (row.name == name) return;
    if (const auto holder = find_live(row.owner_uid, name)) {
      throw Error(Code::already_exists,
                  "another workspace has the name " + name + ": " + holder->id.str(),
                  "choose another name, or rename that one first");
    }
    change(store_, "UPDATE workspaces SET name = ? WHERE id = ?", name, id);
    store_.add_event("workspace.renamed", {.workspace = id}, row.name + " -> " + name + ", " + by);
  });
}

void WorkspaceTable::change_labels(base::WorkspaceId id, const LabelChanges& changes,
                                   const std::string& by) {
  store_.transaction([&] {
    const auto before = get(id).labels;
    std::string difference;
    for (const auto& [key, value] : changes) {
      const auto known = before.find(key);
      const bool is_there = known != before.end();
      if (value ? is_there && known->second == *value : !is_there) continue;
      difference += (difference.empty() ? "" : ", ") + (value ? key + "=" + *value : key + "-");
      if (value) {
        set_label(id, key, *value);
      } else {
        change(store_, "DELETE FROM workspace_labels WHERE workspace = ? AND name = ?", id, key);
      }
    }
    if (difference.empty()) return;
    store_.add_event("workspace.labels", {.workspace = id}, difference + ", " + by);
  });
}

void WorkspaceTable::set_layer(base::WorkspaceId id, base::LayerId layer) {
  require_row(write(store_, "UPDATE workspaces SET layer = ? WHERE id = ?", layer, id) > 0, id);
}

void WorkspaceTable::set_place(base::WorkspaceId id, const Place& place, const std::string& by) {
  const auto text = [](const std::string& backend, const std::string& image,
                       const std::string& runtime) {
    return backend + "/" + image + (runtime.empty() ? "" : "/" + runtime);
  };
  store_.transaction([&] {
    const WorkspaceRow before = get(id);
    require_row(
        change(store_, "UPDATE workspaces SET backend = ?, image = ?, runtime = ? WHERE id = ?",
               place.backend, place.image, place.runtime, id) > 0,
        id);
    store_.add_event("workspace.moved", {.workspace = id},
                     text(before.backend, before.image, before.runtime) + " -> " +
                         text(place.backend, place.image, place.runtime) + ", " + by);
  });
}

void WorkspaceTable::set_policy(base::WorkspaceId id, const PolicyChange& change) {
  store_.transaction([&] {
    if (get(id).policy != change.from) {
      throw Error(Code::conflict, id.str() + " was changed by another request",
                  "check its settings, and try again");
    }
    const std::string difference = policy_difference(change.from, change.to);
    if (difference.empty()) return;
    std::string sql;
    each_policy_field(
        [&](const char* name, const auto&) {
          sql += (sql.empty() ? "UPDATE workspaces SET " : ", ") + std::string(name) + " = ?";
        },
        change.to);
    {
      Statement update = store_.prepare(sql + " WHERE id = ?");
      each_policy_field([&](const char*, const auto& field) { update.bind(field); }, change.to);
      update.run(id);
    }
    store_.add_event("workspace.policy", {.workspace = id}, difference + ", " + change.by);
  });
}

void WorkspaceTable::set_team(base::WorkspaceId id, std::optional<uint32_t> gid,
                              const std::string& text) {
  store_.transaction([&] {
    if (get(id).team_gid == gid) return;
    change(store_, "UPDATE workspaces SET team_gid = ? WHERE id = ?", gid, id);
    store_.add_event("workspace.shared", {.workspace = id}, text);
  });
}

void WorkspaceTable::finish_delete(base::WorkspaceId id) {
  store_.transaction([&] {
    store_.move(id, WorkspaceState::deleting, WorkspaceState::deleted, get(id).reason);
    change(store_, "UPDATE workspaces SET deleted_wall_ms = ?, deleted_age_ms = ? WHERE id = ?",
           store_.clock().wall_ms(), StoreAge(store_).now_ms(), id);
  });
}

void WorkspaceTable::undelete(base::WorkspaceId id, const std::string& new_name) {
  store_.transaction([&] {
    const WorkspaceRow row = get(id);
    if (row.purge_wall_ms) {
      throw Error(Code::conflict, id.str() + " is purged: its files are gone");
    }
    const std::string name = new_name.empty() ? row.name : new_name;
    if (const auto holder = find_live(row.owner_uid, name); holder && holder->id != id) {
      throw Error(
          Code::already_exists, "another workspace has the name " + name + " now",
          "give this one a new name: moorage undelete " + id.str() + " --name " + name + "-2");
    }
    change(store_,
           "UPDATE workspaces SET deleted_wall_ms = NULL, deleted_age_ms = NULL, name = ? "
           "WHERE id = ?",
           name, id);
    const auto archive = ArchiveTable(store_).find(id);
    store_.move(id, WorkspaceState::deleted,
                archive && archive->whole ? WorkspaceState::archived : WorkspaceState::ready,
                "restored by undelete");
  });
}

void WorkspaceTable::begin_purge(base::WorkspaceId id) {
  store_.transaction([&] {
    const WorkspaceRow row = get(id);
    if (row.state != WorkspaceState::deleted) {
      throw Error(Code::conflict, id.str() + " is " + std::string(state_name(row.state)) +
                                      ": only a deleted workspace can be purged");
    }
    if (row.purge_wall_ms) return;
    change(store_, "UPDATE workspaces SET purge_wall_ms = ? WHERE id = ?", store_.clock().wall_ms(),
           id);
    store_.add_event("workspace.purge", {.repository = row.repository, .workspace = id});
  });
}

void WorkspaceTable::finish_purge(base::WorkspaceId id) {
  store_.transaction([&] {
    const int64_t rows = change(store_,
                                "UPDATE workspaces SET layer = NULL, purged_wall_ms = ? WHERE "
                                "id = ? AND purge_wall_ms IS NOT NULL AND purged_wall_ms IS NULL",
                                store_.clock().wall_ms(), id);
    if (rows == 1) store_.add_event("workspace.purged", {.workspace = id});
  });
}

std::vector<WorkspaceRow> WorkspaceTable::purgeable(const UndoWindows& windows) {
  const int64_t age_ms = StoreAge(store_).now_ms();
  std::vector<WorkspaceRow> due;
  for (WorkspaceRow& row : list({.state = WorkspaceState::deleted})) {
    const int64_t window_ms = row.disposable ? windows.disposable_ms : windows.usual_ms;
    const int64_t deleted_for_ms = age_ms - row.deleted_age_ms.value_or(age_ms);
    if (row.purge_wall_ms || deleted_for_ms > window_ms) due.push_back(std::move(row));
  }
  return due;
}

}  // namespace moorage::state_db
