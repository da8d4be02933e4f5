// Attacks from inside a sandbox of backend lxc. Each case fails without its defence; numbers are
// rows of the threat list.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <map>
#include <sstream>

#include "base/os/files.h"
#include "contract.h"
#include "probe_table.h"

using namespace moorage;
using tests::Findings;
using tests::probe;
using tests::SandboxFixture;

namespace {

std::string status_field(const std::string& status, const std::string& key) {
  const size_t start = status.find(key + ":\t");
  REQUIRE(start != std::string::npos);
  const size_t value = start + key.size() + 2;
  return status.substr(value, status.find('\n', value) - value);
}

// Without an engine's marks in / and /dev; isolation_differences.cc lists them.
std::string without_marks(std::string listing) {
  for (const std::string mark : {".dockerenv ", "mqueue "}) {
    const size_t found = listing.find(mark);
    if (found != std::string::npos) listing.erase(found, mark.size());
  }
  return listing;
}

// The id of `user` inside: the host's id where there is no user namespace.
std::string id_of_user(SandboxFixture& sandboxes) {
  const bool maps_ids =
      sandboxes.can().remote || sandboxes.can().isolation >= backends::Isolation::userns;
  return std::to_string((maps_ids ? 0 : sandboxes.spec(1).first_host_id) + 1000);
}

// The most privileged user inside.
std::string strongest(SandboxFixture& sandboxes) {
  return sandboxes.allows_root() ? "root" : "user";
}

}  // namespace

TEST_CASE("dangerous kernel calls are refused, for user and root (9, 14, 16, 17, 18)",
          "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::isolates(sandboxes)) return;
  sandboxes.start(1);
  const std::string user = GENERATE(as<std::string>{}, "user", "root");
  if (user == "root" && !tests::applies(sandboxes.allows_root(), "commands cannot be root")) return;
  CAPTURE(user);
  Findings found = probe(sandboxes, user);
  for (const char* call : {"unshare-user",
                           "unshare-mnt",
                           "unshare-net",
                           "unshare-pid",
                           "unshare-ipc",
                           "unshare-uts",
                           "unshare-time",
                           "unshare-cgroup",
                           "clone-user",
                           "clone-mnt",
                           "clone-net",
                           "clone-pid",
                           "clone-ipc",
                           "clone-uts",
                           "clone-cgroup",
                           "io_uring_setup",
                           "bpf",
                           "perf_event_open",
                           "userfaultfd",
                           "add_key",
                           "request_key",
                           "keyctl",
                           "kexec_load",
                           "kexec_file_load",
                           "open_by_handle_at",
                           "init_module",
                           "finit_module",
                           "delete_module",
                           "mount",
                           "umount2",
                           "pivot_root",
                           "fsopen",
                           "fsmount",
                           "open_tree",
                           "move_mount",
                           "mount_setattr",
                           "setns",
                           "process_vm_readv",
                           "process_vm_writev",
                           "pidfd_getfd",
                           "kcmp",
                           "fanotify_init",
                           "acct",
                           "swapon",
                           "swapoff",
                           "reboot",
                           "settimeofday",
                           "clock_settime",
                           "syslog",
                           "quotactl",
                           "sethostname",
                           "move_pages",
                           "mbind",
                           "vhangup",
                           "tiocsti",
                           "tiocsti-high-bit",
                           "tioclinux",
                           "af_alg",
                           "af_vsock",
                           "af_packet",
                           "personality-read-implies-exec"}) {
    CAPTURE(call);
    CHECK(found[call] == "EPERM");
  }
  for (const char* call : {"clone3", "unknown-call"}) {
    CAPTURE(call);
    CHECK(found[call] == "ENOSYS");
  }
  // The filter's result, or that of a kernel without 32-bit calls.
  const bool by_engine = sandboxes.engine().backend == "docker";
  const std::string filtered = by_engine ? "signal 31" : "ENOSYS";
  CHECK((found["int80-getpid"] == filtered || found["int80-getpid"] == "signal 11"));
  for (const char* call : {"tiocgwinsz", "af_unix", "af_inet"}) {
    CAPTURE(call);
    CHECK(found[call] == "ok");
  }
}

