// The verbs on rows and on fake backends that only report capabilities: enough to test refusals.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "backends/fake_backend.h"
#include "backends/registry.h"
#include "base/clock.h"
#include "layers/storage_fixture.h"
#include "state_db/store.h"
#include "state_db/tables/repositories.h"
#include "state_db/tables/sandboxes.h"
#include "state_db/tables/workspaces.h"
#include "workspace/context/context_fixture.h"
#include "workspace/context/new_workspace.h"
#include "workspace/services/services.h"

namespace moorage::workspace {

class LevelBackend : public backends::FakeBackend {
 public:
  LevelBackend(const backends::BackendOptions& options, backends::Isolation level)
      : FakeBackend(options), level_(level) {}
  backends::Capabilities capabilities() override {
    auto can = FakeBackend::capabilities();
    can.isolation = level_;
    can.usable = usable;
    can.reason = usable ? "" : "its engine is down";
    can.runtimes = runtimes;
    can.remote = remote;
    return can;
  }
  void destroy(const std::string& name) override {
    if (before_destroy) before_destroy(name);
    FakeBackend::destroy(name);
  }
  std::function<void(const std::string&)> before_destroy{};  // set before anything is destroyed
  void stop(const std::string& name, std::chrono::milliseconds grace) override {
    if (before_stop) before_stop(name);
    FakeBackend::stop(name, grace);
  }
  backends::Endpoint endpoint(const std::string& name) override {
    const backends::Endpoint none = FakeBackend::endpoint(name);
    return socket.empty() ? none : backends::Endpoint{socket};
  }
  std::function<void(const std::string&)> before_stop{};  // likewise
  std::string socket{};                                   // of all its sandboxes
  bool usable = true;
  bool remote = false;
  std::map<std::string, backends::Isolation> runtimes{};

 private:
  const backends::Isolation level_;
};

struct PlacementStore {
  // `existing`: the directory of a store whose daemon died.
  explicit PlacementStore(const std::string& existing = {})
      : directory(existing.empty() ? layers::TemporaryDirectory()
                                   : layers::TemporaryDirectory(existing)) {}
  layers::TemporaryDirectory directory;
  ShiftedClock clock;
  state_db::Store opened{[this] {
    state_db::StoreOptions options;
    options.directory = directory.path();
    options.clock = &clock;
    return options;
  }()};
  ServiceOptions options() const {
    ServiceOptions options;
    options.backends.name_prefix = "moorage-" + opened.store_id() + "-";
    options.backends.images_directory = directory.path() + "/images";
    options.backends.remote.notes_directory = directory.path() + "/remote";
    options.backends.favor_quick_cgroup_moves = false;
    options.repos.root = directory.path() + "/repos";
    options.repos.url_policy.file_roots = {directory.path()};
    options.storage.store = directory.path();
    options.workspace.store = directory.path();
    return options;
  }
};

struct PlacementFixture : PlacementStore, Services {
  explicit PlacementFixture(const std::string& existing = {})
      : PlacementStore(existing), Services(opened, options()) {}

  LevelBackend* lxc = put("lxc", backends::Isolation::userns);
  LevelBackend* docker = put("docker", backends::Isolation::container);
  LevelBackend* process = put("process", backends::Isolation::none);

  LevelBackend* put(const std::string& name, backends::Isolation level) {
    auto backend = std::make_unique<LevelBackend>(options().backends, level);
    auto* made = backend.get();
    registry.put(name, std::move(backend));
    return made;
  }

  std::vector<PlacementRule>& rules() {  // no reload happens in these tests
    return const_cast<std::vector<PlacementRule>&>(*context.options.placement_rules->get());
  }
  PlacementRule& add_rule() {
    PlacementRule rule;
    rule.name = "rule " + std::to_string(rules().size() + 1);
    rules().push_back(rule);
    return rules().back();
  }

  state_db::WorkspaceRow make_workspace(const std::string& name, const std::string& backend,
                                        const state_db::WorkspaceLimits& limits = {
                                            1ULL << 30, 1, 100, 1ULL << 30, 0}) {
    auto wanted = new_workspace(store, name, 0);
    wanted.backend = backend;
    wanted.image = "host";
    wanted.policy.limits = limits;
    state_db::WorkspaceTable table(store);
    const auto id = table.create(wanted).id;
    table.set_ready(id);
    return table.get(id);
  }
};

// The refusal as "message | hint".
template <typename Call>
std::string refusal_of(const Call& call, base::Code code = base::Code::permission_denied) {
  try {
    call();
  } catch (const base::Error& error) {
    CHECK(error.code() == code);
    return error.message() + (error.hint().empty() ? "" : " | " + error.hint());
  }
  return "";
}

}  // namespace moorage::workspace
