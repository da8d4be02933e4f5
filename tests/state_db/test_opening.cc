// An unreadable state.db: classified, copied, and left unmodified.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/os/fd.h"
#include "base/os/files.h"
#include "state_db/connection.h"
#include "state_db/damaged_copies.h"
#include "state_db/open_store.h"
#include "state_db/statement.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/repositories.h"
#include "store_fixture.h"

using namespace moorage;
using namespace moorage::state_db;
using namespace moorage::state_db_test;

namespace {

constexpr size_t kPage = 4096;

// A store with rows and with work on the disk, whose last owner was killed.
struct KilledStore : TestStore {
  KilledStore() {
    const auto repository = make_repository(*store);
    for (int i = 0; i < 100; ++i) make_workspace(*store, repository, "w" + std::to_string(i));
    store.reset();
    run_raw("UPDATE meta SET value = '0' WHERE name = 'clean'");
    base::make_directories(directory.path() + "/layers/ly_1");
  }
  void run_raw(const std::string& statements) const {
    Connection raw(file(), 1000);
    raw.execute(statements);
    raw.query_text("PRAGMA wal_checkpoint(TRUNCATE)");
  }
  std::string ask_raw(const std::string& question) const {
    Connection raw(file(), 1000);
    return raw.query_text(question);
  }
  void overwrite(uint64_t offset, const std::string& bytes, const std::string& suffix = "") const {
    const base::Fd target = base::open_file(file() + suffix, O_RDWR | O_CREAT, 0600);
    REQUIRE(pwrite(target.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)) ==
            static_cast<ssize_t>(bytes.size()));
  }
  void spoil_page(const std::string& name) const {
    const auto page =
        std::stoull(ask_raw("SELECT rootpage FROM sqlite_schema WHERE name = '" + name + "'"));
    overwrite((page - 1) * kPage, std::string(kPage, '\x5a'));
  }
  Unreadable refused() const {
    Opened opened = open_store(options());
    REQUIRE(opened.unreadable);
    CHECK_FALSE(opened.store);
    CHECK_FALSE(opened.unreadable->what.empty());
    CHECK_FALSE(opened.unreadable->hint.empty());
    return std::move(*opened.unreadable);
  }
  std::vector<std::string> copies() const {
    std::vector<std::string> found;
    for (const auto& name : base::list_directory(directory.path())) {
      if (name.starts_with("state.db.damaged-")) found.push_back(name);
    }
    return found;
  }
};

