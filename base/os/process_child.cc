#include "base/os/process_child.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace moorage::base {
namespace {

void reset_signals() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  // The C library refuses its own two signals, the kernel KILL and STOP; ignore those failures.
  for (int number = 1; number <= SIGRTMAX; ++number) sigaction(number, &action, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace

std::string_view child_step_name(ChildStep step) {
  constexpr std::array<std::string_view, 5> kNames{"set up standard streams",
                                                   "close other descriptors", "change directory",
                                                   "set limits", "execute"};
  return kNames.at(static_cast<size_t>(step));
}

void ChildPlan::apply() const {
  setpgid(0, 0);
  reset_signals();
  for (int i = 0; i < 3; ++i) {
    if (dup2(streams[i], i) < 0) fail(ChildStep::redirect, errno);
  }
  // Marked close-on-exec rather than closed, so that a failing exec can still be reported.
  if (syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) < 0) {
    fail(ChildStep::close_others, errno);
  }
  for (int fd : *inherit_fds) {
    if (fd > 2 && fcntl(fd, F_SETFD, 0) < 0) fail(ChildStep::close_others, errno);
  }
  if (chdir(directory) < 0) fail(ChildStep::directory, errno);
  if (max_memory_bytes) limit(RLIMIT_AS, max_memory_bytes);
  if (max_file_bytes) limit(RLIMIT_FSIZE, max_file_bytes);
}

void ChildPlan::fail(ChildStep step, int error_number) const {
  const ChildFailure failure{step, error_number};
  // Fits PIPE_BUF; if even this fails, the exit code below still shows that nothing ran.
  [[maybe_unused]] ssize_t written = write(failure_fd, &failure, sizeof failure);
  _exit(127);
}

void ChildPlan::limit(int resource, uint64_t value) const {
  const rlimit both{value, value};
  if (setrlimit(static_cast<__rlimit_resource>(resource), &both) < 0) {
    fail(ChildStep::limits, errno);
  }
}

}  // namespace moorage::base
