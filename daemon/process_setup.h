// How the daemon sets up its own process before opening anything, how it ends it, and how it talks
// to the service manager.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/os/fd.h"

namespace moorage::daemon {

// Call this before there are threads.
// No core dumps, and no other process reads this one's memory (it holds output and bundles in
// transit); files private by default; SIGPIPE ignored, SIGHUP noted; as many descriptors as
// allowed; none inherited but 0-2 and the sockets of socket activation; few heaps for many threads.
void set_up_process();

// Whether a SIGHUP came since the last call.
bool take_hangup();

// The listening socket: passed by systemd (LISTEN_FDS of sd_listen_fds(3)), or created at `path`
// with mode 0660 and this group. If the group does not exist, only root can use it; logs a warning.
base::Fd listen_for_clients(const std::string& path, const std::string& group);

// sd_notify(3): "READY=1", "STOPPING=1". Does nothing without NOTIFY_SOCKET.
void tell_service_manager(std::string_view state);

// Ends the process after this time, even during merges, removals and walks that destructors wait
// for. The next start redoes each of them, as after a crash.
void exit_after(std::chrono::seconds time);

}  // namespace moorage::daemon