TEST_CASE("even root inside cannot touch the warden and the host's knobs (1, 12, 13, 38)",
          "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::isolates(sandboxes)) return;
  sandboxes.start(1);
  Findings found = probe(sandboxes, strongest(sandboxes));
  for (const char* what : {"ptrace-init",
                           "open-init-mem",
                           "open-init-exe",
                           "open-init-environ",
                           "open-init-fd",
                           "read-warden",
                           "write-warden",
                           "unlink-warden",
                           "dial-bootstrap",
                           "mknod-block",
                           "mknod-mem",
                           "write-root",
                           "write-usr",
                           "write-etc",
                           "oom-unkillable",
                           "/proc/sys/kernel/core_pattern",
                           "/proc/sys/kernel/modprobe",
                           "/proc/sys/vm/drop_caches",
                           "/proc/sys/fs/binfmt_misc/register",
                           "/proc/sys/kernel/hostname",
                           "/proc/sys/user/max_user_namespaces"}) {
    CAPTURE(what);
    CHECK(found[what] != "ok");
    CHECK(found[what] != "");
  }
  // On another machine the settings below /proc/sys are the machine's root's, and the warden has no
  // path inside.
  const bool remote = sandboxes.can().remote;
  CHECK(sandboxes.shell(1, "grep -c ' /proc/sys ro' /proc/self/mountinfo || true") ==
        (remote ? "0" : "1"));
  CHECK(found["read-warden"] == (remote ? "ENOENT" : "EACCES"));
  // Process 1 of a pid namespace gets only signals from inside that it handles.
  sandboxes.shell(1, "kill -9 1; kill -STOP 1; sleep 0.1; grep State: /proc/1/status || true",
                  strongest(sandboxes));
  CHECK(sandboxes.shell(1, "echo alive") == "alive");
}

TEST_CASE("policy can allow namespaces and mounts in them, and nothing else (16)", "[contract]") {
  SandboxFixture sandboxes(
      EACH_BACKEND, [](backends::BackendOptions& options) { options.nested_namespaces = true; });
  if (!tests::available(sandboxes) || !tests::isolates(sandboxes)) return;
  if (!tests::applies(!sandboxes.can().remote, "it never allows them on the other machine")) return;
  sandboxes.start(1);
  CHECK(sandboxes.shell(1,
                        "unshare -Ur --mount --pid --fork --net sh -c "
                        "'mount -t tmpfs none /tmp && touch /tmp/a && ls /tmp && id -u'") ==
        "a\n0");
  Findings found = probe(sandboxes, "user");
  for (const char* call : {"clone3", "bpf", "keyctl", "io_uring_setup", "open_by_handle_at",
                           "perf_event_open", "mount", "setns", "tiocsti"}) {
    CAPTURE(call);
    CHECK(found[call] != "ok");
  }
  CHECK(found["bpf"] == "EPERM");
  CHECK(found["unshare-user"] == "ok");
}

TEST_CASE("a command's own process is confined: capabilities, filters, ids (8, 19)", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::isolates(sandboxes)) return;
  sandboxes.start(1);
  const std::string status = sandboxes.shell(1, "cat /proc/self/status");
  CHECK(status_field(status, "CapEff") == "0000000000000000");
  CHECK(status_field(status, "CapPrm") == "0000000000000000");
  CHECK(status_field(status, "CapInh") == "0000000000000000");
  CHECK(status_field(status, "CapAmb") == "0000000000000000");
  // chown dac_override fowner fsetid kill setgid setuid setpcap net_bind_service sys_chroot
  // audit_write setfcap
  CHECK(status_field(status, "CapBnd") ==
        (sandboxes.allows_root() ? "00000000a00405fb" : "0000000000000000"));
  CHECK(status_field(status, "Seccomp") == "2");
  const std::string id = id_of_user(sandboxes);
  CHECK(status_field(status, "Uid") == id + "\t" + id + "\t" + id + "\t" + id);
  CHECK(status_field(status, "Gid") == id + "\t" + id + "\t" + id + "\t" + id);
  if (!sandboxes.allows_root()) return;
  const std::string root = sandboxes.shell(1, "cat /proc/self/status", "root");
  CHECK(status_field(root, "CapEff") == "00000000a00405fb");
}