bool says(const std::vector<std::string>& lines, const std::string& words) {
  for (const auto& line : lines) {
    if (line.find(words) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a sound database opens without a copy") {
  KilledStore test;
  const Opened opened = open_store(test.options());
  REQUIRE(opened.store);
  CHECK_FALSE(opened.unreadable);
  CHECK(opened.store->repaired().empty());
  CHECK(test.copies().empty());
}

TEST_CASE("a damaged page is reported with its table, copied once, and left alone") {
  KilledStore test;
  test.spoil_page("workspaces");
  const std::string damaged = base::read_file(test.file());
  std::string copy;
  for (int start = 0; start < 3; ++start) {
    const Unreadable found = test.refused();
    CHECK(found.trouble == Trouble::damaged);
    CHECK(found.what.find("state.db is damaged") != std::string::npos);
    REQUIRE_FALSE(found.copy.empty());
    if (start > 0) CHECK(found.copy == copy);
    copy = found.copy;
    CHECK(base::read_file(copy + "/state.db") == damaged);
    CHECK(says(describe_damage(copy), "table workspaces: "));
    CHECK(base::read_file(test.file()) == damaged);
    test.clock.now_ms += 60'000;
  }
  CHECK(test.copies().size() == 1);
}

TEST_CASE("the log of a damaged database stays unmodified") {
  KilledStore test;
  test.spoil_page("workspaces");
  std::string log;
  {
    Connection raw(test.file(), 1000);
    raw.execute("PRAGMA wal_autocheckpoint = 0; INSERT INTO meta VALUES ('x', 'y')");
    raw.keep_log();
    log = base::read_file(test.file() + "-wal");
  }
  REQUIRE(log.size() > kPage);
  const Unreadable found = test.refused();
  CHECK(base::read_file(test.file() + "-wal") == log);
  CHECK(base::read_file(found.copy + "/state.db-wal") == log);
}

TEST_CASE("a file other than a database is reported") {
  KilledStore test;
  SECTION("a text file") {
    base::write_file(test.file(), "to do: buy a bigger disk\n");
    CHECK(test.refused().trouble == Trouble::damaged);
    CHECK(test.copies().size() == 1);
  }
  SECTION("a head of noise") {
    test.overwrite(0, std::string(100, '\x17'));
    CHECK(test.refused().trouble == Trouble::damaged);
    CHECK(test.copies().size() == 1);
  }
  SECTION("a directory") {
    unlink(test.file().c_str());
    base::make_directories(test.file());
    CHECK(test.refused().what == "state.db is a directory");
  }
  SECTION("an empty file beside work") {
    REQUIRE(truncate(test.file().c_str(), 0) == 0);
    const Unreadable found = test.refused();
    CHECK(found.trouble == Trouble::missing);
    CHECK(found.what.find("state.db is empty") != std::string::npos);
  }
  SECTION("no file beside work") {
    unlink(test.file().c_str());
    const Unreadable found = test.refused();
    CHECK(found.trouble == Trouble::missing);
    CHECK_FALSE(base::path_exists(test.file()));
  }
  SECTION("no file beside its own log") {
    base::remove_tree(test.directory.path() + "/layers");
    unlink(test.file().c_str());
    test.overwrite(0, std::string(5000, '\x17'), "-wal");
    CHECK(test.refused().trouble == Trouble::missing);
  }
  SECTION("a database without tables beside work") {
    unlink(test.file().c_str());
    test.run_raw("PRAGMA user_version = 1");
    const Unreadable found = test.refused();
    CHECK(found.what.find("no tables") != std::string::npos);
  }
  SECTION("a log of noise") {
    test.overwrite(0, std::string(5000, '\x17'), "-wal");
    const Unreadable found = test.refused();
    CHECK(found.trouble == Trouble::damaged);
    CHECK(found.what.find("state.db-wal") != std::string::npos);
    CHECK(base::read_file(found.copy + "/state.db-wal") == std::string(5000, '\x17'));
  }
}

TEST_CASE("a power cut in a new store leaves no damage") {
  KilledStore test;
  SECTION("a log without its bytes") {
    test.overwrite(0, std::string(5000, '\0'), "-wal");
    CHECK(open_store(test.options()).store);
  }
  SECTION("a part of a log's head") {
    test.overwrite(0, std::string(20, '\x37'), "-wal");
    CHECK(open_store(test.options()).store);
  }
  SECTION("an empty file and no work") {
    base::remove_tree(test.directory.path() + "/layers");
    REQUIRE(truncate(test.file().c_str(), 0) == 0);
    CHECK(open_store(test.options()).store);
  }
}

TEST_CASE("a newer version's database is reported if the store has work, and never copied") {
  KilledStore test;
  test.run_raw("INSERT INTO migrations VALUES ('9999-future', '7.1.0', 0)");
  const Unreadable found = test.refused();
  CHECK(found.trouble == Trouble::unknown);
  CHECK(found.what.find("moorage 7.1.0, migration 9999-future") != std::string::npos);
  CHECK(found.copy.empty());
  CHECK(found.no_copy.empty());
  CHECK(test.copies().empty());
}

TEST_CASE("the store of an unreadable database is locked like any other") {
  KilledStore test;
  test.spoil_page("workspaces");
  {
    const Unreadable held = test.refused();
    CHECK(code_thrown_by([&] { open_store(test.options()); }) == base::Code::conflict);
  }
  test.refused();
}

TEST_CASE("problems that a person can fix at once throw instead of starting a rescue") {
  KilledStore test;
  StoreOptions options = test.options();
  SECTION("a guard that refuses") {
    options.before_changes = [](const std::string&) {
      throw base::Error(base::Code::unsupported, "not with these sandboxes");
    };
    CHECK(code_thrown_by([&] { open_store(options); }) == base::Code::unsupported);
  }
  SECTION("another program that holds it") {
    Connection other(test.file(), 1000);
    other.execute("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE");
    options.busy_timeout_ms = 50;
    CHECK(code_thrown_by([&] { open_store(options); }) == base::Code::unavailable);
    other.execute("ROLLBACK");
  }
  SECTION("a newer version's database without any work") {
    base::remove_tree(test.directory.path() + "/layers");
    test.run_raw("INSERT INTO migrations VALUES ('9999-future', '7.1.0', 0)");
    CHECK(code_thrown_by([&] { open_store(options); }) == base::Code::unsupported);
  }
}

TEST_CASE("an index that does not match its table is rebuilt, after a copy") {
  KilledStore test;
  const std::string where = " FROM sqlite_schema WHERE name = 'layers_of_base'";
  const std::string page = test.ask_raw("SELECT rootpage" + where);
  const std::string sql = test.ask_raw("SELECT sql" + where);
  test.run_raw("PRAGMA writable_schema = ON; DELETE" + where);
  test.run_raw("INSERT INTO layers (repository, base_commit, created_wall_ms) VALUES (1, 'x', 0)");
  test.run_raw(
      "PRAGMA writable_schema = ON; INSERT INTO sqlite_schema VALUES ('index', 'layers_of_base', "
      "'layers', " +
      page + ", '" + sql + "')");
  REQUIRE(test.ask_raw("PRAGMA integrity_check").find("index layers_of_base") != std::string::npos);
  const std::string before = base::read_file(test.file());

  const Opened opened = open_store(test.options());
  REQUIRE(opened.store);
  CHECK(opened.store->repaired().find("index") != std::string::npos);
  CHECK(opened.store->check().empty());
  REQUIRE(test.copies().size() == 1);
  CHECK(base::read_file(test.directory.path() + "/" + test.copies().front() + "/state.db") ==
        before);
}

TEST_CASE("there are never more than a few copies, and none is removed") {
  KilledStore test;
  for (int i = 0; i < kMaxQuarantined + 2; ++i) {
    test.overwrite(0, std::string(100, static_cast<char>('a' + i)));
    const auto kept = quarantine(test.directory.path(), test.clock.now_ms += 1000);
    CHECK(kept.directory.empty() == (i >= kMaxQuarantined));
    CHECK(kept.directory.empty() != kept.why_not.empty());
  }
  CHECK(test.copies().size() == kMaxQuarantined);
}

TEST_CASE("a damaged page found while running stops the store") {
  KilledStore test;
  test.run_raw("UPDATE meta SET value = '1' WHERE name = 'clean'");  // skips the check
  test.spoil_page("repositories");
  Opened opened = open_store(test.options());
  REQUIRE(opened.store);
  CHECK(code_thrown_by([&] { RepositoryTable(*opened.store).list(); }) == base::Code::corrupted);
  CHECK(opened.store->failed());
  CHECK(code_thrown_by([&] { opened.store->last_event(); }) == base::Code::io);
  opened.store.reset();
  CHECK(test.refused().trouble == Trouble::damaged);
}
