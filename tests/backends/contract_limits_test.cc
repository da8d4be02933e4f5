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
using backends::Capabilities;
using tests::Command;
using tests::Outcome;
using tests::RunningExec;
using tests::SandboxFixture;

namespace {

constexpr uint64_t kMegabyte = 1 << 20;

// After a kill, which another machine hears of later.
bool few_left(SandboxFixture& sandboxes) {
  return tests::within(std::chrono::seconds(10), [&] { return sandboxes.use(1).processes < 10; });
}

}  // namespace

TEST_CASE("a memory bomb is killed alone, and the next exec works", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  if (!tests::limits(sandboxes, &Capabilities::limits_memory)) return;
  const auto status = sandboxes.start(1);
  RunningExec other = sandboxes.begin(1, {.argv = {"/bin/sleep", "1000"}});
  Command bomb;
  bomb.argv = {"/usr/bin/tail", "/dev/zero"};  // keeps one endless line
  const Outcome outcome = sandboxes.run(1, bomb);
  CHECK(outcome.kind == "signalled");
  CHECK(outcome.signal == SIGKILL);
  CHECK_FALSE(other.ended());
  CHECK(sandboxes.shell(1, "echo fine") == "fine");
  CHECK(sandboxes.backend().inspect(sandboxes.name(1)).init == status.init);
}

TEST_CASE("a kill for memory is counted for its exec", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  if (!tests::limits(sandboxes, &Capabilities::limits_memory)) return;
  if (!tests::applies(!sandboxes.can().remote, "the other machine does not say whose it was"))
    return;
  sandboxes.start(1);
  CHECK(sandboxes.run(1, {.argv = {"/usr/bin/tail", "/dev/zero"}}).oom_kills >= 1);
  CHECK(sandboxes.run(1, {.argv = {"/bin/true"}}).oom_kills == 0);
}

TEST_CASE("memory up to the limit is available to all commands together, but no more",
          "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  if (!tests::limits(sandboxes, &Capabilities::limits_memory)) return;
  sandboxes.start(1);  // 256 MiB
  sandboxes.use(1);
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
    highest = std::max(highest, sandboxes.use(1).memory_bytes);
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
    if (!sandboxes.can().remote) CHECK(outcome.oom_kills >= 1);
  }
  CHECK(sandboxes.shell(1, "echo fine") == "fine");
}

TEST_CASE("programs find the limits of memory and processors that hold for them", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::isolates(sandboxes)) return;
  if (!tests::limits(sandboxes, &Capabilities::limits_memory)) return;
  auto spec = sandboxes.spec(1);
  spec.limits.cpus = 0.5;
  sandboxes.start(spec);  // 256 MiB
  CHECK(sandboxes.shell(1, "nproc") == "1");
  // As programs look for it: the group that /proc names, below the mount (cgroups(7)).
  const std::string limit =
      "if [ -e /sys/fs/cgroup/memory ]; then cat /sys/fs/cgroup/memory$(sed -n "
      "'s/^[0-9]*:memory://p' /proc/self/cgroup)/memory.limit_in_bytes; else cat "
      "/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)/memory.max; fi";
  CHECK(sandboxes.shell(1, limit) == std::to_string(spec.limits.memory_bytes));
  CHECK(sandboxes.shell(1, "df -B1 --output=size /dev/shm | tail -n 1") ==
        std::to_string(spec.limits.memory_bytes / 2));
}

TEST_CASE("a fork bomb hits its limit and the next exec works", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  if (!tests::limits(sandboxes, &Capabilities::limits_pids)) return;
  sandboxes.start(1);
  Command bomb;
  bomb.argv = {"/bin/sh", "-c", "for i in $(seq 500); do sleep 100 & done; wait"};
  bomb.timeout_ms = 5'000 * tests::patience();
  sandboxes.use(1);
  const Outcome outcome = sandboxes.run(1, bomb);
  CHECK(outcome.output.find("fork") != std::string::npos);
  CHECK(few_left(sandboxes));
  CHECK(sandboxes.shell(1, "echo fine") == "fine");
}

