// Restores a store from a replica (replica.h) on a machine without that store: the newest sound
// copy of the database, and every tree that belongs to it. Damaged or missing parts are reported by
// name and marked; everything else is restored. The replica is only read. It needs no daemon and
// locks the store's directory as a daemon would. state.db gets its name last, so an interrupted
// restore leaves no startable store.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "layers/overlay.h"

namespace moorage::repo_cache {
class RepoCache;
}

namespace moorage::workspace {

struct RestoreOptions {
  std::string replica;
  std::string store;              // created if missing; must be empty
  std::string archive_directory;  // may be elsewhere, with archives that survived
  uint32_t disk_first_id = 0;
  unsigned threads = 4;
  repo_cache::RepoCache* repos = nullptr;  // of the store
  layers::Storage* storage = nullptr;      // the same
  std::function<void(const std::string& line)> tell;
};

struct RestoreReport {
  std::string store_id;
  int64_t wall_ms = 0;                // when the copy was made
  std::vector<std::string> warnings;  // such as a newer copy that is damaged
  std::vector<std::string> lost;      // a sentence each, with the affected workspaces
  uint64_t workspaces = 0;
  uint64_t layers = 0;
  uint64_t entries = 0;
};

// invalid_argument: the store is not empty. corrupted: no copy of the database is sound.
void require_empty_store(const std::string& store);
RestoreReport restore_store(const RestoreOptions& options);

}  // namespace moorage::workspace
