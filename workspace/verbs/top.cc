#include "workspace/verbs/top.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "backends/input_wait.h"
#include "base/clock.h"
#include "base/error.h"
#include "state_db/store.h"

namespace moorage::workspace {
namespace {

// Limits of one view's requests to the kernel.
constexpr size_t kMostExecs = 256;
constexpr size_t kMostProcesses = 64;  // per exec: more wait for each other, not for a person

std::vector<base::ExecId> waiting(const TopLine& line, const LiveSandbox& running,
                                  size_t& execs_left) {
  std::vector<base::ExecId> found;
  std::optional<backends::InputEnds> ends;
  for (const auto& exec : line.execs) {
    if (!exec.request.input && !exec.request.terminal) continue;
    if (execs_left == 0) break;
    --execs_left;
    if (!ends) ends = backends::input_ends(running.init.pid);
    const auto group = running.backend->exec_group(running.name, exec.id.str());
    const auto processes = group->members(kMostProcesses + 1);
    if (processes.size() <= kMostProcesses && backends::waits_for_input(processes, *ends))
      found.push_back(exec.id);
  }
  return found;
}

}  // namespace

TopView Top::look(const Caller& caller, bool own) {
  TopView view;
  auto sandboxes = state_db::SandboxTable(context_.store).all_live();
  std::map<base::WorkspaceId, std::vector<state_db::ExecRow>> execs;
  for (auto& exec : state_db::ExecTable(context_.store).running())
    execs[exec.request.workspace].push_back(std::move(exec));
  state_db::WorkspaceQuery query;
  query.seen_by = caller.viewer();
  query.with_failed = false;
  if (own) query.owner_uid = caller.uid;
  size_t execs_left = kMostExecs;
  for (auto& row : state_db::WorkspaceTable(context_.store).list(query)) {
    TopLine line;
    if (const auto found = sandboxes.find(row.id); found != sandboxes.end())
      line.sandbox = std::move(found->second);
    if (const auto found = execs.find(row.id); found != execs.end())
      line.execs = std::move(found->second);
    line.row = std::move(row);
    look_at_sandbox(line, execs_left);
    view.lines.push_back(std::move(line));
  }
  view.wall_ms = context_.store.clock().wall_ms();
  view.boot_us = std::chrono::duration_cast<std::chrono::microseconds>(
                     std::chrono::steady_clock::now().time_since_epoch())
                     .count();
  return view;
}

void Top::look_at_sandbox(TopLine& line, size_t& execs_left) {
  for (const auto& exec : line.execs) {
    if (const auto progress = watcher_.progress(exec.id))
      line.last_output_ms = std::max(line.last_output_ms, progress->last_output_ms);
  }
  const auto running = context_.live.running(line.row.id);
  if (!running) return;
  try {
    line.status = running->backend->inspect(running->name);
    line.waiting = waiting(line, *running, execs_left);
    line.blocked = sightings_.blocked(line.row.id);
    line.network = networks_.use(running->sandbox);
  } catch (const base::Error&) {
    line.status = {};  // it is going down: nothing left to show
  }
}

}  // namespace moorage::workspace
