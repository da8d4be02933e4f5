// A user namespace that an idle process holds, for as long as this object lives. The kernel charges
// what is used inside (inotify instances and watches, queued signals, message queues, namespaces)
// to the account of the user who made it as well (ucounts; namespaces(7), "The /proc/sys/user
// directory"): one that root made for each sandbox would let them all use up root's.
#pragma once

#include <sys/types.h>

#include <memory>
#include <vector>

#include "base/fd.h"
#include "base/mount.h"

namespace moorage::base {

class UserNamespace {
 public:
  // Made by `owner`, a host id, or by who calls; the caller writes the maps. With an owner the
  // calling thread changes its effective user id for a moment: for processes of a single thread.
  explicit UserNamespace(const std::vector<IdMapLine>& map);
  UserNamespace(const std::vector<IdMapLine>& map, uid_t owner);
  ~UserNamespace();
  UserNamespace(const UserNamespace&) = delete;
  UserNamespace& operator=(const UserNamespace&) = delete;

  pid_t holder() const;   // dies with this object, and with the thread that made it
  Fd descriptor() const;  // keeps the namespace without the holder

 private:
  class Holder;
  std::unique_ptr<Holder> holder_;
};

}  // namespace moorage::base
