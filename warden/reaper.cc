#include "warden/reaper.h"

#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"

namespace moorage::warden {

Fd signal_fd(int signal) {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, signal);
  if (::sigprocmask(SIG_BLOCK, &set, nullptr) != 0) base::throw_errno("block signals");
  Fd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) base::throw_errno("create a signalfd");
  return fd;
}

Reaper::Reaper(Loop& loop, Ended ended)
    : signals_(signal_fd(SIGCHLD)),
      ended_(std::move(ended)),
      watch_(loop, signals_.get(), EPOLLIN, [this](uint32_t) { reap(); }) {}

void Reaper::reap() {
  signalfd_siginfo ignored;
  // Signals merge: one may stand for many children, so reap until none is left.
  while (::read(signals_.get(), &ignored, sizeof ignored) > 0) {
  }
  for (;;) {
    int status = 0;
    rusage usage{};
    pid_t pid = ::wait4(-1, &status, WNOHANG, &usage);
    if (pid < 0 && errno == EINTR) continue;
    childless_ = pid < 0;
    if (pid <= 0) return;
    ended_(pid, status, usage);
  }
}

}  // namespace moorage::warden
