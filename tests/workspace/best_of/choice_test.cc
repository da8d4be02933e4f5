// Choosing the attempt of a best-of to promote.
#include <catch2/catch.hpp>

#include "base/error.h"
#include "workspace/best_of/best_of.h"
#include "workspace/best_of/driver.h"

using namespace moorage;
using namespace moorage::workspace;
using state_db::AttemptDiff;
using state_db::AttemptRow;
using state_db::AttemptState;
using state_db::Promote;

namespace {

std::vector<AttemptRow> rows(const std::vector<AttemptState>& states) {
  std::vector<AttemptRow> made;
  for (const auto state : states) {
    AttemptRow& row = made.emplace_back();
    row.number = static_cast<uint32_t>(made.size());
    row.state = state;
  }
  return made;
}

constexpr auto kWaits = AttemptState::waiting;
constexpr auto kTests = AttemptState::testing;
constexpr auto kPassed = AttemptState::passed;
constexpr auto kFailed = AttemptState::failed;

std::string refusal(const BestOfRequest& request) {
  try {
    check_request(request);
  } catch (const base::Error& error) {
    CHECK(error.code() == base::Code::invalid_argument);
    return error.message();
  }
  return {};
}

}  // namespace

TEST_CASE("first_passing is known once all attempts before it have ended") {
  const auto first = [](const std::vector<AttemptState>& states) {
    return choose_attempt(Promote::first_passing, rows(states)).value_or(0);
  };
  CHECK(first({kPassed, kWaits, kTests}) == 1);
  CHECK(first({kTests, kPassed}) == 0);
  CHECK(first({kWaits, kPassed}) == 0);
  CHECK(first({kFailed, kPassed, kPassed}) == 2);
  CHECK(first({AttemptState::interrupted, AttemptState::cancelled, kPassed}) == 3);
  CHECK(first({kFailed, kFailed}) == 0);
  CHECK(first({}) == 0);
}

TEST_CASE("smallest_diff is known once all have ended, and counts only passing attempts") {
  auto attempts = rows({kFailed, kPassed, kPassed, kPassed, kTests});
  attempts[0].diff = AttemptDiff{1, 1, 0, 10};
  attempts[1].diff = AttemptDiff{1, 9, 0, 300};
  attempts[2].diff = AttemptDiff{4, 9, 9, 200};
  CHECK_FALSE(choose_attempt(Promote::smallest_diff, attempts));
  attempts[4].state = kFailed;
  CHECK(choose_attempt(Promote::smallest_diff, attempts) == 3);
  attempts[3].diff = AttemptDiff{1, 2, 2, 200};  // as many bytes in fewer lines
  CHECK(choose_attempt(Promote::smallest_diff, attempts) == 4);
  attempts[2].diff = attempts[3].diff;  // alike: the lower number
  CHECK(choose_attempt(Promote::smallest_diff, attempts) == 3);
}

TEST_CASE("an unmeasured diff comes last, but still counts") {
  auto attempts = rows({kPassed, kPassed});
  attempts[1].diff = AttemptDiff{100, 100'000, 0, 60'000'000};
  CHECK(choose_attempt(Promote::smallest_diff, attempts) == 2);
  attempts[1].state = kFailed;
  CHECK(choose_attempt(Promote::smallest_diff, attempts) == 1);
}

TEST_CASE("nothing is promoted without a request") {
  CHECK_FALSE(choose_attempt(Promote::none, rows({kPassed, kPassed})));
}

TEST_CASE("an invalid request is refused before anything is created") {
  BestOfRequest request;
  request.test = {"true"};
  CHECK(refusal(request).find("neither a command nor a patch") != std::string::npos);
  request.each = {"true"};
  CHECK(refusal(request).find("0 attempts") != std::string::npos);
  request.count = 5;
  CHECK(refusal(request).empty());
  request.count = kMaxForks + 1;
  CHECK(refusal(request).find("1 to 100") != std::string::npos);
  request.count = 5;
  request.parallel = kMaxParallel + 1;
  CHECK(refusal(request).find("at most 64") != std::string::npos);
  request.parallel = 0;
  request.test.clear();
  CHECK(refusal(request).find("test is missing") != std::string::npos);
  request.test = {std::string("a\0b", 3)};
  CHECK(refusal(request).find("test") == 0);
  request.test = {"true"};
  request.patches = {{"a", 1}};
  CHECK(refusal(request).find("not both") != std::string::npos);
  request.each.clear();
  CHECK(refusal(request).find("count is 5") != std::string::npos);
  request.count = 0;
  CHECK(refusal(request).empty());
  request.patches = {{"a", kMaxPatchBytes}, {"b\x1b[2J", kMaxPatchBytes + 1}};
  CHECK(refusal(request).find("16 MiB") != std::string::npos);
  CHECK(refusal(request).find('\x1b') == std::string::npos);
  request.patches.assign(9, {"a", kMaxPatchBytes});
  CHECK(refusal(request).find("128 MiB") != std::string::npos);
  request.patches.assign(1, {std::string(256, 'x'), 1});
  CHECK(refusal(request).find("255") != std::string::npos);
}
