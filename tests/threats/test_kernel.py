"""Kernel interfaces available to a command: rows 10 to 18."""

import contextlib
import os
import pathlib
import unittest

from threat import ATTACKER, ON_DOCKER, TRY, USERS, Threats, daemon, harness, threat

KNOBS = ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/fs/binfmt_misc/register", "/proc/sysrq-trigger",
         "/proc/sys/vm/drop_caches", "/sys/kernel/uevent_helper", "/sys/power/state", "/sys/kernel/mm/ksm/run",
         "/sys/fs/cgroup/release_agent", "/sys/module"]
OPEN_KNOBS = f"for path in {KNOBS}: print(path, attempt(lambda: os.open(path, os.O_WRONLY)))"

# Calls refused by Docker's default profile, by number on x86_64; backend_probe tests them too.
HOST_CALLS = ("unshare-user unshare-mnt unshare-net unshare-pid unshare-ipc unshare-uts unshare-time unshare-cgroup clone-user clone-mnt "
              "clone-net clone-pid clone-ipc clone-uts clone-cgroup io_uring_setup bpf perf_event_open userfaultfd add_key request_key "
              "keyctl kexec_load kexec_file_load open_by_handle_at init_module finit_module delete_module mount umount2 pivot_root "
              "fsopen fsmount open_tree move_mount mount_setattr setns process_vm_readv process_vm_writev pidfd_getfd kcmp "
              "fanotify_init acct swapon swapoff reboot settimeofday clock_settime syslog quotactl sethostname move_pages mbind "
              "vhangup tiocsti tioclinux af_alg af_vsock af_packet personality-read-implies-exec").split()
# Calls that the kernel itself answers differently to a process without capabilities on the host.
FILTERED_ONLY = ("unshare-user clone-user io_uring_setup add_key keyctl process_vm_readv kcmp mbind af_alg "
                 "personality-read-implies-exec").split()

# On Docker the place of a message queue file system, which is masked.
DEVICES = "fd full {}null ptmx pts random shm stderr stdin stdout tty urandom zero".format("mqueue " if ON_DOCKER else "")


