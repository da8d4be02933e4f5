// Stands for a command in a sandbox: its output is our output, our input its input, our signals its
// signals, its end our exit code. Used by exec, shell, run and attach, and without input by logs.
#pragma once

#include <cstdint>
#include <string>

#include "cli/context.h"
#include "cli/exec_result.h"

namespace moorage::cli {

// What our signals do. Whoever runs the command ends it with INT, QUIT and TERM; a terminal that
// closes (HUP) or a reader of our output that goes away (SIGPIPE, after which we exit as a program
// that met it) leaves it running. Who joined it with a keyboard interrupts it; who only watches
// ends nothing.
enum class Role : uint8_t { runs, joins, watches, reads_logs };

struct SessionPlan {
  Role role = Role::runs;
  std::string exec;         // join this one; or empty: start one
  std::string post_target;  // as in FollowPlan
  std::string post_body;
  uint64_t output_offset = 0;
  bool follow = true;
  bool late = false;  // also what came after the command's end

  bool tty = false;  // raw mode when our standard input is a terminal
  bool forward_stdin = true;
  uint64_t stdin_offset = 0;
  bool close_stdin_at_end = true;
  bool show_stdout = true;
  bool show_stderr = true;
  bool capture = false;  // keep the output for SessionEnd instead of printing it, for --json
};

struct SessionEnd {
  enum class How { ended, still_running, detached, reader_gone };
  How how = How::ended;
  std::string exec;
  bool may_run = false;    // reader_gone: nobody has seen its end
  int left_by_signal = 0;  // when it was left because of one
  Json record;             // when it ended
  CapturedOutput output;
};

// Throws as OutputFollower::run does. Notices about the end are the caller's to print.
SessionEnd run_session(Context& context, const SessionPlan& plan);

// The usual rest: prints the notices (or, with --json, the record with the output) and gives the
// exit code.
int finish_session(const Context& context, const SessionEnd& end);

}  // namespace moorage::cli
