// Connects this program to a command in a sandbox: prints its output, sends it our input and
// signals, and takes over its exit code. Used by exec, shell, run and attach, and without input by
// logs.
#pragma once

#include <csignal>
#include <cstdint>
#include <string>

#include "cli/client/context.h"
#include "cli/stream/output_follower.h"
#include "cli/views/exec_result.h"

namespace moorage::cli {

// The effect of our signals. For exec, shell and run, INT, QUIT and TERM end the command; a closed
// terminal (HUP) or a closed reader of our output (SIGPIPE, which then also ends us) leaves it
// running. For attach with input, Ctrl-C interrupts the command; without input it leaves the
// command alone.
enum class Role : uint8_t { runs, joins, watches, reads_logs };

struct SessionPlan : FollowTarget {
  Role role = Role::runs;
  bool tty = false;        // raw mode when our standard input is a terminal
  int for_term = SIGTERM;  // the command gets this for our TERM
  bool forward_stdin = true;
  uint64_t stdin_offset = 0;
  bool close_stdin_at_end = true;
  bool share_stdin = false;  // keep what the command does not read
  bool show_stdout = true;
  bool show_stderr = true;
  bool merged = false;   // one pipe inside: all output is standard output
  bool capture = false;  // keep the output for SessionEnd instead of printing it, for --json
};

struct SessionEnd {
  enum class How { ended, still_running, detached, reader_gone };
  How how = How::ended;
  std::string exec;
  bool may_run = false;    // reader_gone: its end was not seen
  int left_by_signal = 0;  // the signal that made us leave
  Json record;             // of the ended command
  CapturedOutput output;
  bool error_noted = false;  // the record's error was printed during the command
};

// Throws as OutputFollower::run does. Notices about the end are the caller's to print.
SessionEnd run_session(Context& context, const SessionPlan& plan);

// Prints the notices (with --json the record and the output) and returns the exit code.
int finish_session(Context& context, const SessionEnd& end);

}  // namespace moorage::cli
