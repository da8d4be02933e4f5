"""Attacks of one user on another through the shared daemon: row 68. A does the worst (greedy.py); meanwhile B creates, runs
commands and reads logs.

B's calls are timed alone and beside A in turns, so that other load of the machine affects both. The test compares B's p99 of each
verb: within three times of alone, or within a bound if three times is less than the delays of a busy scheduler.
The short form has few calls, whose p99 is the slowest one: it finds work queued after A's, which can take any time.
MOORAGE_TEST_LONG=1: 1,000 snapshots, 100 best-ofs, larger directories, and a strict bound of three times. There A's loops
only send requests that read its directories; all other requests in loops have a separate test with the short form's bound,
as the two share the processors.
"""

import collections
import contextlib
import os
import pathlib
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
THREADS = 8  # per lane: the attack is the same with the default 16, and takes twice as many
HOOKS = 10  # more than the threads of a lane
SIZES = {"files": 100_000, "ignores": 20_000, "snapshots": 1_000, "best_ofs": 100} if LONG else {}
TURNS = 5 if LONG else 2
ROUNDS = 60 if LONG else 20  # per turn, alone and beside A
FACTOR = 3
BUSY_S = 2.0 * harness.PATIENCE
LEAST_S = 0.05 * harness.PATIENCE if LONG else BUSY_S


