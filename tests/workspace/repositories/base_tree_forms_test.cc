// A base tree that became whole after being a delta, while mounts may still use the delta.
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/os/files.h"
#include "base/os/process.h"
#include "workspace/context/context_fixture.h"
#include "workspace/repositories/repositories.h"
#include "workspace/repositories/upstream.h"

using namespace moorage;
using namespace moorage::workspace;

namespace {

// Two similar commits of a repository: the tree of the second is a delta.
struct FormsFixture : ContextFixture {
  Upstream upstream{directory.path() + "/upstream"};
  Repositories repositories{context};
  std::string first = commit("first");
  base::RepoId id = repositories.ensure(upstream.path, {}, {}).id;
  std::string repo = repo_directory(id);
  std::string second = [this] {
    repositories.ensure_base_tree(id, first, {});
    const std::string made = commit("second");
    repositories.ensure(upstream.path, {}, {});
    return made;
  }();

  std::string commit(const std::string& text) {
    for (int n = 0; n < 300; ++n) {
      const std::string path = upstream.path + "/file" + std::to_string(n);
      if (n == 0 || !base::path_exists(path)) base::write_file(path, text);
    }
    return upstream.commit();
  }
  bool has_delta() const {
    return base::path_exists(base_trees.directory(repo, second) + "/delta");
  }
  std::string parent() { return state_db::BaseTreeTable(store).find(id, second)->parent; }
  void make_whole() { base_trees.make_whole(repo, second, "", std::chrono::minutes(2), {}); }
};

std::set<std::string> nothing() { return {}; }

}  // namespace

TEST_CASE("a base tree that cannot be synced reports why and does not block the others") {
  FormsFixture test;
  state_db::BaseTreeTable table(test.store);
  state_db::BaseTreeRow gone;
  gone.repository = test.id;
  gone.commit = std::string(40, '0');  // sorts before the other one in any order
  gone.boot_id = base::boot_id();
  gone.created_wall_ms = 1;
  table.put(gone);
  CHECK_NOTHROW(test.repositories.sync_base_trees());
  CHECK(table.find(test.id, test.first)->synced);
  CHECK_FALSE(table.find(test.id, gone.commit)->synced);
  CHECK_THAT(test.repositories.sync_failure(test.id, gone.commit), Catch::Contains(gone.commit));
  CHECK(test.repositories.sync_failure(test.id, test.first).empty());
  base::make_directories(test.base_trees.directory(test.repo, gone.commit));
  test.repositories.sync_base_trees();
  CHECK(table.find(test.id, gone.commit)->synced);
  CHECK(test.repositories.sync_failure(test.id, gone.commit).empty());
}

TEST_CASE("a delta stays while somebody is about to mount it") {
  FormsFixture test;
  auto first_places = test.repositories.ensure_base_tree(test.id, test.second, {});
  auto second_places = test.repositories.ensure_base_tree(test.id, test.second, {});
  REQUIRE(first_places.deltas.size() == 1);
  test.make_whole();
  CHECK(test.repositories.ensure_base_tree(test.id, test.second, {}).deltas.empty());
  test.repositories.settle_forms(test.id, nothing);
  CHECK(test.has_delta());
  first_places = {};
  test.repositories.settle_forms(test.id, nothing);
  CHECK(test.has_delta());
  CHECK(test.parent() == test.first);
  second_places = {};
  test.repositories.settle_forms(test.id, nothing);
  CHECK_FALSE(test.has_delta());
  CHECK(test.parent().empty());
}

TEST_CASE("a delta stays while a mount has it") {
  FormsFixture test;
  test.repositories.ensure_base_tree(test.id, test.second, {});
  test.make_whole();
  test.repositories.settle_forms(test.id, [&] { return std::set{test.second}; });
  CHECK(test.has_delta());
  test.repositories.settle_forms(test.id, [&] { return std::set{test.first}; });
  CHECK_FALSE(test.has_delta());
}

TEST_CASE("mounts are not listed if every tree has one form") {
  FormsFixture test;
  test.repositories.ensure_base_tree(test.id, test.second, {});
  int asked = 0;
  test.repositories.settle_forms(test.id, [&] {
    ++asked;
    return std::set<std::string>();
  });
  CHECK(asked == 0);
  CHECK(test.base_trees.in_use(test.repo).empty());
}
