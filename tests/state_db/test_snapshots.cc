// Snapshots and the layers under them.
#include <catch2/catch.hpp>
#include <set>

#include "state_db/tables/archives.h"
#include "state_db/tables/layer_disk.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/snapshots.h"
#include "state_db/tables/workspaces.h"
#include "store_fixture.h"

using namespace moorage;
using namespace moorage::state_db;
using namespace moorage::state_db_test;

namespace {

struct OneWorkspace : TestStore {
  OneWorkspace() : id(make_workspace(*store, make_repository(*store))) {}
  WorkspaceRow row() { return WorkspaceTable(*store).get(id); }
  SnapshotRow take(const std::string& name, SnapshotWay way = SnapshotWay::at_rest) {
    SnapshotTable snapshots(*store);
    const auto made = snapshots.begin({.workspace = id, .name = name, .way = way});
    snapshots.finish(made.id, 7);
    return snapshots.get(made.id);
  }
  std::vector<base::LayerId> chain() {
    std::vector<base::LayerId> ids;
    for (const auto& layer : LayerTable(*store).chain(row().layer)) ids.push_back(layer.id);
    return ids;
  }
  base::WorkspaceId id;
};

}  // namespace

TEST_CASE("a snapshot in place freezes the layer, and the workspace continues over it") {
  OneWorkspace test;
  const base::LayerId first = test.row().layer;
  const auto taking = SnapshotTable(*test.store).begin({.workspace = test.id, .name = "one"});
  CHECK(taking.layer == first);
  CHECK(test.row().layer == first);
  CHECK_FALSE(LayerTable(*test.store).get(first).frozen);
  CHECK(LayerTable(*test.store).unused().empty());  // the next one is in use
  test.reopen();
  CHECK(SnapshotTable(*test.store).taking().size() == 1);
  const uint64_t commits = test.store->commits();
  SnapshotTable(*test.store).finish(taking.id, 7);
  CHECK(test.store->commits() == commits + 1);
  const auto row = SnapshotTable(*test.store).get(taking.id);
  CHECK(row.state == SnapshotState::kept);
  CHECK(row.pause_us == 7);
  CHECK_FALSE(row.next_layer);
  CHECK(LayerTable(*test.store).get(first).frozen);
  CHECK(test.chain() == std::vector{taking.next_layer, first});
  const auto second = test.take("two");
  CHECK(second.parent == taking.id);
  CHECK(test.chain().size() == 3);
}

TEST_CASE("a frozen layer may be removed if all its users are in archives that contain it") {
  OneWorkspace test;
  WorkspaceTable workspaces(*test.store);
  LayerTable layers(*test.store);
  const auto one = test.take("one");
  const auto two = test.take("two");
  NewWorkspace wanted;
  const auto row = test.row();
  wanted.name = "fork";
  wanted.repository = row.repository;
  wanted.base_commit = row.base_commit;
  wanted.forked_from = one.id;
  const auto fork = workspaces.create(wanted);
  workspaces.set_ready(fork.id);
  ArchiveTable archives(*test.store);
  const auto put_away = [&](base::WorkspaceId id, const std::vector<base::LayerId>& held) {
    archives.begin(id);
    archives.finish(id, {.bytes = 1, .sha256 = "x", .seal = "y"}, held);
  };
  const auto movable = [&] {
    std::set<base::LayerId> ids;
    for (const auto& found : layers.only_archived()) ids.insert(found.layer);
    return ids;
  };
  CHECK(movable().empty());
  put_away(test.id, test.chain());
  CHECK(movable() == std::set{two.layer});  // the fork uses the other one
  put_away(fork.id, {fork.layer});          // of an earlier release: incomplete
  CHECK(movable() == std::set{two.layer});
  archives.begin_restore(fork.id);
  archives.finish_restore(fork.id);
  archives.forget(fork.id);
  put_away(fork.id, {fork.layer, one.layer});
  CHECK(movable() == std::set{one.layer, two.layer});
  layers.set_cold({one.layer}, true);
  CHECK(code_thrown_by([&] {
          layers.create(
              {.parent = one.layer, .repository = row.repository, .base_commit = row.base_commit});
        }) == base::Code::conflict);
  archives.begin_restore(test.id);
  CHECK(movable().empty());
}

