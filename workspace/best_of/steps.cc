// One attempt of a best-of: its command or its patch, the size of its diff, its test.
#include <fcntl.h>

#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/wire/journal.h"
#include "state_db/store.h"
#include "workspace/best_of/driver.h"
#include "workspace/context/try_step.h"

namespace moorage::workspace {
namespace {

using state_db::AttemptRow;
using state_db::AttemptState;
using state_db::BestOfRow;
using state_db::BestOfTable;
using state_db::ExecRow;
using state_db::ExecState;

MOORAGE_CRASH_POINT(after_each, "best_of.after_each");
MOORAGE_CRASH_POINT(after_measure, "best_of.after_measure");
MOORAGE_CRASH_POINT(after_test, "best_of.after_test");

constexpr uint64_t kTailBytes = 2000;
constexpr size_t kPieceBytes = 256 << 10;
constexpr std::chrono::milliseconds kFeedPatience{5'000};
constexpr int kStarts = 4;

std::string replaced(std::string word, uint32_t number) {
  const std::string text = std::to_string(number);
  for (size_t at = 0; (at = word.find("{i}", at)) != std::string::npos; at += text.size())
    word.replace(at, 3, text);
  return word;
}

// "the test exited with 1"
std::string describe(const std::string& what, const ExecRow& exec) {
  const auto& end = exec.outcome;
  switch (exec.state) {
    case ExecState::running:
      return what + " is running";
    case ExecState::exited:
      if (end.exit_code) return what + " exited with " + std::to_string(*end.exit_code);
      return what + " could not be run: " + end.error;
    case ExecState::signalled:
      return what + " was killed by signal " + std::to_string(end.signal.value_or(0));
    case ExecState::timed_out:
      return what + " exceeded its timeout";
    case ExecState::oom_killed:
      return what + " ran out of memory";
    case ExecState::cancelled:
      return what + " was cancelled";
    case ExecState::interrupted:
      return what + " was interrupted and is not run again: " + end.error;
  }
  return what;
}

AttemptState end_state(const ExecRow& exec) {
  if (exec.state == ExecState::interrupted) return AttemptState::interrupted;
  return exec.state == ExecState::cancelled ? AttemptState::cancelled : AttemptState::failed;
}

}  // namespace

void BestOfDriver::drive_attempt(base::AttemptId id) {
  BestOfTable table(context_.store);
  for (;;) {
    const auto attempt = table.attempt(id);
    if (!attempt.is_under_way() || stopping_) return;
    const auto row = table.get(attempt.best_of);
    try {
      const bool first = attempt.state == AttemptState::applying;
      if (!(first ? apply(row, attempt) : test(row, attempt))) return;
    } catch (const Error& error) {
      if (stopping_) return;  // the next start continues here
      if (error.code() == Code::io || error.code() == Code::corrupted) throw;
      const auto now = table.attempt(id);
      end(row, now, {AttemptState::failed, error.message(), ""}, {});
      return;
    }
  }
}

// Runs one command, however often the daemon dies: never starts it again if it has a record, unless
// the record says that it never ran.
ExecRow BestOfDriver::start_once(const Caller& caller, base::WorkspaceId fork,
                                 ExecRequest request) {
  const std::string key = request.idempotency_key;
  for (int start = 1;; ++start) {
    if (start > 1) request.idempotency_key = key + "/" + std::to_string(start);
    std::optional<ExecRow> made;
    try {
      made = execs_.start(caller, fork.str(), request).row;
    } catch (const Error&) {
      made = state_db::ExecTable(context_.store).find_by_key(fork, request.idempotency_key);
      if (!made) throw;
    }
    if (!never_started(*made) || start == kStarts) return *std::move(made);
  }
}

// Starts it unless it was started before; ends it if the best-of is cancelled.
ExecRow BestOfDriver::run(const BestOfRow& row, const AttemptRow& attempt, ExecRequest request,
                          base::ExecId known) {
  const Caller caller = owner_of(row);
  ExecRow exec;
  if (known) exec = state_db::ExecTable(context_.store).get(known);
  const bool cancelled = BestOfTable(context_.store).get(row.id).cancel_requested;
  if (!known || (never_started(exec) && !cancelled)) {
    const bool first = attempt.state == AttemptState::applying;
    request.environment = {{"MOORAGE_ATTEMPT", std::to_string(attempt.number)},
                           {"MOORAGE_BEST_OF", row.id.str()}};
    request.timeout_ms = row.wanted.timeout_ms;
    request.idempotency_key =
        row.id.str() + "/" + std::to_string(attempt.number) + (first ? "/each" : "/test");
    exec = start_once(caller, attempt.workspace, std::move(request));
    (first ? after_each : after_test).pass();
    BestOfTable table(context_.store);
    first ? table.set_each(attempt.id, exec.id) : table.set_test(attempt.id, exec.id);
  }
  if (exec.state != ExecState::running) return exec;
  if (cancelled && !exec.cancel_requested) {
    try {
      Caller ending = caller;
      ending.is_daemon = true;  // the cancel already checked the leases
      execs_.cancel(ending, exec.id, row.id.str() + " was cancelled");
    } catch (const Error& error) {  // it ended meanwhile; the next step sees that
      base::log(base::LogLevel::debug, "best_of.not_cancelled",
                {{"ex", exec.id}, {"error", error.message()}});
    }
  }
  return await(std::move(exec), attempt.id);
}

// Its end requests the attempt's next step. List first, then read: an end between the two is seen
// twice, never missed.
ExecRow BestOfDriver::await(ExecRow exec, base::AttemptId attempt) {
  {
    const std::lock_guard lock(mutex_);
    if (!awaited_.emplace(exec.id, attempt).second) return exec;
  }
  exec = state_db::ExecTable(context_.store).get(exec.id);
  if (exec.state != ExecState::running) {
    const std::lock_guard lock(mutex_);
    awaited_.erase(exec.id);
  }
  return exec;
}

bool BestOfDriver::apply(const BestOfRow& row, const AttemptRow& attempt) {
  ExecRequest request;
  if (row.wanted.each.empty()) {
    if (!attempt.each_exec &&
        !base::path_exists(patches_path(context_.options, row.wanted.workspace, row.id))) {
      end(row, attempt, {AttemptState::failed, "the purge of the workspace removed its patch", ""},
          {});
      return false;
    }
    request.argv = {"git", "apply", "--whitespace=nowarn", "-"};
    request.input = true;
  } else {
    for (const auto& word : row.wanted.each) request.argv.push_back(replaced(word, attempt.number));
  }
  const ExecRow exec = run(row, attempt, request, attempt.each_exec);
  if (exec.state == ExecState::running) {
    if (request.input) feed(row, attempt, exec.id);
    return false;
  }
  if (!succeeded(exec.outcome)) {
    const std::string what = request.input ? "git apply of the patch" : "the command";
    end(row, attempt, {end_state(exec), describe(what, exec), ""}, exec.id);
    return false;
  }
  if (BestOfTable(context_.store).get(row.id).cancel_requested) {
    end(row, attempt, {AttemptState::cancelled, "cancelled before its test", ""}, exec.id);
    return false;
  }
  std::optional<state_db::AttemptDiff> diff;
  {  // one at a time: large diffs would take each other's memory
    const auto guard = lock_if_free(context_, row.id.str() + " measure");
    if (!guard) return false;  // requested again below, and at each tick
    diff = comparison_.since_fork(state_db::WorkspaceTable(context_.store).get(attempt.workspace));
  }
  after_measure.pass();
  BestOfTable(context_.store).begin_test(attempt.id, diff);
  this->request(row.id);
  return true;
}

bool BestOfDriver::test(const BestOfRow& row, const AttemptRow& attempt) {
  ExecRequest request;
  request.argv = row.wanted.test;
  const ExecRow exec = run(row, attempt, request, attempt.test_exec);
  if (exec.state == ExecState::running) return false;
  if (succeeded(exec.outcome)) {
    end(row, attempt, {AttemptState::passed, "", ""}, exec.id);
  } else {
    end(row, attempt, {end_state(exec), describe("the test", exec), ""}, exec.id);
  }
  return false;
}

// The warden knows how much input it accepted, so a restarted daemon continues from there. git
// apply reads all of its input before it changes a file.
void BestOfDriver::feed(const BestOfRow& row, const AttemptRow& attempt, base::ExecId exec) {
  {
    const std::lock_guard lock(mutex_);
    if (fed_.contains(attempt.id)) return;
  }
  const Caller caller = owner_of(row);
  const std::string path = patches_path(context_.options, row.wanted.workspace, row.id);
  if (!base::path_exists(path)) {  // the workspace was purged meanwhile
    execs_.cancel(caller, exec);
    return;
  }
  try {
    const base::Fd file = base::open_file(path, O_RDONLY | O_NOFOLLOW);
    uint64_t taken = execs_.input_accepted(caller, exec);
    while (taken < attempt.patch.patch_bytes) {
      const uint64_t left = attempt.patch.patch_bytes - taken;
      const std::string piece = base::read_at(file.get(), std::min<uint64_t>(kPieceBytes, left),
                                              attempt.patch.patch_offset + taken);
      taken = execs_.send_input(caller, exec, taken, piece, kFeedPatience).accepted;
    }
    execs_.close_input(caller, exec);
  } catch (const Error& error) {
    // It ended, or an earlier daemon closed its input; otherwise the next step tries again.
    base::log(base::LogLevel::debug, "best_of.not_fed", {{"ex", exec}, {"error", error.message()}});
    return;
  }
  const std::lock_guard lock(mutex_);
  fed_.insert(attempt.id);
}

void BestOfDriver::end(const BestOfRow& row, const AttemptRow& attempt, BestOfTable::End end,
                       base::ExecId exec) {
  const Caller caller = owner_of(row);
  if (exec) end.tail = tail_of(caller, exec);
  if (!row.wanted.keep) {  // stop first: when all have ended, no sandbox may be left
    try {
      // Commands beside the test had their time, too.
      start_stop_.stop(caller, attempt.workspace.str(), {.busy = {.force = true}});
    } catch (const Error& error) {  // it is stopped later as idle
      base::log(base::LogLevel::warning, "best_of.not_stopped",
                {{"ws", attempt.workspace}, {"error", error.message()}});
    }
  }
  BestOfTable(context_.store).end(attempt, end);
  request(row.id);
}

std::string BestOfDriver::tail_of(const Caller& caller, base::ExecId exec) {
  std::string tail;
  try {
    const auto row = state_db::ExecTable(context_.store).get(exec);
    const uint64_t bytes = row.outcome.output_bytes;
    const base::Fd journal = execs_.open_journal(caller, exec);
    base::JournalReader reader(journal.get());
    reader.seek_output(bytes - std::min(bytes, kTailBytes));
    while (tail.size() < kTailBytes) {
      const auto frame = reader.next();
      if (!frame || frame->header.kind == base::FrameKind::end) break;
      if (base::is_output(frame->header.kind)) tail += frame->payload;
    }
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;  // it was cut before its journal existed
  }
  return tail.substr(0, kTailBytes);
}

}  // namespace moorage::workspace
