"""Disks that fail, fill up, run out of inodes or turn read-only; exhausted descriptors; damaged files."""

import contextlib
import os
import pathlib
import shutil
import signal
import sqlite3
import tempfile
import threading
import unittest

import rig
from power import Machine, make_image
from rig import harness, raw_api
from test_syscalls import traced
from verbs import Lives

SYNCS = "fsync,fdatasync,syncfs"
DEATHS = 6  # in the short form
FREED = 50  # files to remove for new inodes


class SmallDisk(unittest.TestCase):
    """A daemon with its store on a separate ext4, which may be damaged."""

    make = ()
    settings = {"store.reserve_bytes": 4 << 20}

    def setUp(self):
        directory = pathlib.Path(tempfile.mkdtemp(prefix="moorage-disk-", dir=harness.BASE))
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        harness.make_repository(directory / "acme" / "shop")
        self.git_server = harness.GitServer(directory)
        self.addCleanup(self.git_server.stop)
        self.url = self.git_server.url("acme/shop")
        self.image = make_image("ext4", directory / "disk.img", *self.make)
        self.machine = Machine("ext4", image=self.image, settings=self.settings)
        self.addCleanup(self.machine.close)
        self.daemon = self.machine.start().daemon
        self.client = self.daemon.client

    def at_rest(self):
        harness.wait_until(lambda: not self.client.execs(running=True), what="every command's end")
        self.assertEqual(self.machine.namespace.inside(lambda: rig.at_rest(self.daemon.store)), [])


class Inodes(SmallDisk):
    make = ("-N", "1024")

    def test_running_out_of_inodes_leaves_nothing_incomplete(self):
        self.client.create(repo_url=self.url, name="work")
        self.client.write_file("work", "before", b"before")
        used = self.client.exec("work", "i=0; while : > many-$i; do i=$((i+1)); done 2>/dev/null; echo $i")
        self.assertGreater(int(used.stdout), FREED)
        for name in ("one", "two"):
            with self.assertRaises(raw_api.ApiError) as refused:
                self.client.create(repo_url=self.url, name=name)
            self.assertEqual(refused.exception.code, "resource_exhausted")
        with self.assertRaises(raw_api.ApiError) as refused:
            self.client.write_file("work", "new", b"x")
        self.assertEqual(refused.exception.code, "resource_exhausted")
        for number in range(FREED):
            self.client.remove_file("work", f"many-{number}")
        self.assertEqual(self.client.exec("work", "rm many-*; cat before").stdout, b"before")
        self.client.create(repo_url=self.url, name="one")
        self.assertEqual(self.client.exec("one", "cat README.md").stdout, b"hello\n")
        self.at_rest()


