// Many threads on one store.
#include <atomic>
#include <catch2/catch.hpp>
#include <set>
#include <thread>

#include "state_db/tables/repositories.h"
#include "store_fixture.h"

using namespace moorage;
using namespace moorage::state_db;
using namespace moorage::state_db_test;

namespace {

constexpr int kThreads = 8;

void run_threads(const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

TEST_CASE("eight concurrent writers lose nothing and need one commit per write") {
  TestStore test;
  Store& store = *test.store;
  const auto repository = make_repository(store);
  std::vector<SandboxRow> sandboxes;
  for (int i = 0; i < kThreads; ++i) {
    sandboxes.push_back(
        make_sandbox(store, make_workspace(store, repository, "w" + std::to_string(i))));
  }
  constexpr int execs_each = 150;
  const uint64_t commits = store.commits();
  std::atomic<int64_t> woken{0};
  store.on_event([&](int64_t) { ++woken; });
  std::atomic<int> errors{0};
  run_threads([&](int thread) {
    ExecTable execs(store);
    for (int i = 0; i < execs_each; ++i) {
      const auto id = execs.create(new_exec(sandboxes[static_cast<size_t>(thread)])).id;
      if (execs.running(sandboxes[static_cast<size_t>(thread)].id).size() != 1) ++errors;
      execs.finish(id, {.state = ExecState::exited, .exit_code = thread});
      const auto row = execs.get(id);
      if (row.state != ExecState::exited || row.outcome.exit_code != thread) ++errors;
    }
  });
  CHECK(errors == 0);
  CHECK(store.commits() - commits == 2 * kThreads * execs_each);
  CHECK(woken == 2 * kThreads * execs_each);
  CHECK(ExecTable(store).list({.limit = 100'000}).size() == kThreads * execs_each);
  int64_t last = 0;
  for (const Event& event : store.events(0, 100'000)) {
    CHECK(event.seq > last);
    last = event.seq;
  }
}

TEST_CASE("one of eight identical moves wins") {
  TestStore test;
  Store& store = *test.store;
  const auto repository = make_repository(store);
  store.move(repository, RepositoryState::cloning, RepositoryState::ready);
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> won{0};
    std::atomic<int> refused{0};
    run_threads([&](int) {
      try {
        store.move(repository, RepositoryState::ready, RepositoryState::fetching);
        ++won;
      } catch (const base::Error& error) {
        if (error.code() == base::Code::conflict) ++refused;
      }
    });
    CHECK(won == 1);
    CHECK(refused == kThreads - 1);
    store.move(repository, RepositoryState::fetching, RepositoryState::ready);
  }
}

TEST_CASE("one of eight requests with the same key or name creates the row") {
  TestStore test;
  Store& store = *test.store;
  const auto repository = make_repository(store);
  const auto sandbox = make_sandbox(store, make_workspace(store, repository));
  std::atomic<int> made{0};
  std::atomic<int> named{0};
  std::atomic<int> cached{0};
  run_threads([&](int) {
    NewExec request = new_exec(sandbox);
    request.idempotency_key = "k";
    if (!ExecTable(store).create(request).existed) ++made;
    if (RepositoryTable(store).find_or_create({.url = "https://host/same", .name = "same"}).second)
      ++cached;
    try {
      WorkspaceTable(store).create(new_workspace(repository, "wanted"));
      ++named;
    } catch (const base::Error& error) {
      if (error.code() != base::Code::already_exists) named = -1000;
    }
  });
  CHECK(made == 1);
  CHECK(named == 1);
  CHECK(cached == 1);
}
