// A cgroup namespace whose roots are the groups of the commands, held by an idle process as long as
// this object lives. In it, /proc/self/cgroup of a command shows "/EXEC", a path that exists below
// /sys/fs/cgroup inside, and no name of the host's. Neither LXC nor the launcher can be the holder:
// the first makes a namespace of the warden's group, and both must move between groups outside.
#pragma once

#include <sys/types.h>

#include "base/os/user_namespace.h"
#include "request.h"

namespace moorage::launch {

class CgroupNamespace {
 public:
  // While the host's control groups are visible. Belongs to `users`, so that a process with its
  // rights may enter.
  CgroupNamespace(const Request& request, const base::UserNamespace& users);
  ~CgroupNamespace();
  CgroupNamespace(CgroupNamespace&&) = delete;

  pid_t holder() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

}  // namespace moorage::launch
