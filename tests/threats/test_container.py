"""Container escapes through a runtime's start and attach: rows 1 to 9."""

import contextlib
import hashlib
import io
import os
import pathlib
import re
import subprocess
import tarfile
import unittest

from threat import ATTACKER, ON_DOCKER, TRY, USERS, Threats, daemon, engine, harness, host_id, threat

CAPABILITIES = {"user": 0, "root": 0xA00405FB}  # the twelve of a user namespace's root


def checksum(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


class Container(Threats):
    @threat(1, "C", "overwrite the host's program through /proc/self/exe (runc CVE-2019-5736)",
            "nothing inside can read or write the warden, which is a copy; daemon, launcher and warden stay unchanged",
            "host root writes the same kind of copy")
    def test_the_programs_of_the_host_cannot_be_overwritten(self):
        copies = list((self.daemon.store / "images").glob("moorage-warden-*"))
        self.assertTrue(copies)
        programs = [harness.BIN / p for p in ("mooraged", "moorage-launch", "moorage-warden")] + copies
        before = [checksum(p) for p in programs]
        attack = TRY + """
child = os.spawnv(os.P_NOWAIT, "/.moorage/warden", ["warden", "--bootstrap", "/tmp/nothing"])
for path in ("/proc/1/exe", f"/proc/{child}/exe", "/.moorage/warden", "/usr/bin/python3"):
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC):
        print(path, attempt(lambda: os.open(path, flags)))
print("unlink", attempt(lambda: os.unlink("/.moorage/warden")))
print("rename", attempt(lambda: os.rename("/tmp", "/.moorage")))
print("chmod", attempt(lambda: os.chmod("/.moorage/warden", 0o777)))
"""
        answers = self.python(attack)
        self.assertNotIn(" ok", answers)
        self.assertEqual(before, [checksum(p) for p in programs])
        copy = self.daemon.directory / "copy"
        copy.write_bytes(b"program")
        copy.chmod(0o111)
        with open(copy, "wb"):
            pass  # the control: only the sandbox prevented the write

    @threat(2, "C", "a leaked descriptor or a working directory outside the root (runc CVE-2024-21626)",
            "commands have descriptors 0 to 2 only; a working directory is resolved inside, after the root changes",
            "on the host, a program with a leaked descriptor lists the host's directory by that path")
    def test_no_descriptor_leaks_and_no_working_directory_leads_out(self):
        paths = [f"/proc/self/fd/{n}{tail}" for n in range(3, 12) for tail in ("", "/..", "/../../..")]
        paths += ["/proc/1/cwd", "/proc/1/root", "/proc/1/root/..", "/proc/self/cwd/../../..", "/workspace/../../.."]
        for path in paths:
            try:
                result = self.client.exec("jail", ["sh", "-c", f"ls -a . {self.daemon.directory}"], cwd=path, user=ATTACKER)
            except harness.raw_api.ApiError as error:
                self.assertIn(error.status, (400, 404, 409, 422), path)
                continue
            self.assertNotIn(b"host-secret", result.stdout, path)
        self.assertEqual(self.out("ls /proc/self/fd | tr '\\n' ' '"), "0 1 2 3")  # 3 is the listing itself
        directory = os.open(self.daemon.directory, os.O_RDONLY)
        leaked = subprocess.run(["ls"], cwd=f"/proc/self/fd/{directory}", pass_fds=[directory], capture_output=True)
        os.close(directory)
        self.assertIn(b"host-secret", leaked.stdout)

    @threat(3, "C", "/dev, /dev/null, /dev/pts or /proc replaced by links before the start (CVE-2025-31133, -52565)",
            "each start creates a new /dev out of the agent's reach; masks are devices of the host",
            "without the new /dev there is no place for devices inside, and the start fails")
    def test_links_in_place_of_devices_do_not_survive_a_start(self):
        self.sh("cd /dev; rm -f null; ln -s /proc/sys/kernel/core_pattern null; rm -rf pts; ln -s /proc pts; "
                "for d in /workspace /home/user; do cd $d; ln -s /proc/sys/kernel dev; ln -s /bad proc; ln -s / sys; done", user=ATTACKER)
        self.client.stop("jail")
        self.client.start("jail")
        self.assertEqual(self.out("stat -c %F:%t:%T /dev/null"), "character special file:1:3")
        self.assertEqual(self.out("stat -f -c %T /dev/pts /proc /dev"), "devpts\nproc\ntmpfs")
        for masked in filter(lambda name: os.path.exists(f"/proc/{name}"), ("kcore", "keys", "timer_list", "cmdline")):
            self.assertEqual(self.out(f"stat -c %t:%T /proc/{masked}"), "1:3", masked)
        self.sh("rm -f /workspace/{dev,proc,sys} /home/user/{dev,proc,sys}", user=ATTACKER)
        with self.assertRaises(harness.raw_api.ApiError) as refused, self.weakened("devices"):
            pass
        self.assertIn("/dev", refused.exception.message)

    @threat(4, "C", "writes to /proc redirected by links or mounts in the root (CVE-2025-52881, CVE-2019-19921)",
            "no sandbox starts from a root file system whose /proc is a link, on Docker with runc and crun; nothing is written to its target",
            "the same root with a directory for /proc starts")
    def test_a_root_with_a_link_for_proc_is_not_started(self):
        trap = self.daemon.directory / "bad"
        trap.mkdir()
        redirected = self.redirected_container if ON_DOCKER else self.redirected_skeleton
        for way in ({"runtime": "runc"}, {"runtime": "crun"}) if ON_DOCKER else ({},):
            with self.subTest(**way):
                self.client.create(repo_url=self.url, name="redirected", **way)
                self.client.stop("redirected")
                with redirected(trap), self.assertRaises(harness.raw_api.ApiError) as refused:
                    self.client.start("redirected")
                self.assertIn("start", refused.exception.message)
                self.assertEqual(list(trap.iterdir()), [])
                self.client.start("redirected")
                self.assertEqual(self.out("echo on", name="redirected"), "on")
                self.client.delete("redirected", purge=True)
        if ON_DOCKER:
            self.look_at_an_image_whose_proc_is_a_link(trap)

    @contextlib.contextmanager
    def redirected_skeleton(self, trap):
        """Within the statement, the root of new sandboxes has a /proc that links to `trap`."""
        place = next((self.daemon.store / "images").rglob("proc"))
        place.rmdir()
        place.symlink_to(trap)
        try:
            yield
        finally:
            place.unlink()
            place.mkdir(0o555)

    @contextlib.contextmanager
    def redirected_container(self, trap):
        """The same for a container's root after the engine created and checked it."""
        self.engine.trap = trap
        try:
            yield
        finally:
            self.engine.trap = None

    def look_at_an_image_whose_proc_is_a_link(self, trap):
        """The engine replaces it by a directory: the start works, and the link's target stays empty."""
        content = io.BytesIO(engine.small_tar())
        with tarfile.open(fileobj=content, mode="a") as tar:
            link = tarfile.TarInfo("proc")
            link.type, link.linkname = tarfile.SYMTYPE, str(trap)
            tar.addfile(link)
        self.engine.engine.load_image("moorage-test:redirected", content.getvalue())
        self.client.create(repo_url=self.url, name="redirected", image="moorage-test:redirected")
        seen = self.client.exec("redirected", ["sh", "-c", "stat -c %F /proc; readlink -f /proc; cat /proc/self/comm"]).stdout
        self.assertEqual(seen, b"directory\n/proc\ncat\n")
        self.assertEqual(list(trap.iterdir()), [])
        self.client.delete("redirected", purge=True)

    @threat(5, "C", "a directory swapped for a link while the host reads through it (docker cp, CVE-2018-15664)",
            "openat2 resolves every path inside the tree, in the kernel: 300 racing reads reveal nothing of the host",
            "a daemon whose openat2 resolves like the host opens the host's file")
    def test_racing_links_never_lead_outside(self):
        self.client.start_exec("jail", ["bash", "-c", self.race()])
        harness.wait_until(lambda: self.out("pgrep -c python3") != "0", what="the race runs")
        seen = set()
        for _ in range(300):
            try:
                seen.add(self.client.read_file("jail", f"d/{self.canary.name}"))
            except harness.raw_api.ApiError as error:
                seen.add(error.code)
                self.assertNotIn("another mount", error.message)
        self.sh("pkill python3; rm -rf d l")
        self.assertNotIn(self.canary.read_bytes(), seen)
        self.assertIn(b"inside\n", seen)
        self.assert_the_race_can_be_won()

    @threat(6, "C", "a helper of the host loads libraries or runs programs of the container (CVE-2019-14271)",
            "no verb makes the host open a library or run a program of a workspace",
            "the same trace shows a program that does")
    def test_no_host_process_loads_code_from_a_workspace(self):
        evil = "for f in libnss_files.so.2 libc.so.6 ld-linux-x86-64.so.2 libnss_dns.so.2; do cp /bin/true $f; done; mkdir -p etc bin; " \
               "echo 'hosts: evil' > etc/nsswitch.conf; cp /bin/true bin/git; cp /bin/true bin/sh"
        self.sh(evil)
        log = self.daemon.directory / "trace"
        loads = re.compile(r'(?:execve|open|openat|openat2)\((?:[^"]*)"([^"]*(?:\.so[.0-9]*|/bin/\w+))"')

        def traced(pid, body):
            tracer = subprocess.Popen(["strace", "-f", "-q", "-e", "trace=execve,open,openat,openat2", "-o", log, "-p", str(pid)])
            harness.wait_until(lambda: "TracerPid:\t0" not in pathlib.Path(f"/proc/{pid}/status").read_text(), what="the trace")
            body()
            tracer.terminate()
            tracer.wait()
            return [path for path in loads.findall(log.read_text(errors="replace"))]

        def verbs():
            self.client.diff("jail")
            self.client.status("jail")
            self.client.list_files("jail")
            self.client.read_file("jail", "libc.so.6")
            self.client.write_file("jail", "new", b"x")
            self.client.stop("jail")
            self.client.start("jail")
            self.sh("true")
            self.client.create(repo_url=self.url, name="traced")
            self.client.delete("traced")

        paths = traced(self.daemon.process.pid, verbs)
        self.assertTrue(any("moorage-launch" in p or p.startswith("/") for p in paths))
        # The file API opens relative names below the tree's descriptor. Loading a library uses a full path.
        self.assertEqual([p for p in paths if str(self.daemon.store) in p and "/images/" not in p], [])
        if not harness.SANITIZED:  # a static program cannot have a sanitizer
            self.assertNotIn(b"INTERP", harness.run("readelf", "-l", harness.BIN / "moorage-warden").stdout)
        place = self.daemon.store / "evil.so"
        place.write_bytes(b"")
        victim = subprocess.Popen(["python3", "-c", f"import sys, ctypes\nsys.stdin.read()\ntry: ctypes.CDLL('{place}')\nexcept OSError: pass"],
                                  stdin=subprocess.PIPE)
        self.assertIn(str(place), traced(victim.pid, lambda: (victim.stdin.close(), victim.wait())))
        place.unlink()
        self.sh("git clean -xfdq . || rm -rf lib* etc bin")

    @threat(7, "M", "LXC's setuid helper (CVE-2017-5985, CVE-2018-6556, CVE-2022-47952)",
            "the required LXC packages have no setuid program; one from the host has no privileges inside",
            "the same check finds the setuid program of another package")
    def test_no_setuid_program_of_lxc_is_needed_or_useful(self):
        def setuid_files(package):
            listed = harness.run("dpkg-query", "-L", package).stdout.decode().split("\n")
            files = [p for p in listed if os.path.isfile(p) and not os.path.islink(p)]
            return [p for p in files if os.stat(p).st_mode & 0o6000]

        for package in ("liblxc1", "liblxc-common"):
            if harness.run("dpkg-query", "-s", package, check=False).returncode == 0:
                self.assertEqual([p for p in setuid_files(package) if "lxc-" in p and package == "liblxc1"], [])
        self.assertTrue(setuid_files("sudo"))
        for program in ("moorage", "mooraged", "moorage-launch", "moorage-warden", "moorage-egress"):
            self.assertEqual((harness.BIN / program).stat().st_mode & 0o6000, 0)
        helpers = self.out("find / -xdev -perm -4000 -name 'lxc-*' 2>/dev/null; find /usr -perm -4000 -name 'lxc-*'").split()
        for helper in helpers:
            result = self.sh(f"{helper} create user . 1 veth lxcbr0 eth0")
            self.assertNotEqual(result.exit_code, 0)
        self.assertGreater(host_id(self.daemon.sandbox_pids("jail")["init"]), 65535)

    @threat(8, "C", "attach before capabilities and filters are dropped; inherited descriptors and environment",
            "an executed command has the filter, no capability, none of the host's environment, descriptors 0 to 2",
            "without the filters and with all capabilities the same check shows them")
    def test_a_command_is_confined_like_process_1(self):
        look = "grep -E '^(Seccomp|CapEff|CapBnd|NoNewPrivs):' /proc/self/status | tr -d '\\t'"

        def status(name, user):
            return dict(line.split(":") for line in self.out(look, name=name, user=user).split("\n"))

        for user in USERS:
            found = status("jail", user)
            self.assertEqual((found["Seccomp"], int(found["CapEff"], 16)), ("2", CAPABILITIES[user]))
            self.assertEqual(int(found["CapBnd"], 16), CAPABILITIES[ATTACKER])
            self.assertTrue(found["NoNewPrivs"] == "1" or harness.HAS_ROOT)
        environment = self.out("env; tr '\\0' '\\n' < /proc/self/environ", user=ATTACKER)
        self.assertEqual([l for l in environment.split("\n") if "MOORAGE_BIN" in l or "WEAKEN" in l or "LD_" in l], [])
        with self.weakened("allowlist", "late-policy", "capabilities") as name:
            weak = status(name, ATTACKER)
            self.assertEqual(weak["Seccomp"], "0")
            self.assertNotEqual(int(weak["CapBnd"], 16), CAPABILITIES[ATTACKER])
        with daemon({"sandbox.sudo": False}) as strict:
            strict.client.create(repo_url=self.url, name="strict")
            self.assertEqual(strict.client.exec("strict", look).stdout.count(b"NoNewPrivs:1"), 1)

    @threat(9, "C", "typing into the caller's terminal (TIOCSTI, TIOCLINUX)",
            "EPERM, also on a terminal of the sandbox's own",
            "without the allowlist the kernel accepts it, or answers EIO if it is switched off")
    def test_nothing_can_be_typed_into_a_terminal(self):
        attack = TRY + """
import fcntl, pty, termios
main, side = pty.openpty()
if os.getpgid(0) != os.getpid(): os.setsid()
fcntl.ioctl(side, termios.TIOCSCTTY, 0)
print(attempt(lambda: fcntl.ioctl(side, termios.TIOCSTI, b"x")), attempt(lambda: fcntl.ioctl(side, 0x541C, b"x")))
"""
        self.assertEqual(self.python(attack), "EPERM EPERM")
        result = self.client.exec("jail", ["python3", "-c", attack.replace("fcntl.ioctl(side, termios.TIOCSCTTY, 0)", "side = 0")],
                                  tty={"columns": 80, "rows": 24})
        self.assertIn(b"EPERM EPERM", result.stdout)
        with self.weakened("allowlist") as name:
            self.assertIn(self.python(attack, name=name).split()[0], ("ok", "EIO"))


if __name__ == "__main__":
    unittest.main()
