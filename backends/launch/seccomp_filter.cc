#include "seccomp_filter.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <sstream>
#include <vector>

#include "base/error.h"

namespace moorage::launch {
namespace {

// One string a group, so that a reader can check a group at a time.
constexpr const char* kAllowed[] = {
    // files
    "access chdir chmod chown close close_range copy_file_range creat dup dup2 dup3 faccessat "
    "faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fchown fchownat fcntl fdatasync "
    "fgetxattr flistxattr flock fremovexattr fsetxattr fstat fstatfs fsync ftruncate futimesat "
    "getcwd getdents getdents64 getxattr lchown lgetxattr link linkat listxattr llistxattr "
    "lremovexattr lseek lsetxattr lstat mkdir mkdirat mknod mknodat name_to_handle_at newfstatat "
    "open openat openat2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readahead readlink "
    "readlinkat readv removexattr rename renameat renameat2 rmdir sendfile setxattr splice stat "
    "statfs statx symlink symlinkat sync sync_file_range syncfs tee truncate umask unlink unlinkat "
    "utime utimensat utimes vmsplice write writev chroot",
    // waiting and notification
    "epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 "
    "inotify_add_watch inotify_init inotify_init1 inotify_rm_watch poll ppoll pselect6 select "
    "signalfd signalfd4 timerfd_create timerfd_gettime timerfd_settime io_cancel io_destroy "
    "io_getevents io_pgetevents io_setup io_submit pause pipe pipe2",
    // processes and signals
    "alarm arch_prctl capget capset execve execveat exit exit_group fork getegid geteuid getgid "
    "getgroups getpgid getpgrp getpid getppid getpriority getresgid getresuid getrlimit getrusage "
    "getsid gettid getuid kill modify_ldt pidfd_open pidfd_send_signal prctl prlimit64 "
    "process_mrelease ptrace restart_syscall rt_sigaction rt_sigpending rt_sigprocmask "
    "rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo seccomp "
    "setfsgid setfsuid setgid setgroups setpgid setpriority setregid setresgid setresuid setreuid "
    "setrlimit setsid setuid sigaltstack tgkill tkill vfork wait4 waitid landlock_add_rule "
    "landlock_create_ruleset landlock_restrict_self",
    // scheduling and threads
    "futex futex_waitv get_robust_list getcpu ioprio_get ioprio_set membarrier rseq "
    "sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam "
    "sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam "
    "sched_setscheduler sched_yield set_robust_list set_thread_area get_thread_area "
    "set_tid_address",
    // memory
    "brk madvise memfd_create memfd_secret mincore mlock mlock2 mlockall mmap mprotect mremap "
    "msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect remap_file_pages",
    // System V and POSIX communication, in the sandbox's own namespace
    "mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv "
    "msgsnd semctl semget semop semtimedop shmat shmctl shmdt shmget",
    // sockets
    "accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg "
    "recvmsg sendmmsg sendmsg sendto setsockopt shutdown socketpair",
    // time and the system
    "adjtimex clock_adjtime clock_getres clock_gettime clock_nanosleep getitimer getrandom "
    "gettimeofday nanosleep setitimer sysinfo time timer_create timer_delete timer_getoverrun "
    "timer_gettime timer_settime times uname",
};

// What LXC does between our filter and its own, which takes these away again.
constexpr const char* kSetUp = "bpf keyctl";
// The same, and what a program needs that makes namespaces of its own.
constexpr const char* kNamespaces =
    "fsconfig fsmount fsopen fspick mount mount_setattr move_mount open_tree pivot_root "
    "setdomainname sethostname setns umount2";

// Known and refused: EPERM, so that a program says "not permitted" and not "no such call".
constexpr const char* kRefused =
    "acct add_key clock_settime create_module delete_module fanotify_init fanotify_mark "
    "finit_module get_kernel_syms get_mempolicy init_module io_uring_enter io_uring_register "
    "io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load lookup_dcookie mbind migrate_pages "
    "move_pages nfsservctl open_by_handle_at perf_event_open pidfd_getfd process_madvise "
    "process_vm_readv process_vm_writev query_module quotactl quotactl_fd reboot request_key "
    "set_mempolicy set_mempolicy_home_node settimeofday swapoff swapon syslog uselib userfaultfd "
    "ustat vhangup vserver";

// CLONE_NEWTIME means something to unshare only: in clone it lies in the byte of the exit signal.
constexpr uint32_t kNewTime = 0x00000080;
constexpr uint32_t kNamespaceFlags =
    0x7E020000;  // NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "name this architecture's AUDIT_ARCH_ constant"
#endif

constexpr uint32_t kNoSuchCall = SECCOMP_RET_ERRNO | ENOSYS;
constexpr uint32_t kNotPermitted = SECCOMP_RET_ERRNO | EPERM;

using Program = std::vector<sock_filter>;

void load(Program& program, size_t offset) {
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)));
}

