// Whether a workspace changed since it was sealed: the last result, and the seal for the next
// check. Rows change only under the workspace's lock. A seal exists exactly while no process of the
// daemon may write to the layer: a writer clears it first, in the commit of its intent.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace moorage::state_db {

class Store;

enum class IntegrityState : uint8_t { unknown, intact, changed_outside, lost, needs_repair };
std::string_view integrity_name(IntegrityState state);  // "changed-outside"; unknown: ""

struct IntegrityRow {
  IntegrityState state = IntegrityState::unknown;
  std::string reason{};  // for people
  int64_t wall_ms = 0;   // when it was last checked
  std::string seal{};
  int64_t sealed_wall_ms = 0;
};

class IntegrityTable {
 public:
  explicit IntegrityTable(Store& store) : store_(store) {}

  IntegrityRow get(base::WorkspaceId id);
  std::map<base::WorkspaceId, IntegrityRow> all();
  // The current result, with an event if it differs from the previous one.
  void set(base::WorkspaceId id, IntegrityState state, const std::string& reason = {});
  void set_seal(base::WorkspaceId id, const std::string& seal);  // "": no seal could be taken
  void clear_seal(base::WorkspaceId id);
  void remove(base::WorkspaceId id);
  // Ready workspaces whose seal was cleared although they have no sandbox.
  std::vector<base::WorkspaceId> unsealed_at_rest();

 private:
  Store& store_;
};

}  // namespace moorage::state_db
