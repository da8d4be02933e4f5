"""Exhaustion of resources: rows 36, 55 and 60. For overload by honest clients see tests/overload."""

import contextlib
import json
import pathlib
import socket
import threading
import time
import unittest

from threat import Threats, harness, threat

BOMBS = {
    "fork bomb": "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass",
    "memory bomb": "x = []\nwhile True: x.append(bytearray(1 << 20))",
    "zombies": "import os, time\nn = 0\ntry:\n  while True:\n    if os.fork() == 0: os._exit(0)\n    n += 1\nexcept OSError: time.sleep(3)",
    "orphans": "import os, time\nfor i in range(10000):\n  try:\n    if os.fork() == 0:\n      os.setsid(); time.sleep(1000); os._exit(0)\n  except OSError: break",
    "10,000 sockets": "import socket, time, resource\nresource.setrlimit(resource.RLIMIT_NOFILE, [resource.getrlimit(resource.RLIMIT_NOFILE)[1]] * 2)\n"
                      "s = []\ntry:\n  while len(s) < 10000: s.append(socket.socketpair())\nexcept OSError: pass\ntime.sleep(3)",
    "inotify": "import ctypes, os, time\nl = ctypes.CDLL(None)\nfor i in range(300):\n  fd = l.inotify_init()\n  if fd < 0: break\n"
               "  for r, d, f in os.walk('/usr'):\n    if l.inotify_add_watch(fd, r.encode(), 0xfff) < 0: break\ntime.sleep(3)",
    "terminals": "import os, time\np = []\ntry:\n  while len(p) < 5000: p.append(os.openpty())\nexcept OSError: pass\ntime.sleep(3)",
    "pipe buffers": "import os, fcntl, time\np = []\ntry:\n  while len(p) < 900:\n    r, w = os.pipe()\n    p.append((r, w))\n"
                    "    os.set_blocking(w, False)\n    os.write(w, bytes(1 << 16))\nexcept OSError: pass\ntime.sleep(3)",
    "System V memory": "import ctypes, time\nl = ctypes.CDLL(None)\nl.shmat.restype = ctypes.c_void_p\nn = 0\nwhile n < 4096:\n  i = l.shmget(0, 1 << 20, 0o1600)\n"
                       "  if i < 0: break\n  p = l.shmat(i, None, 0)\n  if p is None or p == 2**64 - 1: break\n  ctypes.memset(p, 1, 1 << 20)\n  n += 1\ntime.sleep(3)",
    "temporary files": "n = 0\ntry:\n  while True:\n    open('/tmp/%d' % n, 'wb').write(bytes(1 << 20)); n += 1\nexcept OSError: pass",
    "signals to all": "import os, signal, time\nsignal.signal(15, signal.SIG_IGN)\nfor i in range(2000):\n  os.kill(-1, 15)",
}


class DiskFill(Threats):
    settings = {"store.disk_quota": "watched", "workspace.disk_limit_bytes": 32 << 20, "workspace.disk_limit_files": 3000}
    attacks = {"bytes": "i=0; while :; do i=$((i+1)); head -c 1M /dev/urandom >b$i; sleep 0.05; done",
               "inodes": "i=0; while :; do i=$((i+1)); : >i$i; [ $((i % 100)) = 0 ] && sleep 0.1; done",
               "bytes outside of any page": "i=0; while :; do i=$((i+1)); fallocate -l 1M f$i; sleep 0.05; done",
               "a writer left behind": "(while :; do head -c 1M /dev/urandom; sleep 0.05; done >>left) >/dev/null 2>&1 & sleep 30"}

    def ends(self, name):
        """End category of each attack, in order."""
        for what, script in self.attacks.items():
            record = self.client.start_exec(name, ["bash", "-c", script])
            yield what, self.client.wait(record["id"], 90_000)
            self.client.exec(name, "pkill -9 head; rm -rf b* i* f* left", user="root", free_space=True)

    @threat(36, "H", "fill the disk of the store with bytes, files, unwritten extents, from a background process",
            "the workspace's limit ends it with a reason; others and the database can still write",
            "a workspace without a limit uses as much space and is not ended")
    def test_an_agent_cannot_fill_the_disk(self):
        self.client.create(repo_url=self.url, name="free", limits={"disk_bytes": 0, "disk_files": 0})
        free = self.client.start_exec("free", ["bash", "-c", "head -c 64M /dev/zero >big; for i in $(seq 4000); do : >f$i; done; sleep 4"])
        for what, end in self.ends("jail"):
            with self.subTest(what):
                self.assertEqual(end["category"], "disk_quota", end)
        self.assertEqual(self.client.wait(free["id"])["exit_code"], 0)
        self.assertEqual(self.out("echo goes on >on; cat on"), "goes on")
        self.client.delete("free", purge=True)


