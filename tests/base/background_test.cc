#include "base/background.h"

#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <optional>
#include <thread>

using moorage::base::Background;

namespace {

int nice_now() { return getpriority(PRIO_PROCESS, 0); }

}  // namespace

TEST_CASE("background work lowers its own thread, and that thread only for its time") {
  const auto other = static_cast<id_t>(gettid());
  std::thread([&] {
    const int before = nice_now();
    REQUIRE(before < 10);
    {
      const Background background;
      CHECK(nice_now() == 10);
      CHECK(getpriority(PRIO_PROCESS, other) == before);
    }
    CHECK(nice_now() == before);
  }).join();
}

TEST_CASE("background work within other background work ends with the outer one") {
  std::thread([] {
    const int before = nice_now();
    std::optional<Background> outer(std::in_place);
    { const Background inner; }
    CHECK(nice_now() == 10);
    outer.reset();
    CHECK(nice_now() == before);
  }).join();
}

TEST_CASE("a thread of a lower priority keeps it") {
  std::thread([] {
    setpriority(PRIO_PROCESS, 0, 15);
    { const Background background; }
    CHECK(nice_now() == 15);
  }).join();
}
