"""200 sandboxes on two processors, idle and all busy, and a burst of 100 from create to first output."""

import concurrent.futures
import pathlib
import time
import unittest

import load
from load import harness

SANDBOXES = 200
BURST = 100
WARDEN_BYTES = 3 << 20


def own_memory(pid):
    """The process's private pages, in bytes."""
    rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(l.split()[1]) << 10 for l in rollup.splitlines() if l.startswith(("Private_Clean:", "Private_Dirty:")))


class Sandboxes(harness.TestCase):
    settings = {"sandbox.memory_bytes": 64 << 20, "sandbox.cpus": 1, "sandbox.start_deadline_s": 120}

    def test_two_hundred_sandboxes_idle_and_busy(self):
        names = [f"box-{n}" for n in range(SANDBOXES)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            def start(name):
                self.client.create(repo_url=self.url, name=name)
                return self.client.exec(name, "echo up").stdout
            self.assertEqual(set(pool.map(start, names)), {b"up\n"})
            memory = sorted(own_memory(self.daemon.sandbox_pids(name)["init"]) for name in names[::10])
            print(f"a warden's own memory: median {memory[len(memory) // 2] >> 10} KiB, most {memory[-1] >> 10} KiB")
            if not harness.SANITIZED:
                self.assertLessEqual(memory[-1], WARDEN_BYTES)
            with load.watched(self.client, f"{SANDBOXES} idle sandboxes") as idle:
                time.sleep(3)
            with load.watched(self.client, f"{SANDBOXES} sandboxes at work") as busy:
                spin = "import time\nend = time.time() + 10\nwhile time.time() < end: pass\nprint('done')"
                running = list(pool.map(lambda name: self.client.start_exec(name, ["python3", "-c", spin])["id"], names))
                ends = list(pool.map(lambda exec_id: self.client.wait(exec_id, timeout_ms=300_000), running))
            self.assertEqual({(e["state"], e.get("exit_code")) for e in ends}, {("exited", 0)})
            self.assertLess(load.percentile(idle, 0.99), load.LS_P99_S)
            self.assertLess(load.percentile(busy, 0.99), load.LS_P99_S)
            list(pool.map(lambda name: self.client.delete(name, purge=True), names))

    def test_a_burst_of_a_hundred_from_create_to_first_output(self):
        self.client.delete(self.client.create(repo_url=self.url)["id"], purge=True)  # fills the cache

        def first_output(number):
            begin = time.monotonic()
            name = f"burst-{number}"
            self.client.create(repo_url=self.url, name=name)
            with self.client.exec_stream(name, ["echo", "hello"]) as stream:
                for kind, payload in stream:
                    if kind == harness.raw_api.STDOUT:
                        return payload, time.monotonic() - begin
            return None, 0.0

        with concurrent.futures.ThreadPoolExecutor(BURST) as pool:
            answers = list(pool.map(first_output, range(BURST)))
        times = [seconds for payload, seconds in answers if payload == b"hello\n"]
        print(f"burst of {BURST}: {len(times)} of {BURST}, p50 {load.percentile(times, 0.5):.2f} s, p99 {load.percentile(times, 0.99):.2f} s")
        self.assertEqual(len(times), BURST)
        for number in range(BURST):
            self.client.delete(f"burst-{number}", purge=True)


if __name__ == "__main__":
    unittest.main()