class Exhaustion(Threats):
    settings = {"sandbox.memory_bytes": 256 << 20, "sandbox.pids": 256, "sandbox.cpus": 1, "exec.output_limit_bytes": 8 << 20}

    def connect(self):
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(60)
        client.connect(str(self.daemon.socket))
        return client

    def answer(self, request, more=b""):
        """Status of the answer, or None if the daemon disconnected without one."""
        with self.connect() as client:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                client.sendall(request)
                client.sendall(more)
            with contextlib.suppress(ConnectionResetError):
                line = client.recv(4096).split(b"\r\n")[0]
                return int(line.split()[1]) if line else None

    @threat(55, "H", "slow and partial requests, bodies of 64 MiB, JSON 100,000 deep, headers of 1 MiB, 10,000 pipelined requests",
            "each has a limit: refused or disconnected; others are served meanwhile",
            "a request of the same shape within the limits is answered 2xx")
    def test_hostile_requests_are_cut_off(self):
        head = b"POST /v1/workspaces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nIdempotency-Key: k%d\r\n"
        number = iter(range(100))

        def post(body, *lines):
            return (head % next(number)) + b"".join(l + b"\r\n" for l in lines) + b"Content-Length: %d\r\n\r\n" % len(body), body

        body = json.dumps({"repo_url": self.url, "name": "polite"}).encode()
        self.assertIn(self.answer(*post(body)), (200, 201))
        self.assertEqual(self.answer(*post(b"[" * 100_000 + b"]" * 100_000)), 400)
        self.assertEqual(self.answer(*post(b'{"repo_url":' * 50_000)), 400)
        self.assertIn(self.answer(*post(b" " * (64 << 20))), (400, 413))
        self.assertIn(self.answer(*post(b"{}", b"X-Long: " + b"x" * (1 << 20))), (400, 431, None))
        self.assertIn(self.answer(*post(b"{}", *[b"X-%d: x" % n for n in range(50_000)])), (400, 431, None))
        self.assertIn(self.answer(head % next(number) + b"Content-Length: 18446744073709551615\r\n\r\n{}"), (400, 413, None))
        self.assertIn(self.answer(head % next(number) + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"), (400, None))
        self.assertIn(self.answer(head % next(number) + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n"), (400, 413, None))
        self.assertIn(self.answer(b"\0" * 100_000), (400, 431, None))
        self.assertIn(self.answer(b"GET /v1/" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n"), (400, 414, 431, None))

        slow = [self.connect() for _ in range(100)]
        for client in slow:
            self.addCleanup(client.close)
        for n, client in enumerate(slow):
            client.sendall([b"", b"G", b"GET /v1/health HTTP/1.1\r\nHost: x\r\n", head % 99, (head % 99) + b"Content-Length: 9\r\n\r\n{"][n % 5])
        with self.connect() as pipelined:
            pipelined.settimeout(2)
            with contextlib.suppress(TimeoutError):  # the daemon stops reading from clients that do not read answers
                pipelined.sendall(b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n" * 10_000)
            self.client.health()
            self.assertEqual(self.client.exec("polite", "echo served").stdout, b"served\n")
        begin = time.monotonic()
        for client in slow:
            client.settimeout(max(1.0, 90 - (time.monotonic() - begin)))
            with contextlib.suppress(ConnectionResetError):
                while client.recv(4096):
                    pass
            client.close()
        self.client.delete("polite", purge=True)

    def check_flood(self):
        """A command's output never takes more disk space than its limit, even while it runs."""
        record = self.client.start_exec("bomb", ["bash", "-c", "timeout 3 yes; yes | head -c 20000000; echo the end"], timeout_ms=30_000)
        journal = self.daemon.store / "workspaces" / record["workspace"] / "journal" / record["id"] / "output"
        most = 0
        while self.client.get_exec(record["id"])["state"] == "running":
            most = max(most, journal.stat().st_blocks * 512)
        end = self.client.wait(record["id"])
        most = max(most, journal.stat().st_blocks * 512)
        self.assertGreater(most, 4 << 20)
        self.assertLess(most, (8 << 20) + (1 << 20))
        self.assertGreater(end["output_bytes"], 20_000_000)
        kept = self.client.raw_output(record["id"])
        self.assertTrue(kept.startswith(b"y\ny\n") and kept.endswith(b"y\nthe end\n"))
        self.assertEqual(len(kept) + end["omitted_bytes"], end["output_bytes"])
        self.assertEqual(sum(last - first for first, last in kept.gaps), end["omitted_bytes"])

    @threat(60, "H", "fork bomb, memory bomb, output flood, zombies, orphans, 10,000 sockets, inotify, terminals, pipe buffers, SysV memory, tmpfs",
            "limits of the sandbox: the host still forks and the database still commits within a second, the next command works",
            "the kernel's counters show that the fork bomb was refused and the memory bomb killed at their limits")
    def test_bombs_stay_in_their_sandbox(self):
        self.client.create(repo_url=self.url, name="bomb")
        self.client.create(repo_url=self.url, name="bystander")
        self.client.exec("bystander", "true")

        def host_works():
            best = 10.0
            for number in range(5):
                begin = time.monotonic()
                harness.run("true")
                self.client.write_file("bystander", "commit", b"x")
                self.client.delete(self.client.create(repo_url=self.url)["id"], purge=True)
                best = min(best, time.monotonic() - begin)
            return best

        for name, bomb in BOMBS.items():
            exec_id = self.client.start_exec("bomb", ["python3", "-c", bomb], timeout_ms=4000)["id"]
            self.assertLess(host_works(), 1.0, name)
            end = self.client.wait(exec_id, timeout_ms=60_000)
            self.assertNotEqual(end["state"], "running", name)
            if name == "memory bomb":
                self.assertEqual(end["state"], "oom_killed")
            if name == "fork bomb":
                group = self.daemon.sandbox_pids("bomb")["name"]
                events = next(p for p in map(pathlib.Path, (f"/sys/fs/cgroup/pids/moorage/{group}/cmd/pids.events",
                                                            f"/sys/fs/cgroup/moorage/{group}/cmd/pids.events")) if p.exists())
                self.assertGreater(int(events.read_text().split()[1]), 0)
            harness.wait_until(lambda: self.client.exec("bomb", "echo fine").stdout == b"fine\n", 60, f"a command after the {name}")
        self.check_flood()
        unread = self.client.start_exec("bomb", ["sh", "-c", "sleep 0.5; echo read nothing"], stdin=True)["id"]
        feeder = threading.Thread(target=lambda: self.client._feed(unread, bytes(32 << 20)))
        feeder.start()
        self.assertEqual(self.client.wait(unread, timeout_ms=60_000)["exit_code"], 0)
        feeder.join()
        self.assertEqual(self.client.exec("bystander", "cat commit").stdout, b"x")
        left = self.client.exec("bomb", "ls -d /proc/[0-9]* | wc -l").stdout
        self.assertLess(int(left), 12, "zombies and orphans are reaped with their command")
        for name in ("bomb", "bystander"):
            self.client.delete(name, purge=True)


if __name__ == "__main__":
    unittest.main()
