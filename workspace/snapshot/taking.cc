// How a snapshot is taken, and how a workspace continues from another snapshot.
#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/os/open_beneath.h"
#include "layers/copy.h"
#include "state_db/store.h"
#include "state_db/tables/layer_disk.h"
#include "state_db/tables/layers.h"
#include "workspace/chain/initial_files.h"
#include "workspace/chain/new_layers.h"
#include "workspace/chain/unused_layers.h"
#include "workspace/context/free_space.h"
#include "workspace/snapshot/live_copy.h"
#include "workspace/verbs/snapshots.h"

namespace moorage::workspace {
namespace {

using base::Code;
using base::Error;
using state_db::SnapshotCause;
using state_db::SnapshotRow;
using state_db::SnapshotState;
using state_db::SnapshotWay;

MOORAGE_CRASH_POINT(after_intent, "snapshot.after_intent");
MOORAGE_CRASH_POINT(after_layers, "snapshot.after_layers");
MOORAGE_CRASH_POINT(after_outcome, "snapshot.after_outcome");

using Clock = std::chrono::steady_clock;

constexpr size_t kNamedHolders = 5;
// A command's leftover processes exist a moment longer than the command.
constexpr std::chrono::milliseconds kLeftovers{300};
constexpr std::chrono::milliseconds kLook{10};
constexpr std::chrono::milliseconds kLookAgain{100};
constexpr const char* kBusyHint = "wait for them to end, or end them: --kill";

// "node (1234), sh (1240) and 3 more"
std::string name_processes(const std::vector<pid_t>& pids) {
  std::string text;
  for (size_t n = 0; n < std::min(pids.size(), kNamedHolders); ++n) {
    const std::string pid = std::to_string(pids[n]);
    std::string name = base::read_file_if_exists("/proc/" + pid + "/comm").value_or("?");
    if (name.ends_with('\n')) name.pop_back();
    text += (n == 0 ? "" : ", ") + base::escape_for_message(name) + " (" + pid + ")";
  }
  if (pids.size() > kNamedHolders)
    text += " and " + std::to_string(pids.size() - kNamedHolders) + " more";
  return text;
}

std::vector<base::LayerId> layers_of(
    const std::vector<state_db::WorkspaceTable::Created>& workspaces) {
  std::vector<base::LayerId> layers;
  for (const auto& workspace : workspaces) layers.push_back(workspace.layer);
  return layers;
}

}  // namespace

SnapshotRow Snapshots::take_locked(const state_db::WorkspaceRow& present,
                                   state_db::NewSnapshot wanted,
                                   std::vector<state_db::NewWorkspace> forks,
                                   std::vector<base::WorkspaceId>* made) {
  require_room(context_.options, "cannot take a snapshot");
  const auto row = workspaces_.settled(present);
  auto running = context_.live.running(row.id);
  wanted.workspace = row.id;
  wanted.way = SnapshotWay::at_rest;
  const SnapshotWay beside =
      context_.storage.clones_layer(row.layer) ? SnapshotWay::subvolume : SnapshotWay::copy;
  if (running) {
    wanted.way = restack_.is_likely(row, *running) ? SnapshotWay::restack : beside;
    if (wanted.next_on && !in_place(wanted.way))
      throw Error(Code::conflict, row.name + " is in use");
  } else {
    context_.live.wait_unmounted(row.id, context_.options.transfer_patience);
  }
  if (in_place(wanted.way)) flattening_.require_room(row);
  state_db::SnapshotTable table(context_.store);
  state_db::WorkspaceTable workspaces(context_.store);
  if (wanted.next_on) require_durable(table.get(wanted.next_on));
  std::vector<state_db::WorkspaceTable::Created> complete;
  std::vector<base::KeyedMutex::Guard> at_work;  // locks on the forks until they are ready
  SnapshotRow taking = context_.store.transaction([&] {
    const SnapshotRow begun = table.begin(wanted);
    complete = begin_forks(begun.id, forks, at_work);
    return begun;
  });
  after_intent.pass();
  bool exchanged = false;
  try {
    uint64_t pause_us = 0;
    auto upon = layers_of(complete);
    if (in_place(wanted.way)) {
      sync_initial_files(context_, row);
      upon.push_back(taking.next_layer);
      // Do this before commands write to the next layer: after that nothing may fail.
      make_layers(context_, upon);
    }
    if (taking.way == SnapshotWay::restack) {
      if (const auto done = restack_.exchange(taking, row, std::move(running))) {
        running = done->running;
        pause_us = done->pause_us;
        exchanged = true;
      } else if (wanted.next_on) {
        throw Error(Code::conflict, "something in " + row.name + " holds its files");
      } else {
        running = context_.live.running(row.id);
        taking = table.become_copy(taking.id, beside);
      }
    }
    if (!in_place(taking.way)) pause_us = make_copy(taking, row, *running);
    if (!in_place(wanted.way)) make_layers(context_, upon);
    // Forks based on a copy must not lose data that the original has on disk.
    const bool synced = taking.way == SnapshotWay::copy && !complete.empty();
    if (synced) base::sync_file_system(context_.options.store);
    after_layers.pass();
    const bool rests = taking.way == SnapshotWay::at_rest;
    const auto seal = rests ? seal_of(row, taking.next_layer) : IntegrityCheck::Taken{};
    context_.store.transaction([&] {
      const bool was_sealed = !state_db::IntegrityTable(context_.store).get(row.id).seal.empty();
      table.finish(taking.id, pause_us);
      if (synced || taking.way == SnapshotWay::subvolume) table.set_durable(taking.id);
      if (taking.way == SnapshotWay::restack) {
        const layers::ActiveMounts& mounts = running->mounted->mounts;
        state_db::SandboxTable(context_.store)
            .set_devices(running->sandbox, mounts.tree_device, mounts.home_device);
      }
      if (rests) {
        // Only synced data is ever sealed.
        if (was_sealed) table.set_durable(taking.id);
        const bool seals = was_sealed && seal.seal;
        state_db::IntegrityTable(context_.store).set_seal(row.id, seals ? seal.seal->hash : "");
      }
      for (const auto& fork : complete) workspaces.set_ready(fork.id);
    });
  } catch (Error& error) {
    // Commands already write to the next layer, so the next verb finishes it (settled()).
    if (exchanged) throw error.add_context("cannot record the snapshot");
    undo(taking, complete, error.message());
    throw error.add_context("cannot take a snapshot of " + row.name);
  }
  after_outcome.pass();
  flattening_.request(row.id);
  if (made) {
    for (const auto& fork : complete) made->push_back(fork.id);
  }
  const SnapshotRow taken = table.get(taking.id);
  base::log(base::LogLevel::info, "snapshot.taken",
            {{"ws", row.id},
             {"sn", taken.id},
             {"way", state_db::way_name(taken.way)},
             {"cause", state_db::cause_name(taken.cause)},
             {"pause_us", taken.pause_us}});
  return taken;
}

void Snapshots::undo(const SnapshotRow& taking,
                     const std::vector<state_db::WorkspaceTable::Created>& forks,
                     const std::string& reason) {
  state_db::WorkspaceTable table(context_.store);
  for (const auto& fork : forks) {
    if (const auto row = table.get(fork.id); row.state == state_db::WorkspaceState::creating)
      workspaces_.abandon(row, reason);
  }
  state_db::SnapshotTable(context_.store).undo(taking.id, reason);
  collect_layers(context_);
}

IntegrityCheck::Taken Snapshots::seal_of(const state_db::WorkspaceRow& row, base::LayerId layer) {
  state_db::WorkspaceRow next = row;
  next.layer = layer;
  return integrity_.take(next);
}

uint64_t Snapshots::make_copy(const SnapshotRow& taking, const state_db::WorkspaceRow& row,
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
void Snapshots::require_durable(const SnapshotRow& snapshot) {
  if (snapshot.durable || snapshot.way != SnapshotWay::copy) return;
  base::sync_file_system(context_.options.store);
  state_db::SnapshotTable(context_.store).set_durable(snapshot.id);
}

// Writes their rows in the caller's transaction.
std::vector<state_db::WorkspaceTable::Created> Snapshots::begin_forks(
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
std::vector<base::WorkspaceId> Snapshots::stand_on(const SnapshotRow& snapshot,
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
    for (const auto& fork : complete) workspaces_.abandon(table.get(fork.id), error.message());
    throw;
  }
  after_outcome.pass();
  for (const auto& fork : complete) made.push_back(fork.id);
  return made;
}

// True if nothing was written since the snapshot below it.
bool Snapshots::is_empty(base::LayerId layer) const {
  const std::string path = context_.storage.layer_path(layer);
  return base::directory_is_empty(path + "/tree/upper") &&
         base::directory_is_empty(path + "/home/upper");
}

std::vector<pid_t> Snapshots::processes_of(const state_db::WorkspaceRow& row) {
  const auto running = context_.live.running(row.id);
  return running ? running->backend->members(running->name) : std::vector<pid_t>{};
}

void Snapshots::refuse_busy(const state_db::WorkspaceRow& row) {
  const auto holders = processes_of(row);
  if (holders.empty()) return;
  const std::string run = holders.size() == 1 ? " still runs in " : " still run in ";
  throw Error(Code::conflict, name_processes(holders) + run + row.name, kBusyHint);
}

// Ends running processes only on request.
void Snapshots::bring_to_rest(const state_db::WorkspaceRow& row, bool kill,
                              const std::string& reason) {
  if (kill) {
    workspaces_.pre_stop().run(row);
    workspaces_.stop_sandbox(row, reason);
    return context_.live.wait_unmounted(row.id, context_.options.transfer_patience);
  }
  refuse_busy(row);
  try {
    workspaces_.bring_to_rest(row, reason);
  } catch (const Error& error) {
    if (error.code() != Code::conflict) throw;
    throw Error(Code::conflict, error.message(), kBusyHint);
  }
}

// An idle sandbox keeps running and gets the other state mounted.
void Snapshots::go_on_from(const state_db::WorkspaceRow& row, const state_db::NewSnapshot& wanted,
                           bool kill, const std::string& reason) {
  const auto is_idle = [&] {  // and nobody uses the mounts from outside
    const auto running = context_.live.running(row.id);
    return running && running->backend->members(running->name).empty();
  };
  const auto patience = Clock::now() + (kill ? std::chrono::milliseconds(0) : kLeftovers);
  while (context_.live.running(row.id)) {
    auto pause = kLook;
    try {
      if (is_idle()) {
        take_locked(row, wanted);
        return;
      }
    } catch (const Error& error) {
      if (error.code() != Code::conflict) throw;
      pause = kLookAgain;
    }
    if (Clock::now() >= patience) break;
    std::this_thread::sleep_for(pause);
  }
  bring_to_rest(row, kill, reason);
  take_locked(row, wanted);
}

}  // namespace moorage::workspace