TEST_CASE("a frozen layer counts for its oldest workspace, then for the next one") {
  OneWorkspace test;
  LayerDisk disk(*test.store);
  const auto writable = test.row().layer;
  disk.set_writable(writable, 1000, 10);
  const auto one = test.take("one");
  disk.set_writable(test.row().layer, 50, 5);
  disk.recount(test.id, 7);
  CHECK(test.row().disk_bytes == 1057u);
  CHECK(test.row().disk_files == 15u);
  CHECK(SnapshotTable(*test.store).get(one.id).disk_bytes == 1000u);
  CHECK_FALSE(disk.find(one.layer)->measured);
  disk.set_frozen(one.layer, 900, 9);
  disk.recount(test.id);
  CHECK(test.row().disk_bytes == 957u);

  WorkspaceTable workspaces(*test.store);
  auto fork = new_workspace(test.row().repository, "fork");
  fork.forked_from = one.id;
  const auto made = workspaces.create(fork);
  workspaces.set_ready(made.id);
  disk.set_writable(made.layer, 3, 1);
  disk.recount(made.id);
  CHECK(workspaces.get(made.id).disk_bytes == 3u);
  CHECK(disk.owners_of(disk.owned_by(test.id)) == std::vector{test.id});
  // The snapshot and the layers of the older one are removed.
  SnapshotTable(*test.store).drop(one.id, "");
  disk.recount(made.id);
  CHECK(workspaces.get(made.id).disk_bytes == 3u);  // the older one still uses it
}

TEST_CASE("layers with shared files are measured again when one is added or removed") {
  OneWorkspace test;
  LayerDisk disk(*test.store);
  const auto one = test.take("one");
  const auto two = test.take("two");
  const auto three = test.take("three");
  for (const auto& row : {one, two, three}) disk.set_frozen(row.layer, 10, 1);
  disk.share({one.layer, two.layer});
  CHECK_FALSE(disk.find(one.layer)->measured);
  CHECK_FALSE(disk.find(two.layer)->measured);
  CHECK(disk.find(three.layer)->measured);
  disk.set_frozen(one.layer, 5, 1);
  disk.share({two.layer, three.layer});
  CHECK_FALSE(disk.find(one.layer)->measured);  // it shares files with one of them
  for (const auto& row : {one, two, three}) disk.set_frozen(row.layer, 5, 1);
  disk.give_up({three.layer});
  CHECK_FALSE(disk.find(one.layer)->measured);
}

TEST_CASE("layers replaced by a merge stay until forget_replaced") {
  OneWorkspace test;
  for (const char* name : {"one", "two", "three"}) test.take(name);
  LayerTable layers(*test.store);
  const auto chain = test.chain();
  REQUIRE(chain.size() == 4);
  const auto merged = layers.create({.parent = {},
                                     .repository = layers.get(chain[3]).repository,
                                     .base_commit = layers.get(chain[3]).base_commit});
  layers.freeze(merged);
  REQUIRE(layers.unused().size() == 1);
  layers.exchange_parent(chain[1], chain[2], merged);
  CHECK(code_thrown_by([&] { layers.exchange_parent(chain[1], chain[2], merged); }) ==
        base::Code::conflict);
  CHECK(test.chain() == std::vector{chain[0], chain[1], merged});
  REQUIRE(layers.replaced().size() == 1);
  CHECK(layers.replaced()[0].by == merged);
  CHECK(layers.replaced()[0].mounted_upto == merged);  // the youngest one

  SnapshotTable snapshots(*test.store);
  for (const auto& row : snapshots.kept(test.id)) snapshots.drop(row.id, "");
  CHECK(layers.unused().empty());
  layers.forget_replaced(merged);
  CHECK(layers.replaced().empty());
  const auto unused = layers.unused();
  REQUIRE(unused.size() == 2);
  layers.remove({unused[0].id, unused[1].id});
  CHECK(test.chain().size() == 3);
}

TEST_CASE("an exchange that becomes a copy includes the forks made with it") {
  OneWorkspace test;
  SnapshotTable snapshots(*test.store);
  const auto below = test.take("below");
  const auto taking = snapshots.begin({.workspace = test.id, .way = SnapshotWay::restack});
  WorkspaceTable workspaces(*test.store);
  const auto row = test.row();
  const auto fork = workspaces.create({.name = "fork",
                                       .repository = row.repository,
                                       .base_commit = row.base_commit,
                                       .forked_from = taking.id});
  const auto copy = snapshots.become_copy(taking.id, SnapshotWay::copy);
  CHECK(copy.layer == taking.next_layer);
  snapshots.finish(copy.id, 7);
  workspaces.set_ready(fork.id);
  CHECK(test.row().layer == row.layer);
  CHECK(LayerTable(*test.store).get(fork.layer).parent == copy.layer);
  CHECK(LayerTable(*test.store).get(copy.layer).parent == below.layer);
  CHECK_FALSE(LayerTable(*test.store).get(row.layer).frozen);
}

