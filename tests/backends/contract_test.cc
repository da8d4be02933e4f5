// The contract of backends/backend.h, unchanged against each of them.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "backends/cgroups.h"
#include "backends/envd_client.h"
#include "backends/fake.h"
#include "base/error.h"
#include "base/files.h"
#include "sandbox_fixture.h"

using namespace moorage;
using backends::SandboxState;
using tests::Command;
using tests::Outcome;
using tests::SandboxFixture;
using tests::within_a_second;

#define EACH_BACKEND GENERATE(as<std::string>{}, "fake", "process", "lxc")

namespace {

void kill_init(SandboxFixture& sandboxes, int number) {
  auto* fake = dynamic_cast<backends::FakeBackend*>(&sandboxes.backend());
  if (fake) return fake->kill_init(sandboxes.name(number));
  const int pid = sandboxes.backend().inspect(sandboxes.name(number)).init.pid;
  REQUIRE(pid > 1);
  REQUIRE(kill(pid, SIGKILL) == 0);
}

SandboxState state_of(SandboxFixture& sandboxes, int number) {
  return sandboxes.backend().inspect(sandboxes.name(number)).state;
}

// Everything that a host person could find of this store after all is destroyed.
std::string traces(const std::string& prefix) {
  std::string found;
  const auto groups = backends::sandbox_cgroups(backends::find_cgroups(), prefix);
  for (const std::string& name : groups) found += "cgroup " + name + "\n";
  for (const std::string& pid : base::list_directory("/proc")) {
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    auto line = base::read_file_if_exists("/proc/" + pid + "/cmdline");
    if (line && line->find(prefix) != std::string::npos) found += "process " + pid + "\n";
  }
  return found;
}

}  // namespace

TEST_CASE("a sandbox starts, is found, and is gone after destroy") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes)) return;
  CAPTURE(sandboxes.kind());
  CHECK(state_of(sandboxes, 1) == SandboxState::absent);

  const auto status = sandboxes.start(1);
  CHECK(status.state == SandboxState::running);
  CHECK(status.init.pid > 1);
  CHECK(base::process_alive(status.init));
  CHECK(sandboxes.backend().list() == std::vector<std::string>{sandboxes.name(1)});

  sandboxes.backend().destroy(sandboxes.name(1));
  CHECK(state_of(sandboxes, 1) == SandboxState::absent);
  CHECK(sandboxes.backend().list().empty());
}

TEST_CASE("starting a name that runs answers the same sandbox") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes)) return;
  const auto first = sandboxes.start(1);
  const auto second = sandboxes.start(1);
  CHECK(second.init == first.init);
  CHECK(sandboxes.backend().list().size() == 1);
}

TEST_CASE("destroying what is not there succeeds, twice") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes)) return;
  CHECK_NOTHROW(sandboxes.backend().destroy(sandboxes.name(7)));
  sandboxes.start(1);
  sandboxes.backend().destroy(sandboxes.name(1));
  CHECK_NOTHROW(sandboxes.backend().destroy(sandboxes.name(1)));
}

TEST_CASE("list finds all sandboxes of this store and only those") {
  const std::string kind = EACH_BACKEND;
  SandboxFixture ours(kind);
  SandboxFixture others(kind);
  if (!tests::available(ours)) return;
  others.start(3);
  std::vector<std::string> expected;
  for (int number : {1, 2}) {
    ours.start(number);
    expected.push_back(ours.name(number));
  }
  CHECK(ours.backend().list() == expected);
  CHECK(others.backend().list() == std::vector<std::string>{others.name(3)});
}

TEST_CASE("a name of another store is refused") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes)) return;
  auto spec = sandboxes.spec(1);
  spec.name = "moorage-somebody-else-sb_1";
  CHECK_THROWS_AS(sandboxes.backend().start(spec), base::Error);
}

TEST_CASE("what a backend cannot do is refused and leaves nothing") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !sandboxes.runs_commands()) return;
  auto unknown_image = sandboxes.spec(1);
  unknown_image.image = "no-such-image";
  CHECK_THROWS_AS(sandboxes.backend().start(unknown_image), base::Error);
  auto host_ids = sandboxes.spec(1);
  host_ids.first_host_id = 0;
  CHECK_THROWS_AS(sandboxes.backend().start(host_ids), base::Error);
  if (!sandboxes.backend().capabilities().sudo) {
    auto sudo = sandboxes.spec(1);
    sudo.sudo = true;
    CHECK_THROWS_AS(sandboxes.backend().start(sudo), base::Error);
  }
  CHECK(sandboxes.backend().list().empty());
}

