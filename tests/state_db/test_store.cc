// Opening, owning, transactions, events: the guarantees of Store itself.
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <thread>

#include "base/os/fd.h"
#include "base/os/files.h"
#include "state_db/connection.h"
#include "state_db/reads.h"
#include "state_db/statement.h"
#include "state_db/store_lock.h"
#include "state_db/tables/facts.h"
#include "state_db/tables/repositories.h"
#include "store_fixture.h"

using namespace moorage;
using namespace moorage::state_db;
using namespace moorage::state_db_test;

TEST_CASE("a store keeps its id, and two stores have different ones") {
  TestStore first;
  TestStore second;
  const std::string id = first.store->store_id();
  CHECK(id.size() == 8);
  CHECK(id.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(id != second.store->store_id());
  first.reopen();
  CHECK(first.store->store_id() == id);
}

TEST_CASE("a counter of ids is raised only above the ids already given") {
  TestStore test;
  CHECK_FALSE(raise_counter(*test.store, base::RepoId{}));  // no id on disk
  CHECK(raise_counter(*test.store, base::RepoId{7}));
  CHECK_FALSE(raise_counter(*test.store, base::RepoId{7}));
  CHECK(make_repository(*test.store) == base::RepoId{8});
  CHECK_FALSE(raise_counter(*test.store, base::RepoId{8}));
}

TEST_CASE("the database uses WAL, checks references, and leaves syncs of its log to the store") {
  TestStore test;
  const auto pragma = [&](const std::string& name) {
    Statement query = test.store->prepare("PRAGMA " + name);
    REQUIRE(query.step());
    std::string value;
    query.read(value);
    return value;
  };
  CHECK(pragma("journal_mode") == "wal");
  CHECK(pragma("synchronous") == "1");
  CHECK(pragma("foreign_keys") == "1");
  CHECK(pragma("busy_timeout") == "5000");
}

TEST_CASE("a second opener is refused with the owner's pid") {
  TestStore test;
  CHECK(code_thrown_by([&] { Store second(test.options()); }) == base::Code::conflict);
  const std::string message = message_thrown_by([&] { Store second(test.options()); });
  CHECK(message.find("process " + std::to_string(getpid())) != std::string::npos);

  test.store.reset();
  base::Pipe ready = base::make_pipe();
  base::Pipe done = base::make_pipe();
  const pid_t child = fork();
  if (child == 0) {
    done.write_end.reset();
    Store owner(test.options());
    base::write_all(ready.write_end.get(), "x");
    base::read_up_to(done.read_end.get(), 1);
    _exit(0);
  }
  base::read_up_to(ready.read_end.get(), 1);
  const std::string other = message_thrown_by([&] { Store second(test.options()); });
  CHECK(other.find("process " + std::to_string(child)) != std::string::npos);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  test.open();  // the kernel released the lock
  CHECK_FALSE(test.store->was_clean());
}

TEST_CASE("opening waits for an owner that is exiting") {
  TestStore test;
  test.store.reset();
  base::Fd owner = lock_store(test.options().directory);
  std::thread dying([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    owner.reset();
  });
  test.open();
  CHECK(test.store->store_id().size() == 8);
  dying.join();
}

TEST_CASE("a properly closed store opens clean, a killed one does not") {
  TestStore test;
  test.reopen();
  CHECK(test.store->was_clean());
  test.store.reset();
  const int status = run_in_child([&] {
    Store store(test.options());
    kill(getpid(), SIGKILL);
  });
  REQUIRE(WIFSIGNALED(status));
  test.open();
  CHECK_FALSE(test.store->was_clean());
}

TEST_CASE("damage is found after an unclean end") {
  TestStore test;
  const auto repository = make_repository(*test.store);
  for (int i = 0; i < 200; ++i) make_workspace(*test.store, repository, "w" + std::to_string(i));
  test.store.reset();
  {
    Connection raw(test.file(), 1000);
    raw.execute(
        "UPDATE meta SET value = '0' WHERE name = 'clean'; PRAGMA wal_checkpoint(TRUNCATE)");
  }
  const base::Fd file = base::open_file(test.file(), O_RDWR);
  const std::string garbage(4096 * 8, '\x5a');
  REQUIRE(pwrite(file.get(), garbage.data(), garbage.size(), 4096 * 20) ==
          static_cast<ssize_t>(garbage.size()));
  CHECK(code_thrown_by([&] { test.open(); }) == base::Code::corrupted);
}

TEST_CASE("a database of a newer version or of another program is refused and left alone") {
  TestStore test;
  test.store.reset();
  {
    Connection raw(test.file(), 1000);
    raw.execute("INSERT INTO migrations VALUES ('9999-future', '7.1.0', 0)");
  }
  CHECK(code_thrown_by([&] { test.open(); }) == base::Code::unsupported);
  const std::string message = message_thrown_by([&] { test.open(); });
  CHECK(message.find("moorage 7.1.0, migration 9999-future") != std::string::npos);

  TemporaryDirectory other;
  {
    Connection raw(other.path() + "/state.db", 1000);
    raw.execute("CREATE TABLE songs (title TEXT)");
  }
  StoreOptions options;
  options.directory = other.path();
  CHECK(code_thrown_by([&] { Store store(options); }) == base::Code::unsupported);
  Connection raw(other.path() + "/state.db", 1000);
  CHECK(raw.query_text("PRAGMA journal_mode") == "delete");
}

TEST_CASE("a transaction is atomic, and an inner one can fail alone") {
  TestStore test;
  Store& store = *test.store;
  RepositoryTable repositories(store);
  const uint64_t commits = store.commits();
  CHECK_THROWS_AS(store.transaction([&] {
    repositories.create({.url = "https://a", .name = "a"});
    throw base::Error(base::Code::internal, "stop");
  }),
                  base::Error);
  CHECK(repositories.list().empty());
  CHECK(store.events(0, 10).empty());
  CHECK(store.commits() == commits);

  store.transaction([&] {
    repositories.create({.url = "https://a", .name = "a"});
    CHECK(code_thrown_by([&] {
            store.transaction([&] {
              repositories.create({.url = "https://b", .name = "b"});
              repositories.create({.url = "https://a", .name = "a"});
            });
          }) == base::Code::already_exists);
  });
  REQUIRE(repositories.list().size() == 1);
  CHECK(repositories.list()[0].url == "https://a");
  CHECK(store.events(0, 10).size() == 1);
  CHECK(store.commits() == commits + 1);
}

TEST_CASE("a transaction that changes nothing costs no commit") {
  TestStore test;
  const uint64_t commits = test.store->commits();
  test.store->transaction([&] { RepositoryTable(*test.store).list(); });
  CHECK(test.store->commits() == commits);
}

TEST_CASE("a reading is consistent, waits for no writer, and writes nothing") {
  TestStore test;
  Store& store = *test.store;
  const int64_t before = store.add_event("n", {});
  {
    const ReadTransaction moment(store);
    CHECK(store.last_event() == before);
    CHECK_THROWS_AS(store.add_event("n", {}), base::Error);
    CHECK_THROWS_AS(store.transaction([] {}), base::Error);
    CHECK_THROWS_AS(ReadTransaction(store), base::Error);
    std::thread([&] { store.add_event("n", {}); }).join();
    CHECK(store.last_event() == before);
  }
  CHECK(store.last_event() == before + 1);
  store.transaction([&] {
    store.add_event("n", {});
    std::thread([&] {
      const ReadTransaction moment(
          store);  // the store's lock is held: a wait for it would never end
      CHECK(store.last_event() == before + 1);
    }).join();
  });
  CHECK(store.last_event() == before + 2);
}

TEST_CASE("followers wake once after each commit, with the last event") {
  TestStore test;
  Store& store = *test.store;
  std::vector<int64_t> woken;
  store.on_event([&](int64_t seq) {
    CHECK(store.last_event() == seq);
    woken.push_back(seq);
  });
  store.transaction([&] {
    store.add_event("one", {});
    store.add_event("two", {});
  });
  CHECK_THROWS(store.transaction([&] {
    store.add_event("lost", {});
    throw base::Error(base::Code::internal, "stop");
  }));
  store.add_event("three", {});
  REQUIRE(woken.size() == 2);
  CHECK(woken[1] > woken[0]);
  const auto events = store.events(woken[0], 10);
  REQUIRE(events.size() == 1);
  CHECK(events[0].kind == "three");
}

TEST_CASE("events can be read from any position, and the oldest can be dropped") {
  TestStore test;
  Store& store = *test.store;
  for (int i = 0; i < 10; ++i) store.add_event("n", {}, std::to_string(i));
  CHECK(store.events(0, 3).size() == 3);
  CHECK(store.trim_events(4) == 6);
  const auto left = store.events(0, 100);
  REQUIRE(left.size() == 4);
  CHECK(left[0].text == "6");
  const int64_t last = store.last_event();
  CHECK(store.trim_events(0) == 4);
  CHECK(store.add_event("n", {}) > last);
}

TEST_CASE("a long text of an event is cut between two characters") {
  std::string text = "x";
  for (int i = 0; i < 3000; ++i) text += "\xc3\xa9";
  const std::string_view cut = event_text(text);
  CHECK(cut.size() == 4095);
  CHECK(event_text("short") == "short");
}

TEST_CASE("a checkpoint keeps the log short and moves its pages to the database file") {
  TestStore test;
  const auto size = [&](const char* suffix) {
    return std::filesystem::file_size(test.file() + suffix);
  };
  const auto commit_many = [&] {
    for (int i = 0; i < 300; ++i) test.store->add_event("test.event", {}, "x");
  };
  commit_many();
  const uint64_t database_before = size("");
  const uint64_t log_after_one = size("-wal");
  test.store->checkpoint();
  CHECK(size("") > database_before);
  for (int i = 0; i < 4; ++i) {
    commit_many();
    test.store->checkpoint();
  }
  CHECK(size("-wal") < 2 * log_after_one);
  const int64_t seq = test.store->last_event();
  test.reopen();
  CHECK(test.store->last_event() == seq);
}

TEST_CASE("a failed disk write makes the store refuse all calls") {
  const int status = run_in_child([] {
    TestStore test;
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 40'000, .rlim_max = RLIM_INFINITY};
    base::check(setrlimit(RLIMIT_FSIZE, &limit), "setrlimit");
    Store& store = *test.store;
    bool refused = false;
    for (int i = 0; i < 100 && !refused; ++i) {
      try {
        make_repository(store, "https://host/" + std::to_string(i));
      } catch (const base::Error& error) {
        refused = error.code() == base::Code::io;
      }
    }
    bool refuses_reads = false;
    try {
      RepositoryTable(store).list();
    } catch (const base::Error& error) {
      refuses_reads = error.code() == base::Code::io;
    }
    const bool good = refused && store.failed() && refuses_reads;
    test.store.reset();
    base::remove_tree(test.directory.path());
    _exit(good ? 0 : 1);
  });
  CHECK(status == 0);
}

TEST_CASE("a full disk refuses the write, releases the reserve, and the next write works") {
  TemporaryDirectory directory;
  if (mount("tmpfs", directory.path().c_str(), "tmpfs", 0, "size=4m") != 0) {
    WARN("SKIPPED: cannot mount a tmpfs here");
    return;
  }
  {
    StoreOptions options;
    options.directory = directory.path();
    options.reserve_bytes = 1 << 20;
    Store store(options);
    CHECK(base::path_exists(directory.path() + "/reserve"));
    const base::Fd filler = base::open_file(directory.path() + "/filler", O_RDWR | O_CREAT, 0600);
    const std::string block(4096, 'x');
    while (write(filler.get(), block.data(), block.size()) > 0) {
    }
    int made = 0;
    const auto make_many = [&] {
      for (;; ++made) make_repository(store, "https://host/" + std::to_string(made));
    };
    CHECK(code_thrown_by(make_many) == base::Code::resource_exhausted);
    CHECK_FALSE(store.failed());
    CHECK_FALSE(base::path_exists(directory.path() + "/reserve"));
    CHECK(RepositoryTable(store).list().size() == static_cast<size_t>(made));
    make_repository(store, "https://host/after");
    CHECK(ftruncate(filler.get(), 0) == 0);
    CHECK(store.refill_reserve());
  }
  CHECK(umount(directory.path().c_str()) == 0);
}

TEST_CASE("a store refused by its guard stays unchanged") {
  TestStore test;
  StoreOptions options = test.options();
  std::string asked;
  const std::string id = test.store->store_id();
  test.store.reset();
  const std::string before = base::read_file(test.file());
  options.before_changes = [&](const std::string& store_id) {
    asked = store_id;
    throw base::Error(base::Code::unsupported, "not with these sandboxes");
  };
  CHECK(code_thrown_by([&] { Store refused(options); }) == base::Code::unsupported);
  CHECK(asked == id);
  CHECK(base::read_file(test.file()) == before);
  CHECK_FALSE(base::path_exists(test.file() + "-wal"));
  test.reopen();
  CHECK(test.store->was_clean());
}

TEST_CASE("a new store does not call the guard") {
  TemporaryDirectory directory;
  StoreOptions options;
  options.directory = directory.path();
  options.before_changes = [](const std::string&) { FAIL("asked"); };
  const Store store(options);
  CHECK(store.store_id().size() == 8);
}
