#include "workspace/flattening.h"

#include <algorithm>
#include <optional>
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

using base::Code;
using base::Error;
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
                [&] { flatten(base::WorkspaceId{key}, Held::no); });
      }) {}

void Flattening::request(base::WorkspaceId workspace) {
  const auto row = state_db::Workspaces(context_.store).find(workspace);
  if (!row || !row->layer) return;
  if (state_db::Layers(context_.store).chain(row->layer).size() > kDeep + 1)
    flights_.request(workspace.value);
}

void Flattening::require_shallow(const state_db::WorkspaceRow& row) {
  if (state_db::Layers(context_.store).chain(row.layer).size() > kMost + 1)
    flatten(row.id, Held::by_caller);
}

void Flattening::flatten(base::WorkspaceId workspace, Held held) {
  const auto row = state_db::Workspaces(context_.store).get(workspace);
  if (row.state != state_db::WorkspaceState::ready) return;
  state_db::Layers table(context_.store);
  const auto chain = table.chain(row.layer);
  if (chain.size() <= kDeep + 1) return;
  const auto is_free = [&](LayerId layer) {
    const auto above = table.workspaces_on(layer);
    return std::none_of(above.begin(), above.end(),
                        [&](base::WorkspaceId id) { return active_.mounted(id); });
  };
  // What keeps its place: the lowest such that nobody above it is at work.
  size_t top = std::min(kLeft, chain.size() - 2);
  while (top > 0 && !is_free(chain[top].id)) --top;
  if (!is_free(chain[top].id)) return;  // the next snapshot, or start, asks again
  std::vector<LayerId> merged;
  for (size_t n = top + 1; n < chain.size(); ++n) merged.push_back(chain[n].id);
  if (merged.size() < 2) return;

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
  try {
    merge(row, merged, into);
    after_files.pass();
    std::vector<base::KeyedMutex::Guard> guards;
    for (const auto id : table.workspaces_on(chain[top].id)) {
      if (held == Held::by_caller && id == workspace) continue;
      auto guard = lock_if_free(context_, id.str());
      if (!guard) throw Error(Code::conflict, id.str() + " is at work");
      guards.push_back(*std::move(guard));
    }
    if (!is_free(chain[top].id)) throw Error(Code::conflict, "one that stands on it was started");
    table.exchange_parent(chain[top].id, merged.front(), into);
  } catch (const Error& error) {
    making.unlock();
    collect_layers(context_);
    if (error.code() != Code::conflict) throw;
    if (held == Held::no) return;  // the next snapshot, or start, asks again
    throw;
  }
  after_outcome.pass();
  making.unlock();
  base::log(base::LogLevel::info, "layers.flattened",
            {{"ws", workspace}, {"ly", into}, {"of", merged.size()}});
  collect_layers(context_);
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
