// Runs inside a sandbox, started by isolation_test.cc: tries an attacker's steps, one line each:
// "NAME ERRNO-NAME" or "NAME ok"; and prints the view (probe_view.cc). Static: needs nothing from
// the image.
#include <fcntl.h>
#include <linux/keyctl.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <initializer_list>

#include "probe_view.h"

namespace {

void report(const char* name, long result) {
  std::printf("%s %s\n", name, result < 0 ? strerrorname_np(errno) : "ok");
}

void attempt(const char* name, const std::function<long()>& body) {
  std::fflush(stdout);
  errno = 0;
  report(name, body());
}

// In a child, so that success does no harm to the rest.
void attempt_apart(const char* name, const std::function<long()>& body) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    errno = 0;
    report(name, body());
    std::fflush(stdout);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) std::printf("%s signal %d\n", name, WTERMSIG(status));
}

void try_namespaces() {
  const struct {
    const char* name;
    int flag;
  } kinds[] = {{"user", CLONE_NEWUSER}, {"mnt", CLONE_NEWNS},       {"net", CLONE_NEWNET},
               {"pid", CLONE_NEWPID},   {"ipc", CLONE_NEWIPC},      {"uts", CLONE_NEWUTS},
               {"time", 0x80},          {"cgroup", CLONE_NEWCGROUP}};
  for (const auto& kind : kinds) {
    char name[32];
    std::snprintf(name, sizeof name, "unshare-%s", kind.name);
    attempt_apart(name, [&] { return unshare(kind.flag); });
    if (kind.flag == 0x80) continue;
    std::snprintf(name, sizeof name, "clone-%s", kind.name);
    attempt_apart(name, [&] {
      const long pid = syscall(SYS_clone, kind.flag | SIGCHLD, 0, 0, 0, 0);
      if (pid == 0) _exit(0);
      return pid;
    });
  }
  char arguments[64] = {};
  attempt_apart("clone3", [&] { return syscall(SYS_clone3, arguments, sizeof arguments); });
}

void try_calls() {
  const struct {
    const char* name;
    long number;
  } calls[] = {{"io_uring_setup", SYS_io_uring_setup},
               {"bpf", SYS_bpf},
               {"perf_event_open", SYS_perf_event_open},
               {"userfaultfd", SYS_userfaultfd},
               {"add_key", SYS_add_key},
               {"request_key", SYS_request_key},
               {"keyctl", SYS_keyctl},
               {"kexec_load", SYS_kexec_load},
               {"kexec_file_load", SYS_kexec_file_load},
               {"open_by_handle_at", SYS_open_by_handle_at},
               {"init_module", SYS_init_module},
               {"finit_module", SYS_finit_module},
               {"delete_module", SYS_delete_module},
               {"mount", SYS_mount},
               {"umount2", SYS_umount2},
               {"pivot_root", SYS_pivot_root},
               {"fsopen", SYS_fsopen},
               {"fsmount", SYS_fsmount},
               {"open_tree", SYS_open_tree},
               {"move_mount", SYS_move_mount},
               {"mount_setattr", SYS_mount_setattr},
               {"setns", SYS_setns},
               {"process_vm_readv", SYS_process_vm_readv},
               {"process_vm_writev", SYS_process_vm_writev},
               {"pidfd_getfd", SYS_pidfd_getfd},
               {"kcmp", SYS_kcmp},
               {"fanotify_init", SYS_fanotify_init},
               {"acct", SYS_acct},
               {"swapon", SYS_swapon},
               {"swapoff", SYS_swapoff},
               {"reboot", SYS_reboot},
               {"settimeofday", SYS_settimeofday},
               {"clock_settime", SYS_clock_settime},
               {"syslog", SYS_syslog},
               {"quotactl", SYS_quotactl},
               {"sethostname", SYS_sethostname},
               {"move_pages", SYS_move_pages},
               {"mbind", SYS_mbind},
               {"vhangup", SYS_vhangup}};
  for (const auto& call : calls) {
    attempt_apart(call.name, [&] { return syscall(call.number, 0, 0, 0, 0, 0, 0); });
  }
  attempt_apart("unknown-call", [] { return syscall(9999); });
}

void try_arguments() {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  char letter = 'x';
  attempt("tiocsti", [&] { return ioctl(terminal, TIOCSTI, &letter); });
  // The kernel reads only 32 bits of the request.
  attempt("tiocsti-high-bit",
          [&] { return syscall(SYS_ioctl, terminal, 0x100000000ULL | TIOCSTI, &letter); });
  attempt("tioclinux", [&] { return ioctl(terminal, TIOCLINUX, &letter); });
  winsize size{};
  attempt("tiocgwinsz", [&] { return ioctl(terminal, TIOCGWINSZ, &size); });
  attempt("af_alg", [] { return socket(38, SOCK_SEQPACKET, 0); });
  attempt("af_vsock", [] { return socket(40, SOCK_STREAM, 0); });
  attempt("af_packet", [] { return socket(AF_PACKET, SOCK_RAW, 0); });
  attempt("af_unix", [] { return socket(AF_UNIX, SOCK_STREAM, 0); });
  attempt("af_inet", [] { return socket(AF_INET, SOCK_STREAM, 0); });
  attempt("personality-read-implies-exec", [] { return syscall(SYS_personality, 0x0400000); });
#if defined(__x86_64__)
  attempt_apart("int80-getpid", [] {
    long result = 20;
    asm volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
    if (result < 0) errno = static_cast<int>(-result);
    return result < 0 ? -1L : result;
  });
#endif
}

void try_warden() {
  attempt("ptrace-init", [] { return ptrace(PTRACE_SEIZE, 1, 0, 0); });
  attempt("open-init-mem", [] { return open("/proc/1/mem", O_RDWR); });
  attempt("open-init-exe", [] { return open("/proc/1/exe", O_RDONLY); });
  attempt("open-init-environ", [] { return open("/proc/1/environ", O_RDONLY); });
  attempt("open-init-fd", [] { return open("/proc/1/fd", O_RDONLY | O_DIRECTORY); });
  attempt("read-warden", [] { return open("/.moorage/warden", O_RDONLY); });
  attempt("write-warden", [] { return open("/.moorage/warden", O_WRONLY); });
  attempt("unlink-warden", [] { return unlink("/.moorage/warden"); });
  attempt("dial-bootstrap", [] {
    sockaddr_un address{AF_UNIX, "/.moorage/bootstrap"};
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
  });
}

void try_files() {
  for (const char* path :
       {"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/vm/drop_caches",
        "/proc/sysrq-trigger", "/proc/sys/fs/binfmt_misc/register", "/proc/sys/kernel/hostname",
        "/proc/sys/user/max_user_namespaces"}) {
    attempt(path, [&] { return open(path, O_WRONLY); });
  }
  attempt("mknod-block", [] { return mknod("/tmp/disk", S_IFBLK | 0600, (254 << 8)); });
  attempt("mknod-mem", [] { return mknod("/tmp/mem", S_IFCHR | 0600, (1 << 8) | 1); });
  attempt("write-root", [] { return mkdir("/new", 0755); });
  attempt("write-usr", [] { return mkdir("/usr/new", 0755); });
  attempt("write-etc", [] { return open("/etc/passwd", O_WRONLY); });
  attempt("oom-unkillable", [] {
    const int fd = open("/proc/self/oom_score_adj", O_WRONLY);
    return fd < 0 ? fd : write(fd, "-1000", 5);
  });
}

}  // namespace

int main() {
  tell_view();
  std::fflush(stdout);
  try_namespaces();
  try_calls();
  try_arguments();
  try_warden();
  try_files();
}
