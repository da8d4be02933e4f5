"""What sandboxes can do to each other: rows 19 to 21."""

import pathlib
import re
import subprocess
import unittest

from threat import TRY, Threats, harness, threat

# Makes one of each: an abstract socket, a System V segment, a POSIX queue. Prints "ready", holds them.
OFFER = TRY + """
import socket, sys
server = socket.socket(socket.AF_UNIX)
server.bind("\\0moorage-neighbour")
server.listen()
segment = libc.shmget(0x6d6f6f72, 4096, 0o1666)
queue = libc.mq_open(b"/moorage-neighbour", 0o102, 0o666, None)
print("ready", segment >= 0, queue >= 0, flush=True)
sys.stdin.read()
libc.shmctl(segment, 0, None)
libc.mq_unlink(b"/moorage-neighbour")
"""
TAKE = TRY + """
import socket
print(attempt(lambda: socket.socket(socket.AF_UNIX).connect("\\0moorage-neighbour")),
      "ok" if libc.shmget(0x6d6f6f72, 0, 0) >= 0 else "none", "ok" if libc.mq_open(b"/moorage-neighbour", 0) >= 0 else "none")
"""


class Neighbours(Threats):
    @threat(19, "H", "signal, trace or look at the processes of another sandbox",
            "own pid namespace, and an id range of its own for each sandbox: no two live maps overlap, none holds a host user",
            "on the host the neighbour's process is there to be seen and signalled")
    def test_neighbours_cannot_be_seen_signalled_or_traced(self):
        names = ["jail", "near", "far"]
        for name in names[1:]:
            self.client.create(repo_url=self.url, name=name)
        self.client.start_exec("near", ["sleep", "31415"])
        harness.wait_until(lambda: self.out("pgrep -c -f 'sleep 31415'", name="near") == "1", what="the neighbour's process")
        pid = next(p for p, line in harness.processes().items() if line == "sleep 31415")
        attack = TRY + f"""
import signal
pids = [int(p) for p in os.listdir("/proc") if p.isdigit()]
print(any(b"sleep\\0" in open(f"/proc/{{p}}/cmdline", "rb").read() for p in pids))
print({{attempt(lambda: os.kill(p, 9)) for p in range(2, 70000) if p not in pids}} == {{"ESRCH"}})
print(attempt(lambda: system_call(101, 0x4206, {pid}, 0, 0)))
"""
        self.assertEqual(self.python(attack, name="far").split(), ["False", "True", "ESRCH"])
        self.assertEqual(harness.processes().get(pid), "sleep 31415")
        ranges = []
        for name in names:
            self.out("true", name=name)
            init = self.daemon.sandbox_pids(name)["init"]
            for line in pathlib.Path(f"/proc/{init}/uid_map").read_text().splitlines():
                _, first, count = map(int, line.split())
                ranges.append((first, first + count))
        ranges.sort()
        self.assertGreaterEqual(ranges[0][0], 65536)
        for (_, end), (start, _) in zip(ranges, ranges[1:]):
            self.assertLessEqual(end, start)
        self.assertEqual(self.on_host(f"import os; os.kill({pid}, 0); print('there')"), "there")
        for name in names[1:]:
            self.client.delete(name)

    @threat(20, "H", "an id range that two sandboxes hold: reuse after destroy, wrap, a death in between",
            "ranges are given by the database, unique while the sandbox is not destroyed; 100,000 random steps with kills",
            "the property test knows what each killed process was told, and compares")
    @unittest.skipIf(harness.PATIENCE > 1, "100,000 steps of the database alone: an hour under an emulator, nothing of its kernel")
    def test_no_range_is_held_twice(self):
        result = harness.run(harness.BIN / "test_state_db", "two sandboxes never hold one slot*,a full pool refuses*", timeout=600,
                             env={"MOORAGE_TEST_STEPS": "100000", "TMPDIR": "/dev/shm"})
        self.assertIn(b"All tests passed", result.stdout)
        steps, deaths = map(int, re.search(rb"slots: (\d+) steps, (\d+) deaths", result.stdout).groups())
        self.assertGreaterEqual(steps, 100_000)
        self.assertGreater(deaths, 20)
        subuids = [line.split(":") for line in pathlib.Path("/etc/subuid").read_text().splitlines() if ":" in line]
        config = {s["name"]: int(s["value"]) for s in self.client.config() if s["name"].startswith("ids.")}
        first, end = config["ids.sandbox_first_id"], config["ids.sandbox_first_id"] + config["ids.sandbox_slots"] * 65536
        for _, start, count in subuids:
            self.assertTrue(int(start) + int(count) <= first or int(start) >= end, "the probe would have said so")

    @threat(21, "H", "abstract sockets, System V memory, message queues and keys shared with the host or a neighbour",
            "own network and ipc namespace; the calls for keys are refused",
            "with the host's namespaces kept, the host's socket and segment are found")
    def test_nothing_is_shared_by_name(self):
        with subprocess.Popen(["python3", "-c", OFFER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as host:
            self.assertEqual(host.stdout.readline(), b"ready True True\n")
            self.assertEqual(self.python(TAKE), "ECONNREFUSED none none")
            with self.weakened("network", "ipc") as name:
                self.assertEqual(self.python(TAKE, name=name, user="user"), "ok ok ok")
            self.client.create(repo_url=self.url, name="close")
            exec_id = self.client.start_exec("close", ["python3", "-c", OFFER], stdin=True)["id"]
            harness.wait_until(lambda: b"ready" in self.client.raw_output(exec_id), what="the neighbour's offer")
            self.assertEqual(self.python(TAKE), "ECONNREFUSED none none")
            self.assertEqual(self.python(TAKE, name="close"), "ok ok ok")
            self.client.delete("close")
            host.stdin.close()
        keys = TRY + "print(*(attempt(lambda: system_call(n, 0, 0, 0, 0, 0)) for n in (248, 249, 250)))"
        self.assertEqual(self.python(keys), "EPERM EPERM EPERM")


if __name__ == "__main__":
    unittest.main()
