#include "workspace/changes/stable_read.h"

#include "state_db/store.h"
#include "state_db/tables/layers.h"
#include "workspace/context/checks.h"

namespace moorage::workspace {

ChangeSource change_source(const Context& context, const state_db::WorkspaceRow& row) {
  require_ready(row);
  ChangeSource source;
  source.repo_dir = repo_directory(row.repository);
  source.base_commit = row.base_commit;
  for (const auto& layer : state_db::LayerTable(context.store).chain(row.layer)) {
    source.uppers.push_back(context.storage.layer_path(layer.id) + "/tree/upper");
  }
  return source;
}

bool is_still_whole(const Context& context, base::WorkspaceId id, const ChangeSource& source) {
  const auto now = change_source(context, state_db::WorkspaceTable(context.store).get(id)).uppers;
  // New layers may be on top of them.
  return now.size() >= source.uppers.size() &&
         std::equal(source.uppers.rbegin(), source.uppers.rend(), now.rbegin());
}

}  // namespace moorage::workspace
