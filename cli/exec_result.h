// What the end of a command means for the caller of the CLI.
#pragma once

#include <string>
#include <vector>

#include "cli/json.h"

namespace moorage::cli {

inline constexpr int kTimedOut = 124;
inline constexpr int kInterrupted = 125;
inline constexpr int kCancelled = 130;
inline constexpr int kOomKilled = 137;
inline constexpr int kSignalBase = 128;

// The command's own code, 128 + its signal, or one of the above.
int exit_code_of(const Json& exec);
// What the exit code alone does not tell, as lines for standard error; often nothing.
std::vector<std::string> end_notices(const Json& exec);
// "exited 0", "signalled 9", "timed_out", "running".
std::string end_text(const Json& exec);
bool has_ended(const Json& exec);

}  // namespace moorage::cli
