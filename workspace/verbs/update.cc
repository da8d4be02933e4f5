#include "workspace/verbs/update.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "base/os/accounts.h"
#include "state_db/store.h"
#include "state_db/tables/execs.h"
#include "state_db/tables/sandboxes.h"
#include "workspace/access/keyed_request.h"
#include "workspace/access/placement.h"
#include "workspace/chain/workspace_note.h"
#include "workspace/context/disk_use.h"
#include "workspace/remote/remote_copy.h"
#include "workspace/verbs/rule_change.h"

namespace moorage::workspace {
namespace {

using state_db::WorkspaceState;

constexpr int kTries = 10;
constexpr size_t kMaxNamed = 10;  // commands in a notice

// Whether this user may use it, as the host's user database has his groups; yes, if it lacks him.
bool has_access(uint32_t uid, const state_db::WorkspaceRow& row) {
  if (uid == 0 || uid == row.owner_uid) return true;
  if (!row.team_gid) return false;
  const auto groups = base::groups_of_user(uid);
  return !groups || std::find(groups->begin(), groups->end(), *row.team_gid) != groups->end();
}

// Disk limits apply at once.
bool needs_new_sandbox(state_db::WorkspacePolicy before, const state_db::WorkspacePolicy& after) {
  before.limits.disk_bytes = after.limits.disk_bytes;
  before.limits.disk_files = after.limits.disk_files;
  return before.limits != after.limits;
}

void require_changeable(const state_db::WorkspaceRow& row) {
  const bool rests = row.state == WorkspaceState::ready || row.state == WorkspaceState::archived ||
                     row.state == WorkspaceState::archiving ||
                     row.state == WorkspaceState::unarchiving;
  if (rests) return;
  throw Error(Code::conflict, row.name + " is " + std::string(state_db::state_name(row.state)),
              row.state == WorkspaceState::deleted ? "moorage undelete " + row.id.str() : "");
}

void hold_to_limit(Context& context, const state_db::WorkspaceRow& row) {
  if (!row.layer || row.state != WorkspaceState::ready) return;
  context.storage.quota().limit(row.layer, context.storage.layer_path(row.layer),
                                DiskUse(context).limit_of_writable(row, row.layer));
}

}  // namespace

// A rule may hold for labels alone, so what it allows is asked again for the new ones.
void Update::check_naming(const state_db::WorkspaceRow& row, const Naming& naming) const {
  if (naming.name) check_workspace_name(*naming.name);
  auto after = row;
  for (const auto& [key, value] : naming.labels) {
    if (value) {
      after.labels[key] = *value;
    } else {
      after.labels.erase(key);
    }
  }
  check_labels(after.labels);
  const auto rules = context_.options.placement_rules->get();
  const bool matters = after.labels != row.labels &&
                       std::any_of(rules->begin(), rules->end(),
                                   [](const auto& rule) { return !rule.labels.empty(); });
  if (matters) check_placement(context_, after, {row.backend, row.image, row.runtime});
}

WorkspaceView Update::update(const Caller& caller, const std::string& name,
                             const PolicyChange& change, const Naming& naming) {
  check_policy(change);
  const auto found = find_workspace(context_.store, caller, name, Right::govern);
  const auto id = found.id;
  // Unnamed limits may violate rules added later: check only named ones, so that each can be set.
  Placement(context_, found).check_limits(change.to.limits, change.named);
  if (change.named.contains("network")) {
    const Placement placement(context_, found);
    placement.check_network(placement.network_or(change.to.network), found.backend);
  }
  if (change.named.contains("network")) require_held_here(context_, found);
  const Change apply = [&change](auto& policy) { apply_policy(change, policy); };
  if (naming.empty()) return commit(caller, id, apply);
  check_naming(found, naming);
  const auto writing = leases_.write(caller, found);
  return commit(caller, id, apply, naming);
}

WorkspaceView Update::change_rules(const Caller& caller, const std::string& name,
                                   const RuleChange& change) {
  const auto found = find_workspace(context_.store, caller, name, Right::govern);
  check_rules(change);  // before anything is written
  require_held_here(context_, found);
  return commit(caller, found.id,
                [&change](auto& policy) { apply_rules(change, policy.network_rules); });
}

WorkspaceView Update::commit(const Caller& caller, base::WorkspaceId id, const Change& change,
                             const Naming& naming) {
  const std::string by = "set by " + user_name(caller.uid);
  state_db::WorkspaceTable table(context_.store);
  state_db::WorkspacePolicy before;
  state_db::WorkspacePolicy after;
  JoinedVerb joined{.workspace = id};
  for (int attempt = 1;; ++attempt) {
    const auto row = table.get(id);
    require_changeable(row);
    before = after = row.policy;
    change(after);
    try {
      context_.store.transaction([&] {
        table.set_policy(id, {before, after, by});
        if (naming.name) table.rename(id, *naming.name, by);
        table.change_labels(id, naming.labels, by);
        const bool later =
            needs_new_sandbox(before, after) && state_db::SandboxTable(context_.store).live(id);
        joined.notice =
            later ? "the new limits apply at the next start; now: moorage stop " + row.name : "";
        join_key(context_.store, caller, joined.subject());
      });
      break;
    } catch (const Error& error) {  // a concurrent update: apply the change to its result
      if (error.code() != Code::conflict || attempt >= kTries) throw;
    }
  }
  const std::string difference = state_db::policy_difference(before, after);
  base::log(base::LogLevel::info, "workspace.updated",
            {{"ws", id}, {"uid", caller.uid}, {"change", difference}});
  const auto answer = joined.in(views_.view(table.get(id)));
  hold_to_limit(context_, answer.row);
  networks_.apply(id);
  if (naming.name) keep_about(context_, answer.row);
  return answer;
}

WorkspaceView Update::share(const Caller& caller, const std::string& name,
                            std::optional<uint32_t> team_gid) {
  auto row = find_workspace(context_.store, caller, name, Right::govern);
  const bool changes = row.team_gid != team_gid;
  row.team_gid = team_gid;
  const JoinedVerb joined{.workspace = row.id, .notice = left_running(row)};
  state_db::WorkspaceTable table(context_.store);
  context_.store.transaction([&] {
    table.set_team(row.id, team_gid,
                   team_gid ? "shared with group " + group_name(*team_gid) : "private");
    join_key(context_.store, caller, joined.subject());
  });
  if (changes) end_lost_lease(row);
  keep_about(context_, table.get(row.id));
  return joined.in(views_.view(table.get(row.id)));
}

// "still running: ex_5 of bob; to end it: moorage kill ex_5": commands of people without access.
std::string Update::left_running(const state_db::WorkspaceRow& row) const {
  std::string names, ways;
  size_t count = 0;
  std::map<uint32_t, bool> known;
  for (const auto& exec : state_db::ExecTable(context_.store)
                              .list({.workspace = row.id, .state = state_db::ExecState::running})) {
    const uint32_t uid = exec.request.owner_uid;
    const auto [stays, is_new] = known.try_emplace(uid, false);
    if (is_new) stays->second = has_access(uid, row);
    if (stays->second || ++count > kMaxNamed) continue;
    names += (count == 1 ? "" : ", ") + exec.id.str() + " of " + user_name(uid);
    ways += (count == 1 ? "moorage kill " : "; moorage kill ") + exec.id.str();
  }
  if (count == 0) return {};
  if (count > kMaxNamed)
    names += " and " + std::to_string(count - kMaxNamed) + " more (moorage ps " + row.name + ")";
  return "still running: " + names + "; to end " + (count == 1 ? "it: " : "them: ") + ways;
}

void Update::end_lost_lease(const state_db::WorkspaceRow& row) {
  const auto lease = leases_.held(row.id);
  if (lease && !has_access(lease->row.holder_uid, row))
    leases_.end(row.id, "released", lease->row.generation);
}

WorkspaceView Update::resume(const std::string& subject) {
  const auto joined = JoinedVerb::parse(subject);
  const auto row = state_db::WorkspaceTable(context_.store).get(joined.workspace);
  hold_to_limit(context_, row);
  networks_.apply(row.id);
  keep_about(context_, row);
  return joined.in(views_.look(joined.workspace));
}

}  // namespace moorage::workspace
