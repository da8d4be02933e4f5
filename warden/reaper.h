// Reaps all our children, including those inherited as process 1 or subreaper.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <functional>

#include "base/os/fd.h"
#include "warden/io/loop.h"

namespace moorage::warden {

Fd signal_fd(int signal);  // blocks it for this process; readable when it comes

class Reaper {
 public:
  using Ended = std::function<void(pid_t pid, int status, const rusage& usage)>;

  Reaper(Loop& loop, Ended ended);  // blocks SIGCHLD for this process
  bool childless() const { return childless_; }

 private:
  void reap();

  Fd signals_;
  Ended ended_;
  bool childless_ = true;
  Watch watch_;
};

}  // namespace moorage::warden
