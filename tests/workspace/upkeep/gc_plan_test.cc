#include "workspace/upkeep/gc_plan.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>

namespace moorage::workspace {
namespace {

using state_db::WorkspaceState;

constexpr int64_t kDay_ms = 24LL * 3'600'000;
const std::string kCommit(40, 'a');

struct Rows {
  GcFacts facts;
  GcRules rules;

  Rows() {
    facts.age_ms = 100 * kDay_ms;
    rules.archive_after_ms = 7 * kDay_ms;
    state_db::RepositoryRow repository;
    repository.id = {1};
    repository.name = "acme/shop";
    repository.state = state_db::RepositoryState::ready;
    repository.bytes = 1000;
    facts.repositories.push_back(repository);
    state_db::BaseTreeRow tree;
    tree.repository = {1};
    tree.commit = kCommit;
    tree.disk_bytes = 500;
    tree.disk_files = 5;
    facts.trees.push_back(tree);
  }

  // Idle for a month, large, with a cache.
  state_db::WorkspaceRow& add(int64_t id = 7) {
    state_db::WorkspaceRow row;
    row.id = {id};
    row.name = "ws" + std::to_string(id);
    row.repository = {1};
    row.base_commit = kCommit;
    row.state = WorkspaceState::ready;
    row.disk_bytes = 1'000'000;
    row.rest_age_ms = 70 * kDay_ms;
    row.policy.caches = {"node_modules"};
    facts.workspaces.push_back(row);
    facts.depended_on.insert({{1}, kCommit});
    return facts.workspaces.back();
  }

