// One sync serves all waiting threads.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "base/os/files.h"
#include "state_db/log_sync.h"
#include "store_fixture.h"

using namespace moorage;
using namespace moorage::state_db;
using namespace moorage::state_db_test;

TEST_CASE("a commit of many threads is durable together with all earlier ones") {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/log";
  base::write_file(path, "x");
  bool failed = false;
  LogSync log(path, [&] { failed = true; });
  CHECK(log.newest() == 0);
  CHECK(log.wait(0));
  constexpr int kThreads = 8;
  constexpr int kCommits = 200;
  std::mutex store;
  std::atomic<int> durable{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < kCommits; ++n) {
        int64_t number = 0;
        {
          const std::lock_guard lock(store);
          const LogSync::Commit commit(log);
          number = commit.number();
        }
        if (log.wait(number)) ++durable;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(durable == kThreads * kCommits);
  CHECK(log.newest() == kThreads * kCommits);
  CHECK(log.wait(log.newest()));
  CHECK_FALSE(failed);
}

TEST_CASE("a wait for a commit in progress ends after that commit") {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/log";
  base::write_file(path, "x");
  LogSync log(path, [] {});
  std::atomic<bool> seen{false};
  std::thread reader;
  {
    const LogSync::Commit commit(log);
    reader = std::thread([&] { seen = log.wait(log.newest()); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK_FALSE(seen);
  }
  reader.join();
  CHECK(seen);
}

TEST_CASE("a failed sync is reported once, and every wait for its commits fails") {
  int told = 0;
  LogSync log("/dev/null", [&] { ++told; });  // which cannot be synced
  int64_t number = 0;
  {
    const LogSync::Commit commit(log);
    number = commit.number();
  }
  CHECK_FALSE(log.wait(number));
  CHECK_FALSE(log.wait(number));
  CHECK(told == 1);
  CHECK(log.wait(0));  // an earlier commit
}
