// The reader of a list: a user and his groups. workspace/access/access.h defines who may see what;
// this repeats the rule in SQL, so that a list of ten thousand workspaces reads only the visible
// ones. A test compares the two.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moorage::state_db {

struct Viewer {
  uint32_t uid = 0;
  std::vector<uint32_t> gids{};
};

// "[100,2000]", for json_each: a user may be in 65,536 groups.
inline std::string group_list(const Viewer& viewer) {
  std::string list;
  for (const uint32_t gid : viewer.gids) list += (list.empty() ? "" : ",") + std::to_string(gid);
  return "[" + list + "]";
}

}  // namespace moorage::state_db
