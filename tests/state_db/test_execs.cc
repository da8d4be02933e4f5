// Sandboxes, execs and kept answers.
#include <catch2/catch.hpp>
#include <filesystem>

#include "base/os/process.h"
#include "state_db/tables/execs.h"
#include "state_db/tables/idempotency.h"
#include "store_fixture.h"

using namespace moorage;
using namespace moorage::state_db;
using namespace moorage::state_db_test;

namespace {

struct RunningSandbox : TestStore {
  RunningSandbox()
      : sandbox(make_sandbox(*store, make_workspace(*store, make_repository(*store)))) {}
  SandboxRow sandbox;
};

}  // namespace

TEST_CASE("an exec is created in one commit, ended in another, and keeps every byte") {
  RunningSandbox test;
  NewExec request = new_exec(test.sandbox);
  std::string all_bytes;
  for (int byte = 1; byte < 256; ++byte) all_bytes += static_cast<char>(byte);
  request.argv = {"sh", "", all_bytes, ""};
  request.environment = {{"EMPTY", ""}, {"RAW", all_bytes}};
  request.directory = "/workspace/\xff";
  request.terminal = true;
  request.input = true;
  request.timeout_ms = 90'000;
  request.request_hash = "h";
  const uint64_t commits = test.store->commits();
  const auto id = ExecTable(*test.store).create(request).id;
  CHECK(test.store->commits() == commits + 1);
  CHECK(ExecTable(*test.store).running(test.sandbox.id).size() == 1);
  CHECK(ExecTable(*test.store).count_running() == 1);
  CHECK(ExecTable(*test.store).count_running(test.sandbox.workspace) == 1);
  ExecTable(*test.store)
      .finish(id, {.state = ExecState::oom_killed,
                   .signal = 9,
                   .category = ExecCategory::out_of_memory,
                   .error = "out of memory",
                   .ended_wall_ms = 0,
                   .output_bytes = 1ULL << 40,
                   .omitted_bytes = 2,
                   .user_ms = 3,
                   .system_ms = 4,
                   .max_rss_bytes = 5,
                   .input_read = 6});
  CHECK(test.store->commits() == commits + 2);
  test.reopen();
  const ExecRow row = ExecTable(*test.store).get(id);
  CHECK(row.request.argv == request.argv);
  CHECK(row.request.environment == request.environment);
  CHECK(row.request.directory == request.directory);
  CHECK(row.request.user == "user");
  CHECK(row.request.terminal);
  CHECK(row.request.input);
  CHECK(row.request.timeout_ms == 90'000);
  CHECK(row.outcome.category == ExecCategory::out_of_memory);
  CHECK_FALSE(row.request.idempotency_key);
  CHECK(row.state == ExecState::oom_killed);
  CHECK_FALSE(row.outcome.exit_code);
  CHECK(row.outcome.signal == 9);
  CHECK(row.outcome.error == "out of memory");
  CHECK(row.outcome.ended_wall_ms == test.clock.now_ms);
  CHECK(row.outcome.output_bytes == 1ULL << 40);
  CHECK(row.outcome.omitted_bytes == 2);
  CHECK(row.outcome.user_ms == 3);
  CHECK(row.outcome.system_ms == 4);
  CHECK(row.outcome.max_rss_bytes == 5);
  CHECK(row.outcome.input_read == 6);
  CHECK(ExecTable(*test.store).running().empty());
  CHECK(code_thrown_by([&] { ExecTable(*test.store).finish(id, {.state = ExecState::exited}); }) ==
        base::Code::conflict);
}

TEST_CASE("a word with NUL is refused") {
  RunningSandbox test;
  NewExec request = new_exec(test.sandbox);
  request.argv.push_back(std::string("a\0b", 3));
  CHECK(code_thrown_by([&] { ExecTable(*test.store).create(request); }) ==
        base::Code::invalid_argument);
}

TEST_CASE("an exec's key runs one command per workspace") {
  RunningSandbox test;
  ExecTable execs(*test.store);
  NewExec request = new_exec(test.sandbox);
  request.idempotency_key = "k1";
  request.request_hash = "h1";
  const auto made = execs.create(request);
  CHECK_FALSE(made.existed);
  const auto again = execs.create(request);
  CHECK(again.existed);
  CHECK(again.id == made.id);
  CHECK(execs.find_by_key(test.sandbox.workspace, "k1")->id == made.id);
  CHECK_FALSE(execs.find_by_key(test.sandbox.workspace, "k2"));
  request.request_hash = "h2";
  CHECK(code_thrown_by([&] { execs.create(request); }) == base::Code::already_exists);
}

TEST_CASE("a cancel is marked only while the exec runs") {
  RunningSandbox test;
  ExecTable execs(*test.store);
  const auto id = execs.create(new_exec(test.sandbox)).id;
  CHECK(execs.request_cancel(id, "cancelled by bob"));
  CHECK(execs.request_cancel(id, "cancelled by eve"));  // later: it is ending already
  CHECK(execs.get(id).cancel_requested);
  CHECK(execs.get(id).outcome.error == "cancelled by bob");
  CHECK(execs.get(id).state == ExecState::running);
  execs.finish(id, {.state = ExecState::cancelled, .signal = 15});
  CHECK_FALSE(execs.request_cancel(id, "cancelled by bob"));
}

TEST_CASE("the last sent signal is kept with its sender, while the exec runs") {
  RunningSandbox test;
  ExecTable execs(*test.store);
  const auto id = execs.create(new_exec(test.sandbox)).id;
  CHECK_FALSE(execs.get(id).sent_signal);
  execs.note_signal(id, 15, "bob");
  execs.note_signal(id, 10, "eve");
  test.reopen();
  ExecTable again(*test.store);
  CHECK(again.get(id).sent_signal == 10);
  CHECK(again.get(id).sent_by == "eve");
  again.finish(id, {.state = ExecState::signalled, .signal = 10});
  again.note_signal(id, 15, "bob");
  CHECK(again.get(id).sent_by == "eve");
}

TEST_CASE("execs are listed newest first and by page") {
  RunningSandbox test;
  ExecTable execs(*test.store);
  std::vector<base::ExecId> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(execs.create(new_exec(test.sandbox)).id);
  execs.finish(ids[0], {.state = ExecState::exited, .exit_code = 0});
  const auto page = execs.list({.workspace = test.sandbox.workspace, .before = ids[4], .limit = 2});
  REQUIRE(page.size() == 2);
  CHECK(page[0].id == ids[3]);
  CHECK(page[1].id == ids[2]);
  CHECK(execs.list({.state = ExecState::running}).size() == 4);
  CHECK(execs.list({.sandbox = base::SandboxId{99}}).empty());
  CHECK(execs.list({.seen_by = Viewer{1000, {}}}).size() == 5);
  CHECK(execs.list({.seen_by = Viewer{1, {1, 2}}}).empty());
}

TEST_CASE("a workspace has one live sandbox, and its rows keep the history") {
  RunningSandbox test;
  SandboxTable sandboxes(*test.store);
  const auto workspace = test.sandbox.workspace;
  CHECK(test.sandbox.name == "moorage-" + test.store->store_id() + "-" + test.sandbox.id.str());
  CHECK(code_thrown_by([&] { make_sandbox(*test.store, workspace); }) == base::Code::conflict);
  sandboxes.set_running(
      test.sandbox.id,
      {.init = {.pid = 812, .start_ticks = 99}, .tree_device = 61, .home_device = 62});
  const SandboxRow row = *sandboxes.live(workspace);
  CHECK(row.state == SandboxState::running);
  CHECK(row.init == base::ProcessIdentity{.pid = 812, .start_ticks = 99});
  CHECK(row.boot_id == base::boot_id());
  CHECK(row.tree_device == 61);
  CHECK(row.home_device == 62);
  CHECK(row.started_wall_ms == test.clock.now_ms);
  CHECK(row.ended_wall_ms == 0);
  sandboxes.set_lost(row.id, SandboxState::running, "init died");
  CHECK(sandboxes.live(workspace)->reason == "init died");
  CHECK(code_thrown_by([&] { make_sandbox(*test.store, workspace); }) == base::Code::conflict);
  CHECK(sandboxes.in_state(SandboxState::lost).size() == 1);
  CHECK(sandboxes.not_destroyed().size() == 1);
  sandboxes.set_destroyed(row.id, SandboxState::lost);
  CHECK(sandboxes.not_destroyed().empty());
  CHECK(sandboxes.get(row.id).ended_wall_ms == test.clock.now_ms);
  CHECK(sandboxes.last_ended(workspace)->reason == "init died");
  const auto second = make_sandbox(*test.store, workspace);
  CHECK(sandboxes.of_workspace(workspace).size() == 2);
  CHECK(sandboxes.last(workspace)->id == second.id);
  CHECK(sandboxes.last_ended(workspace)->id == row.id);  // the second never ran
}

TEST_CASE("an answer is kept for a day, for its owner, key and request") {
  TestStore test;
  IdempotencyKeys keys(*test.store);
  const IdempotentRequest request{.owner_uid = 1000, .key = "k", .hash = "h"};
  CHECK_FALSE(keys.find(request));
  keys.put(request, {.status = 201, .body = std::string("{\"a\":\"\xff\0\"}", 10)});
  CHECK(keys.find(request)->answer->status == 201);
  CHECK(keys.find(request)->answer->body.size() == 10);
  CHECK_FALSE(keys.find({.owner_uid = 1001, .key = "k", .hash = "h"}));
  CHECK(code_thrown_by([&] { keys.find({.owner_uid = 1000, .key = "k", .hash = "other"}); }) ==
        base::Code::already_exists);
  test.clock.now_ms += 365LL * 24 * 3600 * 1000;  // the wall clock was set
  CHECK(keys.expire() == 0);
  test.clock.up_ms += kKeepAnswersMs;
  CHECK(keys.expire() == 0);
  test.clock.up_ms += 1;
  CHECK(keys.expire() == 1);
  CHECK_FALSE(keys.find(request));
}

TEST_CASE("a request finds the work it began, until the answer replaces it") {
  TestStore test;
  IdempotencyKeys keys(*test.store);
  const IdempotentRequest upload{.owner_uid = 1000, .key = "k", .head = "head"};
  CHECK_FALSE(keys.is_known(upload));
  test.store->transaction([&] { keys.begin(upload, "ws_7"); });
  CHECK(keys.is_known(upload));
  const IdempotentRequest whole{.owner_uid = 1000, .key = "k", .hash = "h", .head = "head"};
  CHECK(keys.find(whole)->subject == "ws_7");
  CHECK_FALSE(keys.find(whole)->answer);
  keys.put(whole, {.status = 409, .headers = "ETag: x\n", .body = "{}"});
  CHECK(keys.find(whole)->answer->status == 409);
  CHECK(keys.find(whole)->answer->headers == "ETag: x\n");
  const IdempotentRequest other{.owner_uid = 1000, .key = "k", .hash = "other", .head = "head"};
  CHECK(code_thrown_by([&] { keys.find(other); }) == base::Code::already_exists);
}

TEST_CASE("a key can be reused after a day, also in rows that contain it") {
  TestStore test;
  const auto repository = make_repository(*test.store);
  WorkspaceTable workspaces(*test.store);
  IdempotencyKeys keys(*test.store);
  const auto make = [&](const std::string& name, const std::string& key) {
    auto wanted = new_workspace(repository, name);
    wanted.idempotency_key = key;
    return workspaces.create(wanted);
  };
  const auto made = make("a", "k");
  make("b", "k/1");
  make("c", "k-else");
  const uint32_t owner = workspaces.get(made.id).owner_uid;
  keys.put({.owner_uid = owner, .key = "k", .hash = "h"}, {.status = 201});
  test.clock.up_ms += kKeepAnswersMs + 1;
  CHECK(keys.expire() == 1);
  CHECK_FALSE(workspaces.get(made.id).idempotency_key);
  CHECK_FALSE(make("d", "k/1").existed);
  CHECK(make("c", "k-else").existed);
}

TEST_CASE("a failed create releases the key that was joined to its workspace") {
  TestStore test;
  const auto repository = make_repository(*test.store);
  WorkspaceTable workspaces(*test.store);
  IdempotencyKeys keys(*test.store);
  const auto made = workspaces.create(new_workspace(repository, "a")).id;
  const auto other = workspaces.create(new_workspace(repository, "b")).id;
  const IdempotentRequest answered{.owner_uid = 1000, .key = "answered", .hash = "h"};
  const IdempotentRequest request{.owner_uid = 1000, .key = "k", .hash = "h"};
  const IdempotentRequest others{.owner_uid = 1000, .key = "other", .hash = "h"};
  keys.put(answered, {.status = 201});
  keys.begin(request, made.str());
  keys.begin(others, other.str());
  workspaces.fail(made, "the disk is full");
  CHECK_FALSE(keys.find(request));
  CHECK(keys.find(others)->subject == other.str());
  CHECK(keys.find(answered)->answer);
}

TEST_CASE("the key of a failed create can be reused") {
  TestStore test;
  const auto repository = make_repository(*test.store);
  WorkspaceTable workspaces(*test.store);
  auto wanted = new_workspace(repository, "a");
  wanted.idempotency_key = "k";
  const auto first = workspaces.create(wanted);
  workspaces.fail(first.id, "no room");
  const auto second = workspaces.create(wanted);
  CHECK_FALSE(second.existed);
  CHECK(second.id != first.id);
}

TEST_CASE("importing long commands and removing them keeps the log short") {
  RunningSandbox test;
  const auto log_bytes = [&] { return std::filesystem::file_size(test.file() + "-wal"); };
  const auto here = ExecTable(*test.store).create(new_exec(test.sandbox)).id;
  ExecRow row;
  row.request = new_exec(test.sandbox);
  row.request.argv = {std::string(100'000, 'x')};
  row.state = row.outcome.state = ExecState::exited;
  row.outcome.exit_code = 0;
  row.imported_from = "store/ex_1";
  base::ExecId last;
  for (int i = 0; i < 200; ++i) {
    last = ExecTable(*test.store).add_past(row);
    test.store->checkpoint();
  }
  CHECK(log_bytes() < 4 << 20);
  ExecTable(*test.store).forget_past(test.sandbox.workspace);
  CHECK(log_bytes() < 6 << 20);
  CHECK_FALSE(ExecTable(*test.store).find(last));
  CHECK(ExecTable(*test.store).find(here));
}

TEST_CASE("a list of long commands ends early and continues on the next page") {
  RunningSandbox test;
  ExecTable table(*test.store);
  NewExec request = new_exec(test.sandbox);
  request.argv = {"true", std::string(5 << 20, 'a')};
  request.environment = {{"LONG", std::string(1 << 20, 'b')}};
  std::vector<base::ExecId> made;
  for (int n = 0; n < 3; ++n) made.push_back(table.create(request).id);
  request.argv = {"true", std::string(kMostListedBytes, 'c')};
  made.push_back(table.create(request).id);
  std::vector<base::ExecId> found;
  ExecQuery query{.workspace = test.sandbox.workspace};
  for (auto page = table.list(query); !page.empty(); page = table.list(query)) {
    CHECK(page.size() == 1);
    CHECK(page.front().request.environment.empty());
    found.insert(found.begin(), page.front().id);
    CHECK(table.has_older(page.back()) == (found.size() < made.size()));
    query.before = page.back().id;
  }
  CHECK(found == made);
  CHECK(table.count(test.sandbox.workspace) == made.size());
  CHECK(table.list_after(test.sandbox.workspace, {}, 10).size() == 1);
  for (const auto& all : {table.running(), table.running(test.sandbox.id)}) {
    REQUIRE(all.size() == made.size());
    CHECK(all.front().request.argv.front() == "true");
    CHECK(all.front().request.argv.back().size() == kMostRunningBytes - 4);
    CHECK(all.front().request.environment.empty());
  }
  request.argv = {"true"};
  request.environment = {};
  for (int n = 0; n < 3; ++n) table.create(request);
  CHECK(table.list().size() == 3);  // the next one alone takes too much
}
