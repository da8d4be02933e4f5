#include <array>
#include <catch2/catch.hpp>
#include <regex>
#include <sstream>

#include "base/os/files.h"
#include "state_db/connection.h"
#include "state_db/migrations.h"
#include "state_db/tables/execs.h"
#include "state_db/tables/repositories.h"
#include "store_fixture.h"

using namespace moorage;
using namespace moorage::state_db;
using namespace moorage::state_db_test;

namespace {

constexpr std::string_view kOldSchema =
    "CREATE TABLE migrations (name TEXT PRIMARY KEY, by_version TEXT, wall_ms INTEGER);"
    "CREATE TABLE boats (id INTEGER PRIMARY KEY, name TEXT);"
    "CREATE TABLE ropes (boat INTEGER REFERENCES boats (id));";
constexpr std::string_view kNewSchema =
    "CREATE TABLE migrations (name TEXT PRIMARY KEY, by_version TEXT, wall_ms INTEGER);"
    "CREATE TABLE boats (id INTEGER PRIMARY KEY, name TEXT, length_cm INTEGER);"
    "CREATE TABLE ropes (boat INTEGER REFERENCES boats (id), knot TEXT);";
constexpr std::array kOne{Migration{"1-first", ""}};
constexpr std::array kThree{
    Migration{"1-first", ""},
    Migration{"2-length",
              "ALTER TABLE boats ADD COLUMN length_cm INTEGER; UPDATE boats SET length_cm = 7"},
    Migration{"3-knot", "ALTER TABLE ropes ADD COLUMN knot TEXT"},
};

// Columns and indexes of all tables. ALTER may change the text of a table, but not its shape.
std::string shape(Connection& connection) {
  return connection.query_text(
             "SELECT group_concat(line, char(10)) FROM (SELECT m.name || ' ' || c.name || ' ' || "
             "c.type || ' ' || c.\"notnull\" || ' ' || c.pk || ' ' || ifnull(c.dflt_value, '-') AS "
             "line "
             "FROM sqlite_schema m, pragma_table_info(m.name) c WHERE m.type = 'table' "
             "ORDER BY m.name, c.name)") +
         connection.query_text(
             "SELECT group_concat(line, char(10)) FROM (SELECT name || ifnull(sql, '') AS line "
             "FROM "
             "sqlite_schema WHERE type IN ('index','trigger','view') ORDER BY name)");
}

}  // namespace

TEST_CASE("an older database gets the missing migrations and keeps its rows") {
  TemporaryDirectory directory;
  Connection old(directory.path() + "/old.db", 1000);
  bring_up(old, {kOldSchema, kOne}, 1);
  old.execute("INSERT INTO boats VALUES (1, 'ann'); INSERT INTO ropes VALUES (1)");
  bring_up(old, {kNewSchema, kThree}, 2);
  CHECK(old.query_integer("SELECT length_cm FROM boats WHERE name = 'ann'") == 7);
  CHECK(old.query_integer("SELECT count(*) FROM migrations") == 3);
  CHECK(old.query_integer("PRAGMA foreign_keys") == 1);
  bring_up(old, {kNewSchema, kThree}, 3);
  CHECK(old.query_integer("SELECT max(wall_ms) FROM migrations") == 2);

  Connection fresh(directory.path() + "/fresh.db", 1000);
  bring_up(fresh, {kNewSchema, kThree}, 1);
  CHECK(shape(fresh) == shape(old));
  CHECK(code_thrown_by([&] { bring_up(fresh, {kOldSchema, kOne}, 4); }) == base::Code::unsupported);
}

TEST_CASE("a failed migration changes nothing, earlier ones stay") {
  TemporaryDirectory directory;
  Connection connection(directory.path() + "/x.db", 1000);
  bring_up(connection, {kOldSchema, kOne}, 1);
  connection.execute("INSERT INTO boats VALUES (1, 'ann'); INSERT INTO ropes VALUES (1)");
  constexpr std::array broken_sql{kThree[0], kThree[1],
                                  Migration{"3-bad", "DELETE FROM ropes; CREATE TABLE boats (id)"}};
  CHECK_THROWS_AS(bring_up(connection, {kNewSchema, broken_sql}, 2), base::Error);
  CHECK(connection.query_integer("SELECT count(*) FROM ropes") == 1);
  CHECK(connection.query_integer("SELECT count(*) FROM migrations") == 2);
  constexpr std::array broken_reference{kThree[0], kThree[1],
                                        Migration{"3-bad", "DELETE FROM boats"}};
  CHECK(code_thrown_by([&] {
          bring_up(connection, {kNewSchema, broken_reference}, 2);
        }) == base::Code::corrupted);
  CHECK(connection.query_integer("SELECT count(*) FROM boats") == 1);
  CHECK(connection.query_integer("SELECT count(*) FROM migrations") == 2);
}

