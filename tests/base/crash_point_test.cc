#include "base/crash_point.h"

#include <signal.h>

#include <catch2/catch.hpp>

#include "base/os/process.h"

using namespace moorage;

namespace {

base::ProcessResult victim(const std::string& crash_at, const std::string& argument = "run") {
  base::ProcessOptions options;
  if (!crash_at.empty()) options.environment = {{"MOORAGE_CRASH_AT", crash_at}};
  return base::run_process({CRASH_VICTIM, argument}, options);
}

}  // namespace

TEST_CASE("a crash point kills like kill -9, at the requested pass") {
  const auto first = victim("test.first");
  CHECK(first.signal == SIGKILL);
  CHECK(first.output == "begin\n");
  const auto again = victim("test.first:2");
  CHECK(again.signal == SIGKILL);
  CHECK(again.output == "begin\nfirst\n");
  const auto second = victim("test.second:1");
  CHECK(second.signal == SIGKILL);
  CHECK(second.output == "begin\nfirst\nagain\n");
}

TEST_CASE("without a request, or with one never reached, nothing happens") {
  for (const char* wish :
       {"", "test.first:3", "test.unknown", "test.first:0", "test", "test.first:x:y"}) {
    const auto result = victim(wish);
    CHECK(result.ok());
    CHECK(result.output == "begin\nfirst\nagain\nend\n");
  }
}

TEST_CASE("all crash points of a program can be listed") {
  CHECK(victim("", "list").output == "test.first\ntest.second\n");
}
