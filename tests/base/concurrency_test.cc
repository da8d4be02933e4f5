// KeyedMutex and ThreadPool.
#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <thread>

#include "base/keyed_mutex.h"
#include "base/thread_pool.h"
#include "temporary_directory.h"

using namespace moorage;
using namespace std::chrono_literals;
using base::KeyedMutex;
using base::ThreadPool;

TEST_CASE("a refusal names the key, the operation in progress and its age") {
  KeyedMutex mutex;
  auto guard = mutex.lock("ws_3", "start");
  std::string text;
  std::thread other([&] {
    try {
      mutex.lock("ws_3", "delete", 50ms);
    } catch (const base::Error& error) {
      text = std::string(base::code_name(error.code())) + ": " + error.message();
    }
  });
  other.join();
  CHECK(text == "conflict: ws_3 is busy: start (since 0 s)");
}

TEST_CASE("other keys are free, and a key is free again after its guard") {
  KeyedMutex mutex;
  auto first = mutex.lock("ws_1", "start");
  auto second = mutex.lock("ws_2", "start", 0ms);
  first.unlock();
  first.unlock();
  auto again = mutex.lock("ws_1", "stop", 0ms);
  auto moved = std::move(again);
  CHECK(test::code_thrown_by([&] { mutex.lock("ws_1", "x", 0ms); }) == "conflict");
  moved = KeyedMutex::Guard();
  CHECK_NOTHROW(mutex.lock("ws_1", "x", 0ms));
}

TEST_CASE("who waits gets the key when it is freed, one at a time") {
  KeyedMutex mutex;
  int inside = 0;  // guarded by the key
  int most = 0;
  int turns = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 200; ++j) {
        auto guard = mutex.lock("k", "turn");
        most = std::max(most, ++inside);
        ++turns;
        --inside;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(most == 1);
  CHECK(turns == 800);
}

TEST_CASE("a full pool refuses, and runs what it accepted before it goes") {
  std::atomic<int> done = 0;
  std::promise<void> gate;
  auto open = gate.get_future().share();
  std::promise<void> started;
  {
    ThreadPool pool(1, 2);
    pool.submit([&] {
      started.set_value();
      open.wait();
      ++done;
    });
    started.get_future().wait();  // it left the queue
    pool.submit([&] { ++done; });
    pool.submit([&] { ++done; });
    CHECK(test::code_thrown_by([&] { pool.submit([&] { ++done; }); }) == "resource_exhausted");
    gate.set_value();
  }
  CHECK(done == 3);
}

TEST_CASE("the threads of a pool work at the same time") {
  ThreadPool pool(3, 10);
  std::promise<void> met;
  std::atomic<int> here = 0;
  for (int i = 0; i < 3; ++i) {
    pool.submit([&] {
      if (++here == 3) met.set_value();
      while (here < 3) std::this_thread::yield();
    });
  }
  CHECK(met.get_future().wait_for(20s) == std::future_status::ready);
  here = 3;  // lets them go if the check failed
}
