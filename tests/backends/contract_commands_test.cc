// The contract of backends/backend.h: a command starts exactly as requested, and its end and output
// are reported unchanged.
#include <signal.h>
#include <time.h>

#include <set>
#include <sstream>

#include "base/error.h"
#include "contract.h"
#include "programs/odd_bytes.h"

using namespace moorage;
using tests::Command;
using tests::Outcome;
using tests::RunningExec;
using tests::SandboxFixture;

namespace {

int64_t now_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

TEST_CASE("a command sees only its own environment, user and directory", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  sandboxes.start(1);
  Command command;
  command.argv = {"/usr/bin/env"};
  command.environment = {{"PATH", "/usr/bin:/bin"}, {"ODD", "a b\nc=d"}};
  Outcome outcome = sandboxes.run(1, command);
  CHECK(outcome.code == 0);
  std::set<std::string> variables;
  for (size_t start = 0; start < outcome.output.size();) {
    size_t end = outcome.output.find("\nPATH", start);
    if (end == std::string::npos) end = outcome.output.find("\nODD", start);
    if (end == std::string::npos) end = outcome.output.size() - 1;
    variables.insert(outcome.output.substr(start, end - start));
    start = end + 1;
  }
  CHECK(variables == std::set<std::string>{"PATH=/usr/bin:/bin", "ODD=a b\nc=d"});
  CHECK(sandboxes.shell(1, "pwd") == "/workspace");
  CHECK(sandboxes.shell(1, "touch made && stat -c %a made") == "644");
  sandboxes.fetch_files(1);
  CHECK(base::path_exists(sandboxes.workspace(1) + "/made"));
  CHECK(sandboxes.shell(1, "test -w /workspace && test -w \"$HOME\" && echo both") == "both");
}

TEST_CASE("a command has only descriptors 0 to 2", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  sandboxes.start(1);
  // The fourth is the directory that ls reads.
  CHECK(sandboxes.shell(1, "exec ls /proc/self/fd | tr '\\n' ' '") == "0 1 2 3 ");
}

TEST_CASE("arguments arrive unchanged", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  sandboxes.start(1);
  const std::string odd = "\u00e4 \u4e2d \n\t'\"$HOME`id`\\";
  const Outcome outcome =
      sandboxes.run(1, {.argv = {"/usr/bin/printf", "<%s>", "", odd, "-n", "--", "*"}});
  CHECK(outcome.output == "<><" + odd + "><-n><--><*>");
}

TEST_CASE("every exit code is reported unchanged", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  sandboxes.start(1);
  for (int code = 0; code < 256; ++code) {
    const Outcome outcome =
        sandboxes.run(1, {.argv = {"/bin/sh", "-c", "exit " + std::to_string(code)}});
    CAPTURE(code);
    CHECK(outcome.kind == "exited");
    CHECK(outcome.code == code);
  }
}

TEST_CASE("a command ended by a signal is reported with that signal", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  sandboxes.start(1);
  for (const int signal :
       {SIGHUP, SIGINT, SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGKILL, SIGUSR1,
        SIGSEGV, SIGUSR2, SIGPIPE, SIGALRM, SIGTERM, SIGXCPU, SIGSYS, 34, 64}) {
    const Outcome outcome = sandboxes.run(
        1, {.argv = {"/bin/sh", "-c", "ulimit -c 0; kill -" + std::to_string(signal) + " $$"}});
    CAPTURE(signal, outcome.output);
    CHECK(outcome.kind == "signalled");
    CHECK(outcome.signal == signal);
    CHECK(outcome.oom_kills == 0);
  }
}

TEST_CASE("a signal sent to a command reaches it", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  sandboxes.start(1);
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGKILL}) {
    RunningExec exec = sandboxes.begin(1, {.argv = {"/bin/sleep", "1000"}});
    exec.client().send_signal(exec.tag(), signal);
    const Outcome outcome = exec.finish();
    CAPTURE(signal);
    CHECK(outcome.kind == "signalled");
    CHECK(outcome.signal == signal);
  }
}

TEST_CASE("a command that cannot start differs from one that fails", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  sandboxes.start(1);
  const Outcome missing = sandboxes.run(1, {.argv = {"no-such-program"}});
  CHECK(missing.code == 127);
  CHECK_FALSE(missing.text.empty());
  const Outcome forbidden = sandboxes.run(1, {.argv = {"/etc/passwd"}});
  CHECK(forbidden.code == 126);
  CHECK_FALSE(forbidden.text.empty());
  CHECK(sandboxes.run(1, {.argv = {"/bin/sh", "-c", "exit 127"}}).text.empty());
}

