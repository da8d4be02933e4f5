// From the words of a command line to an exit code: finds the command, lets it declare its options,
// parses, runs, and says what went wrong in the way of the house ("moorage: message", "  hint:
// ...").
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "cli/terminal.h"

namespace moorage::cli {

inline constexpr int kFailed = 1;         // ours
inline constexpr int kFailedToRun = 125;  // ours, for commands whose exit code is the sandbox's

// `words` without the program's name. Never throws.
int run_command_line(const std::vector<std::string>& words, const Streams& streams);

std::vector<ToldOption> global_options();  // of every command

}  // namespace moorage::cli
