#include "cgroup_namespace.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"

namespace moorage::launch {
namespace {

using base::Fd;

// From where we are: in most hierarchies the commands have no group of their own.
void move_to_commands(const Request& request, pid_t pid) {
  const auto& ours = request.join_files;
  for (const std::string& file : request.join_commands) {
    if (std::find(ours.begin(), ours.end(), file) != ours.end()) continue;
    base::write_all(base::open_file(file, O_WRONLY).get(), std::to_string(pid));
  }
}

// Answers with a byte once it is in the namespace.
[[noreturn]] void hold(const base::Pipe& go, const base::Pipe& done, const Fd& users) {
  char byte = 0;
  if (read(go.read_end.get(), &byte, 1) != 1 || setns(users.get(), CLONE_NEWUSER) < 0 ||
      unshare(CLONE_NEWCGROUP) < 0) {
    _exit(errno);
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (write(done.write_end.get(), &byte, 1) != 1) _exit(errno);
  close_range(0, ~0U, 0);
  for (;;) pause();
}

}  // namespace

CgroupNamespace::CgroupNamespace(const Request& request, const base::UserNamespace& users) {
  const Fd owner = users.descriptor();
  base::Pipe go = base::make_pipe();
  base::Pipe done = base::make_pipe();
  pid_ = base::check(fork(), "create a process");
  if (pid_ == 0) {
    go.write_end.reset();
    hold(go, done, owner);
  }
  done.write_end.reset();
  move_to_commands(request, pid_);
  base::write_all(go.write_end.get(), "g");
  if (base::read_up_to(done.read_end.get(), 1).empty()) {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    base::throw_allowance("create a cgroup namespace", "user.max_cgroup_namespaces",
                          WIFEXITED(status) ? WEXITSTATUS(status) : EINTR);
  }
}

// It leaves the commands' group, which must be empty before its children are counted. If the
// constructor throws, it ends with the sandbox's control group.
CgroupNamespace::~CgroupNamespace() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace moorage::launch
