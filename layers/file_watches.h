// Whether a process watches files of a file system through inotify or fanotify. The kernel lets a
// mount with watched files be unmounted, and the watches end with it (IN_UNMOUNT): a dev server
// elsewhere would never see another change.
#pragma once

#include <sys/types.h>

#include <string_view>
#include <vector>

namespace moorage::layers {

// Parses the text of /proc/PID/fdinfo/N: one line for each mark.
bool marks_any(std::string_view fdinfo, const std::vector<dev_t>& devices);
// False for a process that ended. Also true if it has more marks than can be read quickly.
bool watches_any(pid_t process, const std::vector<dev_t>& devices);

}  // namespace moorage::layers
