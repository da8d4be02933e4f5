#include "workspace/access/placement.h"

#include <catch2/catch.hpp>

#include "base/error.h"
#include "state_db/tables/layers.h"
#include "workspace/access/placement_fixture.h"

using namespace moorage;
using namespace moorage::workspace;
using backends::Isolation;

namespace {

constexpr uint64_t kGiB = 1ULL << 30;
constexpr uint32_t kNobodyKnown = 4'000'000'123;  // no user database has it

std::string backend_refused(PlacementFixture& test, const std::string& backend, uint32_t owner = 0,
                            const Placement::Labels& labels = {}) {
  return refusal_of([&] {
    Placement(test.context, owner, labels).check_backend_accepts({backend, "host", ""});
  });
}

}  // namespace

TEST_CASE_METHOD(PlacementFixture, "without a rule everything may be anywhere") {
  CHECK(backend_refused(*this, "process").empty());
  const Placement placement(context, 0, {});
  CHECK(placement.place_or({"lxc", "host", ""}) == state_db::Place{"lxc", "host", ""});
  placement.check_limits({1ULL << 50, 1024, 1'000'000, 0, 0});
}

TEST_CASE_METHOD(PlacementFixture,
                 "a refused backend names the rule, the allowed backends and the usable ones") {
  add_rule().backends = {"lxc", "docker"};
  CHECK(backend_refused(*this, "lxc").empty());
  CHECK(backend_refused(*this, "process") ==
        "rule 1: it may not run on backend process; allowed: lxc, docker | request --backend "
        "docker or --backend lxc");
  add_rule().backends = {"process"};
  CHECK(backend_refused(*this, "lxc") ==
        "rule 2: it may not run on backend lxc; allowed: process | the administrator of this host "
        "can change the rule");
}

TEST_CASE_METHOD(PlacementFixture, "rules add up: a later one never loosens an earlier one") {
  add_rule().min_isolation = Isolation::userns;
  add_rule().min_isolation = Isolation::none;
  auto& last = add_rule();
  last.backends = {"lxc", "docker", "process"};
  last.users = {0};
  CHECK(backend_refused(*this, "lxc").empty());
  CHECK(backend_refused(*this, "docker") ==
        "rule 1: it needs isolation userns or stronger; backend docker has container | request "
        "--backend lxc");
  CHECK(backend_refused(*this, "process").starts_with("rule 1: it needs isolation userns"));
}

TEST_CASE_METHOD(PlacementFixture, "the isolation of an unusable backend is never guessed") {
  lxc->usable = false;
  CHECK(backend_refused(*this, "lxc").empty());  // no rule needs it; its start reports the problem
  add_rule().min_isolation = Isolation::container;
  CHECK(refusal_of(
            [&] {
              Placement(context, 0, {}).check_backend_accepts({"lxc", "host", ""});
            },
            base::Code::unsupported) ==
        "backend lxc cannot be used: its engine is down | request --backend docker");
}

TEST_CASE_METHOD(PlacementFixture,
                 "a rule applies to its users and to workspaces with all of its labels") {
  auto& rule = add_rule();
  rule.backends = {"docker"};
  rule.users = {1004, 0};
  rule.labels = {{"team", "infra"}, {"tier", "1"}};
  const Placement::Labels all{{"team", "infra"}, {"tier", "1"}, {"more", "x"}};
  CHECK_FALSE(backend_refused(*this, "lxc", 0, all).empty());
  CHECK_FALSE(backend_refused(*this, "lxc", 1004, all).empty());
  CHECK(backend_refused(*this, "lxc", 1005, all).empty());
  CHECK(backend_refused(*this, "lxc", 0, {{"team", "infra"}}).empty());
  CHECK(backend_refused(*this, "lxc", 0, {{"team", "infra"}, {"tier", "2"}}).empty());
}

TEST_CASE_METHOD(PlacementFixture,
                 "groups come from the host, and a rule for groups applies to unknown users") {
  auto& rule = add_rule();
  rule.backends = {"docker"};
  rule.groups = {54321, 0};
  CHECK(backend_refused(*this, "lxc", 0).starts_with("rule 1: it may not"));
  CHECK(backend_refused(*this, "lxc", 1).empty());  // "daemon", on every Debian
  CHECK(backend_refused(*this, "lxc", kNobodyKnown)
            .starts_with("rule 1: it may not run on backend lxc; allowed: docker; it applies "
                         "because the host's user database does not list the groups of "
                         "uid 4000000123"));
  CHECK(rules_for(rules(), 0).size() == 1);
  CHECK(rules_for(rules(), 1).empty());
  CHECK(rules_for(rules(), kNobodyKnown).size() == 1);
}

