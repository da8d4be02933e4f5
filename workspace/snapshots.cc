#include "workspace/snapshots.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/crash_point.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "state_db/layers.h"
#include "state_db/reading.h"
#include "state_db/store.h"
#include "workspace/disk_room.h"
#include "workspace/layer_collection.h"
#include "workspace/layer_copy.h"
#include "workspace/live_copy.h"

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
MOORAGE_CRASH_POINT(promote_between, "promote.between");
MOORAGE_CRASH_POINT(promote_after_outcome, "promote.after_outcome");

constexpr size_t kMaxExternalIdBytes = 256;
constexpr size_t kNamedHolders = 5;
constexpr size_t kMaxForkStem = 50;  // of the 63 bytes of a name

void check_snapshot_request(const SnapshotRequest& request) {
  if (!request.name.empty()) {
    check_workspace_name(request.name);
    if (base::SnapshotId::parse(request.name))
      throw Error(Code::invalid_argument, request.name + " is how an id looks, so it is no name");
  }
  if (request.external_id.size() > kMaxExternalIdBytes) {
    throw Error(Code::invalid_argument, "external_id has " +
                                            std::to_string(request.external_id.size()) +
                                            " bytes; at most 256 are kept");
  }
}

std::string by(const Caller& caller) { return "uid " + std::to_string(caller.uid); }

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

}  // namespace

SnapshotRow Snapshots::find(const Caller& caller, const state_db::WorkspaceRow& row,
                            const std::string& snapshot) {
  state_db::Snapshots table(context_.store);
  std::optional<SnapshotRow> found;
  if (const auto id = base::SnapshotId::parse(snapshot)) {
    found = table.find(*id);
    // Of another one, such as what this was forked from, if the caller may see that.
    if (found && found->workspace != row.id)
      workspaces_.find_with_deleted(caller, found->workspace.str(), Right::read);
  } else {
    found = table.find_by_name(row.id, snapshot);
  }
  if (!found) {
    throw Error(Code::not_found, row.name + " has no snapshot " + snapshot,
                "moorage snapshots " + row.name + " lists them");
  }
  if (found->state == SnapshotState::dropped)
    throw Error(Code::not_found, found->id.str() + " was dropped: " + found->reason);
  if (found->state == SnapshotState::taking)
    throw Error(Code::conflict, found->id.str() + " is still being taken", "try again");
  return *found;
}

