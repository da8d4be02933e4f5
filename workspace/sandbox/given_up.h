// A sandbox on another machine that ended without its last changes: it was lost, or ended by force
// while the machine could not be reached. The machine and its note (backends/remote/places.h) stay.
// A snapshot, the base, keeps the state that had arrived: the rest is relative to it, and the
// workspace goes on. workspace/recovery/salvage.h fetches the rest into a fork of the base.
//
// Base and fork have a key derived from the sandbox's id, which no request can have; so both exist
// once. Dropping the base gives the rest up for good.
//
// salvage/<sandbox>/ in the store: here/incoming/last, the number of the last pack that arrived
// before; incoming/N.pack, what was fetched since; fetched, once that is all; trouble, why the last
// try failed; held, if only a person can help.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/remote/machines.h"
#include "state_db/tables/sandboxes.h"
#include "state_db/tables/snapshots.h"
#include "workspace/chain/chains.h"

namespace moorage::workspace {

inline constexpr const char* kSalvageFetched = "/fetched";
inline constexpr const char* kSalvageTrouble = "/trouble";
inline constexpr const char* kSalvageHeld = "/held";

std::string salvage_directory(const Options& options);
std::string salvage_directory(const Options& options, base::SandboxId sandbox);
// Of the fork too.
std::string given_up_key(base::SandboxId sandbox);

// A machine that was left and may hold changes of a workspace.
struct LeftMachine {
  state_db::SandboxRow sandbox{};
  state_db::WorkspaceRow workspace{};
  state_db::SnapshotRow base{};
  std::string backend{};
  std::string place{};
  std::string trouble{};  // of the last try; empty: none, or it was not reached
  bool held = false;      // only a person can help
  // "moorage drop web given-up-sb-7"
  std::string way_to_give_up() const;
};
// Empty: no workspace wants what it has.
std::optional<LeftMachine> left_machine(Context& context, const std::string& backend,
                                        const backends::MachineNote& note);
std::vector<LeftMachine> left_machines(Context& context, base::WorkspaceId workspace);
// What becomes of them, for the user; empty: there are none.
std::string left_notice(Context& context, base::WorkspaceId workspace);

class GivenUp {
 public:
  GivenUp(Context& context, Chains& chains) : context_(context), chains_(chains) {}

  // Whether the machine of a sandbox that ends now may have more than this host. An orderly stop
  // removes its note.
  bool has_more(const state_db::SandboxRow& sandbox) const;
  // Once its last packs are applied, before its directory is removed and anybody writes to the
  // workspace. False: nothing to do, as it has no more. Caller holds the lock.
  bool keep_base(const state_db::SandboxRow& sandbox);

 private:
  void take_base(const state_db::WorkspaceRow& row, base::SandboxId sandbox);

  Context& context_;
  Chains& chains_;
};

}  // namespace moorage::workspace
