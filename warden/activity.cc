#include "warden/activity.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

namespace moorage::warden {
namespace {

constexpr int64_t kNsPerSecond = 1'000'000'000;
// A sandbox full of threads must not slow down the check: beyond this the result is unknown.
constexpr size_t kMostThreads = 1000;

bool is_dead(char state) { return state == 'Z' || state == 'X'; }
bool is_busy(char state) { return state == 'R' || state == 'D'; }

using Path = std::array<char, 64>;
Path path_of(const char* format, pid_t pid, pid_t thread = 0) {
  Path path;
  std::snprintf(path.data(), path.size(), format, pid, thread);
  return path;
}

}  // namespace

int64_t boot_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec * kNsPerSecond + now.tv_nsec;
}

Activity::Activity(pid_t root, int64_t since_boot_ns)
    : root_(root), since_ticks_(since_boot_ns / (kNsPerSecond / ::sysconf(_SC_CLK_TCK))) {}

bool Activity::measure() {
  const Processes processes = young_processes();
  Threads seen;
  bool busy = false;
  for (const auto& [pid, process] : processes) {
    if (is_dead(process.state) || !is_below_root(processes, pid)) continue;
    if (seen.size() + static_cast<size_t>(process.threads) > kMostThreads) return true;
    busy = add_threads(pid, process.threads, process.state, seen) || busy;
    if (seen.size() > kMostThreads) return true;  // it made more meanwhile
  }
  for (const auto& [id, ran] : seen) {
    const auto before = before_.find(id);
    const int64_t ns_before = before == before_.end() ? 0 : before->second.ns;
    if (measured_) spent_ns_ += std::max<int64_t>(0, ran.ns - ns_before);
  }
  busy = busy || !measured_ || seen != before_;
  measured_ = true;
  before_ = std::move(seen);
  return busy;
}

Activity::Processes Activity::young_processes() const {
  Processes processes;
  for (const pid_t pid : numbers_in("/proc")) {
    const ProcessStat stat = read_stat(path_of("/proc/%d/stat", pid).data());
    if (stat.started_ticks >= since_ticks_) processes[pid] = stat;
  }
  return processes;
}

bool Activity::is_below_root(const Processes& processes, pid_t pid) const {
  for (size_t steps = 0; steps <= processes.size();
       ++steps) {  // pids may be reused during the walk
    const auto found = processes.find(pid);
    if (found == processes.end()) return false;
    if (found->second.parent == root_) return true;
    pid = found->second.parent;
  }
  return false;
}

bool Activity::add_threads(pid_t pid, int64_t count, char state, Threads& seen) {
  if (count <= 1) {
    seen[pid] = ran(path_of("/proc/%d/schedstat", pid).data());
    return is_busy(state);
  }
  bool busy = false;
  for (const pid_t thread : numbers_in(path_of("/proc/%d/task", pid).data())) {
    const ProcessStat stat = read_stat(path_of("/proc/%d/task/%d/stat", pid, thread).data());
    if (is_dead(stat.state)) continue;
    seen[thread] = ran(path_of("/proc/%d/task/%d/schedstat", pid, thread).data());
    busy = busy || is_busy(stat.state);
    if (seen.size() > kMostThreads) break;
  }
  return busy;
}

// schedstat: time on a processor, time spent waiting for one (ns), slices. Without it in the
// kernel, only the state counts.
Activity::Ran Activity::ran(const char* path) {
  std::array<char, 128> buffer;
  long long on_ns = 0, waited_ns = 0, slices = 0;
  if (!read_small(path, buffer).empty())
    std::sscanf(buffer.data(), "%lld %lld %lld", &on_ns, &waited_ns, &slices);
  return {on_ns, slices};
}

}  // namespace moorage::warden
