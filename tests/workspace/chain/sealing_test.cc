// Seals of stopped workspaces, taken in the background.
#include "workspace/chain/sealing.h"

#include <catch2/catch.hpp>
#include <future>
#include <set>
#include <thread>

#include "layers/forwarding_storage.h"
#include "patience.h"
#include "state_db/tables/integrity.h"
#include "state_db/tables/repositories.h"
#include "state_db/tables/workspaces.h"
#include "workspace/context/context_fixture.h"
#include "workspace/context/live_sandboxes.h"
#include "workspace/context/new_workspace.h"
#include "workspace/exec/watcher.h"
#include "workspace/repositories/repositories.h"

using namespace moorage;
using namespace moorage::workspace;
using namespace std::chrono_literals;

namespace {

// Blocks callers of one of these layers.
struct SlowStorage : layers::ForwardingStorage {
  using layers::ForwardingStorage::ForwardingStorage;
  std::string layer_path(base::LayerId layer) const override {
    if (slow.contains(layer)) open.wait();
    return layers::ForwardingStorage::layer_path(layer);
  }
  std::set<base::LayerId> slow;
  std::shared_future<void> open;
};

struct SealFixture : ContextFixture {
  std::promise<void> gate;
  SlowStorage slow{*storage};
  Context slowed{store, repos, base_trees, registry, slow, live, locks, context.options, metrics};
  Repositories repositories{slowed};
  IntegrityCheck checks{slowed};
  Sealing sealing{slowed, repositories, checks};

  // Stopped, and changed since its last seal.
  state_db::WorkspaceTable::Created add(const std::string& name, uint32_t owner) {
    state_db::WorkspaceTable table(store);
    const auto made = table.create(new_workspace(store, name, owner));
    table.set_ready(made.id);
    storage->make_layer(made.layer);
    state_db::IntegrityTable integrity(store);
    integrity.set(made.id, state_db::IntegrityState::intact);
    integrity.set_seal(made.id, "seal");
    integrity.clear_seal(made.id);
    return made;
  }
  bool is_sealed(base::WorkspaceId id) {
    return !state_db::IntegrityTable(store).get(id).seal.empty();
  }
};

}  // namespace

TEST_CASE("slow seals of one user do not delay those of other users") {
  SealFixture test;
  test.slow.open = test.gate.get_future().share();
  std::vector<base::WorkspaceId> greedy;
  for (const char* name : {"one", "two", "three"}) {
    const auto made = test.add(name, 1001);
    test.slow.slow.insert(made.layer);
    greedy.push_back(made.id);
  }
  const auto other = test.add("other", 1002).id;
  test.sealing.seal_unsealed();
  const auto is_sealed_in_time = [&](base::WorkspaceId id) {
    const auto until = std::chrono::steady_clock::now() + tests::patient(20s);
    while (!test.is_sealed(id) && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(5ms);
    return test.is_sealed(id);
  };
  CHECK(is_sealed_in_time(other));
  for (const auto id : greedy) CHECK_FALSE(test.is_sealed(id));
  test.gate.set_value();
  for (const auto id : greedy) CHECK(is_sealed_in_time(id));
}
