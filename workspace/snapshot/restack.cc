#include "workspace/snapshot/restack.h"

#include <utility>

#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "layers/sandbox_mounts.h"
#include "state_db/store.h"
#include "state_db/tables/layers.h"
#include "workspace/context/freeze_guard.h"

namespace moorage::workspace {
namespace {

MOORAGE_CRASH_POINT(mounted, "restack.mounted");
MOORAGE_CRASH_POINT(frozen, "restack.frozen");
MOORAGE_CRASH_POINT(exchanged, "restack.exchanged");
MOORAGE_CRASH_POINT(thawed, "restack.thawed");

// Merges (workspace/chain/flattening.h) keep the chain shorter; if they fall behind, snapshots are
// copies, which do not lengthen it. Less than the mountable maximum (layers/mounter.h).
constexpr size_t kDeepest = 48;

// Whether the sandbox still has its previous mounts.
bool is_unchanged(const LiveSandbox& running) {
  try {
    const layers::ActiveMounts now = layers::copy_sandbox_mounts(running.init);
    const layers::ActiveMounts& before = running.mounted->mounts;
    return now.tree_device == before.tree_device && now.home_device == before.home_device;
  } catch (const base::Error&) {  // process 1 is gone or lacks the mount
    return false;
  }
}

}  // namespace

bool Restack::is_likely(const state_db::WorkspaceRow& row, const LiveSandbox& running) {
  return running.backend->known_capabilities().restack &&
         state_db::LayerTable(context_.store).chain(row.layer).size() < kDeepest &&
         !hold_mounts(running.backend->members(running.name), running.mounted->mounts);
}

std::optional<Restack::Done> Restack::exchange(const state_db::SnapshotRow& taking,
                                               const state_db::WorkspaceRow& row,
                                               std::shared_ptr<const LiveSandbox> running) {
  const auto name = running->name;
  SharedMounts next{chains_.mount_for(row, taking.next_layer, *running),
                    running->mounted->user_host_id, row.owner_uid};
  const auto give_up = [&] {
    context_.live.share(row.id, std::move(next));  // unmounts there, which may wait for the disk
    return std::nullopt;
  };
  mounted.pass();
  auto exchange = context_.live.begin_exchange(std::move(running));
  if (!exchange) return give_up();
  const LiveSandbox& before = exchange->running();
  uint64_t pause_us = 0;
  try {
    FreezeGuard stopped(before);
    frozen.pass();
    if (hold_mounts(before.backend->members(name), before.mounted->mounts) ||
        !exchange_sandbox_mounts(before.init, next.mounts)) {
      return give_up();
    }
    exchanged.pass();
    pause_us = stopped.thaw();
  } catch (const base::Error&) {
    const bool ends = !is_unchanged(before);
    const auto sandbox = before.sandbox;
    exchange.reset();  // ending it needs the reference
    if (ends) {
      sandboxes_.clear(state_db::SandboxTable(context_.store).get(sandbox),
                       "its mounts could not be replaced");
    }
    throw;
  }
  thawed.pass();
  auto after = std::make_shared<LiveSandbox>(before);
  after->mounted = context_.live.share(row.id, std::move(next));
  exchange->done(after);
  return Done{after, pause_us};
}

}  // namespace moorage::workspace
