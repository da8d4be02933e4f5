// Processes randomly start and end sandboxes and are killed at any point: a slot never has two
// holders.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <set>

#include "store_fixture.h"

using namespace moorage;
using namespace moorage::state_db;
using namespace moorage::state_db_test;

namespace {

constexpr int kSteps = 20'000;  // unless MOORAGE_TEST_STEPS is set
constexpr uint32_t kWorkspaces = 24;
constexpr uint32_t kSlots = 16;

// Shared with the children: results they received, for the parent to check after their death.
struct Acknowledged {
  int steps = 0;
  int64_t holder[kSlots] = {};  // sandbox with this slot, 0: free
  // The step in flight when the child died: its outcome is open.
  int64_t in_flight_sandbox = 0;  // being destroyed
  bool in_flight_create = false;
};

uint32_t lowest_free(const std::vector<SandboxRow>& rows) {
  std::set<uint32_t> used;
  for (const SandboxRow& row : rows) used.insert(row.slot.value());
  uint32_t slot = 0;
  while (used.contains(slot)) ++slot;
  return slot;
}

// One random step. Throws Error(internal) when an invariant is broken.
void step(Store& store, const std::vector<base::WorkspaceId>& workspaces, std::mt19937_64& random,
          Acknowledged& told) {
  SandboxTable sandboxes(store);
  const auto rows = sandboxes.not_destroyed();
  const auto workspace = workspaces[random() % workspaces.size()];
  const auto present = sandboxes.live(workspace);
  if (!present) {
    told.in_flight_create = true;
    std::optional<SandboxRow> made;
    try {
      made = sandboxes.create(
          {.workspace = workspace, .backend = "fake", .image = "host", .slots = kSlots});
    } catch (const base::Error& error) {
      if (error.code() != base::Code::resource_exhausted || rows.size() != kSlots) throw;
    }
    if (made && made->slot != lowest_free(rows))
      throw base::Error(base::Code::internal, "not the lowest slot");
    if (made) told.holder[*made->slot] = made->id.value;
    told.in_flight_create = false;
    return;
  }
  told.in_flight_sandbox = present->id.value;
  // A death between the two moves has left it lost.
  if (present->state != SandboxState::lost) sandboxes.set_lost(present->id, present->state, "test");
  sandboxes.set_destroyed(present->id, SandboxState::lost);
  told.holder[*present->slot] = 0;
  told.in_flight_sandbox = 0;
}

// Compares the database with the dead child's results. Returns the number of slots held.
size_t check_against(Store& store, Acknowledged& told) {
  std::map<uint32_t, int64_t> held;
  for (const SandboxRow& row : SandboxTable(store).not_destroyed()) {
    REQUIRE(row.slot);
    REQUIRE(*row.slot < kSlots);
    REQUIRE(held.emplace(*row.slot, row.id.value).second);
  }
  size_t differences = 0;
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    const int64_t present = held.contains(slot) ? held[slot] : 0;
    if (present == told.holder[slot]) continue;
    ++differences;
    const bool destroyed = present == 0 && told.holder[slot] == told.in_flight_sandbox;
    const bool created = told.holder[slot] == 0 && told.in_flight_create;
    REQUIRE((destroyed || created));
    told.holder[slot] = present;
  }
  REQUIRE(differences <= 1);
  told.in_flight_create = false;
  told.in_flight_sandbox = 0;
  return held.size();
}

uint64_t seed() {
  const char* given = getenv("MOORAGE_TEST_SEED");
  return given ? std::strtoull(given, nullptr, 10) : std::random_device{}();
}

}  // namespace

