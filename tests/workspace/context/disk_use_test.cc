#include "workspace/context/disk_use.h"

#include <catch2/catch.hpp>
#include <vector>

#include "state_db/tables/layer_disk.h"
#include "state_db/tables/snapshots.h"
#include "state_db/tables/workspaces.h"
#include "workspace/context/context_fixture.h"
#include "workspace/context/new_workspace.h"

using namespace moorage;
using namespace moorage::workspace;

TEST_CASE("a frozen layer keeps its last known size until a walk completes") {
  ContextFixture test;
  state_db::WorkspaceTable workspaces(test.store);
  const auto made = workspaces.create(new_workspace(test.store, "one"));
  workspaces.set_ready(made.id);
  test.storage->make_layer(made.layer);
  base::write_file(test.storage->layer_path(made.layer) + "/file", std::string(1 << 20, 'x'));
  state_db::LayerDisk(test.store).set_writable(made.layer, 5'000'000, 7);
  state_db::SnapshotTable snapshots(test.store);
  const auto taking = snapshots.begin({.workspace = made.id});
  snapshots.finish(taking.id, 0);

  const std::vector<base::LayerId> frozen{made.layer};
  DiskUse disk(test.context);
  const auto beside = [&] { return disk.beside(made.id, taking.next_layer); };
  CHECK(beside().unmeasured == frozen);
  CHECK(beside().use.bytes == 5'000'000);
  CHECK_FALSE(disk.measure_frozen(made.layer, std::chrono::milliseconds(0)));
  CHECK(beside().unmeasured == frozen);
  CHECK(beside().use.bytes == 5'000'000);
  CHECK(disk.measure_frozen(made.layer, std::chrono::minutes(1)));
  CHECK(beside().unmeasured.empty());
  CHECK(beside().use.bytes >= 1 << 20);
  CHECK(beside().use.bytes < 2 << 20);
}
