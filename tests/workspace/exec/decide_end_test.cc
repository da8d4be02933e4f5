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
ExecOutcome lost(C category) {
  return {.state = S::interrupted, .category = category, .error = "it died"};
}
ExecOutcome damaged() { return {.state = S::interrupted, .error = "damaged"}; }
const ExecOutcome kTimedOut{.state = S::timed_out};

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

const Verdict kStop{{{}, C::stopped, "with it"}};
const Verdict kDisk{{{}, C::disk_full, "the disk is full"}};
const Verdict kTakeover{{S::cancelled, C::cancelled, "takeover"}};

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
      // record, evidence, verdict, row, and what the row says then
      // clang-format off
      // By itself.
      {__LINE__, exited(0), {}, {}, {}, "exited"},
      {__LINE__, exited(0), kAllRefusals, {}, {}, "exited"},
      {__LINE__, exited(0), kStopping, {}, {}, "exited"},
      {__LINE__, exited(1), {}, {}, {}, "exited"},
      {__LINE__, exited(127), {}, {}, {}, "exited"},
      {__LINE__, not_started(C::not_found), {}, {}, {}, "exited not_found: no such file"},
      {__LINE__, not_started(C::not_found), kAllRefusals, {}, {}, "exited not_found: no such file"},
      {__LINE__, signalled(15), {}, {}, {}, "signalled signal"},
      {__LINE__, kTimedOut, {}, {}, {}, "timed_out timeout"},
      {__LINE__, kTimedOut, {}, {}, limited(), "timed_out timeout: max_exec_s"},
      {__LINE__, kTimedOut, kAllRefusals, {}, {}, "timed_out timeout"},
      {__LINE__, damaged(), {}, {}, {}, "interrupted lost: damaged"},
      {__LINE__, damaged(), kStopping, {}, {}, "interrupted stopped: damaged"},
      {__LINE__, damaged(), kAllRefusals, {}, {}, "interrupted lost: damaged"},
      {__LINE__, lost(C::lost), {}, {}, {}, "interrupted lost: it died"},
      {__LINE__, lost(C::not_started), {}, {}, {}, "interrupted not_started: it died"},
      // The evidence of a failure, strongest first.
      {__LINE__, exited(1), kStopping, {}, {}, "exited stopped"},
      {__LINE__, signalled(9), kStopping, {}, {}, "signalled stopped"},
      {__LINE__, signalled(9), kOom, {}, {}, "oom_killed out_of_memory"},
      {__LINE__, exited(137), kOom, {}, {}, "oom_killed out_of_memory"},
      {__LINE__, exited(1), kOom, {}, {}, "exited out_of_memory"},
      {__LINE__, signalled(11), kOom, {}, {}, "signalled out_of_memory"},
      {__LINE__, exited(1), kAllRefusals, {}, {}, "exited out_of_memory"},
      {__LINE__, signalled(11), kForks, {}, {}, "signalled signal"},
      {__LINE__, exited(1), kForks, {}, {}, "exited pids_limit"},
      {__LINE__, exited(1), kQuota, {}, {}, "exited disk_quota"},
      {__LINE__, exited(1), kFull, {}, {}, "exited disk_full"},
      {__LINE__, exited(1), kPackets, {}, {}, "exited network_denied"},
      {__LINE__, exited(3), kOver, {}, {}, "exited disk_quota: over its limit"},
      {__LINE__, exited(0), kOver, {}, {}, "exited disk_quota: over its limit"},
      // A sync that failed.
      {__LINE__, exited(0), kNotSynced, {}, {}, kUnsynced},
      {__LINE__, exited(1), kOverNotSynced, {}, {}, kUnsynced},
      {__LINE__, exited(0), kNotSynced, {}, cancelled(), kUnsynced},
      {__LINE__, exited(0), kNotSynced, kStop, {}, "interrupted stopped: with it"},
      // A signal that somebody sent.
      {__LINE__, signalled(15), {}, {}, sent(15), "signalled signal: SIGTERM sent by bob"},
      {__LINE__, exited(143), {}, {}, sent(15), "exited: SIGTERM sent by bob"},
      {__LINE__, signalled(15), {}, {}, sent(15, ""), "signalled signal"},
      {__LINE__, signalled(9), {}, {}, sent(15), "signalled signal"},
      {__LINE__, exited(0), {}, {}, sent(15), "exited"},
      {__LINE__, signalled(15), {}, kStop, sent(15), "signalled stopped: with it"},
      // A cancel.
      {__LINE__, signalled(15), {}, {}, cancelled(), "cancelled cancelled: by bob"},
      {__LINE__, exited(0), {}, {}, cancelled(), "cancelled cancelled: by bob"},
      {__LINE__, signalled(15), {}, {}, cancelled(""), "cancelled cancelled"},
      {__LINE__, kTimedOut, {}, {}, cancelled(), "cancelled cancelled: by bob"},
      {__LINE__, exited(1), kOver, {}, cancelled(), "cancelled cancelled: by bob"},
      {__LINE__, lost(C::lost), {}, {}, cancelled(), "interrupted lost: it died"},
      {__LINE__, lost(C::not_started), {}, {}, cancelled(), "interrupted not_started: it died"},
      {__LINE__, lost(C::stopped), {}, {}, cancelled(), "cancelled cancelled: by bob"},
      {__LINE__, damaged(), kStopping, {}, cancelled(), "cancelled cancelled: by bob"},
      // A verdict of this daemon.
      {__LINE__, signalled(9), {}, kStop, {}, "signalled stopped: with it"},
      {__LINE__, exited(0), {}, kStop, {}, "exited"},
      {__LINE__, exited(0), {}, kTakeover, {}, "cancelled cancelled: takeover"},
      {__LINE__, signalled(9), {}, kDisk, {}, "signalled disk_full: the disk is full"},
      {__LINE__, exited(0), {}, kDisk, {}, "exited"},
      {__LINE__, signalled(9), kOom, kStop, {}, "oom_killed stopped: with it"},
      {__LINE__, lost(C::lost), {}, kStop, {}, "interrupted stopped: with it"},
      // A verdict and a cancel: a stop carries the cancel out, anything else outranks it.
      {__LINE__, signalled(9), {}, kStop, cancelled(), "cancelled cancelled: with it"},
      {__LINE__, exited(0), {}, kStop, cancelled(), "cancelled cancelled: by bob"},
      {__LINE__, signalled(9), {}, kDisk, cancelled(), "signalled disk_full: the disk is full"},
      {__LINE__, signalled(9), {}, kTakeover, cancelled(), "cancelled cancelled: takeover"},
      {__LINE__, lost(C::lost), {}, kStop, cancelled(), "interrupted stopped: with it"},
      {__LINE__, lost(C::stopped), {}, kStop, cancelled(), "cancelled cancelled: with it"},
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

TEST_CASE("the end record may say why a start failed, but no other category") {
  const auto word = [](const char* failure) {
    return parse_exec_end(R"({"kind":"exited","code":127,"failure":")" + std::string(failure) +
                          "\"}")
        .category;
  };
  CHECK(word("not_found") == ExecCategory::not_found);
  CHECK(word("not_executable") == ExecCategory::not_executable);
  CHECK(word("not_started") == ExecCategory::not_started);
  for (const char* other : {"out_of_memory", "disk_full", "cancelled", "", "NOT_FOUND", "x"}) {
    CHECK_FALSE(word(other));
  }
  CHECK_FALSE(parse_exec_end(R"({"kind":"exited","code":127})").category);
  CHECK_FALSE(parse_exec_end(R"({"kind":"exited","code":127,"failure":7})").category);
}
