// The lineage of workspaces as a tree of text: snapshots, what stands on them, which forks began
// where.
#pragma once

#include <string>
#include <vector>

#include "cli/json.h"

namespace moorage::cli {

// `tree` as GET /v1/workspaces/NAME/tree answers it; lines without a line end, escaped.
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