class Kernel(Threats):
    def probe(self, name, user=ATTACKER):
        self.client.write_file(name, "probe", (harness.BIN / "backend_probe").read_bytes(), mode="0755")
        lines = self.out("/workspace/probe", name=name, user=user).split("\n")
        return dict(line.split(" ", 1) for line in lines)

    @threat(10, "H", "setuid programs through an overlay's copy-up (CVE-2023-0386)",
            "the kernel is checked at start; no FUSE inside; setuid files belong to the sandbox's ids and are worthless on the host",
            "the same file created by host root is setuid root")
    def test_setuid_copy_up_gives_nothing_on_the_host(self):
        checks = {c["name"]: c for c in self.client.info()["checks"]}
        self.assertTrue(checks["kernel"]["ok"], checks["kernel"])
        attack = TRY + "print(attempt(lambda: os.open('/dev/fuse', os.O_RDWR)), attempt(lambda: os.mknod('/tmp/fuse', 0o20666, os.makedev(10, 229))))"
        fuse, made = self.python(attack).split()
        self.assertIn(fuse, ("ENOENT", "EPERM", "EACCES"))
        self.assertEqual(made, "EPERM")
        self.assertEqual(self.sh("unshare -Ur mount -t fuse none /mnt").exit_code, 1)
        self.sh("cp /bin/sh README.md; chown root:root README.md; chmod 6755 README.md", user=ATTACKER)
        uppers = [p for p in (self.daemon.store / "layers").rglob("README.md") if p.lstat().st_mode & 0o6000]
        self.assertEqual(len(uppers), 1)
        self.assertGreaterEqual(uppers[0].stat().st_uid, 1_900_000_000)
        mine = self.daemon.directory / "setuid"
        mine.write_bytes(b"")
        mine.chmod(0o6755)
        self.assertEqual((mine.stat().st_uid, mine.stat().st_mode & 0o6000), (0, 0o6000))

    @threat(11, "C", "a release_agent in a cgroup v1 hierarchy (CVE-2022-0492)",
            "only the sandbox's own groups are shown, read-only, and none has a release_agent; no hierarchy can be mounted, none made writable",
            "host root in a separate mount namespace mounts one and opens its release_agent")
    def test_no_hierarchy_can_be_mounted_or_written(self):
        lines = [line.split() for line in self.out("grep ' - cgroup' /proc/self/mountinfo").splitlines()]
        self.assertGreater(len(lines), 0)
        for line in lines:
            self.assertTrue(line[5].startswith("ro,"), line)
            writing = TRY + f"""
import os
print(attempt(lambda: system_call(165, None, ctypes.c_char_p(b"{line[4]}"), None, 0x20 | 0x1000, None)))  # MS_REMOUNT | MS_BIND
for at, _, files in os.walk("{line[4]}"):
    for file in files: print(attempt(lambda: os.open(os.path.join(at, file), os.O_WRONLY)))
"""
            self.assertLessEqual(set(self.python(writing).split()), {"EPERM", "EROFS", "EACCES"})
        found = self.out("find / -name release_agent 2>/dev/null; find /sys/fs -name cgroup.procs -exec cat {} + | grep -x 0 || true", user=ATTACKER)
        self.assertEqual(found, "")  # 0: a process that is not of this sandbox
        mounting = TRY + """
for kind, options in ((b"cgroup", b"memory"), (b"cgroup", b"none,name=own"), (b"cgroup2", None), (b"tmpfs", None), (b"proc", None), (b"sysfs", None)):
    print(attempt(lambda: system_call(165, ctypes.c_char_p(b"x"), ctypes.c_char_p(b"/tmp"), ctypes.c_char_p(kind), 0, ctypes.c_char_p(options))))
"""
        self.assertEqual(set(self.python(mounting).split()), {"EPERM"})
        control = ("mkdir -p $1/g && mount -t cgroup -o none,name=moorage-control x $1/g && sh -c ': 3>>$1/g/release_agent' x $1 && echo open")
        result = harness.run("unshare", "-m", "sh", "-c", control, "x", self.daemon.directory, check=False)
        if b"open" not in result.stdout:  # a kernel without v1 has no escape here
            self.assertNotIn("cgroup\n", pathlib.Path("/proc/filesystems").read_text().replace("nodev\t", ""), result.stderr)

    @threat(12, "C", "core_pattern, modprobe, binfmt_misc, sysrq, uevent_helper, /sys/power",
            "read-only, covered or absent: none can be opened for writing, even by root inside",
            "host root opens them")
    def test_kernel_settings_cannot_be_opened_for_writing(self):
        inside = dict(line.rsplit(" ", 1) for line in self.python(TRY + OPEN_KNOBS).split("\n"))
        for path, answer in inside.items():
            if path == "/proc/sysrq-trigger" and answer == "ok":
                self.assertEqual(self.out(f"stat -c %t:%T {path}"), "1:3")  # covered by the null device
                continue
            self.assertIn(answer, ("EACCES", "EROFS", "ENOENT", "EPERM"), path)
        outside = dict(line.rsplit(" ", 1) for line in self.on_host(TRY + OPEN_KNOBS).split("\n"))
        self.assertEqual(outside["/proc/sys/kernel/core_pattern"], "ok")
        with self.weakened("proc", "masks") as name:
            self.assertEqual(self.out("grep -c ' /proc/sys ro' /proc/self/mountinfo", name=name), "0")
            self.assertNotEqual(self.out("stat -c %t:%T /proc/sysrq-trigger", name=name), "1:3")

    @threat(13, "C", "device nodes: mknod, /dev/mem, raw disks",
            "mknod is EPERM; the cgroup's device rules refuse a node from elsewhere, even to host root",
            "host root outside of the cgroup creates and opens the same node")
    def test_no_device_node_is_made_or_opened(self):
        nodes = "for kind, major, minor in ((0o60600, 254, 0), (0o60600, 7, 0), (0o20600, 1, 1), (0o20600, 1, 3)): " \
                "print(attempt(lambda: os.mknod('/tmp/node', kind, os.makedev(major, minor))))"
        self.assertEqual(set(self.python(TRY + nodes).split()), {"EPERM"})
        self.assertEqual(self.out("ls /dev | tr '\\n' ' '"), DEVICES)
        place = self.daemon.directory / "node"
        os.mknod(place, 0o20600, os.makedev(1, 11))  # kmsg
        group = "moorage/" + self.daemon.sandbox_pids("jail")["name"]
        top = next(p for p in ("/sys/fs/cgroup/unified", "/sys/fs/cgroup") if os.path.exists(f"{p}/{group}"))
        attack = TRY + f"open('{top}/{group}/launch/cgroup.procs', 'w').write('0')\nprint(attempt(lambda: os.open('{place}', os.O_WRONLY)))"
        self.assertEqual(self.on_host(attack), "EPERM")
        os.close(os.open(place, os.O_WRONLY))

    @threat(14, "C", "open_by_handle_at into the host's file system (shocker)", "EPERM by the filter",
            "host root without it opens a file of the store by its handle")
    def test_no_file_is_opened_by_handle(self):
        attack = TRY + """
import struct
handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
mount = ctypes.c_int()
print(attempt(lambda: system_call(303, -100, ctypes.c_char_p(b"PATH"), handle, ctypes.byref(mount), 0)))
print(attempt(lambda: system_call(304, os.open("/", os.O_RDONLY), handle, os.O_RDONLY)))
"""
        self.assertEqual(self.python(attack.replace("PATH", "/workspace/README.md")).split()[1], "EPERM")
        outside = attack.replace("PATH", str(self.canary)).replace('os.open("/"', f'os.open("{self.daemon.directory}"')
        self.assertEqual(self.on_host(outside), "ok\nok")

    @threat(15, "H", "mounts that propagate into the host, or pile up there",
            "moorage-launch makes its mounts slaves of the host's; after 25 life cycles the host's table is unchanged",
            "without the slave step a daemon's own mount table grows with its sandboxes; from a place that an engine shares, the host's")
    def test_the_hosts_mount_table_stays_unchanged(self):
        def table(pid="self"):
            lines = [l.split(" ", 3)[3] for l in pathlib.Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
            return sorted(l for l in lines if "moorage-" not in l or any(name in l for name in own))

        def stays(look, former):
            with contextlib.suppress(AssertionError):
                harness.wait_until(lambda: look() == former)
            self.assertEqual(look(), former)

        # Other tests may run at the same time.
        own = [self.daemon.directory.name, self.libexec.name, f"moorage-{self.daemon.store_id()}"]
        own += [self.engine.engine.name] if ON_DOCKER else []

        before, inside = table(), table(self.daemon.process.pid)
        for number in range(25):
            name = f"cycle-{number}"
            self.client.create(repo_url=self.url, name=name)
            self.assertEqual(self.out("umount /proc 2>&1; mount --make-rshared / 2>&1; mount -t tmpfs x /mnt 2>&1; echo done", name=name, user=ATTACKER)[-4:], "done")
            self.client.delete(name, purge=True)
        stays(table, before)
        stays(lambda: table(self.daemon.process.pid), inside)

        if ON_DOCKER:
            return self.assert_mounts_can_propagate(table)
        shared = ("unshare", "-m", "--propagation", "private", "sh", "-c", 'mount --make-rshared / && exec "$@"', "x")
        with daemon({"libexec_directory": str(self.libexec), "sandbox.start_deadline_s": 4}, prefix=shared) as other:
            own.append(other.directory.name)
            other.client.create(repo_url=self.url, name="tight")
            other.client.exec("tight", ["true"])
            tight = len(table(other.process.pid))
            self.off.write_text("slave")
            other.client.create(repo_url=self.url, name="loose")
            with contextlib.suppress(harness.raw_api.ApiError):  # LXC fails on shared mounts
                other.client.exec("loose", ["true"])
            self.off.write_text("")
            self.assertGreater(len(table(other.process.pid)), tight + 10)

    def assert_mounts_can_propagate(self, table):
        """The daemon's mounts for a workspace in a place that an engine shares between host and container."""
        shared = self.engine.shared
        harness.run("mount", "-t", "tmpfs", "shared", shared)
        try:
            harness.run("mount", "--make-shared", shared)
            before = table()

            def seen():
                return [l for l in table() if l not in before and str(shared) in l]

            with self.weakened("slave"):
                if harness.BACKEND == "docker-userns":  # mounts in a user namespace's mount namespace can only be slaves of the host's
                    self.assertEqual(seen(), [])
                    harness.run("unshare", "--mount", "--propagation", "unchanged", "mount", "-t", "tmpfs", "propagated", shared)
                self.assertNotEqual(seen(), [])
        finally:
            while os.path.ismount(shared):  # unmounts those from the sandbox
                harness.run("umount", shared)

    @threat(16, "M", "a nested user namespace, and the kernel code that it exposes",
            "the filter answers EPERM for unshare and clone, for user and root, and ENOSYS for clone3",
            "without the late filter both work")
    def test_no_nested_user_namespace(self):
        for user in USERS:
            found = self.probe("jail", user)
            self.assertEqual((found["unshare-user"], found["clone-user"], found["clone3"]), ("EPERM", "EPERM", "ENOSYS"))
        with self.weakened("late-policy") as name:
            found = self.probe(name, "user")
            self.assertEqual((found["unshare-user"], found["clone-user"]), ("ok", "ok"))
            self.assertNotEqual(found["clone3"], "ENOSYS")

    @threat(17, "H", "io_uring, bpf, kexec, userfaultfd, perf, keys, ptrace of others, process_vm_*, fanotify, acct, swap, clock",
            "60 calls answer EPERM, unknown ones ENOSYS, for user and root; those of other architectures answer ENOSYS, or end the program on Docker",
            "without both filters the calls that need no capability succeed")
    def test_sixty_calls_are_refused(self):
        for user in USERS:
            found = self.probe("jail", user)
            self.assertEqual({c: found[c] for c in HOST_CALLS if found[c] != "EPERM"}, {}, user)
            self.assertEqual(found["unknown-call"], "ENOSYS")
            # The answer of our filter, of an engine's filter, or of a kernel without 32-bit calls.
            self.assertIn(found.get("int80-getpid", "ENOSYS"), ("ENOSYS", "signal 31", "signal 11"))
            self.assertEqual((found["af_unix"], found["af_inet"], found["tiocgwinsz"]), ("ok", "ok", "ok"))
        with self.weakened("allowlist", "late-policy") as name:
            found = self.probe(name, "user")
            self.assertEqual({c: found[c] for c in FILTERED_ONLY if found[c] == "EPERM"}, {})

    @threat(18, "M", "dmesg, kallsyms, kcore, sched_debug, the kernel's command line and its other secrets",
            "refused or empty", "without the covers the command line is readable")
    def test_the_kernels_secrets_are_covered(self):
        names = "kcore kallsyms keys key-users timer_list sched_debug cmdline partitions diskstats swaps slabinfo vmallocinfo iomem " \
                "ioports modules interrupts kmsg"
        self.assertEqual(self.out(f"cd /proc; timeout 5 head -qc 100 {names} 2>/dev/null | wc -c", user=ATTACKER), "0")
        self.assertNotEqual(self.sh("dmesg", user=ATTACKER).exit_code, 0)
        self.assertEqual(self.out("ls /sys /sys/kernel 2>/dev/null | grep -c -e kernel -e firmware -e class", user=ATTACKER), "0")
        with self.weakened("masks") as name:
            self.assertEqual(self.out("cat /proc/cmdline", name=name), pathlib.Path("/proc/cmdline").read_text().strip())


if __name__ == "__main__":
    unittest.main()