void answer(Program& program, uint32_t action) {
  program.push_back(BPF_STMT(BPF_RET | BPF_K, action));
}

void answer_if_equal(Program& program, uint32_t value, uint32_t action) {
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1));
  answer(program, action);
}

// Numbers of the calls that this architecture has, sorted.
std::vector<uint32_t> numbers(const char* names) {
  std::vector<uint32_t> found;
  std::istringstream words(names);
  for (std::string word; words >> word;) {
    const int number = seccomp_syscall_resolve_name(word.c_str());
    if (number >= 0) found.push_back(static_cast<uint32_t>(number));
  }
  std::sort(found.begin(), found.end());
  return found;
}

// One test a run of neighbouring numbers. The kernel remembers which calls are allowed whatever
// their arguments (since 5.11), so the length of this walk is paid at the first call only.
void answer_ranges(Program& program, const std::vector<uint32_t>& sorted, uint32_t action) {
  for (size_t first = 0; first < sorted.size();) {
    size_t last = first;
    while (last + 1 < sorted.size() && sorted[last + 1] == sorted[last] + 1) ++last;
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, sorted[first], 0, 2));
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, sorted[last], 1, 0));
    answer(program, action);
    first = last + 1;
  }
}

// The kernel reads these arguments as 32 bits; a filter that compared all 64 would be passed by
// with one bit above.
size_t low_half(int argument) {
  size_t offset = offsetof(seccomp_data, args) + static_cast<size_t>(argument) * sizeof(uint64_t);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  offset += sizeof(uint32_t);
#endif
  return offset;
}

// `call` answers `listed` for these values of the argument, else `other`.
void answer_by_argument(Program& program, uint32_t call, int argument,
                        const std::vector<uint32_t>& values, uint32_t listed, uint32_t other) {
  const auto length = static_cast<uint8_t>(2 + 2 * values.size());
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, length));
  load(program, low_half(argument));
  for (uint32_t value : values) answer_if_equal(program, value, listed);
  answer(program, other);
}

Program allowlist() {
  Program program;
  load(program, offsetof(seccomp_data, arch));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0));
  answer(program, kNoSuchCall);
  load(program, offsetof(seccomp_data, nr));

  std::string allowed = std::string(kSetUp) + " " + kNamespaces;
  for (const char* group : kAllowed) allowed += std::string(" ") + group;
  // Flags are looked at by the late policy: LXC makes namespaces.
  allowed += " clone clone3 unshare";
  answer_ranges(program, numbers(allowed.c_str()), SECCOMP_RET_ALLOW);
  // Typing into the terminal of whoever reads our output (TIOCSTI), and the console's clipboard.
  answer_by_argument(program, SYS_ioctl, 1, {TIOCSTI, TIOCLINUX}, kNotPermitted, SECCOMP_RET_ALLOW);
  // AF_ALG and AF_VSOCK: kernel code without use here, and a way out of a virtual machine.
  answer_by_argument(program, SYS_socket, 0, {38, 40}, kNotPermitted, SECCOMP_RET_ALLOW);
  // Linux, 32-bit layout, no address randomisation (debuggers), asking.
  answer_by_argument(program, SYS_personality, 0, {0, 8, 0x20000, 0x20008, 0x40000, 0xffffffff},
                     SECCOMP_RET_ALLOW, kNotPermitted);
  answer_ranges(program, numbers(kRefused), kNotPermitted);
  answer(program, kNoSuchCall);
  return program;
}

void refuse_flag(const char* call, uint32_t flag, std::string& policy) {
  const std::string bits = std::to_string(flag);
  policy += std::string(call) + " errno 1 [0," + bits + ",SCMP_CMP_MASKED_EQ," + bits + "]\n";
}

}  // namespace

void install_allowlist() {
  Program program = allowlist();
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  // Without no_new_privs (sudo must work inside), which takes CAP_SYS_ADMIN: we are host root here.
  base::check(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter), "install the call filter");
}

std::string late_policy(bool nested_namespaces) {
  std::string policy = "2\ndenylist\n[all]\n";
  std::istringstream words(nested_namespaces ? kSetUp : std::string(kSetUp) + " " + kNamespaces);
  for (std::string word; words >> word;) policy += word + " errno 1\n";
  // glibc falls back to clone, whose flags a filter can read; those of clone3 are in memory.
  policy += "clone3 errno 38\n";
  if (nested_namespaces) return policy;
  for (uint32_t flag = 1; flag != 0 && flag <= kNamespaceFlags; flag <<= 1) {
    if (flag & kNamespaceFlags) refuse_flag("clone", flag, policy);
    if (flag & (kNamespaceFlags | kNewTime)) refuse_flag("unshare", flag, policy);
  }
  return policy;
}

}  // namespace moorage::launch
