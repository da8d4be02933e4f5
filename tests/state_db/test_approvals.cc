// Approvals of pushes: bound to one exact push, used once.
#include <catch2/catch.hpp>

#include "state_db/store_age.h"
#include "state_db/tables/approvals.h"
#include "store_fixture.h"

using namespace moorage;
using namespace moorage::state_db;
using namespace moorage::state_db_test;
using enum ApprovalState;

namespace {

const std::string kZero(40, '0'), kOne(40, '1'), kTwo(40, '2'), kThree(40, '3');

struct Approvals : TestStore {
  Approvals() { push = {.workspace = make_workspace(*store, make_repository(*store))}; }
  ApprovalTable table() { return ApprovalTable(*store); }
  ApprovalRow approve(const ApprovalRow& row) {
    return table().decide(row, {approved, 1000, "approved by alice"});
  }
  ApprovalRow wanted(const std::string& ref = "refs/heads/main", const std::string& from = kOne,
                     const std::string& to = kTwo) {
    ApprovalRow row = push;
    row.repository = "https://git.example.com/acme/shop.git";
    row.ref = ref;
    row.old_id = from;
    row.new_id = to;
    row.commits = 3;
    row.title = "Add it";
    return row;
  }
  ApprovalRow push;
};

}  // namespace

TEST_CASE("the same push asks for the same approval, any other for another one") {
  Approvals test;
  const ApprovalRow first = test.table().ask(test.wanted());
  CHECK(first.id.str() == "ap_1");
  CHECK(first.state == waiting);
  CHECK(first.commits == 3);
  CHECK(first.title == "Add it");
  CHECK(test.table().ask(test.wanted()).id == first.id);
  test.reopen();
  CHECK(test.table().ask(test.wanted()).id == first.id);
  CHECK(test.table().ask(test.wanted("refs/heads/b")).id != first.id);
  ApprovalRow elsewhere = test.wanted();
  elsewhere.repository += "x";
  CHECK(test.table().ask(elsewhere).id != first.id);
  CHECK(test.table().find(first.id)->state == waiting);
  const ApprovalRow newer = test.table().ask(test.wanted("refs/heads/main", kOne, kThree));
  CHECK(newer.id != first.id);
  CHECK(test.table().find(first.id)->state == expired);
  CHECK(test.table().open().size() == 3);
  CHECK(test.table().of(test.push.workspace).size() == 4);
}

TEST_CASE("an approved push passes once; after that it is asked about anew") {
  Approvals test;
  const ApprovalRow row = test.table().ask(test.wanted());
  CHECK_FALSE(test.table().use({row.id}));
  const ApprovalRow decided = test.approve(row);
  CHECK(decided.state == approved);
  CHECK(decided.decided_uid == 1000);
  CHECK(code_thrown_by([&] { test.approve(row); }) == base::Code::conflict);
  test.reopen();
  CHECK(test.table().find_same(test.wanted())->state == approved);
  CHECK(test.table().use({row.id}));
  CHECK_FALSE(test.table().use({row.id}));
  CHECK(test.table().find(row.id)->state == used);
  CHECK(test.table().find(row.id)->used_wall_ms > 0);
  CHECK_FALSE(test.table().find_same(test.wanted()));
  CHECK(test.table().ask(test.wanted()).id != row.id);
}

TEST_CASE("several refs of one push pass together or not at all") {
  Approvals test;
  const ApprovalRow one = test.approve(test.table().ask(test.wanted()));
  const ApprovalRow two = test.table().ask(test.wanted("refs/heads/b"));
  CHECK_FALSE(test.table().use({one.id, two.id}));
  CHECK(test.table().find(one.id)->state == approved);
  test.approve(two);
  CHECK(test.table().use({one.id, two.id}));
}

TEST_CASE("a refused push stays refused until somebody approves it") {
  Approvals test;
  const ApprovalRow row = test.table().ask(test.wanted());
  const ApprovalRow no = test.table().decide(row, {refused, 1000, "refused by alice"});
  CHECK(test.table().ask(test.wanted()).state == refused);
  CHECK_FALSE(test.table().use({row.id}));
  CHECK(test.approve(no).state == approved);
}

TEST_CASE("an approval expires, counted from its request, then from its decision") {
  Approvals test;
  const ApprovalRow row = test.table().ask(test.wanted());
  const ApprovalRow other = test.table().ask(test.wanted("refs/heads/b"));
  test.clock.up_ms += ApprovalTable::kWaits_ms - 1000;
  test.approve(row);
  test.clock.up_ms += 2000;
  CHECK(test.table().open().size() == 1);
  CHECK(test.table().find(other.id)->state == expired);
  test.clock.up_ms += ApprovalTable::kLasts_ms;
  CHECK_FALSE(test.table().use({row.id}));
  CHECK(test.table().find(row.id)->state == expired);
}

TEST_CASE("a workspace has a limited number of pushes that wait") {
  Approvals test;
  for (size_t i = 0; i < ApprovalTable::kMostWaiting; ++i)
    test.table().ask(test.wanted("refs/heads/b" + std::to_string(i)));
  CHECK(code_thrown_by([&] { test.table().ask(test.wanted()); }) == base::Code::resource_exhausted);
}

TEST_CASE("the history has who decided what") {
  Approvals test;
  const ApprovalRow row = test.approve(test.table().ask(test.wanted()));
  test.table().use({row.id});
  std::string texts;
  for (const Event& event : test.store->events(0, 100, test.push.workspace)) {
    if (event.kind == "approval.state") texts += event.to + " " + event.text + "\n";
  }
  const std::string push =
      "ap_1: https://git.example.com/acme/shop.git refs/heads/main 111111111111 -> 222222222222";
  CHECK(texts == "waiting " + push + "\napproved " + push + ": approved by alice\nused " + push +
                     ": pushed\n");
}
