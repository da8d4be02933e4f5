// The contract of backends/backend.h: the engine's own processes are killed. The reported state of
// the sandbox stays true throughout, and a start repairs the damage.
#include <signal.h>

#include <chrono>
#include <sstream>
#include <thread>

#include "backends/remote/link_client.h"
#include "base/error.h"
#include "contract.h"
#include "results.h"

using namespace moorage;
using backends::SandboxState;
using tests::SandboxFixture;
using tests::state_of;

namespace {

// The engine's processes for this one sandbox, outside it.
std::vector<pid_t> keepers(SandboxFixture& sandboxes, int number) {
  std::vector<pid_t> found;
  if (sandboxes.kind() == "lxc") {  // its monitor
    std::istringstream pids(base::read_file(sandboxes.group(number) + "/monitor/cgroup.procs"));
    for (pid_t pid = 0; pids >> pid;) found.push_back(pid);
  } else if (sandboxes.engine().backend == "docker") {  // containerd-shim, the parent of process 1
    const int init = sandboxes.backend().inspect(sandboxes.name(number)).init.pid;
    const std::string status = base::read_file("/proc/" + std::to_string(init) + "/status");
    found.push_back(std::stoi(status.substr(status.find("PPid:") + 5)));
    REQUIRE(base::read_file("/proc/" + std::to_string(found[0]) + "/comm").find("shim") !=
            std::string::npos);
  } else if (sandboxes.can().remote) {  // the worker of the link here, and the outpost there
    const int init = sandboxes.backend().inspect(sandboxes.name(number)).init.pid;
    const std::string init_text = std::to_string(init);
    const std::string children = "/proc/" + init_text + "/task/" + init_text + "/children";
    found.push_back(std::stoi(base::read_file(children)));
    const auto there = tests::servers_there(sandboxes.name(number));
    REQUIRE(there.size() == 1);
    found.push_back(there[0]);
  }
  return found;
}

// Until then, requests are refused with the reason.
void await_link(SandboxFixture& sandboxes) {
  if (!sandboxes.can().remote) return;
  REQUIRE(tests::within(std::chrono::seconds(30), [&] {
    backends::LinkClient link(sandboxes.backend().endpoint(sandboxes.name(1)));
    return link.status(std::chrono::seconds(10)).runs;
  }));
}

// For a second: never "running" without a live process 1. An engine that is down may not answer.
void check_truth(SandboxFixture& sandboxes, int number) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  base::ProcessIdentity dead;
  while (std::chrono::steady_clock::now() < until) {
    backends::SandboxStatus status;
    try {
      status = sandboxes.backend().inspect(sandboxes.name(number));
    } catch (const base::Error& error) {
      CHECK(error.code() == base::Code::unavailable);
      return;
    }
    if (status.state != SandboxState::running) return;
    REQUIRE_FALSE(status.init == dead);  // it died before the query
    if (!base::process_alive(status.init)) dead = status.init;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// Expected after the kill: the sandbox works, or is reported as stopped.
void check_mended(SandboxFixture& sandboxes, const backends::SandboxStatus& before) {
  const bool lives = base::process_alive(before.init);
  if (lives) {
    CHECK(sandboxes.backend().inspect(sandboxes.name(1)).init == before.init);
    CHECK(sandboxes.shell(1, "cat kept; echo on") == "here\non");
    CHECK(sandboxes.start(1).init == before.init);  // no second process 1 on one tree
  } else {
    CHECK(tests::within_a_second([&] {
      const SandboxState state = state_of(sandboxes, 1);
      return state == SandboxState::stopped || state == SandboxState::absent;
    }));
    CHECK_FALSE(sandboxes.start(1).init == before.init);
  }
  CHECK(sandboxes.shell(1, "cat kept; echo on") == "here\non");
  sandboxes.backend().destroy(sandboxes.name(1));
  CHECK(sandboxes.backend().list().empty());
  CHECK(tests::traces(sandboxes) == "");
  CHECK(sandboxes.shell((sandboxes.start(1), 1), "cat kept; echo new") == "here\nnew");
}

}  // namespace

TEST_CASE(
    "after a kill of the engine's process for a sandbox, status stays true and a start repairs it",
    "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  const auto status = sandboxes.start(1);
  sandboxes.shell(1, "echo here > kept");
  sandboxes.fetch_files(1);
  const std::vector<pid_t> found = keepers(sandboxes, 1);
  if (!tests::applies(!found.empty(), "it keeps no process outside the sandbox")) return;
  for (const pid_t pid : found) {
    const auto keeper = base::identify_process(pid);
    REQUIRE(kill(pid, SIGKILL) == 0);
    REQUIRE(tests::within_a_second([&] { return !base::process_alive(keeper); }));
  }
  check_truth(sandboxes, 1);
  await_link(sandboxes);
  check_mended(sandboxes, status);
}

TEST_CASE("after a kill of the engine, status stays true, and its return repairs the rest",
          "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes)) return;
  if (!tests::applies(!sandboxes.engine().socket.empty(), "it has no daemon")) return;
  const auto engine = tests::engine_daemon(sandboxes.engine());
  if (!engine) return tests::results::not_tried("the engine's pid is unknown");
  const auto status = sandboxes.start(1);
  sandboxes.shell(1, "echo here > kept");
  REQUIRE(kill(engine->pid, SIGKILL) == 0);
  REQUIRE(tests::within_a_second([&] { return !base::process_alive(*engine); }));
  check_truth(sandboxes, 1);
  if (base::process_alive(status.init)) CHECK(sandboxes.shell(1, "echo on") == "on");
  REQUIRE(tests::within(std::chrono::seconds(60),
                        [&] { return sandboxes.another_backend()->capabilities().usable; }));
  check_truth(sandboxes, 1);
  check_mended(sandboxes, status);
}
