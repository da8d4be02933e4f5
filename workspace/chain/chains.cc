#include "workspace/chain/chains.h"

#include "base/error.h"
#include "layers/home_skeleton.h"
#include "state_db/store.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/snapshots.h"
#include "workspace/chain/initial_files.h"
#include "workspace/chain/layer_life.h"
#include "workspace/context/checks.h"
#include "workspace/context/disk_use.h"

namespace moorage::workspace {
namespace {

// Files of a stopped workspace are read one by one; do not compare it again for each.
constexpr std::chrono::milliseconds kComparedFor{10'000};

}  // namespace

state_db::WorkspaceRow Chains::settled(const state_db::WorkspaceRow& row) {
  if (const auto taking = state_db::SnapshotTable(context_.store).taking(row.id))
    settle_snapshot(context_, *taking);
  return state_db::WorkspaceTable(context_.store).get(row.id);
}

layers::Chain Chains::chain(const state_db::WorkspaceRow& row, Compare compare) {
  const auto current = settled(row);
  require_ready(current);
  flattening_.require_shallow(current);
  integrity_.look(current,
                  compare == Compare::always ? std::chrono::milliseconds(0) : kComparedFor);
  repair_initial_files(context_, current);
  return at(current, current.layer);
}

layers::Chain Chains::at(const state_db::WorkspaceRow& row, base::LayerId layer) {
  layers::Chain chain;
  chain.writable = layer;
  chain.limit = DiskUse(context_).limit_of_writable(row, layer);
  for (const auto& lower : state_db::LayerTable(context_.store).chain(layer)) {
    if (lower.id != layer) chain.frozen.push_back(lower.id);
  }
  const auto base = base_tree_of(row);
  chain.base_tree = base.tree;
  chain.deltas = base.deltas;
  chain.base_in_use = base.in_use;
  chain.image_home =
      layers::ensure_home_skeleton(context_.options.store, context_.options.disk_first_id);
  return chain;
}

// A mirror that lost the commit is updated from upstream once, which rebuilds a broken one.
repo_cache::BaseTreePlaces Chains::base_tree_of(const state_db::WorkspaceRow& row) {
  const auto is_loss = [](const Error& error) {
    return error.code() == Code::corrupted || error.code() == Code::not_found;
  };
  try {
    return repositories_.ensure_base_tree(row.repository, row.base_commit, {});
  } catch (const Error& error) {
    if (!is_loss(error)) throw;
  }
  try {
    repositories_.fetch(row.repository, {});
    return repositories_.ensure_base_tree(row.repository, row.base_commit, {});
  } catch (const Error& error) {
    if (!is_loss(error) && error.code() != Code::unsupported && error.code() != Code::unavailable)
      throw;
    integrity_.lose_base(row, error);
  }
}

// On a full disk it uses the reserve, because a workspace must start for its files to be removed.
// If the reserve is used up as well, it mounts in `last`.
layers::ActiveMounts Chains::mount(const layers::Chain& layers, uint32_t first_host_id,
                                   layers::MountRoom last) {
  // Set the limit here, because every writer passes here: changed limits then apply.
  context_.storage.quota().limit(layers.writable, context_.storage.layer_path(layers.writable),
                                 layers.limit);
  try {
    return context_.storage.mount(layers, first_host_id);
  } catch (const Error& error) {
    if (error.code() != Code::resource_exhausted) throw;
    if (!context_.store.give_room() && last == layers::MountRoom::everybodys) throw;
    return context_.storage.mount(layers, first_host_id, last);
  }
}

layers::ActiveMounts Chains::mount_for(const state_db::WorkspaceRow& row, base::LayerId layer,
                                       const LiveSandbox& running) {
  return mount(at(row, layer), running.mounted->user_host_id - layers::kUser);
}

SharedMounts Chains::mount_rest(const state_db::WorkspaceRow& row) {
  const auto current = settled(row);
  const uint32_t first = context_.options.disk_first_id;
  return {mount(at(current, current.layer), first, layers::MountRoom::roots), first + layers::kUser,
          current.owner_uid};
}

}  // namespace moorage::workspace
