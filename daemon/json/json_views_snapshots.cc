#include "daemon/json/json_object.h"
#include "daemon/json/json_views.h"

namespace moorage::daemon {
namespace {

JsonObject snapshot_object(const state_db::SnapshotRow& row) {
  JsonObject object{{"id", row.id.str()},
                    {"workspace", row.workspace.str()},
                    {"name", row.name},
                    {"external_id", lossy_utf8(row.external_id)},
                    {"cause", state_db::cause_name(row.cause)},
                    {"way", state_db::way_name(row.way)},
                    {"pause_us", row.pause_us},
                    {"durable", row.durable},
                    {"state", state_db::state_name(row.state)}};
  if (row.parent) object["parent"] = row.parent.str();
  if (row.exec) object["exec"] = row.exec.str();
  put_known(object, "disk_bytes", row.disk_bytes);
  put_text(object, "reason", row.reason);
  put_time(object, "created_at", row.created_wall_ms);
  return object;
}

// Only the fields needed to draw a tree; a workspace's own view has the rest.
JsonObject member_object(const state_db::WorkspaceRow& row) {
  JsonObject object{
      {"id", row.id.str()}, {"name", row.name}, {"state", state_db::state_name(row.state)}};
  if (row.stands_on) object["stands_on"] = row.stands_on.str();
  if (row.forked_from) object["forked_from"] = row.forked_from.str();
  if (row.attempts > 0) object["attempt"] = {{"number", row.attempt}, {"of", row.attempts}};
  object["base"] = {{"ref", lossy_utf8(row.base_ref)}, {"commit", state_db::began_at(row)}};
  put_time(object, "created_at", row.created_wall_ms);
  return object;
}

}  // namespace

std::string snapshot_json(const state_db::SnapshotRow& row) {
  return text_of(snapshot_object(row));
}

std::string snapshots_json(const std::vector<state_db::SnapshotRow>& rows) {
  return text_of({{"snapshots", array_of(rows, snapshot_object)}});
}

std::string lineage_json(const workspace::Snapshots::Lineage& lineage) {
  return text_of({{"workspaces", array_of(lineage.workspaces, member_object)},
                  {"snapshots", array_of(lineage.snapshots, snapshot_object)}});
}

}  // namespace moorage::daemon
