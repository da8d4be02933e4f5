// The contract of backends/backend.h, unchanged for every backend: names, starts and ends.
#include <algorithm>
#include <array>
#include <latch>
#include <thread>

#include "base/error.h"
#include "contract.h"

using namespace moorage;
using backends::SandboxState;
using tests::kill_init;
using tests::SandboxFixture;
using tests::state_of;
using tests::traces;
using tests::within_a_second;

TEST_CASE("a sandbox starts, is found, and is gone after destroy", "[contract]") {
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

TEST_CASE("starting a running name returns the same sandbox", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes)) return;
  const auto first = sandboxes.start(1);
  const auto second = sandboxes.start(1);
  CHECK(second.init == first.init);
  CHECK(sandboxes.backend().list().size() == 1);
}

TEST_CASE("two threads starting one name make one sandbox", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes)) return;
  const std::string name = sandboxes.name(1);
  for (int round = 0; round < 5; ++round) {
    // The same target twice, each with its own mounts: a mount can be attached only once.
    const std::array<backends::SandboxSpec, 2> specs{sandboxes.spec(1), sandboxes.spec(1)};
    std::array<backends::SandboxStatus, 2> answers;
    std::array<std::string, 2> failures;
    std::latch both(2);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < 2; ++i) {
      threads.emplace_back([&, i] {
        both.arrive_and_wait();
        try {
          answers[i] = sandboxes.start(specs[i]);
        } catch (const base::Error& error) {
          failures[i] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(failures == std::array<std::string, 2>{});
    CHECK(answers[0].init == answers[1].init);
    CHECK(base::process_alive(answers[0].init));
    CHECK(sandboxes.backend().list() == std::vector<std::string>{name});
    if (sandboxes.runs_commands()) CHECK(sandboxes.shell(1, "echo one") == "one");
    sandboxes.backend().destroy(name);
  }
}

TEST_CASE("destroying a missing sandbox succeeds, twice", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes)) return;
  CHECK_NOTHROW(sandboxes.backend().destroy(sandboxes.name(7)));
  sandboxes.start(1);
  sandboxes.backend().destroy(sandboxes.name(1));
  CHECK_NOTHROW(sandboxes.backend().destroy(sandboxes.name(1)));
}

TEST_CASE("list finds exactly the sandboxes of this store", "[contract]") {
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

TEST_CASE("a name of another store is refused", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes)) return;
  auto spec = sandboxes.spec(1);
  spec.name = "moorage-somebody-else-sb_1";
  CHECK_THROWS_AS(sandboxes.backend().start(spec), base::Error);
}

TEST_CASE("an unsupported request is refused and leaves nothing", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
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

TEST_CASE("a start that fails halfway leaves nothing behind", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  auto spec = sandboxes.spec(1);
  spec.mounts[0].target = "/proc/1/no-such-place";
  CHECK_THROWS_AS(sandboxes.backend().start(spec), base::Error);
  CHECK(sandboxes.backend().list().empty());
  CHECK(traces(sandboxes) == "");
  CHECK(sandboxes.start(1).state == SandboxState::running);
}

TEST_CASE("another backend object finds, inspects and destroys the first one's sandbox",
          "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  const auto status = sandboxes.start(1);
  auto second = sandboxes.another_backend();
  CHECK(second->list() == std::vector<std::string>{sandboxes.name(1)});
  CHECK(second->inspect(sandboxes.name(1)).init == status.init);
  CHECK(second->endpoint(sandboxes.name(1)).unix_socket ==
        sandboxes.backend().endpoint(sandboxes.name(1)).unix_socket);
  second->destroy(sandboxes.name(1));
  CHECK(state_of(sandboxes, 1) == SandboxState::absent);
}

TEST_CASE("stop ends all processes and leaves no trace", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes)) return;
  sandboxes.start(1);
  if (sandboxes.runs_commands()) sandboxes.shell(1, "setsid sleep 1000 >/dev/null 2>&1 &");
  sandboxes.backend().stop(sandboxes.name(1), std::chrono::milliseconds(300));
  CHECK(state_of(sandboxes, 1) == SandboxState::absent);
  CHECK(traces(sandboxes) == "");
}

TEST_CASE("the death of process 1 is detected within a second, and a start repairs it",
          "[contract]") {
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

TEST_CASE("killing a whole sandbox is detected, and a start repairs it", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  const auto status = sandboxes.start(1);
  tests::RunningExec exec = sandboxes.begin(1, {.argv = {"/bin/sleep", "1000"}});
  for (const pid_t pid : sandboxes.backend().members(sandboxes.name(1))) kill(pid, SIGKILL);
  REQUIRE(kill(status.init.pid, SIGKILL) == 0);
  CHECK(within_a_second([&] { return state_of(sandboxes, 1) == SandboxState::stopped; }));
  CHECK_FALSE(sandboxes.start(1).init == status.init);
  CHECK(sandboxes.shell(1, "echo again") == "again");
}
