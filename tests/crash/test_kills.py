"""SIGKILL at random moments of the daemon, of sandboxes' process 1, of LXC's monitors, of helpers and git, while 20
workspaces and more work. Acknowledged results are kept here, outside of the store, and compared at the end.
"""

import collections
import contextlib
import hashlib
import os
import pathlib
import random
import signal
import threading
import time
import unittest

import rig
from rig import harness, raw_api

WORKSPACES = 20
KILLS = 60  # in the short form
LINES = 3000


class Worker(threading.Thread):
    """One workspace's client. Every request has a key, so that repeats are never done twice."""

    def __init__(self, suite, number):
        super().__init__(name=f"w{number}")
        self.suite, self.client = suite, harness.Client(str(suite.daemon.socket), timeout=120)
        self.chance = random.Random(f"{rig.SEED} worker {number}")
        self.files = {}      # path -> acknowledged bytes
        self.counted = {}    # key -> exec id
        self.journals = {}   # exec id -> output read so far
        self.acknowledged = collections.Counter()
        self.error = None
        self.number = 0

    def run(self):
        try:
            while not self.suite.over.is_set():
                self.number += 1
                self.chance.choice((self.put, self.edit, self.edit, self.count, self.count, self.talk, self.stop))()
        except BaseException as error:  # noqa: BLE001 - raised by the main thread
            self.error = error

    def command(self, script, **fields):
        """Its record after it ended."""
        key = f"{rig.SEED}-{self.name}-{self.number}"
        def start(key):
            return self.client.start_exec(self.name, ["sh", "-c", script], key=key, **fields)
        key, record = rig.keyed(key, start)
        if self.chance.random() < 0.5:
            again = rig.stubborn(lambda: start(key))
            self.suite.assertEqual(again["id"], record["id"], "the same key made another command")
        return self.ended(record["id"])

    def ended(self, exec_id):
        end = time.monotonic() + 120 * harness.PATIENCE
        while time.monotonic() < end:
            record = rig.stubborn(lambda: self.client.wait(exec_id, 5000))
            if record["state"] != "running":
                return record
        raise AssertionError(f"{exec_id} never ended")

    def good(self, record, kind):
        """Whether it ended like an undisturbed one. Otherwise it must be interrupted."""
        if record["state"] == "exited":
            self.suite.assertEqual(record["exit_code"], 0, record)
            self.acknowledged[kind] += 1
            return True
        self.suite.assertEqual(record["state"], "interrupted", record)
        self.suite.assertNotIn("exit_code", record)
        self.acknowledged["interrupted"] += 1
        return False

    def put(self):
        path, data = f"put-{self.number}", self.chance.randbytes(self.chance.randrange(1, 30_000))
        key = f"{rig.SEED}-{self.name}-{self.number}"
        rig.keyed(key, lambda key: self.client.write_file(self.name, path, data, key=key))
        self.files[path] = data
        self.acknowledged["files"] += 1

    def edit(self):
        path, text = f"edit-{self.number}", f"{self.name} {self.chance.random()}"
        if self.good(self.command(f"printf %s '{text}' > {path} && sync {path}"), "edits"):
            self.files[path] = text.encode()

    def count(self):
        key = f"key-{self.number}"
        record = self.command(f"echo {key} >> counter; echo {key} > ~/last")
        self.good(record, "counted")
        self.counted[key] = record

    def talk(self):
        lines = self.chance.randrange(1, LINES)
        key = f"{rig.SEED}-{self.name}-{self.number}"
        script = f"i=0; while [ $i -lt {lines} ]; do i=$((i+1)); echo line $i; done"
        _, record = rig.keyed(key, lambda key: self.client.start_exec(self.name, ["sh", "-c", script], key=key))
        read = b""
        with contextlib.suppress(OSError, raw_api.ApiError):  # the daemon dies: keep the output so far
            with self.client.output(record["id"], follow=True) as stream:
                for kind, payload in stream:
                    read += payload if kind == raw_api.STDOUT else b""
        record = self.ended(record["id"])
        whole = "".join(f"line {i}\n" for i in range(1, lines + 1)).encode()
        kept = rig.stubborn(lambda: self.client.raw_output(record["id"]))
        self.suite.assertTrue(kept.startswith(read), f"{record['id']}: a byte that was read is gone")
        self.suite.assertTrue(whole.startswith(kept), f"{record['id']}: other output than was written")
        if self.good(record, "journals"):
            self.suite.assertEqual(kept, whole, record["id"])
        self.journals[record["id"]] = kept

    def stop(self):
        if self.chance.random() < 0.3:
            rig.stubborn(lambda: self.client.stop(self.name))
            self.acknowledged["stops"] += 1

    def check(self):
        """Compares with the final store. Returns the number of checked edits and journal bytes."""
        digests = self.client.exec(self.name, "sha256sum put-* edit-* 2>/dev/null; echo; cat counter 2>/dev/null").stdout.decode()
        sums, _, counter = digests.partition("\n\n") if digests.startswith("\n") is False else ("", "", digests[1:])
        there = {line.split()[1]: line.split()[0] for line in sums.splitlines()}
        for path, data in self.files.items():
            self.suite.assertEqual(there.get(path), hashlib.sha256(data).hexdigest(), f"{self.name}/{path} was acknowledged")
        runs = collections.Counter(counter.split())
        for key, record in self.counted.items():
            most = 1 if record["state"] == "exited" else None
            self.suite.assertIn(runs[key], (1,) if most else (0, 1), f"{self.name} {key}: {record}")
        for exec_id, kept in self.journals.items():
            self.suite.assertEqual(self.client.raw_output(exec_id), kept, f"{exec_id}: its journal changed")
        return len(self.files), sum(map(len, self.journals.values()))


