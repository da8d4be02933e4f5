// The lineage of workspaces as a tree of text: snapshots and the workspaces and forks based on
// them.
#pragma once

#include <string>
#include <vector>

#include "cli/client/json.h"

namespace moorage::cli {

// `tree` is the answer of GET /v1/workspaces/NAME/tree; returns escaped lines without line ends.
//
//   base  main 4f0c2d1
//   ├─ sn_1  green
//   │  ├─ sn_3  fork
//   │  │  ├─ shop-1  (1/2)
//   │  │  └─ shop-2  (2/2)
//   │  └─ shop
//   └─ sn_2
std::vector<std::string> draw_lineage(const Json& tree);

}  // namespace moorage::cli
