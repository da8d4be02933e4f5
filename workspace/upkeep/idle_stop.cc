#include "workspace/upkeep/idle_stop.h"

#include <unistd.h>

#include <algorithm>

#include "backends/backend.h"
#include "base/error.h"
#include "base/log.h"
#include "state_db/store.h"
#include "state_db/tables/execs.h"
#include "workspace/context/live_sandboxes.h"
#include "workspace/exec/watcher.h"

namespace moorage::workspace {
namespace {

// A check reads a few control group files; a sandbox stops late by at most one pause.
constexpr int64_t kLeastPause_ms = 1'000;
constexpr int64_t kPausesOfIdleStop = 20;
constexpr int64_t kWarnBefore_ms = 5 * 60'000;

int64_t pause_of(const state_db::WorkspacePolicy& policy) {
  return std::clamp(policy.idle_stop_s * 1000 / kPausesOfIdleStop, kLeastPause_ms,
                    kMostIdlePause_ms);
}

// "30m", "1h30m", "45s".
std::string short_time(int64_t seconds) {
  std::string text;
  if (seconds >= 3600) text += std::to_string(seconds / 3600) + "h";
  if (seconds % 3600 >= 60) text += std::to_string(seconds % 3600 / 60) + "m";
  if (seconds % 60 > 0 || text.empty()) text += std::to_string(seconds % 60) + "s";
  return text;
}

}  // namespace

void IdleCount::add(const Look& look, int64_t pause_ms) {
  const int64_t passed_ms = first_ ? 0 : std::max<int64_t>(0, look.boot_ms - last_.boot_ms);
  const uint64_t cpu_usec = look.cpu_usec - std::min(look.cpu_usec, last_.cpu_usec);
  // 1 % of a millisecond is 10 microseconds.
  works_ = !first_ && cpu_usec > static_cast<uint64_t>(passed_ms) * 10;
  const bool busy = look.in_use || works_;
  if (busy || busy_) {
    idle_ms_ = 0;
  } else {
    idle_ms_ += std::min(passed_ms, longest_ms_);
  }
  busy_ = busy;
  first_ = false;
  last_ = look;
  longest_ms_ = pause_ms * 3 / 2;  // a check may run late on a busy host
}

void IdleKeeper::look() {
  std::set<base::SandboxId> there;
  for (const auto& running : context_.live.all()) {
    there.insert(running.sandbox);
    try {
      look_at_budget(running);
      look_at(running, known_[running.sandbox]);
    } catch (const base::Error& error) {  // it is stopping, or the next check will show why
      base::log(base::LogLevel::debug, "idle.not_seen",
                {{"sb", running.sandbox}, {"error", error.message()}});
    }
  }
  std::erase_if(known_, [&](const auto& known) { return !there.contains(known.first); });
}

std::string IdleKeeper::busy_with(const LiveSandbox& running) {
  for (const auto& exec : state_db::ExecTable(context_.store).running(running.sandbox)) {
    if (exec.request.hook.empty()) return kBusyWithExec + exec.id.str();
  }
  if (leases_.is_held(running.workspace)) return "its lease";
  // A file transfer, or a command that is about to start.
  if (context_.live.in_use(running.workspace)) return "a transfer";
  return {};
}

void IdleKeeper::look_at(const LiveSandbox& running, Known& known) {
  const int64_t now = context_.store.clock().boot_ms();
  if (now < known.next_boot_ms) return;
  const auto row = state_db::WorkspaceTable(context_.store).get(running.workspace);
  const auto policy = effective_policy(row.policy, context_.options);
  const int64_t pause_ms = pause_of(policy);
  known.next_boot_ms = now + pause_ms;
  std::string busy = busy_with(running);
  const bool used = context_.live.was_used(running.workspace);
  const uint64_t used_usec = running.backend->inspect(running.name).cpu_usec;
  const uint64_t cpu_usec = used_usec - std::min(used_usec, running.asked_usec->load());
  known.count.add({.boot_ms = now, .in_use = !busy.empty() || used, .cpu_usec = cpu_usec},
                  pause_ms);
  if (busy.empty() && known.count.works()) busy = "background processes";
  const int64_t idle_ms = known.count.idle_ms();
  context_.live.set_rest(running.workspace,
                         {.busy_with = std::move(busy), .idle_ms = idle_ms, .boot_ms = now});
  look_at_lifetime(running, row, known);
  if (policy.idle_stop_s > 0 && idle_ms >= policy.idle_stop_s * 1000)
    stop_later(running, row.owner_uid, &IdleKeeper::stop_idle);
}

// Each command got the time that was left when it began; parallel commands share that time.
void IdleKeeper::look_at_budget(const LiveSandbox& running) {
  const auto time = watcher_.running_time(running.workspace);
  if (time.execs < 2) return;
  const auto row = state_db::WorkspaceTable(context_.store).get(running.workspace);
  const int64_t total_s = row.policy.max_exec_total_s;
  if (total_s == 0 || row.used_exec_ms + time.ms < total_s * 1000) return;
  watcher_.end_all(running.sandbox,
                   {state_db::ExecState::timed_out, state_db::ExecCategory::timeout,
                    "the commands of " + row.name + " have used all of their " +
                        std::to_string(total_s) + " s (max_exec_total_s)"},
                   context_.options.stop_grace);
}

void IdleKeeper::look_at_lifetime(const LiveSandbox& running, const state_db::WorkspaceRow& row,
                                  Known& known) {
  const auto policy = effective_policy(row.policy, context_.options);
  if (policy.max_lifetime_s == 0) return;
  const auto& clock = context_.store.clock();
  const int64_t most_ms = policy.max_lifetime_s * 1000;
  const int64_t left_ms = most_ms - age_ms(running.init, clock);
  if (left_ms <= 0) return stop_later(running, row.owner_uid, &IdleKeeper::stop_old);
  const int64_t warn_ms = std::min(kWarnBefore_ms, most_ms / 2);
  if (left_ms <= warn_ms && !std::exchange(known.warned, true)) {
    context_.store.add_event(
        "sandbox.lifetime", {.workspace = running.workspace, .sandbox = running.sandbox},
        "stops in " + short_time(left_ms / 1000) + ": its lifetime is limited to " +
            short_time(policy.max_lifetime_s) + " (max_lifetime_s), busy or not");
  }
  const int64_t next_ms = left_ms > warn_ms ? left_ms - warn_ms : left_ms;
  known.next_boot_ms = std::min(known.next_boot_ms, clock.boot_ms() + next_ms);
}

void IdleKeeper::stop_later(const LiveSandbox& running, uint32_t owner, Stop stop) {
  {
    const std::lock_guard lock(mutex_);
    if (!being_stopped_.insert(running.sandbox).second) return;
  }
  try {
    submit(running, owner, stop);
  } catch (...) {  // the owner's queue is full: the next check retries
    const std::lock_guard lock(mutex_);
    being_stopped_.erase(running.sandbox);
    throw;
  }
}

void IdleKeeper::submit(const LiveSandbox& running, uint32_t owner, Stop stop) {
  stoppers_.submit({.user = owner}, [this, running, owner, stop] {
    try {
      (this->*stop)(running);
    } catch (const Waiting& waiting) {  // its hook is running, and no thread waits for it
      return waiters_.resume_later(waiting,
                                   [this, running, owner, stop] { submit(running, owner, stop); });
    } catch (const base::Error& error) {  // another verb holds it: the next check retries
      base::log(base::LogLevel::info, "idle.not_stopped",
                {{"ws", running.workspace}, {"sb", running.sandbox}, {"error", error.message()}});
    }
    const std::lock_guard lock(mutex_);
    being_stopped_.erase(running.sandbox);
  });
}

// Checks for the last time under the workspace's lock, and takes the sandbox away from later users:
// an earlier exec keeps it; a later one waits for the lock and starts a new sandbox.
void IdleKeeper::stop_idle(const LiveSandbox& running) {
  const auto guard =
      context_.locks.lock(running.workspace.str(), "idle stop", std::chrono::milliseconds(0));
  const auto row = state_db::WorkspaceTable(context_.store).get(running.workspace);
  const int64_t idle_stop_s = effective_policy(row.policy, context_.options).idle_stop_s;
  if (idle_stop_s == 0 || context_.live.was_used(running.workspace) || !busy_with(running).empty())
    return pre_stop_.forget(running.sandbox);
  pre_stop_.run(row);
  const auto taken = context_.live.take_unused(running);
  if (!taken) return pre_stop_.forget(running.sandbox);
  // Catches a use that began and ended between the two checks.
  if (!busy_with(running).empty()) {
    pre_stop_.forget(running.sandbox);
    return context_.live.set_running(taken);
  }
  start_stop_.stop_sandbox(row, "idle for " + short_time(idle_stop_s));
}

void IdleKeeper::stop_old(const LiveSandbox& running) {
  const auto guard = context_.locks.lock(running.workspace.str(), "lifetime stop");
  const auto row = state_db::WorkspaceTable(context_.store).get(running.workspace);
  const auto live = state_db::SandboxTable(context_.store).live(running.workspace);
  const int64_t most_s = effective_policy(row.policy, context_.options).max_lifetime_s;
  if (!live || live->id != running.sandbox || most_s == 0) return;
  const std::string reason = "lifetime of " + short_time(most_s) + " (max_lifetime_s)";
  pre_stop_.run(row);
  watcher_.end_all(running.sandbox,
                   {state_db::ExecState::cancelled, state_db::ExecCategory::cancelled, reason}, {});
  start_stop_.stop_sandbox(row, reason);
}

}  // namespace moorage::workspace
