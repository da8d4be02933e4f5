// The contract of backends/backend.h: frozen sandboxes, and new mounts for running ones.
#include <fcntl.h>
#include <sys/mount.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "base/os/mount.h"
#include "base/os/namespaces.h"
#include "contract.h"

using namespace moorage;
using backends::SandboxState;
using tests::Command;
using tests::RunningExec;
using tests::SandboxFixture;
using tests::state_of;

namespace {

constexpr const char* kPlaces[] = {"/workspace", "/home/user"};

// As in layers/sandbox_mounts.cc: afterwards either all mounts are new, or all are unchanged.
// Returns 0, or the errno of the refused umount. Consumes its argument: a descriptor of a mount
// keeps it busy, as a process inside does.
int exchange(const base::ProcessIdentity& init, std::vector<base::Fd> next) {
  int refused = 0;
  base::in_mount_namespace(init, [&] {
    std::vector<base::Fd> before;
    for (const char* place : kPlaces) before.push_back(base::clone_mount(place));
    size_t taken = 0;
    for (const char* place : kPlaces) {
      if (umount2(place, UMOUNT_NOFOLLOW) != 0) {
        refused = errno;
        break;
      }
      ++taken;
    }
    const std::vector<base::Fd>& mounts = refused ? before : next;
    for (size_t i = 0; i < taken; ++i) base::attach_mount(mounts[i].get(), kPlaces[i]);
  });
  return refused;
}

// Mounts of directories that contain only a file "which" with the name.
std::vector<base::Fd> other_mounts(SandboxFixture& sandboxes, const std::string& which) {
  const auto spec = sandboxes.spec(1);
  std::vector<base::Fd> mounts;
  for (const char* part : {"tree", "home"}) {
    const std::string path = sandboxes.store() + "/" + which + "/" + part;
    mounts.push_back(sandboxes.mount_of(path, spec));
    base::write_file(path + "/which", which + "\n", 0644);
  }
  return mounts;
}

int exchange_while_frozen(SandboxFixture& sandboxes, std::vector<base::Fd> next) {
  const std::string name = sandboxes.name(1);
  sandboxes.backend().freeze(name);
  const int refused = exchange(sandboxes.backend().inspect(name).init, std::move(next));
  sandboxes.backend().thaw(name);
  return refused;
}

bool exchanges_mounts(SandboxFixture& sandboxes) {
  return tests::applies(sandboxes.can().restack, "it does not support exchanging mounts") &&
         tests::applies(!sandboxes.can().remote, "its commands have files of another machine");
}

}  // namespace

TEST_CASE("a frozen sandbox stays stopped until thawed", "[contract]") {
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

TEST_CASE("no process in a frozen sandbox runs, and all continue after the thaw", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  if (!tests::applies(!sandboxes.can().remote,
                      "a freeze pauses the link; commands on the other machine go on")) {
    return;
  }
  sandboxes.start(1);
  const std::string name = sandboxes.name(1);
  const std::string file = sandboxes.workspace(1) + "/counter";
  const auto counted = [&] { return base::read_file_if_exists(file).value_or(""); };
  const auto cpu = [&] { return sandboxes.backend().inspect(name).cpu_usec; };
  RunningExec counter = sandboxes.begin(
      1, {.argv = {sandboxes.program(1, COMMAND_PROBE), "count", "/workspace/counter"}});
  REQUIRE(tests::within(std::chrono::seconds(10), [&] { return counted().size() == 21; }));

  sandboxes.backend().freeze(name);
  const std::string stands = counted();
  const uint64_t used = cpu();
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  while (std::chrono::steady_clock::now() < until) REQUIRE(counted() == stands);
  CHECK(cpu() - used < 20'000);  // of 300,000; a tick may still be unaccounted

  sandboxes.backend().thaw(name);
  CHECK(tests::within_a_second([&] { return counted() > stands; }));
  CHECK_FALSE(counter.ended());
}

TEST_CASE("a sandbox freezes and thaws a hundred times while commands start", "[contract][long]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  sandboxes.start(1);
  RunningExec busy = sandboxes.begin(
      1, {.argv = {"/bin/sh", "-c", "while [ ! -e end ]; do /bin/true; done; echo ended"}});
  for (int round = 0; round < 100; ++round) {
    sandboxes.backend().freeze(sandboxes.name(1));
    REQUIRE(state_of(sandboxes, 1) == SandboxState::frozen);
    sandboxes.backend().thaw(sandboxes.name(1));
    REQUIRE(state_of(sandboxes, 1) == SandboxState::running);
  }
  base::write_file(sandboxes.workspace(1) + "/end", "");
  sandboxes.send_files(1, {"/workspace/end"});
  CHECK(busy.finish().output == "ended\n");
}

TEST_CASE("a frozen sandbox can be destroyed", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes)) return;
  sandboxes.start(1);
  sandboxes.backend().freeze(sandboxes.name(1));
  sandboxes.backend().destroy(sandboxes.name(1));
  CHECK(sandboxes.backend().list().empty());
}

