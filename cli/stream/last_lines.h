// Where the last lines of a command's output begin, found from the end: the output may be large.
#pragma once

#include <cstdint>
#include <string>

#include "cli/client/context.h"

namespace moorage::cli {

struct LastLines {
  std::string exec;
  uint64_t count = 0;  // of lines; an unfinished one counts, too
  bool of_stdout = true;
  bool of_stderr = true;
};

// An offset as SessionPlan has it. Throws when the daemon refuses.
uint64_t offset_of(Context& context, const LastLines& wanted);

}  // namespace moorage::cli
