// A user namespace held by an idle process, as long as this object lives. The kernel charges
// resources used inside (inotify instances and watches, queued signals, message queues, namespaces)
// to the user who created it too (ucounts; namespaces(7), "The /proc/sys/user directory"): if root
// created all sandboxes' namespaces, they could use up root's limits.
#pragma once

#include <sys/types.h>

#include <memory>
#include <vector>

#include "base/os/fd.h"
#include "base/os/mount.h"

namespace moorage::base {

class UserNamespace {
 public:
  // Created by `owner`, a host id, or by the caller; the caller writes the maps. With an owner the
  // calling thread briefly changes its effective user id: for single-threaded processes.
  explicit UserNamespace(const std::vector<IdMapLine>& map);
  UserNamespace(const std::vector<IdMapLine>& map, uid_t owner);
  ~UserNamespace();
  UserNamespace(UserNamespace&&) = delete;

  pid_t holder() const;   // dies with this object, and with its creator thread
  Fd descriptor() const;  // keeps the namespace without the holder

 private:
  class Holder;
  std::unique_ptr<Holder> holder_;
};

}  // namespace moorage::base
