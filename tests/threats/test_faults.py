"""Clocks, failing disks, crashes between two steps, secrets in memory: rows 62, 63, 64, 66, 69, 70. For full sweeps see tests/crash."""

import concurrent.futures
import contextlib
import os
import pathlib
import signal
import sqlite3
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "crash"))

import rig  # noqa: E402
from test_syscalls import traced  # noqa: E402
from test_time import FAKETIME, YEAR_S  # noqa: E402
from threat import Threats, daemon, harness, threat  # noqa: E402
from verbs import Lives  # noqa: E402

SECRET = "token-4f1d9a-of-a-client"


class Faults(Threats):
    @threat(62, "C", "the wall clock jumps by ten years and back", "retention uses CLOCK_BOOTTIME with the boot id: nothing is evicted",
            "the time shown for a new workspace jumps too")
    @unittest.skipIf(harness.SANITIZED, "libfaketime and a sanitizer do not go together")
    def test_a_jump_of_the_clock_evicts_nothing(self):
        with daemon({"daemon.reconcile_interval_s": 1}, LD_PRELOAD=FAKETIME, FAKETIME_TIMESTAMP_FILE=str(self.libexec / "now"),
                    FAKETIME_DONT_FAKE_MONOTONIC="1", FAKETIME_NO_CACHE="1") as other:
            now, years = self.libexec / "now", set()
            harness.make_repository(other.directory / "repository")
            url = f"file://{other.directory}/repository"
            kept = other.client.create(repo_url=url, name="kept")["id"]
            other.client.delete("kept")
            for number, jump in enumerate((10, -10, 0)):
                now.write_text(f"{jump * YEAR_S:+d}")
                years.add(other.client.create(repo_url=url, name=f"at-{number}")["created_at"][:4])
                seen = len(other.client.workspaces())
                other.kill()
                other.start()  # includes the purge of every start
                self.assertEqual(len(other.client.workspaces()), seen)
            self.assertEqual(len(years), 3)
            other.client.undelete(kept)

    @threat(63, "C", "the disk fails an fsync, and the next one is fine", "the daemon acknowledges nothing more and exits 1; the next start checks the disk",
            "the same write without the failure is acknowledged")
    def test_a_failed_sync_is_never_acknowledged(self):
        self.client.write_file("jail", "synced", b"before")
        pid = self.daemon.process.pid
        with traced(pid, "-o", "/dev/null", "-e", "inject=fsync:error=EIO:when=1"), self.assertRaises((harness.raw_api.ApiError, OSError)):
            self.client.write_file("jail", "synced", b"after")
        self.assertEqual(self.daemon.process.wait(10), 1)
        self.daemon.start()
        self.assertEqual(self.client.read_file("jail", "synced"), b"before")
        self.client.write_file("jail", "synced", b"after")
        self.assertEqual(self.client.read_file("jail", "synced"), b"after")

    @threat(64, "C", "a crash between any two steps of create, exec, start, stop, delete and purge",
            "the intent is written first, and the next start finishes or undoes it: no orphans, no acknowledged work lost, no command runs twice",
            "a crash point that no verb reaches fails the test")
    def test_a_crash_between_two_steps_is_recovered(self):
        lives = Lives(self)
        points = harness.run(harness.BIN / "mooraged", "--list-crash-points").stdout.decode().split()
        swept = [p for p in points if p.split(".")[0] in ("create", "exec", "start", "stop", "delete", "purge", "file")]
        self.assertGreater(len(swept), 15)
        for number, point in enumerate(swept):
            with self.subTest(point):
                self.daemon.kill()
                self.daemon.start(crash_at=point)
                died = lives.run("workspace", f"death-{number}")
                self.assertEqual(self.daemon.process.wait(10), -signal.SIGKILL, died)
                self.daemon.start()
                lives.settle(f"death-{number}")

    @threat(69, "H", "a fork takes longer than its daemon expects, while the reconciler searches for interrupted work",
            "a verb holds its row from the first write on: no decision depends on age",
            "the same row without a verb is undone by the next start")
    def test_a_slow_fork_is_not_abandoned(self):
        with daemon({"daemon.reconcile_interval_s": 1}) as other:
            harness.make_repository(other.directory / "repository")
            other.client.create(repo_url=f"file://{other.directory}/repository", name="slow")
            gate = other.directory / "gate"
            other.kill()
            other.environment["MOORAGE_PAUSE_AT"] = f"snapshot.after_layers={gate}"
            other.start()

            def forks():
                return [w["state"] for w in other.client.workspaces() if w["name"].startswith("slow-")]

            def age():
                with contextlib.closing(sqlite3.connect(other.store / "state.db", timeout=10)) as database, database:
                    database.execute("UPDATE workspaces SET created_wall_ms = created_wall_ms - 3600000")

            for dies in (False, True):
                gate.touch()
                with concurrent.futures.ThreadPoolExecutor(1) as pool:
                    forking = pool.submit(other.client.fork, "slow", count=2)
                    harness.wait_until(gate.with_name("gate.reached").exists, what="the fork")
                    age()
                    other.reconcile()
                    self.assertEqual(forks()[-2:], ["creating"] * 2)
                    if dies:
                        other.kill()
                    gate.unlink()
                    gate.with_name("gate.reached").unlink()
                    if dies:
                        self.assertRaises(OSError, forking.result, 60)
                    else:
                        self.assertEqual([w["state"] for w in forking.result(60)], ["ready"] * 2)
            other.start()
            self.assertEqual(forks(), ["ready"] * 2)

    @threat(70, "H", "a request is repeated with its key after it failed, while it runs, and after the daemon died in it",
            "it gets the first final answer, including errors; 409 while it runs; undone work is done once",
            "the same request with a new key succeeds")
    def test_a_repeat_never_reports_undone_work(self):
        self.client.write_file("jail", "kept", b"kept")
        with contextlib.closing(sqlite3.connect(f"file:{self.daemon.store}/state.db?mode=ro", uri=True)) as database:
            (last,), = database.execute("SELECT seq FROM sqlite_sequence WHERE name = 'layers'")
        before = len(self.client.snapshots("jail"))
        in_the_way = [self.daemon.store / "layers" / f"ly_{last + n}" for n in range(1, 4)]
        for path in in_the_way:
            path.touch()  # in the place of the next layer's directory
        failed = {}
        for call in (lambda key: self.client.snapshot("jail", name="state", key=key), lambda key: self.client.fork("jail", count=1, key=key)):
            key = f"threat-70-{len(failed)}"
            with self.assertRaises(harness.raw_api.ApiError) as refused:
                call(key)
            failed[key] = (call, (refused.exception.status, refused.exception.message))
        for path in in_the_way:
            path.unlink(missing_ok=True)
        for key, (call, first) in failed.items():
            with self.assertRaises(harness.raw_api.ApiError) as again:
                call(key)
            self.assertEqual((again.exception.status, again.exception.message), first)
        self.assertEqual(len(self.client.snapshots("jail")), before)
        for key, (call, _) in failed.items():
            self.assertTrue(call(f"{key}-new"))
        for workspace in self.client.workspaces():
            if workspace["name"].startswith("jail-"):
                self.client.delete(workspace["id"], purge=True)
        self.client.drop_snapshot("jail", "state")

    assert_at_rest = rig.TestCase.assert_at_rest

    @threat(66, "M", "a client's secret in a core file, an environment, a command line or a log of moorage",
            "no core is written; moorage's processes have a new environment; the log has no values; a URL with a password is refused without repeating it",
            "the same check finds the secret in the command that received it")
    def test_secrets_stay_in_their_command(self):
        record = self.client.start_exec("jail", ["sleep", "1000"], env={"TOKEN": SECRET})
        harness.wait_until(lambda: self.holders(), what="the command has its secret")
        with self.assertRaises(harness.raw_api.ApiError) as refused:
            self.client.create(repo_url=f"https://user:{SECRET}@127.0.0.1:1/a/b", name="secret")
        self.assertNotIn(SECRET, str(refused.exception))
        self.assertEqual(self.holders(), ["sleep 1000"])
        pids = self.daemon.sandbox_pids("jail")
        for pid in (self.daemon.process.pid, pids["init"], pids["monitor"]):
            limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
            self.assertEqual(limits.split("Max core file size")[1].split()[:2], ["0", "0"], harness.processes().get(pid))
        # The files of a process that is not dumpable belong to the host's root, whatever its user.
        self.assertEqual(os.stat(f"/proc/{pids['init']}/environ").st_uid, 0)
        self.assertNotIn(SECRET, self.daemon.log.read_text())
        self.client.cancel(record["id"])

    @staticmethod
    def holders():
        """Command lines of other processes with the secret in their environment or command line."""
        found = []
        for pid, line in harness.processes().items():
            try:
                if pid != os.getpid() and SECRET in line + pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace"):
                    found.append(line)
            except OSError:
                pass  # it has ended
        return found


if __name__ == "__main__":
    unittest.main()
