// Finds the files of a sandbox that one of its processes has mapped for shared writing. A write
// through such a mapping changes the file without updating its times at once, so a comparison by
// times (copy.h) must know these files.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace moorage::layers {

struct Mapping {
  std::string path;  // below the target, without the target and the slash
  ino_t inode = 0;   // from /proc; on some kernels it differs from the number in the layer
};

// The writable shared mappings below `target` in `maps` (the format of /proc/PID/maps). The kernel
// appends " (deleted)" to the name of a removed file; a real name may also end so, so it is kept.
std::vector<Mapping> shared_mappings(std::string_view maps, const std::string& target);

// Inode numbers in the live layer of files that the processes may have mapped below /workspace and
// /home/user: includes every file mapped during the whole call, sometimes others. A removed name
// is included, because its file may have other names.
std::set<ino_t> mapped_inodes(const std::vector<pid_t>& processes, const std::string& layer);

}  // namespace moorage::layers
