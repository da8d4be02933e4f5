// Turns the words of a command line into an exit code: finds the command, lets it declare its
// options, parses, runs, and reports a failure as "moorage: message" and "  hint: ...".
#pragma once

#include <string>
#include <vector>

#include "cli/options.h"
#include "cli/output/terminal.h"

namespace moorage::cli {

inline constexpr int kFailed = 1;         // a failure of our own
inline constexpr int kFailedToRun = 125;  // the same, where the exit code is the sandbox's

// `words` without the program's name. Never throws.
int run_command_line(const std::vector<std::string>& words, const Streams& streams);

struct Command;
std::string help_of(const Command& command);
std::vector<ToldOption> global_options();  // of every command

}  // namespace moorage::cli
