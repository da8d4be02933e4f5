// Replaces warden/spawn.cc: the command "runs" at once, as a process that does not exist. Its pipes
// exist, with nothing at the other end.
#include "warden_spawn.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"

namespace moorage::warden {

Spawned spawn(const Command& command, const SpawnContext&) {
  if (command.argv[0] == "refused") throw base::Error(base::Code::unavailable, "cannot fork");
  static pid_t last = fuzz::kFirstPid;
  Spawned spawned;
  spawned.child = ++last;
  const auto pipe = [] {
    base::Pipe made = base::make_pipe();
    for (const base::Fd* end : {&made.read_end, &made.write_end}) {
      base::check(fcntl(end->get(), F_SETFL, O_NONBLOCK), "fcntl");
    }
    return made;
  };
  base::Pipe status = pipe();
  StatusRecord record{StartStep::pid, spawned.child + 1};
  if (command.argv[0] == "missing") record = {StartStep::execute, 2};
  base::write_all(status.write_end.get(), {reinterpret_cast<const char*>(&record), sizeof record});
  spawned.status = std::move(status.read_end);
  fuzz::Command& made = fuzz::commands().emplace_back();
  made.child = spawned.child;
  base::Pipe input = pipe();
  base::Pipe output = pipe();
  base::Pipe error = pipe();
  spawned.input = std::move(input.write_end);
  spawned.output = std::move(output.read_end);
  spawned.error = std::move(error.read_end);
  made.input = std::move(input.read_end);
  made.output = std::move(output.write_end);
  made.error = std::move(error.write_end);
  return spawned;
}

void set_terminal_size(int, const TerminalSize&) {}

}  // namespace moorage::warden

namespace moorage::fuzz {

std::list<Command>& commands() {
  static std::list<Command> all;
  return all;
}

}  // namespace moorage::fuzz
