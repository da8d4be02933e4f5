#include <catch2/catch.hpp>

#include "state_db/tables/layers.h"
#include "state_db/tables/repositories.h"
#include "store_fixture.h"

using namespace moorage;
using namespace moorage::state_db;
using namespace moorage::state_db_test;

TEST_CASE("a repository is unique for its URL and scope, and reads back the same") {
  TestStore test;
  RepositoryTable repositories(*test.store);
  const auto id = repositories.create({.url = "https://host/a/b", .scope = "", .name = "a/b"});
  const auto scoped =
      repositories.create({.url = "https://host/a/b", .scope = "ann", .name = "a/b"});
  CHECK(id != scoped);
  CHECK(code_thrown_by([&] {
          repositories.create({.url = "https://host/a/b", .scope = "ann", .name = "other"});
        }) == base::Code::already_exists);
  const auto again =
      repositories.find_or_create({.url = "https://host/a/b", .scope = "ann", .name = "x"});
  CHECK(again.first == scoped);
  CHECK_FALSE(again.second);

  repositories.set_facts(id, {.default_branch = "main", .fetched_wall_ms = 5, .bytes = 700});
  repositories.set_facts(id, {.checked_wall_ms = 9, .stale_reason = "no route"});
  repositories.set_facts(id, {.stale_reason = ""});
  test.reopen();
  const RepositoryRow row = RepositoryTable(*test.store).get(id);
  CHECK(row.url == "https://host/a/b");
  CHECK(row.scope.empty());
  CHECK(row.name == "a/b");
  CHECK(row.state == RepositoryState::cloning);
  CHECK(row.default_branch == "main");
  CHECK(row.fetched_wall_ms == 5);
  CHECK(row.checked_wall_ms == 9);
  CHECK(row.stale_reason.empty());
  CHECK(row.bytes == 700);
  CHECK(row.created_wall_ms == test.clock.now_ms);
  CHECK(RepositoryTable(*test.store).find("https://host/a/b", "ann")->id == scoped);
  CHECK_FALSE(RepositoryTable(*test.store).find("https://host/a/b", "bob"));
  CHECK(RepositoryTable(*test.store).list().size() == 2);
  CHECK(code_thrown_by([&] { RepositoryTable(*test.store).get(base::RepoId{77}); }) ==
        base::Code::not_found);
}

TEST_CASE(
    "a base tree's row can be replaced, synced and touched, and stays while a layer uses it") {
  TestStore test;
  const auto repository = make_repository(*test.store);
  BaseTreeTable trees(*test.store);
  const std::string commit(40, 'a');
  BaseTreeRow tree{.repository = repository,
                   .commit = commit,
                   .files = 3,
                   .bytes = 900,
                   .submodules = 1,
                   .lfs_files = 2,
                   .synced = false,
                   .boot_id = "boot",
                   .created_wall_ms = 4,
                   .last_used_wall_ms = 4};
  trees.put(tree);
  tree.bytes = 901;
  trees.put(tree);
  trees.set_synced(repository, commit);
  trees.touch(repository, commit);
  const auto row = trees.find(repository, commit);
  REQUIRE(row);
  CHECK(row->files == 3);
  CHECK(row->bytes == 901);
  CHECK(row->submodules == 1);
  CHECK(row->lfs_files == 2);
  CHECK(row->synced);
  CHECK(row->boot_id == "boot");
  CHECK(row->last_used_wall_ms == test.clock.now_ms);
  CHECK(trees.list(repository).size() == 1);

  LayerTable layers(*test.store);
  const auto layer = layers.create({.repository = repository, .base_commit = commit});
  CHECK(code_thrown_by([&] { trees.remove(repository, commit); }) == base::Code::conflict);
  layers.remove({layer});
  trees.remove(repository, commit);
  CHECK_FALSE(trees.find(repository, commit));
}

TEST_CASE("layers form chains and are removed from the top") {
  TestStore test;
  const auto repository = make_repository(*test.store);
  LayerTable layers(*test.store);
  const NewLayer on_base{
      .parent = {}, .repository = repository, .base_commit = std::string(40, 'a')};
  const auto bottom = layers.create(on_base);
  NewLayer above = on_base;
  above.parent = bottom;
  layers.freeze(bottom);
  const auto top = layers.create(above);
  const auto chain = layers.chain(top);
  REQUIRE(chain.size() == 2);
  CHECK(chain[0].id == top);
  CHECK(chain[0].parent == bottom);
  CHECK_FALSE(chain[0].frozen);
  CHECK(chain[1].frozen);
  CHECK_FALSE(chain[1].parent);
  CHECK(code_thrown_by([&] { layers.remove({bottom}); }) == base::Code::conflict);
  REQUIRE(layers.unused().size() == 2);  // below an unused layer, also unused
  CHECK(layers.unused()[0].id == bottom);
  CHECK(layers.unused()[1].id == top);
  layers.remove({bottom, top});
  CHECK(layers.list().empty());
}
