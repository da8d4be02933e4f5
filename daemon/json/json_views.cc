#include "daemon/json/json_views.h"

#include "daemon/json/json_object.h"
#include "daemon/json/policy_json.h"

namespace moorage::daemon {
namespace {

JsonObject repository_object(const RepositoryView& view) {
  const auto& row = view.row;
  JsonObject object{{"id", row.id.str()},
                    {"url", lossy_utf8(row.url)},
                    {"name", lossy_utf8(row.name)},
                    {"state", state_db::state_name(row.state)},
                    {"default_branch", lossy_utf8(row.default_branch)},
                    {"tip", view.tip},
                    {"stale", !row.stale_reason.empty()},
                    {"bytes", row.bytes},
                    {"workspaces", view.workspaces}};
  put_time(object, "fetched_at", row.fetched_wall_ms);
  put_time(object, "checked_at", row.checked_wall_ms);
  put_text(object, "stale_reason", row.stale_reason);
  return object;
}

JsonObject base_object(const workspace::WorkspaceView& view) {
  const auto& row = view.row;
  JsonObject base{{"ref", lossy_utf8(row.base_ref)},
                  {"commit", state_db::began_at(row)},
                  {"stale", !view.repo.stale_reason.empty()}};
  if (!row.head_commit.empty()) base["work"] = row.base_commit;
  put_text(base, "moved_to", row.moved_commit);
  if (view.upstream) base["behind"] = view.upstream->behind;
  if (view.upstream && view.upstream->lost > 0) base["lost"] = view.upstream->lost;
  put_time(base, "checked_at", view.repo.checked_wall_ms);
  put_text(base, "stale_reason", view.repo.stale_reason);
  return base;
}

JsonObject remote_object(const workspace::RemoteView& view) {
  JsonObject remote{{"connected", view.connected},
                    {"waiting_packs", view.waiting_packs},
                    {"waiting_ends", view.waiting_ends}};
  put_known(remote, "behind_ms", view.behind_ms);
  put_text(remote, "overlay", view.overlay);
  if (!view.overlay.empty()) remote["limits"] = texts_of(view.limits);
  put_text(remote, "network", view.network);
  if (view.restored > 0) remote["restored"] = view.restored;
  if (view.kept_ms > 0) remote["kept_ms"] = view.kept_ms;
  remote["user_ms_in_24h"] = view.user_ms;
  if (view.user_limit_h > 0) remote["user_limit_h"] = view.user_limit_h;
  put_text(remote, "reason", view.reason);
  return remote;
}

JsonObject sandbox_object(const workspace::WorkspaceView& view) {
  const auto& row = *view.sandbox;
  JsonObject sandbox{{"id", row.id.str()},
                     {"state", state_db::state_name(row.state)},
                     {"backend", row.backend},
                     {"image", row.image}};
  put_text(sandbox, "isolation", row.isolation);
  put_text(sandbox, "runtime", row.runtime);
  put_time(sandbox, "started_at", row.started_wall_ms);
  put_text(sandbox, "reason", row.reason);
  if (view.rest) {
    put_text(sandbox, "busy_with", view.rest->busy_with);
    if (view.rest->busy_with.empty())
      put_time(sandbox, "idle_since_at", base::system_clock().wall_ms() - view.rest->idle_ms);
    put_known(sandbox, "idle_stop_in_ms", view.rest->idle_stop_in_ms);
    put_known(sandbox, "lifetime_left_ms", view.rest->lifetime_left_ms);
  }
  if (view.sandbox_status) {
    sandbox["memory_bytes"] = view.sandbox_status->memory_bytes;
    sandbox["processes"] = view.sandbox_status->processes;
    sandbox["cpu_ms"] = view.sandbox_status->cpu_usec / 1000;
  }
  if (view.remote) sandbox["remote"] = remote_object(*view.remote);
  return sandbox;
}

JsonObject integrity_object(const state_db::IntegrityRow& row) {
  JsonObject integrity{{"state", state_db::integrity_name(row.state)}};
  put_text(integrity, "reason", row.reason);
  put_time(integrity, "checked_at", row.wall_ms);
  return integrity;
}

JsonObject lease_object(const workspace::LeaseView& view) {
  const auto& row = view.row;
  JsonObject lease{{"held", row.held()},
                   {"generation", row.generation},
                   {"holder", lossy_utf8(row.holder)},
                   {"uid", row.holder_uid},
                   {"user", workspace::user_name(row.holder_uid)},
                   {"ttl_s", row.ttl_ms / 1000}};
  put_time(lease, "since_at", row.acquired_wall_ms);
  put_text(lease, "ended", row.ended);
  if (row.held()) lease["seen_ms_ago"] = view.seen_ms_ago;
  put_text(lease, "token", view.token);
  return lease;
}

// What the workspace is, holds and does now.
void put_contents(JsonObject& object, const workspace::WorkspaceView& view) {
  const auto& row = view.row;
  JsonObject labels;
  for (const auto& [key, value] : row.labels) labels[lossy_utf8(key)] = lossy_utf8(value);
  object["labels"] = std::move(labels);
  if (row.changes_files) {
    object["changes"] = {{"files", *row.changes_files},
                         {"as_of", base::format_utc(row.changes_wall_ms)}};
  }
  if (view.doing) {
    JsonObject doing = doing_object(*view.doing);
    put_time(doing, "last_output_at", view.last_output_ms);
    object["doing"] = std::move(doing);
  }
  if (view.blocked) object["blocked"] = blocked_object(*view.blocked);
  if (view.sandbox) object["sandbox"] = sandbox_object(view);
  if (const auto& ended = view.ended_sandbox) {
    JsonObject stopped;
    put_time(stopped, "since_at", ended->ended_wall_ms);
    put_text(stopped, "reason", ended->reason);
    object["stopped"] = std::move(stopped);
  }
  if (view.archive && view.archive->whole) {
    JsonObject archive{{"file", view.archive_file},
                       {"bytes", view.archive->bytes},
                       {"sha256", view.archive->sha256}};
    put_time(archive, "archived_at", view.archive->wall_ms);
    object["archive"] = std::move(archive);
  }
  if (view.base_tree) {
    object["submodules"] = view.base_tree->submodules;
    object["lfs"] = view.base_tree->lfs_files;
    object["base_files"] = view.base_tree->files;
  }
}

JsonObject workspace_object(const workspace::WorkspaceView& view) {
  const auto& row = view.row;
  JsonObject object{{"id", row.id.str()},
                    {"name", row.name},
                    {"owner", row.owner_uid},
                    {"owner_name", workspace::user_name(row.owner_uid)},
                    {"repo",
                     {{"id", view.repo.id.str()},
                      {"name", lossy_utf8(view.repo.name)},
                      {"url", lossy_utf8(view.repo.url)}}},
                    {"base", base_object(view)},
                    {"branch", lossy_utf8(row.branch)},
                    {"state", state_db::state_name(row.state)},
                    {"backend", row.backend},
                    {"image", row.image},
                    {"disposable", row.disposable}};
  put_text(object["repo"].as_object(), "origin", view.origin);
  put_text(object, "runtime", row.runtime);
  put_policy(object, view.policy);
  object["used_execs"] = row.used_execs;
  object["used_exec_ms"] = row.used_exec_ms;
  put_text(object, "notice", view.notice);
  if (!view.ended.empty()) object["ended"] = ids_of(view.ended);
  object["access"] = row.team_gid ? "team" : "private";
  if (row.team_gid) object["team"] = lossy_utf8(workspace::group_name(*row.team_gid));
  if (row.stands_on) object["stands_on"] = row.stands_on.str();
  if (row.forked_from) object["forked_from"] = row.forked_from.str();
  if (const auto& origin = row.fork_of) {
    object["forked_elsewhere"] = {{"store", origin->store},
                                  {"workspace", origin->workspace.str()},
                                  {"snapshot", origin->snapshot.str()},
                                  {"name", lossy_utf8(origin->name)}};
  }
  if (row.attempts > 0) object["attempt"] = {{"number", row.attempt}, {"of", row.attempts}};
  if (view.lease) object["holder"] = lease_object(*view.lease);
  put_known(object, "unpushed", row.unpushed);
  put_text(object, "reason", row.reason);
  put_known(object, "disk_bytes", row.disk_bytes);
  put_known(object, "disk_files", row.disk_files);
  put_text(object, "disk_quota", view.disk_quota);
  if (view.integrity.state != state_db::IntegrityState::unknown)
    object["integrity"] = integrity_object(view.integrity);
  if (view.off_host) {
    JsonObject replica{{"state", view.off_host->state}};
    if (view.off_host->behind_ms) replica["behind_s"] = *view.off_host->behind_ms / 1000;
    object["replica"] = std::move(replica);
  }
  put_time(object, "created_at", row.created_wall_ms);
  put_time(object, "deleted_at", row.deleted_wall_ms.value_or(0));
  put_contents(object, view);
  return object;
}

JsonObject side_object(const workspace::MovePlan::Side& side) {
  JsonObject object{{"backend", side.place.backend}, {"image", lossy_utf8(side.place.image)}};
  put_text(object, "runtime", side.place.runtime);
  put_text(object, "isolation", side.isolation);
  return object;
}

}  // namespace

std::string repository_json(const RepositoryView& view) { return text_of(repository_object(view)); }

std::string repositories_json(const std::vector<RepositoryView>& views) {
  return boost::json::serialize(array_of(views, repository_object));
}

std::string lease_json(const std::optional<workspace::LeaseView>& lease) {
  return text_of(lease ? lease_object(*lease) : JsonObject{{"held", false}, {"generation", 0}});
}

StoreSpace space_of(const std::string& store, uint64_t used_bytes) {
  const auto space = base::file_system_space(store);
  return {space.total_bytes, space.free_bytes, used_bytes};
}

std::string workspace_json(const workspace::WorkspaceView& view) {
  return text_of(workspace_object(view));
}

std::string forks_json(const std::vector<workspace::WorkspaceView>& views) {
  return text_of({{"workspaces", array_of(views, workspace_object)}});
}

std::string workspaces_json(const workspace::WorkspacePage& page, const StoreSpace& space) {
  JsonObject object{{"workspaces", array_of(page.views, workspace_object)},
                    {"store", store_object(space)}};
  if (page.more) object["next"] = page.views.back().row.id.str();
  return text_of(object);
}

std::string move_json(const workspace::MovePlan& plan) {
  return text_of({{"from", side_object(plan.from)},
                  {"to", side_object(plan.to)},
                  {"running", plan.running},
                  {"execs", ids_of(plan.execs)},
                  {"notices", texts_of(plan.notices)}});
}

}  // namespace moorage::daemon
