// The contract of backends/backend.h: a command on a terminal.
#include <algorithm>

#include "contract.h"

using namespace moorage;
using tests::Command;
using tests::Outcome;
using tests::RunningExec;
using tests::SandboxFixture;

namespace {

Command on_terminal(std::vector<std::string> argv) {
  Command command;
  command.argv = std::move(argv);
  command.environment["TERM"] = "xterm";
  command.input = true;
  command.terminal = backends::TerminalSize{.columns = 132, .rows = 43};
  return command;
}

// Whether sandbox 1 has a process of that name.
bool runs(SandboxFixture& sandboxes, const std::string& program) {
  if (sandboxes.can().remote) {
    const std::string names = sandboxes.shell(1, "cat /proc/[0-9]*/comm; true");
    return ("\n" + names + "\n").find("\n" + program + "\n") != std::string::npos;
  }
  const auto members = sandboxes.backend().members(sandboxes.name(1));
  return std::any_of(members.begin(), members.end(), [&](pid_t pid) {
    return base::read_file_if_exists("/proc/" + std::to_string(pid) + "/comm") == program + "\n";
  });
}

}  // namespace

TEST_CASE("a terminal works, has the requested size, and can be resized", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  sandboxes.start(1);
  RunningExec exec =
      sandboxes.begin(1, on_terminal({sandboxes.program(1, COMMAND_PROBE), "terminal"}));
  REQUIRE(exec.wait_for("111\r\n132 43\r\n"));
  exec.client().resize(exec.tag(), {.columns = 80, .rows = 24});
  CHECK(exec.wait_for("132 43\r\n80 24\r\n"));
  exec.client().kill_tree(exec.tag());
  const Outcome outcome = exec.finish();
  CHECK(outcome.terminal == outcome.output);
  // Without a terminal, none is visible.
  CHECK(sandboxes.shell(1, "test -t 0 || test -t 1 || test -t 2 || echo none") == "none");
}

TEST_CASE("Ctrl-C reaches all foreground processes", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  sandboxes.start(1);
  // The shell answers only once `sleep` is gone, and only the terminal can end that so early.
  RunningExec exec = sandboxes.begin(
      1, on_terminal({"/bin/sh", "-c", "trap 'echo caught; exit 7' INT; echo ready; sleep 1000"}));
  REQUIRE(exec.wait_for("ready"));
  // Wait until `sleep` runs: before its exec, the fork handles the signal as the shell does.
  REQUIRE(tests::within(std::chrono::seconds(10), [&] { return runs(sandboxes, "sleep"); }));
  exec.send("\x03");
  const Outcome outcome = exec.finish();
  CHECK(outcome.kind == "exited");
  CHECK(outcome.code == 7);
  CHECK(outcome.output.find("caught") != std::string::npos);
}

TEST_CASE("a typed line is echoed and read, and Ctrl-D ends the input", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  sandboxes.start(1);
  RunningExec exec = sandboxes.begin(1, on_terminal({"/bin/cat"}));
  exec.send("a word\r");
  REQUIRE(exec.wait_for("a word\r\na word\r\n"));
  exec.send("\x04");
  const Outcome outcome = exec.finish();
  CHECK(outcome.kind == "exited");
  CHECK(outcome.code == 0);
}
