// How a command ended: a table, a line a case. A line reads: what the warden wrote, what else is
// known, and the record that the user sees.
#include "workspace/exec/decide_end.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

using namespace moorage::workspace;
using moorage::state_db::ExecCategory;
using moorage::state_db::ExecOutcome;
using moorage::state_db::ExecRow;
using moorage::state_db::ExecState;

namespace {

using C = ExecCategory;
using S = ExecState;
using Verdict = std::optional<ExecVerdict>;

ExecOutcome exited(int code) { return {.exit_code = code}; }
ExecOutcome signalled(int signal) { return {.state = S::signalled, .signal = signal}; }
ExecOutcome not_started(C category) {
  return {.exit_code = 127, .category = category, .error = "no such file"};
}
ExecOutcome interrupted(C category) {
  return {.state = S::interrupted, .category = category, .error = "its sandbox died"};
}
ExecOutcome damaged() { return {.state = S::interrupted, .error = "damaged"}; }
const ExecOutcome kTimedOut{.state = S::timed_out};

const ExecEvidence kNone{};
const ExecEvidence kStopping{.stopping = true};
const ExecEvidence kOom{.out_of_memory = true};
const ExecEvidence kFull{.disk_full = true};
const ExecEvidence kQuota{.disk_quota = true};
const ExecEvidence kForks{.refused = {.forks = 1}};
const ExecEvidence kPackets{.refused = {.packets = 1}};
const ExecEvidence kAllRefusals{.out_of_memory = true,
                                .disk_full = true,
                                .disk_quota = true,
                                .refused = {.forks = 1, .packets = 1}};
const ExecEvidence kOver{.over_disk_limit = "over its limit"};
const ExecEvidence kNotSynced{.sync_error = "EIO"};
const ExecEvidence kOverNotSynced{.over_disk_limit = "over its limit", .sync_error = "EIO"};

const Verdict kNoVerdict{};
const Verdict kStop{{{}, C::stopped, "ended with its sandbox"}};
const Verdict kDisk{{{}, C::disk_full, "the disk is full"}};
const Verdict kTakeover{{S::cancelled, C::cancelled, "the lease was taken over"}};

ExecRow running() { return {}; }
ExecRow cancelled(const std::string& by = "by bob") {
  return {.cancel_requested = true, .outcome = {.error = by}};
}
ExecRow limited() { return {.outcome = {.error = "max_exec_s"}}; }
ExecRow sent(int signal, const std::string& by = "bob") {
  return {.sent_signal = signal, .sent_by = by};
}

std::string text(const ExecOutcome& end) {
  std::string line(moorage::state_db::state_name(end.state));
  if (end.category) line += " " + std::string(moorage::state_db::category_name(*end.category));
  return line + (end.error.empty() ? "" : ": " + end.error);
}

struct Case {
  int line;
  ExecOutcome record;
  ExecEvidence evidence;
  Verdict verdict;
  ExecRow row;
  std::string expected;
};

constexpr const char* kUnsynced =
    "interrupted not_synced: the command ended, but its files could not be synced: EIO";

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      // clang-format off
      // By itself.
      {__LINE__, exited(0), kNone, kNoVerdict, running(), "exited"},
      {__LINE__, exited(0), kAllRefusals, kNoVerdict, running(), "exited"},
      {__LINE__, exited(0), kStopping, kNoVerdict, running(), "exited"},
      {__LINE__, exited(1), kNone, kNoVerdict, running(), "exited"},
      {__LINE__, exited(127), kNone, kNoVerdict, running(), "exited"},
      {__LINE__, not_started(C::not_found), kNone, kNoVerdict, running(), "exited not_found: no such file"},
      {__LINE__, not_started(C::not_found), kAllRefusals, kNoVerdict, running(), "exited not_found: no such file"},
      {__LINE__, signalled(15), kNone, kNoVerdict, running(), "signalled signal"},
      {__LINE__, kTimedOut, kNone, kNoVerdict, running(), "timed_out timeout"},
      {__LINE__, kTimedOut, kNone, kNoVerdict, limited(), "timed_out timeout: max_exec_s"},
      {__LINE__, kTimedOut, kAllRefusals, kNoVerdict, running(), "timed_out timeout"},
      {__LINE__, damaged(), kNone, kNoVerdict, running(), "interrupted lost: damaged"},
      {__LINE__, damaged(), kStopping, kNoVerdict, running(), "interrupted stopped: damaged"},
      {__LINE__, damaged(), kAllRefusals, kNoVerdict, running(), "interrupted lost: damaged"},
      {__LINE__, interrupted(C::lost), kNone, kNoVerdict, running(), "interrupted lost: its sandbox died"},
      {__LINE__, interrupted(C::not_started), kNone, kNoVerdict, running(), "interrupted not_started: its sandbox died"},
      // The evidence of a failure, strongest first.
      {__LINE__, exited(1), kStopping, kNoVerdict, running(), "exited stopped"},
      {__LINE__, signalled(9), kStopping, kNoVerdict, running(), "signalled stopped"},
      {__LINE__, signalled(9), kOom, kNoVerdict, running(), "oom_killed out_of_memory"},
      {__LINE__, exited(137), kOom, kNoVerdict, running(), "oom_killed out_of_memory"},
      {__LINE__, exited(1), kOom, kNoVerdict, running(), "exited out_of_memory"},
      {__LINE__, signalled(11), kOom, kNoVerdict, running(), "signalled out_of_memory"},
      {__LINE__, exited(1), kAllRefusals, kNoVerdict, running(), "exited out_of_memory"},
      {__LINE__, signalled(11), kForks, kNoVerdict, running(), "signalled signal"},
      {__LINE__, exited(1), kForks, kNoVerdict, running(), "exited pids_limit"},
      {__LINE__, exited(1), kQuota, kNoVerdict, running(), "exited disk_quota"},
      {__LINE__, exited(1), kFull, kNoVerdict, running(), "exited disk_full"},
      {__LINE__, exited(1), kPackets, kNoVerdict, running(), "exited network_denied"},
      {__LINE__, exited(3), kOver, kNoVerdict, running(), "exited disk_quota: over its limit"},
      {__LINE__, exited(0), kOver, kNoVerdict, running(), "exited disk_quota: over its limit"},
      // A sync that failed.
      {__LINE__, exited(0), kNotSynced, kNoVerdict, running(), kUnsynced},
      {__LINE__, exited(1), kOverNotSynced, kNoVerdict, running(), kUnsynced},
      {__LINE__, exited(0), kNotSynced, kNoVerdict, cancelled(), kUnsynced},
      {__LINE__, exited(0), kNotSynced, kStop, running(), "interrupted stopped: ended with its sandbox"},
      // A signal that somebody sent.
      {__LINE__, signalled(15), kNone, kNoVerdict, sent(15), "signalled signal: SIGTERM sent by bob"},
      {__LINE__, exited(143), kNone, kNoVerdict, sent(15), "exited: SIGTERM sent by bob"},
      {__LINE__, signalled(15), kNone, kNoVerdict, sent(15, ""), "signalled signal"},
      {__LINE__, signalled(9), kNone, kNoVerdict, sent(15), "signalled signal"},
      {__LINE__, exited(0), kNone, kNoVerdict, sent(15), "exited"},
      {__LINE__, signalled(15), kNone, kStop, sent(15), "signalled stopped: ended with its sandbox"},
      // A cancel.
      {__LINE__, signalled(15), kNone, kNoVerdict, cancelled(), "cancelled cancelled: by bob"},
      {__LINE__, exited(0), kNone, kNoVerdict, cancelled(), "cancelled cancelled: by bob"},
      {__LINE__, signalled(15), kNone, kNoVerdict, cancelled(""), "cancelled cancelled"},
      {__LINE__, kTimedOut, kNone, kNoVerdict, cancelled(), "cancelled cancelled: by bob"},
      {__LINE__, exited(1), kOver, kNoVerdict, cancelled(), "cancelled cancelled: by bob"},
      {__LINE__, interrupted(C::lost), kNone, kNoVerdict, cancelled(), "interrupted lost: its sandbox died"},
      {__LINE__, interrupted(C::not_started), kNone, kNoVerdict, cancelled(), "interrupted not_started: its sandbox died"},
      {__LINE__, interrupted(C::stopped), kNone, kNoVerdict, cancelled(), "cancelled cancelled: by bob"},
      {__LINE__, damaged(), kStopping, kNoVerdict, cancelled(), "cancelled cancelled: by bob"},
      // A verdict of this daemon.
      {__LINE__, signalled(9), kNone, kStop, running(), "signalled stopped: ended with its sandbox"},
      {__LINE__, exited(0), kNone, kStop, running(), "exited"},
      {__LINE__, exited(0), kNone, kTakeover, running(), "cancelled cancelled: the lease was taken over"},
      {__LINE__, signalled(9), kNone, kDisk, running(), "signalled disk_full: the disk is full"},
      {__LINE__, exited(0), kNone, kDisk, running(), "exited"},
      {__LINE__, signalled(9), kOom, kStop, running(), "oom_killed stopped: ended with its sandbox"},
      {__LINE__, interrupted(C::lost), kNone, kStop, running(), "interrupted stopped: ended with its sandbox"},
      // A verdict and a cancel: a stop carries the cancel out, anything else outranks it.
      {__LINE__, signalled(9), kNone, kStop, cancelled(), "cancelled cancelled: ended with its sandbox"},
      {__LINE__, exited(0), kNone, kStop, cancelled(), "cancelled cancelled: by bob"},
      {__LINE__, signalled(9), kNone, kDisk, cancelled(), "signalled disk_full: the disk is full"},
      {__LINE__, signalled(9), kNone, kTakeover, cancelled(), "cancelled cancelled: the lease was taken over"},
      {__LINE__, interrupted(C::lost), kNone, kStop, cancelled(), "interrupted stopped: ended with its sandbox"},
      {__LINE__, interrupted(C::stopped), kNone, kStop, cancelled(), "cancelled cancelled: ended with its sandbox"},
      // clang-format on
  };
  return all;
}

}  // namespace

TEST_CASE("how a command ended follows from the record, the evidence, the verdict and the row") {
  for (const Case& one : cases()) {
    INFO("line " << one.line);
    CHECK(text(decide_end(one.record, one.evidence, one.verdict, one.row)) == one.expected);
  }
}

TEST_CASE("a decision keeps the times and sizes of the record") {
  ExecOutcome record = exited(0);
  record.ended_wall_ms = 7;
  record.ran_ms = 6;
  record.output_bytes = 5;
  record.omitted_bytes = 4;
  record.user_ms = 3;
  const auto end = decide_end(record, kNotSynced, kTakeover, cancelled());
  CHECK(end.ended_wall_ms == 7);
  CHECK(end.ran_ms == 6);
  CHECK(end.output_bytes == 5);
  CHECK(end.omitted_bytes == 4);
  CHECK(end.user_ms == 3);
  CHECK(end.exit_code == 0);
}
