// What the end of a command means for the caller of the CLI.
#pragma once

#include <string>
#include <string_view>
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
enum class Reading { its_end, its_logs };
std::vector<std::string> end_notices(const Json& exec, Reading reading = Reading::its_end);

// The output of a command as --json gives it: kept up to a limit, so that a command which never
// ends does not take all memory.
struct CapturedOutput {
  std::string standard_output;  // a terminal's, too
  std::string standard_error;
  bool truncated = false;
  void add(bool is_error, std::string_view bytes);
};
// The record with "stdout" and "stderr" (or "stdout_b64", "stderr_b64" when they are not UTF-8)
// and, when there was more, "output_truncated": true.
std::string json_with_output(const Json& exec, const CapturedOutput& output);
// "exited 0", "exited 127 (not_found)", "signalled 9", "timed_out", "running".
std::string end_text(const Json& exec);
bool has_ended(const Json& exec);
// "not_found", "stopped by alice"; empty: nothing beyond its state is known.
std::string category_text(const Json& exec);

}  // namespace moorage::cli
