"""Programs inside size themselves by the sandbox: --memory 512M --cpus 1 is what node, the JVM, Go, .NET, Python, nproc and df
find.

Runs on each backend (MOORAGE_TEST_BACKEND) and on the host's version of control groups. A language that this host lacks is
named on standard error, and fails the suite in CI.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import unittest

import harness
import npm_packages

MEGABYTE = 1 << 20
MEMORY = 512 * MEGABYTE
HOST = sorted(os.sched_getaffinity(0))
ALL = len(HOST)
V1 = pathlib.Path("/sys/fs/cgroup/memory").exists()
LXCFS = "/var/lib/lxcfs"
# A mount namespace in which lxcfs runs, as its service does for a host. The pid is for the end.
WITH_LXCFS = f"mkdir -p {LXCFS}; lxcfs -f -p $1 {LXCFS} & shift; until [ -e {LXCFS}/proc/meminfo ]; do sleep 0.02; done; exec \"$@\""

JAVA = """public class Limits { public static void main(String[] none) { Runtime runtime = Runtime.getRuntime();
System.out.println("{\\"cpus\\":" + runtime.availableProcessors() + ",\\"heap\\":" + runtime.maxMemory() + "}"); } }"""
NODE = ("const os = require('os'), v8 = require('v8'); console.log(JSON.stringify({uv: process.versions.uv, cpus: os.availableParallelism(), "
        "memory: process.constrainedMemory() || 0, heap: v8.getHeapStatistics().heap_size_limit}))")
GO = 'package main\nimport ("fmt"; "runtime")\nfunc main() { fmt.Printf(`{"cpus":%d,"procs":%d}`, runtime.NumCPU(), runtime.GOMAXPROCS(0)) }\n'
DOTNET = harness.ROOT / "tests/e2e/dotnet"
PYTHON = ("import json, os, multiprocessing; print(json.dumps({'count': os.cpu_count(), 'affinity': sorted(os.sched_getaffinity(0)),"
          " 'pool': multiprocessing.cpu_count()}))")
# What a runtime does by itself: the group of /proc/self/cgroup below the mount, as cgroups(7) says.
OWN_LIMIT = r"""
set -e
if [ -e /sys/fs/cgroup/memory ]; then
  cat "/sys/fs/cgroup/memory$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)/memory.limit_in_bytes" /sys/fs/cgroup/memory/memory.limit_in_bytes
else
  cat "/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)/memory.max" /sys/fs/cgroup/memory.max
fi"""
QUOTA = "cat /sys/fs/cgroup/cpu/cpu.cfs_quota_us 2>/dev/null || cut -d' ' -f1 /sys/fs/cgroup/cpu.max"
# Tries to write to each file of each control group that is mounted, and to enter each.
WRITES = r"""
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
tried, written = 0, []
mounts = [line.split() for line in open("/proc/self/mountinfo") if " - cgroup" in line]
for mount in mounts:
    if "ro" not in mount[5].split(","): written.append(mount[4] + " is writable")
    for at, directories, files in os.walk(mount[4]):
        for name in files:
            tried += 1
            try:
                os.close(os.open(os.path.join(at, name), os.O_WRONLY))
                written.append(os.path.join(at, name))
            except OSError as error:
                if error.errno not in (errno.EROFS, errno.EACCES): raise
        for action in (lambda: os.mkdir(at + "/mine"), lambda: os.rmdir(at), lambda: os.chmod(at, 0o777)):
            try: action()
            except OSError: continue
            written.append(at)
    for flags in (0x20 | 0x1000, 0x20):  # MS_REMOUNT, with and without MS_BIND
        if libc.mount(None, mount[4].encode(), None, flags, None) == 0: written.append("remounted " + mount[4])
print(len(mounts), tried, written)
"""


class Small(harness.TestCase):
    """With the workspace `small`."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.create("small", memory_bytes=MEMORY, cpus=1)

    @classmethod
    def create(cls, name, **limits):
        cls.client.create(repo_url=cls.url, name=name, limits={"pids": 512} | limits)

    def out(self, script, name="small", **fields):
        result = self.client.exec(name, ["bash", "-c", script] if isinstance(script, str) else script, **{"timeout_ms": 120000} | fields)
        self.assertEqual(result.exit_code, 0, result.stderr)
        return result.stdout.decode().strip()

    def has(self, program):
        path = shutil.which(program, path="/usr/bin:/bin")
        if not path:
            if os.environ.get("CI") == "true":
                self.fail(f"{program} is not installed: {pathlib.Path(__file__).name} cannot check it")
            print(f"\nSKIPPED: {program} is not installed on this host", file=sys.stderr)
        return bool(path)


