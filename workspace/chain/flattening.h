// Keeps chains of frozen layers short: merges the lower layers of a deep chain into one
// (layers/merge.h), and puts the layers above on top of the merged one. Snapshots among the merged
// layers keep their own layers; the merged layer hard-links their files, so it costs no contents.
// Merging needs no lock and may take long; the exchange takes one commit. A mount keeps the layers
// that it began with, so the old layers stay until no workspace above the merge has an older mount:
// a stopped one releases them at once, an idle sandbox at its next snapshot.
//
// If merging fails or falls behind, snapshots are refused before the chain is too deep to mount.
// So every snapshot can be started.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>

#include "base/ids.h"
#include "base/single_flight.h"
#include "layers/mounter.h"
#include "workspace/context/context.h"
#include "workspace/repositories/repositories.h"

namespace moorage::workspace {

class Flattening {
 public:
  static constexpr size_t kDeep = 16;  // frozen layers; merging pays off from here on
  // The most that one mount can hold, besides the base tree and the deltas on it.
  static constexpr size_t kMost = layers::Mounter::kMaxLowers - 1 - repo_cache::kMaxDeltas;

  Flattening(Context& context, Repositories& repositories);

  void request(base::WorkspaceId workspace);  // in the background, if there is anything to do
  // Checks that one more frozen layer can be mounted. If not, waits a bounded time for merging.
  // Throws resource_exhausted, with the reason, if no snapshot can be taken.
  void require_room(const state_db::WorkspaceRow& row);
  // Merges now what is deeper than require_room() allows: the store is from an older release.
  // Caller holds the workspace's lock.
  void require_shallow(const state_db::WorkspaceRow& row);

 private:
  void tidy(base::WorkspaceId workspace);
  void flatten(const state_db::WorkspaceRow& row);
  void merge(const state_db::WorkspaceRow& row, const std::vector<base::LayerId>& merged,
             base::LayerId into);

  Context& context_;
  Repositories& repositories_;
  std::mutex mutex_;
  std::condition_variable merged_;
  std::map<base::WorkspaceId, std::string> failures_;  // why the last merge failed
  base::SingleFlight flights_;                         // last member: its work uses the others
};

}  // namespace moorage::workspace
