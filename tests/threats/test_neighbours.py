"""Attacks between sandboxes: rows 19 to 21."""

import contextlib
import os
import pathlib
import re
import subprocess
import unittest

from threat import TRY, Threats, harness, host_id, threat

# Creates one of each: an abstract socket, a System V segment, a POSIX queue. Prints "ready", keeps them.
OFFER = TRY + """
import socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind("\\0moorage-neighbour-MINE")
server.listen()
segment = libc.shmget(0x6dMINE, 4096, 0o1666)
queue = libc.mq_open(b"/moorage-neighbour-MINE", 0o102, 0o666, None)
print("ready", segment >= 0, queue >= 0, flush=True)
sys.stdin.read()
libc.shmctl(segment, 0, None)
libc.mq_unlink(b"/moorage-neighbour-MINE")
"""
TAKE = TRY + """
import socket
print(attempt(lambda: socket.socket(socket.AF_UNIX).connect("\\0moorage-neighbour-MINE")),
      "ok" if libc.shmget(0x6dMINE, 0, 0) >= 0 else "none", "ok" if libc.mq_open(b"/moorage-neighbour-MINE", 0) >= 0 else "none")
"""

OFFER, TAKE = (text.replace("MINE", f"{os.getpid():06x}") for text in (OFFER, TAKE))  # other suites may run at the same time


def process_of(line):
    return next((pid for pid, command in harness.processes().items() if command == line), None)


