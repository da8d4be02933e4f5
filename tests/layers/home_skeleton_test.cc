#include "layers/home_skeleton.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <future>
#include <vector>

#include "layers/ids.h"
#include "layers/storage_fixture.h"

namespace moorage::layers {

constexpr uint32_t kFirstId = 1'900'000'000;

TEST_CASE("simultaneous first starts share one home skeleton") {
  for (int round = 0; round < 20; ++round) {
    TemporaryDirectory store;
    std::vector<std::future<std::string>> starts;
    for (int i = 0; i < 8; ++i) {
      starts.push_back(std::async(
          std::launch::async, [&store] { return ensure_home_skeleton(store.path(), kFirstId); }));
    }
    for (auto& start : starts) {
      const std::string path = start.get();
      CHECK(base::read_file(path + "/.gitconfig").starts_with("[user]\n"));
      for (const auto& name : base::list_directory(path)) CHECK_FALSE(name.ends_with(".new"));
    }
  }
}

TEST_CASE("a home skeleton that lost its contents in a power cut is made again") {
  TemporaryDirectory store;
  const std::string path = ensure_home_skeleton(store.path(), kFirstId);
  const auto names = base::list_directory(path);
  for (const auto& name : names) {
    const std::string whole = base::read_file(path + "/" + name);
    REQUIRE(truncate((path + "/" + name).c_str(), 0) == 0);
    ensure_home_skeleton(store.path(), kFirstId);
    INFO(name);
    CHECK(base::read_file(path + "/" + name) == whole);
    struct stat status {};
    REQUIRE(stat((path + "/" + name).c_str(), &status) == 0);
    CHECK(status.st_uid == kFirstId + kUser);
  }
  CHECK(base::list_directory(path) == names);
}

}  // namespace moorage::layers
