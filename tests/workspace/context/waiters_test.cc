#include "workspace/context/waiters.h"

#include <catch2/catch.hpp>

#include "base/error.h"

using namespace moorage;
using namespace moorage::workspace;

namespace {

constexpr base::ExecId kHook{3};
constexpr base::ExecId kOther{4};

}  // namespace

TEST_CASE("a waiting verb is called again once, at the end of its command") {
  Waiters waiters([](base::ExecId) { return false; });
  int resumed = 0;
  waiters.resume_later(Waiting({kHook}, "a hook"), [&] { resumed += 1; });
  waiters.exec_ended(kOther);
  waiters.look();
  CHECK(resumed == 0);
  waiters.exec_ended(kHook);
  waiters.exec_ended(kHook);
  CHECK(resumed == 1);
  CHECK(waiters.size() == 0);
}

TEST_CASE("an end before the wait begins is not missed") {
  Waiters waiters([](base::ExecId id) { return id == kHook; });
  int resumed = 0;
  waiters.resume_later(Waiting({kOther, kHook}, "both"), [&] { resumed += 1; });
  CHECK(resumed == 1);
}

TEST_CASE("a verb whose command cannot be read is repeated at once, and reports why itself") {
  Waiters waiters([](base::ExecId) -> bool {
    throw base::Error(base::Code::io, "the database cannot be read");
  });
  int resumed = 0;
  waiters.resume_later(Waiting({kHook}, "a hook"), [&] { resumed += 1; });
  CHECK(resumed == 1);
  CHECK(waiters.size() == 0);
}

TEST_CASE("a wait with a deadline ends then, whatever still runs") {
  Waiters waiters([](base::ExecId) { return false; });
  int resumed = 0;
  const auto past = Waiting::Clock::now() - std::chrono::seconds(1);
  waiters.resume_later(Waiting({kHook}, "a command", past), [&] { resumed += 1; });
  waiters.resume_later(Waiting({kHook}, "a command", Waiting::Clock::now() + std::chrono::hours(1)),
                       [&] { resumed += 1; });
  waiters.look();
  CHECK(resumed == 1);
  CHECK(waiters.size() == 1);
}

TEST_CASE("a verb whose pool is full is retried later") {
  Waiters waiters([](base::ExecId) { return false; });
  int tries = 0;
  waiters.resume_later(Waiting({kHook}, "a hook"), [&] {
    if (++tries == 1) throw base::Error(base::Code::resource_exhausted, "the queue is full");
  });
  waiters.exec_ended(kHook);
  CHECK(tries == 1);
  CHECK(waiters.size() == 1);
  waiters.exec_ended(kHook);
  CHECK(tries == 2);
  CHECK(waiters.size() == 0);
}

TEST_CASE("after the end of the daemon no verb is called") {
  Waiters waiters([](base::ExecId) { return false; });
  int resumed = 0;
  waiters.resume_later(Waiting({kHook}, "a hook"), [&] { resumed += 1; });
  waiters.leave();
  waiters.resume_later(Waiting({kHook}, "a hook"), [&] { resumed += 1; });
  waiters.exec_ended(kHook);
  CHECK(resumed == 0);
}
