// The reader of a list: a user and his groups. workspace/access/access.h defines who may see what;
// this repeats the rule in SQL, so that a list of ten thousand workspaces reads only the visible
// ones. A test compares the two.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace moorage::state_db {

struct Viewer {
  uint32_t uid = 0;
  std::vector<uint32_t> gids{};
};

// The values of a condition that is true for all rows without a viewer.
struct Seen {
  explicit Seen(const std::optional<Viewer>& by) {
    if (!by) return;
    uid = by->uid;
    gids.assign(by->gids.begin(), by->gids.end());
  }
  std::optional<uint32_t> uid;
  std::vector<int64_t> gids;  // for json_each: a user may be in 65,536 groups
};

}  // namespace moorage::state_db