TEST_CASE_METHOD(PlacementFixture,
                 "the first default wins over later ones and settings, but stays within caps") {
  auto& first = add_rule();
  first.usual.memory_bytes = 2 * kGiB;
  first.default_backend = "docker";
  first.default_runtime = "crun";
  auto& second = add_rule();
  second.usual = {8 * kGiB, 4, {}, {}};
  second.default_backend = "lxc";
  second.default_image = "tools";
  auto& third = add_rule();
  third.most = {{}, 3, {}, 5 * kGiB};
  const Placement placement(context, 0, {});
  CHECK(placement.place_or({"process", "host", ""}) == state_db::Place{"docker", "tools", "crun"});
  const state_db::WorkspaceLimits settings{4 * kGiB, 2, 4096, 0, 77};
  CHECK(placement.limits_or(settings) ==
        state_db::WorkspaceLimits{2 * kGiB, 3, 4096, 5 * kGiB, 77});
}

TEST_CASE_METHOD(PlacementFixture,
                 "a limit over a cap is refused with both values; unlimited exceeds every cap") {
  auto& rule = add_rule();
  rule.most = {kGiB, 1.5, 64, 2 * kGiB};
  add_rule().most = {4 * kGiB, 8, {}, {}};
  const auto refused = [&](const state_db::WorkspaceLimits& limits) {
    return refusal_of([&] { Placement(context, 0, {}).check_limits(limits); });
  };
  CHECK(refused({kGiB, 1.5, 64, 2 * kGiB, 0}).empty());
  CHECK(refused({kGiB + (1 << 20), 1, 1, 1, 0}) ==
        "rule 1: memory may be 1G at most, not 1025M | request at most --memory 1G");
  CHECK(refused({kGiB, 2, 1, 1, 0}) ==
        "rule 1: cpus may be 1.5 at most, not 2 | request at most --cpus 1.5");
  CHECK(refused({kGiB, 1, 65, 1, 0}).starts_with("rule 1: pids may be 64 at most, not 65"));
  CHECK(refused({kGiB, 1, 1, 0, 0}).starts_with("rule 1: disk may be 2G at most, not none"));
  state_db::WorkspaceLimits limits{8 * kGiB, 1, 1, 0, 0};
  CHECK(Placement(context, 0, {}).lower(limits) ==
        "memory 8G -> 1G, as rule 1 allows; disk none -> 2G, as rule 1 allows");
  CHECK(limits == state_db::WorkspaceLimits{kGiB, 1, 1, 2 * kGiB, 0});
}

TEST_CASE_METHOD(PlacementFixture, "a rule with an unknown backend is refused at startup") {
  add_rule().backends = {"lxc"};
  check_rules(rules(), {"lxc", "docker"});
  add_rule().default_backend = "dcoker";
  CHECK(refusal_of(
            [&] {
              check_rules(rules(), {"lxc", "docker"});
            },
            base::Code::invalid_argument) ==
        "rule 2: there is no backend 'dcoker' | available backends: lxc, docker");
}

TEST_CASE_METHOD(PlacementFixture, "a runtime counts with its own isolation, not its backend's") {
  docker->runtimes = {{"crun", Isolation::container}, {"runsc", Isolation::gvisor}};
  add_rule().min_isolation = Isolation::gvisor;
  const Placement placement(context, 0, {});
  placement.check_backend_accepts({"docker", "host", "runsc"});
  CHECK(refusal_of([&] {
          placement.check_backend_accepts({"docker", "host", "crun"});
        }) ==
        "rule 1: it needs isolation gvisor or stronger; backend docker with runtime crun has "
        "container | request --backend docker --runtime runsc");
  CHECK(refusal_of(
            [&] {
              placement.check_backend_accepts({"docker", "host", "gone"});
            },
            base::Code::unsupported)
            .starts_with("there is no runtime 'gone'"));
}

TEST_CASE_METHOD(PlacementFixture,
                 "a move is refused before anything is stopped, for place and limits") {
  const auto row = make_workspace("moves", "lxc");
  add_rule().min_isolation = Isolation::userns;
  Caller caller;
  MoveRequest to;
  to.backend = "docker";
  const std::string why =
      "rule 1: it needs isolation userns or stronger; backend docker has container | moorage move "
      "moves --backend lxc";
  CHECK(refusal_of([&] { moves.check(caller, "moves", to); }) == why);
  CHECK(refusal_of([&] { moves.move(caller, "moves", to); }) == why);
  CHECK(state_db::WorkspaceTable(store).get(row.id).backend == "lxc");
  rules().clear();
  add_rule().most.pids = 50;
  CHECK(refusal_of([&] { moves.check(caller, "moves", to); }) ==
        "rule 1: pids may be 50 at most, not 100 | moorage set moves --pids 50");
}

