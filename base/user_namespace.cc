// User namespaces without a process (base/mount.h). One can only be made around a process, so a
// child that does nothing is made, mapped from here, opened through /proc, and killed.
#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "base/error.h"
#include "base/files.h"
#include "base/mount.h"

#ifdef __SANITIZE_THREAD__
// The thread sanitizer takes every clone() for a fork, and this process, whose memory the child
// shares, for the child from then on. glibc has the same under a name that is not intercepted.
extern "C" int __clone(int (*)(void*), void*, int, void*, ...) noexcept;
#define clone __clone
#endif

namespace moorage::base {
namespace {

constexpr size_t kStackBytes = 16 << 10;

// Runs on a small stack in the memory of this process, as after vfork: system calls only. It dies
// with the thread that made it, and lets go of its copies of our descriptors (locks, pipes) at
// once.
__attribute__((no_sanitize("address", "thread", "undefined"))) int wait_to_be_killed(void*) {
  syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
  syscall(SYS_close_range, 0U, ~0U, 0U);
  for (;;) syscall(SYS_pause);
}

class IdleChild {
 public:
  IdleChild() : stack_(std::make_unique<char[]>(kStackBytes)) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    // A handler of ours must not run on that stack.
    pthread_sigmask(SIG_SETMASK, &all, &before);
    // No exit signal: its end raises no SIGCHLD, and a wait for ordinary children passes it over.
    pid_ = clone(wait_to_be_killed, stack_.get() + kStackBytes, CLONE_NEWUSER | CLONE_VM, nullptr);
    int error_number = errno;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (pid_ < 0) throw_errno("make a user namespace", error_number);
  }
  ~IdleChild() {
    kill(pid_, SIGKILL);
    // The stack is freed next, so this must not be cut short.
    while (waitpid(pid_, nullptr, __WCLONE) < 0 && errno == EINTR) {
    }
  }
  IdleChild(const IdleChild&) = delete;
  IdleChild& operator=(const IdleChild&) = delete;

  std::string proc() const { return "/proc/" + std::to_string(pid_); }

 private:
  std::unique_ptr<char[]> stack_;
  pid_t pid_ = -1;
};

void write_map(const std::string& path, const std::string& text) {
  // All lines in one write (user_namespaces(7)).
  Fd fd = open_file(path, O_WRONLY);
  check(write(fd.get(), text.data(), text.size()), "write " + path);
}

}  // namespace

Fd make_user_namespace(const std::vector<IdMapLine>& map) {
  std::string text;
  for (const IdMapLine& line : map) {
    text += std::to_string(line.inside) + " " + std::to_string(line.outside) + " " +
            std::to_string(line.count) + "\n";
  }
  IdleChild child;
  write_map(child.proc() + "/uid_map", text);
  write_map(child.proc() + "/gid_map", text);
  return open_file(child.proc() + "/ns/user", O_RDONLY);
}

}  // namespace moorage::base
