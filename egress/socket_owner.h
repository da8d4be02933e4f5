// Which command a socket inside belongs to: the kernel's id of the control group that created it
// (sock_diag(7), INET_DIAG_CGROUP_ID, Linux 5.8). The answer is for people and never decides.
#pragma once

#include <cstdint>

#include "base/net/ip_address.h"
#include "base/os/fd.h"

namespace moorage::egress {

struct SocketEnd {
  base::IpAddress address;  // IPv4
  uint16_t port = 0;
};

// Of the socket inside with these ends; protocol as in IPPROTO_TCP. `diag` belongs to the sandbox's
// network namespace and is shared with it: what it says is checked for its form. 0: not known.
uint64_t cgroup_of_socket(const Fd& diag, int protocol, const SocketEnd& local,
                          const SocketEnd& remote);

}  // namespace moorage::egress