TEST_CASE("an isolation level has the backends' name; any other name is refused") {
  CHECK(isolation_of_name("").has_value() == false);
  for (const auto level : {Isolation::none, Isolation::container, Isolation::userns,
                           Isolation::gvisor, Isolation::vm}) {
    CHECK(isolation_of_name(std::string(backends::isolation_name(level))) == level);
  }
  CHECK_THROWS_AS(isolation_of_name("strong"), base::Error);
}

TEST_CASE_METHOD(PlacementFixture, "create is refused before anything is fetched or written") {
  auto& rule = add_rule();
  rule.backends = {"lxc"};
  rule.most.pids = 10;
  CreateRequest request;
  request.repo_url = "https://nowhere.invalid/a";
  request.backend = "docker";
  CHECK(refusal_of([&] {
          create.create({}, request, {});
        }).starts_with("rule 1: it may not run on backend docker"));
  request.backend = "";
  request.policy.to.limits.pids = 11;
  request.policy.named = {"pids"};
  CHECK(refusal_of([&] {
          create.create({}, request, {});
        }).starts_with("rule 1: pids may be 10 at most, not 11"));
  CHECK(state_db::RepositoryTable(store).list().empty());
  CHECK(state_db::WorkspaceTable(store).count_live() == 0);
}

TEST_CASE_METHOD(PlacementFixture, "a change is checked only for the limits that it names") {
  const auto row = make_workspace("old", "lxc", {8 * kGiB, 8, 100, kGiB, 0});
  add_rule().most = {4 * kGiB, 4, {}, {}};
  PolicyChange change;
  change.to.limits.memory_bytes = 5 * kGiB;
  change.named = {"memory_bytes"};
  CHECK(refusal_of([&] { updates.update({}, "old", change); }) ==
        "rule 1: memory may be 4G at most, not 5G | moorage set old --memory 4G");
  CHECK(state_db::WorkspaceTable(store).get(row.id).policy == row.policy);
  change.to.limits.memory_bytes = 4 * kGiB;
  CHECK(refusal_of([&] { updates.update({}, "old", change); }).empty());
  CHECK(state_db::WorkspaceTable(store).get(row.id).policy.limits.memory_bytes == 4 * kGiB);
}

TEST_CASE_METHOD(PlacementFixture,
                 "a refused start leaves no trace, and an archived workspace stays archived") {
  const auto row = make_workspace("rests", "docker");
  add_rule().min_isolation = Isolation::userns;
  const auto start = [&] { start_stop.start({}, "rests"); };
  const std::string refusal =
      "cannot start rests (its files are unaffected): rule 1: it needs isolation userns or "
      "stronger; backend docker has container | moorage move rests --backend lxc";
  CHECK(refusal_of(start) == refusal);
  store.move(row.id, state_db::WorkspaceState::ready, state_db::WorkspaceState::archiving, "");
  store.move(row.id, state_db::WorkspaceState::archiving, state_db::WorkspaceState::archived, "");
  CHECK(refusal_of(start) == refusal);
  CHECK(state_db::WorkspaceTable(store).get(row.id).state == state_db::WorkspaceState::archived);
  CHECK(state_db::SandboxTable(store).of_workspace(row.id).empty());
  CHECK(docker->starts() == 0);
}

TEST_CASE_METHOD(PlacementFixture, "a start is refused if a later rule forbids its limits") {
  make_workspace("large", "lxc", {8 * kGiB, 1, 100, kGiB, 0});
  add_rule().most.memory_bytes = kGiB;
  CHECK(refusal_of([&] { start_stop.start({}, "large"); }) ==
        "cannot start large (its files are unaffected): rule 1: memory may be 1G at most, not 8G "
        "| moorage set large --memory 1G");
}

TEST_CASE_METHOD(PlacementFixture, "a fork is checked with its own owner and labels") {
  make_workspace("origin", "docker");
  auto& rule = add_rule();
  rule.labels = {{"team", "infra"}};
  rule.backends = {"lxc"};
  ForkRequest request;
  request.labels = {{"team", "infra"}};
  CHECK(refusal_of([&] {
          snapshots.fork({}, "origin", request);
        }).starts_with("rule 1: it may not run on backend docker; allowed: lxc"));
  rules().clear();
  add_rule().most.pids = 99;
  CHECK(refusal_of([&] { snapshots.fork({}, "origin", {}); }) ==
        "rule 1: pids may be 99 at most, not 100 | moorage set origin --pids 99");
  CHECK(state_db::WorkspaceTable(store).count_live() == 1);
}