class Churn(threading.Thread):
    """Creates and deletes workspaces on new upstream commits, to keep git and base trees busy."""

    def __init__(self, suite):
        super().__init__(name="churn")
        self.suite, self.client = suite, harness.Client(str(suite.daemon.socket), timeout=120)
        self.lives, self.error = 0, None

    def run(self):
        try:
            while not self.suite.over.is_set():
                self.live(f"churn-{self.lives}")
                self.lives += 1
        except BaseException as error:  # noqa: BLE001
            self.error = error

    def live(self, name):
        harness.commit(self.suite.upstream / "acme" / "shop", "moved.txt", name)
        key = f"{rig.SEED}-{name}"
        _, made = rig.keyed(f"{key}-new", lambda key: self.client.create(repo_url=self.suite.url, name=name, key=key))
        rig.keyed(key, lambda key: self.client.start_exec(name, ["sh", "-c", "cat moved.txt; sleep 5"], key=key))
        rig.keyed(f"{key}-rm", lambda key: self.client.delete(made["id"], purge=True, force=True, key=key))


class Kills(rig.TestCase):
    settings = {"daemon.reconcile_interval_s": 1}

    def victims(self):
        """kind -> pids, only of this store."""
        marks = f"moorage-{self.daemon.known_store_id}-"
        found = {"daemon": [self.daemon.process.pid], "init": [], "monitor": [], "child": []}
        for pid, line in harness.processes().items():
            with contextlib.suppress(OSError, StopIteration, IndexError):
                if "monitor" in line and marks in line:
                    found["monitor"].append(pid)
                status = pathlib.Path(f"/proc/{pid}/status").read_text()
                if f"PPid:\t{self.daemon.process.pid}\n" in status:
                    found["child"].append(pid)
                if "NSpid:" in status and status.split("NSpid:")[1].split("\n")[0].split()[-1] == "1":
                    if marks in pathlib.Path(f"/proc/{pid}/cgroup").read_text():
                        found["init"].append(pid)
        return found

    def kill_one(self, chance):
        kind = chance.choice(("daemon", "daemon", "init", "init", "monitor", "child"))
        pids = self.victims()[kind]
        if not pids:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice(sorted(pids)), signal.SIGKILL)
        self.killed[kind] += 1
        if kind == "daemon":
            self.daemon.process.wait()
            while chance.random() < 0.25:  # also during the start
                self.daemon.start(wait=False)
                time.sleep(chance.random() * 0.2)
                self.daemon.kill()
                self.killed["start"] += 1
            self.daemon.start()
        return True

    def test_random_kills_lose_nothing(self):
        chance = rig.chance("kills")
        self.over, self.killed = threading.Event(), collections.Counter()
        workers = [Worker(self, number) for number in range(WORKSPACES)]
        for worker in workers:
            self.client.create(repo_url=self.url, name=worker.name)
        threads = [*workers, Churn(self)]
        began = time.monotonic()
        try:
            for thread in threads:
                thread.start()
            while sum(self.killed.values()) < KILLS or time.monotonic() - began < rig.SOAK_S:
                time.sleep(chance.random() * 0.3)
                self.kill_one(chance)
                broken = [thread.error for thread in threads if thread.error]
                if broken:
                    raise broken[0]
        finally:
            self.over.set()
            if self.daemon.process.poll() is not None:
                self.daemon.start()
            for thread in threads:
                thread.join()
        minutes = (time.monotonic() - began) / 60
        for thread in threads:
            if thread.error:
                raise thread.error
        self.assert_at_rest(60)
        checked = [worker.check() for worker in workers]
        done = sum((worker.acknowledged for worker in workers), collections.Counter())
        kills = sum(self.killed.values())
        print(f"{kills} kills {dict(self.killed)}, {kills / minutes:.0f} a minute; acknowledged {dict(done)}, churned {threads[-1].lives}; "
              f"asked back {sum(c[0] for c in checked)} edits, {sum(c[1] for c in checked)} journal bytes: all there")
        for kind in ("daemon", "init", "monitor", "child"):
            self.assertGreater(self.killed[kind], 0, f"no {kind} was killed")
        for kind in ("files", "edits", "counted", "journals"):
            self.assertGreater(done[kind], 0, f"nothing was acknowledged: {kind}")
        for workspace in self.client.workspaces():
            self.client.delete(workspace["id"], purge=True)
        self.assert_at_rest()


if __name__ == "__main__":
    unittest.main()