TEST_CASE("a running sandbox gets new mounts, all at once", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  if (!exchanges_mounts(sandboxes)) return;
  const auto init = sandboxes.start(1).init;
  sandboxes.shell(1, "echo first > /workspace/which; echo first > $HOME/which");
  RunningExec waiting =
      sandboxes.begin(1, {.argv = {"/bin/sh", "-c",
                                   "until grep -q second /workspace/which; do :; done; "
                                   "cat /workspace/which /home/user/which"},
                          .directory = "/"});
  REQUIRE(exchange_while_frozen(sandboxes, other_mounts(sandboxes, "second")) == 0);
  CHECK(waiting.finish().output == "second\nsecond\n");
  CHECK(sandboxes.shell(1, "cat which ~/which; echo written > made; stat -c %U:%a made .") ==
        "second\nsecond\nuser:644\nuser:755");
  CHECK(base::read_file(sandboxes.store() + "/second/tree/made") == "written\n");
  CHECK_FALSE(base::path_exists(sandboxes.workspace(1) + "/made"));
  CHECK(base::read_file(sandboxes.workspace(1) + "/which") == "first\n");
  // Again: mounts that came from outside can be replaced too.
  REQUIRE(exchange_while_frozen(sandboxes, other_mounts(sandboxes, "third")) == 0);
  CHECK(sandboxes.shell(1, "cat which ~/which") == "third\nthird");
  CHECK(sandboxes.backend().inspect(sandboxes.name(1)).init == init);
}

TEST_CASE("mounts in use inside are not exchanged, and nothing changes", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  if (!exchanges_mounts(sandboxes)) return;
  const std::string held = GENERATE(as<std::string>{}, "/workspace", "/home/user");
  CAPTURE(held);
  sandboxes.start(1);
  sandboxes.shell(1, "echo first > /workspace/which; echo first > $HOME/which");
  RunningExec holder = sandboxes.begin(
      1, {.argv = {"/bin/sh", "-c", "echo holds; until [ -e end ]; do sleep 0.01; done; cat which"},
          .directory = held});
  REQUIRE(holder.wait_for("holds"));
  CHECK(exchange_while_frozen(sandboxes, other_mounts(sandboxes, "second")) == EBUSY);
  CHECK(sandboxes.shell(1, "cat /workspace/which $HOME/which") == "first\nfirst");
  sandboxes.shell(1, "touch " + held + "/end");
  CHECK(holder.finish().output == "holds\nfirst\n");
  CHECK(exchange_while_frozen(sandboxes, other_mounts(sandboxes, "second")) == 0);
  CHECK(sandboxes.shell(1, "cat /workspace/which $HOME/which") == "second\nsecond");
}

TEST_CASE("the mounts here are exchanged while a command runs on another machine", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::runs_commands(sandboxes)) return;
  if (!tests::applies(sandboxes.can().remote, "its commands run on this host")) return;
  const auto init = sandboxes.start(1).init;
  sandboxes.shell(1, "echo first > which");
  RunningExec holder = sandboxes.begin(
      1,
      {.argv = {"/bin/sh", "-c", "echo holds; until grep -q second which; do sleep 0.01; done"}});
  REQUIRE(holder.wait_for("holds"));
  CHECK(exchange_while_frozen(sandboxes, other_mounts(sandboxes, "second")) == 0);
  CHECK(sandboxes.shell(1, "cat which") == "first");
  CHECK_FALSE(holder.ended());
  sandboxes.send_files(1, {"/workspace/which"});  // from the new mounts
  CHECK(holder.finish().code == 0);
  CHECK(sandboxes.backend().inspect(sandboxes.name(1)).init == init);
}
