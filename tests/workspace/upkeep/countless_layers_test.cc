#include "workspace/upkeep/quota_use.h"

#include <catch2/catch.hpp>

using namespace moorage;

namespace {

struct SetClock : base::Clock {
  int64_t wall_ms() const override { return 0; }
  int64_t boot_ms() const override { return boot; }
  int64_t boot = 1'000'000;
};

}  // namespace

TEST_CASE("a layer that could not be counted is retried after ten minutes") {
  constexpr int64_t kTenMinutes_ms = 600'000;
  SetClock clock;
  workspace::CountlessLayers layers(clock);
  const base::LayerId slow{1};
  const base::LayerId other{2};
  CHECK(layers.is_due(slow));
  CHECK_FALSE(layers.has(slow));

  layers.note(slow, false);
  CHECK(layers.has(slow));
  CHECK_FALSE(layers.is_due(slow));
  CHECK(layers.is_due(other));
  clock.boot += kTenMinutes_ms - 1;
  CHECK_FALSE(layers.is_due(slow));
  clock.boot += 1;
  CHECK(layers.is_due(slow));
  CHECK(layers.has(slow));  // until it is counted its workspace counts as over the limit

  layers.note(slow, false);  // fails again
  CHECK_FALSE(layers.is_due(slow));
  clock.boot += kTenMinutes_ms;
  layers.note(slow, true);
  CHECK_FALSE(layers.has(slow));
  CHECK(layers.is_due(slow));
}
