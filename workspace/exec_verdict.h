// What is recorded of a command that we end. Without a state it is the one it ends with, and a
// command that succeeds by itself before keeps its own.
#pragma once

#include <optional>
#include <string>

#include "state_db/exec_category.h"
#include "state_db/lifecycle.h"

namespace moorage::workspace {

struct ExecVerdict {
  std::optional<state_db::ExecState> state{};
  state_db::ExecCategory category{};
  std::string why;
};

}  // namespace moorage::workspace
