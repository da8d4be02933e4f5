#include "workspace/flattening.h"

#include <vector>

#include "base/crash_point.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "state_db/layers.h"
#include "state_db/store.h"
#include "workspace/birth.h"
#include "workspace/layer_collection.h"
#include "workspace/layer_merge.h"
#include "workspace/reconcile_step.h"

namespace moorage::workspace {
namespace {

using base::LayerId;

MOORAGE_CRASH_POINT(after_intent, "flatten.after_intent");
MOORAGE_CRASH_POINT(after_files, "flatten.after_files");
MOORAGE_CRASH_POINT(after_outcome, "flatten.after_outcome");

constexpr size_t kMergers = 1;
// The newest stay as they are: what is merged now need not be merged again by the next snapshot.
constexpr size_t kLeft = 4;

}  // namespace

Flattening::Flattening(Context& context, Repositories& repositories, Active& active)
    : context_(context),
      repositories_(repositories),
      active_(active),
      flights_(kMergers, [this](int64_t key) {
        attempt("layers.flatten", base::WorkspaceId{key}.str(),
                [&] { tidy(base::WorkspaceId{key}); });
      }) {}

void Flattening::request(base::WorkspaceId workspace) {
  const auto row = state_db::Workspaces(context_.store).find(workspace);
  if (!row || !row->layer) return;
  state_db::Layers table(context_.store);
  if (table.chain(row->layer).size() > kDeep + 1 || !table.replaced().empty())
    flights_.request(workspace.value);
}

void Flattening::require_shallow(const state_db::WorkspaceRow& row) {
  if (state_db::Layers(context_.store).chain(row.layer).size() > kMost + 1) flatten(row);
}

void Flattening::tidy(base::WorkspaceId workspace) {
  // The verb that asked for it ends first.
  context_.locks.lock(workspace.str(), "flatten");
  const auto row = state_db::Workspaces(context_.store).get(workspace);
  if (row.state == state_db::WorkspaceState::ready) flatten(row);
  release_replaced_layers(context_, active_);
  collect_layers(context_);
}

void Flattening::flatten(const state_db::WorkspaceRow& row) {
  state_db::Layers table(context_.store);
  const auto chain = table.chain(row.layer);
  if (chain.size() <= kDeep + 1) return;
  std::vector<LayerId> merged;
  for (size_t n = kLeft + 1; n < chain.size(); ++n) merged.push_back(chain[n].id);

  // Nothing stands on it before the end, and collection leaves alone what is locked.
  base::KeyedMutex::Guard making;
  const LayerId into = context_.store.transaction([&] {
    const LayerId made =
        table.create({.parent = {}, .repository = row.repository, .base_commit = row.base_commit});
    making = context_.locks.lock(made.str(), "merge", std::chrono::milliseconds(0));
    table.freeze(made);
    return made;
  });
  after_intent.pass();
  merge(row, merged, into);
  after_files.pass();
  try {
    table.exchange_parent(chain[kLeft].id, merged.front(), into);
  } catch (const base::Error& error) {
    if (error.code() != base::Code::conflict) throw;
    return;  // a merge for another workspace was there first, and this one is collected
  }
  after_outcome.pass();
  base::log(base::LogLevel::info, "layers.flattened",
            {{"ws", row.id}, {"ly", into}, {"of", merged.size()}});
}

void Flattening::merge(const state_db::WorkspaceRow& row, const std::vector<LayerId>& merged,
                       LayerId into) {
  context_.storage.make_layer(into);
  const std::string made = context_.storage.layer_path(into);
  const auto merge_part = [&](const std::string& part, const repo_cache::BaseTreePlaces& base) {
    MergeParts parts;
    for (const LayerId layer : merged)
      parts.uppers.push_back(context_.storage.layer_path(layer) + part + "/upper");
    parts.base = base.tree;
    parts.deltas = base.deltas;
    parts.merged = made + part + "/upper";
    merge_layers(parts);
  };
  merge_part("/tree", repositories_.ensure_base_tree(row.repository, row.base_commit, {}));
  merge_part("/home", {ensure_home_skeleton(context_.options), {}});
  merge_part("/system", {});
  base::sync_file_system(made);
}

}  // namespace moorage::workspace
