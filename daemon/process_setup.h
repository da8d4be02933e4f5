// What the daemon does to its own process before it opens anything and when it ends, and how it
// meets the service manager.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/fd.h"

namespace moorage::daemon {

// To be called before there are threads.
// No core dumps and no reading of our memory by others (it holds what passes through: output,
// bundles); files private by default; SIGPIPE ignored; as many descriptors as allowed; none
// inherited but 0-2 and the sockets of socket activation; few heaps for many threads.
void set_up_process();

// The listening socket: handed over by systemd (LISTEN_FDS of sd_listen_fds(3)), or made at `path`,
// mode 0660 and of this group. Without such a group only root can use it, and a warning says so.
base::Fd listen_for_clients(const std::string& path, const std::string& group);

// sd_notify(3): "READY=1", "STOPPING=1". Nothing happens without NOTIFY_SOCKET.
void tell_service_manager(std::string_view state);

// Ends the process, whatever is under way by then: merges, removals and walks that the end of
// their owners waits for. Each is made anew by the next start, as after a crash.
void exit_after(std::chrono::seconds time);

}  // namespace moorage::daemon
