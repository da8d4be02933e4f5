// kill -9 during a write: afterwards either all of it is there or nothing.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>

#include "base/os/fd.h"
#include "state_db/statement.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/repositories.h"
#include "store_fixture.h"

using namespace moorage;
using namespace moorage::state_db;
using namespace moorage::state_db_test;

namespace {

int64_t count(Store& store, const std::string& query_text) {
  Statement query = store.prepare(query_text);
  query.step();
  int64_t number = 0;
  query.read(number);
  return number;
}

// Invariants after any death: every row has its first event, every state is that of its last event,
// every workspace has its layer and labels, every sandbox that is not destroyed has its slot, and
// no other one has a slot.
void check_whole(Store& store) {
  CHECK(count(store, "SELECT count(*) FROM pragma_foreign_key_check") == 0);
  for (const auto& [table, noun] :
       {std::pair{"workspaces", "workspace"}, {"sandboxes", "sandbox"}, {"execs", "exec"}}) {
    CAPTURE(table);
    const std::string last_event = std::string("(SELECT to_state FROM events WHERE kind = '") +
                                   noun + ".state' AND events." + noun + " = " + table +
                                   ".id ORDER BY seq DESC LIMIT 1)";
    CHECK(count(store, std::string("SELECT count(*) FROM ") + table + " WHERE state IS NOT " +
                           last_event) == 0);
  }
  CHECK(count(store, "SELECT count(*) FROM layers") ==
        count(store, "SELECT count(*) FROM workspaces"));
  CHECK(count(store, "SELECT count(*) FROM workspace_labels") ==
        2 * count(store, "SELECT count(*) FROM workspaces"));
  CHECK(count(store,
              "SELECT count(*) FROM sandboxes LEFT JOIN id_ranges ON sandbox = sandboxes.id WHERE "
              "(state <> 'destroyed') <> (slot IS NOT NULL)") == 0);
  CHECK(count(store,
              "SELECT count(*) FROM execs WHERE (state = 'running') <> (ended_wall_ms = 0)") == 0);
}

// One life cycle of each object; `name` distinguishes it from earlier ones.
void live_once(Store& store, base::RepoId repository, const std::string& name) {
  const auto workspace = make_workspace(store, repository, name);
  SandboxTable sandboxes(store);
  const auto sandbox = make_sandbox(store, workspace);
  sandboxes.set_running(sandbox.id, {.init = {.pid = 7, .start_ticks = 8}});
  ExecTable execs(store);
  const auto exec = execs.create(new_exec(sandbox)).id;
  execs.finish(exec, {.state = ExecState::exited, .exit_code = 0});
  store.move(sandbox.id, SandboxState::running, SandboxState::stopping);
  sandboxes.set_stopped(sandbox.id);
  sandboxes.set_destroyed(sandbox.id, SandboxState::stopped);
  store.move(workspace, WorkspaceState::ready, WorkspaceState::deleting, "test");
  WorkspaceTable(store).finish_delete(workspace);
}

}  // namespace

TEST_CASE("a crash between any two statements keeps all of a write or nothing") {
  TestStore test;
  const auto repository = make_repository(*test.store);
  test.store.reset();
  int lives = 0;
  bool survived = false;
  for (int64_t death = 0; !survived; ++death) {
    REQUIRE(death < 100);
    const int status = run_in_child([&] {
      Store store(test.options());
      test.clock.questions_until_death = death;
      live_once(store, repository, "life-" + std::to_string(death));
    });
    survived = WIFEXITED(status);
    if (survived) CHECK(WEXITSTATUS(status) == 0);
    ++lives;
    test.open();
    check_whole(*test.store);
    test.store.reset();
  }
  CHECK(lives > 15);
}

TEST_CASE("a crash at any time keeps every acknowledged write") {
  TestStore test;
  const auto repository = make_repository(*test.store);
  test.store.reset();
  for (int round = 0; round < 25; ++round) {
    base::Pipe acknowledged = base::make_pipe();
    const pid_t child = base::check(fork(), "fork");
    if (child == 0) {
      Store store(test.options());
      const auto workspace = make_workspace(store, repository, "w" + std::to_string(round));
      const auto sandbox = make_sandbox(store, workspace);
      for (;;) {
        const auto id = ExecTable(store).create(new_exec(sandbox)).id;
        base::write_all(acknowledged.write_end.get(),
                        std::string_view(reinterpret_cast<const char*>(&id.value), 8));
        if (id.value % 2 == 0)
          ExecTable(store).finish(id, {.state = ExecState::exited, .exit_code = 3});
      }
    }
    acknowledged.write_end.reset();
    int64_t last = 0;
    int64_t seen = 0;
    const int wanted = 5 + round * 7;
    std::string bytes =
        base::read_up_to(acknowledged.read_end.get(), 8 * static_cast<size_t>(wanted));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    bytes += base::read_up_to(acknowledged.read_end.get(), 1 << 20);
    REQUIRE(bytes.size() % 8 == 0);
    test.open();
    for (size_t at = 0; at < bytes.size(); at += 8) {
      memcpy(&last, bytes.data() + at, 8);
      const auto row = ExecTable(*test.store).find(base::ExecId{last});
      REQUIRE(row);
      // The next one was begun, so the finish of this one was acknowledged.
      if (last % 2 == 0 && at + 8 < bytes.size()) CHECK(row->state == ExecState::exited);
      ++seen;
    }
    CHECK(seen >= wanted);
    check_whole(*test.store);
    test.store.reset();
  }
}
