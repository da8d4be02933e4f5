// Finds the hierarchies; reads, writes and removes single groups (backends/cgroups/cgroups.h).
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <thread>

#include "backends/cgroups/cgroups.h"
#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "base/os/mount.h"
#include "base/parts.h"

namespace moorage::backends {
namespace {

using Clock = std::chrono::steady_clock;

bool has_word(std::string_view list, std::string_view word, char separator) {
  const auto words = base::split(list, separator);
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string own_options(const std::string& unified) {
  for (const auto& mount : base::parse_mounts(base::read_file("/proc/self/mountinfo"))) {
    if (mount.target == unified) return mount.options;
  }
  return {};
}

void kill_members(const std::string& group) {
  auto text = base::read_file_if_exists(group + "/cgroup.procs");
  if (!text) return;
  std::istringstream pids(*text);
  for (pid_t pid = 0; pids >> pid;) {
    if (pid > 0) kill(pid, SIGKILL);
  }
}

}  // namespace

std::string CgroupHierarchies::kind() const {
  const bool v1 = !memory_v1.empty() || !pids_v1.empty() || !cpu_v1.empty();
  if (unified.empty()) return v1 ? "v1" : "none";
  return v1 ? "v1-hybrid" : "v2";
}

std::vector<std::string> CgroupHierarchies::all_v1() const {
  std::vector<std::string> tops;
  for (const std::string* top :
       {&memory_v1, &pids_v1, &cpu_v1, &disk_v1, &cpuacct_v1, &cpuset_v1}) {
    if (!top->empty() && std::find(tops.begin(), tops.end(), *top) == tops.end())
      tops.push_back(*top);
  }
  return tops;
}

CgroupHierarchies parse_cgroup_mounts(const std::string& mountinfo) {
  CgroupHierarchies found;
  for (const auto& mount : base::parse_mounts(mountinfo)) {
    // If a hierarchy is mounted several times, the first mount is the host's own.
    auto take = [&](std::string& place) {
      if (place.empty()) place = mount.target;
    };
    if (mount.type == "cgroup2") take(found.unified);
    if (mount.type != "cgroup") continue;
    if (has_word(mount.options, "memory", ',')) take(found.memory_v1);
    if (has_word(mount.options, "pids", ',')) take(found.pids_v1);
    if (has_word(mount.options, "cpu", ',')) take(found.cpu_v1);
    if (has_word(mount.options, "blkio", ',')) take(found.disk_v1);
    if (has_word(mount.options, "cpuacct", ',')) take(found.cpuacct_v1);
    if (has_word(mount.options, "cpuset", ',')) take(found.cpuset_v1);
  }
  return found;
}

CgroupHierarchies find_cgroups() {
  CgroupHierarchies found = parse_cgroup_mounts(base::read_file("/proc/self/mountinfo"));
  if (found.unified.empty()) {
    throw Error(Code::unsupported, "no cgroup2 file system is mounted",
                "boot with a service manager, or: mount -t cgroup2 none /sys/fs/cgroup");
  }
  std::string controllers = base::read_file(found.unified + "/cgroup.controllers");
  if (!controllers.empty() && controllers.back() == '\n') controllers.pop_back();
  found.memory = !found.memory_v1.empty() || has_word(controllers, "memory", ' ');
  found.pids = !found.pids_v1.empty() || has_word(controllers, "pids", ' ');
  found.cpu = !found.cpu_v1.empty() || has_word(controllers, "cpu", ' ');
  found.disk = !found.disk_v1.empty() || has_word(controllers, "io", ' ');
  return found;
}

bool favor_quick_moves(const CgroupHierarchies& hierarchies) {
  std::string options = own_options(hierarchies.unified);
  if (has_word(options, "favordynmods", ',')) return true;
  // A remount resets all options, so repeat the current ones; ro and rw are not cgroup2's own.
  std::string data = "favordynmods";
  for (const std::string_view word : base::split(options, ',')) {
    if (word != "rw" && word != "ro") data.append(",").append(word);
  }
  return mount("none", hierarchies.unified.c_str(), "cgroup2", MS_REMOUNT | MS_RELATIME,
               data.c_str()) == 0;
}

void make_cgroup(const std::string& path) {
  if (mkdir(path.c_str(), 0755) == 0 || errno == EEXIST) return;
  if (errno != ENOSPC) base::throw_errno("create cgroup " + path);
  throw Error(Code::resource_exhausted,
              "create cgroup " + path + ": the kernel's limit of control groups is reached",
              "stop background processes of commands: each such command keeps one");
}

void show_cgroup(const std::string& path) {
  base::check(chmod(path.c_str(), 0755), "change the mode of cgroup " + path);
}

void write_cgroup_file(const std::string& path, const std::string& value) {
  Fd file = base::open_file(path, O_WRONLY);
  if (write(file.get(), value.data(), value.size()) < 0) {
    base::throw_errno("write " + value + " to " + path);
  }
}

std::optional<uint64_t> cgroup_counter(const std::string& path, std::string_view key) {
  auto text = base::read_file_if_exists(path);
  if (!text) return std::nullopt;
  std::istringstream lines(*text);
  std::string name;
  for (uint64_t value = 0; lines >> name >> value;) {
    if (name == key) return value;
  }
  return std::nullopt;
}

bool cgroup_populated(const std::string& path) {
  return cgroup_counter(path + "/cgroup.events", "populated").value_or(0) == 1;
}

// An exec's group has no children and usually disappears at once. Listing children would look up
// each of its 34 files, twice, and delay the end of every exec.
void remove_cgroup(const std::string& path, Clock::time_point deadline) {
  while (rmdir(path.c_str()) < 0 && errno != ENOENT) {
    if (errno != EBUSY || Clock::now() >= deadline) base::throw_errno("remove cgroup " + path);
    // On each try: a command may start during the removal and create its group.
    bool had_children = false;
    for (const std::string& name : base::list_directory(path)) {
      struct stat info;
      const std::string child = path + "/" + name;
      if (lstat(child.c_str(), &info) < 0 || !S_ISDIR(info.st_mode)) continue;
      had_children = true;
      remove_cgroup(child, deadline);
    }
    if (had_children) continue;
    // v1 has no cgroup.kill. Its members were killed through the unified hierarchy; kill those
    // outside it here.
    kill_members(path);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace moorage::backends
