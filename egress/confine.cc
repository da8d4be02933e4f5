#include "egress/confine.h"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/mount.h"

namespace moorage::egress {
namespace {

constexpr const char* kRoot = "/tmp";  // covered by the new root, in a mount namespace of our own
constexpr const char* kRandom = "/dev/urandom";  // c-ares reads it for the ids of its questions

constexpr const char* kCalls[] = {
    // memory
    "brk", "mremap", "munmap", "madvise",
    // descriptors
    "read", "write", "readv", "writev", "close", "close_range", "dup2", "dup3", "fcntl", "lseek",
    "fstat", "newfstatat", "openat", "poll", "ppoll", "epoll_create1", "epoll_ctl", "epoll_wait",
    "epoll_pwait", "ioctl", "pipe2", "splice",
    // sockets: neither bind nor listen; those for the sandbox come from its warden
    "connect", "accept4", "getsockopt", "setsockopt", "getsockname", "getpeername", "recvfrom",
    "recvmsg", "sendto", "sendmsg", "sendmmsg", "shutdown",
    // the process itself
    "clock_gettime", "clock_nanosleep", "nanosleep", "gettimeofday", "getrandom", "futex", "getpid",
    "gettid", "getuid", "geteuid", "sched_yield", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn",
    "restart_syscall", "tgkill", "exit", "exit_group", "uname"};

void limit(__rlimit_resource resource, uint64_t value) {
  const rlimit both{value, value};
  base::check(setrlimit(resource, &both), "set a limit of this process");
}

// pivot_root(2): the old root is stacked on the new one, then unmounted.
void enter_empty_root() {
  base::check_allowance(unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS), "create a namespace",
                        "user.max_mnt_namespaces");
  base::set_propagation_private("/");
  const Fd random = base::clone_mount(kRandom);
  const Fd root =
      base::make_file_system("tmpfs", {{"size", "4k"}, {"nr_inodes", "4"}, {"mode", "755"}},
                             {.nosuid = true, .noexec = true});
  base::attach_mount(root.get(), kRoot);
  base::check(chdir(kRoot), "change to the new root");
  base::check(mkdir("dev", 0755), "create a directory");
  Fd place(base::check(open("dev/urandom", O_CREAT | O_WRONLY | O_CLOEXEC, 0444), "create a file"));
  place.reset();  // while it is open for writing, the root cannot become read-only
  base::attach_mount(random.get(), std::string(kRoot) + kRandom);
  base::check(syscall(SYS_pivot_root, ".", "."), "change the root");
  base::check(umount2(".", MNT_DETACH), "leave the old root");
  base::check(chdir("/"), "change to the new root");
  base::set_mount_attributes(root.get(), {true, true, false, true});
}

void become(uint32_t id) {
  base::check(setgroups(0, nullptr), "drop the groups");
  base::check(setresgid(id, id, id), "change the group");
  base::check(setresuid(id, id, id), "change the user");  // drops all capabilities, too
  base::check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "give up new privileges");
  base::check(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "forbid tracing");
}

class Filter {
 public:
  Filter() : context_(seccomp_init(SCMP_ACT_ERRNO(EPERM)), seccomp_release) {
    if (!context_) throw Error(Code::resource_exhausted, "no memory for a filter of system calls");
  }
  void allow(const char* name) {
    const int call = seccomp_syscall_resolve_name(name);
    if (call == __NR_SCMP_ERROR) return;  // not on this architecture
    require(seccomp_rule_add(context_.get(), SCMP_ACT_ALLOW, call, 0));
  }
  void allow_if(const char* name, scmp_arg_cmp condition) {
    require(seccomp_rule_add_array(context_.get(), SCMP_ACT_ALLOW,
                                   seccomp_syscall_resolve_name(name), 1, &condition));
  }
  void load() { require(seccomp_load(context_.get())); }

 private:
  static void require(int result) {
    if (result < 0) base::throw_errno("filter system calls", -result);
  }
  std::unique_ptr<void, decltype(&seccomp_release)> context_;
};

void filter_calls() {
  Filter filter;
  for (const char* name : kCalls) filter.allow(name);
  filter.allow_if("socket", SCMP_A0(SCMP_CMP_EQ, AF_INET));
  filter.allow_if("socket", SCMP_A0(SCMP_CMP_EQ, AF_INET6));
  filter.allow_if("mmap", SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
  filter.allow_if("mprotect", SCMP_A2(SCMP_CMP_MASKED_EQ, PROT_EXEC, 0));
  filter.load();
}

}  // namespace

void confine(const Confinement& confinement) {
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_NOFILE, confinement.open_files);
  enter_empty_root();
  become(confinement.uid);
  limit(RLIMIT_AS, confinement.memory_bytes);
  filter_calls();
}

}  // namespace moorage::egress
