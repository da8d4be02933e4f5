#include "workspace/exec/pre_stop.h"

#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "state_db/store.h"
#include "workspace/context/waiters.h"

namespace moorage::workspace {
namespace {

using state_db::ExecState;

MOORAGE_CRASH_POINT(after_intent, "pre_stop.after_intent");
MOORAGE_CRASH_POINT(after_start, "pre_stop.after_start");
MOORAGE_CRASH_POINT(stop_after_hook, "stop.after_hook");

constexpr const char* kPreStop = "pre_stop";

std::string trouble_of(const state_db::ExecRow& exec, int64_t deadline_s) {
  const auto& outcome = exec.outcome;
  if (succeeded(outcome)) return {};
  const std::string name = "pre_stop " + exec.id.str();
  if (exec.state == ExecState::running || exec.state == ExecState::timed_out)
    return name + " did not finish within " + std::to_string(deadline_s) + " s";
  const std::string how = exec.state == ExecState::exited
                              ? "exit " + std::to_string(outcome.exit_code.value_or(-1))
                              : std::string(state_db::state_name(exec.state));
  return name + " failed: " + how + (outcome.error.empty() ? "" : ", " + outcome.error);
}

}  // namespace

state_db::ExecRow PreStop::begin(const state_db::WorkspaceRow& row, const LiveSandbox& running) {
  state_db::NewExec record;
  record.workspace = row.id;
  record.sandbox = running.sandbox;
  record.owner_uid = row.owner_uid;
  record.argv = row.policy.pre_stop;
  record.directory = "/workspace";
  record.user = "user";
  record.timeout_ms = row.policy.pre_stop_deadline_s * 1000;
  record.hook = kPreStop;
  state_db::ExecTable table(context_.store);
  const auto exec = table.get(table.create(record).id);
  after_intent.pass();
  try {
    launcher_.launch(exec, row, running);
  } catch (const Error& error) {
    launcher_.settle_failed_launch(exec, running, error);
  }
  after_start.pass();
  return table.get(exec.id);
}

std::optional<state_db::ExecRow> PreStop::begun(const state_db::WorkspaceRow& row,
                                                const LiveSandbox& running) {
  state_db::ExecTable table(context_.store);
  base::ExecId known;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = begun_.find(running.sandbox); found != begun_.end())
      known = found->second;
  }
  std::optional<state_db::ExecRow> hook;
  if (known) hook = table.get(known);
  for (auto& exec : table.running(running.sandbox)) {
    if (!hook && !exec.request.hook.empty()) hook = std::move(exec);
  }
  if (!hook || hook->state == ExecState::running) return hook;
  const auto newest = table.list({.workspace = row.id, .limit = 1}).front();
  if (newest.started_wall_ms > hook->outcome.ended_wall_ms) hook.reset();
  return hook;
}

std::string PreStop::run(const state_db::WorkspaceRow& row) {
  const auto running = context_.live.running(row.id);
  if (row.policy.pre_stop.empty() || !running || !base::process_alive(running->init)) return {};
  auto hook = begun(row, *running);
  if (!hook) hook = begin(row, *running);
  {
    const std::lock_guard lock(mutex_);
    begun_[running->sandbox] = hook->id;
  }
  if (hook->state == ExecState::running)
    throw Waiting({hook->id}, "pre_stop " + hook->id.str() + " of " + row.name + " is running");
  stop_after_hook.pass();
  const std::string trouble = trouble_of(*hook, row.policy.pre_stop_deadline_s);
  if (!trouble.empty()) {
    context_.store.add_event("workspace.pre_stop",
                             {.workspace = row.id, .sandbox = running->sandbox}, trouble);
    base::log(base::LogLevel::warning, "workspace.pre_stop",
              {{"ws", row.id}, {"sb", running->sandbox}, {"error", trouble}});
  }
  return trouble;
}

void PreStop::forget(base::SandboxId sandbox) {
  const std::lock_guard lock(mutex_);
  begun_.erase(sandbox);
}

}  // namespace moorage::workspace
