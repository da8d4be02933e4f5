// ExecGroup as control groups below a sandbox's commands part (backends/cgroups/cgroups.h).
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "backends/cgroups/cgroups.h"
#include "base/error.h"
#include "base/os/files.h"

namespace moorage::backends {
namespace {

constexpr std::chrono::milliseconds kRemovePatience{
    200};  // for the last process to leave its v1 group

class ExecCgroup : public ExecGroup {
 public:
  ExecCgroup(const CgroupHierarchies& hierarchies, const std::string& commands,
             const std::string& exec_name)
      : unified_(hierarchies.unified + "/" + commands + "/" + exec_name) {
    if (!hierarchies.memory_v1.empty())
      memory_v1_ = hierarchies.memory_v1 + "/" + commands + "/" + exec_name;
    // Processes are counted for all commands together, so an exec has no group for them.
    if (!hierarchies.pids_v1.empty()) pids_v1_ = hierarchies.pids_v1 + "/" + commands;
    pids_ = pids_v1_.empty() ? hierarchies.unified + "/" + commands : pids_v1_;
  }

  std::vector<Fd> join_fds() override {
    make_cgroup(unified_);
    if (!memory_v1_.empty()) make_cgroup(memory_v1_);
    show_memory_limit();
    std::vector<Fd> fds;
    for (const std::string* path : {&unified_, &memory_v1_, &pids_v1_}) {
      if (!path->empty()) fds.push_back(base::open_file(*path + "/cgroup.procs", O_WRONLY));
    }
    return fds;
  }

  Fd kill_fd() override { return base::open_file(unified_ + "/cgroup.kill", O_WRONLY); }

  void kill() override {
    if (base::path_exists(unified_)) write_cgroup_file(unified_ + "/cgroup.kill", "1");
  }

  void set_frozen(bool frozen) override {
    const std::string file = unified_ + "/cgroup.freeze";
    if (base::path_exists(file)) write_cgroup_file(file, frozen ? "1" : "0");
  }

  uint64_t oom_kills() override {
    const std::string file =
        memory_v1_.empty() ? unified_ + "/memory.events" : memory_v1_ + "/memory.oom_control";
    return cgroup_counter(file, "oom_kill").value_or(0);
  }

  uint64_t refused_forks() override {
    return cgroup_counter(pids_ + "/pids.events", "max").value_or(0);
  }

  // Counted for every group of the unified hierarchy, even without the cpu controller.
  uint64_t cpu_usec() override {
    return cgroup_counter(unified_ + "/cpu.stat", "usage_usec").value_or(0);
  }

  uint64_t kernel_id() override {
    struct stat info;
    return stat(unified_.c_str(), &info) == 0 ? info.st_ino : 0;
  }

  bool empty() override { return !cgroup_populated(unified_); }

  std::vector<pid_t> members(size_t at_most) override {
    std::istringstream list(base::read_file_if_exists(unified_ + "/cgroup.procs").value_or(""));
    std::vector<pid_t> pids;
    for (pid_t pid = 0; pids.size() < at_most && list >> pid;) pids.push_back(pid);
    return pids;
  }

  uint64_t processes() override {
    const auto list = base::read_file_if_exists(unified_ + "/cgroup.procs").value_or("");
    return static_cast<uint64_t>(std::count(list.begin(), list.end(), '\n'));
  }

  void remove() override {
    if (!empty()) {
      throw Error(Code::conflict, "cgroup " + unified_ + " still has processes");
    }
    const auto deadline = std::chrono::steady_clock::now() + kRemovePatience;
    if (!memory_v1_.empty()) remove_cgroup(memory_v1_, deadline);
    remove_cgroup(unified_, deadline);
  }

 private:
  // The same as of all commands together, which already holds: Node, the JVM and others read only
  // the limit of their own group.
  void show_memory_limit() const {
    const std::string& group = memory_v1_.empty() ? unified_ : memory_v1_;
    const char* file = memory_v1_.empty() ? "/memory.max" : "/memory.limit_in_bytes";
    show_cgroup(group);
    const auto limit =
        base::read_file_if_exists(group.substr(0, group.rfind('/')) + file);  // of all commands
    if (limit) write_cgroup_file(group + file, *limit);
  }

  std::string unified_;
  std::string memory_v1_;  // empty: the unified hierarchy counts memory
  std::string pids_v1_;
  std::string pids_;  // where the limit of all commands applies
};

}  // namespace

std::unique_ptr<ExecGroup> SandboxCgroup::exec_group(const std::string& exec_name) const {
  if (!base::path_exists(unified_path() + "/cmd")) {
    throw Error(Code::not_found, "there is no sandbox " + name_);
  }
  if (exec_name.empty() || exec_name.find('/') != std::string::npos || exec_name[0] == '.') {
    throw Error(Code::invalid_argument, "\"" + exec_name + "\" is not a valid exec name");
  }
  return std::make_unique<ExecCgroup>(hierarchies_, group_ + "/cmd", exec_name);
}

}  // namespace moorage::backends