class Shares(Threats):
    settings = {"daemon.threads": THREADS, "sandbox.idle_stop_s": 0, "sandbox.memory_bytes": 128 << 20, "sandbox.cpus": 1,
                "sandbox.start_deadline_s": 120}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.daemon.socket.chmod(0o666)

    def measure(self, took):
        """Adds the times of B's calls, in seconds and by verb."""
        troubles = []

        def timed(verb, function, *arguments, **fields):
            begin = time.monotonic()
            answer = function(*arguments, **fields)
            took[verb].append(time.monotonic() - begin)
            return answer

        def work():
            become(B)
            client = harness.Client(str(self.daemon.socket))
            for number in range(ROUNDS):
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

    def make_b(self):
        become(B)
        client = harness.Client(str(self.daemon.socket))
        client.create(repo_url=self.url, name="b-work")
        client.exec("b-work", "true")

    def test_attempts_of_one_user_do_not_delay_those_of_others(self):
        def best_of(uid, name, **fields):
            answers = []

            def ask():
                become(uid)
                client = harness.Client(str(self.daemon.socket))
                client.create(repo_url=self.url, name=name)
                answers.append(client.best_of(name, **fields)["id"])

            thread = threading.Thread(target=ask)
            thread.start()
            thread.join()
            return answers[0]

        def states(best_of_id):
            return collections.Counter(a["state"] for a in self.client.get_best_of(best_of_id)["attempts"])

        most = max(16, 4 * os.cpu_count())
        greedy = best_of(A, "a-attempts", each="sleep 600", test="true", count=most + 2, parallel=64)
        harness.wait_until(lambda: states(greedy)["applying"] == most, 60, "as many attempts as one user may have")
        self.assertEqual(states(greedy)["waiting"], 2)
        other = best_of(B, "b-attempts", each="true", test="true", count=2)
        ended = self.client.get_best_of(other, wait_s=60)
        self.assertEqual([a["state"] for a in ended["attempts"]], ["passed", "passed"])
        self.client.cancel_best_of(greedy)
        harness.wait_until(lambda: self.client.get_best_of(greedy)["state"] != "running", 60, "the end of the greedy one")

    @threat(68, "C", "occupy threads and locks of the daemon, with hooks, stalled uploads, snapshots, best-ofs, huge ignore files and directories",
            "a hook occupies no thread, and every user and workspace has a bounded share of each pool: another user's commands, creates and logs are as fast as before",
            "more hooks than threads of a lane still run after all answers")
    def test_no_user_can_delay_another(self):
        self.beside(Greedy.WALKS if LONG else Greedy.ALL, LEAST_S)

    @unittest.skipUnless(LONG, "the short form of the other test has all of it")
    def test_requests_in_loops_by_one_user_do_not_delay_another(self):
        self.beside(Greedy.ALL, BUSY_S)

    def beside(self, asks, least_s):
        first = threading.Thread(target=self.make_b)
        first.start()
        first.join(120 * harness.PATIENCE)
        alone, beside = collections.defaultdict(list), collections.defaultdict(list)
        self.measure(alone)
        greedy = Greedy(self.daemon, self.url, A, hooks=HOOKS, asks=asks, **SIZES)
        greedy.start()
        try:
            for _ in range(TURNS):
                self.measure(beside)
                with greedy.quiet():
                    self.measure(alone)
            hooks = greedy.running_hooks(self.client)
        finally:
            greedy.stop(self.client)
            for workspace in self.client.workspaces():
                self.client.delete(workspace["id"], purge=True, force=True)
        p99 = {verb: (percentile(alone[verb], 0.99), percentile(beside[verb], 0.99)) for verb in alone}
        print(", ".join(f"{verb}: p99 {a * 1e3:.1f} ms alone, {b * 1e3:.1f} ms beside A" for verb, (a, b) in p99.items()))
        self.assertGreaterEqual(len(hooks), HOOKS)
        self.assertGreater(HOOKS, THREADS)
        for verb, (a, b) in p99.items():
            self.assertLess(b, max(FACTOR * a, least_s), f"B's {verb}")

    def priorities(self):
        """Nice values of the daemon's threads."""
        found = []
        for task in pathlib.Path(f"/proc/{self.daemon.process.pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                found.append(os.getpriority(os.PRIO_PROCESS, int(task.name)))
        return found

    def test_a_slow_walk_has_low_priority(self):
        self.client.create(repo_url=self.url, name="large")
        self.client.exec("large", "mkdir many; cd many; seq 20000 | xargs touch; seq 2000 | sed 's/$/*[a-z]*/' > .gitignore")
        self.client.start_exec("large", ["sleep", "600"], cwd="/workspace")  # it holds the mounts, so that a snapshot copies
        for look in (self.client.status, self.client.diff, self.client.diff_stat, self.client.snapshot):
            with self.subTest(look.__name__):
                asking = threading.Thread(target=look, args=("large",))
                asking.start()
                try:
                    harness.wait_until(lambda: any(nice > 0 for nice in self.priorities()), what="a thread of lower priority")
                finally:
                    asking.join()
                harness.wait_until(lambda: not any(self.priorities()), what="its priority is as before")

    @contextlib.contextmanager
    def paused_at(self, point):
        """Daemon threads that reach this point wait there until the end of the block."""
        gate = self.daemon.directory / "gate"
        self.daemon.stop()
        self.daemon.environment["MOORAGE_PAUSE_AT"] = f"{point}={gate}"
        self.daemon.start()
        self.daemon.socket.chmod(0o666)
        gate.touch()
        try:
            yield
        finally:
            gate.unlink()
            del self.daemon.environment["MOORAGE_PAUSE_AT"]

    def run_as(self, uid, names, **fields):
        """Creates a workspace of that user for each name, and runs one command in it."""
        troubles = []

        def work():
            try:
                become(uid)
                client = harness.Client(str(self.daemon.socket))
                for name in names:
                    client.create(repo_url=self.url, name=name, **fields)
                    client.exec(name, "true")
            except Exception as error:  # noqa: BLE001
                troubles.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        self.assertEqual(troubles, [])

    def ids(self, prefix):
        return {w["id"] for w in self.client.workspaces(deleted=True) if w["name"].startswith(prefix)}

    def stopping(self, prefix):
        """Workspaces with such names whose sandboxes are being stopped."""
        began = {e["workspace"] for e in self.client.events() if e["kind"] == "sandbox.state" and e["to"] == "stopping"}
        return began & self.ids(prefix)

    def remove(self, *prefixes):
        for prefix in prefixes:
            for workspace in self.ids(prefix):
                self.client.delete(workspace, purge=True, force=True)

    def test_slow_stops_of_one_user_do_not_delay_other_idle_stops(self):
        self.addCleanup(self.remove, "a-idle", "b-idle")
        with self.paused_at("stop.after_intent"):
            self.run_as(A, [f"a-idle-{number}" for number in range(6)], idle_stop_s=1)
            harness.wait_until(lambda: len(self.stopping("a-idle")) >= 2, what="A's share of the stoppers")
            self.run_as(B, ["b-idle"], idle_stop_s=1)
            harness.wait_until(lambda: self.stopping("b-idle"), what="the stop of B's idle sandbox")
            self.assertEqual(len(self.stopping("a-idle")), 2)
        harness.wait_until(lambda: len(self.stopping("a-idle")) == 6, what="the stops of all that A has")

    def test_slow_disposals_of_one_user_do_not_delay_those_of_others(self):
        self.addCleanup(self.remove, "a-once", "b-once")
        with self.paused_at("stop.after_intent"):
            self.run_as(A, [f"a-once-{number}" for number in range(3)], disposable=True)
            harness.wait_until(lambda: self.stopping("a-once"), what="A's share of the disposers")
            self.run_as(B, ["b-once"], disposable=True)
            harness.wait_until(lambda: self.stopping("b-once"), what="the removal of B's workspace")
            self.assertEqual(len(self.stopping("a-once")), 1)
        harness.wait_until(lambda: len(self.stopping("a-once")) == 3, what="the removal of all that A has")

    def test_slow_merges_of_one_user_do_not_delay_those_of_others(self):
        deep = 18  # snapshots, after which lower layers are merged

        def snapshots(name):
            for number in range(deep):
                self.client.write_file(name, f"{name}-{number}", b"x")
                self.client.snapshot(name)

        def merged(name):
            """Whether a layer has files of more than one snapshot of it."""
            uppers = [path / "tree/upper" for path in (self.daemon.store / "layers").iterdir()]
            return any(len(list(upper.glob(f"{name}-*"))) > 1 for upper in uppers)

        self.addCleanup(self.remove, "a-deep", "b-deep")
        with self.paused_at("flatten.after_files"):
            names = [f"a-deep-{number}" for number in range(3)]
            self.run_as(A, names)
            self.run_as(B, ["b-deep"])
            for name in names:
                snapshots(name)
            harness.wait_until(lambda: any(map(merged, names)), what="a merge of A's")
            snapshots("b-deep")
            harness.wait_until(lambda: merged("b-deep"), what="the merge of B's")
            self.assertEqual(len(list(filter(merged, names))), 1)
        harness.wait_until(lambda: all(map(merged, names)), what="the merges of all that A has")


if __name__ == "__main__":
    unittest.main()