TEST_CASE("a database of the first version migrates to the current schema with its rows") {
  TemporaryDirectory directory;
  const std::string first = base::read_file(std::string(MOORAGE_FIXTURES) + "/0001-first.sql");
  constexpr std::array only_first{Migration{"0001-first", ""}};
  {
    Connection old(directory.path() + "/state.db", 1000);
    bring_up(old, {first, only_first}, 1);
    old.execute(
        "INSERT INTO meta VALUES ('store_id', '0123abcd');"
        "INSERT INTO repositories (url, fetch_url, scope, name, state, created_wall_ms) VALUES "
        "('https://host/a/b', 'https://host/a/b.git', '', 'a/b', 'ready', 5);"
        "INSERT INTO workspaces (name, owner_uid, repository, base_ref, base_commit, branch, "
        "backend, image, memory_bytes, cpus, pids, state, disposable, created_wall_ms, "
        "deleted_wall_ms, request_hash) VALUES ('old', 0, 1, '', 'c', 'b', 'lxc', 'host', 1, 1, 1, "
        "'deleted', 0, 5, 6, '');"
        "INSERT INTO sandboxes (workspace, backend, image, state, boot_id, created_wall_ms) VALUES "
        "(1, 'lxc', 'host', 'destroyed', '', 5)");
    for (const char* end :
         {"'timed_out', ''", "'oom_killed', ''", "'signalled', ''", "'exited', ''",
          "'interrupted', 'its sandbox died'", "'interrupted', 'it was never started: no'"}) {
      old.execute(
          "INSERT INTO execs (workspace, sandbox, owner_uid, request_hash, argv, environment, "
          "directory, user, terminal, input, timeout_ms, started_wall_ms, state, reason) VALUES "
          "(1, 1, 0, '', x'', x'', x'', 'user', 0, 0, 0, 5, " +
          std::string(end) + ")");
    }
  }
  ScriptedClock clock;
  StoreOptions options;
  options.directory = directory.path();
  options.clock = &clock;
  {
    Store store(options);
    CHECK(store.store_id() == "0123abcd");
    REQUIRE(RepositoryTable(store).list().size() == 1);
    CHECK(RepositoryTable(store).list()[0].state == RepositoryState::ready);
    std::vector<std::string> categories;
    for (const auto& exec : ExecTable(store).list())
      categories.emplace_back(exec.outcome.category ? category_name(*exec.outcome.category)
                                                    : "none");
    CHECK(categories == std::vector<std::string>{"not_started", "lost", "none", "signal",
                                                 "out_of_memory", "timeout"});
    // An old tombstone gets its whole undo window.
    CHECK(WorkspaceTable(store).purgeable({.usual_ms = 1000, .disposable_ms = 1}).empty());
    clock.up_ms += 1001;
    CHECK(WorkspaceTable(store).purgeable({.usual_ms = 1000, .disposable_ms = 1}).size() == 1);
  }
  TestStore fresh;
  fresh.store.reset();
  Connection migrated(directory.path() + "/state.db", 1000);
  Connection made_new(fresh.file(), 1000);
  CHECK(shape(migrated) == shape(made_new));
}

TEST_CASE("every column of the schema has a sentence") {
  std::istringstream lines{std::string(kSchema)};
  const std::regex column("^  ([a-z_]+) +(TEXT|INTEGER|REAL|BLOB)\\b.*");
  const std::regex sentence(".*-- [^ ].*\\.$");
  size_t columns = 0;
  std::string line;
  while (std::getline(lines, line)) {
    if (!std::regex_match(line, column)) continue;
    ++columns;
    std::string with_next = line;
    if (line.find("--") == std::string::npos) {
      std::getline(lines, with_next);
    }
    CAPTURE(line, with_next);
    CHECK(std::regex_match(with_next, sentence));
  }
  CHECK(columns > 90);
}
