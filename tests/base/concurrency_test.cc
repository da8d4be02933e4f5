// KeyedMutex, ThreadPool, FairPool and SingleFlight.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <set>
#include <thread>

#include "base/fair_pool.h"
#include "base/keyed_mutex.h"
#include "base/single_flight.h"
#include "base/thread_pool.h"
#include "temporary_directory.h"

using namespace moorage;
using namespace std::chrono_literals;
using base::Error;
using base::FairPool;
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
  CHECK(text == "conflict: ws_3 is busy: start (for 0 s)");
}

TEST_CASE("other keys stay free, and a key is free again after its guard ends") {
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

TEST_CASE("a shared key is free after its last holder") {
  KeyedMutex mutex;
  auto first = mutex.share("ly_1", "export", 0ms);
  auto second = mutex.share("ly_1", "export", 0ms);
  CHECK(test::code_thrown_by([&] { mutex.lock("ly_1", "clean-up", 0ms); }) == "conflict");
  first.unlock();
  CHECK(test::code_thrown_by([&] { mutex.lock("ly_1", "clean-up", 0ms); }) == "conflict");
  auto third = mutex.share("ly_1", "export", 0ms);
  second.unlock();
  third.unlock();
  auto alone = mutex.lock("ly_1", "clean-up", 0ms);
  CHECK(test::code_thrown_by([&] { mutex.share("ly_1", "export", 0ms); }) == "conflict");
  alone.unlock();
  CHECK_NOTHROW(mutex.share("ly_1", "export", 0ms));
}

TEST_CASE("waiters get the freed key, one at a time") {
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

TEST_CASE("a full pool refuses, and finishes accepted work before it ends") {
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

TEST_CASE("the threads of a pool work in parallel") {
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
  here = 3;  // releases them if the check failed
}

TEST_CASE("a pool has only as many threads as it needed at once") {
  ThreadPool pool(8, 100);
  std::mutex mutex;
  std::set<std::thread::id> seen;
  const auto note = [&] {
    const std::lock_guard guard(mutex);
    seen.insert(std::this_thread::get_id());
  };
  for (int i = 0; i < 50; ++i) {
    std::promise<void> done;
    pool.submit([&] {
      note();
      done.set_value();
    });
    done.get_future().wait();
    std::this_thread::sleep_for(1ms);  // almost always idle again by then
  }
  CHECK(seen.size() < 8);
}

TEST_CASE(
    "a hundred requests make two runs, and a waiter sees a run that began after its request") {
  std::atomic<int> begun = 0;
  std::atomic<int> at_once = 0;
  std::atomic<int> most = 0;
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future();
  base::SingleFlight flights(4, [&](int64_t) {
    most = std::max(most.load(), ++at_once);
    ++begun;
    open.wait();
    --at_once;
  });
  flights.request(7);
  while (begun == 0) std::this_thread::yield();
  for (int i = 0; i < 100; ++i) flights.request(7);
  CHECK_FALSE(flights.ran_within(7, 1h));
  auto waited = std::async(std::launch::async, [&] { return flights.wait(7, 1min); });
  gate.set_value();
  CHECK(waited.get());
  CHECK(begun >= 2);
  CHECK(begun <= 3);
  CHECK(most == 1);
  CHECK(flights.ran_within(7, 1h));
  flights.forget(7);
  CHECK_FALSE(flights.ran_within(7, 1h));
}

TEST_CASE("a wait ends at once for a run known to take longer, also behind such runs of others") {
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future();
  base::SingleFlight flights(2, [&](int64_t key) {
    if (key != 3) open.wait();
  });
  const auto waits = [&](int64_t key, std::chrono::milliseconds patience) {
    const auto start = std::chrono::steady_clock::now();
    CHECK_FALSE(flights.wait(key, patience));
    return std::chrono::steady_clock::now() - start >= patience;
  };
  CHECK(flights.wait(3, 1min));
  CHECK(waits(1, 50ms));
  CHECK(flights.wait(3, 1min));  // the other thread is free
  CHECK_FALSE(waits(1, 20ms));
  CHECK(waits(2, 50ms));
  CHECK_FALSE(waits(3, 20ms));
  gate.set_value();
  while (!flights.ran_within(1, 1h) || !flights.ran_within(2, 1h)) std::this_thread::yield();
  CHECK(flights.wait(3, 1min));
}

TEST_CASE("one user's runs leave threads to the others") {
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future();
  base::SingleFlight flights(
      4,
      [&](int64_t key) {
        if (key < 100) open.wait();
      },
      base::SingleFlight::Fair{});
  for (int64_t key = 0; key < 20; ++key) flights.request(key, 1000);
  CHECK(flights.wait(100, 1min, 1001));
  CHECK(flights.wait(101, 1min, 1002));
  gate.set_value();
}

TEST_CASE("destruction waits for current runs and drops queued ones") {
  std::atomic<int> runs = 0;
  {
    base::SingleFlight flights(1, [&](int64_t) {
      std::this_thread::sleep_for(20ms);
      ++runs;
    });
    for (int64_t key = 0; key < 50; ++key) flights.request(key);
  }
  CHECK(runs <= 2);
}

namespace {

// Tasks that hold their thread until released.
class Held {
 public:
  ~Held() { let_go(); }
  std::function<void()> task() {
    return [this] {
      std::unique_lock lock(mutex_);
      begun_ += 1;
      changed_.notify_all();
      changed_.wait(lock, [this] { return free_; });
    };
  }
  void let_go() {
    const std::lock_guard lock(mutex_);
    free_ = true;
    changed_.notify_all();
  }
  bool wait_begun(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return begun_ >= count; });
  }
  size_t begun() {
    const std::lock_guard lock(mutex_);
    return begun_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t begun_ = 0;
  bool free_ = false;
};

}  // namespace

TEST_CASE("any amount of one user's work leaves threads for every other user") {
  Held held;
  FairPool pool(16, 1000);
  for (int n = 0; n < 200; ++n) pool.submit({.user = 1}, held.task());
  REQUIRE(held.wait_begun(8));
  for (int n = 0; n < 200; ++n) pool.submit({.user = 2}, held.task());
  REQUIRE(held.wait_begun(12));
  for (const uint32_t user : {3, 4, 5}) {
    std::promise<void> ran;
    pool.submit({.user = user}, [&] { ran.set_value(); });
    CHECK(ran.get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  }
  CHECK(held.begun() == 12);  // 8 of the first, and as many of the second as were then free
  held.let_go();
}

TEST_CASE("one workspace leaves threads to the user's other workspaces") {
  Held held;
  FairPool pool(16, 1000);
  for (int n = 0; n < 100; ++n) pool.submit({.user = 1, .subject = "ws_1"}, held.task());
  REQUIRE(held.wait_begun(4));
  std::promise<void> ran;
  pool.submit({.user = 1, .subject = "ws_2"}, [&] { ran.set_value(); });
  CHECK(ran.get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  CHECK(held.begun() == 4);
  held.let_go();
}

TEST_CASE("a fair pool finishes all accepted work, one subject's in order") {
  std::vector<int> order;
  std::mutex mutex;
  {
    FairPool pool(4, 1000);
    for (int n = 0; n < 500; ++n) {
      pool.submit({.user = 1, .subject = "ws_1"}, [&, n] {
        const std::lock_guard lock(mutex);
        order.push_back(n);
      });
    }
  }
  REQUIRE(order.size() == 500);
  CHECK(std::is_sorted(order.begin(), order.end()));  // a quarter of four: one thread
}

TEST_CASE("a full queue refuses only its own user") {
  Held held;
  FairPool pool(2, 1);
  pool.submit({.user = 1}, held.task());
  REQUIRE(held.wait_begun(1));
  pool.submit({.user = 1}, held.task());
  CHECK_THROWS_AS(pool.submit({.user = 1}, held.task()), Error);
  pool.submit({.user = 2}, held.task());
  CHECK(held.wait_begun(2));
  held.let_go();
}

TEST_CASE("among users without a thread, the longest waiting is next") {
  std::vector<uint32_t> order;
  {
    Held held;
    FairPool pool(1, 1000);
    pool.submit({.user = 9}, held.task());
    REQUIRE(held.wait_begun(1));
    for (const uint32_t user : {1, 1, 1, 2, 2})
      pool.submit({.user = user}, [&, user] { order.push_back(user); });
    held.let_go();
  }
  CHECK(order == std::vector<uint32_t>{1, 2, 1, 2, 1});
}
