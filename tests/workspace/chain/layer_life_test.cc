// Collection beside merges and other collections, which lock and release layers.
#include <atomic>
#include <catch2/catch.hpp>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/repositories.h"
#include "state_db/tables/snapshots.h"
#include "state_db/tables/workspaces.h"
#include "workspace/chain/layer_life.h"
#include "workspace/context/context_fixture.h"

using namespace moorage;
using namespace moorage::workspace;

namespace {

// Rows and layers, without a backend or repository.
struct LayersFixture : ContextFixture {
  state_db::LayerTable layers{store};
  state_db::NewLayer on_base{
      .parent = {},
      .repository = state_db::RepositoryTable(store).find_or_create({"https://x/a", "", "a"}).first,
      .base_commit = std::string(40, 'a')};
};

}  // namespace

TEST_CASE("a merge that comes into use during a collection is not collected") {
  LayersFixture test;
  state_db::NewWorkspace wanted;
  wanted.name = "one";
  wanted.owner_uid = 1000;
  wanted.repository = test.on_base.repository;
  wanted.base_commit = test.on_base.base_commit;
  state_db::WorkspaceTable workspaces(test.store);
  const auto made = workspaces.create(wanted);
  workspaces.set_ready(made.id);
  state_db::SnapshotTable snapshots(test.store);
  const auto taking = snapshots.begin({.workspace = made.id});
  snapshots.finish(taking.id, 0);
  snapshots.drop(taking.id, "");
  std::atomic<bool> end{false};
  std::thread collector([&] {
    while (!end) collect_layers(test.context);
  });
  base::LayerId below = made.layer;
  int lost = 0;
  for (int round = 0; round < 1000; ++round) {
    base::KeyedMutex::Guard making;
    const auto merged = test.store.transaction([&] {
      const auto id = test.layers.create(test.on_base);
      making = test.locks.lock(id.str(), "merge", std::chrono::milliseconds(0));
      test.layers.freeze(id);
      return id;
    });
    test.storage->make_layer(merged);
    test.layers.exchange_parent(taking.next_layer, below, merged);
    making.unlock();
    test.layers.forget_replaced(merged);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (!base::path_exists(test.storage->layer_path(merged))) ++lost;
    below = merged;
  }
  end = true;
  collector.join();
  CHECK(lost == 0);
}

TEST_CASE("layers below a locked layer stay with it") {
  LayersFixture test;
  auto layer = test.on_base;
  std::vector<base::LayerId> chain;
  for (int n = 0; n < 5; ++n) {
    chain.push_back(test.layers.create(layer));
    test.layers.freeze(chain.back());
    test.storage->make_layer(chain.back());
    layer.parent = chain.back();
  }
  auto held = test.locks.lock(chain[2].str(), "another collection");
  collect_layers(test.context);
  REQUIRE(test.layers.list().size() == 3);
  for (int n = 0; n < 5; ++n)
    CHECK(base::path_exists(test.storage->layer_path(chain[n])) == (n <= 2));
  held.unlock();
  collect_layers(test.context);
  CHECK(test.layers.list().empty());
}
