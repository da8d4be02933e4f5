#include "workspace/verbs/start_stop.h"

#include <algorithm>

#include "backends/backend.h"
#include "base/crash_point.h"
#include "base/error.h"
#include "base/size_text.h"
#include "state_db/store.h"
#include "state_db/tables/sandboxes.h"
#include "workspace/access/keyed_request.h"
#include "workspace/access/placement.h"
#include "workspace/context/waiters.h"

namespace moorage::workspace {
namespace {

using state_db::SandboxState;
using state_db::WorkspaceState;

MOORAGE_CRASH_POINT(stop_before_intent, "stop.before_intent");

constexpr size_t kNamed = 5;       // commands, in a refusal
constexpr size_t kMostOfOne = 60;  // bytes of a command there

}  // namespace

LiveSandboxPtr StartStop::ensure_running(const state_db::WorkspaceRow& row, const Also& also) {
  const auto found = [&also](LiveSandboxPtr running) {
    if (also) also();
    return running;
  };
  if (auto running = context_.live.running(row.id); running && base::process_alive(running->init))
    return found(std::move(running));
  const auto guard =
      context_.locks.lock(row.id.str(), "start", context_.options.start_deadline * 2);
  if (auto running = context_.live.running(row.id)) {
    if (base::process_alive(running->init)) return found(std::move(running));
    watcher_.forget_sandbox(running->sandbox);
  }
  if (const auto old = state_db::SandboxTable(context_.store).live(row.id)) {
    sandboxes_.clear(*old, "found dead at start");
  }
  const auto current = state_db::WorkspaceTable(context_.store).get(row.id);
  check_start(context_, current);  // first, so that a refused start does not unarchive it
  // The key belongs to the request that needs it.
  if (current.state == WorkspaceState::archived) cold_storage_.bring_back(current);
  // Read the row again: a move may have changed it since the caller read it.
  return sandboxes_.start(state_db::WorkspaceTable(context_.store).get(row.id), also);
}

void StartStop::refuse_busy(const state_db::WorkspaceRow& row) {
  if (const auto running = commands_of(context_.store, row.id); !running.empty()) {
    throw Error(Code::conflict, row.name + " is busy: " + name_commands(running),
                "wait for it, or end it: moorage kill " + running.front().id.str());
  }
  if (context_.live.in_use(row.id)) {
    throw Error(Code::conflict, row.name + " is busy: a command is starting, or a file in transfer",
                "try again in a moment");
  }
}

void StartStop::bring_to_rest(const state_db::WorkspaceRow& row, const std::string& reason,
                              Hook hook) {
  refuse_busy(row);
  if (auto running = context_.live.running(row.id)) {
    measurer_.before_stop(row);
    if (hook == Hook::run) pre_stop_.run(row);
    auto taken = context_.live.take_unused(*running);
    const auto sandbox = running->sandbox;
    running.reset();  // release the mounts
    try {
      refuse_busy(row);  // a command may have begun meanwhile
      if (!taken) throw Error(Code::conflict, row.name + " was just used", "try again");
    } catch (const Error&) {
      if (taken) context_.live.set_running(std::move(taken));
      pre_stop_.forget(sandbox);
      throw;
    }
  }
  stop_sandbox(row, reason);
  context_.live.wait_unmounted(row.id, context_.options.transfer_patience);
}

WorkspaceView StartStop::start(const Caller& caller, const std::string& name) {
  const auto row = find_workspace(context_.store, caller, name, Right::write);
  leases_.check(caller, row);  // enough: a sandbox without a command writes nothing
  ensure_running(row, [&] { join_key(context_.store, caller, row.id.str()); });
  return views_.view(state_db::WorkspaceTable(context_.store).get(row.id));
}

WorkspaceView StartStop::stop(const Caller& caller, const std::string& name,
                              const StopRequest& request) {
  const auto row = find_workspace(context_.store, caller, name, Right::write);
  leases_.check(caller, row);
  make_way(context_.store, caller, row, request.busy);  // before it is measured
  if (row.state == WorkspaceState::ready) measurer_.before_stop(row);
  JoinedVerb joined{.workspace = row.id};
  {
    const auto guard = context_.locks.lock(row.id.str(), "stop");
    const auto writing = leases_.write(caller, row);
    make_way(context_.store, caller, row, request.busy);
    if (request.run_hook)
      joined.notice = pre_stop_.run(state_db::WorkspaceTable(context_.store).get(row.id));
    const auto sandbox = state_db::SandboxTable(context_.store).live(row.id);
    bool is_joined = false;
    stop_before_intent.pass();
    try {
      const auto begin = [&] {
        joined.ended = make_way(context_.store, caller, row, request.busy);  // also newer commands
        join_key(context_.store, caller, joined.subject());
        is_joined = true;
      };
      stop_sandbox(row, "stopped by " + user_name(caller.uid), {begin, request.busy.force});
      if (!is_joined) join_key(context_.store, caller, joined.subject());  // was already stopped
    } catch (...) {
      if (sandbox) pre_stop_.forget(sandbox->id);
      throw;
    }
  }
  if (row.state == WorkspaceState::ready) measurer_.refresh(row.id);
  return joined.in(views_.view(state_db::WorkspaceTable(context_.store).get(joined.workspace)));
}

WorkspaceView StartStop::resume(const std::string& subject) {
  const auto joined = JoinedVerb::parse(subject);
  const auto row = state_db::WorkspaceTable(context_.store).get(joined.workspace);
  state_db::SandboxTable sandboxes(context_.store);
  const auto is_stopping = [&] {
    const auto sandbox = sandboxes.live(joined.workspace);
    return sandbox &&
           (sandbox->state == SandboxState::stopping || sandbox->state == SandboxState::lost);
  };
  if (is_stopping()) {
    const auto guard = context_.locks.lock(joined.workspace.str(), "stop");
    if (is_stopping()) stop_sandbox(row, "stopped");
  }
  return joined.in(views_.look(joined.workspace));
}

void StartStop::stop_because(base::WorkspaceId id, const std::string& reason) {
  const auto guard = context_.locks.lock(id.str(), "stop", std::chrono::milliseconds(0));
  stop_sandbox(state_db::WorkspaceTable(context_.store).get(id), reason);
}

void StartStop::stop_sandbox(const state_db::WorkspaceRow& present, const std::string& reason,
                             const Sandboxes::StopRules& rules) {
  const auto stopped = sandboxes_.stop(present, reason, rules);
  if (stopped && stopped->state == WorkspaceState::ready) snapshots_.after_stop(*stopped);
}

std::vector<state_db::ExecRow> commands_of(state_db::Store& store, base::WorkspaceId id) {
  auto running = state_db::ExecTable(store).running();
  std::erase_if(running, [&](const auto& exec) {
    return exec.request.workspace != id || !exec.request.hook.empty();
  });
  return running;
}

std::string name_commands(const std::vector<state_db::ExecRow>& execs) {
  std::string text;
  for (size_t n = 0; n < std::min(execs.size(), kNamed); ++n) {
    std::string command;
    for (const auto& word : execs[n].request.argv) command += (command.empty() ? "" : " ") + word;
    if (command.size() > kMostOfOne) command.replace(kMostOfOne, std::string::npos, "...");
    text += (n == 0 ? "" : ", ") + execs[n].id.str() + " (" + command + ")";
  }
  if (execs.size() > kNamed) text += " and " + std::to_string(execs.size() - kNamed) + " more";
  return text + " " + base::verb_text(execs.size(), "run");
}

std::vector<base::ExecId> make_way(state_db::Store& store, const Caller& caller,
                                   const state_db::WorkspaceRow& row, const BusyRule& rule) {
  const auto running = commands_of(store, row.id);
  std::vector<base::ExecId> ids;
  for (const auto& exec : running) ids.push_back(exec.id);
  if (ids.empty() || rule.force) return ids;
  const std::string text = row.name + " is busy: " + name_commands(running);
  const auto until = caller.asked + rule.wait;
  if (Waiting::Clock::now() < until) throw Waiting(ids, text, until);
  throw base::Error(base::Code::conflict, text, "--wait waits for the end, --force ends it now");
}

}  // namespace moorage::workspace