  GcRow row(GcRung rung) const {
    const auto rows = plan_gc(facts, rules);
    const auto found =
        std::find_if(rows.begin(), rows.end(), [&](const GcRow& r) { return r.rung == rung; });
    REQUIRE(found != rows.end());
    return *found;
  }
};

TEST_CASE("the order is caches, base trees, workspaces, mirrors; kept rows come last") {
  Rows rows;
  rows.add();
  rows.facts.depended_on.clear();
  auto other = rows.facts.repositories.front();
  other.id = {2};
  rows.facts.repositories.push_back(other);
  std::string order;
  for (const GcRow& row : plan_gc(rows.facts, rows.rules))
    order += std::string(row.goes ? "" : "-") +
             std::string(kGcRungNames.at(static_cast<size_t>(row.rung))) + " ";
  CHECK(order == "cache base_tree workspace mirror -mirror ");
}

TEST_CASE("pinned, leased, running, in transfer or not ready: kept, with the reason") {
  struct Case {
    const char* why;
    std::function<void(Rows&, state_db::WorkspaceRow&)> make;
  };
  const std::vector<Case> cases{
      {"pinned", [](Rows&, auto& row) { row.policy.pinned = true; }},
      {"leased", [](Rows& rows, auto& row) { rows.facts.leased.insert(row.id); }},
      {"its sandbox is running", [](Rows& rows, auto& row) { rows.facts.running.insert(row.id); }},
      {"its files are being transferred",
       [](Rows& rows, auto& row) { rows.facts.mounted.insert(row.id); }},
      {"it is archiving", [](Rows&, auto& row) { row.state = WorkspaceState::archiving; }},
      {"it is creating", [](Rows&, auto& row) { row.state = WorkspaceState::creating; }},
  };
  for (const Case& one : cases) {
    Rows rows;
    one.make(rows, rows.add());
    for (const GcRung rung : {GcRung::cache, GcRung::workspace}) {
      const GcRow row = rows.row(rung);
      CHECK_FALSE(row.goes);
      CHECK(row.why == one.why);
    }
    CHECK_FALSE(rows.row(GcRung::mirror).goes);
  }
}

TEST_CASE("archiving frees the removed bytes minus an archive of everything") {
  Rows rows;
  const auto id = rows.add().id;
  // A snapshot that only it needs, and layers that a fork also uses: the archive has both.
  rows.facts.frozen[id] = {.own_bytes = 3'000'000, .all_bytes = 5'000'000};
  CHECK(*rows.row(GcRung::workspace).bytes == 4'000'000 - 3'000'000 - 1000);
  rows.facts.frozen[id] = {.own_bytes = 0, .all_bytes = 5'000'000};
  CHECK_FALSE(rows.row(GcRung::workspace).goes);
}

TEST_CASE("a workspace is archived only after its time, and only if that frees space") {
  Rows rows;
  auto& row = rows.add();
  CHECK(rows.row(GcRung::workspace).goes);
  CHECK(*rows.row(GcRung::workspace).bytes == 1'000'000 - 500'000 - 1000);
  rows.rules.archive_elsewhere = true;
  CHECK(*rows.row(GcRung::workspace).bytes == 1'000'000);
  rows.rules.archive_elsewhere = false;
  row.disk_bytes = 1500;  // half of it plus the mirror's objects is as much
  CHECK(rows.row(GcRung::workspace).why == "its archive would take as much as it frees");
  row.disk_bytes.reset();
  CHECK(rows.row(GcRung::workspace).why == "its size was never measured");
  row.disk_bytes = 1'000'000;
  row.rest_age_ms = 94 * kDay_ms;
  CHECK(rows.row(GcRung::workspace).why == "idle for only 6 days");
  row.rest_age_ms = 200 * kDay_ms;  // in the future, for whatever reason: not old
  CHECK_FALSE(rows.row(GcRung::workspace).goes);
  row.rest_age_ms = 0;
  row.disposable = true;
  CHECK_FALSE(rows.row(GcRung::workspace).goes);
}

TEST_CASE("a jump of the wall clock makes nothing old") {
  Rows rows;
  auto& row = rows.add();
  row.rest_age_ms = rows.facts.age_ms;
  for (const int64_t jump : {-10'000 * kDay_ms, 10'000 * kDay_ms}) {
    row.created_wall_ms = jump;
    rows.facts.trees.front().created_wall_ms = jump;
    rows.facts.trees.front().last_used_wall_ms = jump;
    rows.facts.repositories.front().fetched_wall_ms = jump;
    for (const GcRow& one : plan_gc(rows.facts, rows.rules))
      CHECK(one.goes == (one.rung == GcRung::cache));  // caches have no age
  }
}

TEST_CASE("a base tree goes when no layer uses it and nobody requested it recently") {
  Rows rows;
  CHECK(rows.row(GcRung::base_tree).goes);
  CHECK(*rows.row(GcRung::base_tree).bytes == 500);
  rows.facts.trees_used_lately.insert({{1}, kCommit});
  CHECK_FALSE(rows.row(GcRung::base_tree).goes);
  rows.facts.trees_used_lately.clear();
  rows.add();
  CHECK(rows.row(GcRung::base_tree).why == "workspaces use it");
}

TEST_CASE("a base tree stays with the deltas over it, and goes after them") {
  Rows rows;
  rows.facts.trees.front().last_used_wall_ms = 1;  // without the deltas it would go first
  for (const char digit : {'b', 'c'}) {
    auto delta = rows.facts.trees.front();
    delta.parent = rows.facts.trees.back().commit;
    delta.commit = std::string(40, digit);
    delta.last_used_wall_ms = digit;
    rows.facts.trees.push_back(delta);
  }
  const auto order = [&] {
    std::string text;
    for (const GcRow& row : plan_gc(rows.facts, rows.rules)) {
      if (row.rung == GcRung::base_tree) text += (row.goes ? "" : "-") + row.commit.substr(0, 1);
    }
    return text;
  };
  const std::string first = kCommit.substr(0, 1);
  CHECK(order() == "cb" + first);
  rows.facts.depended_on.insert({{1}, std::string(40, 'b')});
  CHECK(order() == "c-b-" + first);
  CHECK(rows.row(GcRung::base_tree).goes);
  rows.facts.depended_on.clear();
  rows.facts.trees_used_lately.insert({{1}, std::string(40, 'c')});
  CHECK(order() == "-c-b-" + first);
}

TEST_CASE("a mirror stays while a workspace needs it, even a deleted or archived one") {
  Rows rows;
  CHECK(rows.row(GcRung::mirror).goes);
  rows.facts.repos_used_lately.insert({1});
  CHECK_FALSE(rows.row(GcRung::mirror).goes);
  rows.facts.repos_used_lately.clear();
  auto& row = rows.add();
  for (const auto state : {WorkspaceState::ready, WorkspaceState::deleted, WorkspaceState::archived,
                           WorkspaceState::unarchiving}) {
    row.state = state;
    CHECK_FALSE(rows.row(GcRung::mirror).goes);
  }
  row.state = WorkspaceState::failed;
  CHECK(rows.row(GcRung::mirror).goes);
  rows.facts.repositories.front().state = state_db::RepositoryState::fetching;
  CHECK(rows.row(GcRung::mirror).why == "it is being fetched");
}

TEST_CASE("ten thousand workspaces are planned in far less than a second") {
  Rows rows;
  for (int64_t id = 1; id <= 10'000; ++id) rows.add(id);
  const auto began = std::chrono::steady_clock::now();
  const auto plan = plan_gc(rows.facts, rows.rules);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  CHECK(plan.size() == 20'002);
  CHECK(took.count() < 1.0);
}

}  // namespace
}  // namespace moorage::workspace
