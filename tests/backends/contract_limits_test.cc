// The contract of backends/backend.h: the kernel enforces limits against everyone.
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "backends/cgroups/block_device.h"
#include "backends/envd_client.h"
#include "base/error.h"
#include "contract.h"
#include "results.h"

using namespace moorage;
using tests::Command;
using tests::Outcome;
using tests::RunningExec;
using tests::SandboxFixture;

namespace {

constexpr uint64_t kMegabyte = 1 << 20;

}  // namespace

TEST_CASE("a memory bomb is killed alone, counted for its exec, and the next exec works",
          "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  if (!tests::limits(sandboxes)) return;
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

TEST_CASE("memory up to the limit is available to all commands together, but no more",
          "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  if (!tests::limits(sandboxes)) return;
  sandboxes.start(1);  // 256 MiB
  const std::string probe = sandboxes.program(1, COMMAND_PROBE);
  {
    RunningExec most = sandboxes.begin(1, {.argv = {probe, "hold", "200"}});
    CHECK(most.wait_for("held"));
  }
  // Each alone would get the memory it requests.
  const Command part{.argv = {probe, "hold", "110"}};
  RunningExec first = sandboxes.begin(1, part);
  CHECK(first.wait_for("held"));
  RunningExec second = sandboxes.begin(1, part);
  CHECK(second.wait_for("held"));
  RunningExec third = sandboxes.begin(1, part);
  uint64_t highest = 0;
  const auto ended = [&] { return first.ended() + second.ended() + third.ended(); };
  CHECK(tests::within(std::chrono::seconds(20), [&] {
    highest = std::max(highest, sandboxes.backend().inspect(sandboxes.name(1)).memory_bytes);
    return ended() > 0;
  }));
  // One was too many; the kernel may kill a second before the first has freed all its memory.
  CHECK(ended() >= 1);
  CHECK(ended() <= 2);
  CHECK(highest > 200 * kMegabyte);
  CHECK(highest < 300 * kMegabyte);  // the warden's, and kernel memory for it
  for (RunningExec* exec : {&first, &second, &third}) {
    if (!exec->ended()) continue;
    const Outcome outcome = exec->finish();
    CHECK(outcome.signal == SIGKILL);
    CHECK(outcome.oom_kills >= 1);
  }
  CHECK(sandboxes.shell(1, "echo fine") == "fine");
}

TEST_CASE("a fork bomb hits its limit and the next exec works", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  if (!tests::limits(sandboxes)) return;
  sandboxes.start(1);
  Command bomb;
  bomb.argv = {"/bin/sh", "-c", "for i in $(seq 500); do sleep 100 & done; wait"};
  bomb.timeout_ms = 5'000 * tests::patience();
  const Outcome outcome = sandboxes.run(1, bomb);
  CHECK(outcome.output.find("fork") != std::string::npos);
  CHECK(sandboxes.shell(1, "echo fine") == "fine");
}

TEST_CASE("processes never exceed the limit", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  if (!tests::limits(sandboxes)) return;
  const auto spec = sandboxes.spec(1);
  sandboxes.backend().start(spec);
  std::vector<std::unique_ptr<RunningExec>> bombs;
  const Command bomb{.argv = {"/bin/sh", "-c", "for i in $(seq 50); do sleep 100 & done; wait"}};
  for (int i = 0; i < 3; ++i) {  // each alone is below it
    bombs.push_back(std::make_unique<RunningExec>(sandboxes.backend(), spec.name,
                                                  sandboxes.store() + "/bomb" + std::to_string(i),
                                                  "ex_bomb" + std::to_string(i), bomb));
  }
  const auto members = [&] { return sandboxes.backend().members(spec.name).size(); };
  size_t highest = 0;
  CHECK(tests::within(std::chrono::seconds(20), [&] {
    highest = std::max(highest, members());
    return bombs[0]->output().find("fork") != std::string::npos ||
           bombs[1]->output().find("fork") != std::string::npos ||
           bombs[2]->output().find("fork") != std::string::npos;
  }));
  CHECK(highest <= spec.limits.pids);
  CHECK(members() <= spec.limits.pids);
  // For an instant the kernel also counts a process that it refuses.
  CHECK(sandboxes.backend().inspect(spec.name).processes <= spec.limits.pids + bombs.size());
  bombs.clear();
  CHECK(sandboxes.shell(1, "echo fine") == "fine");
}

TEST_CASE("a running fork bomb does not block the next exec", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  if (!tests::limits(sandboxes)) return;
  const auto status = sandboxes.start(1);
  // Left behind as daemons of an ended exec; its group is removed only after this test's kill.
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

TEST_CASE("the CPU limit applies to all commands together", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  if (!tests::limits(sandboxes)) return;
  auto spec = sandboxes.spec(1);
  spec.limits.cpus = 0.25;
  sandboxes.backend().start(spec);
  const auto cpu = [&] { return sandboxes.backend().inspect(spec.name).cpu_usec; };
  Command spin;
  spin.argv = {"/bin/sh", "-c", "while :; do :; done"};
  spin.timeout_ms = 1'000;
  const auto wall = std::chrono::steady_clock::now();
  const uint64_t before = cpu();
  {
    RunningExec one = sandboxes.begin(1, spin);
    RunningExec other = sandboxes.begin(1, spin);
    CHECK(one.finish().kind == "timed_out");
    CHECK(other.finish().kind == "timed_out");
  }
  const auto used = static_cast<double>(cpu() - before);
  const auto passed =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - wall)
          .count();
  CHECK(used > 0);
  CHECK(used / static_cast<double>(passed) < 0.40);
}

TEST_CASE("the disk rate limit is enforced", "[contract]") {
  // The writes below last two seconds.
  SandboxFixture sandboxes(EACH_BACKEND,
                           [](auto& options) { options.disk_rate_bytes = kMegabyte; });
  if (!sandboxes.runs_commands()) {
    tests::runs_commands(sandboxes);
    return;
  }
  if (!tests::limits(sandboxes)) return;
  if (!backends::find_cgroups().disk) {
    return tests::results::not_tried("this host has no controller for disk rates");
  }
  try {
    backends::disk_of(sandboxes.store());
  } catch (const base::Error& error) {
    return tests::results::not_tried("the store is not on a disk: " + error.message());
  }
  if (!tests::available(sandboxes)) return;
  sandboxes.start(1);
  const auto start = std::chrono::steady_clock::now();
  sandboxes.shell(1, "dd if=/dev/zero of=/workspace/written bs=256k count=8 oflag=direct 2>&1");
  // A lower bound: no slow machine passes it without the limit on a working disk, and no fast one
  // fails it with the limit.
  CHECK(std::chrono::steady_clock::now() - start > std::chrono::milliseconds(1200));
}
