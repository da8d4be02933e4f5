// Whether a workspace is as it was left: the last answer, and the seal that the next one is
// compared with. Rows change under the workspace's lock only. A seal is there exactly while nothing
// of ours may write to the layer: whoever is about to clears it first, in the commit of its intent.
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
  int64_t wall_ms = 0;   // when it was last looked at
  std::string seal{};
  int64_t sealed_wall_ms = 0;
};

class Integrity {
 public:
  explicit Integrity(Store& store) : store_(store) {}

  IntegrityRow get(base::WorkspaceId id);
  std::map<base::WorkspaceId, IntegrityRow> all();
  // The answer of now, with an event if it is another than before.
  void set(base::WorkspaceId id, IntegrityState state, const std::string& reason = {});
  void set_seal(base::WorkspaceId id, const std::string& seal);  // "" is allowed: none could be had
  void clear_seal(base::WorkspaceId id);
  void remove(base::WorkspaceId id);
  // Ready ones that had a seal and have none now, although no sandbox of them is there.
  std::vector<base::WorkspaceId> unsealed_at_rest();

 private:
  Store& store_;
};

}  // namespace moorage::state_db
