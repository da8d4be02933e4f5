// The root file system of a container, made of mounts in a mount namespace of our own. The order is
// the design:
//
//  1. join the cgroup          all that follows is killed with, and charged to, the sandbox
//  2. unshare mounts, slave    the host's table never changes; unmounts on the host still reach us
//  3. clone every source       while the host's paths are still visible
//  4. cover /run               a place for a root that the container's ids can enter (the store is
//                              0700), and for LXC's lock files, which would stay on the host
//  5. cover /sys/fs/cgroup     with the sandbox's own group: LXC creates its groups in there only,
//                              and treats v1 controllers as absent
//  6. attach                   skeleton, /usr, private tmpfs, warden; the caller adds the workspace
//
// All of it vanishes with the last process of the namespace.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/os/fd.h"
#include "base/os/mount.h"
#include "base/os/user_namespace.h"
#include "request.h"

namespace moorage::launch {

inline constexpr uint32_t kIdsPerSandbox = 65536;
// Pseudo-terminals are limited for the whole host (kernel.pty.max, 4096, of which sandboxes share
// 3072). This is more than an agent with tmux uses, and 48 sandboxes can use their full share.
inline constexpr int kMaxTerminals = 64;
// Shown from the host's /sys; the skeleton has mount points for them.
inline constexpr const char* kProcessors[] = {"/sys/devices/system/cpu",
                                              "/sys/devices/system/node"};
inline constexpr const char* kCgroups = "/sys/fs/cgroup";

// Masked in every sandbox's /proc because they reveal the whole host: files with /dev/null,
// directories with an empty one. Paths missing in this kernel are skipped.
inline constexpr const char* kMaskedFiles[] = {
    "kcore",       "keys",        "kallsyms",      "kmsg",      "timer_list",
    "sched_debug", "key-users",   "latency_stats", "modules",   "sysrq-trigger",
    "interrupts",  "cmdline",     "partitions",    "diskstats", "swaps",
    "slabinfo",    "vmallocinfo", "pagetypeinfo",  "iomem",     "ioports"};
inline constexpr const char* kMaskedDirectories[] = {"acpi", "scsi", "asound", "bus",
                                                     "fs",   "irq",  "driver"};

// Of /proc as lxcfs shows it, where its service runs: the memory and processors of the reader's own
// container, as `free` and Node's os.cpus() report them. The host's have no limits to show.
inline constexpr const char* kLxcfs = "/var/lib/lxcfs/proc/";
inline constexpr const char* kOfLxcfs[] = {"cpuinfo", "meminfo", "stat"};
// Names of kOfLxcfs; empty where it does not run.
std::vector<std::string> lxcfs_files();

inline constexpr const char* kRoot = "/run/root";         // the container's root
inline constexpr const char* kLxcPath = "/run/lxc-path";  // LXC's directory, empty
inline constexpr const char* kLxcRoot =
    "/run/lxc-root";  // where LXC mounts the root before it enters it

struct Place {
  Fd mount;
  std::string target;  // absolute, inside
};

// A detached copy of the mount at path.
Fd cloned(const std::string& path, const base::MountAttributes& attributes,
          const std::optional<Fd>& id_map = std::nullopt);
// The places of every root except warden and bootstrap, in attach order.
std::vector<Place> clone_shared_places(const Request& request, const std::optional<Fd>& id_map);

void join_cgroup(const Request& request);
// With the ids mapped by `ids`.
void build_root(const Request& request, const base::UserNamespace& ids);

}  // namespace moorage::launch
