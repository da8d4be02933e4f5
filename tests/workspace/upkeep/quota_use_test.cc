#include "workspace/upkeep/quota_use.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <mutex>
#include <thread>

#include "base/temporary_directory.h"

using namespace moorage;

TEST_CASE("directories that move during the walk are counted while writers are frozen") {
  test::TemporaryDirectory directory;
  constexpr int kDirectories = 20;
  constexpr int kEntries = 10;  // few, so that a walk fails early and not late
  const auto place = [&](const char* parent, int number) {
    return directory / ("tree/" + std::string(parent) + "/" + std::to_string(number));
  };
  base::make_directories(directory / "tree/two");
  for (int number = 0; number < kDirectories; ++number) {
    for (int entry = 0; entry < kEntries; ++entry)
      base::make_directories(place("one", number) + "/" + std::to_string(entry) + "/below");
  }
  const uint64_t expected = base::tree_usage(directory / "tree").inodes;
  REQUIRE(expected == 3 + kDirectories * (1 + 2 * kEntries));

  std::mutex writes;
  std::atomic<bool> ends = false;
  std::atomic<uint64_t> rounds = 0;
  std::thread writer([&] {
    for (const char *from = "one", *to = "two"; !ends; std::swap(from, to), ++rounds) {
      for (int number = 0; number < kDirectories; ++number) {
        const std::lock_guard guard(writes);
        (void)rename(place(from, number).c_str(), place(to, number).c_str());
      }
    }
  });
  while (rounds < 2) std::this_thread::yield();
  int held = 0;
  const workspace::Still still = [&] {
    held += 1;
    return std::make_shared<std::unique_lock<std::mutex>>(writes);
  };
  bool judged = true;
  bool right = true;
  // On a busy host the two threads may take turns for long, and no directory moves during a walk.
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  for (int round = 0; round < 20 || (held == 0 && std::chrono::steady_clock::now() < until);
       ++round) {
    const int before = held;
    const auto usage = workspace::usage_of_written(directory / "tree", still);
    judged = judged && usage;
    if (usage && held > before) right = right && usage->complete && usage->inodes == expected;
  }
  ends = true;
  writer.join();
  CHECK(judged);
  CHECK(held > 0);
  CHECK(right);
}

TEST_CASE("a missing directory cannot be counted") {
  test::TemporaryDirectory directory;
  CHECK_FALSE(workspace::usage_of_written(directory / "none/x", {}));
}
