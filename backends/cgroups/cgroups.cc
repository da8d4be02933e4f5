#include "backends/cgroups/cgroups.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <mutex>
#include <sstream>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"

namespace moorage::backends {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Extra room for the warden, LXC's monitor and the launcher: measured 5 MiB together; for
// moorage-egress with its sockets' buffers; the rest is for the page cache of their writes.
constexpr uint64_t kHeadroomBytes = 96ULL << 20;
constexpr uint64_t kHeadroomPids = 64;
constexpr uint64_t kCpuPeriodUsec = 100'000;
constexpr uint64_t kWeightOfAService = 100;
constexpr const char* kLabel = "trusted.moorage";
constexpr const char* kProcessors = "trusted.moorage.processors";
constexpr milliseconds kFreezePatience{300};
constexpr std::chrono::nanoseconds kFirstPause = std::chrono::microseconds(50);
constexpr std::chrono::nanoseconds kLongestPause = milliseconds(100);

std::optional<std::string> attribute_of(const std::string& group, const char* name) {
  char value[4096];
  const ssize_t size = getxattr(group.c_str(), name, value, sizeof value);
  if (size >= 0) return std::string(value, static_cast<size_t>(size));
  if (errno == ENODATA || errno == ENOENT) return std::nullopt;
  base::throw_errno("read " + std::string(name) + " of cgroup " + group);
}

void set_attribute(const std::string& group, const char* name, const std::string& value) {
  base::check(setxattr(group.c_str(), name, value.data(), value.size(), 0),
              "label cgroup " + group);
}

// The group of all sandboxes in one hierarchy.
std::string all_sandboxes(const std::string& top) { return top + "/" + kSandboxesGroup; }

void write_if_there(const std::string& path, const std::string& value) {
  if (base::path_exists(path)) write_cgroup_file(path, value);
}

// The limits of one group, in whichever hierarchy has the controller.
void limit_memory(const CgroupHierarchies& h, const std::string& group, uint64_t bytes) {
  const std::string value = std::to_string(bytes);
  if (!h.memory_v1.empty()) {
    write_cgroup_file(h.memory_v1 + group + "/memory.limit_in_bytes", value);
    write_if_there(h.memory_v1 + group + "/memory.memsw.limit_in_bytes", value);
  } else {
    write_cgroup_file(h.unified + group + "/memory.max", value);
    write_if_there(h.unified + group + "/memory.swap.max", "0");
  }
}

void limit_pids(const CgroupHierarchies& h, const std::string& group, uint64_t count) {
  const std::string& top = h.pids_v1.empty() ? h.unified : h.pids_v1;
  write_cgroup_file(top + group + "/pids.max", std::to_string(count));
}

void limit_cpu(const CgroupHierarchies& h, const std::string& group, double cpus) {
  const std::string quota = std::to_string(static_cast<uint64_t>(cpus * kCpuPeriodUsec));
  if (!h.cpu_v1.empty()) {
    write_cgroup_file(h.cpu_v1 + group + "/cpu.cfs_period_us", std::to_string(kCpuPeriodUsec));
    write_cgroup_file(h.cpu_v1 + group + "/cpu.cfs_quota_us", quota);
  } else {
    write_cgroup_file(h.unified + group + "/cpu.max", quota + " " + std::to_string(kCpuPeriodUsec));
  }
}

// Of version 1. For memory and processes the commands have a lower ceiling than the warden; the
// others count the sandbox as a whole.
bool has_parts(const CgroupHierarchies& h, const std::string& top) {
  return top == h.memory_v1 || top == h.pids_v1;
}

// A new group of version 1's cpuset takes no process before it has processors and memory nodes.
// Those of the host, each time: a processor that was offline is missing in older groups.
void fill_processor_sets(const CgroupHierarchies& h, const std::string& path) {
  for (const char* file : {"/cpuset.cpus", "/cpuset.mems"}) {
    const std::string value = base::read_file(h.cpuset_v1 + file);
    for (const std::string& group : {all_sandboxes(h.cpuset_v1), path})
      write_cgroup_file(group + file, value);
  }
}

// Waits for a value of cgroup.events until the deadline. A change raises POLLPRI, but the kernel
// reports at most one per file in 10 ms (cgroup_file_notify): a freeze soon after a thaw takes 0.2
// ms and is reported after 10. So the file is also read again after growing pauses.
bool wait_for_event(const std::string& group, std::string_view key, uint64_t wanted,
                    Clock::time_point deadline) {
  const std::string path = group + "/cgroup.events";
  const std::string line = std::string(key) + " " + std::to_string(wanted);
  for (std::chrono::nanoseconds pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    // Opened before the read: a change between read and poll then wakes the poll.
    Fd events(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!events) return errno == ENOENT;
    const std::string text = base::read_up_to(events.get(), 4096);
    if (text.find(line) != std::string::npos) return true;
    const std::chrono::nanoseconds left = deadline - Clock::now();
    if (left.count() <= 0) return false;
    pollfd entry{events.get(), POLLPRI, 0};
    const timespec time{0, std::min(pause, left).count()};
    ppoll(&entry, 1, &time, nullptr);
  }
}

}  // namespace

