// The control groups of sandboxes, on a host with cgroup v2 alone or with v1 controllers.
//
// moorage/      all sandboxes of the host: their share of the processors
// moorage/NAME/ the sandbox: cpu, memory and pids with headroom beyond the commands' limits
//     launch/   moorage-launch while it works
//     monitor/  LXC's monitor
//     warden/   process 1 of the sandbox
//     egress/   its moorage-egress, once a name was asked for inside
//     cmd/      all commands: their own, lower ceiling
//       EXEC/   one exec: killed as a whole, its OOM kills counted
//
// They are at the top of each hierarchy as this process sees it, not below the daemon's group: the
// next daemon must find NAME again, from whatever shell or service it starts, and systemd starts no
// service in a group with living children that have controllers
// (docs/decisions/0301-cgroups-at-the-top.md). The unified hierarchy always has the whole tree: it
// kills (cgroup.kill), freezes and shows what is alive, also with v1 controllers. The label is an
// extended attribute of NAME, so it disappears with it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "base/os/processors.h"

namespace moorage::backends {

inline constexpr const char* kSandboxesGroup = "moorage";
inline constexpr const char* kCgroupsInside = "/sys/fs/cgroup";

struct CgroupHierarchies {
  std::string unified;  // mount points; empty: not mounted
  std::string memory_v1;
  std::string pids_v1;
  std::string cpu_v1;
  std::string disk_v1;  // blkio
  // These limit nothing here: the JVM believes in limits only where it finds them, too.
  std::string cpuacct_v1;
  std::string cpuset_v1;
  bool memory = false;  // the controller exists, in either version
  bool pids = false;
  bool cpu = false;
  bool disk = false;
  std::string kind() const;  // "v2", "v1-hybrid", "v1", "none"
  // The mounted ones of version 1, each once: controllers may share one.
  std::vector<std::string> all_v1() const;
};

// `mountinfo` in the format of /proc/self/mountinfo.
CgroupHierarchies parse_cgroup_mounts(const std::string& mountinfo);
CgroupHierarchies find_cgroups();  // throws unsupported without a unified hierarchy

// Keeps the kernel's lock for moving processes between groups in its fast state (mount option
// favordynmods, Linux 6.0): after a 10 ms pause a move takes 0.1 ms instead of 7 ms (measured on
// 6.18), and every exec makes one. Affects the whole host until reboot. False: the kernel does not
// support the option.
bool favor_quick_moves(const CgroupHierarchies& hierarchies);

class SandboxCgroup {
 public:
  SandboxCgroup(const CgroupHierarchies& hierarchies, std::string name);

  void create(const Limits& limits);
  // Before the first exec_group(). Until then processes can join "cmd", as a control group
  // namespace for the commands requires: with cgroup v2, a group whose children are counted has no
  // members.
  void open_commands() const;
  // Applies when processors are short, to all sandboxes together: a service of the host has 100
  // (cgroup v2's cpu.weight). Call after create().
  void weigh_cpu(uint32_t weight) const;
  // Bytes per second, each way, on a whole disk ("254:0"). v1 counts only reads and writes that
  // bypass the page cache; only v2 counts page-cache writes.
  void limit_disk(const std::string& disk, uint64_t bytes_per_s) const;
  void add_part(const std::string& part) const;  // in the unified hierarchy; others need none
  bool exists() const;                           // in any hierarchy
  // Write "0" to these files to put the writer and its future children into group `part`.
  std::vector<std::string> join_files(const std::string& part) const;
  std::string unified_path() const { return hierarchies_.unified + "/" + group_; }
  std::string commands_path() const { return "/" + group_ + "/cmd"; }  // in a hierarchy with parts
  // Directories with the limits of the commands, and where a sandbox shows them, read-only:
  // programs read them to learn their limits (docs/decisions/0390).
  std::vector<std::pair<std::string, std::string>> shown() const;
  // Chooses the processors of a new sandbox, such that all on this host spread over them, and keeps
  // the choice with the group. Empty: none, all may be used.
  base::Processors choose_processors(double cpus) const;

  void freeze(std::chrono::milliseconds deadline);  // thawed again when it throws deadline_exceeded
  void thaw(std::chrono::milliseconds deadline);
  bool frozen() const;

  // SIGKILL to all, including the monitor; returns when all are gone and all directories removed.
  void kill_and_remove(std::chrono::milliseconds deadline);
  void measure(SandboxStatus& status) const;  // memory, processor time, processes
  std::vector<pid_t> members() const;         // of the commands' part

  void set_label(const std::string& label);
  std::optional<std::string> label() const;

  std::unique_ptr<ExecGroup> exec_group(const std::string& exec_name) const;  // exec_cgroup.cc

 private:
  std::vector<std::string> all_paths() const;
  void apply_limits(const Limits& limits) const;

  CgroupHierarchies hierarchies_;
  std::string name_;
  std::string group_;  // moorage/NAME
};

// Names of sandboxes that begin with prefix, from all hierarchies, sorted.
std::vector<std::string> sandbox_cgroups(const CgroupHierarchies& hierarchies,
                                         const std::string& prefix);

// Reads and writes in one group directory. A missing file is an Error(not_found).
void make_cgroup(const std::string& path);  // or it already exists
// The daemon's umask hides groups; those that a sandbox shows must be open to its users. Other
// users of the host do not reach them, because kSandboxesGroup stays closed.
void show_cgroup(const std::string& path);
void write_cgroup_file(const std::string& path, const std::string& value);
std::optional<uint64_t> cgroup_counter(const std::string& path,
                                       std::string_view key);  // "key N" lines
bool cgroup_populated(const std::string& path);                // false if missing
// Removes the group and all below it, waiting for the last processes to end. Missing is fine.
void remove_cgroup(const std::string& path, std::chrono::steady_clock::time_point deadline);

}  // namespace moorage::backends