TEST_CASE("a start that fails half way leaves nothing behind") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !sandboxes.runs_commands()) return;
  auto spec = sandboxes.spec(1);
  spec.mounts[0].target = "/no/such/place/inside";
  if (sandboxes.kind() == "process") spec.mounts[0].target = "/proc/1/no-such-place";
  CHECK_THROWS_AS(sandboxes.backend().start(spec), base::Error);
  CHECK(sandboxes.backend().list().empty());
  CHECK(traces(sandboxes.prefix()) == "");
  CHECK(sandboxes.start(1).state == SandboxState::running);
}

TEST_CASE("a frozen sandbox stands still until it is thawed") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes)) return;
  sandboxes.start(1);
  const std::string name = sandboxes.name(1);
  sandboxes.backend().freeze(name);
  CHECK(state_of(sandboxes, 1) == SandboxState::frozen);
  if (sandboxes.runs_commands()) {
    backends::EnvdClient client(sandboxes.backend().endpoint(name));
    CHECK_FALSE(client.healthy(std::chrono::milliseconds(100)));
  }
  sandboxes.backend().thaw(name);
  CHECK(state_of(sandboxes, 1) == SandboxState::running);
  if (sandboxes.runs_commands()) CHECK(sandboxes.shell(1, "echo awake") == "awake");
}

TEST_CASE("a frozen sandbox can be destroyed") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes)) return;
  sandboxes.start(1);
  sandboxes.backend().freeze(sandboxes.name(1));
  sandboxes.backend().destroy(sandboxes.name(1));
  CHECK(sandboxes.backend().list().empty());
}

TEST_CASE("the death of process 1 is seen within a second, and a start mends it") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes)) return;
  const auto before = sandboxes.start(1);
  kill_init(sandboxes, 1);
  CHECK(within_a_second([&] { return state_of(sandboxes, 1) == SandboxState::stopped; }));
  const auto after = sandboxes.start(1);
  CHECK(after.state == SandboxState::running);
  if (sandboxes.runs_commands()) {
    CHECK_FALSE(after.init == before.init);
    CHECK(sandboxes.shell(1, "echo again") == "again");
  }
}

TEST_CASE("another backend object finds, inspects and destroys what the first one made") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !sandboxes.runs_commands()) return;
  const auto status = sandboxes.start(1);
  auto second = sandboxes.another_backend();
  CHECK(second->list() == std::vector<std::string>{sandboxes.name(1)});
  CHECK(second->inspect(sandboxes.name(1)).init == status.init);
  CHECK(second->endpoint(sandboxes.name(1)).unix_socket ==
        sandboxes.backend().endpoint(sandboxes.name(1)).unix_socket);
  second->destroy(sandboxes.name(1));
  CHECK(state_of(sandboxes, 1) == SandboxState::absent);
}

TEST_CASE("stop ends what runs and leaves no trace") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes)) return;
  sandboxes.start(1);
  if (sandboxes.runs_commands()) sandboxes.shell(1, "setsid sleep 1000 >/dev/null 2>&1 &");
  sandboxes.backend().stop(sandboxes.name(1), std::chrono::milliseconds(300));
  CHECK(state_of(sandboxes, 1) == SandboxState::absent);
  CHECK(traces(sandboxes.prefix()) == "");
}

TEST_CASE("a command sees its own environment, user and directory and nothing more") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !sandboxes.runs_commands()) return;
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
  CHECK(base::path_exists(sandboxes.workspace(1) + "/made"));
  CHECK(sandboxes.shell(1, "test -w /workspace && test -w \"$HOME\" && echo both") == "both");
}

TEST_CASE("a command has descriptors 0 to 2 only") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !sandboxes.runs_commands()) return;
  sandboxes.start(1);
  // The fourth is the directory that ls reads.
  CHECK(sandboxes.shell(1, "exec ls /proc/self/fd | tr '\\n' ' '") == "0 1 2 3 ");
}