TEST_CASE("two sandboxes never hold the same slot, whatever is killed") {
  const uint64_t seed_used = seed();
  std::cout << "slots: MOORAGE_TEST_SEED=" << seed_used << "\n";
  std::mt19937_64 random(seed_used);
  TestStore test;
  const auto repository = make_repository(*test.store);
  std::vector<base::WorkspaceId> workspaces;
  for (uint32_t i = 0; i < kWorkspaces; ++i) {
    workspaces.push_back(make_workspace(*test.store, repository, "w" + std::to_string(i)));
  }
  test.store.reset();
  const char* given = getenv("MOORAGE_TEST_STEPS");
  const int steps = given ? std::atoi(given) : kSteps;
  void* memory = mmap(nullptr, sizeof(Acknowledged), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  auto& told = *new (memory) Acknowledged;

  int deaths = 0;
  size_t most_held = 0;
  while (told.steps < steps) {
    const uint64_t child_seed = random();
    const auto questions = static_cast<int64_t>(random() % 900);
    const int status = run_in_child([&] {
      std::mt19937_64 child_random(child_seed);
      Store store(test.options());
      test.clock.questions_until_death = questions;
      for (; told.steps < steps; ++told.steps) step(store, workspaces, child_random, told);
    });
    if (WIFEXITED(status)) REQUIRE(WEXITSTATUS(status) == 0);
    if (WIFSIGNALED(status)) ++deaths;
    test.open();
    most_held = std::max(most_held, check_against(*test.store, told));
    test.store.reset();
  }
  std::cout << "slots: " << told.steps << " steps, " << deaths << " deaths, at most " << most_held
            << " held\n";
  CHECK(deaths > 20);
  CHECK(most_held > kSlots / 2);
  munmap(memory, sizeof(Acknowledged));
}

TEST_CASE("a moved pool gives only ranges that do not overlap those of live sandboxes") {
  TestStore test;
  Store& store = *test.store;
  SandboxTable sandboxes(store);
  const auto repository = make_repository(store);
  constexpr uint32_t kFirst = 1'100'000'000;
  NewSandbox wanted{.workspace = make_workspace(store, repository, "a"),
                    .backend = "lxc",
                    .image = "host",
                    .pool_first_id = kFirst};
  const auto next = [&](const char* name, uint32_t pool) {
    wanted.workspace = make_workspace(store, repository, name);
    wanted.pool_first_id = pool;
    return sandboxes.create(wanted).first_host_id;
  };
  CHECK(sandboxes.create(wanted).first_host_id == kFirst);
  CHECK(next("b", kFirst) == kFirst + kIdsOfSandbox);
  CHECK(next("c", kFirst - kIdsOfSandbox) == kFirst - kIdsOfSandbox + 3 * kIdsOfSandbox);
  CHECK(next("d", kFirst - 10) == kFirst - 10 + 4 * kIdsOfSandbox);
  CHECK(next("e", kFirst + kIdsOfSandbox + 1) == kFirst + 1 + 6 * kIdsOfSandbox);
  wanted.first_host_id = 7'000'000;  // an engine's own
  CHECK(next("f", kFirst) == 7'000'000);
  CHECK(store.check_id_ranges().empty());
}

TEST_CASE("a full pool refuses, and only destroying a sandbox frees its slot") {
  TestStore test;
  Store& store = *test.store;
  SandboxTable sandboxes(store);
  const auto repository = make_repository(store);
  NewSandbox wanted{.workspace = make_workspace(store, repository, "a"),
                    .backend = "lxc",
                    .image = "host",
                    .slots = 1};
  const auto first = sandboxes.create(wanted);
  CHECK(first.slot == 0u);
  wanted.workspace = make_workspace(store, repository, "b");
  CHECK(code_thrown_by([&] { sandboxes.create(wanted); }) == base::Code::resource_exhausted);
  store.move(first.id, SandboxState::starting, SandboxState::stopping);
  sandboxes.set_stopped(first.id);
  CHECK(code_thrown_by([&] { sandboxes.create(wanted); }) == base::Code::resource_exhausted);
  sandboxes.set_destroyed(first.id, SandboxState::stopped);
  CHECK_FALSE(sandboxes.get(first.id).slot);
  CHECK(sandboxes.create(wanted).slot == 0u);
}

TEST_CASE("the time of sandboxes is counted for one user, some backends, and one period") {
  TestStore test;
  Store& store = *test.store;
  SandboxTable sandboxes(store);
  const auto repository = make_repository(store);
  const auto workspace = make_workspace(store, repository, "a");
  const uint32_t owner = WorkspaceTable(store).get(workspace).owner_uid;
  NewSandbox wanted{.workspace = workspace, .backend = "ssh", .image = "host"};
  const int64_t begin = test.clock.now_ms;
  const auto first = sandboxes.create(wanted);
  test.clock.now_ms += 1'000;
  store.move(first.id, SandboxState::starting, SandboxState::stopping);
  sandboxes.set_stopped(first.id);
  sandboxes.set_destroyed(first.id, SandboxState::stopped);
  test.clock.now_ms += 10'000;
  sandboxes.create(wanted);
  test.clock.now_ms += 500;
  CHECK(sandboxes.lived_ms(owner, {"ssh"}, 0) == 1'500);
  CHECK(sandboxes.lived_ms(owner, {"ssh"}, begin + 400) == 1'100);
  CHECK(sandboxes.lived_ms(owner, {"ssh"}, begin + 1'000) == 500);
  CHECK(sandboxes.lived_ms(owner, {"e2b", "ssh"}, 0) == 1'500);
  CHECK(sandboxes.lived_ms(owner, {"e2b"}, 0) == 0);
  CHECK(sandboxes.lived_ms(owner, {}, 0) == 0);
  CHECK(sandboxes.lived_ms(owner + 1, {"ssh"}, 0) == 0);
  test.clock.now_ms = begin;  // set back
  CHECK(sandboxes.lived_ms(owner, {"ssh"}, 0) == 1'000);
}
