// What is recorded of a command that we end. Without a state it is the one it ends with, and a
// command that succeeds by itself before keeps its own.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "state_db/exec_category.h"
#include "state_db/execs.h"
#include "state_db/lifecycle.h"

namespace moorage::workspace {

struct ExecVerdict {
  std::optional<state_db::ExecState> state{};
  state_db::ExecCategory category{};
  std::string why;
};

// Whether a command that ended by itself went over the disk limit, and why. The first is asked at
// each end and must be quick; the second is asked on a pool.
struct ExecDiskJudge {
  std::function<bool(const state_db::ExecRow&)> suspects;
  std::function<std::optional<std::string>(const state_db::ExecRow&)> judge;
};

}  // namespace moorage::workspace
