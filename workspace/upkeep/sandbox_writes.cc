#include "workspace/upkeep/sandbox_writes.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "base/os/process.h"
#include "base/os/written_bytes.h"

namespace moorage::workspace {
namespace {

constexpr size_t kMostProcesses = 4096;

// The command that started a process, by its control group; empty if no command did.
base::ExecId exec_of(pid_t process) {
  constexpr std::string_view kUnified = "0::";
  const std::string text = base::read_proc_file(process, "cgroup");
  const size_t line = text.find(kUnified);
  if (line == std::string::npos) return {};
  const size_t end = std::min(text.find('\n', line), text.size());
  const size_t name = text.rfind('/', end) + 1;
  return base::ExecId::parse(text.substr(name, end - name)).value_or(base::ExecId{});
}

// An exec and its group may vanish at this moment; that must not keep the others running.
void set_frozen(backends::ExecGroup& group, bool frozen) {
  try {
    group.set_frozen(frozen);
  } catch (const base::Error& error) {
    const bool gone = error.code() == base::Code::not_found;
    base::log(gone ? base::LogLevel::debug : base::LogLevel::warning,
              frozen ? "exec.not_frozen" : "exec.not_thawed", {{"error", error.message()}});
  }
}

}  // namespace

SandboxWrites writes_in(const LiveSandbox& running) {
  SandboxWrites writes;
  for (const pid_t process : base::process_tree(running.init.pid, kMostProcesses)) {
    const uint64_t bytes = base::written_bytes(process);
    writes.all += bytes;
    if (const auto exec = exec_of(process)) writes.by_exec[exec].bytes += bytes;
  }
  writes.ended = base::written_bytes(running.init.pid);
  for (auto& [exec, done] : writes.by_exec)
    done.cpu_usec = running.backend->exec_group(running.name, exec.str())->cpu_usec();
  writes.cpu_usec = running.backend->inspect(running.name).cpu_usec;
  return writes;
}

uint64_t bytes_written_in(const LiveSandbox& running) {
  uint64_t bytes = 0;
  for (const pid_t process : base::process_tree(running.init.pid, kMostProcesses))
    bytes += base::written_bytes(process);
  return bytes;
}

FrozenExecs::FrozenExecs(const LiveSandbox& running, const SandboxWrites& writes) {
  for (const auto& [exec, done] : writes.by_exec) {
    groups_.push_back(running.backend->exec_group(running.name, exec.str()));
    set_frozen(*groups_.back(), true);
  }
}

FrozenExecs::~FrozenExecs() {
  for (const auto& group : groups_) set_frozen(*group, false);
}

}  // namespace moorage::workspace
