// pre_stop: the workspace's own command before its sandbox is stopped. A command as any other, with
// a record and a journal, so what a crash leaves of it is settled as of any other: the sandbox that
// was to be stopped runs on, and the warden ends the command at its deadline.
#include "base/crash_point.h"
#include "base/error.h"
#include "state_db/store.h"
#include "workspace/execs.h"

namespace moorage::workspace {
namespace {

using base::Code;
using base::Error;
using state_db::ExecState;
using std::chrono::milliseconds;

MOORAGE_CRASH_POINT(after_intent, "pre_stop.after_intent");
MOORAGE_CRASH_POINT(after_start, "pre_stop.after_start");

constexpr milliseconds kSlice{250};
// The warden ends it at its deadline; this is for the record to come.
constexpr milliseconds kRecordPatience{5'000};

std::string trouble_of(const state_db::ExecRow& exec, int64_t deadline_s) {
  const std::string name = "pre_stop " + exec.id.str();
  const auto& outcome = exec.outcome;
  switch (exec.state) {
    case ExecState::exited:
      if (outcome.exit_code == 0) return {};
      return name + " failed: exit " + std::to_string(outcome.exit_code.value_or(-1)) +
             (outcome.error.empty() ? "" : ", " + outcome.error);
    case ExecState::running:
    case ExecState::timed_out:
      return name + " was not done after " + std::to_string(deadline_s) + " s";
    case ExecState::signalled:
    case ExecState::oom_killed:
    case ExecState::cancelled:
    case ExecState::interrupted:
      return name + " failed: " + std::string(state_db::state_name(exec.state)) +
             (outcome.error.empty() ? "" : ", " + outcome.error);
  }
  return name;
}

}  // namespace

std::string Execs::run_pre_stop(const state_db::WorkspaceRow& row, const Running& running) {
  ExecRequest request;
  request.argv = row.policy.pre_stop;
  state_db::ExecRequest record;
  record.workspace = row.id;
  record.sandbox = running.sandbox;
  record.owner_uid = row.owner_uid;
  record.argv = request.argv;
  record.directory = request.directory;
  record.user = request.user;
  record.timeout_ms = row.policy.pre_stop_deadline_s * 1000;
  record.hook = "pre_stop";
  state_db::Execs table(context_.store);
  const auto exec = table.get(table.create(record).id);
  after_intent.pass();
  try {
    launch(exec, request, row, running);
  } catch (const Error& error) {
    settle_failed_launch(exec, running, error);
    return "pre_stop " + exec.id.str() + " could not be started: " + error.message();
  }
  after_start.pass();
  const auto until = std::chrono::steady_clock::now() + milliseconds(record.timeout_ms) +
                     context_.options.stop_grace + kRecordPatience;
  for (;;) {
    const auto now = wait(Caller{}, exec.id, kSlice).row;
    if (now.state != ExecState::running || std::chrono::steady_clock::now() >= until)
      return trouble_of(now, row.policy.pre_stop_deadline_s);
    if (workspaces_.leaving()) {
      throw Error(Code::unavailable,
                  row.name + " is not stopped: the daemon is going down while its pre_stop runs");
    }
  }
}

}  // namespace moorage::workspace
