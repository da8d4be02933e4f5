// Records an exec's end in its row (watcher.h): reads the frame, gathers evidence, does the
// requested sync, and retries the write while the database has no room for it.
#include <string.h>
#include <sys/inotify.h>

#include <algorithm>

#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "state_db/look.h"
#include "state_db/store.h"
#include "state_db/tables/sandboxes.h"
#include "state_db/tables/workspaces.h"
#include "workspace/context/disk_use.h"
#include "workspace/context/metrics.h"
#include "workspace/exec/end_record.h"
#include "workspace/exec/watched_exec.h"

namespace moorage::workspace {
namespace {

using state_db::ExecCategory;
using state_db::ExecState;

MOORAGE_CRASH_POINT(before_outcome, "exec.before_outcome");
MOORAGE_CRASH_POINT(after_outcome, "exec.after_outcome");

// Pause between attempts to write outcomes that the database refused.
constexpr std::chrono::milliseconds kWritePause{500};
constexpr uint64_t kLeastBytes = 64 << 10;  // with less free space the disk counts as full
// A quota refuses before its last byte: the kernel allocates whole extents.
constexpr uint64_t kQuotaSlack = 1 << 20;

// If the judge fails, record the end without a verdict rather than blame the command.
template <typename Ask>
auto ask_judge(const Ask& ask, const state_db::ExecRow& exec) -> decltype(ask(exec)) {
  try {
    if (ask) return ask(exec);
  } catch (const base::Error& error) {
    base::log(base::LogLevel::warning, "exec.disk_not_judged",
              {{"ex", exec.id}, {"error", error.message()}});
  }
  return {};
}

// Names who sent the signal that ended the command, if it was someone other than its owner. A shell
// reports a child that a signal ended as exit code 128 + signal.
std::string sender_of_end(const state_db::ExecRow& row, const state_db::ExecOutcome& outcome) {
  if (!row.sent_signal || row.sent_by.empty()) return {};
  const int sent = *row.sent_signal;
  const bool ended = outcome.state == ExecState::signalled
                         ? outcome.signal == sent
                         : outcome.state == ExecState::exited && outcome.exit_code == 128 + sent;
  if (!ended) return {};
  const char* name = sigabbrev_np(sent);
  return (name ? std::string("SIG") + name : "signal " + std::to_string(sent)) + " sent by " +
         row.sent_by;
}

}  // namespace

void ExecWatcher::end(const WatchedPtr& watched, const base::Frame& frame) {
  const state_db::Look look(context_.store);
  state_db::ExecOutcome outcome = parse_exec_end(frame.payload);
  // The daemon may have been down when the command ended. Clamp the warden's time: someone may have
  // set the clock meanwhile.
  const int64_t started_ms = watched->row.started_wall_ms;
  outcome.ended_wall_ms = std::clamp(frame.header.wall_ns / 1'000'000, started_ms,
                                     std::max(started_ms, context_.store.clock().wall_ms()));
  outcome.output_bytes = watched->output_bytes;
  outcome.omitted_bytes = std::max(outcome.omitted_bytes, watched->omitted_bytes());
  const ExecEvidence evidence = look_at_end(*watched, outcome);
  // 137: a shell reports that one of its children was killed.
  const bool killed = outcome.signal == 9 || outcome.exit_code == 137;
  if (killed && evidence.out_of_memory) outcome.state = ExecState::oom_killed;
  outcome.category = categorize(outcome, evidence);
  const bool asks = ask_judge(disk_judge_.suspects, watched->row);
  if (!watched->sync && !asks) {
    write_outcome(watched, std::move(outcome));
    return watched->set_handled();
  }
  pool_.submit(watched->share(), [this, watched, outcome, asks] {
    auto known = outcome;
    const auto why = asks ? ask_judge(disk_judge_.judge, watched->row) : std::nullopt;
    if (why) {
      known.category = ExecCategory::disk_quota;
      known.error = *why;
    }
    finish_end(watched, std::move(known));
  });
  watched->set_handled();
}

void ExecWatcher::finish_end(const WatchedPtr& watched, state_db::ExecOutcome outcome) {
  if (!watched->sync) return write_outcome(watched, std::move(outcome));
  try {
    base::sync_file_system(context_.options.store);
    write_outcome(watched, outcome);
  } catch (const base::Error& error) {  // not durable: do not report a clean end
    auto failed = outcome;
    failed.state = ExecState::interrupted;
    failed.category = ExecCategory::not_synced;
    failed.error = "the command ended, but its files could not be synced: " + error.message();
    write_outcome(watched, std::move(failed));
  }
}

void ExecWatcher::interrupt(const WatchedPtr& watched, ExecCategory category,
                            const std::string& why) {
  {
    const std::lock_guard lock(watched->mutex);
    if (watched->over) return;
    watched->over = true;
  }
  state_db::ExecOutcome outcome;
  outcome.state = ExecState::interrupted;
  outcome.category = category;
  outcome.error = why;
  outcome.output_bytes = watched->output_bytes;
  outcome.omitted_bytes = watched->omitted_bytes();
  write_outcome(watched, std::move(outcome));
  watched->set_handled();
}

void ExecWatcher::write_outcome(const WatchedPtr& watched, state_db::ExecOutcome outcome) {
  const auto id = watched->row.id;
  state_db::ExecTable execs(context_.store);
  before_outcome.pass();
  try {
    // A cancel requested before the end is the reason for the end, whatever the exit code. So is a
    // cancel that stopping the sandbox carried out.
    const bool ended =
        outcome.state != ExecState::interrupted || outcome.category == ExecCategory::stopped;
    const Applied verdict = apply_verdict(*watched, outcome);
    if (outcome.ended_wall_ms == 0) outcome.ended_wall_ms = context_.store.clock().wall_ms();
    if (outcome.state == ExecState::timed_out && outcome.error.empty())
      outcome.error = watched->row.outcome.error;  // whose time limit it was
    if (outcome.ran_ms == 0)
      outcome.ran_ms = watched->ran_ms(context_.store.clock(), outcome.ended_wall_ms);
    context_.store.transaction([&] {
      const auto row = execs.get(id);
      if (verdict != Applied::with_state && ended && row.cancel_requested) {
        outcome.state = ExecState::cancelled;
        outcome.category = ExecCategory::cancelled;
        if (verdict == Applied::nothing && !row.outcome.error.empty())
          outcome.error = row.outcome.error;  // by whom, and why
      } else if (verdict == Applied::nothing && outcome.error.empty()) {
        outcome.error = sender_of_end(row, outcome);
      }
      execs.finish(id, outcome);
    });
  } catch (const base::Error& error) {
    keep_unwritten(watched, std::move(outcome), error);
    return;
  }
  after_outcome.pass();
  context_.metrics.count_end(watched->row, outcome);
  base::log(base::LogLevel::info, "exec.ended",
            {{"ws", watched->row.request.workspace},
             {"sb", watched->row.request.sandbox},
             {"ex", id},
             {"state", state_db::state_name(outcome.state)},
             {"code", outcome.exit_code.value_or(-1)},
             {"category", outcome.category ? state_db::category_name(*outcome.category) : ""}});
  {
    const std::lock_guard lock(mutex_);
    if (watched->watch >= 0) {
      inotify_rm_watch(inotify_.get(), watched->watch);
      by_watch_.erase(watched->watch);
    }
    execs_.erase(id);
    more_.erase(id);
  }
  notify(id);
  if (on_end_) pool_.submit(watched->share(), [this, watched] { on_end_(watched->row); });
}

ExecWatcher::Applied ExecWatcher::apply_verdict(const Watched& watched,
                                                state_db::ExecOutcome& outcome) {
  const std::lock_guard lock(mutex_);
  if (!watched.verdict) return Applied::nothing;
  const auto& [state, category, why] = *watched.verdict;
  if (!state && succeeded(outcome)) return Applied::nothing;  // it ended by itself first
  outcome.state = state.value_or(outcome.state);
  outcome.category = category;
  outcome.error = why;
  // If a cancel was also requested, the stop carried it out.
  return state || category != ExecCategory::stopped ? Applied::with_state : Applied::reason;
}

// Retries on a full disk until there is room. If the daemon dies first, the next one reads the end
// from the journal, or records the exec as interrupted.
void ExecWatcher::keep_unwritten(const WatchedPtr& watched, state_db::ExecOutcome outcome,
                                 const base::Error& error) {
  if (!watched->told_unwritten.exchange(true)) {
    base::log(base::LogLevel::error, "exec.outcome_not_written",
              {{"ex", watched->row.id}, {"error", error.message()}});
  }
  if (error.code() != base::Code::resource_exhausted && error.code() != base::Code::unavailable)
    return;
  const std::lock_guard lock(mutex_);
  unwritten_.emplace_back(watched, std::move(outcome));
  wake();
}

int ExecWatcher::write_overdue() {
  decltype(unwritten_) overdue;
  {
    const std::lock_guard lock(mutex_);
    if (unwritten_.empty()) return -1;
    const auto now = std::chrono::steady_clock::now();
    if (now < next_write_) return whole_ms(next_write_ - now);
    next_write_ = now + kWritePause;  // the first retry is immediate: a reserve was freed
    overdue.swap(unwritten_);
  }
  for (auto& [watched, outcome] : overdue) {
    pool_.submit(watched->share(),
                 [this, watched = watched, outcome = outcome] { write_outcome(watched, outcome); });
  }
  return static_cast<int>(kWritePause.count());
}

// Processes that a command leaves behind run until the sandbox stops. But if they take more than
// half of the workspace's process limit, they are a fork bomb: no further command could start.
void ExecWatcher::end_bomb(const Watched& watched, backends::ExecGroup& group) {
  const auto workspace =
      state_db::WorkspaceTable(context_.store).get(watched.row.request.workspace);
  const uint64_t left = group.processes();
  if (left <= workspace.policy.limits.pids / 2) return;
  group.kill();
  base::log(base::LogLevel::warning, "exec.bomb_killed",
            {{"ws", workspace.id}, {"ex", watched.row.id}, {"processes", left}});
}

// Only if the kernel enforces the quota; otherwise the quota watcher ends the command and says why.
bool ExecWatcher::is_at_limit(base::WorkspaceId workspace) {
  auto& quota = context_.storage.quota();
  if (!quota.refuses_bytes()) return false;
  const auto row = state_db::WorkspaceTable(context_.store).find(workspace);
  if (!row || !row->layer) return false;
  const auto& limits = row->policy.limits;
  try {
    auto use = quota.use(row->layer, context_.storage.layer_path(row->layer));
    if (!use) return false;
    const layers::QuotaUse others = DiskUse(context_).beside(workspace, row->layer).use;
    use->bytes += others.bytes;
    if (use->files) use->files = *use->files + others.files.value_or(0);
    const bool bytes = limits.disk_bytes > 0 && use->bytes + kQuotaSlack > limits.disk_bytes;
    return bytes || (limits.disk_files > 0 && use->files.value_or(0) >= limits.disk_files);
  } catch (const base::Error&) {
    return false;  // the workspace is being removed
  }
}

bool ExecWatcher::is_stopping(base::SandboxId sandbox) {
  const auto row = state_db::SandboxTable(context_.store).find(sandbox);
  return row && (row->state == state_db::SandboxState::stopping ||
                 row->state == state_db::SandboxState::stopped);
}

ExecEvidence ExecWatcher::look_at_end(const Watched& watched,
                                      const state_db::ExecOutcome& outcome) {
  ExecEvidence evidence;
  const bool failed = !succeeded(outcome);
  if (failed) {
    const auto space = base::file_system_space(context_.options.store);
    evidence.disk_full =
        space.free_bytes < kLeastBytes || (space.total_inodes > 0 && space.free_inodes == 0);
    evidence.disk_quota = is_at_limit(watched.row.request.workspace);
    evidence.stopping = is_stopping(watched.row.request.sandbox);
  }
  const auto running = active_.without_mounts(watched.row.request.sandbox);
  if (!running) return evidence;
  try {
    auto group = running->backend->exec_group(running->name, watched.row.id.str());
    if (failed) {
      evidence.out_of_memory = group->oom_kills() > 0;
      const Refusals now = count_refusals(*running, *group);
      evidence.refused.forks = now.forks - std::min(now.forks, watched.before.forks);
      evidence.refused.packets = now.packets - std::min(now.packets, watched.before.packets);
    }
    if (group->empty()) {
      group->remove();
    } else {
      end_bomb(watched, *group);
    }
  } catch (const base::Error&) {
    // The sandbox is stopping and its group is gone: no counter is left to read.
  }
  return evidence;
}

}  // namespace moorage::workspace
