// A user namespace held by an idle process, as long as this object lives. The kernel charges
// resources used inside (inotify instances and watches, queued signals, message queues, namespaces)
// to the user who created it too (ucounts; namespaces(7), "The /proc/sys/user directory"): if root
// created all sandboxes' namespaces, they could use up root's limits.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/os/fd.h"
#include "base/os/mount.h"

namespace moorage::base {

class UserNamespace {
 public:
  // Created by `owner`, a host id, or by the caller; the caller writes the maps. With an owner the
  // calling thread briefly changes its effective user id: for single-threaded processes.
  explicit UserNamespace(const std::vector<IdMapLine>& map, std::optional<uid_t> owner = {});
  ~UserNamespace();
  UserNamespace(UserNamespace&&) = delete;

  pid_t holder() const { return pid_; }  // dies with this object, and with its creator thread
  Fd descriptor() const;                 // keeps the namespace without the holder

 private:
  explicit UserNamespace(std::optional<uid_t> owner);  // without maps
  std::string proc() const { return "/proc/" + std::to_string(pid_); }

  std::unique_ptr<char[]> stack_;
  pid_t pid_ = -1;
};

}  // namespace moorage::base
