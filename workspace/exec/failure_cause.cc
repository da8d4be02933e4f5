#include "workspace/exec/failure_cause.h"

#include <sstream>

#include "base/os/files.h"

namespace moorage::workspace {
namespace {

using state_db::ExecCategory;
using state_db::ExecState;

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
  // In a sandbox that uses the host's network, these counters cover the whole host.
  if (running.init.pid > 0 && running.backend->known_capabilities().network_none) {
    const std::string net = "/proc/" + std::to_string(running.init.pid) + "/net/";
    refusals.packets = packets_without_route(base::read_file_if_exists(net + "snmp").value_or(""),
                                             base::read_file_if_exists(net + "snmp6").value_or(""));
  }
  return refusals;
}

bool succeeded(const state_db::ExecOutcome& outcome) {
  return outcome.state == ExecState::exited && outcome.exit_code == 0;
}

std::optional<ExecCategory> categorize(const state_db::ExecOutcome& outcome,
                                       const ExecEvidence& evidence) {
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

}  // namespace moorage::workspace
