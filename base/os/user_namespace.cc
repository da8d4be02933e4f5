// A user namespace needs a process to exist, so an idle child is created, mapped from here, opened
// through /proc, and killed.
#include "base/os/user_namespace.h"

#include <fcntl.h>
#include <linux/capability.h>
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
#include "base/os/files.h"
#include "base/os/mount.h"

#ifdef __SANITIZE_THREAD__
// The thread sanitizer treats every clone() as a fork and confuses this process with the child that
// shares its memory. glibc exports the same call under a name it does not intercept.
extern "C" int __clone(int (*)(void*), void*, int, void*, ...) noexcept;
#define clone __clone
#endif

namespace moorage::base {
namespace {

constexpr size_t kStackBytes = 16 << 10;

// Runs on a small stack in this process's memory, as after vfork: system calls only. It dies with
// its creator thread and closes its copies of our descriptors (locks, pipes) at once.
__attribute__((no_sanitize("address", "thread", "undefined"))) int wait_to_be_killed(void*) {
  syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
  syscall(SYS_close_range, 0U, ~0U, 0U);
  for (;;) syscall(SYS_pause);
}

// Gives this thread another effective user id with its current capabilities: the kernel takes a
// namespace's owner from the id, and a host may let only capable processes create one.
class ActingAs {
 public:
  explicit ActingAs(uid_t owner) : before_(geteuid()), dumpable_(prctl(PR_GET_DUMPABLE)) {
    set(owner);
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3]{};
    if (syscall(SYS_capget, &header, sets) == 0) {
      for (auto& part : sets) part.effective = part.permitted;
      if (syscall(SYS_capset, &header, sets) == 0) return;
    }
    const int error_number = errno;
    set(before_);
    throw_errno("keep capabilities as another user", error_number);
  }
  ~ActingAs() {
    // The saved id is still the previous one, so this cannot fail.
    [[maybe_unused]] const long result = syscall(SYS_setresuid, -1, before_, -1);
    // Each change of id clears it, and with it /proc/self for a later user id of this process.
    if (dumpable_ == 1) prctl(PR_SET_DUMPABLE, 1);
  }
  ActingAs(ActingAs&&) = delete;

 private:
  // The bare system call: the C library's changes every thread.
  static void set(uid_t id) { check(syscall(SYS_setresuid, -1, id, -1), "act as another user"); }
  const uid_t before_;
  const int dumpable_;
};

void write_map(const std::string& path, const std::string& text) {
  // All lines in one write (user_namespaces(7)).
  Fd fd = open_file(path, O_WRONLY);
  check(write(fd.get(), text.data(), text.size()), "write " + path);
}

}  // namespace

UserNamespace::UserNamespace(std::optional<uid_t> owner)
    : stack_(std::make_unique<char[]>(kStackBytes)) {
  std::optional<ActingAs> owner_now;
  if (owner) owner_now.emplace(*owner);
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  // None of our signal handlers may run on that stack.
  pthread_sigmask(SIG_SETMASK, &all, &before);
  // No exit signal: its end raises no SIGCHLD, and waits for ordinary children skip it.
  pid_ = clone(wait_to_be_killed, stack_.get() + kStackBytes, CLONE_NEWUSER | CLONE_VM, nullptr);
  int error_number = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid_ < 0)
    throw_allowance("create a user namespace", "user.max_user_namespaces", error_number);
}

// The other constructor has made the holder: if a map is refused, the destructor ends it.
UserNamespace::UserNamespace(const std::vector<IdMapLine>& map, std::optional<uid_t> owner)
    : UserNamespace(owner) {
  std::string text;
  for (const IdMapLine& line : map) {
    text += std::to_string(line.inside) + " " + std::to_string(line.outside) + " " +
            std::to_string(line.count) + "\n";
  }
  write_map(proc() + "/uid_map", text);
  write_map(proc() + "/gid_map", text);
}

UserNamespace::~UserNamespace() {
  kill(pid_, SIGKILL);
  // The stack is freed next, so wait until the child has ended.
  while (waitpid(pid_, nullptr, __WCLONE) < 0 && errno == EINTR) {
  }
}

Fd UserNamespace::descriptor() const { return open_file(proc() + "/ns/user", O_RDONLY); }

Fd make_user_namespace(const std::vector<IdMapLine>& map) {
  return UserNamespace(map).descriptor();
}

}  // namespace moorage::base
