// Turns the words of a command line into an exit code: finds the command, lets it declare its
// options, parses, runs, and reports a failure as "moorage: message" and "  hint: ...".
#pragma once

#include <string>
#include <vector>

namespace moorage::cli {

// `words` without the program's name. Never throws.
int run_command_line(const std::vector<std::string>& words);

}  // namespace moorage::cli