TEST_CASE("two sandboxes have disjoint host ids, without the host's root (19, 20)", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::isolates(sandboxes)) return;
  if (!tests::applies(sandboxes.can().isolation >= backends::Isolation::userns &&
                          !sandboxes.can().remote &&
                          sandboxes.spec(1).first_host_id != sandboxes.spec(2).first_host_id,
                      "its sandboxes have no id ranges of their own")) {
    return;
  }
  std::map<uint64_t, uint64_t> ranges;
  for (int number : {1, 2}) {
    const int pid = sandboxes.start(number).init.pid;
    std::istringstream map(base::read_file("/proc/" + std::to_string(pid) + "/uid_map"));
    uint64_t inside = 0;
    uint64_t outside = 0;
    uint64_t count = 0;
    while (map >> inside >> outside >> count) {
      CHECK(outside >= 65536);
      for (const auto& [first, end] : ranges) CHECK((outside >= end || outside + count <= first));
      ranges[outside] = outside + count;
    }
    struct stat info;
    REQUIRE(stat(("/proc/" + std::to_string(pid)).c_str(), &info) == 0);
  }
  CHECK(ranges.size() == 2);
}

TEST_CASE("sudo works without a password, unless policy forbids it", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::isolates(sandboxes)) return;
  if (!tests::applies(sandboxes.can().sudo, "it has no sudo")) return;
  sandboxes.start(1);
  CHECK(sandboxes.shell(1, "sudo id -u 2>&1") == "0");
  auto spec = sandboxes.spec(2);
  spec.sudo = false;
  sandboxes.start(spec);
  CHECK(sandboxes.shell(2, "sudo -n id -u >/dev/null 2>&1 || echo refused") == "refused");
  CHECK(status_field(sandboxes.shell(2, "cat /proc/self/status"), "NoNewPrivs") == "1");
}