TEST_CASE("a memory bomb is killed alone, counted to its exec, and the next exec works") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !sandboxes.runs_commands()) return;
  const auto status = sandboxes.start(1);
  Command bomb;
  bomb.argv = {"/usr/bin/tail", "/dev/zero"};  // keeps one endless line
  const Outcome outcome = sandboxes.run(1, bomb);
  CHECK(outcome.kind == "signalled");
  CHECK(outcome.signal == SIGKILL);
  CHECK(outcome.oom_kills >= 1);
  Command harmless;
  harmless.argv = {"/bin/true"};
  const Outcome next = sandboxes.run(1, harmless);
  CHECK(next.code == 0);
  CHECK(next.oom_kills == 0);
  CHECK(sandboxes.backend().inspect(sandboxes.name(1)).init == status.init);
}

TEST_CASE("a fork bomb meets its limit and the next exec works") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !sandboxes.runs_commands()) return;
  sandboxes.start(1);
  Command bomb;
  bomb.argv = {"/bin/sh", "-c", "for i in $(seq 500); do sleep 100 & done; wait"};
  bomb.timeout_ms = 5'000 * tests::patience();
  const Outcome outcome = sandboxes.run(1, bomb);
  CHECK(outcome.output.find("fork") != std::string::npos);
  CHECK(sandboxes.shell(1, "echo fine") == "fine");
}

TEST_CASE("a fork bomb that still burns does not keep the next exec out") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !sandboxes.runs_commands()) return;
  const auto status = sandboxes.start(1);
  // Left behind as daemons of an exec that ended; its group is removed only after this test's kill.
  auto bomb = sandboxes.backend().exec_group(sandboxes.name(1), "ex_bomb");
  auto join = bomb->join_fds();
  const pid_t child = fork();
  if (child == 0) {
    for (const base::Fd& fd : join) {
      if (write(fd.get(), "0", 1) != 1) _exit(1);
    }
    for (;;) {
      if (fork() < 0) usleep(1000);
    }
  }
  CHECK(tests::within(std::chrono::seconds(20), [&] {
    return sandboxes.backend().inspect(sandboxes.name(1)).processes >= 60;
  }));
  backends::EnvdClient client(sandboxes.backend().endpoint(sandboxes.name(1)));
  CHECK(client.healthy(std::chrono::seconds(5)));
  bomb->kill();
  CHECK(tests::within(std::chrono::seconds(10), [&] { return bomb->empty(); }));
  bomb->remove();
  CHECK(sandboxes.shell(1, "echo fine") == "fine");
  CHECK(sandboxes.backend().inspect(sandboxes.name(1)).init == status.init);
}

TEST_CASE("the CPU limit holds") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !sandboxes.runs_commands()) return;
  auto spec = sandboxes.spec(1);
  spec.limits.cpus = 0.25;
  sandboxes.backend().start(spec);
  const auto cpu = [&] { return sandboxes.backend().inspect(sandboxes.name(1)).cpu_usec; };
  const auto wall = std::chrono::steady_clock::now();
  const uint64_t before = cpu();
  Command spin;
  spin.argv = {"/bin/sh", "-c", "while :; do :; done"};
  spin.timeout_ms = 1'000;
  CHECK(sandboxes.run(1, spin).kind == "timed_out");
  const auto used = static_cast<double>(cpu() - before);
  const auto passed =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - wall)
          .count();
  CHECK(used / static_cast<double>(passed) < 0.40);
}

TEST_CASE("fifty lives leave the host's mounts, groups and processes as they were") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes)) return;
  const std::string mounts = base::read_file("/proc/self/mountinfo");
  const auto root_entries = base::list_directory("/");
  const auto run_entries = base::list_directory("/run");
  for (int i = 0; i < 50; ++i) {
    sandboxes.start(1 + i % 3);
    sandboxes.backend().destroy(sandboxes.name(1 + i % 3));
  }
  CHECK(base::read_file("/proc/self/mountinfo") == mounts);
  CHECK(base::list_directory("/") == root_entries);
  CHECK(base::list_directory("/run") == run_entries);
  CHECK(traces(sandboxes.prefix()) == "");
}
