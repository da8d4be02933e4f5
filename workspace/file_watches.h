// Whether a process watches files of a file system, by inotify or fanotify. The kernel lets a mount
// with watched files be unmounted, and the watches end with it (IN_UNMOUNT): a dev server that runs
// elsewhere would never see a change again.
#pragma once

#include <sys/types.h>

#include <string_view>
#include <vector>

namespace moorage::workspace {

// By what /proc/PID/fdinfo says of a descriptor: a line for each mark.
bool marks_any(std::string_view fdinfo, const std::vector<dev_t>& devices);
// False for one that ended. True, too, if it has more marks than can be read in a moment.
bool watches_any(pid_t process, const std::vector<dev_t>& devices);

}  // namespace moorage::workspace
