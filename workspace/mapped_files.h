// Files of a sandbox that a process of it has mapped to write to, shared with the file. A write
// through such a mapping changes the file, and neither its times nor anything else says so at once;
// so whoever compares by times (layer_copy.h) is told of them.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace moorage::workspace {

struct Mapping {
  std::string path;  // below the target, without it and the slash
  ino_t inode = 0;   // as /proc has it: of some kernels not the number in the layer
};

// The writable shared mappings below `target` that `maps` lists (the format of /proc/PID/maps). The
// kernel adds " (deleted)" to the name of what was removed; a name may also end so, so it is kept.
std::vector<Mapping> shared_mappings(std::string_view maps, const std::string& target);

// Inode numbers in the live layer that may be those of what the processes have mapped below
// /workspace and /home/user: never too few of what is mapped all the time, sometimes too many.
// A removed name stays, for the file may have others.
std::set<ino_t> mapped_inodes(const std::vector<pid_t>& processes, const std::string& layer);

}  // namespace moorage::workspace
