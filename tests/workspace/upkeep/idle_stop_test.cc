#include "workspace/upkeep/idle_stop.h"

#include <catch2/catch.hpp>

#include "workspace/access/policy.h"

using namespace moorage;
using workspace::IdleCount;

namespace {

constexpr int64_t kPause_ms = 10'000;
constexpr int64_t kYear_ms = 365LL * 24 * 3600 * 1000;

// A sandbox that is checked every ten seconds.
struct Watched {
  IdleCount count;
  int64_t boot_ms = 50'000;
  uint64_t cpu_usec = 0;

  int64_t look(int64_t passed_ms = kPause_ms, uint64_t used_usec = 0, bool in_use = false) {
    boot_ms += passed_ms;
    cpu_usec += used_usec;
    count.add({.boot_ms = boot_ms, .in_use = in_use, .cpu_usec = cpu_usec}, kPause_ms);
    return count.idle_ms();
  }
};

}  // namespace

TEST_CASE("idle time adds up from the first check that found it idle") {
  Watched sandbox;
  CHECK(sandbox.look() == 0);  // the time before the first check is unknown
  CHECK(sandbox.look() == 10'000);
  CHECK(sandbox.look() == 20'000);
  CHECK(sandbox.look(kPause_ms, 0, true) == 0);
  CHECK(sandbox.look() == 0);
  CHECK(sandbox.look() == 10'000);
}

TEST_CASE("only more than one percent of a CPU counts as work") {
  Watched sandbox;
  sandbox.look();
  CHECK(sandbox.look(kPause_ms, 100'000) == 10'000);
  CHECK_FALSE(sandbox.count.works());
  CHECK(sandbox.look(kPause_ms, 100'001) == 0);
  CHECK(sandbox.count.works());
  CHECK(sandbox.look() == 0);
  CHECK(sandbox.look() == 10'000);
}

TEST_CASE("a clock jump never makes a sandbox idle for longer than was observed") {
  Watched sandbox;
  sandbox.look();
  CHECK(sandbox.look() == 10'000);
  CHECK(sandbox.look(10 * kYear_ms) == 25'000);
  CHECK(sandbox.look(-20 * kYear_ms) == 25'000);
  CHECK(sandbox.look() == 35'000);
}

TEST_CASE("a counter that goes back does not count as work") {
  Watched sandbox;
  sandbox.look(kPause_ms, 5'000'000);
  sandbox.cpu_usec = 1;
  CHECK(sandbox.look() == 10'000);
}

TEST_CASE("a policy without its own values follows the settings") {
  workspace::Options options;
  options.idle_stop_s = 60;
  options.max_lifetime_s = 3600;
  state_db::WorkspacePolicy policy;
  CHECK(workspace::effective_policy(policy, options).idle_stop_s == 60);
  CHECK(workspace::effective_policy(policy, options).max_lifetime_s == 3600);
  policy.idle_stop_s = 0;
  policy.max_lifetime_s = 5;
  CHECK(workspace::effective_policy(policy, options).idle_stop_s == 0);
  CHECK(workspace::effective_policy(policy, options).max_lifetime_s == 5);
}
