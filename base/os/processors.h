// The processors that a process and its children may run on: its affinity, which nproc, Go, Node,
// the JVM and .NET count to size themselves. A quota of the cpu controller holds the limit; the
// affinity only shows it, so nothing here is a boundary: a process may widen its own again.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace moorage::base {

using Processors = std::vector<int>;  // numbers, rising

// `pid` 0: the calling thread. Empty: there is no such process.
Processors processors_of(pid_t pid);
// For children of that thread, too. Fine if the process has ended, or if none of these is online.
void keep_to_processors(pid_t pid, const Processors& processors);

// As many of `allowed` as the limit rounded up (1.5: two), the least used first; `used` are the
// choices of others that still run. Empty: no choice, as the limit is not below `allowed`, or 0.
Processors choose_processors(const Processors& allowed, double cpus,
                             const std::vector<Processors>& used);

// "0,2-3", as in /sys/devices/system/cpu/online.
std::string processors_text(const Processors& processors);
Processors parse_processors(const std::string& text);  // skips everything else

// Where a program of the C library's sysconf(3) counts processors, such as Python's os.cpu_count().
inline constexpr const char* kOnlineProcessors = "/sys/devices/system/cpu/online";

}  // namespace moorage::base
