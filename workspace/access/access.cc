#include "workspace/access/access.h"

#include <grp.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "state_db/store.h"
#include "workspace/context/context.h"

namespace moorage::workspace {
namespace {

using state_db::WorkspaceRow;
using state_db::WorkspaceState;

constexpr size_t kGroupEntryBytes = 1 << 20;  // enough for a group with very many members

[[noreturn]] void throw_unknown(const std::string& name) {
  throw Error(Code::not_found, "there is no workspace '" + name + "'", "moorage ls lists them");
}

// The only access check for an existing row.
void require(const Caller& caller, const WorkspaceRow& row, Right right, const std::string& name) {
  if (!includes(caller.route, right)) {
    throw Error(Code::internal, "this route does not declare the rights that it uses");
  }
  if (row.purged_wall_ms || !sees(caller, row)) throw_unknown(name);
  if (asks_owner(right) && !owns(caller, row)) {
    throw Error(Code::permission_denied,
                row.name + " belongs to " + user_name(row.owner_uid) +
                    " and is shared with group " + group_name(row.team_gid.value_or(0)),
                "only its owner and root may rename, label, delete, undelete, move or share it, or "
                "change its limits");
  }
}

std::string ids_of(const std::vector<WorkspaceRow>& rows) {
  std::string ids;
  for (const auto& row : rows) ids += (ids.empty() ? "" : ", ") + row.id.str();
  return ids;
}

// Looks up a group of the host; the buffer grows until the entry fits.
template <typename Find>
std::optional<std::pair<uint32_t, std::string>> look_up(const Find& find) {
  std::vector<char> room(4096);
  for (;;) {
    group entry{};
    group* found = nullptr;
    const int error = find(&entry, room.data(), room.size(), &found);
    if (error != ERANGE || room.size() >= kGroupEntryBytes) {
      if (found == nullptr) return std::nullopt;
      return std::pair<uint32_t, std::string>{entry.gr_gid, entry.gr_name};
    }
    room.resize(room.size() * 4);
  }
}

}  // namespace

bool Caller::in_group(uint32_t gid) const {
  return std::find(gids.begin(), gids.end(), gid) != gids.end();
}

const LeaseClaim* Caller::claim_of(base::WorkspaceId workspace) const {
  const LeaseClaim* unnamed = nullptr;
  for (const auto& claim : leases) {
    if (claim.workspace == workspace) return &claim;
    if (!claim.workspace) unnamed = &claim;
  }
  return unnamed;
}

Caller Caller::beside() const {
  Caller other = *this;
  std::erase_if(other.leases, [](const LeaseClaim& claim) { return !claim.workspace; });
  return other;
}

std::optional<state_db::Viewer> Caller::viewer() const {
  if (root()) return std::nullopt;
  return state_db::Viewer{uid, gids};
}

void add_notice(const Caller& caller, const std::string& text) {
  if (!caller.notice || text.empty()) return;
  std::string& notice = *caller.notice;
  notice += (notice.empty() ? "" : "; ") + text;
}

Caller daemon_for(uint32_t owner_uid) { return {.uid = owner_uid, .is_daemon = true}; }

bool owns(const Caller& caller, const WorkspaceRow& row) {
  return caller.root() || row.owner_uid == caller.uid;
}

bool sees(const Caller& caller, const WorkspaceRow& row) {
  return owns(caller, row) || (row.team_gid && caller.in_group(*row.team_gid));
}

WorkspaceRow find_workspace(state_db::Store& store, const Caller& caller, const std::string& name,
                            Right right) {
  state_db::WorkspaceTable table(store);
  std::optional<WorkspaceRow> row;
  if (const auto id = base::WorkspaceId::parse(name)) {
    row = table.find(*id);
  } else {
    row = table.find_live(caller.uid, name);
    if (!row) {
      auto others = table.find_by_name(name, caller.viewer());
      if (others.size() > 1) {
        throw Error(Code::conflict,
                    "several users have a workspace '" + name + "': " + ids_of(others),
                    "use its id instead");
      }
      if (!others.empty()) row = std::move(others.front());
    }
  }
  if (!row) {
    const auto deleted =
        table.list({.seen_by = caller.viewer(), .state = WorkspaceState::deleted, .name = name});
    const bool comes_back = std::any_of(deleted.begin(), deleted.end(),
                                        [](const auto& one) { return !one.purged_wall_ms; });
    if (name.empty() || !comes_back) throw_unknown(name);
    throw Error(Code::not_found, "the workspace '" + name + "' is deleted",
                "moorage undelete " + name + " brings it back");
  }
  require(caller, *row, right, name);
  return *std::move(row);
}

WorkspaceRow find_deleted(state_db::Store& store, const Caller& caller, const std::string& name,
                          Right right) {
  if (base::WorkspaceId::parse(name)) return find_workspace(store, caller, name, right);
  auto found = state_db::WorkspaceTable(store).list(
      {.seen_by = caller.viewer(), .state = WorkspaceState::deleted, .name = name});
  const auto own = [&](const WorkspaceRow& row) { return row.owner_uid == caller.uid; };
  if (std::any_of(found.begin(), found.end(), own)) {
    std::erase_if(found, std::not_fn(own));
  }
  if (found.empty())
    throw Error(Code::not_found, "there is no deleted workspace '" + name + "'",
                "moorage ls --deleted lists them");
  if (found.size() > 1) {
    throw Error(Code::conflict,
                "several deleted workspaces have the name '" + name + "': " + ids_of(found),
                "use an id instead; moorage ls --deleted shows when each was deleted");
  }
  require(caller, found.front(), right, name);
  return found.front();
}

WorkspaceRow find_with_deleted(state_db::Store& store, const Caller& caller,
                               const std::string& name, Right right) {
  try {
    return find_workspace(store, caller, name, right);
  } catch (const Error& unknown) {
    if (unknown.code() != Code::not_found) throw;
  }
  try {
    return find_deleted(store, caller, name, right);
  } catch (const Error& unknown) {
    if (unknown.code() != Code::not_found) throw;
    throw_unknown(name);
  }
}

bool sees(const Caller& caller, const state_db::RepositoryRow& row) {
  return row.scope.empty() || caller.root() || row.scope == local_scope(caller.uid) ||
         row.scope == private_scope(caller.uid);
}

state_db::RepositoryRow find_repository(state_db::Store& store, const Caller& caller,
                                        base::RepoId id) {
  auto row = state_db::RepositoryTable(store).find(id);
  if (!row || !sees(caller, *row) || row->state == state_db::RepositoryState::evicted) {
    throw Error(Code::not_found, "there is no repository " + id.str(),
                "moorage repo ls lists them");
  }
  return *std::move(row);
}

state_db::ExecRow find_exec(state_db::Store& store, const Caller& caller, base::ExecId id,
                            Right right) {
  auto row = state_db::ExecTable(store).find(id);
  const auto workspace =
      row ? state_db::WorkspaceTable(store).find(row->request.workspace) : std::nullopt;
  if (!workspace || !sees(caller, *workspace)) {
    throw Error(Code::not_found, "there is no exec " + id.str(),
                "moorage ps lists running commands");
  }
  // The commands of a purged workspace are history that root may still read.
  if (!workspace->purged_wall_ms) require(caller, *workspace, right, workspace->name);
  return *std::move(row);
}

uint32_t team_group(const Caller& caller, const std::string& text) {
  uint32_t number = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  const bool is_number = parsed.ec == std::errc() && parsed.ptr == end;
  const auto found = look_up([&](group* entry, char* room, size_t size, group** result) {
    return is_number ? getgrgid_r(number, entry, room, size, result)
                     : getgrnam_r(text.c_str(), entry, room, size, result);
  });
  if (!found) {
    throw Error(Code::invalid_argument, "there is no group '" + text + "' on this host",
                "getent group lists them");
  }
  if (!caller.root() && !caller.in_group(found->first)) {
    throw Error(Code::permission_denied, "you are not in group " + found->second,
                "the command id lists your groups; a new one takes effect at your next login");
  }
  return found->first;
}

std::string group_name(uint32_t gid) {
  const auto found = look_up([gid](group* entry, char* room, size_t size, group** result) {
    return getgrgid_r(gid, entry, room, size, result);
  });
  return found ? found->second : std::to_string(gid);
}

}  // namespace moorage::workspace
