// Makes a store of a copy elsewhere (replica.h), on a machine that has nothing of it: the newest
// copy of the database that is sound, and every tree as it belongs to that. What is damaged or
// missing is told by name and marked, and all else comes back. The copy is only read. Needs no
// daemon; the store's directory is locked as a daemon would. state.db gets its name last, so a
// restore that was cut leaves no store that could be started.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "workspace/overlay.h"

namespace moorage::repo_cache {
class RepoCache;
}

namespace moorage::workspace {

struct RestoreOptions {
  std::string replica;
  std::string store;              // made, or empty
  std::string archive_directory;  // perhaps elsewhere, and with archives in it that survived
  uint32_t disk_first_id = 0;
  unsigned threads = 4;
  repo_cache::RepoCache* repos = nullptr;  // of the store
  Storage* storage = nullptr;              // the same
  std::function<void(const std::string& line)> tell;
};

struct RestoreReport {
  std::string store_id;
  int64_t wall_ms = 0;                // when the copy was made
  std::vector<std::string> warnings;  // such as a newer copy that is damaged
  std::vector<std::string> lost;      // a sentence each, with who it concerns
  uint64_t workspaces = 0;
  uint64_t layers = 0;
  uint64_t entries = 0;
};

// invalid_argument: the store is not empty. corrupted: no copy of the database is sound.
void require_empty_store(const std::string& store);
RestoreReport restore_store(const RestoreOptions& options);

}  // namespace moorage::workspace
