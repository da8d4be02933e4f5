#include <catch2/catch.hpp>

#include "state_db/store_age.h"
#include "state_db/tables/archives.h"
#include "state_db/tables/idempotency.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/workspaces.h"
#include "store_fixture.h"

using namespace moorage;
using namespace moorage::state_db;
using namespace moorage::state_db_test;

namespace {

constexpr int64_t kDay_ms = 24LL * 3600 * 1000;
constexpr WorkspaceTable::UndoWindows kWeek{.usual_ms = 7 * kDay_ms, .disposable_ms = 600'000};

void delete_workspace(Store& store, base::WorkspaceId id) {
  store.move(id, WorkspaceState::ready, WorkspaceState::deleting, "by uid 1000");
  WorkspaceTable(store).finish_delete(id);
}

}  // namespace

TEST_CASE("a workspace is created in one commit, ready in another, and reads back the same") {
  TestStore test;
  const auto repository = make_repository(*test.store);
  WorkspaceTable workspaces(*test.store);
  const uint64_t commits = test.store->commits();
  const auto made = workspaces.create(new_workspace(repository, "auth"));
  CHECK(test.store->commits() == commits + 1);
  CHECK_FALSE(made.existed);
  workspaces.set_ready(made.id, {.disk_bytes = 0});
  CHECK(test.store->commits() == commits + 2);
  workspaces.set_facts(made.id, {.changes_files = 37, .unpushed = 3});
  test.reopen();
  const WorkspaceRow row = WorkspaceTable(*test.store).get(made.id);
  CHECK(row.name == "auth");
  CHECK(row.owner_uid == 1000);
  CHECK(row.repository == repository);
  CHECK(row.base_ref == "main");
  CHECK(row.base_commit == std::string(40, 'a'));
  CHECK(row.branch == "agent/auth");
  CHECK(row.layer == made.layer);
  CHECK(row.backend == "lxc");
  CHECK(row.image == "host");
  CHECK(row.policy.limits.memory_bytes == 4ULL << 30);
  CHECK(row.policy.limits.cpus == 1.5);
  CHECK(row.policy.limits.pids == 4096);
  CHECK(row.state == WorkspaceState::ready);
  CHECK_FALSE(row.disposable);
  CHECK(row.changes_files == 37u);
  CHECK(row.changes_wall_ms == test.clock.now_ms);
  CHECK(row.unpushed == 3u);
  CHECK(row.disk_bytes == 0u);
  CHECK_FALSE(row.deleted_wall_ms);
  CHECK(row.labels == std::map<std::string, std::string>{{"task", "AUTH-12"}, {"user", "ann"}});
}

TEST_CASE("the origin of an imported fork reads back the same") {
  TestStore test;
  const auto repository = make_repository(*test.store);
  WorkspaceTable workspaces(*test.store);
  auto wanted = new_workspace(repository, "fork");
  wanted.fork_of = ForkOrigin{"1a2b3c4d", base::WorkspaceId{7}, base::SnapshotId{12}, "a/name"};
  const auto made = workspaces.create(wanted);
  test.reopen();
  const auto row = WorkspaceTable(*test.store).get(made.id);
  REQUIRE(row.fork_of);
  CHECK(row.fork_of->store == "1a2b3c4d");
  CHECK(row.fork_of->workspace.value == 7);
  CHECK(row.fork_of->snapshot.value == 12);
  CHECK(row.fork_of->name == "a/name");
  CHECK_FALSE(row.forked_from);
  const auto other = WorkspaceTable(*test.store).create(new_workspace(repository, "other"));
  CHECK_FALSE(WorkspaceTable(*test.store).get(other.id).fork_of);
}

TEST_CASE("a workspace on uncommitted work knows where its branch began") {
  TestStore test;
  const auto repository = make_repository(*test.store);
  auto wanted = new_workspace(repository, "work");
  wanted.head_commit = std::string(40, '1');
  wanted.raw_commit = std::string(40, '2');
  const auto made = WorkspaceTable(*test.store).create(wanted);
  const auto plain = WorkspaceTable(*test.store).create(new_workspace(repository, "plain"));
  test.reopen();
  const auto row = WorkspaceTable(*test.store).get(made.id);
  CHECK(began_at(row) == std::string(40, '1'));
  CHECK(on_disk(row) == std::string(40, '2'));
  const auto other = WorkspaceTable(*test.store).get(plain.id);
  CHECK(began_at(other) == other.base_commit);
  CHECK(on_disk(other) == other.base_commit);
}

TEST_CASE("a name is unique among its owner's live workspaces") {
  TestStore test;
  const auto repository = make_repository(*test.store);
  WorkspaceTable workspaces(*test.store);
  const auto first = make_workspace(*test.store, repository, "auth");
  CHECK(code_thrown_by([&] { workspaces.create(new_workspace(repository, "auth")); }) ==
        base::Code::already_exists);
  NewWorkspace other = new_workspace(repository, "auth");
  other.owner_uid = 1001;
  const auto theirs = workspaces.create(other).id;
  CHECK(workspaces.find_live(1000, "auth")->id == first);
  CHECK(workspaces.find_live(1001, "auth")->id == theirs);
  CHECK(workspaces.find_by_name("auth").size() == 2);
  CHECK(workspaces.count_live() == 2);
  delete_workspace(*test.store, first);
  CHECK_FALSE(workspaces.find_live(1000, "auth"));
  make_workspace(*test.store, repository, "auth");

  const auto failing = workspaces.create(new_workspace(repository, "fails")).id;
  test.store->move(failing, WorkspaceState::creating, WorkspaceState::failed, "disk full");
  CHECK(workspaces.get(failing).reason == "disk full");
  workspaces.create(new_workspace(repository, "fails"));
}

TEST_CASE("a workspace's key creates one workspace") {
  TestStore test;
  const auto repository = make_repository(*test.store);
  WorkspaceTable workspaces(*test.store);
  NewWorkspace wanted = new_workspace(repository, "auth");
  wanted.idempotency_key = "k1";
  wanted.request_hash = "h1";
  const auto made = workspaces.create(wanted);
  const uint64_t commits = test.store->commits();
  const auto again = workspaces.create(wanted);
  CHECK(again.existed);
  CHECK(again.id == made.id);
  CHECK(again.layer == made.layer);
  CHECK(test.store->commits() == commits);
  wanted.request_hash = "h2";
  CHECK(code_thrown_by([&] { workspaces.create(wanted); }) == base::Code::already_exists);
  wanted.owner_uid = 1001;
  CHECK_FALSE(workspaces.create(wanted).existed);
}

TEST_CASE("a deleted workspace can be undeleted, unless its name is taken or its purge began") {
  TestStore test;
  const auto repository = make_repository(*test.store);
  WorkspaceTable workspaces(*test.store);
  const auto id = make_workspace(*test.store, repository, "auth");
  delete_workspace(*test.store, id);
  CHECK(workspaces.get(id).deleted_wall_ms == test.clock.now_ms);
  CHECK(workspaces.get(id).reason == "by uid 1000");
  CHECK(workspaces.list().empty());
  CHECK(workspaces.list({.with_deleted = true}).size() == 1);
  workspaces.undelete(id);
  CHECK(workspaces.get(id).state == WorkspaceState::ready);
  CHECK_FALSE(workspaces.get(id).deleted_wall_ms);
  CHECK(code_thrown_by([&] { workspaces.undelete(id); }) == base::Code::conflict);

  delete_workspace(*test.store, id);
  const auto taker = make_workspace(*test.store, repository, "auth");
  CHECK(code_thrown_by([&] { workspaces.undelete(id); }) == base::Code::already_exists);
  workspaces.undelete(id, "auth-2");
  CHECK(workspaces.get(id).name == "auth-2");
  CHECK(workspaces.get(taker).name == "auth");
  delete_workspace(*test.store, id);
  delete_workspace(*test.store, taker);

  CHECK(workspaces.purgeable({}).empty());
  test.clock.up_ms += 1;
  CHECK(workspaces.purgeable({}).size() == 2);
  workspaces.begin_purge(id);
  workspaces.begin_purge(id);
  CHECK(workspaces.purgeable(kWeek).size() == 1);
  CHECK(code_thrown_by([&] { workspaces.undelete(id); }) == base::Code::conflict);
  const auto layer = workspaces.get(id).layer;
  CHECK(code_thrown_by([&] { LayerTable(*test.store).remove({layer}); }) == base::Code::conflict);
  workspaces.finish_purge(id);
  workspaces.finish_purge(id);
  LayerTable(*test.store).remove({layer});
  CHECK_FALSE(workspaces.get(id).layer);
  CHECK(workspaces.purgeable(kWeek).empty());
  CHECK(workspaces.list({.with_deleted = true}).size() == 1);
  workspaces.undelete(taker);
  CHECK(code_thrown_by([&] { workspaces.begin_purge(taker); }) == base::Code::conflict);
}

TEST_CASE("a week of uptime ends an undo window, but a jump of the wall clock does not") {
  TestStore test;
  const auto id = make_workspace(*test.store, make_repository(*test.store));
  delete_workspace(*test.store, id);
  const auto due = [&] { return WorkspaceTable(*test.store).purgeable(kWeek).size(); };
  for (const int64_t jump_ms : {8 * kDay_ms, -30 * kDay_ms, 4000 * kDay_ms}) {
    test.clock.now_ms += jump_ms;
    StoreAge(*test.store).save();
    CHECK(due() == 0);
    test.reopen();
    CHECK(due() == 0);
  }
  for (int hour = 0; hour < 7 * 24; ++hour) {
    CHECK(due() == 0);
    test.clock.up_ms += 3'600'000;
    StoreAge(*test.store).save();
  }
  CHECK(due() == 0);
  test.clock.up_ms += 1;
  CHECK(due() == 1);
  WorkspaceTable(*test.store).undelete(id);
  delete_workspace(*test.store, id);
  CHECK(due() == 0);
}

TEST_CASE("time powered off does not count for an undo window") {
  TestStore test;
  const auto id = make_workspace(*test.store, make_repository(*test.store));
  delete_workspace(*test.store, id);
  const auto due = [&] { return WorkspaceTable(*test.store).purgeable(kWeek).size(); };
  test.clock.up_ms += 4 * kDay_ms;
  StoreAge(*test.store).save();
  test.clock.boot = "second boot";
  test.clock.up_ms = 100 * kDay_ms;
  test.clock.now_ms += 100 * kDay_ms;
  test.reopen();
  CHECK(due() == 0);
  test.clock.up_ms += 3 * kDay_ms;
  CHECK(due() == 0);
  test.clock.up_ms += 1;
  CHECK(due() == 1);
  test.clock.up_ms = 0;  // a boot clock that goes back has no effect either
  CHECK(due() == 0);
}

TEST_CASE("a disposable workspace has a short window of its own") {
  TestStore test;
  NewWorkspace wanted = new_workspace(make_repository(*test.store), "once");
  wanted.disposable = true;
  WorkspaceTable workspaces(*test.store);
  const auto id = workspaces.create(wanted).id;
  workspaces.set_ready(id);
  delete_workspace(*test.store, id);
  test.clock.now_ms += 8 * kDay_ms;
  CHECK(workspaces.purgeable(kWeek).empty());
  test.clock.up_ms += 600'001;
  CHECK(workspaces.purgeable(kWeek).size() == 1);
}

TEST_CASE("the store's age is saved every few minutes, not at every call") {
  TestStore test;
  const uint64_t commits = test.store->commits();
  for (int i = 0; i < 60; ++i) {
    test.clock.up_ms += 60'000;
    StoreAge(*test.store).save();
  }
  CHECK(test.store->commits() == commits + 6);
  CHECK(StoreAge(*test.store).now_ms() == 3'600'000);
}

TEST_CASE("workspaces are listed by owner, state and repository") {
  TestStore test;
  const auto one = make_repository(*test.store, "https://host/one");
  const auto two = make_repository(*test.store, "https://host/two");
  WorkspaceTable workspaces(*test.store);
  make_workspace(*test.store, one, "a");
  make_workspace(*test.store, two, "b");
  NewWorkspace other = new_workspace(two, "c");
  other.owner_uid = 1001;
  workspaces.create(other);
  CHECK(workspaces.list().size() == 3);
  CHECK(workspaces.list({.owner_uid = 1000}).size() == 2);
  CHECK(workspaces.list({.repository = two}).size() == 2);
  CHECK(workspaces.list({.state = WorkspaceState::creating}).size() == 1);
  CHECK(workspaces.list({.owner_uid = 1001, .state = WorkspaceState::ready}).empty());
}

TEST_CASE("a list comes in pages that continue after removed rows") {
  TestStore test;
  const auto repository = make_repository(*test.store);
  WorkspaceTable workspaces(*test.store);
  std::vector<base::WorkspaceId> ids;
  for (int i = 0; i < 9; ++i) {
    NewWorkspace wanted = new_workspace(repository, "w" + std::to_string(i));
    wanted.owner_uid = i % 3 == 0 ? 1001 : 1000;  // 0, 3 and 6 belong to another user
    ids.push_back(workspaces.create(wanted).id);
    workspaces.set_ready(ids.back());
  }
  test.store->move(workspaces.create(new_workspace(repository, "never")).id,
                   WorkspaceState::creating, WorkspaceState::failed, "no room");
  WorkspaceQuery query{.with_failed = false, .limit = 4};
  query.seen_by = Viewer{.uid = 1000};
  const auto names = [&] {
    std::string text;
    for (const auto& row : workspaces.list(query)) text += row.name + " ";
    return text;
  };
  CHECK(names() == "w1 w2 w4 w5 ");
  query.after = ids[5];
  CHECK(names() == "w7 w8 ");
  query.after = ids[8];
  CHECK(names().empty());
  // Workspaces deleted and purged between two pages are not shown and do not break the paging.
  for (const int gone : {4, 5}) {
    delete_workspace(*test.store, ids[gone]);
    workspaces.begin_purge(ids[gone]);
    workspaces.finish_purge(ids[gone]);
  }
  query.after = ids[4];
  CHECK(names() == "w7 w8 ");
  query.after = {};
  CHECK(names() == "w1 w2 w7 w8 ");
  query.with_deleted = true;
  delete_workspace(*test.store, ids[1]);
  CHECK(names() == "w1 w2 w7 w8 ");
  query.seen_by.reset();
  query.after = ids[8];
  CHECK(names().empty());
  query.with_failed = true;
  CHECK(names() == "never ");
  query.name = "w1";
  query.after = {};
  CHECK(names() == "w1 ");
}

TEST_CASE("a taken name gets the next number, however many exist") {
  TestStore test;
  const auto repository = make_repository(*test.store);
  WorkspaceTable workspaces(*test.store);
  for (int number = 1; number <= 70; ++number) {
    const std::string name = workspaces.free_name(1000, "shop");
    CHECK(name == (number == 1 ? "shop" : "shop-" + std::to_string(number)));
    workspaces.create(new_workspace(repository, name));
  }
  CHECK(workspaces.free_name(1001, "shop") == "shop");
  const auto gone = workspaces.find_live(1000, "shop-40");
  workspaces.set_ready(gone->id);
  delete_workspace(*test.store, gone->id);
  const std::string name = workspaces.free_name(1000, "shop");
  CHECK_FALSE(workspaces.find_live(1000, name));
}

TEST_CASE("rows are counted by repository, and ids without a row are listed") {
  TestStore test;
  const auto one = make_repository(*test.store, "https://host/one");
  const auto two = make_repository(*test.store, "https://host/two");
  WorkspaceTable workspaces(*test.store);
  const auto a = make_workspace(*test.store, one, "a");
  const auto b = make_workspace(*test.store, one, "b");
  delete_workspace(*test.store, b);
  CHECK(workspaces.count(one) == 2);
  CHECK(workspaces.count(two) == 0);
  CHECK(workspaces.unknown({a, {77}, b, {78}}) == std::vector<base::WorkspaceId>{{77}, {78}});
  CHECK(workspaces.unknown({}).empty());
  const auto layer = workspaces.get(a).layer;
  CHECK(LayerTable(*test.store).unknown({{99}, layer}) == std::vector<base::LayerId>{{99}});
}

TEST_CASE(
    "disk use is summed by owner, repository and viewer, and an archive counts for its hot copy") {
  TestStore test;
  const auto one = make_repository(*test.store, "https://host/one");
  const auto two = make_repository(*test.store, "https://host/two");
  WorkspaceTable workspaces(*test.store);
  NewWorkspace shared = new_workspace(two, "shared");
  shared.owner_uid = 1001;
  shared.team_gid = 50;
  const auto a = make_workspace(*test.store, one, "a");
  const auto b = workspaces.create(shared).id;
  workspaces.set_ready(b, {.disk_bytes = 1000, .disk_files = 7});
  workspaces.set_facts(a, {.disk_bytes = 500, .disk_files = 5});
  make_workspace(*test.store, one, "never-measured");
  CHECK(workspaces.disk({.owner_uid = 1000}).bytes == 500);
  CHECK(workspaces.disk({.repository = two}).files == 7);
  CHECK(workspaces.disk({}).bytes == 1500);
  CHECK(workspaces.disk({.seen_by = Viewer{.uid = 1000}}).bytes == 500);
  CHECK(workspaces.disk({.seen_by = Viewer{.uid = 1000, .gids = {50}}}).bytes == 1500);
  ArchiveTable archives(*test.store);
  archives.begin(b);
  CHECK(workspaces.disk({}).bytes == 1500);
  archives.finish(b, {.bytes = 30, .sha256 = "x"}, {});
  CHECK(workspaces.disk({}).bytes == 530);
  CHECK(workspaces.disk({.repository = two}).files == 1);
}

TEST_CASE("labels and the layer can be changed") {
  TestStore test;
  const auto repository = make_repository(*test.store);
  WorkspaceTable workspaces(*test.store);
  const auto id = make_workspace(*test.store, repository);
  workspaces.set_label(id, "task", "AUTH-13");
  CHECK(workspaces.get(id).labels.at("task") == "AUTH-13");
  LayerTable layers(*test.store);
  const auto bottom = workspaces.get(id).layer;
  layers.freeze(bottom);
  const auto top = layers.create(
      {.parent = bottom, .repository = repository, .base_commit = std::string(40, 'a')});
  workspaces.set_layer(id, top);
  CHECK(workspaces.get(id).layer == top);
  CHECK(code_thrown_by([&] { workspaces.set_layer(base::WorkspaceId{99}, top); }) ==
        base::Code::not_found);
}

TEST_CASE("a workspace is renamed to a free name, with an event") {
  TestStore test;
  const auto repository = make_repository(*test.store);
  WorkspaceTable workspaces(*test.store);
  const auto id = make_workspace(*test.store, repository);
  const std::string old_name = workspaces.get(id).name;
  const auto other = make_workspace(*test.store, repository, "taken");
  CHECK(code_thrown_by([&] { workspaces.rename(id, "taken", "by alice"); }) ==
        base::Code::already_exists);
  CHECK(workspaces.get(id).name == old_name);
  workspaces.rename(id, "fresh", "by alice");
  CHECK_FALSE(workspaces.find_live(1000, old_name));
  CHECK(workspaces.get(id).name == "fresh");
  const Event event = test.store->events(0, 1000, id).back();
  CHECK(event.kind == "workspace.renamed");
  CHECK(event.text == old_name + " -> fresh, by alice");
  workspaces.rename(other, old_name, "by alice");  // free again
}

TEST_CASE("labels change one by one, with an event that states the difference") {
  TestStore test;
  const auto repository = make_repository(*test.store);
  WorkspaceTable workspaces(*test.store);
  const auto id = make_workspace(*test.store, repository);
  workspaces.change_labels(id, {{"a", "1"}, {"b", "2"}}, "by alice");
  workspaces.change_labels(id, {{"a", std::nullopt}, {"b", "2"}, {"c", "3"}}, "by bob");
  const auto labels = workspaces.get(id).labels;
  CHECK_FALSE(labels.contains("a"));
  CHECK(labels.at("b") == "2");
  CHECK(labels.at("c") == "3");
  CHECK(test.store->events(0, 1000, id).back().text == "a-, c=3, by bob");
}

TEST_CASE("undoing a move into or out of an archive releases its key") {
  TestStore test;
  const auto id = make_workspace(*test.store, make_repository(*test.store), "auth");
  ArchiveTable archives(*test.store);
  IdempotencyKeys keys(*test.store);
  const IdempotentRequest moved{.owner_uid = 1000, .key = "k", .hash = "h"};
  const IdempotentRequest other{.owner_uid = 1000, .key = "other", .hash = "h"};
  keys.begin(other, id.str());
  archives.begin(id);
  keys.begin(moved, move_under_way(id));
  archives.undo(id, "cut short");
  CHECK_FALSE(keys.find(moved));
  archives.begin(id);
  keys.begin(moved, move_under_way(id));
  archives.finish(id, {.bytes = 30, .sha256 = "x"}, {});
  CHECK(keys.find(moved));
  archives.begin_restore(id);
  archives.undo_restore(id, "cut short");
  CHECK_FALSE(keys.find(moved));
  CHECK(keys.find(other)->subject == id.str());
}

TEST_CASE("a policy changes as a whole, in one commit, with an event that states the difference") {
  TestStore test;
  WorkspaceTable workspaces(*test.store);
  const auto id = make_workspace(*test.store, make_repository(*test.store), "auth");
  const WorkspacePolicy before = workspaces.get(id).policy;
  WorkspacePolicy after = before;
  after.limits.cpus = 0.5;
  after.limits.pids = 77;
  const uint64_t commits = test.store->commits();
  workspaces.set_policy(id, {before, after, "set by uid 7"});
  CHECK(test.store->commits() == commits + 1);
  const Event event = test.store->events(0, 1000, id).back();
  CHECK(event.kind == "workspace.policy");
  CHECK(event.text == "cpus 1.5 -> 0.5, pids 4096 -> 77, set by uid 7");

  // A second change based on the old policy changes nothing.
  CHECK(code_thrown_by([&] {
          workspaces.set_policy(id, {before, before, "set by uid 8"});
        }) == base::Code::conflict);
  const int64_t seq = test.store->last_event();
  workspaces.set_policy(id, {after, after, "set by uid 7"});
  CHECK(test.store->last_event() == seq);
  test.reopen();
  CHECK(WorkspaceTable(*test.store).get(id).policy == after);
}