SandboxCgroup::SandboxCgroup(const CgroupHierarchies& hierarchies, std::string name)
    : hierarchies_(hierarchies),
      name_(std::move(name)),
      group_(std::string(kSandboxesGroup) + "/" + name_) {}

std::vector<std::string> SandboxCgroup::all_paths() const {
  std::vector<std::string> paths{unified_path()};
  for (const std::string& top : hierarchies_.all_v1()) paths.push_back(top + "/" + group_);
  return paths;
}

void SandboxCgroup::create(const Limits& limits) {
  const CgroupHierarchies& h = hierarchies_;
  std::string controllers;
  if (h.memory && h.memory_v1.empty()) controllers += " +memory";
  if (h.pids && h.pids_v1.empty()) controllers += " +pids";
  if (h.cpu && h.cpu_v1.empty()) controllers += " +cpu";
  if (h.disk && h.disk_v1.empty()) controllers += " +io";

  // The unified one first: `list` finds the name there after any interruption.
  const std::string all = all_sandboxes(h.unified);
  make_cgroup(all);
  make_cgroup(unified_path());
  if (!controllers.empty()) {
    for (const std::string& group : {h.unified, all, unified_path()}) {
      write_cgroup_file(group + "/cgroup.subtree_control", controllers);
    }
  }
  make_cgroup(unified_path() + "/launch");
  make_cgroup(unified_path() + "/cmd");
  for (const std::string& top : h.all_v1()) {
    const std::string path = top + "/" + group_;
    make_cgroup(all_sandboxes(top));
    make_cgroup(path);
    if (top == h.cpuset_v1) fill_processor_sets(h, path);
    if (has_parts(h, top)) make_cgroup(path + "/cmd");
    if (top == h.pids_v1) make_cgroup(path + "/warden");
  }
  for (const auto& [directory, inside] : shown()) show_cgroup(directory);
  apply_limits(limits);
}

void SandboxCgroup::open_commands() const {
  if (!hierarchies_.memory || !hierarchies_.memory_v1.empty()) return;
  write_cgroup_file(unified_path() + "/cmd/cgroup.subtree_control", "+memory");
}

void SandboxCgroup::weigh_cpu(uint32_t weight) const {
  if (!hierarchies_.cpu) return;
  if (!hierarchies_.cpu_v1.empty()) {
    constexpr uint64_t kSharesOfAService = 1024;
    const uint64_t shares = std::max<uint64_t>(2, weight * kSharesOfAService / kWeightOfAService);
    write_cgroup_file(all_sandboxes(hierarchies_.cpu_v1) + "/cpu.shares", std::to_string(shares));
  } else {
    write_cgroup_file(all_sandboxes(hierarchies_.unified) + "/cpu.weight", std::to_string(weight));
  }
}

void SandboxCgroup::limit_disk(const std::string& disk, uint64_t bytes_per_s) const {
  const std::string rate = std::to_string(bytes_per_s);
  if (hierarchies_.disk_v1.empty()) {
    write_cgroup_file(unified_path() + "/io.max", disk + " rbps=" + rate + " wbps=" + rate);
    return;
  }
  const std::string group = hierarchies_.disk_v1 + "/" + group_;
  write_cgroup_file(group + "/blkio.throttle.read_bps_device", disk + " " + rate);
  write_cgroup_file(group + "/blkio.throttle.write_bps_device", disk + " " + rate);
}