SnapshotRow Snapshots::take_locked(const state_db::WorkspaceRow& row, state_db::NewSnapshot wanted,
                                   std::vector<state_db::NewWorkspace> forks,
                                   std::vector<base::WorkspaceId>* made) {
  require_room(context_.options, "no snapshot is taken");
  const auto running = active_.running(row.id);
  wanted.workspace = row.id;
  wanted.way = running ? SnapshotWay::copy : SnapshotWay::at_rest;
  if (!running) active_.wait_unmounted(row.id, context_.options.transfer_patience);
  state_db::Snapshots table(context_.store);
  state_db::Workspaces workspaces(context_.store);
  std::vector<state_db::Workspaces::Created> born;
  const SnapshotRow taking = context_.store.transaction([&] {
    const SnapshotRow begun = table.begin(wanted);
    for (auto& fork : forks) {
      fork.forked_from = begun.id;
      born.push_back(workspaces.create(fork));
    }
    return begun;
  });
  after_intent.pass();
  try {
    const uint64_t pause_us = running ? make_copy(taking, row, *running) : make_next(taking);
    for (const auto& fork : born) context_.storage.make_layer(fork.layer);
    after_layers.pass();
    const auto seal = running ? IntegrityCheck::Taken{} : seal_of(row, taking.next_layer);
    context_.store.transaction([&] {
      const bool was_sealed = !state_db::Integrity(context_.store).get(row.id).seal.empty();
      table.finish(taking.id, pause_us);
      if (!running) {
        // A seal is only taken of what is synced.
        if (was_sealed) table.set_durable(taking.id);
        const bool seals = was_sealed && seal.seal;
        state_db::Integrity(context_.store).set_seal(row.id, seals ? seal.seal->hash : "");
      }
      for (const auto& fork : born) workspaces.set_ready(fork.id);
    });
  } catch (Error& error) {
    undo(taking, born, error.message());
    throw error.add_context("no snapshot of " + row.name + " was taken");
  }
  after_outcome.pass();
  if (made) {
    for (const auto& fork : born) made->push_back(fork.id);
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
                     const std::vector<state_db::Workspaces::Created>& forks,
                     const std::string& reason) {
  state_db::Workspaces table(context_.store);
  for (const auto& fork : forks) {
    if (const auto row = table.get(fork.id); row.state == state_db::WorkspaceState::creating)
      workspaces_.abandon(row, reason);
  }
  state_db::Snapshots(context_.store).undo(taking.id, reason);
  collect_layers(context_);
}

uint64_t Snapshots::make_next(const SnapshotRow& taking) {
  context_.storage.make_layer(taking.next_layer);
  return 0;
}

IntegrityCheck::Taken Snapshots::seal_of(const state_db::WorkspaceRow& row, base::LayerId layer) {
  state_db::WorkspaceRow next = row;
  next.layer = layer;
  return integrity_.take(next);
}

uint64_t Snapshots::make_copy(const SnapshotRow& taking, const state_db::WorkspaceRow& row,
                              const Running& running) {
  context_.storage.make_layer(taking.layer);
  LayerCopy::Places places{.live = context_.storage.layer_path(row.layer),
                           .copy = context_.storage.layer_path(taking.layer)};
  state_db::Layers layers(context_.store);
  if (taking.parent) {
    // The one before it, if that was a copy of the same layer.
    const auto earlier = state_db::Snapshots(context_.store).get(taking.parent);
    const bool same = earlier.workspace == row.id && earlier.way == SnapshotWay::copy &&
                      earlier.layer &&
                      layers.get(earlier.layer).parent == layers.get(row.layer).parent;
    if (same) places.earlier = context_.storage.layer_path(earlier.layer);
  }
  return copy_live_layer(places, running);
}

SnapshotRow Snapshots::take(const Caller& caller, const std::string& name,
                            const SnapshotRequest& request) {
  check_snapshot_request(request);
  const auto found = workspaces_.find(caller, name, Right::write);
  state_db::NewSnapshot wanted;
  wanted.workspace = found.id;
  wanted.name = request.name;
  wanted.external_id = request.external_id;
  if (!request.idempotency_key.empty()) {
    wanted.idempotency_key = request.idempotency_key;
    wanted.request_hash = base::sha256_hex(std::to_string(request.name.size()) + ":" +
                                           request.name + request.external_id);
    if (const auto made = state_db::Snapshots(context_.store).find_made(wanted)) return *made;
  }
  workspaces_.leases().check(caller, found);
  const auto guard = context_.locks.lock(found.id.str(), "snapshot");
  const auto writing = workspaces_.leases().write(caller, found);
  const auto row = state_db::Workspaces(context_.store).get(found.id);
  require_ready(row);
  if (const auto made = state_db::Snapshots(context_.store).find_made(wanted)) return *made;
  return take_locked(row, wanted);
}

std::vector<SnapshotRow> Snapshots::list(const Caller& caller, const std::string& name) {
  const auto row = workspaces_.find(caller, name, Right::read);
  return state_db::Snapshots(context_.store).kept(row.id);
}

SnapshotRow Snapshots::show(const Caller& caller, const std::string& name,
                            const std::string& snapshot) {
  return find(caller, workspaces_.find(caller, name, Right::read), snapshot);
}

void Snapshots::drop(const Caller& caller, const std::string& name, const std::string& snapshot) {
  const auto row = workspaces_.find(caller, name, Right::write);
  workspaces_.leases().check(caller, row);
  const auto guard = context_.locks.lock(row.id.str(), "drop of a snapshot");
  const auto writing = workspaces_.leases().write(caller, row);
  const auto taken = find(caller, row, snapshot);
  if (taken.workspace != row.id)
    throw Error(Code::invalid_argument, taken.id.str() + " is not a snapshot of " + row.name);
  state_db::Snapshots(context_.store).drop(taken.id, "dropped by " + by(caller));
  collect_layers(context_);
}

// What runs is only ended where that was asked for.
void Snapshots::bring_to_rest(const state_db::WorkspaceRow& row, bool kill,
                              const std::string& reason) {
  if (kill) {
    workspaces_.run_pre_stop(row);
    workspaces_.stop_sandbox(row, reason);
    return active_.wait_unmounted(row.id, context_.options.transfer_patience);
  }
  const std::string hint = "wait for it, or end what runs there: --kill";
  if (const auto running = active_.running(row.id)) {
    const auto holders = running->backend->members(running->name);
    if (!holders.empty()) {
      throw Error(Code::conflict, row.name + " is busy: " + name_processes(holders) + " run in it",
                  hint);
    }
  }
  try {
    workspaces_.bring_to_rest(row, reason);
  } catch (const Error& error) {
    if (error.code() != Code::conflict) throw;
    throw Error(Code::conflict, error.message(), hint);
  }
}

WorkspaceView Snapshots::restore(const Caller& caller, const std::string& name,
                                 const RestoreRequest& request) {
  const auto found = workspaces_.find(caller, name, Right::write);
  workspaces_.leases().check(caller, found);
  {
    const auto guard = context_.locks.lock(found.id.str(), "restore");
    const auto writing = workspaces_.leases().write(caller, found);
    const auto row = state_db::Workspaces(context_.store).get(found.id);
    require_ready(row);
    const auto target = find(caller, row, request.snapshot);
    bring_to_rest(row, request.kill, "restored by " + by(caller));
    take_locked(row, {.cause = SnapshotCause::before_restore, .next_on = target.id});
  }
  workspaces_.measure(state_db::Workspaces(context_.store).get(found.id), {});
  return workspaces_.show(caller, found.id.str());
}

std::vector<state_db::NewWorkspace> Snapshots::planned_forks(const Caller& caller,
                                                             const state_db::WorkspaceRow& row,
                                                             const ForkRequest& request) {
  const size_t count = request.names.empty() ? request.count : request.names.size();
  if (count < 1 || count > kMaxForks) {
    throw Error(Code::invalid_argument, std::to_string(count) + " forks: 1 to " +
                                            std::to_string(kMaxForks) + " can be made at once");
  }
  for (const auto& name : request.names) check_workspace_name(name);
  check_labels(request.labels);
  state_db::NewWorkspace fork;
  fork.owner_uid = caller.uid;
  fork.team_gid = row.team_gid;
  fork.repository = row.repository;
  fork.base_ref = row.base_ref;
  fork.base_commit = row.base_commit;
  fork.branch = row.branch;
  fork.backend = row.backend;
  fork.image = row.image;
  fork.policy = row.policy;
  fork.policy.pinned = false;
  fork.labels = request.labels;
  fork.attempts = static_cast<uint32_t>(count);
  std::string hash;
  for (const auto& part : request.names) hash += std::to_string(part.size()) + ":" + part;
  for (const auto& [key, value] : request.labels)
    hash += std::to_string(key.size()) + ":" + key + std::to_string(value.size()) + ":" + value;
  fork.request_hash = base::sha256_hex(row.id.str() + " " + request.snapshot + " " +
                                       std::to_string(count) + " " + hash);
  std::vector<state_db::NewWorkspace> forks(count, fork);
  for (size_t n = 0; n < count; ++n) {
    forks[n].attempt = static_cast<uint32_t>(n + 1);
    if (!request.names.empty()) forks[n].name = request.names[n];
    if (!request.idempotency_key.empty())
      forks[n].idempotency_key = request.idempotency_key + "/" + std::to_string(n + 1);
  }
  return forks;
}

std::vector<WorkspaceView> Snapshots::fork(const Caller& caller, const std::string& name,
                                           const ForkRequest& request) {
  const auto found = workspaces_.find(caller, name, Right::write);
  auto forks = planned_forks(caller, found, request);
  state_db::Workspaces table(context_.store);
  std::vector<base::WorkspaceId> made;
  {
    workspaces_.leases().check(caller, found);
    const auto guard = context_.locks.lock(found.id.str(), "fork");
    const auto writing = workspaces_.leases().write(caller, found);
    for (const auto& fork : forks) {
      if (const auto before = table.find_made(fork)) made.push_back(before->id);
    }
    if (made.empty()) {
      const auto row = table.get(found.id);
      require_ready(row);
      if (workspaces_.hooks().admit) workspaces_.hooks().admit(caller.uid, row.repository);
      const std::string stem = row.name.substr(0, kMaxForkStem);
      for (auto& fork : forks) {
        if (fork.name.empty())
          fork.name = table.free_name(caller.uid, stem + "-" + std::to_string(fork.attempt));
      }
      if (request.snapshot.empty()) {
        take_locked(row, {.cause = SnapshotCause::fork}, std::move(forks), &made);
      } else {
        made = stand_on(find(caller, row, request.snapshot), std::move(forks));
      }
    }
  }
  std::vector<WorkspaceView> views;
  for (const auto id : made) views.push_back(workspaces_.show(caller, id.str()));
  return views;
}

// On a snapshot that there is.
std::vector<base::WorkspaceId> Snapshots::stand_on(const SnapshotRow& snapshot,
                                                   std::vector<state_db::NewWorkspace> forks) {
  require_room(context_.options, "no fork is made");
  state_db::Workspaces table(context_.store);
  std::vector<base::WorkspaceId> made;
  std::vector<state_db::Workspaces::Created> born;
  context_.store.transaction([&] {
    for (auto& fork : forks) {
      fork.forked_from = snapshot.id;
      born.push_back(table.create(fork));
    }
  });
  after_intent.pass();
  try {
    for (const auto& fork : born) context_.storage.make_layer(fork.layer);
    after_layers.pass();
    context_.store.transaction([&] {
      for (const auto& fork : born) table.set_ready(fork.id);
    });
  } catch (const Error& error) {
    for (const auto& fork : born) workspaces_.abandon(table.get(fork.id), error.message());
    throw;
  }
  after_outcome.pass();
  for (const auto& fork : born) made.push_back(fork.id);
  return made;
}

Snapshots::Lineage Snapshots::tree(const Caller& caller, const std::string& name) {
  const auto row = workspaces_.find(caller, name, Right::read);
  const state_db::Reading moment(context_.store);
  state_db::Snapshots table(context_.store);
  Lineage lineage;
  for (const auto id : table.family(row.id)) {
    auto member = state_db::Workspaces(context_.store).get(id);
    if (!sees(caller, member)) continue;
    for (auto& snapshot : table.kept(id)) lineage.snapshots.push_back(std::move(snapshot));
    lineage.workspaces.push_back(std::move(member));
  }
  std::sort(lineage.snapshots.begin(), lineage.snapshots.end(),
            [](const auto& a, const auto& b) { return a.id < b.id; });
  return lineage;
}

WorkspaceView Snapshots::promote(const Caller& caller, const std::string& name, bool kill) {
  const auto fork = workspaces_.find(caller, name, Right::write);
  if (!fork.forked_from) {
    throw Error(Code::invalid_argument, fork.name + " is no fork",
                "only what `moorage fork` made can be promoted");
  }
  const auto origin = state_db::Snapshots(context_.store).get(fork.forked_from);
  const auto parent = workspaces_.find(caller, origin.workspace.str(), Right::write);
  {
    // Always in the same order, whoever promotes what to where.
    const auto first = std::min(fork.id, parent.id);
    const auto second = std::max(fork.id, parent.id);
    const auto one = context_.locks.lock(first.str(), "promote");
    const auto other = context_.locks.lock(second.str(), "promote");
    state_db::Workspaces table(context_.store);
    const auto now = table.get(fork.id);
    const auto before = table.get(parent.id);
    require_ready(now);
    require_ready(before);
    const auto writing = workspaces_.leases().write(caller, before);
    bring_to_rest(before, kill, "promoted by " + by(caller));
    const auto taken = take_locked(now, {.cause = SnapshotCause::promote});
    promote_between.pass();
    take_locked(before, {.cause = SnapshotCause::promote, .next_on = taken.id});
    promote_after_outcome.pass();
  }
  workspaces_.measure(state_db::Workspaces(context_.store).get(parent.id), {});
  return workspaces_.show(caller, parent.id.str());
}

}  // namespace moorage::workspace
