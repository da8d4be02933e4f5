// Chains of frozen layers are kept short: the lower ones of a deep chain are merged into one
// (layer_merge.h), and what stood on the last of them stands on that. Snapshots among the merged
// ones keep their own layers, of which the merged one has second names, so it costs no contents.
// Merging needs no lock and takes as long as it takes; the exchange takes one commit. A mount goes
// on with the layers that it began with, so these stay until nobody who stands above the merge has
// a mount of before it: at rest at once, in an idle sandbox from its next snapshot on.
//
// Where merging fails, or does not keep up, snapshots are refused before the chain is deeper than
// what can be mounted. So whatever was snapshot can be started.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>

#include "base/flights.h"
#include "base/ids.h"
#include "workspace/active.h"
#include "workspace/context.h"
#include "workspace/mounter.h"
#include "workspace/repositories.h"

namespace moorage::workspace {

class Flattening {
 public:
  static constexpr size_t kDeep = 16;  // frozen layers; from here on it is worth it
  // Of which a mount can be made: with the base tree and the deltas on it.
  static constexpr size_t kMost = Mounter::kMaxLowers - 1 - repo_cache::kMaxDeltas;

  Flattening(Context& context, Repositories& repositories, Active& active);

  void request(base::WorkspaceId workspace);  // in the background, if there is anything to do
  // Whether one more frozen layer can be mounted, too. If not it is waited for what merging brings,
  // for a bounded time. resource_exhausted: no snapshot may be taken, and why.
  void require_room(const state_db::WorkspaceRow& row);
  // Merges now what is deeper than require_room() lets it become: a store of an older release.
  // Caller holds the workspace's lock.
  void require_shallow(const state_db::WorkspaceRow& row);

 private:
  bool has_room(const state_db::WorkspaceRow& row);
  void tidy(base::WorkspaceId workspace);
  void flatten(const state_db::WorkspaceRow& row);
  void merge(const state_db::WorkspaceRow& row, const std::vector<base::LayerId>& merged,
             base::LayerId into);

  Context& context_;
  Repositories& repositories_;
  Active& active_;
  std::mutex mutex_;
  std::condition_variable merged_;
  std::map<base::WorkspaceId, std::string> failures_;  // why the last merge was none
  base::Flights flights_;                              // last: its work uses the rest
};

}  // namespace moorage::workspace
