// Sandboxes, and their pool of id ranges. A sandbox gets the lowest free slot in the transaction
// that creates its row and returns it in the one that marks it destroyed, so two existing sandboxes
// never share host ids, even after a crash. Its row stores its ids, as the configuration may move
// the pool during its life.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/os/process.h"
#include "state_db/lifecycle.h"

namespace moorage::state_db {

class Store;

// Number of host ids per sandbox; and the boot_id of sandboxes from a copy of the store: never a
// boot of this machine.
inline constexpr uint32_t kIdsOfSandbox = 65536;
inline constexpr const char* kBootOfCopy = "restored";

struct SandboxRow {
  base::SandboxId id{};
  base::WorkspaceId workspace{};
  std::string backend{};
  std::string image{};
  std::string name{};              // derived: moorage-<store>-sb_N
  std::optional<uint32_t> slot{};  // until destroyed
  SandboxState state = SandboxState::starting;
  std::string reason{};          // of the last move
  base::ProcessIdentity init{};  // pid 0: never ran
  std::string boot_id{};         // of the boot in which it started
  uint64_t tree_device = 0;      // st_dev of /workspace's overlay
  uint64_t home_device = 0;      // st_dev of /home/user's
  std::string runtime{};         // of its engine; empty: the usual one
  std::string isolation{};       // reported by its backend; empty: not known
  uint32_t first_host_id = 0;    // of its id 0; all sandboxes of an engine may share a range.
                                 // 0: made by an earlier release (workspace/recovery/sandbox_ids.h)
  bool standby = false;          // no workspace until a move has ended the previous sandbox
  int64_t created_wall_ms = 0;
  int64_t started_wall_ms = 0;  // 0: never ran
  int64_t ended_wall_ms = 0;    // 0: not stopped, lost or destroyed yet
};

struct NewSandbox {
  base::WorkspaceId workspace{};
  std::string backend{};
  std::string image{};
  uint32_t pool_first_id = 1'000'000'000;
  uint32_t slots = 4096;  // size of the pool
  std::string runtime{};
  std::string isolation{};
  uint32_t first_host_id = 0;  // of its engine; 0: one of the pool
  bool standby = false;
};

struct SandboxStart {
  base::ProcessIdentity init{};
  uint64_t tree_device = 0;
  uint64_t home_device = 0;
};

class SandboxTable {
 public:
  explicit SandboxTable(Store& store) : store_(store) {}

  // In `starting`, with a slot. conflict: the workspace has another one that is neither stopped nor
  // destroyed (standby ones do not count). resource_exhausted: no free slot.
  SandboxRow create(const NewSandbox& sandbox);
  // A destroyed one without a slot, for imported commands to refer to.
  base::SandboxId add_past(const NewSandbox& sandbox, std::string_view reason);
  void set_running(base::SandboxId id, const SandboxStart& start);     // -> running; no standby
  void set_first_host_id(base::SandboxId id, uint32_t first_host_id);  // of an earlier release
  // Of a sandbox on another machine, whose process here was replaced.
  void set_init(base::SandboxId id, const SandboxStart& start);
  void set_devices(base::SandboxId id, uint64_t tree, uint64_t home);  // its mounts were exchanged
  void set_stopped(base::SandboxId id, std::string_view reason = {});  // stopping -> stopped
  void set_lost(base::SandboxId id, SandboxState from, std::string_view reason);
  void set_destroyed(base::SandboxId id, SandboxState from,
                     std::string_view reason = {});  // frees the slot; empty: the reason stays

  SandboxRow get(base::SandboxId id);  // not_found
  std::optional<SandboxRow> find(base::SandboxId id);
  // The one that is neither stopped nor destroyed nor on standby; it may be lost.
  std::optional<SandboxRow> live(base::WorkspaceId workspace);
  // The last one that ran, while none is live: `reason` says why it ended.
  std::optional<SandboxRow> last_ended(base::WorkspaceId workspace);
  std::optional<SandboxRow> last(base::WorkspaceId workspace);
  std::vector<SandboxRow> of_workspace(base::WorkspaceId workspace);
  std::vector<SandboxRow> in_state(SandboxState state);
  std::vector<SandboxRow> not_destroyed();
  std::map<base::WorkspaceId, SandboxRow> all_live();  // neither stopped nor destroyed: one each
  // How long sandboxes of this user on these backends have existed since then, in all.
  int64_t lived_ms(uint32_t owner_uid, const std::vector<std::string>& backends,
                   int64_t since_wall_ms);
  using Counts = std::array<uint64_t, LifeCycle<SandboxState>::kNames.size() - 1>;
  Counts count_by_state();  // without destroyed, the last state

 private:
  Store& store_;
};

}  // namespace moorage::state_db