class Full(SmallDisk):
    def test_eight_workspaces_fill_the_disk_and_all_recover(self):
        names = [f"w{number}" for number in range(8)]
        for name in names:
            self.client.create(repo_url=self.url, name=name)
            self.client.write_file(name, "before", name.encode())
        ends = {}
        threads = [threading.Thread(target=lambda n=name: ends.update({n: self.client.exec(n, "cat /dev/zero > big")})) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for end in ends.values():  # no free byte, or ended by the guard with a report
            self.assertTrue(end.exit_code == 1 or end.exec["category"] == "disk_full", end.exec)
        for name in names:
            self.assertEqual(self.client.read_file(name, "before"), name.encode())
            self.assertEqual(self.client.exec(name, "rm big; echo gone", free_space=True).stdout, b"gone\n")
        for name in names:
            self.client.write_file(name, "after", b"after")
        self.at_rest()


class ReadOnly(SmallDisk):
    make = ("-e", "remount-ro")

    def test_a_disk_that_turns_read_only_acknowledges_nothing(self):
        self.client.create(repo_url=self.url, name="work")
        self.client.write_file("work", "before", b"before")
        self.client.stop("work")
        namespace, store = self.machine.namespace, self.daemon.store
        device = namespace.run("findmnt", "-n", "-o", "SOURCE", store).stdout.decode().strip()
        pathlib.Path(f"/sys/fs/ext4/{os.path.basename(device)}/trigger_fs_error").write_text("tried by a test")
        for call in (lambda: self.client.write_file("work", "new", b"x"), lambda: self.client.create(repo_url=self.url, name="new")):
            with self.assertRaises((raw_api.ApiError, OSError)):
                call()
        self.daemon.kill()
        namespace.run("umount", store)
        harness.run("e2fsck", "-fy", self.image, check=False)  # 1: it repaired something
        namespace.run("mount", "-o", "loop", self.image, store)
        self.machine.start()
        self.assertEqual([w["name"] for w in self.client.workspaces()], ["work"])
        self.assertEqual(self.client.exec("work", "cat before; ls new 2>/dev/null").stdout, b"before")
        self.at_rest()


class Sealed(rig.TestCase):
    settings = {"workspace.sync_interval_s": 3600, "daemon.reconcile_interval_s": 3600}

    def test_a_seal_is_written_after_its_files(self):
        """Otherwise a power cut may keep only the seal, and the lost files count as a change from outside."""
        made = self.client.create(repo_url=self.url, name="sealed")
        trace = self.daemon.directory / "calls"
        with traced(self.daemon.process.pid, "-y", "-e", "trace=syncfs,fdatasync", "-o", str(trace)):
            self.client.write_file("sealed", "file", b"x")
            seals = "SELECT seal FROM workspace_integrity WHERE seal <> '' AND workspace = ?"
            harness.wait_until(lambda: rig.rows(self.daemon.store, seals, int(made["id"][3:])), what="the seal")
        calls = [line.split()[1].split("(")[0] for line in trace.read_text().splitlines() if "sync(" in line or "syncfs(" in line]
        self.assertEqual(calls[-2:], ["syncfs", "fdatasync"], calls)


class Broken(rig.TestCase):
    def test_a_failed_sync_ends_the_daemon_and_the_next_start_has_everything(self):
        """Row 63. At the n-th sync of each kind, by the daemon or by git."""
        chance, lives = rig.chance("sync errors"), Lives(self)
        plan = [(call, n) for call, most in (("fsync", 9), ("fdatasync", 12), ("syncfs", 3)) for n in range(1, most + 1)]
        exits = 0
        for number, (call, n) in enumerate(chance.sample(plan, len(plan) if rig.SOAK_S else DEATHS)):
            with self.subTest(f"{call} {n}"):
                name = f"eio-{number}"
                with traced(self.daemon.process.pid, "-o", "/dev/null", "-e", f"inject={call}:error=EIO:when={n}"):
                    error = lives.run("workspace", name)
                    with contextlib.suppress(AssertionError):  # the database fails within a second
                        harness.wait_until(lambda: self.daemon.process.poll() is not None, 3 if error else 0.1)
                code = self.daemon.process.poll()
                if code is None:
                    self.daemon.kill()
                else:
                    exits += 1
                    self.assertEqual(code, 1, self.daemon.log_tail())
                    self.assertIn("daemon.store_failed", self.daemon.log_tail())
                self.daemon.start()
                lives.settle(name)
        print(f"{exits} daemons ended at a failed sync")
        self.assertGreater(exits, 0)

    def test_a_database_with_a_damaged_page_stays_unmodified(self):
        self.client.create(repo_url=self.url, name="damaged")
        self.daemon.stop()
        file = self.daemon.store / "state.db"
        whole = file.read_bytes()
        try:
            with open(file, "r+b") as database:  # like after a crash, as an orderly end is trusted
                with contextlib.closing(sqlite3.connect(file)) as marked:
                    marked.execute("UPDATE meta SET value = '0' WHERE name = 'clean'")
                    marked.commit()
                    marked.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                database.seek(len(whole) // 4096 // 2 * 4096)
                database.write(os.urandom(4096))
            damaged = file.read_bytes()
            self.daemon.start(wait=False)
            harness.wait_until(self.daemon.answers, what="rescue mode")
            # SQLite's own error, if the page belongs to the schema.
            self.assertRegex(self.client.health()["rescue"], "state.db is damaged|state.db: database disk image is malformed")
            with self.assertRaises(raw_api.ApiError) as refused:
                self.client.exec("damaged", "true")
            self.assertEqual(refused.exception.code, "unavailable")
            self.assertEqual(file.read_bytes(), damaged, "nothing was written to it")
        finally:
            self.daemon.kill()
            for copy in self.daemon.store.glob("state.db.damaged-*"):
                self.assertEqual((copy / "state.db").read_bytes(), damaged)
                shutil.rmtree(copy)
            for log in self.daemon.store.glob("state.db-*"):
                log.unlink()
            file.write_bytes(whole)
            self.daemon.start()
        self.assertEqual(self.client.exec("damaged", "cat README.md").stdout, b"hello\n")
        self.client.delete("damaged", purge=True)

    def test_a_journal_with_a_damaged_tail_returns_the_output_before_it(self):
        self.client.create(repo_url=self.url, name="tail")
        record = self.client.start_exec("tail", ["sh", "-c", "for i in 1 2 3; do echo line $i; sleep 0.1; done; sleep 1000"])
        harness.wait_until(lambda: self.client.raw_output(record["id"]) == b"line 1\nline 2\nline 3\n", what="output")
        init = self.daemon.sandbox_pids("tail")["init"]
        self.daemon.kill()
        os.kill(init, signal.SIGKILL)
        journal = next((self.daemon.store / "workspaces").glob(f"*/journal/{record['id']}/output"))
        harness.run("chattr", "-a", journal)
        data = journal.read_bytes()
        journal.write_bytes(data[:-3] + b"\xff" * 100)
        self.daemon.start()
        end = self.client.wait(record["id"], 20_000)
        self.assertEqual(end["state"], "interrupted")
        kept = self.client.raw_output(record["id"])
        self.assertTrue(kept.startswith(b"line 1\nline 2\n") and b"line 1\nline 2\nline 3\n".startswith(kept), kept)
        self.client.delete("tail", purge=True)
        self.assert_at_rest()

    def test_running_out_of_descriptors_only_refuses_calls(self):
        self.client.create(repo_url=self.url, name="files")
        self.client.exec("files", "true")
        pid = self.daemon.process.pid
        usual = harness.run("prlimit", "--pid", pid, "--nofile", "--output", "SOFT", "--noheadings").stdout.decode().strip()
        harness.run("prlimit", "--pid", pid, f"--nofile={len(os.listdir(f'/proc/{pid}/fd')) + 3}:")
        refused = 0
        for number in range(20):
            try:
                self.client.exec("files", f"echo {number} >> done")
            except (raw_api.ApiError, OSError) as error:
                refused += 1
                self.assertNotEqual(getattr(error, "code", ""), "internal", error)
        harness.run("prlimit", "--pid", pid, f"--nofile={usual}:")
        self.assertGreater(refused, 0)
        self.assertEqual(self.client.exec("files", "wc -l < done || echo 0").exit_code, 0)
        self.client.delete("files", purge=True)
        self.assert_at_rest()

    def test_a_database_backup_during_a_create_loses_no_work(self):
        self.client.create(repo_url=self.url, name="first")  # mirror and base tree exist
        backup = self.daemon.directory / "backup.db"
        gate = self.daemon.directory / "gate"
        gate.touch()
        self.daemon.stop()
        self.daemon.environment["MOORAGE_PAUSE_AT"] = f"create.after_intent={gate}"
        self.daemon.start()
        del self.daemon.environment["MOORAGE_PAUSE_AT"]
        creating = threading.Thread(target=lambda: self.client.create(repo_url=self.url, name="second"))
        creating.start()
        harness.wait_until(gate.with_name("gate.reached").exists, what="a create in its middle")
        with contextlib.closing(sqlite3.connect(self.daemon.store / "state.db")) as source, contextlib.closing(sqlite3.connect(backup)) as target:
            source.backup(target)
        gate.unlink()
        creating.join()
        with contextlib.closing(sqlite3.connect(backup)) as database:
            self.assertEqual(database.execute("SELECT state FROM workspaces WHERE name = 'second'").fetchone(), ("creating",))
        self.client.exec("second", "echo precious > work", sync=True)
        self.client.stop("second")
        self.daemon.stop()
        for log in self.daemon.store.glob("state.db-*"):
            log.unlink()
        shutil.copyfile(backup, self.daemon.store / "state.db")
        self.daemon.start()
        self.assertEqual(self.client.exec("second", "cat work; git status --porcelain").stdout, b"precious\n?? work\n")
        for name in ("first", "second"):
            self.client.delete(name, purge=True)
        self.assert_at_rest()


if __name__ == "__main__":
    unittest.main()