TEST_CASE("output arrives byte for byte as written, on both streams", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  sandboxes.start(1);
  const std::string probe = sandboxes.program(1, COMMAND_PROBE);
  const std::string random = tests::odd_bytes(1 << 20, 7);
  for (const char* stream : {"1", "2"}) {
    CAPTURE(stream);
    const Outcome every = sandboxes.run(1, {.argv = {probe, "bytes", stream, "every", "0"}});
    CHECK((every.output == tests::every_byte()));
    CHECK(every.error.size() == (*stream == '2' ? every.output.size() : 0));
    const Outcome much = sandboxes.run(1, {.argv = {probe, "bytes", stream, "1048576", "7"}});
    CHECK((much.output == random));
    CHECK(much.error.size() == (*stream == '2' ? random.size() : 0));
  }
  const Outcome both = sandboxes.run(
      1, {.argv = {"/bin/sh", "-c",
                   probe + " bytes 1 1048576 7 & " + probe + " bytes 2 1048576 8; wait"}});
  CHECK((both.error == tests::odd_bytes(1 << 20, 8)));
  CHECK(both.output.size() == 2 * random.size());
}

TEST_CASE("input arrives byte for byte as sent, and so does its end", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  sandboxes.start(1);
  const std::string probe = sandboxes.program(1, COMMAND_PROBE);
  RunningExec exec = sandboxes.begin(1, {.argv = {probe, "echo"}, .input = true});
  const std::string bytes = tests::every_byte() + tests::odd_bytes(1 << 20, 9) + "\xff\xfe\xc0";
  exec.send(tests::every_byte());
  exec.send(bytes.substr(256));
  exec.client().close_input(exec.tag());
  const Outcome outcome = exec.finish();
  CHECK(outcome.code == 0);
  CHECK((outcome.output == bytes));
}

TEST_CASE("the clocks inside are the host's and cannot be set", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  sandboxes.start(1);
  for (const char* user : {"user", "root"}) {
    if (*user == 'r' && !sandboxes.allows_root()) continue;
    CAPTURE(user);
    const std::string probe = sandboxes.program(1, COMMAND_PROBE);
    const int64_t before = now_ns(CLOCK_MONOTONIC);
    std::istringstream lines(sandboxes.shell(1, probe + " clock", user));
    // Allow for the command's own duration.
    const int64_t tolerance = 1'000'000'000 + now_ns(CLOCK_MONOTONIC) - before;
    for (const clockid_t clock : {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME}) {
      int64_t inside = 0;
      lines >> inside;
      CAPTURE(clock, inside);
      CHECK(std::abs(now_ns(clock) - inside) < tolerance);
    }
    std::string set;
    std::string adjusted;
    lines >> set >> adjusted;
    CHECK(set == "EPERM");
    CHECK(adjusted == "EPERM");
  }
}

TEST_CASE("commands never use an id of a host user", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  if (!tests::runs_here(sandboxes)) return;
  const auto spec = sandboxes.spec(1);
  sandboxes.backend().start(spec);
  for (const auto& [user, id] : {std::pair("user", 1000U), std::pair("root", 0U)}) {
    if (id == 0 && !sandboxes.allows_root()) continue;
    RunningExec exec = sandboxes.begin(
        1, {.argv = {"/bin/sh", "-c", "echo ready; read x"}, .user = user, .input = true});
    REQUIRE(exec.wait_for("ready"));
    const auto members = sandboxes.backend().members(spec.name);
    REQUIRE_FALSE(members.empty());
    const std::string ids = std::to_string(spec.first_host_id + id);
    for (const pid_t pid : members) {
      const std::string status = base::read_file("/proc/" + std::to_string(pid) + "/status");
      CHECK(status.find("Uid:\t" + ids + "\t" + ids + "\t" + ids + "\t" + ids) !=
            std::string::npos);
      CHECK(status.find("Gid:\t" + ids + "\t" + ids + "\t" + ids + "\t" + ids) !=
            std::string::npos);
    }
  }
}

TEST_CASE("a command as root is refused in a sandbox without root", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  if (!tests::applies(!sandboxes.allows_root(), "root inside is an ordinary host id")) return;
  sandboxes.start(1);
  std::string reason;
  try {
    const Outcome outcome = sandboxes.run(1, {.argv = {"/usr/bin/id", "-u"}, .user = "root"});
    CHECK(outcome.code == 126);
    reason = outcome.text;
  } catch (const base::Error& error) {
    reason = error.what();
  }
  CHECK_FALSE(reason.empty());
  CHECK(sandboxes.shell(1, "echo fine") == "fine");
}
