#include "outpost/inside/limits.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <thread>
#include <utility>

#include "base/digest.h"
#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "base/os/mount.h"

namespace moorage::outpost {
namespace {

constexpr uint64_t kPeriodUs = 100'000;
constexpr auto kPatience = std::chrono::milliseconds(2'000);
constexpr auto kPause = std::chrono::milliseconds(10);
constexpr const char* kControllers[] = {"memory", "pids", "cpu"};
// Of version 1. They limit nothing: the JVM believes in limits only where it finds them, too.
constexpr const char* kOthers[] = {"cpuacct", "cpuset"};
constexpr const char* kInside = "/sys/fs/cgroup";

// The top of a hierarchy: where we log in may be a session that ends before the sandbox.
struct Hierarchy {
  std::string top;
  bool unified = false;  // version 2: all controllers
  std::string options;   // version 1: those of this one
};

std::vector<Hierarchy> hierarchies() {
  std::vector<Hierarchy> found;
  for (const auto& line : base::parse_mounts(base::read_file("/proc/self/mountinfo"))) {
    if (line.type == "cgroup2") found.push_back({line.target, true, {}});
    if (line.type == "cgroup") found.push_back({line.target, false, "," + line.options + ","});
  }
  return found;
}

std::string group_of(const Hierarchy& hierarchy, const std::string& sandbox) {
  return hierarchy.top + "/moorage-outpost-" + base::sha256_hex(sandbox).substr(0, 16);
}

// The last of its processes may still be about to leave.
bool remove_group(const std::string& path) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    if (rmdir(path.c_str()) == 0 || errno == ENOENT || errno == EROFS) return true;
    if (errno != EBUSY || std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(kPause);
  }
}

bool put(const std::string& path, const std::string& text) {
  const Fd file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return file && write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// File and value of a limit; an empty value: none is wanted.
std::pair<std::string, std::string> setting(std::string_view controller, bool unified,
                                            const Limits& limits) {
  if (controller == "pids") return {"pids.max", limits.pids ? std::to_string(limits.pids) : ""};
  if (controller == "memory") {
    return {unified ? "memory.max" : "memory.limit_in_bytes",
            limits.memory_bytes ? std::to_string(limits.memory_bytes) : ""};
  }
  if (limits.cpu_thousandths == 0) return {};
  const std::string quota = std::to_string(limits.cpu_thousandths * kPeriodUs / 1000);
  if (unified) return {"cpu.max", quota + " " + std::to_string(kPeriodUs)};
  return {"cpu.cfs_quota_us", quota};
}

bool has(const Hierarchy& hierarchy, const std::string& controller) {
  return hierarchy.unified || hierarchy.options.find("," + controller + ",") != std::string::npos;
}

bool make_group(const std::string& path) {
  if (mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return false;
  return chmod(path.c_str(), 0755) == 0;  // whatever the umask: it is shown inside
}

bool limit_group(const Hierarchy& hierarchy, const std::string& controller,
                 const std::string& sandbox, const Limits& limits) {
  const auto [file, value] = setting(controller, hierarchy.unified, limits);
  if (!has(hierarchy, controller) || value.empty()) return false;
  if (hierarchy.unified) put(hierarchy.top + "/cgroup.subtree_control", "+" + controller);
  const std::string group = group_of(hierarchy, sandbox);
  return make_group(group) && put(group + "/" + file, value);
}

bool join(const Hierarchy& hierarchy, const std::string& sandbox, pid_t pid) {
  return put(group_of(hierarchy, sandbox) + "/cgroup.procs", std::to_string(pid));
}

// A new group of cpuset takes no process before it has processors and memory nodes.
bool make_other(const Hierarchy& hierarchy, const std::string& sandbox) {
  const std::string group = group_of(hierarchy, sandbox);
  if (!make_group(group)) return false;
  for (const char* file : {"/cpuset.cpus", "/cpuset.mems"}) {
    const auto value = base::read_file_if_exists(hierarchy.top + file, 64 << 10);
    if (value && !put(group + file, *value)) return false;
  }
  return true;
}

}  // namespace

std::vector<std::string> hold_limits(const std::string& sandbox, pid_t pid, const Limits& limits) {
  std::vector<std::string> held;
  if (geteuid() != 0) return held;
  const std::vector<Hierarchy> all = hierarchies();
  for (const std::string controller : kControllers) {
    const bool holds = std::any_of(all.begin(), all.end(), [&](const Hierarchy& one) {
      return limit_group(one, controller, sandbox, limits) && join(one, sandbox, pid);
    });
    if (holds) held.push_back(controller == "cpu" ? "cpus" : controller);
  }
  for (const char* controller : kOthers) {
    for (const Hierarchy& one : all) {
      if (!one.unified && has(one, controller) && make_other(one, sandbox)) join(one, sandbox, pid);
    }
  }
  return held;
}

std::vector<std::pair<std::string, std::string>> make_groups(const std::string& sandbox,
                                                             const Limits& limits) {
  std::vector<std::pair<std::string, std::string>> shown;
  if (geteuid() != 0) return shown;
  for (const Hierarchy& one : hierarchies()) {
    for (const std::string controller : kControllers) {
      if (!limit_group(one, controller, sandbox, limits)) continue;
      const std::string place = one.unified ? kInside : kInside + ("/" + controller);
      if (shown.empty() || shown.back().second != place)
        shown.emplace_back(group_of(one, sandbox), place);
    }
    for (const std::string controller : kOthers) {
      if (!one.unified && has(one, controller) && make_other(one, sandbox))
        shown.emplace_back(group_of(one, sandbox), kInside + ("/" + controller));
    }
  }
  return shown;
}

void remove_limits(const std::string& sandbox) {
  if (geteuid() != 0) return;
  for (const Hierarchy& one : hierarchies()) {
    const std::string group = group_of(one, sandbox);
    if (!remove_group(group)) base::throw_errno("remove the control group " + group);
  }
}

}  // namespace moorage::outpost
