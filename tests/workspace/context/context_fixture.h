// All that a verb needs, in its own store: a real database and real storage; nothing is running.
#pragma once

#include <memory>
#include <string>

#include "backends/registry.h"
#include "layers/storage_fixture.h"
#include "repo_cache/base_tree.h"
#include "repo_cache/repo_cache.h"
#include "state_db/store.h"
#include "workspace/context/context.h"
#include "workspace/context/metrics.h"

namespace moorage::workspace {

struct ContextFixture {
  layers::TemporaryDirectory directory;
  state_db::Store store{[this] {
    state_db::StoreOptions options;
    options.directory = directory.path();
    return options;
  }()};
  backends::Registry registry{[this] {
    backends::BackendOptions options;
    options.name_prefix = "moorage-test-";
    options.images_directory = directory.path() + "/images";
    options.favor_quick_cgroup_moves = false;
    return options;
  }()};
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
