#include "workspace/exec/decide_end.h"

#include <string.h>

#include <csignal>

namespace moorage::workspace {
namespace {

using state_db::ExecCategory;
using state_db::ExecOutcome;
using state_db::ExecState;

std::optional<ExecCategory> categorize(const ExecOutcome& outcome, const ExecEvidence& evidence) {
  if (outcome.state == ExecState::cancelled) return ExecCategory::cancelled;
  if (outcome.state == ExecState::timed_out) return ExecCategory::timeout;
  if (outcome.state == ExecState::oom_killed) return ExecCategory::out_of_memory;
  if (outcome.category) return outcome.category;
  if (succeeded(outcome)) return std::nullopt;
  if (evidence.stopping) return ExecCategory::stopped;
  if (outcome.state == ExecState::interrupted) return ExecCategory::lost;
  if (evidence.out_of_memory) return ExecCategory::out_of_memory;
  if (outcome.state == ExecState::signalled) return ExecCategory::signal;
  if (evidence.refused.forks > 0) return ExecCategory::pids_limit;
  if (evidence.disk_quota) return ExecCategory::disk_quota;
  if (evidence.disk_full) return ExecCategory::disk_full;
  if (evidence.refused.packets > 0) return ExecCategory::network_denied;
  return std::nullopt;
}

void explain(ExecOutcome& end, const ExecEvidence& evidence) {
  // 137: a shell reports that one of its children was killed.
  const bool killed = end.signal == SIGKILL || end.exit_code == 128 + SIGKILL;
  if (killed && evidence.out_of_memory) end.state = ExecState::oom_killed;
  end.category = categorize(end, evidence);
  if (evidence.over_disk_limit) {
    end.category = ExecCategory::disk_quota;
    end.error = *evidence.over_disk_limit;
  }
  if (evidence.sync_error) {  // not durable: do not report a clean end
    end.state = ExecState::interrupted;
    end.category = ExecCategory::not_synced;
    end.error = "the command ended, but its files could not be synced: " + *evidence.sync_error;
  }
}

// Names who sent the signal that ended the command, if it was someone other than its owner. A shell
// reports a child that a signal ended as exit code 128 + signal.
std::string sender_of_end(const state_db::ExecRow& row, const ExecOutcome& end) {
  if (!row.sent_signal || row.sent_by.empty()) return {};
  const int sent = *row.sent_signal;
  const bool ended = end.state == ExecState::signalled
                         ? end.signal == sent
                         : end.state == ExecState::exited && end.exit_code == 128 + sent;
  if (!ended) return {};
  const char* name = sigabbrev_np(sent);
  return (name ? std::string("SIG") + name : "signal " + std::to_string(sent)) + " sent by " +
         row.sent_by;
}

}  // namespace

bool succeeded(const ExecOutcome& outcome) {
  return outcome.state == ExecState::exited && outcome.exit_code == 0;
}

ExecOutcome decide_end(const ExecOutcome& record, const ExecEvidence& evidence,
                       const std::optional<ExecVerdict>& verdict, const state_db::ExecRow& row) {
  ExecOutcome end = record;
  explain(end, evidence);
  // A cancel carried out by stopping the sandbox is still a cancel.
  const bool may_be_cancelled =
      end.state != ExecState::interrupted || end.category == ExecCategory::stopped;
  // Otherwise it ended by itself first.
  const bool judged = verdict && (verdict->state || !succeeded(end));
  if (judged) {
    end.state = verdict->state.value_or(end.state);
    end.category = verdict->category;
    end.error = verdict->why;
  }
  // The row's error says whose time limit it was or, after a cancel, who cancelled it and why.
  if (end.state == ExecState::timed_out && end.error.empty()) end.error = row.outcome.error;
  const bool outranks_cancel =
      judged && (verdict->state || verdict->category != ExecCategory::stopped);
  if (row.cancel_requested && may_be_cancelled && !outranks_cancel) {
    end.state = ExecState::cancelled;
    end.category = ExecCategory::cancelled;
    if (!judged && !row.outcome.error.empty()) end.error = row.outcome.error;
  } else if (!judged && end.error.empty()) {
    end.error = sender_of_end(row, end);
  }
  return end;
}

}  // namespace moorage::workspace
