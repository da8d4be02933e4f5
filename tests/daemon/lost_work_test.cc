// Files that an older, restored state.db does not list.
#include "workspace/recovery/lost_work.h"

#include <catch2/catch.hpp>

#include "base/os/files.h"
#include "state_db/tables/execs.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/repositories.h"
#include "wired.h"

using namespace moorage;
using namespace moorage::daemon;

namespace {

struct Restored {
  Wired wired;
  workspace::Context& context = wired.api().context;
  const std::string store = context.options.store;
  const base::WorkspaceId known = wired.make_workspace("known", 1000);

  void make_file(const std::string& path) {
    base::make_directories((store + path).substr(0, (store + path).rfind('/')));
    base::write_file(store + path, "work\n");
  }
  std::vector<std::string> lost() { return base::list_directory(store + "/lost"); }
  std::string info() {
    Router router;
    add_all_routes(router, wired.api(), wired.info());
    for (const auto& route : router.routes()) {
      if (route.pattern == "/v1/info") return std::get<Handler>(route.handler)(Request{}).body;
    }
    return {};
  }
};

}  // namespace

TEST_CASE("layers and journals without a row are moved aside whole and reported") {
  Restored restored;
  restored.make_file("/layers/ly_1/tree/upper/known");
  restored.make_file("/layers/ly_7/tree/upper/work");
  restored.make_file("/workspaces/ws_1/journal/ex_1/output");
  restored.make_file("/workspaces/ws_5/journal/ex_30/output");
  CHECK(restored.info().find("state.db") == std::string::npos);
  workspace::raise_ids(restored.context);
  workspace::keep_lost_work(restored.context);
  const auto lost = restored.lost();
  REQUIRE(lost.size() == 2);
  CHECK(lost[0].starts_with("ly_7-2"));
  CHECK(lost[1].starts_with("ws_5-2"));
  CHECK(base::read_file(restored.store + "/lost/" + lost[0] + "/tree/upper/work") == "work\n");
  CHECK(base::read_file(restored.store + "/lost/" + lost[1] + "/journal/ex_30/output") == "work\n");
  CHECK(base::path_exists(restored.store + "/layers/ly_1/tree/upper/known"));
  CHECK(base::path_exists(restored.store + "/workspaces/ws_1/journal/ex_1/output"));
  size_t events = 0;
  for (const auto& event : restored.wired.store().events(0, 1000)) {
    if (event.kind == "store.set_aside") ++events;
  }
  CHECK(events == 2);
  CHECK(restored.info().find("it does not list 2 layers and journals") != std::string::npos);
}

TEST_CASE("an id found on the disk is not reused") {
  Restored restored;
  restored.make_file("/layers/ly_7/tree/upper/work");
  restored.make_file("/workspaces/ws_1/journal/ex_12/output");
  restored.make_file("/workspaces/ws_5/journal/ex_30/output");
  restored.make_file("/sandboxes/sb_20/x");
  restored.make_file("/repos/repo_4/git/HEAD");
  for (int start = 1; start <= 2; ++start) {  // the second time everything is in lost/
    workspace::raise_ids(restored.context);
    workspace::keep_lost_work(restored.context);
    const auto made = restored.wired.make_workspace("new-" + std::to_string(start), 1000);
    CHECK(made.value > 7);  // the workspace of ly_7 cannot have a higher id
    CHECK(state_db::WorkspaceTable(restored.wired.store()).get(made).layer.value > 7);
    CHECK(state_db::SandboxTable(restored.wired.store()).live(made)->id.value > 20);
    CHECK(restored.wired.make_exec(made, false).value > 30);
  }
  const auto repo = state_db::RepositoryTable(restored.wired.store())
                        .find_or_create({"https://x/c/d", "", "c/d"});
  CHECK(repo.first.value > 4);
  const uint64_t commits = restored.wired.store().commits();
  workspace::raise_ids(restored.context);
  workspace::keep_lost_work(restored.context);
  CHECK(restored.wired.store().commits() == commits);
}

TEST_CASE("extra layers from snapshots do not use up workspace ids") {
  Restored restored;
  state_db::Store& store = restored.wired.store();
  state_db::LayerTable layers(store);
  const auto own = layers.get(state_db::WorkspaceTable(store).get(restored.known).layer);
  const auto frozen = store.transaction([&] {
    return layers.create({own.id, own.repository, own.base_commit});
  });
  restored.make_file("/layers/" + frozen.str() + "/tree/upper/frozen");
  REQUIRE(frozen.value > restored.known.value);
  workspace::raise_ids(restored.context);
  const auto next = restored.wired.make_workspace("next", 1000);
  CHECK(next.value == restored.known.value + 1);
}
