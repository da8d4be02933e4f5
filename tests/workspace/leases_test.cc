#include "workspace/leases.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/files.h"
#include "state_db/repositories.h"
#include "state_db/store.h"

namespace moorage::workspace {
namespace {

using base::Code;
using base::Error;

struct HandClock : base::Clock {
  int64_t wall_ms() const override { return 1'700'000'000'000; }
  int64_t boot_ms() const override { return up_ms; }
  std::atomic<int64_t> up_ms{1'000'000};
};

struct LeaseFixture {
  LeaseFixture() {
    char path[] = "/tmp/moorage-leases-XXXXXX";
    directory = mkdtemp(path);
    open();
    state_db::NewWorkspace wanted;
    wanted.name = "ws";
    wanted.owner_uid = 1000;
    wanted.repository =
        state_db::Repositories(*store).find_or_create({"https://x/a", "", "a"}).first;
    wanted.base_commit = std::string(40, 'a');
    state_db::Workspaces table(*store);
    row = table.get(table.create(wanted).id);
  }
  ~LeaseFixture() {
    leases.reset();
    store.reset();
    base::remove_tree(directory);
  }
  void open() {
    leases.reset();
    store.reset();
    state_db::StoreOptions options;
    options.directory = directory;
    options.clock = &clock;
    store = std::make_unique<state_db::Store>(options);
    leases = std::make_unique<Leases>(*store);
  }
  Caller bearing(std::optional<int64_t> generation) const {
    Caller caller;
    caller.uid = 1000;
    caller.lease = generation;
    return caller;
  }
  int64_t acquire(const std::string& holder, bool take_over = false) {
    return leases->acquire(bearing({}), row, {holder, 60'000, take_over, false, ""}).row.generation;
  }
  std::string refused(std::optional<int64_t> generation) {
    try {
      leases->check(bearing(generation), row);
      return "";
    } catch (const Error& error) {
      CHECK(error.code() == Code::conflict);
      return error.message();
    }
  }
  // As the daemon does: it looks once a second.
  void pass(int64_t seconds) {
    for (int64_t i = 0; i < seconds; ++i) {
      clock.up_ms += 1000;
      leases->sweep();
    }
  }

  HandClock clock;
  std::string directory;
  std::unique_ptr<state_db::Store> store;
  std::unique_ptr<Leases> leases;
  state_db::WorkspaceRow row;
};

}  // namespace

TEST_CASE_METHOD(LeaseFixture, "a lease lapses when nothing is heard for its ttl, not before") {
  const auto generation = acquire("a");
  pass(60);
  CHECK(refused(generation).empty());  // and that was heard
  pass(59);
  leases->heartbeat(bearing(generation), row);
  pass(60);
  CHECK(leases->is_held(row.id));
  pass(1);
  CHECK_FALSE(leases->is_held(row.id));
  CHECK(refused(generation) == "lease 1 of ws is over: lapsed");
  CHECK(refused({}).empty());
  CHECK_THROWS_AS(leases->heartbeat(bearing(generation), row), Error);
  open();
  CHECK(refused(generation) == "lease 1 of ws is over: lapsed");
}

TEST_CASE_METHOD(LeaseFixture, "a restart, and time in which nobody looked, let none lapse") {
  const auto generation = acquire("a");
  pass(55);
  open();
  pass(55);
  CHECK(leases->is_held(row.id));
  clock.up_ms += 3'600'000;  // stopped, or asleep, for an hour
  CHECK(leases->is_held(row.id));
  CHECK(refused({}).starts_with("ws is held by a (uid 1000, lease 1) since "));
  CHECK(refused(generation).empty());
  clock.up_ms = 0;  // a boot later
  open();
  CHECK(leases->is_held(row.id));
  pass(61);
  CHECK_FALSE(leases->is_held(row.id));
}

TEST_CASE_METHOD(LeaseFixture, "who takes over waits for the change that is going on") {
  const auto old = acquire("a");
  auto writing = std::make_unique<Leases::Writing>(leases->write(bearing(old), row));
  std::atomic<bool> taken{false};
  std::thread other([&] {
    acquire("b", true);
    taken = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK_FALSE(taken);
  writing.reset();
  other.join();
  CHECK(refused(old).starts_with("lease 1 of ws is over: b (uid 1000, lease 2) has it since "));
  leases->cleared(row.id);
  CHECK(refused(2).empty());
}

TEST_CASE_METHOD(LeaseFixture, "what was released ends nothing, what was held or lapsed does") {
  const auto first = acquire("a");
  leases->release(bearing(first), row);
  CHECK(leases->acquire(bearing({}), row, {"b", 60'000, false, false, ""}).row.clearing == false);
  CHECK(leases->acquire(bearing({}), row, {"c", 60'000, true, false, ""}).row.clearing);
  CHECK(leases->being_cleared() == std::vector{row.id});
  CHECK(refused(3) == "ws was taken over, and what ran in it before has not ended yet");
  CHECK_NOTHROW(leases->heartbeat(bearing(3), row));
  leases->cleared(row.id);
  CHECK(leases->being_cleared().empty());
  CHECK(refused(3).empty());
  CHECK_FALSE(leases->acquire(bearing({}), row, {"d", 60'000, true, true, ""}).row.clearing);
  pass(61);
  CHECK(leases->acquire(bearing({}), row, {"e", 60'000, false, false, ""}).row.clearing);
}

TEST_CASE_METHOD(LeaseFixture, "what the daemon does itself asks no lease") {
  acquire("a");
  CHECK_NOTHROW(leases->check(daemon_for(1000), row));
  leases->end(row.id, "deleted");
  CHECK(refused(1) == "lease 1 of ws is over: deleted");
  CHECK(refused({}).empty());
}

}  // namespace moorage::workspace
