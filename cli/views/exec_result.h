// Translates the end of a command into an exit code and notices.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/client/json.h"

namespace moorage::cli {

class Context;

inline constexpr int kTimedOut = 124;
inline constexpr int kInterrupted = 125;
inline constexpr int kCancelled = 130;
inline constexpr int kOomKilled = 137;
inline constexpr int kSignalBase = 128;

// The command's own code, 128 + its signal, or one of the above.
int exit_code_of(const Json& exec);
// Lines for standard error that explain the exit code; often none.
enum class Reading { its_end, its_logs };
// `workspace`, if known, names the limit that it exceeded.
// error_noted: its error was printed during the command.
std::vector<std::string> end_notices(const Json& exec, Reading reading = Reading::its_end,
                                     const Json& workspace = {}, bool error_noted = false);
// Prints them.
void note_end(Context& context, const Json& exec, Reading reading, bool error_noted);

// The output of a command for --json, kept up to a limit, so that an endless command does not fill
// the memory.
struct CapturedOutput {
  std::string standard_output;  // also of a terminal
  std::string standard_error;
  bool truncated = false;
  void add(bool is_error, std::string_view bytes);
};
// The record with "stdout" and "stderr" (or "stdout_b64", "stderr_b64" when they are not UTF-8)
// and, when output was cut, "output_truncated": true.
std::string json_with_output(const Json& exec, const CapturedOutput& output);
// The words for an end, the same everywhere: "exited 0", "exited 127 (not found)", "signal 9",
// "timed out", "out of memory", "cancelled by alice", "cancelled (lifetime of 8h)", "interrupted
// (stopped by alice)"; "running".
std::string end_text(const Json& exec);
bool has_ended(const Json& exec);

}  // namespace moorage::cli
