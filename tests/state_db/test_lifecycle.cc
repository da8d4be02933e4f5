// Every pair of states of every life cycle, against real rows.
#include <catch2/catch.hpp>
#include <set>

#include "state_db/lifecycle.h"
#include "state_db/statement.h"
#include "state_db/tables/approvals.h"
#include "state_db/tables/best_of.h"
#include "state_db/tables/snapshots.h"
#include "store_fixture.h"

using namespace moorage;
using namespace moorage::state_db;
using namespace moorage::state_db_test;

namespace {

// Writes the state directly: the test must not depend on a sequence of moves.
template <typename State>
void put_state(Store& store, const std::string& table, int64_t id, State state) {
  store.transaction([&] {
    store.prepare("UPDATE " + table + " SET state = ? WHERE id = ?").run(state_name(state), id);
  });
}

template <typename State>
State present_state(Store& store, const std::string& table, int64_t id) {
  Statement query = store.prepare("SELECT state FROM " + table + " WHERE id = ?");
  query.bind(id);
  REQUIRE(query.step());
  State state{};
  query.read(state);
  return state;
}

template <typename State>
void check_all_pairs(Store& store, const std::string& table, typename LifeCycle<State>::Id id) {
  const size_t count = LifeCycle<State>::kNames.size();
  size_t legal = 0;
  for (size_t from = 0; from < count; ++from) {
    for (size_t to = 0; to < count; ++to) {
      const auto first = static_cast<State>(from);
      const auto second = static_cast<State>(to);
      CAPTURE(table, state_name(first), state_name(second));
      put_state(store, table, id.value, first);
      const int64_t last = store.last_event();
      if (may_move(first, second)) {
        ++legal;
        store.move(id, first, second, "because");
        CHECK(present_state<State>(store, table, id.value) == second);
        const auto events = store.events(last, 10);
        REQUIRE(events.size() == 1);
        CHECK(events[0].kind == std::string(LifeCycle<State>::kNoun) + ".state");
        CHECK(events[0].from == state_name(first));
        CHECK(events[0].to == state_name(second));
        CHECK(events[0].text == "because");
      } else {
        CHECK(code_thrown_by([&] { store.move(id, first, second); }) == base::Code::internal);
        CHECK(present_state<State>(store, table, id.value) == first);
        CHECK(store.last_event() == last);
      }
    }
  }
  CHECK(legal == LifeCycle<State>::kMoves.size());
}

// Legal moves whose `from` differs from the current state.
template <typename State>
void check_conflicts(Store& store, const std::string& table, typename LifeCycle<State>::Id id) {
  for (const auto& move : LifeCycle<State>::kMoves) {
    for (size_t other = 0; other < LifeCycle<State>::kNames.size(); ++other) {
      const auto present = static_cast<State>(other);
      if (present == move.from) continue;
      put_state(store, table, id.value, present);
      const int64_t last = store.last_event();
      CHECK(code_thrown_by([&] { store.move(id, move.from, move.to); }) == base::Code::conflict);
      CHECK(present_state<State>(store, table, id.value) == present);
      CHECK(store.last_event() == last);
    }
    using Id = typename LifeCycle<State>::Id;
    CHECK(code_thrown_by([&] { store.move(Id{999'999}, move.from, move.to); }) ==
          base::Code::not_found);
  }
}

template <typename State>
void check_reachable() {
  std::set<State> reached{LifeCycle<State>::kFirst};
  for (size_t round = 0; round < LifeCycle<State>::kNames.size(); ++round) {
    for (const auto& move : LifeCycle<State>::kMoves) {
      if (reached.contains(move.from)) reached.insert(move.to);
    }
  }
  CHECK(reached.size() == LifeCycle<State>::kNames.size());
  std::set<std::pair<State, State>> moves;
  for (const auto& move : LifeCycle<State>::kMoves) moves.insert({move.from, move.to});
  CHECK(moves.size() == LifeCycle<State>::kMoves.size());
}

}  // namespace

TEST_CASE("every legal move works and every illegal one is refused") {
  TestStore test;
  Store& store = *test.store;
  const auto repository = make_repository(store);
  const auto workspace = make_workspace(store, repository);
  const auto sandbox = make_sandbox(store, workspace);
  const auto exec = ExecTable(store).create(new_exec(sandbox)).id;
  const auto snapshot = SnapshotTable(store).begin({.workspace = workspace}).id;

  SECTION("repository") {
    check_all_pairs<RepositoryState>(store, "repositories", repository);
    check_conflicts<RepositoryState>(store, "repositories", repository);
  }
  SECTION("workspace") {
    check_all_pairs<WorkspaceState>(store, "workspaces", workspace);
    check_conflicts<WorkspaceState>(store, "workspaces", workspace);
  }
  SECTION("sandbox") {
    check_all_pairs<SandboxState>(store, "sandboxes", sandbox.id);
    check_conflicts<SandboxState>(store, "sandboxes", sandbox.id);
  }
  SECTION("exec") {
    check_all_pairs<ExecState>(store, "execs", exec);
    check_conflicts<ExecState>(store, "execs", exec);
  }
  const auto best_of = BestOfTable(store).begin({.workspace = workspace, .attempts = {{}}});
  const auto attempt = BestOfTable(store).attempts(best_of.id).front();

  SECTION("best_of") {
    check_all_pairs<BestOfState>(store, "best_of", best_of.id);
    check_conflicts<BestOfState>(store, "best_of", best_of.id);
  }
  SECTION("attempt") {
    check_all_pairs<AttemptState>(store, "best_of_attempts", attempt.id);
    check_conflicts<AttemptState>(store, "best_of_attempts", attempt.id);
  }
  const auto approval = ApprovalTable(store)
                            .ask({.workspace = workspace, .repository = "https://a.example.com/b"})
                            .id;
  SECTION("approval") {
    check_all_pairs<ApprovalState>(store, "approvals", approval);
    check_conflicts<ApprovalState>(store, "approvals", approval);
  }
  SECTION("snapshot") {
    check_all_pairs<SnapshotState>(store, "snapshots", snapshot);
    check_conflicts<SnapshotState>(store, "snapshots", snapshot);
  }
}

TEST_CASE("every state is reachable and each move is listed once") {
  check_reachable<RepositoryState>();
  check_reachable<WorkspaceState>();
  check_reachable<SandboxState>();
  check_reachable<ExecState>();
  check_reachable<SnapshotState>();
  check_reachable<BestOfState>();
  check_reachable<AttemptState>();
  check_reachable<ApprovalState>();
}

TEST_CASE("a state's name maps back to the state") {
  for (size_t i = 0; i < LifeCycle<WorkspaceState>::kNames.size(); ++i) {
    const auto state = static_cast<WorkspaceState>(i);
    CHECK(state_from_name<WorkspaceState>(state_name(state)) == state);
  }
  CHECK_FALSE(state_from_name<WorkspaceState>("sleeping"));
}

TEST_CASE("a state event names all its objects") {
  TestStore test;
  Store& store = *test.store;
  const auto repository = make_repository(store);
  const auto workspace = make_workspace(store, repository);
  const auto sandbox = make_sandbox(store, workspace);
  const auto exec = ExecTable(store).create(new_exec(sandbox)).id;
  const auto events = store.events(0, 100, workspace);
  REQUIRE(events.size() == 4);  // creating, ready, starting, running
  CHECK(events[0].subject.repository == repository);
  CHECK(events[0].from.empty());
  CHECK(events[0].to == "creating");
  CHECK(events[2].subject.sandbox == sandbox.id);
  CHECK(events[3].subject.workspace == workspace);
  CHECK(events[3].subject.sandbox == sandbox.id);
  CHECK(events[3].subject.exec == exec);
}
