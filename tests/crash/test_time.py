"""Clock jumps, stopped processes, a sandbox left frozen, a slow disk: nothing is evicted or lost."""

import contextlib
import os
import pathlib
import signal
import threading
import time
import unittest

import rig
from rig import harness, raw_api

YEAR_S = 365 * 86400
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"
JUMPS = 50


class Jumps(rig.TestCase):
    settings = {"daemon.reconcile_interval_s": 1, "workspace.undelete_window_s": 3600}

    def test_no_jump_of_the_wall_clock_evicts_anything(self):
        """Row 62. Only the daemon's wall clock jumps; its other clocks continue."""
        chance = rig.chance("jumps")
        now = self.daemon.directory / "now"
        now.write_text("+0")
        self.daemon.stop()
        self.daemon.environment |= {"LD_PRELOAD": FAKETIME, "FAKETIME_TIMESTAMP_FILE": str(now), 
                                    "FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_NO_CACHE": "1"}
        self.daemon.start()
        self.client.create(repo_url=self.url, name="deleted")
        self.client.write_file("deleted", "kept", b"kept")
        self.client.delete("deleted")
        self.client.create(repo_url=self.url, name="idle")
        record = self.client.start_exec("idle", ["sh", "-c", "sleep 1000"])
        seen = set()
        for number in range(JUMPS):
            now.write_text(f"{chance.choice((-20, -10, -1, 1, 10, 50)) * YEAR_S + chance.randrange(86400):+d}")
            time.sleep(0.05 if number % 10 else 1.5)  # sometimes long enough for a round of upkeep
            if number % 10 == 5:
                self.daemon.restart()
            self.client.create(repo_url=self.url, name=f"at-{number}")
            made = self.client.workspace(f"at-{number}")["created_at"]
            seen.add(str(made)[:4])
        self.assertGreater(len(seen), 2, f"the clock did not jump: {seen}")
        live = {w["name"] for w in self.client.workspaces()}
        self.assertEqual(live, {"idle", *(f"at-{number}" for number in range(JUMPS))})
        self.assertEqual(self.client.get_exec(record["id"])["state"], "running")
        self.client.undelete(next(w["id"] for w in self.client.workspaces(deleted=True) if w["name"] == "deleted"))
        self.assertEqual(self.client.read_file("deleted", "kept"), b"kept")
        self.client.cancel(record["id"])
        self.assert_at_rest()


class Stopped(rig.TestCase):
    settings = {"daemon.reconcile_interval_s": 1}

    def test_a_stopped_daemon_continues_correctly(self):
        self.client.create(repo_url=self.url, name="work")
        record = self.client.start_exec("work", ["sh", "-c", "i=0; while [ $i -lt 20 ]; do i=$((i+1)); echo $i; sleep 0.1; done; exit 5"])
        os.kill(self.daemon.process.pid, signal.SIGSTOP)
        asked = threading.Thread(target=self.client.create, kwargs={"repo_url": self.url, "name": "asked"})
        asked.start()
        time.sleep(3)  # longer than the command runs
        os.kill(self.daemon.process.pid, signal.SIGCONT)
        asked.join()
        end = self.client.wait(record["id"], 20_000)
        self.assertEqual((end["state"], end["exit_code"]), ("exited", 5))
        self.assertEqual(self.client.raw_output(record["id"]), "".join(f"{i}\n" for i in range(1, 21)).encode())
        self.assertEqual(self.client.workspace("asked")["state"], "ready")
        for name in ("work", "asked"):
            self.client.delete(name, purge=True)
        self.assert_at_rest()

    def test_a_sandbox_left_frozen_is_thawed_at_start(self):
        self.client.create(repo_url=self.url, name="frozen")
        record = self.client.start_exec("frozen", ["sh", "-c", "sleep 1; echo over"])
        name = self.daemon.sandbox_pids("frozen")["name"]
        freeze = next(pathlib.Path(top) for top, _, files in os.walk("/sys/fs/cgroup") if os.path.basename(top) == name and "cgroup.freeze" in files)
        self.daemon.kill()
        (freeze / "cgroup.freeze").write_text("1")
        try:
            harness.wait_until(lambda: "frozen 1" in (freeze / "cgroup.events").read_text(), what="it is frozen")
            self.daemon.start()
            harness.wait_until(lambda: "frozen 0" in (freeze / "cgroup.events").read_text(), what="it is thawed")
        finally:
            with contextlib.suppress(OSError):
                (freeze / "cgroup.freeze").write_text("0")
        end = self.client.wait(record["id"], 20_000)
        self.assertEqual((end["state"], end["exit_code"]), ("exited", 0))
        self.assertEqual(self.client.raw_output(record["id"]), b"over\n")
        self.client.delete("frozen", purge=True)
        self.assert_at_rest()


class Slow(rig.TestCase):
    SYNC_MS = 20  # extra time of each sync

    def test_a_slow_disk_only_makes_everything_slower(self):
        self.daemon.stop()
        self.daemon.environment |= {"LD_PRELOAD": rig.BROKEN, "BROKEN": f"slow-sync={self.SYNC_MS}"}
        self.daemon.start()
        began = time.monotonic()
        self.client.create(repo_url=self.url, name="slow")
        self.client.write_file("slow", "file", b"slow")
        took_ms = (time.monotonic() - began) * 1000
        self.assertGreater(took_ms, 3 * self.SYNC_MS, "the syncs were not slowed")
        self.assertEqual(self.client.exec("slow", "cat file", sync=True).stdout, b"slow")
        self.client.delete("slow", purge=True)
        self.assert_at_rest()

    def test_a_stop_does_not_wait_for_restartable_work(self):
        """A merge of many snapshots' layers, held after its files are written, without any waiting lock or client."""
        held = self.daemon.directory / "held"
        held.touch()
        self.daemon.stop()
        self.daemon.environment["MOORAGE_PAUSE_AT"] = f"flatten.after_files={held}"
        self.daemon.start()
        self.client.create(repo_url=self.url, name="merged")
        for n in range(30):
            self.client.write_file("merged", f"n{n}", b"x")
            self.client.snapshot("merged")
        harness.wait_until(held.with_name("held.reached").exists, what="a merge in its middle")
        self.daemon.process.terminate()
        try:
            self.assertEqual(self.daemon.process.wait(20 * harness.PATIENCE), 0)
        finally:
            held.unlink()
        self.assertNotIn("layers.flattened", self.daemon.log.read_text(), "the merge was not held")
        self.daemon.start()
        self.client.snapshot("merged")
        harness.wait_until(lambda: "layers.flattened" in self.daemon.log.read_text(), what="the merge is made again")
        self.assertEqual(self.client.exec("merged", "ls -d n* | wc -l").stdout.strip(), b"30")
        self.client.delete("merged", purge=True)
        self.assert_at_rest()


if __name__ == "__main__":
    unittest.main()
