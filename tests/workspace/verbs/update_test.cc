// A repeated update whose process died between writing its row and setting the disk's limit.
#include "workspace/verbs/update.h"

#include <catch2/catch.hpp>
#include <vector>

#include "layers/forwarding_storage.h"
#include "state_db/tables/workspaces.h"
#include "workspace/access/keyed_request.h"
#include "workspace/context/context_fixture.h"
#include "workspace/context/live_sandboxes.h"
#include "workspace/context/new_workspace.h"
#include "workspace/exec/watcher.h"
#include "workspace/repositories/repositories.h"

using namespace moorage;
using namespace moorage::layers;
using namespace moorage::workspace;

namespace {

struct RecordingQuota : DiskQuota {
  std::string name() const override { return "recording"; }
  void limit(base::LayerId layer, const std::string&, const QuotaLimit& limit) override {
    limits.emplace_back(layer, limit.bytes);
  }
  std::vector<std::pair<base::LayerId, uint64_t>> limits;
};

struct RecordingStorage : ForwardingStorage {
  using ForwardingStorage::ForwardingStorage;
  DiskQuota& quota() override { return recorded; }
  RecordingQuota recorded;
};

struct UpdateFixture : ContextFixture {
  RecordingStorage recording{*storage};
  Context recorded{store, repos, base_trees,      registry, recording,
                   live,  locks, context.options, metrics};
  IncomingPacks incoming{recorded};
  ExecWatcher watcher{recorded, incoming};
  Leases leases{store};
  IntegrityCheck integrity{recorded};
  Replica replica{recorded, {}};
  Measurer measurer{recorded};
  const NetworkOptions network{};
  Sightings sightings{recorded, watcher, network};
  Networks networks{recorded, watcher, sightings, network};
  RemoteCopy remote{recorded, incoming};
  Views views{recorded, leases, watcher, remote, integrity, measurer, replica, sightings};
  Update update{recorded, leases, networks, views};
};

}  // namespace

TEST_CASE("a repeated update sets the disk's limit though the first one died before that") {
  UpdateFixture test;
  auto wanted = new_workspace(test.store, "one");
  wanted.policy.limits.disk_bytes = 100 << 20;
  state_db::WorkspaceTable table(test.store);
  const auto made = table.create(wanted);
  table.set_ready(made.id);
  test.storage->make_layer(made.layer);
  auto after = table.get(made.id).policy;
  after.limits.disk_bytes = 50 << 20;
  table.set_policy(made.id, {table.get(made.id).policy, after, "set by a test"});  // then it died

  const JoinedVerb joined{.workspace = made.id};
  const auto view = test.update.resume(joined.subject());
  CHECK(view.row.policy.limits.disk_bytes == 50 << 20);
  const std::vector<std::pair<base::LayerId, uint64_t>> expected{{made.layer, 50 << 20}};
  CHECK(test.recording.recorded.limits == expected);
}
