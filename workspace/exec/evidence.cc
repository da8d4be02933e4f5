#include "workspace/exec/evidence.h"

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "state_db/tables/sandboxes.h"
#include "state_db/tables/workspaces.h"
#include "workspace/context/disk_use.h"

namespace moorage::workspace {
namespace {

constexpr uint64_t kLeastBytes = 64 << 10;  // with less free space the disk counts as full
// A quota refuses before its last byte: the kernel allocates whole extents.
constexpr uint64_t kQuotaSlack = 1 << 20;

// A line of names, then a line of their values; both start with the protocol.
uint64_t snmp_value(const std::string& text, const std::string& protocol, const std::string& name) {
  std::istringstream lines(text);
  std::string names_line;
  std::string values_line;
  while (std::getline(lines, names_line) && std::getline(lines, values_line)) {
    std::istringstream names(names_line);
    std::istringstream values(values_line);
    std::string word;
    std::string value;
    if (!(names >> word) || !(values >> value) || word != protocol) continue;
    while (names >> word && values >> value) {
      if (word == name) return std::strtoull(value.c_str(), nullptr, 10);
    }
  }
  return 0;
}

// Processes that a command leaves behind run until the sandbox stops. But if they take more than
// half of the workspace's process limit, they are a fork bomb: no further command could start.
void end_bomb(Context& context, const state_db::ExecRow& exec, backends::ExecGroup& group) {
  const auto workspace = state_db::WorkspaceTable(context.store).get(exec.request.workspace);
  const uint64_t left = group.processes();
  if (left <= workspace.policy.limits.pids / 2) return;
  group.kill();
  base::log(base::LogLevel::warning, "exec.bomb_killed",
            {{"ws", workspace.id}, {"ex", exec.id}, {"processes", left}});
}

// Only if the kernel enforces the quota; otherwise the quota watcher ends the command and says why.
bool is_at_limit(Context& context, base::WorkspaceId workspace) {
  auto& quota = context.storage.quota();
  if (!quota.refuses_bytes()) return false;
  const auto row = state_db::WorkspaceTable(context.store).find(workspace);
  if (!row || !row->layer) return false;
  const auto& limits = row->policy.limits;
  try {
    auto use = quota.use(row->layer, context.storage.layer_path(row->layer));
    if (!use) return false;
    const layers::QuotaUse others = DiskUse(context).beside(workspace, row->layer).use;
    use->bytes += others.bytes;
    if (use->files) use->files = *use->files + others.files.value_or(0);
    const bool bytes = limits.disk_bytes > 0 && use->bytes + kQuotaSlack > limits.disk_bytes;
    return bytes || (limits.disk_files > 0 && use->files.value_or(0) >= limits.disk_files);
  } catch (const base::Error&) {
    return false;  // the workspace is being removed
  }
}

}  // namespace

uint64_t packets_without_route(const std::string& snmp, const std::string& snmp6) {
  uint64_t packets = snmp_value(snmp, "Ip:", "OutNoRoutes");
  std::istringstream lines(snmp6);
  std::string name;
  for (uint64_t value = 0; lines >> name >> value;) {
    if (name == "Ip6OutNoRoutes") packets += value;
  }
  return packets;
}

Refusals count_refusals(const LiveSandbox& running, backends::ExecGroup& group) {
  Refusals refusals;
  refusals.forks = group.refused_forks();
  // In a sandbox that uses the host's network, these counters cover the whole host; of one on
  // another machine, its process here uses the host's.
  if (running.init.pid > 0 && !running.remote &&
      running.backend->known_capabilities().network_none) {
    const std::string net = "/proc/" + std::to_string(running.init.pid) + "/net/";
    refusals.packets = packets_without_route(base::read_file_if_exists(net + "snmp").value_or(""),
                                             base::read_file_if_exists(net + "snmp6").value_or(""));
  }
  return refusals;
}

bool is_stopping(Context& context, base::SandboxId sandbox) {
  const auto row = state_db::SandboxTable(context.store).find(sandbox);
  return row && (row->state == state_db::SandboxState::stopping ||
                 row->state == state_db::SandboxState::stopped);
}

ExecEvidence gather_evidence(Context& context, const state_db::ExecRow& exec,
                             const Refusals& before, bool failed) {
  ExecEvidence evidence;
  if (failed) {
    const auto space = base::file_system_space(context.options.store);
    evidence.disk_full =
        space.free_bytes < kLeastBytes || (space.total_inodes > 0 && space.free_inodes == 0);
    evidence.disk_quota = is_at_limit(context, exec.request.workspace);
    evidence.stopping = is_stopping(context, exec.request.sandbox);
  }
  const auto running = context.live.without_mounts(exec.request.sandbox);
  if (!running) return evidence;
  try {
    auto group = running->backend->exec_group(running->name, exec.id.str());
    if (failed) {
      evidence.out_of_memory = group->oom_kills() > 0;
      const Refusals now = count_refusals(*running, *group);
      evidence.refused.forks = now.forks - std::min(now.forks, before.forks);
      evidence.refused.packets = now.packets - std::min(now.packets, before.packets);
    }
    if (group->empty()) {
      group->remove();
    } else {
      end_bomb(context, exec, *group);
    }
  } catch (const base::Error&) {
    // The sandbox is stopping and its group is gone: no counter is left to read.
  }
  return evidence;
}

}  // namespace moorage::workspace
