// The system calls that a sandbox may make, by name: the single source for all filters
// (seccomp_filter.h for LXC, backends/engine/engine_seccomp.h for container engines), so that their
// lists agree. An unnamed call returns ENOSYS; a deliberately refused one, EPERM.
#pragma once

#include <sys/ioctl.h>

#include <cstdint>

namespace moorage::launch {

// One string per group, so that a reader can check a group at a time.
inline constexpr const char* kAllowed[] = {
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
    "signalfd signalfd4 timerfd_create timerfd_gettime timerfd_settime pause "
    "pipe pipe2",
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
    "brk madvise memfd_secret mincore mlock mlock2 mlockall mprotect mremap "
    "msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect remap_file_pages",
    // System V and POSIX communication, in the sandbox's own namespace
    "mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv "
    "msgsnd semctl semget semop semtimedop shmat shmctl shmdt",
    // sockets
    "accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg "
    "recvmsg sendmmsg sendmsg sendto shutdown socketpair",
    // time and the system
    "adjtimex clock_adjtime clock_getres clock_gettime clock_nanosleep getitimer getrandom "
    "gettimeofday nanosleep setitimer sysinfo time timer_create timer_delete timer_getoverrun "
    "timer_gettime timer_settime times uname",
};

// Used by LXC between our filter and its own, which removes these again.
inline constexpr const char* kSetUp = "bpf keyctl";
// The same, plus the calls of a program that makes its own namespaces.
inline constexpr const char* kNamespaces =
    "fsconfig fsmount fsopen fspick mount mount_setattr move_mount open_tree pivot_root "
    "setdomainname sethostname setns umount2";

// Known and refused: EPERM, so that a program reports "not permitted", not "no such call".
inline constexpr const char* kRefused =
    "acct add_key clock_settime create_module delete_module fanotify_init fanotify_mark "
    "finit_module get_kernel_syms get_mempolicy init_module io_uring_enter io_uring_register "
    "io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load lookup_dcookie mbind migrate_pages "
    "move_pages nfsservctl open_by_handle_at perf_event_open pidfd_getfd process_madvise "
    "process_vm_readv process_vm_writev query_module quotactl quotactl_fd reboot request_key "
    "set_mempolicy set_mempolicy_home_node settimeofday swapoff swapon syslog uselib userfaultfd "
    "ustat vhangup vserver";

// Answered as if the kernel lacked it: asynchronous I/O contexts are limited for the whole host
// (fs.aio-max-nr, 65,536 events), so one sandbox could leave none for the others. Programs then
// continue without it, as on a kernel built that way.
inline constexpr const char* kCountedByHost =
    "io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit";

// Neither: as if the kernel had no such call. Named only for filters that cannot return ENOSYS for
// all unnamed calls.
inline constexpr const char* kUnknown =
    "_sysctl afs_syscall epoll_ctl_old epoll_wait_old getpmsg putpmsg security sysfs tuxcall";

// CLONE_NEWTIME exists for unshare only: in clone it overlaps the exit signal's byte.
inline constexpr uint32_t kNewTime = 0x00000080;
inline constexpr uint32_t kNamespaceFlags =
    0x7E020000;  // NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET

// Refused arguments: typing into the terminal that reads our output, and the console's clipboard.
inline constexpr uint32_t kRefusedIoctls[] = {TIOCSTI, TIOCLINUX};
// AF_ALG and AF_VSOCK: kernel code of no use here, and a way out of a virtual machine.
inline constexpr uint32_t kRefusedFamilies[] = {38, 40};
// Huge pages come from a pool of the whole host (vm.nr_hugepages). ENOMEM, as if it were empty.
struct RefusedFlag {
  const char* call;
  int argument;
  uint32_t flag;
};
inline constexpr RefusedFlag kHugePages[] = {{"mmap", 3, 0x40000 /* MAP_HUGETLB */},
                                             {"memfd_create", 1, 4 /* MFD_HUGETLB */},
                                             {"shmget", 2, 04000 /* SHM_HUGETLB */}};
// Packet filter programs: their code is limited for the whole host (net.core.bpf_jit_limit) and
// grows with the sockets. Other levels use the same numbers for other options.
inline constexpr uint32_t kSocketLevel = 1;
inline constexpr uint32_t kRefusedSocketOptions[] = {
    26 /* SO_ATTACH_FILTER */, 50 /* SO_ATTACH_BPF */, 51 /* SO_ATTACH_REUSEPORT_CBPF */,
    52 /* SO_ATTACH_REUSEPORT_EBPF */};
// Linux, 32-bit layout, no address randomisation (debuggers), query. All others are refused.
inline constexpr uint32_t kPersonalities[] = {0, 8, 0x20000, 0x20008, 0x40000, 0xffffffff};

}  // namespace moorage::launch
