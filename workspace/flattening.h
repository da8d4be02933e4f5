// Chains of frozen layers are kept short: the lower ones of a deep chain are merged into one
// (layer_merge.h), and what stood on the last of them stands on that. Snapshots among the merged
// ones keep their own layers, of which the merged one has second names, so it costs no contents.
// Merging needs no lock and takes as long as it takes; the exchange takes one commit. A mount goes
// on with the layers that it began with, so these stay until nobody who stands above the merge has
// a mount of before it: at rest at once, in an idle sandbox from its next snapshot on.
#pragma once

#include <cstddef>

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
  // Now. Caller holds the workspace's lock.
  void require_shallow(const state_db::WorkspaceRow& row);

 private:
  void tidy(base::WorkspaceId workspace);
  void flatten(const state_db::WorkspaceRow& row);
  void merge(const state_db::WorkspaceRow& row, const std::vector<base::LayerId>& merged,
             base::LayerId into);

  Context& context_;
  Repositories& repositories_;
  Active& active_;
  base::Flights flights_;  // last: its work uses the rest
};

}  // namespace moorage::workspace
