// The dependencies of every verb in this layer: the layers below, the locks and the options, wired
// once in workspace/services. Owns nothing. Lock order: workspace, then repository, then the
// store's own.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "backends/backend.h"
#include "base/keyed_mutex.h"
#include "layers/overlay.h"
#include "state_db/tables/workspaces.h"
#include "workspace/context/live_sandboxes.h"
#include "workspace/context/options.h"

namespace moorage::state_db {
class Store;
}
namespace moorage::repo_cache {
class RepoCache;
class BaseTrees;
}  // namespace moorage::repo_cache
namespace moorage::backends {
class Registry;
}

namespace moorage::workspace {

struct Metrics;

struct Context {
  state_db::Store& store;
  repo_cache::RepoCache& repos;
  repo_cache::BaseTrees& base_trees;
  backends::Registry& backends;
  layers::Storage& storage;
  LiveSandboxes& live;
  base::KeyedMutex& locks;
  Options options;
  Metrics& metrics;
};

// Directory of a repository below repos/, as repo_cache names it.
inline std::string repo_directory(base::RepoId id) { return id.str(); }
// Of repositories that belong to one user; the scope of a shared one is empty.
inline std::string local_scope(uint32_t uid) { return "local:" + std::to_string(uid); }
// Of mirrors that were fetched with a credential of that user.
inline std::string private_scope(uint32_t uid) { return "private:" + std::to_string(uid); }
inline bool is_private(std::string_view scope) { return scope.starts_with("private:"); }
// Local imports have none.
inline bool has_upstream(std::string_view scope) { return scope.empty() || is_private(scope); }

// How a long verb reports its progress to the client: "fetch", "checkout", "start"; percent is -1
// if the total is unknown. Called from any thread.
using Progress =
    std::function<void(const std::string& phase, int percent, const std::string& text)>;

// Joins the key of a request to its subject (workspace/access/keyed_request.h); may be empty.
// Called in the transaction that writes the effect.
using JoinKey = std::function<void(const std::string& subject)>;

// Call in the transaction that writes a new workspace's row: then no row is ever visible before its
// verb holds the lock. So an unfinished row whose lock is free was left by a dead process.
inline base::KeyedMutex::Guard hold_new(Context& context, base::WorkspaceId id,
                                        const std::string& operation) {
  return context.locks.lock(id.str(), operation, std::chrono::milliseconds(0));
}

}  // namespace moorage::workspace
