// All that a verb needs, in its own store: a real database and real storage; nothing is running.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "backends/registry.h"
#include "base/clock.h"
#include "layers/storage_fixture.h"
#include "repo_cache/base_tree.h"
#include "repo_cache/repo_cache.h"
#include "state_db/store.h"
#include "workspace/context/context.h"
#include "workspace/context/metrics.h"

namespace moorage::workspace {

class ShiftedClock : public base::Clock {
 public:
  int64_t wall_ms() const override { return base::system_clock().wall_ms() + shift_ms; }
  int64_t boot_ms() const override { return base::system_clock().boot_ms() + shift_ms; }
  std::atomic<int64_t> shift_ms = 0;
};

struct ContextFixture {
  layers::TemporaryDirectory directory;
  ShiftedClock clock;
  state_db::Store store{[this] {
    state_db::StoreOptions options;
    options.directory = directory.path();
    options.clock = &clock;
    return options;
  }()};
  backends::BackendOptions backend_options = [this] {
    backends::BackendOptions options;
    options.name_prefix = "moorage-" + store.store_id() + "-";
    options.images_directory = directory.path() + "/images";
    options.remote.notes_directory = directory.path() + "/remote";
    options.favor_quick_cgroup_moves = false;
    return options;
  }();
  backends::Registry registry{backend_options};
  repo_cache::RepoCache repos{[this] {
    repo_cache::RepoCacheOptions options;
    options.root = directory.path() + "/repos";
    options.url_policy.file_roots = {directory.path()};
    return options;
  }()};
  repo_cache::BaseTrees base_trees{repos};
  std::unique_ptr<layers::Storage> storage =
      layers::make_overlay_storage({.store = directory.path()});
  LiveSandboxes live;
  base::KeyedMutex locks;
  Metrics metrics;
  Context context{store,
                  repos,
                  base_trees,
                  registry,
                  *storage,
                  live,
                  locks,
                  [this] {
                    Options options;
                    options.store = directory.path();
                    return options;
                  }(),
                  metrics};
};

}  // namespace moorage::workspace
