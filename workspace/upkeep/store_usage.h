// The use of the store's disk, part by part; the parts add up to the result of `du` on its
// directory. One thread walks, one run at a time for all callers (base/single_flight.h), for at
// most a minute: a tree that cannot be measured in time counts as last known
// (workspace/changes/measurer.h), and `complete` is false. Base trees never change and are walked
// once. base::tree_usage bounds hostile trees.
#pragma once

#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/single_flight.h"
#include "state_db/tables/repositories.h"
#include "state_db/tables/workspaces.h"
#include "workspace/context/context.h"

namespace moorage::workspace {

enum class StorePart {
  edits,       // writable layers of workspaces, including deleted ones
  snapshots,   // frozen layers: snapshots and merged ones
  archives,    // of workspaces, unless their directory is elsewhere
  journals,    // records and output of commands
  base_trees,  // checkouts shared by workspaces
  mirrors,     // repositories and their indexes
  images,
  sandboxes,
  database,
  reserve,
  lost,   // see workspace/recovery/lost_work.h
  other,  // uploads, our directories, unknown files
};
inline constexpr std::array<std::string_view, 12> kStorePartNames{
    "edits",  "snapshots", "archives", "journals", "base_trees", "mirrors",
    "images", "sandboxes", "database", "reserve",  "lost",       "other"};

struct WorkspaceUse {
  state_db::WorkspaceRow row;
  uint64_t edits_bytes = 0;
  uint64_t snapshot_bytes = 0;
  uint64_t journal_bytes = 0;
  bool complete = true;
};

struct RepositoryUse {
  state_db::RepositoryRow row;
  uint64_t mirror_bytes = 0;
  std::map<std::string, uint64_t> tree_bytes;  // by commit
};

struct StoreUse {
  std::chrono::steady_clock::time_point began{};
  std::chrono::steady_clock::time_point ended{};
  int64_t wall_ms = 0;
  bool complete = true;
  std::vector<WorkspaceUse> workspaces;  // by id; not purged
  std::vector<RepositoryUse> repositories;
  std::array<uint64_t, kStorePartNames.size()> parts{};
  uint64_t& part(StorePart part) { return parts.at(static_cast<size_t>(part)); }
  uint64_t total_bytes() const;
  // How many workspaces, including deleted ones, are based on this tree.
  uint64_t shared_by(base::RepoId repository, const std::string& commit) const;
};

class StoreUsage {
 public:
  explicit StoreUsage(Context& context)
      : context_(context), flights_(1, [this](int64_t) { measure(); }) {}
  void request() { flights_.request(0); }  // never waits
  std::shared_ptr<const StoreUse> last();  // null: never measured

 private:
  class Walk;
  void measure();

  Context& context_;
  std::mutex mutex_;
  std::shared_ptr<const StoreUse> last_;
  // By repository and commit: creation time of the tree, and its bytes. Used by the thread only.
  std::map<std::pair<base::RepoId, std::string>, std::pair<int64_t, uint64_t>> trees_;
  base::SingleFlight flights_;
};

}  // namespace moorage::workspace
