// Best-ofs and their attempts as rows.
#include <catch2/catch.hpp>

#include "state_db/tables/best_of.h"
#include "store_fixture.h"

using namespace moorage;
using namespace moorage::state_db;
using namespace moorage::state_db_test;

namespace {

struct OneWorkspace : TestStore {
  OneWorkspace() : repository(make_repository(*store)), id(make_workspace(*store, repository)) {}
  NewBestOf wanted(size_t attempts) const {
    NewBestOf best_of;
    best_of.workspace = id;
    best_of.owner_uid = 1000;
    best_of.owner_gids = {60, 1000};
    best_of.lease = 7;
    best_of.lease_secret_hash = "proof";
    best_of.each = {"agent", "--seed", "{i}"};
    best_of.test = {"/bin/sh", "-c", "make check"};
    best_of.attempts.resize(attempts);
    best_of.timeout_ms = 5000;
    best_of.promote = Promote::smallest_diff;
    best_of.parallel = 3;
    best_of.keep = true;
    best_of.idempotency_key = "k";
    best_of.request_hash = "h";
    return best_of;
  }
  base::RepoId repository;
  base::WorkspaceId id;
};

}  // namespace

TEST_CASE("a best-of and all its attempts are written in one commit and read back the same") {
  OneWorkspace test;
  auto wanted = test.wanted(3);
  wanted.attempts[1] = {std::string("b\xff.patch"), 10, 32};
  const uint64_t commits = test.store->commits();
  const auto id = BestOfTable(*test.store).begin(wanted).id;
  CHECK(test.store->commits() == commits + 1);
  CHECK(id.str() == "bo_1");
  test.reopen();
  BestOfTable table(*test.store);
  const auto row = table.get(id);
  CHECK(row.state == BestOfState::preparing);
  CHECK(row.patch_bytes == 32);
  CHECK(row.wanted.owner_gids == wanted.owner_gids);
  CHECK(row.wanted.lease == wanted.lease);
  CHECK(row.wanted.lease_secret_hash == wanted.lease_secret_hash);
  CHECK(row.wanted.each == wanted.each);
  CHECK(row.wanted.test == wanted.test);
  CHECK(row.wanted.timeout_ms == 5000);
  CHECK(row.wanted.promote == Promote::smallest_diff);
  CHECK(row.wanted.parallel == 3);
  CHECK(row.wanted.keep);
  const auto attempts = table.attempts(id);
  REQUIRE(attempts.size() == 3);
  CHECK(attempts[1].number == 2);
  CHECK(attempts[1].patch.label == "b\xff.patch");
  CHECK(attempts[1].patch.patch_offset == 10);
  CHECK(attempts[1].state == AttemptState::waiting);
  CHECK_FALSE(attempts[1].diff);
  CHECK(table.open() == std::vector{id});
  CHECK(table.of_workspace(test.id).size() == 1);
}

TEST_CASE("a key begins one best-of, and a best-of that never ran releases its key") {
  OneWorkspace test;
  BestOfTable table(*test.store);
  const auto wanted = test.wanted(2);
  CHECK_FALSE(table.find_made(wanted));
  const auto id = table.begin(wanted).id;
  CHECK(table.find_made(wanted)->id == id);
  auto other = wanted;
  other.request_hash = "another";
  CHECK(code_thrown_by([&] { table.find_made(other); }) == base::Code::already_exists);
  table.fail_preparing(id, "the forks could not be made");
  CHECK(table.get(id).state == BestOfState::failed);
  CHECK(table.get(id).reason == "the forks could not be made");
  for (const auto& attempt : table.attempts(id)) CHECK(attempt.state == AttemptState::cancelled);
  CHECK_FALSE(table.find_made(other));
  CHECK(table.open().empty());
  CHECK_FALSE(table.request_cancel(id));
}

TEST_CASE("an attempt enters each state once, and its end has all its results") {
  OneWorkspace test;
  BestOfTable table(*test.store);
  const auto fork = make_workspace(*test.store, test.repository, "fork");
  const auto exec = ExecTable(*test.store).create(new_exec(make_sandbox(*test.store, fork))).id;
  const auto id = table.begin(test.wanted(1)).id;
  table.begin_running(id, {fork});
  CHECK(table.count_under_way(1000) == 0);
  auto attempt = table.attempts(id).front();
  CHECK(attempt.workspace == fork);
  table.start(attempt.id);
  CHECK(table.count_under_way(1000) == 1);
  CHECK(table.count_under_way(1001) == 0);
  CHECK(code_thrown_by([&] { table.start(attempt.id); }) == base::Code::conflict);
  table.set_each(attempt.id, exec);
  table.begin_test(attempt.id, AttemptDiff{2, 10, 3, 400});
  attempt = table.attempt(attempt.id);
  CHECK(attempt.each_exec == exec);
  REQUIRE(attempt.diff);
  CHECK(attempt.diff->bytes == 400);
  const std::string tail("\xff\0end", 5);
  table.end(attempt, {AttemptState::failed, "the test exited with 3", tail});
  // A stale row ends nothing.
  CHECK(code_thrown_by([&] {
          table.end(attempt, {AttemptState::passed, "", ""});
        }) == base::Code::conflict);
  attempt = table.attempt(attempt.id);
  CHECK(attempt.state == AttemptState::failed);
  CHECK(attempt.tail == tail);
  CHECK(attempt.has_ended());
  CHECK(table.count_under_way(1000) == 0);
  CHECK(table.request_cancel(id));
  table.choose(id, 1);
  table.set_promotion(id, Promotion::refused, "busy");
  table.finish(id, BestOfState::done, "0 of 1 passed");
  const auto row = table.get(id);
  CHECK(row.chosen == 1);
  CHECK(row.promotion == Promotion::refused);
  CHECK(row.promotion_note == "busy");
  CHECK(row.cancel_requested);
  CHECK(row.ended_wall_ms > 0);
  CHECK(code_thrown_by([&] { table.finish(id, BestOfState::done, ""); }) == base::Code::conflict);
}

TEST_CASE("names in the API map back to their values") {
  for (const auto promote : {Promote::none, Promote::first_passing, Promote::smallest_diff})
    CHECK(promote_from_name(promote_name(promote)) == promote);
  CHECK_FALSE(promote_from_name("best"));
}

TEST_CASE("a list of best-ofs ends early when their commands are long") {
  OneWorkspace test;
  BestOfTable table(*test.store);
  auto wanted = test.wanted(1);
  wanted.test.emplace_back(1 << 20, 'a');
  for (int n = 0; n < 20; ++n) {
    wanted.idempotency_key = std::to_string(n);
    table.begin(wanted);
  }
  const auto listed = table.of_workspace(test.id);
  REQUIRE(listed.size() == 8);
  CHECK(listed.front().id.str() == "bo_20");
}
