// The disk guard ends writers while the disk of the store is nearly full, and nothing else.
#include "workspace/upkeep/disk_guard.h"

#include <catch2/catch.hpp>

#include "base/os/files.h"
#include "workspace/recovery/recovery_fixture.h"

namespace moorage::workspace {
namespace {

struct GuardFixture : RecoveryFixture {
  // Its first process is this one: it writes what the test writes.
  state_db::SandboxRow make_live(const std::string& name) {
    const auto row = make_running(name, "lxc");
    auto running = std::make_shared<LiveSandbox>();
    running->sandbox = row.id;
    running->workspace = row.workspace;
    running->name = row.name;
    running->backend = lxc;
    running->init = row.init;
    live.set_running(running);
    return row;
  }
  bool runs(const state_db::SandboxRow& row) { return live.running(row.workspace) != nullptr; }
  // So large a reserve that nothing is left of it.
  void fill_the_disk() {
    context.options.min_free_bytes = base::file_system_space(directory.path()).free_bytes * 16;
  }
  void write(size_t bytes) {
    base::write_file(directory.path() + "/written", std::string(bytes, 'x'));
  }
  size_t events(const std::string& kind) {
    size_t count = 0;
    for (const auto& event : store.events(0, 1000)) count += event.kind == kind ? 1 : 0;
    return count;
  }
};

}  // namespace

TEST_CASE("on a nearly full disk the sandbox that writes is stopped") {
  GuardFixture test;
  const auto row = test.make_live("writer");
  test.fill_the_disk();
  test.guard.look();  // only measures
  CHECK(test.runs(row));
  test.write(4 << 20);
  test.guard.look();
  CHECK_FALSE(test.runs(row));
  CHECK(test.events("store.writer_ended") == 1);
}

TEST_CASE("a sandbox that does not write runs on, however full the disk is") {
  GuardFixture test;
  const auto row = test.make_live("quiet");
  test.fill_the_disk();
  for (int check = 0; check < 3; ++check) test.guard.look();
  CHECK(test.runs(row));
}

TEST_CASE("with enough room no sandbox is stopped, and each change of the level is one event") {
  GuardFixture test;
  const auto row = test.make_live("writer");
  test.context.options.min_free_bytes = 1;
  test.context.options.min_free_inodes = 1;
  test.guard.look();
  test.write(4 << 20);
  test.guard.look();
  CHECK(test.runs(row));
  test.fill_the_disk();
  test.guard.look();
  test.guard.look();
  test.context.options.min_free_bytes = 1;
  test.guard.look();
  CHECK(test.events("store.room") == 2);
}

}  // namespace moorage::workspace
