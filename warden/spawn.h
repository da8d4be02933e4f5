// Starts one command: fork, then in the child the steps of run_child in spawn.cc, whose order is
// the design. Nothing here blocks: whether execve succeeded arrives on `status`, as a StatusRecord
// with the command's pid first, then either end of file (it runs) or a failure. With `keeper`, the
// child is a keeper (keeper.h) and the command is its child: used when no cgroup holds the command
// together. With a terminal, the child is the leader of the command's session, and the command is
// its brother (CLONE_PARENT): the kernel takes the terminal from a session whose leader ends, with
// SIGHUP to those in the foreground, and what a command leaves there may have a last word to say.
// As the command's parent is outside of the session, Ctrl-Z stops nothing that nobody could
// continue.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "warden/users.h"

namespace moorage::warden {

struct TerminalSize {
  uint16_t columns = 80;
  uint16_t rows = 24;
};

struct Command {
  std::vector<std::string> argv;         // not empty
  std::vector<std::string> environment;  // NAME=value, complete
  std::string directory;                 // absolute, not below /proc
  User user = kUsers[0];
  bool input = false;
  std::optional<TerminalSize> terminal;
  std::vector<base::Fd> join_fds;  // the child writes "0" to each before anything else
  bool keeper = true;
};

enum class StartStep : int32_t {
  pid,
  fork,
  join,
  session,
  streams,
  terminal,
  limits,
  groups,
  user,
  directory,
  interpreter,
  execute,
};

struct StatusRecord {
  StartStep step = StartStep::pid;
  int32_t value = 0;  // the pid, or errno of the failed step
};

struct Spawned {
  // To be waited for: the command or its keeper; of a terminal without a keeper the leader of its
  // session, and the command's pid arrives on `status`.
  pid_t child = 0;
  base::Fd status;
  base::Fd report;   // KeeperReport of a keeper, else none
  base::Fd input;    // non-blocking, as are the next two; none without input
  base::Fd output;   // for a terminal: its master
  base::Fd error;    // none for a terminal
  base::Fd session;  // of a terminal: its leader goes when this is closed
};

// What every child takes from the warden.
struct SpawnContext {
  int null_fd = -1;        // /dev/null, opened before anybody inside could replace it
  rlimit open_files{};     // what a login gives, though daemon and warden have more
  uint32_t user_base = 0;  // added to the ids of users.h: outside a user namespace (--user-base)
};

Spawned spawn(const Command& command, const SpawnContext& context);

void set_terminal_size(int master, const TerminalSize& size);

// "bash: not found in PATH ..." - what happened and what to do about it - the exit code, 126 or
// 127, that a shell would give, and the word of state_db/exec_category.h.
struct StartFailure {
  int exit_code = 126;
  std::string text;
  std::string word = "not_started";
};
StartFailure explain_failure(const Command& command, const StatusRecord& record);

}  // namespace moorage::warden
