// A workspace goes to its archive and comes back: one of the two is complete at any time.
#include "workspace/archive/cold_storage.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "base/error.h"
#include "base/os/files.h"
#include "layers/tree_manifest.h"
#include "state_db/tables/archives.h"
#include "workspace/archive/store.h"
#include "workspace/context/context_fixture.h"
#include "workspace/repositories/upstream.h"

using namespace moorage;
using namespace moorage::workspace;

namespace {

using state_db::WorkspaceState;

struct ArchiveFixture : ContextFixture {
  Upstream upstream{directory.path() + "/upstream"};
  Repositories repositories{context};
  IntegrityCheck integrity{context};
  ColdStorage cold_storage{context, repositories, integrity};
  state_db::WorkspaceTable table{store};
  state_db::WorkspaceRow workspace = make_workspace();
  std::string layer = storage->layer_path(workspace.layer);

  ArchiveFixture() {
    context.options.archive_directory = directory.path() + "/archive";
    base::make_directories(context.options.archive_directory);
  }
  // Ready, with a changed file and a removed one in its layer.
  state_db::WorkspaceRow make_workspace() {
    base::write_file(upstream.path + "/file", "of the repository");
    state_db::NewWorkspace wanted;
    wanted.name = "work";
    wanted.base_commit = upstream.commit();
    wanted.repository = repositories.ensure(upstream.path, {}, {}).id;
    wanted.branch = "moorage/work";
    wanted.backend = "lxc";
    wanted.image = "host";
    repositories.ensure_base_tree(wanted.repository, wanted.base_commit, {});
    const auto id = table.create(wanted).id;
    table.set_ready(id);
    const auto row = table.get(id);
    storage->make_layer(row.layer);
    const std::string upper = storage->layer_path(row.layer) + "/tree/upper";
    const auto own = [&](const std::string& path, uint32_t inside) {
      const uint32_t owner = layers::kDiskFirstId + inside;
      base::check(lchown((upper + path).c_str(), owner, owner), "chown");
    };
    base::write_file(upper + "/made", "by the agent", 0640);
    own("/made", layers::kAgent);
    base::check(mknod((upper + "/file").c_str(), S_IFCHR, makedev(0, 0)), "mknod");
    own("/file", 65536);
    return row;
  }
  std::map<std::string, std::string> nodes() const {
    std::map<std::string, std::string> all;
    for (const std::string part : {"tree", "home", "system"})
      for (const auto& [path, line] : layers::TreeManifest(layer + "/" + part + "/upper").lines)
        all[part + path] = line;
    return all;
  }
  void archive() { cold_storage.put_away(workspace, "by the test", {}, {}); }
  std::string file() {
    return ArchiveStore(context).path(*state_db::ArchiveTable(store).find(workspace.id));
  }
};

}  // namespace

TEST_CASE("an archived workspace has no layer, and comes back with all its files") {
  ArchiveFixture test;
  const auto before = test.nodes();
  test.archive();
  CHECK(test.table.get(test.workspace.id).state == WorkspaceState::archived);
  CHECK_FALSE(base::path_exists(test.layer));
  const std::string file = test.file();
  CHECK(base::path_exists(file));
  test.cold_storage.bring_back(test.table.get(test.workspace.id));
  CHECK(test.table.get(test.workspace.id).state == WorkspaceState::ready);
  CHECK(test.nodes() == before);
  CHECK_FALSE(base::path_exists(file));
}

TEST_CASE("a damaged archive brings nothing back and stays where it is") {
  ArchiveFixture test;
  test.archive();
  const std::string file = test.file();
  std::string bytes = base::read_file(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  base::write_file(file, bytes);
  CHECK_THROWS_AS(test.cold_storage.bring_back(test.table.get(test.workspace.id)), base::Error);
  CHECK(test.table.get(test.workspace.id).state == WorkspaceState::archived);
  CHECK_FALSE(base::path_exists(test.layer));
  CHECK(base::read_file(file) == bytes);
}

TEST_CASE("a workspace that cannot be archived keeps its layer and stays ready") {
  ArchiveFixture test;
  const auto before = test.nodes();
  test.context.options.archive_directory = test.directory.path() + "/absent";
  CHECK_THROWS_AS(test.archive(), base::Error);
  CHECK(test.table.get(test.workspace.id).state == WorkspaceState::ready);
  CHECK(test.nodes() == before);
}

TEST_CASE("files in the place of an archived layer are not overwritten") {
  ArchiveFixture test;
  test.archive();
  test.storage->make_layer(test.workspace.layer);
  base::write_file(test.layer + "/tree/upper/precious", "of a person");
  CHECK_THROWS_WITH(test.cold_storage.bring_back(test.table.get(test.workspace.id)),
                    Catch::Contains("differs from its archive"));
  CHECK(base::read_file(test.layer + "/tree/upper/precious") == "of a person");
  CHECK(base::path_exists(test.file()));
}