class LimitsSeen(Small):
    def test_processors_are_counted_by_the_limit(self):
        self.assertEqual(self.out("nproc"), "1")
        found = json.loads(self.out(["python3", "-c", PYTHON]))
        self.assertEqual((found["count"], len(found["affinity"]), found["pool"]), (1, 1, 1), found)
        self.assertIn(found["affinity"][0], HOST)
        self.assertEqual(self.out("cat /sys/devices/system/cpu/online"), str(found["affinity"][0]))

    def test_the_memory_limit_is_where_the_kernels_manual_says(self):
        self.assertEqual(self.out(OWN_LIMIT).split(), [str(MEMORY)] * 2)
        self.assertEqual(self.out(QUOTA), "100000")

    def test_node_sizes_itself_by_the_sandbox(self):
        if self.has("node"):
            found = json.loads(self.out(["node", "-e", NODE]))
            self.assertEqual(found["cpus"], 1, found)
            # Debian 12's node 18 has a libuv that knows control groups of version 1 only.
            if V1 or tuple(int(part) for part in found["uv"].split(".")) >= (1, 45, 0):
                self.assertEqual(found["memory"], MEMORY, found)
                self.assertLess(found["heap"], MEMORY)  # without a limit it is 2 or 4 GiB

    def test_the_jvm_sizes_itself_by_the_sandbox(self):
        if self.has("java"):
            self.client.write_file("small", "/workspace/Limits.java", JAVA.encode())
            found = json.loads(self.out("java Limits.java"))
            self.assertEqual(found["cpus"], 1)
            self.assertLess(found["heap"], MEMORY / 2)  # a quarter, by default
            self.assertGreater(found["heap"], MEMORY / 8)

    def test_go_sizes_itself_by_the_sandbox(self):
        if self.has("go"):
            self.client.write_file("small", "/workspace/limits.go", GO.encode())
            self.assertEqual(json.loads(self.out("go run limits.go")), {"cpus": 1, "procs": 1})

    def test_dotnet_sizes_itself_by_the_sandbox(self):
        if self.has("mcs"):
            packages = npm_packages.install(DOTNET, "dotnet")
            runtime = next(packages.glob("node_modules/dotnet-*"))
            (libraries,) = runtime.glob("shared/Microsoft.NETCore.App/*")
            references = [f"-r:{libraries}/{name}.dll" for name in ("System.Private.CoreLib", "System.Runtime", "System.Console")]
            program = packages / "limits.dll"
            harness.run("mcs", "-nostdlib", "-noconfig", *references, f"-out:{program}", DOTNET / "limits.cs")
            for name, content in (("limits.dll", program.read_bytes()), ("limits.runtimeconfig.json", (DOTNET / "limits.runtimeconfig.json").read_bytes())):
                self.client.write_file("small", f"/workspace/{name}", content)
            archive = subprocess.Popen(["tar", "-C", runtime, "-c", "."], stdout=subprocess.PIPE)
            self.daemon.cli("exec", "small", "--", "sh", "-c", "mkdir ~/dotnet && tar -C ~/dotnet -x", stdin=archive.stdout)
            archive.stdout.close()
            self.assertEqual(archive.wait(), 0)
            found = json.loads(self.out("~/dotnet/dotnet exec limits.dll"))
            self.assertEqual(found["cpus"], 1)
            if V1:  # this version of .NET, the one that npm has, does not know control groups of version 2
                self.assertEqual(found["memory"], MEMORY * 3 // 4)  # its default

    def test_memory_files_are_bounded_by_half_of_the_memory(self):
        sizes = self.out("df -B1 --output=size /dev/shm /tmp | tail -n +2").split()
        self.assertEqual(sizes, [str(MEMORY // 2)] * 2)
        full = self.client.exec("small", ["bash", "-c", "head -c 300000000 /dev/zero > /dev/shm/big; e=$?; rm /dev/shm/big; exit $e"])
        self.assertIn(b"No space left", full.stderr)

    def test_fractions_are_rounded_up_and_more_than_the_host_has_is_all(self):
        for number, (cpus, seen) in enumerate({0.5: 1, 1.5: 2, ALL: ALL, ALL + 100: ALL}.items()):
            if seen > ALL:
                continue
            self.create(f"of-{number}", memory_bytes=MEMORY, cpus=cpus)
            self.assertEqual(self.out("nproc", f"of-{number}"), str(min(seen, ALL)), cpus)
            self.client.stop(f"of-{number}")

    def test_a_changed_limit_is_seen_after_the_next_start(self):
        self.create("changed", memory_bytes=MEMORY, cpus=ALL)
        self.assertEqual(self.out("nproc", "changed"), str(ALL))
        self.client.update("changed", limits={"cpus": 1, "memory_bytes": MEMORY // 2})
        self.client.stop("changed")
        self.assertEqual(self.out("nproc", "changed"), "1")
        self.assertEqual(self.out(OWN_LIMIT, "changed").split(), [str(MEMORY // 2)] * 2)
        self.client.update("changed", limits={"cpus": ALL})
        self.client.stop("changed")
        self.assertEqual(self.out("nproc", "changed"), str(ALL))
        self.client.stop("changed")

    def test_sandboxes_spread_over_the_processors(self):
        places = []
        for number in range(2 * ALL):
            self.create(f"spread-{number}", memory_bytes=64 * MEGABYTE, cpus=1)
            places += json.loads(self.out(["python3", "-c", PYTHON], f"spread-{number}"))["affinity"]
        used = {processor: places.count(processor) for processor in HOST}
        self.assertLessEqual(max(used.values()) - min(used.values()), 1, used)  # "small" is somewhere, too
        self.daemon.kill()
        self.daemon.start()
        self.assertEqual(self.out("nproc", "spread-0"), "1")
        for number in range(2 * ALL):
            self.client.stop(f"spread-{number}")

    def test_no_control_group_can_be_written_or_is_of_others(self):
        self.create("neighbor", memory_bytes=MEMORY, cpus=1)
        self.out("sleep 300 >/dev/null 2>&1 &", "neighbor")
        for user in ("user", "root") if harness.HAS_ROOT else ("user",):
            mounts, tried, written = self.out(["python3", "-c", WRITES], user=user).split(maxsplit=2)
            self.assertGreaterEqual(int(mounts), 5 if V1 else 1)
            self.assertGreater(int(tried), 30)
            self.assertEqual(written, "[]")
        shown = self.out("find /sys/fs -maxdepth 8; cat /proc/self/cgroup; find /sys/fs -name cgroup.procs -exec cat {} + | sort -n | uniq")
        sandboxes = {name: self.client.workspace(name)["sandbox"]["id"] for name in ("small", "neighbor")}
        self.assertNotIn(sandboxes["neighbor"] + "/", shown + "/")
        self.assertNotIn("release_agent", shown)
        pids = [line for line in shown.splitlines() if line.isdigit()]
        self.assertEqual([pid for pid in pids if pid == "0"], [], "a process from outside is in a group that is shown")
        self.client.stop("neighbor")


@unittest.skipIf(harness.BACKEND == "ssh", "on another machine nothing of its services is shown")
class WithLxcfs(Small):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not shutil.which("lxcfs"):
            if os.environ.get("CI") == "true":
                raise AssertionError("lxcfs is not installed")
            raise unittest.SkipTest("lxcfs is not installed on this host")
        cls.daemon.stop()
        pid_file = cls.daemon.directory / "lxcfs.pid"
        cls.daemon.start(prefix=("unshare", "--mount", "--propagation", "private", "sh", "-c", WITH_LXCFS, "sh", str(pid_file)))
        cls.addClassCleanup(os.kill, int(pid_file.read_text()), signal.SIGTERM)

    def test_free_and_the_list_of_processors_are_those_of_the_sandbox(self):
        total, used = self.out("free -b | awk '/^Mem/ {print $2, $3}'").split()
        self.assertGreaterEqual(int(total), MEMORY)
        self.assertLessEqual(int(total), MEMORY + 96 * MEGABYTE)  # what Moorage's own processes may use is in it
        if V1:
            holding = "python3 -c 'b = bytearray(200 << 20); import os; os.system(\"free -b\")' | awk '/^Mem/ {print $3}'"
            self.assertGreater(int(self.out(holding)), int(used) + 150 * MEGABYTE)
            self.assertEqual(self.out("grep -c ^processor /proc/cpuinfo; grep -c '^cpu[0-9]' /proc/stat").split(), ["1", "1"])
        for user in ("user", "root") if harness.HAS_ROOT else ("user",):
            tried = self.client.exec("small", ["sh", "-c", "for f in cpuinfo meminfo stat; do : > /proc/$f && echo $f; done"], user=user)
            self.assertEqual(tried.stdout, b"")


@unittest.skipIf(harness.BACKEND == "ssh", "the mounts there are private from the start")
class WithSharedMounts(Small):
    def test_nothing_of_a_sandbox_is_mounted_on_a_host_with_shared_mounts(self):
        self.daemon.stop()
        self.daemon.start(prefix=("unshare", "--mount", "--propagation", "shared"))  # as systemd has it
        table = pathlib.Path(f"/proc/{self.daemon.process.pid}/mountinfo")
        before = self.mounts_of_sys(table)
        self.assertEqual(self.out("cat /sys/devices/system/cpu/online"), self.out("python3 -c 'import os; print(*os.sched_getaffinity(0))'"))
        self.assertEqual(self.mounts_of_sys(table), before)
        self.client.stop("small")

    def mounts_of_sys(self, table):
        places = (line.split()[4] for line in table.read_text().splitlines())
        return sorted(place for place in places if place.startswith("/sys"))


if __name__ == "__main__":
    unittest.main()
