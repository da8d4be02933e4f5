#include "workspace/verbs/snapshots.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

#include "base/crash_point.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/size_text.h"
#include "state_db/reads.h"
#include "state_db/store.h"
#include "state_db/tables/layers.h"
#include "workspace/access/keyed_request.h"
#include "workspace/access/placement.h"
#include "workspace/chain/layer_life.h"
#include "workspace/context/disk_use.h"

namespace moorage::workspace {
namespace {

using state_db::SnapshotCause;
using state_db::SnapshotRow;
using state_db::SnapshotState;

MOORAGE_CRASH_POINT(promote_between, "promote.between");
MOORAGE_CRASH_POINT(promote_after_outcome, "promote.after_outcome");

constexpr size_t kMaxForkStem = 50;  // of the 63 bytes of a name

// A snapshot that only archived workspaces are based on exists only in their archives.
void require_hot(Context& context, const SnapshotRow& snapshot) {
  if (!state_db::LayerTable(context.store).get(snapshot.layer).cold) return;
  const auto owner = state_db::WorkspaceTable(context.store).get(snapshot.workspace);
  throw Error(Code::conflict, snapshot.id.str() + " is in the archive of " + owner.name,
              "moorage unarchive " + owner.name);
}

std::string by(const Caller& caller) { return user_name(caller.uid); }

constexpr size_t kNamedHolders = 5;
// A command's leftover processes exist a moment longer than the command.
constexpr std::chrono::milliseconds kLeftovers{300};
constexpr std::chrono::milliseconds kLook{10};
constexpr std::chrono::milliseconds kLookAgain{100};
constexpr const char* kBusyHint = "wait for them to end, or end them: --kill";
using Clock = std::chrono::steady_clock;

// Its pid in the sandbox, where a person can look for it: the last number of NSpid, proc(5).
std::string pid_inside(const std::string& pid) {
  const std::string status = base::read_file_if_exists("/proc/" + pid + "/status").value_or("");
  const size_t line = status.find("\nNSpid:");
  if (line == std::string::npos) return "?";  // it has ended
  const size_t end = status.find('\n', line + 1);
  const std::string pids = status.substr(line, end - line);
  return pids.substr(pids.find_last_of("\t ") + 1);
}

// "\"node\" (pid 36 inside), \"sh\" (pid 40 inside) and 3 more"
std::string name_processes(const std::vector<pid_t>& pids) {
  std::string text;
  for (size_t n = 0; n < std::min(pids.size(), kNamedHolders); ++n) {
    const std::string pid = std::to_string(pids[n]);
    std::string name = base::read_file_if_exists("/proc/" + pid + "/comm").value_or("?");
    if (name.ends_with('\n')) name.pop_back();
    text += (n == 0 ? "\"" : ", \"") + base::escape_for_message(name) + "\" (pid " +
            pid_inside(pid) + " inside)";
  }
  if (pids.size() > kNamedHolders)
    text += " and " + std::to_string(pids.size() - kNamedHolders) + " more";
  return text;
}

std::vector<pid_t> processes_of(Context& context, const state_db::WorkspaceRow& row) {
  const auto running = context.live.running(row.id);
  return running ? running->backend->members(running->name) : std::vector<pid_t>{};
}

// Saves the current state before the workspace continues from another. It carries the request's
// key: if it is kept, the request was carried out.
state_db::NewSnapshot joined(const Caller& caller, base::WorkspaceId workspace,
                             SnapshotCause cause) {
  state_db::NewSnapshot wanted{.workspace = workspace, .cause = cause};
  std::tie(wanted.idempotency_key, wanted.request_hash) = key_of(caller);
  return wanted;
}

}  // namespace

SnapshotRow Snapshots::find(const Caller& caller, const state_db::WorkspaceRow& row,
                            const std::string& snapshot) {
  state_db::SnapshotTable table(context_.store);
  std::optional<SnapshotRow> found;
  if (const auto id = base::SnapshotId::parse(snapshot)) {
    found = table.find(*id);
    // A snapshot of another workspace, such as the origin of a fork, if the caller may see that.
    if (found && found->workspace != row.id)
      find_with_deleted(context_.store, caller, found->workspace.str(), Right::read);
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

SnapshotRow Snapshots::take(const Caller& caller, const std::string& name,
                            const SnapshotRequest& request) {
  check_snapshot_name(request.name);
  check_external_id(request.external_id);
  const auto found = find_workspace(context_.store, caller, name, Right::write);
  state_db::NewSnapshot wanted;
  wanted.workspace = found.id;
  wanted.name = request.name;
  wanted.external_id = request.external_id;
  if (!request.idempotency_key.empty()) {
    wanted.idempotency_key = request.idempotency_key;
    wanted.request_hash = base::sha256_hex(std::to_string(request.name.size()) + ":" +
                                           request.name + request.external_id);
    if (const auto made = find_made(wanted)) return *made;
  }
  leases_.check(caller, found);
  views_.follow_base(found);
  const auto guard = context_.locks.lock(found.id.str(), "snapshot");
  const auto writing = leases_.write(caller, found);
  const auto row = chains_.settled(state_db::WorkspaceTable(context_.store).get(found.id));
  if (const auto made = find_made(wanted)) return *made;
  require_ready(row);
  return taker_.take(row, wanted, {}, nullptr, caller.notice.get());
}

// A snapshot still being taken is settled under the lock: then it is kept, or its key is free.
std::optional<SnapshotRow> Snapshots::find_made(const state_db::NewSnapshot& wanted) {
  const auto made = state_db::SnapshotTable(context_.store).find_made(wanted);
  if (made && made->state == SnapshotState::dropped)
    throw Error(Code::not_found, made->id.str() + " was dropped: " + made->reason);
  return made && made->state == SnapshotState::kept ? made : std::nullopt;
}

std::vector<SnapshotRow> Snapshots::list(const Caller& caller, const std::string& name) {
  const auto row = find_workspace(context_.store, caller, name, Right::read);
  views_.measure(row, {});
  return state_db::SnapshotTable(context_.store).kept(row.id);
}

SnapshotRow Snapshots::show(const Caller& caller, const std::string& name,
                            const std::string& snapshot) {
  return find(caller, find_workspace(context_.store, caller, name, Right::read), snapshot);
}

void Snapshots::drop(const Caller& caller, const std::string& name, const std::string& snapshot) {
  const auto row = find_workspace(context_.store, caller, name, Right::write);
  leases_.check(caller, row);
  const auto guard = context_.locks.lock(row.id.str(), "dropping a snapshot");
  const auto writing = leases_.write(caller, row);
  const auto taken = find(caller, row, snapshot);
  if (taken.workspace != row.id)
    throw Error(Code::invalid_argument, taken.id.str() + " is not a snapshot of " + row.name);
  context_.store.transaction([&] {
    state_db::SnapshotTable(context_.store).drop(taken.id, "dropped by " + by(caller));
    join_key(context_.store, caller, taken.id.str());
  });
  collect_layers(context_);
  DiskUse(context_).settle(row.id);
}

WorkspaceView Snapshots::restore(const Caller& caller, const std::string& name,
                                 const RestoreRequest& request) {
  const auto found = find_workspace(context_.store, caller, name, Right::write);
  leases_.check(caller, found);
  auto wanted = joined(caller, found.id, SnapshotCause::before_restore);
  {
    const auto guard = context_.locks.lock(found.id.str(), "restore");
    const auto writing = leases_.write(caller, found);
    const auto row = chains_.settled(state_db::WorkspaceTable(context_.store).get(found.id));
    if (!find_made(wanted)) {
      require_ready(row);
      const auto target = find(caller, row, request.snapshot);
      require_hot(context_, target);
      wanted.next_on = target.id;
      go_on_from(row, wanted, request.kill, "restored by " + by(caller));
    }
  }
  return views_.look(found.id);
}

WorkspaceView Snapshots::undo(const Caller& caller, const std::string& name,
                              const UndoRequest& request) {
  const auto row = find_workspace(context_.store, caller, name, Right::write);
  if (find_made(joined(caller, row.id, SnapshotCause::before_restore))) return views_.look(row.id);
  leases_.check(caller, row);
  state_db::SnapshotTable table(context_.store);
  const auto kept = table.kept(row.id);
  std::optional<SnapshotRow> found;
  if (!request.exec.empty()) {
    const auto exec = base::ExecId::parse(request.exec);
    for (const auto& snapshot : kept) {
      if (exec && snapshot.exec == *exec) found = snapshot;
    }
  } else {
    // After a restore, start above the snapshot that it saved first.
    const auto newest = table.newest(row.id);
    const bool restored = newest && newest->cause == SnapshotCause::before_restore;
    auto at = row.stands_on;
    if (restored && at) at = table.get(at).parent;
    while (at && !found) {
      const auto snapshot = table.get(at);
      if (snapshot.cause == SnapshotCause::before_exec) found = snapshot;
      at = snapshot.parent;
    }
  }
  if (!found) {
    throw Error(Code::not_found,
                request.exec.empty() ? row.name + " has nothing to undo"
                                     : request.exec + " has no snapshot before it",
                "moorage set " + row.name +
                    " --snapshot before-exec keeps one before each command "
                    "from now on");
  }
  return restore(caller, name, {.snapshot = found->id.str(), .kill = request.kill});
}

std::vector<state_db::NewWorkspace> Snapshots::planned_forks(const Caller& caller,
                                                             const state_db::WorkspaceRow& row,
                                                             const ForkRequest& request) {
  const size_t count = request.names.empty() ? request.count : request.names.size();
  if (count < 1 || count > kMaxForks) {
    throw Error(Code::invalid_argument, std::to_string(count) + " forks requested: create 1 to " +
                                            std::to_string(kMaxForks) + " at once");
  }
  for (const auto& name : request.names) check_workspace_name(name);
  check_labels(request.labels);
  state_db::NewWorkspace fork;
  fork.owner_uid = caller.uid;
  fork.team_gid = row.team_gid;
  fork.repository = row.repository;
  fork.base_ref = row.base_ref;
  fork.base_commit = row.base_commit;
  fork.head_commit = row.head_commit;
  fork.raw_commit = row.raw_commit;
  fork.branch = row.branch;
  fork.backend = row.backend;
  fork.image = row.image;
  fork.runtime = row.runtime;
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
  const auto found = find_workspace(context_.store, caller, name, Right::write);
  auto forks = planned_forks(caller, found, request);
  state_db::WorkspaceTable table(context_.store);
  std::vector<base::WorkspaceId> made;
  {
    leases_.check(caller, found);
    views_.follow_base(found);
    const auto guard = context_.locks.lock(found.id.str(), "fork");
    const auto writing = leases_.write(caller, found);
    for (const auto& fork : forks) {
      if (const auto before = fork_made_before(fork)) made.push_back(before);
    }
    if (made.empty()) {
      const auto row = table.get(found.id);
      require_ready(row);
      // All have one owner and the same labels.
      const Placement placement(context_, caller.uid, request.labels, row.name);
      placement.check_backend_accepts({row.backend, row.image, row.runtime});
      placement.check_limits(forks.front().policy.limits);
      admission_.admit(caller.uid, row.repository);
      const std::string stem =
          request.stem.empty() ? row.name.substr(0, kMaxForkStem) : request.stem;
      for (auto& fork : forks) {
        if (fork.name.empty())
          fork.name = table.free_name(caller.uid, stem + "-" + std::to_string(fork.attempt));
      }
      if (request.snapshot.empty()) {
        taker_.take(row, {.cause = SnapshotCause::fork}, std::move(forks), &made,
                    caller.notice.get());
      } else {
        const auto origin = find(caller, row, request.snapshot);
        require_hot(context_, origin);
        made = taker_.fork_from(origin, std::move(forks));
      }
    }
  }
  std::vector<WorkspaceView> views;
  for (const auto id : made) views.push_back(views_.look(id));
  return views;
}

// A verb that creates forks holds their origin's lock throughout, as this caller does now. So a
// fork still in creation was left by a daemon that died, as was the rest of its set.
base::WorkspaceId Snapshots::fork_made_before(const state_db::NewWorkspace& fork) {
  state_db::WorkspaceTable table(context_.store);
  const auto before = table.find_made(fork);
  if (!before) return {};
  const auto guard = context_.locks.lock(before->id.str(), "fork");
  const auto row = table.get(before->id);
  if (row.state == state_db::WorkspaceState::creating)
    abandon(context_, row, "the daemon stopped while creating it");
  return table.get(before->id).state == state_db::WorkspaceState::failed ? base::WorkspaceId{}
                                                                         : before->id;
}

Snapshots::Lineage Snapshots::tree(const Caller& caller, const std::string& name) {
  const auto row = find_workspace(context_.store, caller, name, Right::read);
  const state_db::ReadTransaction moment(context_.store);
  state_db::SnapshotTable table(context_.store);
  Lineage lineage;
  for (const auto id : table.family(row.id)) {
    auto member = state_db::WorkspaceTable(context_.store).get(id);
    if (!sees(caller, member)) continue;
    for (auto& snapshot : table.kept(id)) lineage.snapshots.push_back(std::move(snapshot));
    lineage.workspaces.push_back(std::move(member));
  }
  std::sort(lineage.snapshots.begin(), lineage.snapshots.end(),
            [](const auto& a, const auto& b) { return a.id < b.id; });
  return lineage;
}

WorkspaceView Snapshots::promote(const Caller& caller, const std::string& name, bool kill) {
  const auto fork = find_workspace(context_.store, caller, name, Right::write);
  if (!fork.forked_from) {
    throw Error(Code::invalid_argument, fork.name + " is not a fork",
                "only a workspace made by `moorage fork` can be promoted");
  }
  const auto origin = state_db::SnapshotTable(context_.store).get(fork.forked_from);
  const auto parent = find_workspace(context_.store, caller, origin.workspace.str(), Right::write);
  auto wanted = joined(caller, parent.id, SnapshotCause::promote);
  {
    // Always lock in the same order, whichever is promoted to the other.
    const auto first = std::min(fork.id, parent.id);
    const auto second = std::max(fork.id, parent.id);
    const auto one = context_.locks.lock(first.str(), "promote");
    const auto other = context_.locks.lock(second.str(), "promote");
    state_db::WorkspaceTable table(context_.store);
    const auto now = table.get(fork.id);
    const auto before = chains_.settled(table.get(parent.id));
    if (!find_made(wanted)) {
      require_ready(now);
      require_ready(before);
      const auto writing = leases_.write(caller, before);
      const auto sealing = leases_.write(caller.beside(), now);
      if (!kill) refuse_busy(before);
      // Run the hook before anything is written, because this waits for it.
      if (kill && !processes_of(context_, before).empty()) pre_stop_.run(before);
      wanted.next_on =
          taker_.take(now, {.cause = SnapshotCause::promote}, {}, nullptr, caller.notice.get()).id;
      promote_between.pass();
      go_on_from(before, wanted, kill, "promoted by " + by(caller));
      promote_after_outcome.pass();
    }
  }
  return views_.look(parent.id);
}

void Snapshots::refuse_busy(const state_db::WorkspaceRow& row) {
  const auto holders = processes_of(context_, row);
  if (holders.empty()) return;
  throw Error(Code::conflict,
              name_processes(holders) + " still " + base::verb_text(holders.size(), "run") +
                  " in " + row.name,
              kBusyHint);
}

// Ends running processes only on request.
void Snapshots::bring_to_rest(const state_db::WorkspaceRow& row, bool kill,
                              const std::string& reason) {
  if (kill) {
    pre_stop_.run(row);
    start_stop_.stop_sandbox(row, reason);
    return context_.live.wait_unmounted(row.id, context_.options.transfer_patience);
  }
  refuse_busy(row);
  try {
    start_stop_.bring_to_rest(row, reason);
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
        taker_.take(row, wanted);
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
  taker_.take(row, wanted);
}

}  // namespace moorage::workspace