void SandboxCgroup::add_part(const std::string& part) const {
  make_cgroup(unified_path() + "/" + part);
}

void SandboxCgroup::apply_limits(const Limits& limits) const {
  const std::string group = "/" + group_;
  if (hierarchies_.memory) {
    limit_memory(hierarchies_, group, limits.memory_bytes + kHeadroomBytes);
    limit_memory(hierarchies_, group + "/cmd", limits.memory_bytes);
  }
  if (hierarchies_.pids) {
    limit_pids(hierarchies_, group, limits.pids + kHeadroomPids);
    limit_pids(hierarchies_, group + "/cmd", limits.pids);
  }
  if (!hierarchies_.cpu || limits.cpus <= 0) return;
  limit_cpu(hierarchies_, group, limits.cpus);
  // For those who read it: the sandbox's own limit holds.
  if (hierarchies_.cpu_v1.empty()) limit_cpu(hierarchies_, group + "/cmd", limits.cpus);
}

bool SandboxCgroup::exists() const {
  auto paths = all_paths();
  return std::any_of(paths.begin(), paths.end(), base::path_exists);
}

std::vector<std::string> SandboxCgroup::join_files(const std::string& part) const {
  // v1 has parts only for the warden and the commands; all others count as the warden. Its memory
  // is counted in the sandbox's own group: lxcfs shows the use of the group of process 1.
  std::vector<std::string> files{unified_path() + "/" + part + "/cgroup.procs"};
  for (const std::string& top : hierarchies_.all_v1()) {
    const std::string path = top + "/" + group_;
    const char* warden = top == hierarchies_.pids_v1 ? "/warden" : "";
    const char* place = !has_parts(hierarchies_, top) ? "" : part == "cmd" ? "/cmd" : warden;
    // A sandbox that an older release started is in none of these.
    const bool only_shown = top == hierarchies_.cpuset_v1 || top == hierarchies_.cpuacct_v1;
    if (only_shown && !base::path_exists(path)) continue;
    files.push_back(path + place + "/cgroup.procs");
  }
  return files;
}

std::vector<std::pair<std::string, std::string>> SandboxCgroup::shown() const {
  const CgroupHierarchies& h = hierarchies_;
  if (h.kind() == "v2") return {{unified_path() + "/cmd", kCgroupsInside}};
  std::vector<std::pair<std::string, std::string>> directories;
  const auto show = [&](const std::string& top, const char* controller) {
    if (top.empty()) return;
    directories.emplace_back(top + "/" + group_ + (has_parts(h, top) ? "/cmd" : ""),
                             std::string(kCgroupsInside) + "/" + controller);
  };
  show(h.memory_v1, "memory");
  show(h.cpu_v1, "cpu");
  show(h.cpuacct_v1, "cpuacct");
  show(h.cpuset_v1, "cpuset");
  show(h.pids_v1, "pids");
  return directories;
}

bool SandboxCgroup::frozen() const {
  auto text = base::read_file_if_exists(unified_path() + "/cgroup.freeze");
  return text && text->starts_with("1");
}

void SandboxCgroup::freeze(milliseconds deadline) {
  const auto until = Clock::now() + deadline;
  const std::string file = unified_path() + "/cgroup.freeze";
  // A load that forks constantly can prevent a freeze; a thaw and a second attempt solve that.
  do {
    write_cgroup_file(file, "1");
    if (wait_for_event(unified_path(), "frozen", 1,
                       std::min(until, Clock::now() + kFreezePatience))) {
      return;
    }
    write_cgroup_file(file, "0");
    wait_for_event(unified_path(), "frozen", 0, until);
  } while (Clock::now() < until);
  throw Error(Code::deadline_exceeded, name_ + " could not be frozen and is still running");
}

void SandboxCgroup::thaw(milliseconds deadline) {
  write_cgroup_file(unified_path() + "/cgroup.freeze", "0");
  if (!wait_for_event(unified_path(), "frozen", 0, Clock::now() + deadline)) {
    throw Error(Code::deadline_exceeded, name_ + " could not be thawed");
  }
}

