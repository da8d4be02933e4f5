#include "workspace/exec/decide_end.h"

#include <string.h>

#include <boost/json.hpp>
#include <charconv>
#include <csignal>

namespace moorage::workspace {
namespace {

namespace json = boost::json;

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
  if (evidence.refused_host || evidence.refused.packets > 0) return ExecCategory::network_denied;
  return std::nullopt;
}

void explain(ExecOutcome& end, const ExecEvidence& evidence) {
  // 137: a shell reports that one of its children was killed.
  const bool killed = end.signal == SIGKILL || end.exit_code == 128 + SIGKILL;
  if (killed && evidence.out_of_memory) end.state = ExecState::oom_killed;
  end.category = categorize(end, evidence);
  if (end.category == ExecCategory::network_denied && evidence.refused_host)
    end.error = *evidence.refused_host;
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

int64_t number(const json::object& object, std::string_view key) {
  const auto* value = object.if_contains(key);
  if (value == nullptr) return 0;
  if (const auto* text =
          value->if_string()) {  // 64-bit numbers travel as strings, as in proto3 JSON
    int64_t parsed = 0;
    std::from_chars(text->data(), text->data() + text->size(), parsed);
    return parsed > 0 ? parsed : 0;
  }
  if (const auto* integer = value->if_int64()) return *integer > 0 ? *integer : 0;
  return 0;
}

// Only these words are accepted from the warden; we derive the others from outside the sandbox.
std::optional<ExecCategory> start_failure(std::string_view word) {
  const auto category = state_db::category_from_name(word);
  const bool known = category == ExecCategory::not_found ||
                     category == ExecCategory::not_executable ||
                     category == ExecCategory::not_started;
  return known ? category : std::nullopt;
}

ExecOutcome damaged() {
  return {.state = ExecState::interrupted, .error = "the record of the command's end is damaged"};
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

ExecOutcome parse_exec_end(const std::string& payload) {
  boost::system::error_code parse_error;
  const json::value value = json::parse(payload, parse_error);
  const auto* object = parse_error ? nullptr : value.if_object();
  const auto* kind = object == nullptr ? nullptr : object->if_contains("kind");
  if (kind == nullptr || !kind->is_string()) return damaged();

  ExecOutcome outcome;
  if (kind->as_string() == "exited") {
    outcome.state = ExecState::exited;
    outcome.exit_code = static_cast<int>(number(*object, "code") & 0xff);
  } else if (kind->as_string() == "signalled") {
    outcome.state = ExecState::signalled;
    outcome.signal = static_cast<int>(number(*object, "signal") & 0x7f);
  } else if (kind->as_string() == "timed_out") {
    outcome.state = ExecState::timed_out;
  } else {
    return damaged();
  }
  if (const auto* error = object->if_contains("error"); error != nullptr && error->is_string()) {
    outcome.error = std::string(error->as_string()).substr(0, 4096);
  }
  if (const auto* word = object->if_contains("failure"); word != nullptr && word->is_string()) {
    outcome.category = start_failure(word->as_string());
  }
  outcome.omitted_bytes = static_cast<uint64_t>(number(*object, "omitted_bytes"));
  outcome.user_ms = number(*object, "user_ms");
  outcome.system_ms = number(*object, "system_ms");
  outcome.max_rss_bytes = static_cast<uint64_t>(number(*object, "max_rss_bytes"));
  if (object->contains("input_read"))
    outcome.input_read = static_cast<uint64_t>(number(*object, "input_read"));
  return outcome;
}

}  // namespace moorage::workspace
