// Who may see and change which workspace, and whatever belongs to it: the only place that decides
// it. A workspace is private (its owner and root) or a team's (the members of one host group, too):
// they read, write and run commands; only owner and root delete it, or say who may use it. To
// whoever may not see a workspace there is none: not_found, word for word as for one that does not
// exist. Whether the writer lease lets a change happen is asked separately, where it happens
// (leases.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "state_db/execs.h"
#include "state_db/viewer.h"
#include "state_db/workspaces.h"

namespace moorage::state_db {
class Store;
}

namespace moorage::workspace {

class KeyedRequest;

// What somebody wants of a workspace; each is a set of demands, so that one can hold another.
enum class Right : uint8_t {
  none = 0,             // no workspace is named
  read = 1,             // look at it, at its files, its commands and their output
  write = read | 2,     // change what is in it or runs in it: the lease is asked
  govern = read | 4,    // say who may use it, and its limits: the owner
  destroy = write | 4,  // delete it, bring it back, move it: the owner, and the lease is asked
};
constexpr bool includes(Right all, Right wanted) {
  return (static_cast<uint8_t>(wanted) & ~static_cast<uint8_t>(all)) == 0;
}
constexpr bool asks_lease(Right right) { return (static_cast<uint8_t>(right) & 2) != 0; }
constexpr bool asks_owner(Right right) { return (static_cast<uint8_t>(right) & 4) != 0; }

// A lease that a request says it holds (lease_token.h). Whether that is so, leases.h decides.
struct LeaseClaim {
  base::WorkspaceId workspace{};  // none: the one that the request names
  int64_t generation = 0;
  std::string secret_hash{};  // empty: it proves nothing
};

// Who asks: the peer of the connection as the kernel tells it (SO_PEERCRED, SO_PEERGROUPS), and
// what it asks for.
struct Caller {
  uint32_t uid = 0;
  std::vector<uint32_t> gids{};
  std::vector<LeaseClaim> leases{};  // that the request carries, at most one a workspace
  // What the route was declared to want: a verb that takes more is a bug of ours, and refused.
  Right route = Right::destroy;
  bool is_daemon = false;                 // our own doing, for the owner: no lease is in its way
  std::shared_ptr<KeyedRequest> keyed{};  // of a request with an idempotency key
  // When it asked: what it waits for at most begins there, however often the verb is called.
  std::chrono::steady_clock::time_point asked = std::chrono::steady_clock::now();

  bool root() const { return uid == 0; }
  bool in_group(uint32_t gid) const;
  const LeaseClaim* claim_of(base::WorkspaceId workspace) const;  // null: none was sent
  // The same caller at a workspace that its request reaches beside the one that it names.
  Caller beside() const;
  // As which groups it sees lists; nothing: it sees all.
  std::optional<state_db::Viewer> viewer() const;
};
Caller daemon_for(uint32_t owner_uid);

bool owns(const Caller& caller, const state_db::WorkspaceRow& row);
bool sees(const Caller& caller, const state_db::WorkspaceRow& row);

// Those below throw not_found for what is not seen, permission_denied for what is seen and not
// allowed. By id, or by name: an own one first, then a team's; conflict, with the ids, when several
// have that name. A live one, or by its id also a deleted one.
state_db::WorkspaceRow find_workspace(state_db::Store& store, const Caller& caller,
                                      const std::string& name, Right right);
state_db::WorkspaceRow find_deleted(state_db::Store& store, const Caller& caller,
                                    const std::string& name, Right right);
state_db::WorkspaceRow find_with_deleted(state_db::Store& store, const Caller& caller,
                                         const std::string& name, Right right);
// The right is one to its workspace.
state_db::ExecRow find_exec(state_db::Store& store, const Caller& caller, base::ExecId id,
                            Right right);

// The group that a workspace is shared with, by name or number. invalid_argument: there is none;
// permission_denied: the caller is not in it.
uint32_t team_group(const Caller& caller, const std::string& group);
std::string group_name(uint32_t gid);  // the number, where it has no name
std::string user_name(uint32_t uid);   // "uid 1000", where it has no name

}  // namespace moorage::workspace
