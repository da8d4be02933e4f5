// Starts one command: fork, then in the child the steps of run_child in spawn.cc, whose order is
// the design. Nothing here blocks: the result of execve arrives on `status`, as a StatusRecord with
// the command's pid, then either end of file (it runs) or a failure. With `subreaper`, the child is
// one (subreaper.h) and the command is its child: used without a cgroup for the command.
// With a terminal, the child is the leader of the command's session and the command its sibling
// (CLONE_PARENT): when a session leader ends, the kernel takes the terminal away, with SIGHUP to
// the foreground, and the processes left there may have a last word. As the command's parent is
// outside the session, Ctrl-Z stops nothing that no one could continue.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/fd.h"

namespace moorage::warden {

// Users that may run commands: a fixed table. The agent can change the sandbox's /etc/passwd, and
// reading it through glibc would load name service modules from inside.
struct User {
  std::string_view name;
  uid_t uid;
  gid_t gid;
  std::string_view home;
};
inline constexpr User kUsers[] = {
    {"user", 1000, 1000, "/home/user"},
    {"root", 0, 0, "/root"},
};

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
  bool merged = false;  // one pipe for output and error, so that their order is that of writing
  std::optional<TerminalSize> terminal;
  std::vector<Fd> join_fds;  // the child first writes "0" to each
  bool subreaper = true;
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
  // To be reaped: the command or its subreaper; for a terminal without a subreaper, the session
  // leader, and the command's pid arrives on `status`.
  pid_t child = 0;
  Fd status;
  Fd report;   // SubreaperReport of a subreaper, else none
  Fd input;    // non-blocking, as are the next two; none without input
  Fd output;   // for a terminal: its master
  Fd error;    // none for a terminal, or if merged
  Fd session;  // for a terminal: closing it ends its leader
};

// Values that every child takes from the warden.
struct SpawnContext {
  int null_fd = -1;        // /dev/null, opened before anyone inside could replace it
  rlimit open_files{};     // as a login has, though daemon and warden have more
  uint32_t user_base = 0;  // added to the ids of kUsers: outside a user namespace (--user-base)
  size_t most_left = 0;    // of a command with a subreaper (subreaper.h)
};

// PATH in its environment, or else this text (start_failure.cc).
std::string path_of(const Command& command, const char* otherwise);

Spawned spawn(const Command& command, const SpawnContext& context);

void set_terminal_size(int master, const TerminalSize& size);

// The problem and its fix, "bash: not found in PATH ...", the exit code a shell would return (126
// or 127), and the word of state_db/tables/exec_category.h.
struct StartFailure {
  int exit_code = 126;
  std::string text;
  std::string word = "not_started";
};
StartFailure explain_failure(const Command& command, const StatusRecord& record);

}  // namespace moorage::warden
