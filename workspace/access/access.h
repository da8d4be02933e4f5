// Decides who may see and change a workspace and everything in it; nothing else decides this. A
// workspace is private (its owner and root) or shared with a team (the members of one host group),
// who may read, write and run commands; only the owner and root may delete or share it. A caller
// who may not see a workspace gets exactly the same not_found as for one that does not exist.
// leases.h decides separately, at the change itself, whether the writer lease permits it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/os/accounts.h"
#include "state_db/tables/execs.h"
#include "state_db/tables/repositories.h"
#include "state_db/tables/viewer.h"
#include "state_db/tables/workspaces.h"

namespace moorage::state_db {
class Store;
}

namespace moorage::workspace {

class KeyedRequest;

// The rights that a caller needs; each is a set of bits, so that one can include another.
enum class Right : uint8_t {
  none = 0,             // the request names no workspace
  read = 1,             // see it, its files, its commands and their output
  write = read | 2,     // change its files or run commands: needs the lease
  govern = read | 4,    // change its sharing and limits: owner only
  destroy = write | 4,  // delete, restore, move it: owner only, and needs the lease
};
constexpr bool includes(Right all, Right wanted) {
  return (static_cast<uint8_t>(wanted) & ~static_cast<uint8_t>(all)) == 0;
}
constexpr bool asks_lease(Right right) { return (static_cast<uint8_t>(right) & 2) != 0; }
constexpr bool asks_owner(Right right) { return (static_cast<uint8_t>(right) & 4) != 0; }

// A lease that a request claims to hold. leases.h parses and checks it.
struct LeaseClaim {
  base::WorkspaceId workspace{};  // 0: the workspace that the request names
  int64_t generation = 0;
  std::string secret_hash{};  // empty: without proof
};

// The sender of a request: the peer's credentials from the kernel (SO_PEERCRED, SO_PEERGROUPS), and
// the rights and leases that the request uses.
struct Caller {
  uint32_t uid = 0;
  std::vector<uint32_t> gids{};
  std::vector<LeaseClaim> leases{};  // sent with the request, at most one for each workspace
  // The right that the route declares. A verb that needs more is a bug, and is refused.
  Right route = Right::destroy;
  bool is_daemon = false;                 // the daemon acts for the owner: leases do not apply
  std::shared_ptr<KeyedRequest> keyed{};  // set for a request with an idempotency key
  std::shared_ptr<std::string> notice{};  // a note beside the answer; null: nobody reads it
  // When the request arrived: its waits are limited from then on, however often the verb is called.
  std::chrono::steady_clock::time_point asked = std::chrono::steady_clock::now();

  bool root() const { return uid == 0; }
  bool in_group(uint32_t gid) const;
  const LeaseClaim* claim_of(base::WorkspaceId workspace) const;  // null: the request carries none
  // The same caller, for a workspace that its request reaches besides the one that it names.
  Caller beside() const;
  // Filters lists to what this caller may see; nullopt: no filter.
  std::optional<state_db::Viewer> viewer() const;
};
Caller daemon_for(uint32_t owner_uid);
// Adds to the note beside the answer. Empty: does nothing.
void add_notice(const Caller& caller, const std::string& text);

bool owns(const Caller& caller, const state_db::WorkspaceRow& row);
bool sees(const Caller& caller, const state_db::WorkspaceRow& row);

// These throw not_found if the caller may not see it, and permission_denied if the caller sees it
// but lacks the right. Takes an id (then a deleted one is found, too) or a name: the caller's own
// first, then a team's; conflict, with the ids, when several have that name.
state_db::WorkspaceRow find_workspace(state_db::Store& store, const Caller& caller,
                                      const std::string& name, Right right);
state_db::WorkspaceRow find_deleted(state_db::Store& store, const Caller& caller,
                                    const std::string& name, Right right);
state_db::WorkspaceRow find_with_deleted(state_db::Store& store, const Caller& caller,
                                         const std::string& name, Right right);
// Shared repositories are seen by all, those of one user by that user and root.
bool sees(const Caller& caller, const state_db::RepositoryRow& row);
state_db::RepositoryRow find_repository(state_db::Store& store, const Caller& caller,
                                        base::RepoId id);
// Checks the right on the command's workspace.
state_db::ExecRow find_exec(state_db::Store& store, const Caller& caller, base::ExecId id,
                            Right right);

// The group to share a workspace with, by name or number. invalid_argument: unknown group;
// permission_denied: the caller is not a member.
uint32_t team_group(const Caller& caller, const std::string& group);
std::string group_name(uint32_t gid);  // the number if it has no name
using base::user_name;

}  // namespace moorage::workspace
