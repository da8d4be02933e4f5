// Data read by a call is durable when it returns, even if another thread's commit is in progress.
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <optional>
#include <thread>

#include "state_db/reads.h"
#include "store_fixture.h"

using namespace moorage;
using namespace moorage::state_db;
using namespace moorage::state_db_test;

namespace {

std::atomic<bool> disk_stands{false};
std::atomic<bool> sync_waits{false};

}  // namespace

// Replaces libc's function: a disk that can be paused.
extern "C" int fdatasync(int fd) {
  while (disk_stands) {
    sync_waits = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return static_cast<int>(syscall(SYS_fdatasync, fd));
}

namespace {

// A commit in the log whose sync does not end.
class Unsynced {
 public:
  explicit Unsynced(Store& store) {
    sync_waits = false;
    disk_stands = true;
    commit_ = std::thread([&store] { store.add_event("unsynced", {}); });
    while (!sync_waits) std::this_thread::yield();
  }
  ~Unsynced() {
    disk_stands = false;
    commit_.join();
  }

 private:
  std::thread commit_;
};

template <typename Work>
void check_that_it_waits(Store& store, const Work& work) {
  std::optional<Unsynced> unsynced(store);
  auto done = std::async(std::launch::async, work);
  CHECK(done.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  unsynced.reset();
  CHECK(done.wait_for(std::chrono::seconds(10)) == std::future_status::ready);
}

}  // namespace

TEST_CASE("a read of another thread's commit waits until that is durable") {
  TestStore test;
  Store& store = *test.store;
  check_that_it_waits(store, [&] { store.last_event(); });
  check_that_it_waits(store, [&] { store.transaction([&] { store.last_event(); }); });
  check_that_it_waits(store, [&] {
    const ReadTransaction moment(store);
    store.last_event();
  });
}

TEST_CASE("grouped reads wait once at their end") {
  TestStore test;
  Store& store = *test.store;
  check_that_it_waits(store, [&] {
    const GroupedReads reads(store);
    store.last_event();
  });
  std::atomic<bool> has_read{false};
  std::optional<Unsynced> unsynced(store);
  auto looking = std::async(std::launch::async, [&] {
    const GroupedReads reads(store);
    store.last_event();
    has_read = true;
  });
  while (!has_read) std::this_thread::yield();  // while the disk is paused
  unsynced.reset();
  looking.get();
}

TEST_CASE("a transaction begins without waiting for another one's sync") {
  TestStore test;
  Store& store = *test.store;
  std::optional<Unsynced> unsynced(store);
  std::atomic<bool> ran{false};
  auto other = std::async(std::launch::async, [&] { store.transaction([&] { ran = true; }); });
  while (!ran) std::this_thread::yield();
  unsynced.reset();
  other.get();
}
