// The ways to make the inside of a sandbox; main.cc chooses by the request's mode.
#pragma once

#include <sys/types.h>

#include "base/os/user_namespace.h"
#include "cgroup_namespace.h"
#include "request.h"

namespace moorage::launch {

struct Namespaces {
  const base::UserNamespace& users;
  const CgroupNamespace& cgroups;
};

// "lxc": starts an unprivileged LXC container over the root that build_root made. Returns process
// 1's pid, seen from here. LXC's monitor remains as its parent; if it is killed, the container
// lives on. These namespaces become its own; the objects may go once this has returned.
pid_t start_container(const Request& request, const Namespaces& namespaces);

// "furnish": prepares the inside of an engine-made container from outside, while its process 1 (the
// warden) waits: mounts the host's /usr, private tmpfs and its own /sys, and removes what the
// engine reveals about itself or the host. The engine knows none of it.
void furnish(const Request& request);

// "process": without isolation. The warden is an ordinary host process, in a mount namespace whose
// root shows everything of the host's, with the workspace at its place. Returns its pid. It runs as
// host root; commands run as first_host_id + 1000 (--user-base).
// "link": the same with the keeper of a moorage-link as that process: no command runs here.
pid_t start_plain(const Request& request);

}  // namespace moorage::launch
