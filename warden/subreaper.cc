#include "warden/subreaper.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "warden/process_tree.h"

namespace moorage::warden {
namespace {

constexpr long kKillAgainNs = 10'000'000;
constexpr unsigned kCountAgainS = 1;

// Returns false when no child is left. `over`: the command has ended.
bool reap(pid_t command, int report_fd, bool& over) {
  for (;;) {
    SubreaperReport report;
    pid_t pid = ::wait4(-1, &report.status, WNOHANG, &report.usage);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) return pid == 0;
    if (pid == command) {
      [[maybe_unused]] ssize_t ignored = ::write(report_fd, &report, sizeof report);
      over = true;
    }
  }
}

}  // namespace

void become_subreaper() {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  ::prctl(PR_SET_NAME, "moorage-keeper");
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
}

void run_subreaper(pid_t command, int report_fd, size_t most_left) {
  // As descriptor 0, so that one call can close all the others.
  ::dup2(report_fd, 0);
  ::close_range(1, ~0U, 0);
  sigset_t awaited;
  ::sigemptyset(&awaited);
  ::sigaddset(&awaited, SIGCHLD);
  ::sigaddset(&awaited, SIGUSR1);
  ::sigaddset(&awaited, SIGALRM);
  bool killing = false;
  bool over = false;
  bool counting = false;
  while (reap(command, 0, over)) {
    if (over && !counting && most_left > 0) {
      counting = true;
      ::raise(SIGALRM);  // the first time at once
    }
    if (killing) kill_descendants(::getpid());
    timespec again{0, kKillAgainNs};
    int signal = ::sigtimedwait(&awaited, nullptr, killing ? &again : nullptr);
    if (signal == SIGUSR1) killing = true;
    if (signal != SIGALRM) continue;
    if (descendants(::getpid()).size() > most_left) killing = true;
    ::alarm(kCountAgainS);
  }
  ::_exit(0);
}

}  // namespace moorage::warden
