// Reads the changes of workspaces (changes.h) without a lock. Layers may be merged or archived
// meanwhile, and reading them then finds too few changes: such a read is repeated.
#pragma once

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/workspaces.h"
#include "workspace/changes/changes.h"
#include "workspace/context/checks.h"
#include "workspace/context/context.h"

namespace moorage::workspace {

// Conflict if the workspace is not ready.
inline ChangeSource change_source(const Context& context, const state_db::WorkspaceRow& row) {
  require_ready(row);
  ChangeSource source;
  source.repo_dir = repo_directory(row.repository);
  source.base_commit = row.base_commit;
  source.head_commit = row.head_commit;
  source.moved_commit = row.moved_commit;
  for (const auto& layer : state_db::LayerTable(context.store).chain(row.layer)) {
    source.uppers.push_back(context.storage.layer_path(layer.id) + "/tree/upper");
  }
  return source;
}

// Whether all layers that it names still belonged to the workspace after reading.
inline bool is_still_whole(const Context& context, base::WorkspaceId id,
                           const ChangeSource& source) {
  const auto now = change_source(context, state_db::WorkspaceTable(context.store).get(id)).uppers;
  // New layers may be on top of them.
  return now.size() >= source.uppers.size() &&
         std::equal(source.uppers.rbegin(), source.uppers.rend(), now.rbegin());
}

// Calls `look` with the sources of these workspaces in their order. Conflict if they change during
// every attempt.
template <typename Look>
auto look_at_changes(const Context& context, const std::vector<base::WorkspaceId>& ids,
                     const Look& look) {
  constexpr int kLooks = 4;
  for (int n = 0; n < kLooks; ++n) {
    std::vector<ChangeSource> sources;
    for (const auto id : ids)
      sources.push_back(change_source(context, state_db::WorkspaceTable(context.store).get(id)));
    const auto whole = [&] {
      return std::equal(ids.begin(), ids.end(), sources.begin(), [&](auto id, const auto& source) {
        return is_still_whole(context, id, source);
      });
    };
    try {
      auto found = look(sources);
      if (whole()) return found;
    } catch (const base::Error&) {
      if (whole()) throw;
    }
  }
  throw base::Error(base::Code::conflict, "its layers were merged while they were read",
                    "try again");
}

}  // namespace moorage::workspace
