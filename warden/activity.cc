#include "warden/activity.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <span>
#include <string_view>

#include "base/os/fd.h"

namespace moorage::warden {
namespace {

constexpr int64_t kNsPerSecond = 1'000'000'000;
// A sandbox full of threads must not slow down the check: beyond this the result is unknown.
constexpr size_t kMostThreads = 1000;

struct Close {
  void operator()(DIR* handle) const { ::closedir(handle); }
};
using Directory = std::unique_ptr<DIR, Close>;

// The contents of a small file; empty: it no longer exists.
std::string_view read_small(const char* path, std::span<char> buffer) {
  Fd file(::open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return {};
  const ssize_t size = ::read(file.get(), buffer.data(), buffer.size() - 1);
  if (size <= 0) return {};
  buffer[static_cast<size_t>(size)] = '\0';
  return {buffer.data(), static_cast<size_t>(size)};
}

struct Stat {
  char state = 'X';
  pid_t parent = 0;
  int64_t threads = 0;
  int64_t started_ticks = 0;
};

// Parses /proc/PID/stat (proc(5)); the name may contain any character, so skip it first.
Stat read_stat(const char* path) {
  std::array<char, 1024> buffer;
  const std::string_view text = read_small(path, buffer);
  const size_t name_end = text.rfind(')');
  Stat stat;
  if (name_end == std::string_view::npos || name_end + 2 >= text.size()) return stat;
  constexpr int kParent = 4, kThreads = 20, kStarted = 22;
  const char* at = text.data() + name_end + 3;
  for (int field = kParent; field <= kStarted; ++field) {
    char* end = nullptr;
    const long long value = ::strtoll(at, &end, 10);
    if (end == at) return stat;
    if (field == kParent) stat.parent = static_cast<pid_t>(value);
    if (field == kThreads) stat.threads = value;
    if (field == kStarted) stat.started_ticks = value;
    at = end;
  }
  stat.state = text[name_end + 2];
  return stat;
}

bool is_dead(char state) { return state == 'Z' || state == 'X'; }
bool is_busy(char state) { return state == 'R' || state == 'D'; }

// The number that names a directory below /proc; 0: not a number.
pid_t number_of(const dirent* entry) {
  return entry->d_name[0] >= '1' && entry->d_name[0] <= '9' ? ::atoi(entry->d_name) : 0;
}

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
    busy = add_threads(pid, process.threads, process.state, seen) || busy;
    if (seen.size() > kMostThreads) return true;
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
  Directory proc(::opendir("/proc"));
  while (const dirent* entry = proc ? ::readdir(proc.get()) : nullptr) {
    const pid_t pid = number_of(entry);
    if (pid == 0) continue;
    const Stat stat = read_stat(path_of("/proc/%d/stat", pid).data());
    if (stat.started_ticks >= since_ticks_)
      processes[pid] = {stat.parent, stat.threads, stat.state};
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
  Directory tasks(::opendir(path_of("/proc/%d/task", pid).data()));
  bool busy = false;
  while (const dirent* entry = tasks ? ::readdir(tasks.get()) : nullptr) {
    const pid_t thread = number_of(entry);
    if (thread == 0) continue;
    const Stat stat = read_stat(path_of("/proc/%d/task/%d/stat", pid, thread).data());
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