TEST_CASE("loopback is the only network (42, 50)", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::isolates(sandboxes)) return;
  sandboxes.start(1);
  CHECK(sandboxes.shell(1, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '") == "lo");
  CHECK(sandboxes.shell(1, "tail -n +2 /proc/net/route") == "");
  CHECK(sandboxes.shell(1, "cat /etc/resolv.conf") == "nameserver 127.0.0.53");
  CHECK(sandboxes.shell(1,
                        "python3 -c 'import socket as s; print(s.gethostbyname(\"localhost\"), "
                        "s.gethostbyname(\"sandbox\"))'") == "127.0.0.1 127.0.0.1");
  CHECK(sandboxes.shell(1,
                        "python3 -c 'import socket; s=socket.socket(); s.bind((\"127.0.0.1\",0)); "
                        "s.listen(); socket.create_connection(s.getsockname()); print(\"up\")'") ==
        "up");
}

TEST_CASE("the host's files, processes, groups and secrets are hidden (11, 18)", "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::isolates(sandboxes)) return;
  sandboxes.start(1);
  const std::string inside =
      sandboxes.shell(1, "ls -A / | sort | tr '\\n' ' '", strongest(sandboxes));
  std::string links;
  for (const char* name : {"lib32", "lib64", "libx32"}) {
    if (base::path_exists(std::string("/") + name)) links += std::string(name) + " ";
  }
  CHECK(without_marks(inside) ==
        ".moorage bin boot dev etc home lib " + links +
            "media mnt opt proc root run sbin srv sys tmp usr var workspace ");
  for (const char* empty : {"/boot", "/root", "/srv", "/mnt", "/media", "/opt", "/run", "/tmp",
                            "/var/tmp", "/var/log"}) {
    CAPTURE(empty);
    CHECK(sandboxes.shell(1, std::string("ls -A ") + empty, strongest(sandboxes)) == "");
  }
  CHECK(sandboxes.shell(1,
                        "ls /home; ls -d /etc/shadow /etc/gshadow /etc/machine-id /etc/ssh "
                        "/etc/ssl/private 2>/dev/null; ls -d " +
                            sandboxes.store() + " 2>/dev/null; true",
                        strongest(sandboxes)) == "user");
  // This very test is a host process: 1 is the warden, then our own.
  CHECK(sandboxes.shell(1, "ls -d /proc/[0-9]* | wc -l", strongest(sandboxes)).size() == 1);
  CHECK(sandboxes.shell(1, "tr '\\0' ' ' < /proc/self/environ").find("TMPDIR") ==
        std::string::npos);
  // Of control groups only its own, which nobody inside can change.
  CHECK(sandboxes.shell(1, "grep ' - cgroup' /proc/self/mountinfo | grep -vc ' ro,' || true",
                        strongest(sandboxes)) == "0");
  CHECK(sandboxes.shell(1,
                        "find /sys/fs -name release_agent; ls -d /sys/fs/cgroup/moorage* "
                        "/sys/fs/cgroup/*/moorage* 2>/dev/null || true",
                        strongest(sandboxes)) == "");
  CHECK(sandboxes.shell(1, "ls /sys /sys/devices/system | tr '\\n' ' '").find("class") ==
        std::string::npos);
  CHECK(sandboxes.shell(
            1,
            "cat /proc/kallsyms /proc/timer_list /proc/keys /proc/cmdline /proc/partitions "
            "/proc/diskstats /proc/iomem 2>/dev/null | wc -c",
            strongest(sandboxes)) == "0");
  CHECK(sandboxes.shell(1, "hostname") == "sandbox");
  CHECK(sandboxes.shell(1,
                        "ls -A /etc/sudoers.d 2>/dev/null; find /etc -perm -4000; "
                        "stat -c %U:%a /etc/sudoers 2>/dev/null || echo none",
                        strongest(sandboxes)) == (sandboxes.can().remote ? "none" : "root:440"));
}

TEST_CASE("programs have what they need: temporary files, devices, terminals, processors",
          "[contract]") {
  SandboxFixture sandboxes(EACH_BACKEND);
  if (!tests::available(sandboxes) || !tests::isolates(sandboxes)) return;
  sandboxes.start(1);
  CHECK(sandboxes.shell(1, "cp /bin/true /tmp/t && /tmp/t && echo ran") == "ran");
  CHECK(sandboxes.shell(
            1, "echo x > /dev/shm/f && cat /dev/shm/f && head -c 2 /dev/zero | wc -c") == "x\n2");
  CHECK(without_marks(sandboxes.shell(1, "ls /dev | tr '\\n' ' '")) ==
        "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero ");
  CHECK(sandboxes.shell(1, "python3 -c 'import os,pty; m,s=pty.openpty(); print(os.isatty(s))'") ==
        "True");
  const std::string id = id_of_user(sandboxes) + "(user)";
  CHECK(sandboxes.shell(1, "id; whoami") ==
        "uid=" + id + " gid=" + id + " groups=" + id + "\nuser");
  CHECK(sandboxes.shell(1,
                        "git init -q /workspace/r && cd /workspace/r && git -c user.name=a -c "
                        "user.email=a@b commit -q --allow-empty -m x && git log --format=%s") ==
        "x");
  CHECK(sandboxes.shell(
            1, "[ $(nproc) -ge 1 ] && [ -e /sys/devices/system/cpu/online ] && echo counted") ==
        "counted");
  CHECK(sandboxes.shell(1,
                        "python3 -c 'import threading as t; x=t.Thread(target=lambda:print(1)); "
                        "x.start(); x.join()'") == "1");
}
