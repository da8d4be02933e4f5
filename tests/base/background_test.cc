#include "base/background.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <optional>
#include <thread>

using moorage::base::Background;

namespace {

int nice_now() { return getpriority(PRIO_PROCESS, 0); }

int processors_now() {
  cpu_set_t set{};
  REQUIRE(sched_getaffinity(0, sizeof set, &set) == 0);
  return CPU_COUNT(&set);
}

}  // namespace

TEST_CASE("background work lowers only its own thread, and only while it runs") {
  const auto other = static_cast<id_t>(gettid());
  std::thread([&] {
    const int before = nice_now();
    const int processors = processors_now();
    REQUIRE(before < 10);
    {
      const Background background;
      CHECK(nice_now() == 10);
      CHECK(processors_now() == (processors + 1) / 2);
      CHECK(getpriority(PRIO_PROCESS, other) == before);
    }
    CHECK(nice_now() == before);
    CHECK(processors_now() == processors);
  }).join();
}

TEST_CASE("background work within other background work ends with the outer one") {
  std::thread([] {
    const int before = nice_now();
    std::optional<Background> outer(std::in_place);
    const int processors = processors_now();
    { const Background inner; }
    CHECK(nice_now() == 10);
    CHECK(processors_now() == processors);
    outer.reset();
    CHECK(nice_now() == before);
    CHECK(processors_now() >= processors);
  }).join();
}

TEST_CASE("a thread keeps a priority that is already lower") {
  std::thread([] {
    setpriority(PRIO_PROCESS, 0, 15);
    { const Background background; }
    CHECK(nice_now() == 15);
  }).join();
}