TEST_CASE("a copy is beside the layer, which stays") {
  OneWorkspace test;
  const auto below = test.take("below");
  const base::LayerId writable = test.row().layer;
  const auto copy = test.take("copy", SnapshotWay::copy);
  CHECK(copy.layer != writable);
  CHECK(test.row().layer == writable);
  CHECK(LayerTable(*test.store).get(copy.layer).parent == below.layer);
  CHECK(LayerTable(*test.store).get(copy.layer).frozen);
  CHECK(copy.parent == below.id);
}

TEST_CASE("a snapshot that is undone or dropped releases its layers") {
  OneWorkspace test;
  SnapshotTable snapshots(*test.store);
  const base::LayerId first = test.row().layer;
  const auto cut = snapshots.begin({.workspace = test.id, .name = "n"});
  CHECK(code_thrown_by([&] { snapshots.begin({.workspace = test.id}); }) == base::Code::conflict);
  CHECK(code_thrown_by([&] { snapshots.begin({.workspace = test.id, .name = "n"}); }) ==
        base::Code::already_exists);
  snapshots.undo(cut.id, "busy");
  CHECK(test.row().layer == first);
  REQUIRE(LayerTable(*test.store).unused().size() == 1);
  CHECK(LayerTable(*test.store).unused()[0].id == cut.next_layer);
  LayerTable(*test.store).remove({cut.next_layer});

  const auto a = test.take("n");
  const auto b = test.take("b");
  const auto c = test.take("c");
  snapshots.drop(b.id, "retention");
  CHECK(snapshots.get(c.id).parent == a.id);
  CHECK_FALSE(snapshots.get(b.id).layer);
  CHECK(LayerTable(*test.store).unused().empty());  // c uses it
  CHECK(snapshots.kept(test.id).size() == 2);
  snapshots.drop(c.id, "retention");
  CHECK(snapshots.find(c.id)->state == SnapshotState::dropped);
  CHECK(code_thrown_by([&] { snapshots.begin({.workspace = test.id, .next_on = c.id}); }) ==
        base::Code::conflict);
}

TEST_CASE("restoring a workspace keeps its previous state as a snapshot") {
  OneWorkspace test;
  SnapshotTable snapshots(*test.store);
  const auto a = test.take("a");
  const auto b = test.take("b");
  const base::LayerId had = test.row().layer;
  const auto back = snapshots.begin(
      {.workspace = test.id, .cause = SnapshotCause::before_restore, .next_on = a.id});
  CHECK(back.layer == had);
  snapshots.finish(back.id, 0);
  CHECK(test.chain() == std::vector{back.next_layer, a.layer});
  CHECK(test.row().stands_on == a.id);
  CHECK(snapshots.get(back.id).parent == b.id);
  CHECK(snapshots.get(back.id).layer == had);
  CHECK(LayerTable(*test.store).unused().empty());
  CHECK(test.take("c").parent == a.id);
  CHECK(snapshots.not_durable().size() == 4);
  snapshots.set_durable(a.id);
  CHECK(snapshots.not_durable().size() == 3);
}

TEST_CASE("one key takes one snapshot") {
  OneWorkspace test;
  SnapshotTable snapshots(*test.store);
  NewSnapshot wanted{.workspace = test.id, .idempotency_key = "k", .request_hash = "h"};
  CHECK_FALSE(snapshots.find_made(wanted));
  const auto made = snapshots.begin(wanted);
  CHECK(snapshots.find_made(wanted)->id == made.id);
  wanted.request_hash = "other";
  CHECK(code_thrown_by([&] { snapshots.find_made(wanted); }) == base::Code::already_exists);
}

TEST_CASE("forks start from a snapshot, even one in progress") {
  OneWorkspace test;
  SnapshotTable snapshots(*test.store);
  const auto taking = snapshots.begin({.workspace = test.id, .cause = SnapshotCause::fork});
  const WorkspaceRow row = test.row();
  WorkspaceTable table(*test.store);
  const auto fork = table.create({.name = "f",
                                  .repository = row.repository,
                                  .base_commit = row.base_commit,
                                  .forked_from = taking.id,
                                  .attempt = 1,
                                  .attempts = 2});
  CHECK(LayerTable(*test.store).get(fork.layer).parent == taking.layer);
  CHECK(code_thrown_by([&] { table.set_ready(fork.id); }) == base::Code::conflict);
  snapshots.finish(taking.id, 0);
  table.set_ready(fork.id);
  const WorkspaceRow made = table.get(fork.id);
  CHECK(made.forked_from == taking.id);
  CHECK(made.stands_on == taking.id);
  CHECK(made.attempt == 1);
  CHECK(made.attempts == 2);
}
