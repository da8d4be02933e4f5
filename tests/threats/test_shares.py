"""What one user can do to another through the daemon that both share: row 68. A does the worst (greedy.py); meanwhile B
creates, runs commands and reads logs.

MOORAGE_TEST_LONG=1: 1,000 snapshots, 100 best-ofs, larger directories, and B's p99 within three times of what it is alone.
The short form asks for answers within five seconds or three times of alone, whichever is more: what it is to find is work
that stands behind A's, which takes as long as A likes.
"""

import os
import sys
import threading
import time
import unittest

from threat import Threats, harness, threat

sys.path.insert(0, str(harness.pathlib.Path(__file__).resolve().parents[1] / "overload"))
from greedy import Greedy, become  # noqa: E402
from load import percentile  # noqa: E402

LONG = os.environ.get("MOORAGE_TEST_LONG") == "1"
A, B = 61001, 61002
THREADS = 8  # of each lane: the attack is the same with the usual 16, and takes twice as many
HOOKS = 10  # more than a lane has threads
SIZES = {"files": 100_000, "ignores": 20_000, "snapshots": 1_000, "best_ofs": 100} if LONG else {}
ROUNDS = 200 if LONG else 30
FACTOR = 3
LEAST_S = (0.05 if LONG else 5.0) * harness.PATIENCE


class Shares(Threats):
    settings = {"daemon.threads": THREADS, "sandbox.idle_stop_s": 0, "sandbox.memory_bytes": 128 << 20, "sandbox.cpus": 1,
                "sandbox.start_deadline_s": 120}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.daemon.socket.chmod(0o666)

    def measured(self, rounds):
        """p99 of B's calls in seconds, by verb."""
        took = {"exec": [], "logs": [], "ls": [], "create": []}
        troubles = []

        def timed(verb, function, *arguments, **fields):
            begin = time.monotonic()
            answer = function(*arguments, **fields)
            took[verb].append(time.monotonic() - begin)
            return answer

        def work():
            become(B)
            client = harness.Client(str(self.daemon.socket))
            for number in range(rounds):
                exec_id = timed("exec", client.exec, "b-work", "echo served").exec["id"]
                self.assertEqual(timed("logs", client.raw_output, exec_id), b"served\n")
                timed("ls", client.workspaces)
                if number % 3 == 0:
                    made = timed("create", client.create, repo_url=self.url)["id"]
                    client.delete(made, purge=True)

        def guarded():
            try:
                work()
            except Exception as error:  # noqa: BLE001
                troubles.append(error)

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        thread.join(300 * harness.PATIENCE)
        waits = "" if not thread.is_alive() else self.daemon.waiting()
        self.assertFalse(thread.is_alive(), f"B still waits, after {({k: len(v) for k, v in took.items()})}\n{waits}")
        self.assertEqual(troubles, [])
        return {verb: percentile(values, 0.99) for verb, values in took.items()}

    def make_b(self):
        become(B)
        client = harness.Client(str(self.daemon.socket))
        client.create(repo_url=self.url, name="b-work")
        client.exec("b-work", "true")

    @threat(68, "C", "hold the threads and locks of the daemon for as long as one likes, with hooks, stalled uploads, snapshots, best-ofs, huge ignores and directories",
            "a hook takes no thread, and of each pool every user and every workspace has a bounded share: another user's commands, creates and logs are answered as before",
            "more hooks than a lane has threads still run when all was answered")
    def test_what_one_user_does_keeps_no_other_one_waiting(self):
        first = threading.Thread(target=self.make_b)
        first.start()
        first.join(120 * harness.PATIENCE)
        alone = self.measured(ROUNDS)
        greedy = Greedy(self.daemon, self.url, A, hooks=HOOKS, **SIZES)
        greedy.start()
        try:
            beside = self.measured(ROUNDS)
            hooks = greedy.running_hooks(self.client)
        finally:
            greedy.stop(self.client)
        print(", ".join(f"{verb}: p99 {alone[verb] * 1e3:.1f} ms alone, {beside[verb] * 1e3:.1f} ms beside A" for verb in alone))
        self.assertGreaterEqual(len(hooks), HOOKS)
        self.assertGreater(HOOKS, THREADS)
        for verb in alone:
            self.assertLess(beside[verb], max(FACTOR * alone[verb], LEAST_S), f"B's {verb}")


if __name__ == "__main__":
    unittest.main()