TEST_CASE("processes never exceed the limit", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  if (!tests::limits(sandboxes, &Capabilities::limits_pids)) return;
  const auto spec = sandboxes.spec(1);
  sandboxes.start(spec);
  sandboxes.use(1);
  std::vector<std::unique_ptr<RunningExec>> bombs;
  const std::string forks = "read -r go; for i in $(seq 50); do sleep 100 & done; wait";
  const Command bomb{.argv = {"/bin/sh", "-c", forks}, .input = true};
  for (int i = 0; i < 3; ++i) {  // each alone is below it; none forks until all have started
    bombs.push_back(std::make_unique<RunningExec>(sandboxes.backend(), spec.name,
                                                  sandboxes.store() + "/bomb" + std::to_string(i),
                                                  "ex_bomb" + std::to_string(i), bomb));
  }
  for (const auto& each : bombs) each->send("go\n");
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
  CHECK(sandboxes.use(1).processes <= spec.limits.pids + bombs.size());
  bombs.clear();
  CHECK(few_left(sandboxes));
  CHECK(sandboxes.shell(1, "echo fine") == "fine");
}

TEST_CASE("a running fork bomb does not block the next exec", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  if (!tests::limits(sandboxes, &Capabilities::limits_pids)) return;
  const auto status = sandboxes.start(1);
  sandboxes.use(1);
  const std::string probe = sandboxes.program(1, COMMAND_PROBE);
  RunningExec bomb = sandboxes.begin(
      1, {.argv = {"/bin/sh", "-c", "setsid " + probe + " forks & read -r line"}, .input = true});
  CHECK(tests::within(std::chrono::seconds(20), [&] { return sandboxes.use(1).processes >= 60; }));
  backends::EnvdClient client(sandboxes.backend().endpoint(sandboxes.name(1)));
  CHECK(client.healthy(std::chrono::seconds(5)));
  bomb.send("end\n");
  CHECK(bomb.finish().code == 0);  // kills its group, which the bomb is still in
  CHECK(few_left(sandboxes));
  CHECK(sandboxes.shell(1, "echo fine") == "fine");
  CHECK(sandboxes.backend().inspect(sandboxes.name(1)).init == status.init);
}

TEST_CASE("a fork bomb that its command leaves behind is ended", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  if (!tests::applies(sandboxes.can().remote, "the daemon ends it, by its control group")) return;
  sandboxes.start(1);  // 64 processes
  const std::string probe = sandboxes.program(1, COMMAND_PROBE);
  RunningExec left = sandboxes.begin(1, {.argv = {"/bin/sh", "-c", "sleep 1000 & echo $!"}});
  RunningExec bomb = sandboxes.begin(
      1, {.argv = {"/bin/sh", "-c", "for i in $(seq 40); do sleep 2000 & done; exit 0"}});
  CHECK(tests::within(std::chrono::seconds(10), [&] { return left.ended() && bomb.ended(); }));
  const auto count = [&](const std::string& what) {
    return sandboxes.shell(1, "grep -lz '^" + what + "$' /proc/[0-9]*/cmdline | wc -l");
  };
  CHECK(tests::within(std::chrono::seconds(20), [&] { return count("2000") == "0"; }));
  CHECK(count("1000") == "1");
}

TEST_CASE("the CPU limit applies to all commands together", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  if (!tests::limits(sandboxes, &Capabilities::limits_cpu)) return;
  auto spec = sandboxes.spec(1);
  spec.limits.cpus = 0.25;
  sandboxes.start(spec);
  const std::string probe = sandboxes.program(1, COMMAND_PROBE);
  const Command spin{.argv = {probe, "spin", "1000"}};  // prints the microseconds that it got
  RunningExec one = sandboxes.begin(1, spin);
  RunningExec other = sandboxes.begin(1, spin);
  const double used = std::stod(one.finish().output) + std::stod(other.finish().output);
  CHECK(used > 0);
  CHECK(used / 1'000'000 < 0.40);
  if (!sandboxes.can().remote) CHECK(sandboxes.backend().inspect(spec.name).cpu_usec >= used);
}

TEST_CASE("the disk rate limit is enforced", "[contract]") {
  // The writes below last two seconds.
  SandboxFixture sandboxes(EACH_BACKEND,
                           [](auto& options) { options.disk_rate_bytes = kMegabyte; });
  if (!sandboxes.runs_commands()) {
    tests::runs_commands(sandboxes);
    return;
  }
  if (!tests::applies(!sandboxes.can().remote, "the other machine has disks of its own")) return;
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
