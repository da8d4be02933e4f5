// What we record for a command that we end. Without a state, the command keeps the state it ends
// with; if it succeeds before we end it, the verdict is dropped.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "state_db/lifecycle.h"
#include "state_db/tables/exec_category.h"
#include "state_db/tables/execs.h"

namespace moorage::workspace {

struct ExecVerdict {
  std::optional<state_db::ExecState> state{};
  state_db::ExecCategory category{};
  std::string why;
};

// Whether a command that ended by itself exceeded the disk limit, and why. `suspects` runs at each
// end and must be quick; `judge` runs on a pool.
struct ExecDiskJudge {
  std::function<bool(const state_db::ExecRow&)> suspects;
  std::function<std::optional<std::string>(const state_db::ExecRow&)> judge;
};

}  // namespace moorage::workspace