void SandboxCgroup::kill_and_remove(milliseconds deadline) {
  const auto until = Clock::now() + deadline;
  write_if_there(unified_path() + "/cgroup.kill", "1");
  if (!wait_for_event(unified_path(), "populated", 0, until)) {
    throw Error(Code::deadline_exceeded, name_ + " still has processes after SIGKILL",
                "a process may hang in the kernel; see `dmesg`");
  }
  // The unified one last: while anything is left, `list` finds the name there.
  auto paths = all_paths();
  std::reverse(paths.begin(), paths.end());
  for (const std::string& path : paths) remove_cgroup(path, until);
}

void SandboxCgroup::measure(SandboxStatus& status) const {
  const CgroupHierarchies& h = hierarchies_;
  const std::string group = "/" + group_;
  auto number = [](const std::string& path) -> uint64_t {
    auto text = base::read_file_if_exists(path);
    return text ? std::strtoull(text->c_str(), nullptr, 10) : 0;
  };
  status.memory_bytes = h.memory_v1.empty()
                            ? number(h.unified + group + "/memory.current")
                            : number(h.memory_v1 + group + "/memory.usage_in_bytes");
  // Counted for every group of the unified hierarchy, even without the cpu controller.
  status.cpu_usec = cgroup_counter(h.unified + group + "/cpu.stat", "usage_usec").value_or(0);
  const std::string& pids = h.pids_v1.empty() ? h.unified : h.pids_v1;
  status.processes = static_cast<uint32_t>(number(pids + group + "/cmd/pids.current"));
}

std::vector<pid_t> SandboxCgroup::members() const {
  std::vector<pid_t> pids;
  const std::string commands = unified_path() + "/cmd";
  if (!base::path_exists(commands)) return pids;
  // Commands may not create groups, so there is only one level.
  for (const auto& entry : std::filesystem::directory_iterator(commands)) {
    if (!entry.is_directory()) continue;
    const auto list = base::read_file_if_exists(entry.path().string() + "/cgroup.procs");
    std::istringstream lines(list.value_or(""));
    for (pid_t pid = 0; lines >> pid;) pids.push_back(pid);
  }
  return pids;
}

void SandboxCgroup::set_label(const std::string& label) {
  set_attribute(unified_path(), kLabel, label);
}

std::optional<std::string> SandboxCgroup::label() const {
  return attribute_of(unified_path(), kLabel);
}

// Kept with the groups, so that it holds for every daemon of this host, and after each one's end.
base::Processors SandboxCgroup::choose_processors(double cpus) const {
  static std::mutex choosing;  // of this daemon; two of them at the same instant may choose alike
  const base::Processors allowed = base::processors_of(0);
  std::lock_guard lock(choosing);
  std::vector<base::Processors> used;
  if (!base::choose_processors(allowed, cpus, {}).empty()) {
    const std::string all = all_sandboxes(hierarchies_.unified);
    for (const std::string& name : base::list_directory(all)) {
      if (name.find('.') != std::string::npos) continue;  // a file of the group
      const auto chosen = attribute_of(all + "/" + name, kProcessors);
      if (chosen) used.push_back(base::parse_processors(*chosen));
    }
  }
  base::Processors processors = base::choose_processors(allowed, cpus, used);
  if (processors.empty()) return processors;
  const std::string text = base::processors_text(processors);
  set_attribute(unified_path(), kProcessors, text);
  // lxcfs looks here.
  if (!hierarchies_.cpuset_v1.empty())
    write_cgroup_file(hierarchies_.cpuset_v1 + "/" + group_ + "/cpuset.cpus", text);
  return processors;
}

std::vector<std::string> sandbox_cgroups(const CgroupHierarchies& hierarchies,
                                         const std::string& prefix) {
  std::vector<std::string> names;
  std::vector<std::string> tops = hierarchies.all_v1();
  tops.push_back(hierarchies.unified);
  for (const std::string& top : tops) {
    const std::string all = all_sandboxes(top);
    if (!base::path_exists(all)) continue;
    for (std::string& name : base::list_directory(all)) {
      if (name.starts_with(prefix)) names.push_back(std::move(name));
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace moorage::backends
