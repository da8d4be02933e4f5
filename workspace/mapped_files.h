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

// Paths below `target`, without it and the slash, of the writable shared mappings that `maps` lists
// (the format of /proc/PID/maps). What was removed is none.
std::vector<std::string> mapped_paths(std::string_view maps, const std::string& target);

// Inode numbers in the live layer, of what the processes have mapped below /workspace and
// /home/user. Exact while they are frozen. What vanishes under it is left out.
std::set<ino_t> mapped_inodes(const std::vector<pid_t>& processes, const std::string& layer);

}  // namespace moorage::workspace
