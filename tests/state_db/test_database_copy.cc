// A copy of the database in memory: consistent, with its list of files, and usable on another
// machine.
#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/os/files.h"
#include "state_db/connection.h"
#include "state_db/tables/archives.h"
#include "state_db/tables/database_copy.h"
#include "state_db/tables/integrity.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/workspaces.h"
#include "store_fixture.h"

using namespace moorage;
using namespace moorage::state_db;
using namespace moorage::state_db_test;

namespace {

std::vector<base::LayerId> layers_of(const Needs& needs) {
  std::vector<base::LayerId> layers;
  for (const auto& layer : needs.layers) layers.push_back(layer.layer);
  return layers;
}

}  // namespace

TEST_CASE("a copy is consistent and lists the files it needs, without unfinished ones") {
  TestStore test;
  const auto repository = make_repository(*test.store);
  WorkspaceTable workspaces(*test.store);
  const auto ready = make_workspace(*test.store, repository, "ready");
  const auto cold = make_workspace(*test.store, repository, "cold");
  const auto purged = make_workspace(*test.store, repository, "purged");
  for (const auto id : {ready, cold, purged}) {
    if (workspaces.get(id).state == WorkspaceState::creating) workspaces.set_ready(id);
  }
  IntegrityTable(*test.store).set(ready, IntegrityState::intact);
  IntegrityTable(*test.store).set_seal(ready, "abc");
  ArchiveTable archives(*test.store);
  archives.begin(cold);
  archives.finish(cold, {7, std::string(64, 'a'), ""}, {});
  test.store->move(purged, WorkspaceState::ready, WorkspaceState::deleting);
  workspaces.finish_delete(purged);
  workspaces.begin_purge(purged);

  const DatabaseCopy copy(test.directory.path());
  LayerTable(*test.store).create({{}, repository, std::string(40, 'c')});
  CHECK(copy.needs().store_id == test.store->store_id());
  CHECK(copy.needs().epoch == "0");
  REQUIRE(layers_of(copy.needs()) == std::vector{workspaces.get(ready).layer});
  CHECK(copy.needs().layers[0].seal == "abc");
  CHECK(copy.needs().layers[0].workspace == ready);
  REQUIRE(copy.needs().archives.size() == 1);
  CHECK(copy.needs().archives[0].workspace == cold);
  CHECK(copy.needs().histories.size() == 2);
  CHECK(copy.needs().repositories == std::vector{repository});

  const std::string path = test.directory.path() + "/copied";
  base::write_file(path, copy.bytes());
  CopiedDatabase copied(path);
  CHECK(layers_of(copied.needs()) == layers_of(copy.needs()));
  CHECK(copied.names_on(workspaces.get(ready).layer) ==
        std::vector<std::string>{"ready (" + ready.str() + ")"});
  copied.mark_lost(workspaces.get(ready).layer, "it is gone", 1);
  copied.settle();
  CHECK(copied.needs().layers[0].seal.empty());
  CHECK(copied.needs().epoch != "0");
  Connection raw(path, 1000);
  CHECK(raw.query_text("SELECT state || reason FROM workspace_integrity") == "lostit is gone");
}

TEST_CASE("a damaged copy is refused") {
  TestStore test;
  make_workspace(*test.store, make_repository(*test.store), "one");
  const std::string path = test.directory.path() + "/copied";
  const DatabaseCopy copy(test.directory.path());
  for (const size_t at : {size_t{0}, copy.bytes().size() / 2}) {
    std::string bytes(copy.bytes());
    bytes.replace(at, 4096, std::string(4096, 'x'));
    base::write_file(path, bytes.substr(0, copy.bytes().size()));
    INFO(at);
    CHECK_THROWS_AS(CopiedDatabase(path), base::Error);
  }
}
