#include "workspace/access/leases.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <map>
#include <thread>

#include "base/clock.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/os/files.h"
#include "state_db/store.h"
#include "workspace/context/new_workspace.h"

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
    state_db::WorkspaceTable table(*store);
    row = table.get(table.create(new_workspace(*store, "ws")).id);
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
  // With the token of that lease, if it was acquired here; otherwise only with its number.
  Caller bearing(std::optional<int64_t> generation) const {
    if (!generation) return sending("");
    const auto known = tokens.find(*generation);
    return sending(known == tokens.end() ? std::to_string(*generation) : known->second);
  }
  Caller sending(const std::string& header) const {
    Caller caller;
    caller.uid = 1000;
    if (!header.empty()) caller.leases = parse_lease_claims(header);
    return caller;
  }
  LeaseView acquire(const Leases::Wanted& wanted) {
    LeaseView view = leases->acquire(bearing({}), row, wanted);
    tokens[view.row.generation] = view.token;
    return view;
  }
  int64_t acquire(const std::string& holder, bool take_over = false) {
    return acquire({holder, 60'000, take_over, false, ""}).row.generation;
  }
  std::string refused(std::optional<int64_t> generation) { return refused_to(bearing(generation)); }
  std::string refused_to(const Caller& caller) {
    try {
      leases->check(caller, row);
      return "";
    } catch (const Error& error) {
      CHECK(error.code() == Code::conflict);
      return error.message();
    }
  }
  // Like the daemon, which sweeps once a second.
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
  std::map<int64_t, std::string> tokens;
};

}  // namespace

TEST_CASE_METHOD(LeaseFixture, "a lease lapses after its ttl without a request, not before") {
  const auto generation = acquire("a");
  pass(60);
  CHECK(refused(generation).empty());  // this counts as a request
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

TEST_CASE_METHOD(LeaseFixture, "a restart or a suspended daemon lets no lease lapse") {
  const auto generation = acquire("a");
  pass(55);
  open();
  pass(55);
  CHECK(leases->is_held(row.id));
  clock.up_ms += 3'600'000;  // stopped, or suspended, for an hour
  CHECK(leases->is_held(row.id));
  CHECK(refused({}).starts_with("ws is held by a (" + user_name(1000) + ", lease 1), acquired "));
  CHECK(refused(generation).empty());
  clock.up_ms = 0;  // after a reboot
  open();
  CHECK(leases->is_held(row.id));
  pass(61);
  CHECK_FALSE(leases->is_held(row.id));
}

TEST_CASE_METHOD(LeaseFixture, "a takeover waits for a change in progress") {
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
  CHECK(refused(old).starts_with("lease 1 of ws is over: b (" + user_name(1000) +
                                 ", lease 2) has held it since "));
  leases->cleared(row.id);
  CHECK(refused(2).empty());
}

TEST_CASE_METHOD(LeaseFixture, "acquiring after a release ends no commands, otherwise it does") {
  const auto first = acquire("a");
  leases->release(bearing(first), row);
  CHECK(acquire({"b", 60'000, false, false, ""}).row.clearing == false);
  CHECK(acquire({"c", 60'000, true, false, ""}).row.clearing);
  CHECK(leases->being_cleared() == std::vector{row.id});
  CHECK(refused(3) == "ws was taken over, and earlier commands in it have not ended yet");
  CHECK_NOTHROW(leases->heartbeat(bearing(3), row));
  leases->cleared(row.id);
  CHECK(leases->being_cleared().empty());
  CHECK(refused(3).empty());
  CHECK_FALSE(acquire({"d", 60'000, true, true, ""}).row.clearing);
  pass(61);
  CHECK(acquire({"e", 60'000, false, false, ""}).row.clearing);
}

TEST_CASE_METHOD(LeaseFixture, "the daemon itself needs no lease") {
  acquire("a");
  CHECK_NOTHROW(leases->check(daemon_for(1000), row));
  leases->end(row.id, "deleted");
  CHECK(refused(1) == "lease 1 of ws is over: deleted");
  CHECK(refused({}).empty());
}

TEST_CASE_METHOD(LeaseFixture, "only its secret proves a lease, and the store does not have it") {
  acquire("a");
  const std::string token = tokens.at(1);
  const std::string secret = token.substr(token.rfind('.') + 1);
  CHECK(token == row.id.str() + ".1." + secret);
  CHECK(secret.size() == 64);
  CHECK(refused_to(sending(token)).empty());
  const std::string held = "ws is held by a (" + user_name(1000) + ", lease 1), and you sent ";
  CHECK(refused_to(sending("1")) == held + "no secret");
  CHECK(refused_to(sending(row.id.str() + ".1")) == held + "no secret");
  CHECK(refused_to(sending(row.id.str() + ".1." + std::string(64, '0'))) ==
        held + "another secret");
  CHECK(refused_to(sending(row.id.str() + ".1." + base::sha256_hex(secret))) ==
        held + "another secret");
  CHECK(leases->look(row.id)->token.empty());
  CHECK(leases->heartbeat(sending(token), row).token.empty());
  open();
  CHECK(refused_to(sending(token)).empty());
  CHECK(refused_to(sending("1")) == held + "no secret");
  leases.reset();
  store.reset();
  for (const char* file : {"/state.db", "/state.db-wal"}) {
    const auto bytes = base::read_file_if_exists(directory + file);
    CHECK((!bytes || bytes->find(secret) == bytes->npos));
  }
}

TEST_CASE_METHOD(LeaseFixture, "a repeated acquire gets a new secret for the same lease") {
  const Leases::Wanted wanted{"a", 60'000, false, false, "key"};
  const auto lost = acquire(wanted).token;
  const auto again = acquire(wanted);
  CHECK(again.row.generation == 1);
  CHECK(again.token != lost);
  CHECK(refused_to(sending(again.token)).empty());
  CHECK(refused_to(sending(lost)).ends_with("and you sent another secret"));
  open();
  CHECK(refused_to(sending(again.token)).empty());
}

TEST_CASE_METHOD(LeaseFixture, "nobody can prove a lease from before leases had secrets") {
  acquire("a");
  state_db::LeaseTable(*store).renew_secret(row.id, "");
  open();
  CHECK(refused_to(sending("1")).ends_with("and you sent no secret"));
  CHECK(refused_to(sending(tokens.at(1))).ends_with("and you sent another secret"));
}

TEST_CASE_METHOD(LeaseFixture, "a request may carry several leases, one for each workspace") {
  acquire("a");
  const std::string other = "ws_777.1." + std::string(64, 'a');
  CHECK(refused_to(sending(other + ", " + tokens.at(1))).empty());
  CHECK(refused_to(sending(other)).starts_with("ws is held by a"));
  leases->release(sending(tokens.at(1)), row);
  CHECK(refused_to(sending(other)).empty());
  CHECK(refused_to(sending("1," + other)) == "lease 1 of ws is over: released");
  CHECK(refused_to(sending("1," + other).beside()).empty());
  for (const char* bad : {"", "x", "0", "-1", "1 2", "1,", "1,1", "ws_1", "ws_1.0", "1.2",
                          "ws_1.1.", "ws_1.1.abc", "ex_1.1", "ws_1.1,ws_1.2", "ws_1.1.a.b"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(parse_lease_claims(bad), Error);
  }
}

}  // namespace moorage::workspace
