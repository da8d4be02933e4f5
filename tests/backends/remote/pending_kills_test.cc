#include "backends/remote/pending_kills.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <latch>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "patience.h"

using namespace moorage;
using namespace std::chrono_literals;
using backends::PendingKills;

namespace {

template <typename Condition>
bool soon(const Condition& condition) {
  const auto until = std::chrono::steady_clock::now() + tests::patient(20s);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

class Calls {
 public:
  void add(const std::string& sandbox, const std::string& tag) {
    const std::lock_guard lock(mutex_);
    all_.push_back(sandbox + "/" + tag);
  }
  std::vector<std::string> all() {
    const std::lock_guard lock(mutex_);
    return all_;
  }
  size_t count() { return all().size(); }

 private:
  std::mutex mutex_;
  std::vector<std::string> all_;
};

}  // namespace

TEST_CASE("a kill is repeated until it was answered, then never again") {
  Calls calls;
  PendingKills kills([&](const std::string& sandbox, const std::string& tag) {
    calls.add(sandbox, tag);
    if (calls.count() < 3) throw Error(Code::unavailable, "the link is down");
  });
  kills.add("sb_1", "ex_1");
  kills.add("sb_1", "ex_1");  // once is enough
  REQUIRE(soon([&] { return kills.count() == 0; }));
  CHECK(calls.all() == std::vector<std::string>(3, "sb_1/ex_1"));
  kills.add("sb_1", "ex_2");
  REQUIRE(soon([&] { return kills.count() == 0; }));
  CHECK(calls.all().back() == "sb_1/ex_2");
  CHECK(calls.count() == 4);
}

TEST_CASE("kills of a forgotten sandbox are not repeated, and those of others are") {
  Calls calls;
  std::atomic<bool> up = false;
  PendingKills kills([&](const std::string& sandbox, const std::string& tag) {
    calls.add(sandbox, tag);
    if (!up) throw Error(Code::unavailable, "the link is down");
  });
  kills.add("sb_1", "ex_1");
  kills.add("sb_2", "ex_2");
  REQUIRE(soon([&] { return calls.count() >= 2; }));
  kills.forget("sb_1");
  CHECK(kills.count() == 1);
  const size_t before = calls.count();
  up = true;
  REQUIRE(soon([&] { return kills.count() == 0; }));
  const std::vector<std::string> all = calls.all();
  // One of sb_1 may have been under way.
  CHECK(std::count(all.begin() + static_cast<long>(before), all.end(), "sb_1/ex_1") <= 1);
  CHECK(all.back() == "sb_2/ex_2");
}

TEST_CASE("sandboxes that do not answer hold no others, and none of them more than one thread") {
  constexpr int kStalled = 20;
  std::latch release(1);
  std::atomic<int> held = 0;
  Calls calls;
  PendingKills kills([&](const std::string& sandbox, const std::string& tag) {
    if (sandbox.starts_with("stalled")) {
      ++held;
      release.wait();
    }
    calls.add(sandbox, tag);
  });
  for (int tag = 0; tag < 3; ++tag) {
    for (int number = 0; number < kStalled; ++number)
      kills.add("stalled" + std::to_string(number), "ex_" + std::to_string(tag));
  }
  CHECK(soon([&] { return held == kStalled; }));
  kills.add("works", "ex_1");
  CHECK(soon([&] { return calls.count() == 1; }));
  CHECK(calls.all() == std::vector<std::string>{"works/ex_1"});
  CHECK(held == kStalled);
  CHECK(soon([&] { return kills.count() == 3 * kStalled; }));
  release.count_down();
  CHECK(soon([&] { return kills.count() == 0; }));
  CHECK(calls.count() == 3 * kStalled + 1);
}

TEST_CASE("it ends while kills are not answered") {
  std::atomic<int> tries = 0;
  {
    PendingKills kills([&](const std::string&, const std::string&) {
      ++tries;
      throw Error(Code::unavailable, "the link is down");
    });
    for (int number = 0; number < 100; ++number) kills.add("sb_" + std::to_string(number), "ex_1");
    REQUIRE(soon([&] { return tries > 10; }));
  }
  const int after = tries;
  std::this_thread::sleep_for(300ms);  // longer than the first pause
  CHECK(tries == after);
}