@contextlib.contextmanager
def offered(words=(), owner=0):
    offer = OFFER.replace("server", f"os.setegid({owner})\nos.seteuid({owner})\nserver", 1)
    with subprocess.Popen([*words, "python3", "-c", offer], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as host:
        assert host.stdout.readline() == b"ready True True\n"
        yield
        host.stdin.close()


class Neighbours(Threats):
    @threat(19, "H", "signal, trace or inspect the processes of another sandbox",
            "each sandbox has its own pid namespace and its own id range (one for all if an engine remaps ids): none overlap, none contains a host user",
            "on the host the neighbor's process can be seen and signaled")
    def test_other_sandboxes_cannot_be_seen_signaled_or_traced(self):
        names = ["jail", "near", "far"]
        sleeping = {}
        for name in names:
            if name != "jail":
                self.client.create(repo_url=self.url, name=name)
            mark = f"{name}-{os.getpid()}"  # distinguishes it from processes of other suites on the host
            self.client.start_exec(name, ["bash", "-c", f"exec -a {mark} sleep 31415"])
            sleeping[name] = harness.wait_until(lambda: process_of(f"{mark} 31415"), what=f"a process of {name}")  # noqa: B023
        pid = sleeping["near"]
        attack = TRY + f"""
import signal
pids = [int(p) for p in os.listdir("/proc") if p.isdigit()]
print(any(b"near-{os.getpid()}\\0" in open(f"/proc/{{p}}/cmdline", "rb").read() for p in pids))
print({{attempt(lambda: os.kill(p, 9)) for p in range(2, 70000) if p not in pids}} == {{"ESRCH"}})
print(attempt(lambda: system_call(101, 0x4206, {pid}, 0, 0)))
"""
        self.assertEqual(self.python(attack, name="far").split(), ["False", "True", "ESRCH"])
        self.assertEqual(process_of(f"near-{os.getpid()} 31415"), pid)
        self.look_at_the_ranges([self.range_of(name) for name in names])
        # Without the pid namespace: isolation by ids only.
        far = host_id(sleeping["far"])
        signal = TRY + f"os.setresuid({far}, {far}, {far})\nprint(attempt(lambda: os.kill({pid}, 0)))"
        self.assertEqual(self.on_host(signal), "ok" if harness.BACKEND == "docker-userns" else "EPERM")
        self.assertEqual(self.on_host(f"import os; os.kill({pid}, 0); print('there')"), "there")
        self.sh("pkill sleep")
        for name in names[1:]:
            self.client.delete(name, force=True)

    def range_of(self, name):
        """(first, end) of a sandbox's host ids."""
        sandbox = self.daemon.sandbox_pids(name)
        if harness.BACKEND == "docker":  # no map, and one id for all its processes
            ids = {host_id(pid) for pid in harness.sandbox_cgroup_pids(sandbox["name"])}
            self.assertEqual(len(ids), 1, ids)
            first = ids.pop() - 1000
            return first, first + 65536
        _, first, count = map(int, pathlib.Path(f"/proc/{sandbox['init']}/uid_map").read_text().split())
        return first, first + count

    def look_at_the_ranges(self, ranges):
        if harness.BACKEND == "docker-userns":  # the engine has one range for all, see the page
            self.assertEqual(len(set(ranges)), 1)
            page = " ".join((harness.ROOT / "docs/security.md").read_text().split())
            self.assertTrue("only the pid namespace keeps one sandbox's processes from another's" in page)
        ranges = sorted(set(ranges))
        self.assertGreaterEqual(ranges[0][0], 65536)
        for (_, end), (start, _) in zip(ranges, ranges[1:]):
            self.assertLessEqual(end, start)

    @threat(20, "H", "an id range held by two sandboxes: reuse after destroy, wraparound, a crash in between",
            "the database assigns ranges, unique until the sandbox is destroyed; 100,000 random steps with kills",
            "the property test compares with the results that each killed process had received")
    @unittest.skipIf(harness.PATIENCE > 1, "100,000 steps of the database alone: an hour under an emulator, nothing of its kernel")
    def test_no_range_is_held_twice(self):
        wanted = 100_000 if harness.BACKEND == "lxc" else 5_000  # the database is the same for every backend
        result = harness.run(harness.BIN / "test_state_db", "two sandboxes never hold the same slot*,a full pool refuses*", timeout=600,
                             env={"MOORAGE_TEST_STEPS": str(wanted), "TMPDIR": "/dev/shm"})
        self.assertIn(b"All tests passed", result.stdout)
        steps, deaths = map(int, re.search(rb"slots: (\d+) steps, (\d+) deaths", result.stdout).groups())
        self.assertGreaterEqual(steps, wanted)
        self.assertGreater(deaths, wanted // 5_000)
        subuids = [line.split(":") for line in pathlib.Path("/etc/subuid").read_text().splitlines() if ":" in line]
        config = {s["name"]: int(s["value"]) for s in self.client.config() if s["name"].startswith("ids.")}
        first, end = config["ids.sandbox_first_id"], config["ids.sandbox_first_id"] + config["ids.sandbox_slots"] * 65536
        for _, start, count in subuids:
            self.assertTrue(int(start) + int(count) <= first or int(start) >= end, "the probe would have said so")

    @threat(21, "H", "abstract sockets, System V memory, message queues and keys shared with the host or a neighbor",
            "own network and IPC namespaces; the calls for keys are refused",
            "with the namespaces of another process, its socket and segment are found")
    def test_nothing_is_shared_by_name(self):
        with offered():
            self.assertEqual(self.python(TAKE), "ECONNREFUSED none none")
            with self.weakened("network", "ipc") as name, self.offered_to_the_weak():
                self.assertEqual(self.python(TAKE, name=name, user="user"), "ok ok ok")
            self.client.create(repo_url=self.url, name="close")
            exec_id = self.client.start_exec("close", ["python3", "-c", OFFER], stdin=True)["id"]
            harness.wait_until(lambda: b"ready" in self.client.raw_output(exec_id), what="the neighbour's offer")
            self.assertEqual(self.python(TAKE), "ECONNREFUSED none none")
            self.assertEqual(self.python(TAKE, name="close"), "ok ok ok")
            self.client.delete("close", force=True)
        keys = TRY + "print(*(attempt(lambda: system_call(n, 0, 0, 0, 0, 0)) for n in (248, 249, 250)))"
        self.assertEqual(self.python(keys), "EPERM EPERM EPERM")

    def offered_to_the_weak(self):
        pid = self.holder_pid()
        return offered(["nsenter", f"--target={pid}", "--net", "--ipc"], owner=host_id(pid))


if __name__ == "__main__":
    unittest.main()
