// Collection carries out its plan: each row is decided again before anything is removed.
#include "workspace/upkeep/gc.h"

#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <utility>

#include "base/os/files.h"
#include "state_db/tables/repositories.h"
#include "workspace/access/placement_fixture.h"
#include "workspace/context/disk_use.h"
#include "workspace/repositories/upstream.h"

namespace moorage::workspace {
namespace {

using state_db::WorkspaceState;

// Everything is old enough to go, and repositories may come from files.
struct GcStore : PlacementStore {
  ServiceOptions collecting() const {
    auto all = options();
    all.repos.url_policy.file_roots = {directory.path()};
    all.gc.lately = std::chrono::milliseconds(0);
    all.gc.archive_after_ms = 0;
    all.gc.archive_elsewhere = true;
    all.workspace.archive_directory = directory.path() + "/archive";
    return all;
  }
};

struct GcFixture : GcStore, Services {
  GcFixture() : Services(opened, collecting()) {
    base::make_directories(context.options.archive_directory);
    base::write_file(upstream.path + "/file", "of the repository");
    commit = upstream.commit();
    repository = mirrors.ensure(upstream.path, {}, {}).id;
    mirrors.ensure_base_tree(repository, commit, {});
  }

  Upstream upstream{directory.path() + "/upstream"};
  std::string commit;
  base::RepoId repository;

  // Stopped, with a cache in its layer.
  state_db::WorkspaceRow make_workspace(const std::string& name) {
    state_db::NewWorkspace wanted;
    wanted.name = name;
    wanted.repository = repository;
    wanted.base_commit = commit;
    wanted.branch = "moorage/" + name;
    wanted.backend = "lxc";
    wanted.image = "host";
    wanted.policy.caches = {"cache"};
    state_db::WorkspaceTable table(store);
    const auto id = table.create(wanted).id;
    table.set_ready(id);
    const auto row = table.get(id);
    storage->make_layer(row.layer);
    base::make_directories(upper(row) + "/cache");
    own(upper(row) + "/cache");
    write(upper(row) + "/cache/object", std::string(1 << 20, 'x'));
    DiskUse(context).keep_writable(row, 2 << 20, 3);
    return row;
  }
  void own(const std::string& path) const {
    const uint32_t agent = layers::kDiskFirstId + layers::kAgent;
    base::check(lchown(path.c_str(), agent, agent), "chown");
  }
  void write(const std::string& path, const std::string& text) const {
    base::write_file(path, text);
    own(path);
  }
  std::string upper(const state_db::WorkspaceRow& row) const {
    return storage->layer_path(row.layer) + "/tree/upper";
  }
  Gc::Result run(const std::function<bool()>& enough = [] { return false; }) {
    return gc.run("by the test", {}, enough);
  }
  WorkspaceState state(base::WorkspaceId id) {
    return state_db::WorkspaceTable(store).get(id).state;
  }
  bool tree_exists() {
    const bool row = state_db::BaseTreeTable(store).find(repository, commit).has_value();
    CHECK(row == base_trees.exists(repo_directory(repository), commit));
    return row;
  }
  size_t events(const std::string& kind) {
    size_t count = 0;
    for (const auto& event : store.events(0, 1000)) count += event.kind == kind ? 1 : 0;
    return count;
  }
};

const GcRow& row_of(const Gc::Result& result, GcRung rung) {
  const auto found = std::find_if(result.rows.begin(), result.rows.end(),
                                  [&](const GcRow& row) { return row.rung == rung; });
  REQUIRE(found != result.rows.end());
  return *found;
}

}  // namespace

TEST_CASE("collection removes an unused base tree and then its mirror, with an event for each") {
  GcFixture test;
  const auto result = test.run();
  CHECK(row_of(result, GcRung::base_tree).goes);
  CHECK(row_of(result, GcRung::mirror).goes);
  CHECK_FALSE(result.enough);
  CHECK_FALSE(test.tree_exists());
  CHECK_FALSE(test.repos.exists(repo_directory(test.repository)));
  CHECK(test.events("gc.base_tree") == 1);
  CHECK(test.events("gc.mirror") == 1);
}

TEST_CASE("collection ends as soon as enough space is free") {
  GcFixture test;
  const auto result = test.run([] { return true; });
  CHECK(result.enough);
  CHECK(result.rows.empty());
  CHECK(test.tree_exists());
}

TEST_CASE("a base tree that came into use after the plan is kept, with the reason") {
  GcFixture test;
  bool made = false;
  const auto result = test.run([&] {
    if (!made) test.make_workspace("new");
    made = true;
    return false;
  });
  const auto& row = row_of(result, GcRung::base_tree);
  CHECK_FALSE(row.goes);
  CHECK_THAT(row.why, Catch::Contains("in use"));
  CHECK(test.tree_exists());
  CHECK_FALSE(row_of(result, GcRung::mirror).goes);
  CHECK(test.events("gc.base_tree") == 0);
}

TEST_CASE("collection removes a declared cache, then archives the idle workspace") {
  GcFixture test;
  const auto workspace = test.make_workspace("idle");
  const std::string file = test.upper(workspace) + "/work";
  test.write(file, "of the agent");
  const auto result = test.run();
  CHECK(row_of(result, GcRung::cache).bytes.value_or(0) >= 1 << 20);
  INFO(row_of(result, GcRung::workspace).why);
  CHECK(row_of(result, GcRung::workspace).goes);
  CHECK(test.state(workspace.id) == WorkspaceState::archived);
  CHECK_FALSE(base::path_exists(file));
  CHECK(test.events("gc.cache") == 1);
  CHECK(test.events("gc.workspace") == 1);
  test.cold_storage.bring_back(state_db::WorkspaceTable(test.store).get(workspace.id));
  CHECK(base::read_file(file) == "of the agent");
  CHECK_FALSE(base::path_exists(test.upper(workspace) + "/cache"));
}

TEST_CASE("a workspace that was pinned after the plan keeps its cache and its files") {
  GcFixture test;
  const auto workspace = test.make_workspace("pinned");
  const auto result = test.run([&, policy = workspace.policy]() mutable {
    if (std::exchange(policy.pinned, true)) return false;
    state_db::WorkspaceTable(test.store)
        .set_policy(workspace.id, {workspace.policy, policy, "root"});
    return false;
  });
  CHECK_FALSE(row_of(result, GcRung::cache).goes);
  CHECK_THAT(row_of(result, GcRung::workspace).why, Catch::Contains("pinned"));
  CHECK(test.state(workspace.id) == WorkspaceState::ready);
  CHECK(base::path_exists(test.upper(workspace) + "/cache/object"));
}

TEST_CASE("collection removes the files of a base tree without a row") {
  GcFixture test;
  const auto workspace = test.make_workspace("works");
  const std::string repo = repo_directory(test.repository);
  const std::string stray(40, '7');
  base::make_directories(test.base_trees.directory(repo, stray) + "/tree");
  REQUIRE(test.base_trees.list(repo).size() == 2);
  test.run([] { return true; });
  CHECK(test.base_trees.list(repo) == std::vector<std::string>{test.commit});
  CHECK(test.state(workspace.id) == WorkspaceState::ready);
}

}  // namespace moorage::workspace
