#include "workspace/snapshot/taker.h"

#include <chrono>
#include <utility>

#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/os/open_beneath.h"
#include "layers/copy.h"
#include "layers/mapped_files.h"
#include "layers/sandbox_mounts.h"
#include "state_db/store.h"
#include "state_db/tables/integrity.h"
#include "state_db/tables/layer_disk.h"
#include "state_db/tables/layers.h"
#include "state_db/tables/sandboxes.h"
#include "workspace/chain/initial_files.h"
#include "workspace/chain/layer_life.h"
#include "workspace/context/free_space.h"
#include "workspace/context/freeze_guard.h"

namespace moorage::workspace {
namespace {

using state_db::SnapshotCause;
using state_db::SnapshotRow;
using state_db::SnapshotState;
using state_db::SnapshotWay;

MOORAGE_CRASH_POINT(after_intent, "snapshot.after_intent");
MOORAGE_CRASH_POINT(after_layers, "snapshot.after_layers");
MOORAGE_CRASH_POINT(after_outcome, "snapshot.after_outcome");
MOORAGE_CRASH_POINT(frozen, "snapshot.frozen");
MOORAGE_CRASH_POINT(copied, "snapshot.copied");
MOORAGE_CRASH_POINT(restack_mounted, "restack.mounted");
MOORAGE_CRASH_POINT(restack_frozen, "restack.frozen");
MOORAGE_CRASH_POINT(restack_exchanged, "restack.exchanged");
MOORAGE_CRASH_POINT(restack_thawed, "restack.thawed");

// Merges (workspace/chain/flattening.h) keep the chain shorter; if they fall behind, snapshots are
// copies, which do not lengthen it. Less than the mountable maximum (layers/mounter.h).
constexpr size_t kDeepest = 48;
// A longer pass leaves as much work to the next one; after a shorter one the last may follow.
constexpr std::chrono::milliseconds kShortPass{20};
// If the load writes faster than we copy, more passes do not help.
constexpr int kMostPasses = 5;

std::vector<base::LayerId> layers_of(
    const std::vector<state_db::WorkspaceTable::Created>& workspaces) {
  std::vector<base::LayerId> layers;
  for (const auto& workspace : workspaces) layers.push_back(workspace.layer);
  return layers;
}

// Both return the microseconds that the sandbox was frozen. Whatever they throw, it keeps running.
// Throws deadline_exceeded: it could not be frozen.
uint64_t copy_live_layer(const layers::LayerCopy::Places& places, const LiveSandbox& running) {
  layers::LayerCopy copy(places, [&] {
    return layers::mapped_inodes(running.backend->members(running.name), places.live);
  });
  for (int pass = 0; pass < kMostPasses; ++pass) {
    const auto begin = std::chrono::steady_clock::now();
    copy.pass();
    if (std::chrono::steady_clock::now() - begin < kShortPass) break;
  }
  uint64_t pause_us = 0;
  {
    FreezeGuard stopped(running);
    frozen.pass();
    copy.finish();
    pause_us = stopped.thaw();
  }
  copied.pass();
  copy.keep_record();
  return pause_us;
}

// In one step by the file system (btrfs), after its dirty data was written while it ran. Durable.
uint64_t clone_live_layer(layers::Storage& storage, base::LayerId live, base::LayerId copy,
                          const LiveSandbox& running) {
  base::sync_file_system(storage.layer_path(live));
  uint64_t pause_us = 0;
  {
    FreezeGuard stopped(running);
    frozen.pass();
    storage.clone_layer(live, copy);
    pause_us = stopped.thaw();
  }
  copied.pass();
  return pause_us;
}

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

// Whether a try is worthwhile: the chain is short, and no process visibly holds the mounts.
bool may_restack(Context& context, const state_db::WorkspaceRow& row, const LiveSandbox& running) {
  return running.backend->known_capabilities().restack &&
         state_db::LayerTable(context.store).chain(row.layer).size() < kDeepest &&
         !hold_mounts(running.backend->members(running.name), running.mounted->mounts);
}

struct Restacked {
  std::shared_ptr<const LiveSandbox> running;
  uint64_t pause_us = 0;
};

// The way of a snapshot when nothing inside holds the mounts of tree and home: the sandbox gets new
// mounts on the next writable layer and keeps running. Callers from outside wait meanwhile
// (LiveSandboxes::Exchange). The layer must exist. Afterwards only callers that requested `running`
// again use the mounts. Null: a process holds them; nothing changed, including taking.next_layer.
// After an exception, the old mounts are still in place or the sandbox was ended. The caller gives
// up its own reference.
std::optional<Restacked> restack(Context& context, Chains& chains, Sandboxes& sandboxes,
                                 const state_db::SnapshotRow& taking,
                                 const state_db::WorkspaceRow& row,
                                 std::shared_ptr<const LiveSandbox> running) {
  const auto name = running->name;
  SharedMounts next{chains.mount_for(row, taking.next_layer, *running),
                    running->mounted->user_host_id, row.owner_uid};
  const auto give_up = [&] {
    context.live.share(row.id, std::move(next));  // unmounts there, which may wait for the disk
    return std::nullopt;
  };
  restack_mounted.pass();
  auto exchange = context.live.begin_exchange(std::move(running));
  if (!exchange) return give_up();
  const LiveSandbox& before = exchange->running();
  uint64_t pause_us = 0;
  try {
    FreezeGuard stopped(before);
    restack_frozen.pass();
    if (hold_mounts(before.backend->members(name), before.mounted->mounts) ||
        !exchange_sandbox_mounts(before.init, next.mounts)) {
      return give_up();
    }
    restack_exchanged.pass();
    pause_us = stopped.thaw();
  } catch (const base::Error&) {
    const bool ends = !is_unchanged(before);
    const auto sandbox = before.sandbox;
    exchange.reset();  // ending it needs the reference
    if (ends) {
      sandboxes.clear(state_db::SandboxTable(context.store).get(sandbox),
                      "its mounts could not be replaced");
    }
    throw;
  }
  restack_thawed.pass();
  auto after = std::make_shared<LiveSandbox>(before);
  after->mounted = context.live.share(row.id, std::move(next));
  exchange->done(after);
  return Restacked{after, pause_us};
}

}  // namespace

// The way for a copy beside the chain.
SnapshotWay SnapshotTaker::beside(const state_db::WorkspaceRow& row) const {
  return context_.storage.clones_layer(row.layer) ? SnapshotWay::subvolume : SnapshotWay::copy;
}

// Chooses the way, and waits until it is possible.
SnapshotWay SnapshotTaker::choose_way(const state_db::WorkspaceRow& row, bool continues_elsewhere) {
  SnapshotWay way = SnapshotWay::at_rest;
  if (const auto running = context_.live.running(row.id)) {
    way = may_restack(context_, row, *running) ? SnapshotWay::restack : beside(row);
    // Other mounts here would not change the files on another machine.
    if (continues_elsewhere && (running->remote || !in_place(way)))
      throw Error(Code::conflict, row.name + " is in use");
  } else {
    context_.live.wait_unmounted(row.id, context_.options.transfer_patience);
  }
  if (in_place(way)) flattening_.require_room(row);
  return way;
}

SnapshotRow SnapshotTaker::take(const state_db::WorkspaceRow& present, state_db::NewSnapshot wanted,
                                std::vector<state_db::NewWorkspace> forks,
                                std::vector<base::WorkspaceId>* made, std::string* notice) {
  require_room(context_.options, "cannot take a snapshot");
  // Of another machine's files as they are there now, or as far as they are known here.
  if (auto behind = remote_.refresh(present.id); !behind.empty()) {
    base::log(base::LogLevel::warning, "snapshot.behind", {{"ws", present.id}, {"why", behind}});
    if (notice) *notice = std::move(behind);
  }
  const auto still = incoming_.pause(present.id, "taking a snapshot");
  const auto row = chains_.settled(present);
  wanted.workspace = row.id;
  wanted.way = choose_way(row, static_cast<bool>(wanted.next_on));
  state_db::SnapshotTable table(context_.store);
  if (wanted.next_on) require_durable(table.get(wanted.next_on));
  std::vector<base::KeyedMutex::Guard> at_work;  // locks on the forks until they are ready
  Taking taking;
  taking.row = context_.store.transaction([&] {
    const SnapshotRow begun = table.begin(wanted);
    taking.forks = begin_forks(begun.id, forks, at_work);
    return begun;
  });
  after_intent.pass();
  try {
    make(row, taking);
    after_layers.pass();
    record(row, taking);
  } catch (Error& error) {
    // Commands already write to the next layer, so the next verb finishes it (settled()).
    if (taking.exchanged) throw error.add_context("cannot record the snapshot");
    undo(taking.row, taking.forks, error.message());
    throw error.add_context("cannot take a snapshot of " + row.name);
  }
  after_outcome.pass();
  flattening_.request(row.id);
  if (made) {
    for (const auto& fork : taking.forks) made->push_back(fork.id);
  }
  const SnapshotRow taken = table.get(taking.row.id);
  base::log(base::LogLevel::info, "snapshot.taken",
            {{"ws", row.id},
             {"sn", taken.id},
             {"way", state_db::way_name(taken.way)},
             {"cause", state_db::cause_name(taken.cause)},
             {"pause_us", taken.pause_us}});
  return taken;
}

// Everything between the intent and the outcome.
void SnapshotTaker::make(const state_db::WorkspaceRow& row, Taking& taking) {
  const bool was_in_place = in_place(taking.row.way);
  auto upon = layers_of(taking.forks);
  if (was_in_place) {
    sync_initial_files(context_, row);
    upon.push_back(taking.row.next_layer);
    // Do this before commands write to the next layer: after that nothing may fail.
    make_layers(context_, upon);
  }
  if (taking.row.way == SnapshotWay::restack) exchange(row, taking);
  if (!in_place(taking.row.way))
    taking.pause_us = make_copy(taking.row, row, *context_.live.running(row.id));
  if (!was_in_place) make_layers(context_, upon);
  // Forks based on a copy must not lose data that the original has on disk.
  taking.synced = taking.row.way == SnapshotWay::copy && !taking.forks.empty();
  if (taking.synced) base::sync_file_system(context_.options.store);
}

// By restack; if a process holds the mounts, the snapshot becomes a copy.
void SnapshotTaker::exchange(const state_db::WorkspaceRow& row, Taking& taking) {
  if (auto done =
          restack(context_, chains_, sandboxes_, taking.row, row, context_.live.running(row.id))) {
    taking.running = std::move(done->running);
    taking.pause_us = done->pause_us;
    taking.exchanged = true;
  } else if (taking.row.next_on) {
    throw Error(Code::conflict, "a process in " + row.name + " keeps its files open");
  } else {
    taking.row = state_db::SnapshotTable(context_.store).become_copy(taking.row.id, beside(row));
  }
}

void SnapshotTaker::record(const state_db::WorkspaceRow& row, const Taking& taking) {
  const SnapshotWay way = taking.row.way;
  const bool rests = way == SnapshotWay::at_rest;
  const auto seal =
      rests ? integrity_.take(row.id, taking.row.next_layer) : IntegrityCheck::Taken{};
  context_.store.transaction([&] {
    state_db::SnapshotTable table(context_.store);
    state_db::IntegrityTable integrity(context_.store);
    const bool was_sealed = !integrity.get(row.id).seal.empty();
    table.finish(taking.row.id, taking.pause_us);
    // Only synced data is ever sealed.
    if (taking.synced || way == SnapshotWay::subvolume || (rests && was_sealed))
      table.set_durable(taking.row.id);
    if (way == SnapshotWay::restack) {
      const layers::ActiveMounts& mounts = taking.running->mounted->mounts;
      state_db::SandboxTable(context_.store)
          .set_devices(taking.running->sandbox, mounts.tree_device, mounts.home_device);
    }
    if (rests) integrity.set_seal(row.id, was_sealed && seal.seal ? seal.seal->hash : "");
    state_db::WorkspaceTable workspaces(context_.store);
    for (const auto& fork : taking.forks) workspaces.set_ready(fork.id);
  });
}

void SnapshotTaker::undo(const SnapshotRow& taking,
                         const std::vector<state_db::WorkspaceTable::Created>& forks,
                         const std::string& reason) {
  state_db::WorkspaceTable table(context_.store);
  for (const auto& fork : forks) {
    if (const auto row = table.get(fork.id); row.state == state_db::WorkspaceState::creating)
      abandon(context_, row, reason);
  }
  state_db::SnapshotTable(context_.store).undo(taking.id, reason);
  collect_layers(context_);
}

uint64_t SnapshotTaker::make_copy(const SnapshotRow& taking, const state_db::WorkspaceRow& row,
                                  const LiveSandbox& running) {
  if (taking.way == SnapshotWay::subvolume) {
    context_.storage.remove_layer(taking.layer);  // left from a failed restack
    return clone_live_layer(context_.storage, row.layer, taking.layer, running);
  }
  context_.storage.make_layer(taking.layer);
  layers::LayerCopy::Places places{.live = context_.storage.layer_path(row.layer),
                                   .copy = context_.storage.layer_path(taking.layer)};
  state_db::LayerTable layers(context_.store);
  if (taking.parent) {
    // Share with the previous snapshot if it copied the same layer.
    const auto earlier = state_db::SnapshotTable(context_.store).get(taking.parent);
    const bool same = earlier.workspace == row.id && earlier.way == SnapshotWay::copy &&
                      earlier.layer &&
                      layers.get(earlier.layer).parent == layers.get(row.layer).parent;
    if (same) {
      places.earlier = context_.storage.layer_path(earlier.layer);
      state_db::LayerDisk(context_.store).share({taking.layer, earlier.layer});
    }
  }
  return copy_live_layer(places, running);
}

// A power cut may damage a copy although the original was on disk long before; so nothing may be
// based on a copy that is not durable.
void SnapshotTaker::require_durable(const SnapshotRow& snapshot) {
  if (snapshot.durable || snapshot.way != SnapshotWay::copy) return;
  base::sync_file_system(context_.options.store);
  state_db::SnapshotTable(context_.store).set_durable(snapshot.id);
}

// Writes their rows in the caller's transaction.
std::vector<state_db::WorkspaceTable::Created> SnapshotTaker::begin_forks(
    base::SnapshotId origin, std::vector<state_db::NewWorkspace>& forks,
    std::vector<base::KeyedMutex::Guard>& at_work) {
  std::vector<state_db::WorkspaceTable::Created> complete;
  for (auto& fork : forks) {
    fork.forked_from = origin;
    complete.push_back(state_db::WorkspaceTable(context_.store).create(fork));
    at_work.push_back(hold_new(context_, complete.back().id, "fork"));
  }
  return complete;
}

// Forks from an existing snapshot.
std::vector<base::WorkspaceId> SnapshotTaker::fork_from(const SnapshotRow& snapshot,
                                                        std::vector<state_db::NewWorkspace> forks) {
  require_room(context_.options, "cannot create a fork");
  require_durable(snapshot);
  state_db::WorkspaceTable table(context_.store);
  std::vector<base::WorkspaceId> made;
  std::vector<base::KeyedMutex::Guard> at_work;
  const auto complete =
      context_.store.transaction([&] { return begin_forks(snapshot.id, forks, at_work); });
  after_intent.pass();
  try {
    make_layers(context_, layers_of(complete));
    after_layers.pass();
    context_.store.transaction([&] {
      for (const auto& fork : complete) table.set_ready(fork.id);
    });
  } catch (const Error& error) {
    for (const auto& fork : complete) abandon(context_, table.get(fork.id), error.message());
    throw;
  }
  after_outcome.pass();
  for (const auto& fork : complete) made.push_back(fork.id);
  return made;
}

// True if nothing was written since the snapshot below it.
bool SnapshotTaker::is_empty(base::LayerId layer) const {
  const std::string path = context_.storage.layer_path(layer);
  return base::directory_is_empty(path + "/tree/upper") &&
         base::directory_is_empty(path + "/home/upper");
}

base::SnapshotId SnapshotTaker::before_exec(const state_db::WorkspaceRow& row) {
  const auto guard = context_.locks.lock(row.id.str(), "snapshot before a command");
  const auto current = state_db::WorkspaceTable(context_.store).get(row.id);
  if (current.state != state_db::WorkspaceState::ready) return {};  // it is being unarchived
  return take(current, {.cause = SnapshotCause::before_exec}).id;
}

SnapshotRow SnapshotTaker::for_export(const state_db::WorkspaceRow& row) {
  return take(row, {.cause = SnapshotCause::export_});
}

void SnapshotTaker::after_stop(const state_db::WorkspaceRow& row) {
  if (context_.live.mounted(row.id)) return;
  flattening_.request(row.id);
  if (!row.policy.snapshot_on_stop) return;
  try {
    if (is_empty(row.layer)) return;
    take(row, {.cause = SnapshotCause::on_stop});
  } catch (const Error& error) {  // the stop itself succeeded
    base::log(base::LogLevel::warning, "snapshot.not_taken",
              {{"ws", row.id}, {"cause", "on-stop"}, {"error", error.message()}});
  }
}

void SnapshotTaker::take_interval(base::WorkspaceId id) {
  const auto guard = context_.locks.lock(id.str(), "snapshot", std::chrono::milliseconds(0));
  const auto row = state_db::WorkspaceTable(context_.store).get(id);
  if (row.state == state_db::WorkspaceState::ready) take(row, {.cause = SnapshotCause::interval});
}

}  // namespace moorage::workspace
