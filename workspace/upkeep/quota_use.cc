#include "workspace/upkeep/quota_use.h"

#include <algorithm>
#include <chrono>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "base/os/process.h"
#include "base/os/written_bytes.h"
#include "base/size_text.h"

namespace moorage::workspace {
namespace {

constexpr size_t kMostProcesses = 4096;
constexpr int64_t kTriedAgain_ms = 10 * 60'000;
constexpr base::UsageLimits kWalk{.time = std::chrono::milliseconds(10'000)};
constexpr base::UsageLimits kShortWalk{.time = std::chrono::milliseconds(50)};

std::optional<base::Usage> walk(const std::string& path, const base::UsageLimits& limits) {
  try {
    return base::tree_usage(path, limits);
  } catch (const base::Error& error) {
    base::log(base::LogLevel::debug, "workspace.not_measured",
              {{"path", path}, {"error", error.message()}});
    if (error.code() != base::Code::conflict) return std::nullopt;
    return base::Usage{.complete = false};  // directories move during the walk
  }
}

void add(layers::QuotaUse& sum, const base::Space& from, const base::Space& to) {
  sum.bytes += from.free_bytes - std::min(from.free_bytes, to.free_bytes);
  sum.files = *sum.files + from.free_inodes - std::min(from.free_inodes, to.free_inodes);
}

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

uint64_t minus(uint64_t from, uint64_t what) { return from - std::min(from, what); }

bool is_over(const layers::QuotaUse& use, const layers::QuotaLimit& limit) {
  return (limit.bytes > 0 && use.bytes > limit.bytes) ||
         (limit.files > 0 && use.files.value_or(0) > limit.files);
}

bool has_grown(const layers::QuotaUse& now, const layers::QuotaUse& before) {
  return now.bytes > before.bytes + kSlackBytes ||
         now.files.value_or(0) > before.files.value_or(0) + kSlackFiles;
}

layers::QuotaUse plus(const layers::QuotaUse& use, const layers::QuotaUse& more) {
  return {use.bytes + more.bytes, use.files.value_or(0) + more.files.value_or(0)};
}

layers::QuotaUse minus(const layers::QuotaUse& use, const layers::QuotaUse& less) {
  return {minus(use.bytes, less.bytes), minus(use.files.value_or(0), less.files.value_or(0))};
}

double fullness(const layers::QuotaUse& use, const layers::QuotaLimit& limit) {
  const auto part = [](uint64_t used, uint64_t of) {
    return of == 0 ? 0.0 : static_cast<double>(used) / static_cast<double>(of);
  };
  return std::max(part(use.bytes, limit.bytes), part(use.files.value_or(0), limit.files));
}

std::string text_of(const layers::QuotaUse& use, const layers::QuotaLimit& limit) {
  std::string text = base::size_text(use.bytes);
  if (limit.bytes > 0) text += " of " + base::size_text(limit.bytes);
  if (use.files) text += ", " + std::to_string(*use.files);
  if (use.files && limit.files > 0) text += " of " + std::to_string(limit.files);
  return text + (use.files ? " files" : "");
}

std::optional<base::Usage> usage_of_written(const std::string& path, const Still& still) {
  const auto usage = walk(path, still ? kShortWalk : kWalk);
  if (!usage || usage->complete || !still) return usage;
  const auto held = still();
  return walk(path, kWalk);
}

SpaceMoves::Sums SpaceMoves::look() {
  const std::lock_guard lock(mutex_);
  const base::Space now = base::file_system_space(path_);
  const base::Space before = last_.value_or(now);
  add(sums_.lost, before, now);
  add(sums_.gained, now, before);
  last_ = now;
  return sums_;
}

bool CountlessLayers::is_due(base::LayerId layer) const {
  const auto known = again_boot_ms_.find(layer);
  return known == again_boot_ms_.end() || clock_.boot_ms() >= known->second;
}

void CountlessLayers::note(base::LayerId layer, bool counted) {
  again_boot_ms_.erase(layer);
  if (!counted) again_boot_ms_[layer] = clock_.boot_ms() + kTriedAgain_ms;
}

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
