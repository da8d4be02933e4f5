#include "workspace/replica/published_copy.h"

#include <catch2/catch.hpp>

#include "base/error.h"

using namespace moorage;
using namespace moorage::workspace;

TEST_CASE("manifests survive a round trip, and invalid ones are refused") {
  CHECK(copy_number(copy_name(7)) == 7U);
  CHECK_FALSE(copy_number("7.copy"));

  ReplicaManifest manifest;
  manifest.owner = "0a1b2c3d 0";
  manifest.wall_ms = 123;
  manifest.first_id = 1'900'000'000;
  manifest.series["ly_5"] = {3, 7, 100, 20, "frozen"};
  manifest.series["ws_1"] = {1, 1, 5, 0, ""};
  manifest.archives = {"moorage-0a1b2c3d-ws_3.7.tar.zst"};
  const auto back = parse_manifest_text(write_manifest_text(manifest));
  CHECK(back.owner == manifest.owner);
  CHECK(back.series == manifest.series);
  CHECK(back.archives == manifest.archives);
  CHECK(back.first_id == manifest.first_id);
  for (const char* odd : {"series ../x 1 1 1 1 -\n", "series ly_5 2 1 1 1 -\n",
                          "series ly_5 0 1 1 1 -\n", "series ly_5 1 1 1 1\n",
                          "series ly_5 1 99999999999999999999 1 1 -\n", "odd\n", "at 1", "\n"}) {
    INFO(odd);
    CHECK_THROWS_AS(parse_manifest_text(odd), base::Error);
  }
  CHECK(is_mirror_path("objects/pack/pack-1.pack"));
  for (const char* odd : {"config", "hooks", "hooks/x", "objects/info/alternates", "refs/x.lock",
                          "objects/pack/tmp_pack_1", "info/attributes"})
    CHECK_FALSE(is_mirror_path(odd));
}
