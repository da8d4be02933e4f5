"""A store on a disk that fills up: nothing is lost, errors say so, and space can be freed."""

import contextlib
import os
import sqlite3
import subprocess
import threading
import time
import unittest

import harness
import raw_api

DISK_BYTES = 160 << 20


class SmallDisk:
    """An ext4 image mounted as the future store."""

    def __init__(self, directory):
        self.image, self.place = directory / "disk.img", directory / "store"
        with open(self.image, "wb") as file:
            file.truncate(DISK_BYTES)
        harness.run("mkfs.ext4", "-q", "-F", self.image)
        harness.run("mount", "-o", "loop", self.image, self.place)
        os.chmod(self.place, 0o700)

    def free(self):
        status = os.statvfs(self.place)
        return status.f_bavail * status.f_frsize

    def close(self):
        harness.run("umount", self.place)


class DiskTest(unittest.TestCase):
    settings = {}

    def setUp(self):
        self.daemon = harness.Daemon({"store.reserve_bytes": 4 << 20, "sandbox.stop_grace_s": 1} | self.settings)
        self.addCleanup(lambda: harness.run("rm", "-rf", self.daemon.directory))
        self.disk = SmallDisk(self.daemon.directory)
        self.addCleanup(self.disk.close)
        self.addCleanup(self.daemon.close)
        upstream = self.daemon.directory / "upstream"
        harness.make_repository(upstream / "acme" / "shop")
        self.git_server = harness.GitServer(upstream)
        self.addCleanup(self.git_server.stop)
        self.daemon.start()
        self.client = self.daemon.client
        self.url = self.git_server.url("acme/shop")
        self.client.create(repo_url=self.url, name="work")

    def check(self, name="disk room"):
        return next(c for c in self.client.info()["checks"] if c["name"] == name)

    def fill_to(self, free_bytes):
        """Fills it from outside, like another program on the host."""
        with open(self.disk.place / "fill", "ab") as file:
            os.posix_fallocate(file.fileno(), 0, file.tell() + self.disk.free() - free_bytes)

    def refused(self, call, *args, **fields):
        with self.assertRaises(raw_api.ApiError) as caught:
            call(*args, **fields)
        self.assertEqual(caught.exception.code, "resource_exhausted")
        self.assertIn("nearly full", caught.exception.message)
        self.assertIn("moorage gc --explain", caught.exception.hint)
        self.assertIn("moorage du", caught.exception.hint)
        return caught.exception


class FullDisk(DiskTest):
    """Without reserved space, or with a writer faster than the guard."""

    settings = {"store.min_free_bytes": 1, "store.min_free_inodes": 1}

    def fill_from_inside(self):
        ended = self.client.exec("work", "head -c 1G /dev/zero >big")
        self.assertNotEqual(ended.exit_code, 0)
        self.assertIn(b"No space left", ended.stderr)
        self.assertEqual(ended.exec["category"], "disk_full")
        self.assertLess(self.disk.free(), 64 << 10)
        # ext4's reserve for root (5 %) is still free. If root itself lacks CAP_SYS_RESOURCE, as in some virtual machines, this proves only
        # half of the protection from agents.
        status = os.statvfs(self.disk.place)
        self.assertGreater(status.f_bfree * status.f_frsize, DISK_BYTES // 40)

    def test_an_agent_fills_it_and_a_short_command_frees_it(self):
        self.fill_from_inside()
        # Short commands run and end, also after a restart of the sandbox; workspaces stay visible.
        self.assertEqual(self.client.exec("work", "echo still here", free_space=True).stdout, b"still here\n")
        self.assertEqual(self.client.workspaces()[0]["name"], "work")
        self.client.stop("work")
        self.client.start("work")
        self.assertEqual(self.client.exec("work", "rm big && git status --porcelain", free_space=True).stdout, b"")
        self.assertEqual(self.client.create(repo_url=self.url, name="next")["state"], "ready")

    def fill_from_outside(self):
        """Fills it as a user other than root: to the last byte, including the reserve released by the daemon."""
        fill = self.disk.place / "fill"
        self.addCleanup(fill.unlink, missing_ok=True)
        with open(fill, "ab", buffering=0) as file:
            for size in ("1M", "4k"):
                subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "dd", "if=/dev/zero", f"bs={size}"],
                               stdout=file, stderr=subprocess.DEVNULL, check=False)
        self.assertLess(self.disk.free(), 64 << 10)

    def test_the_file_api_can_remove_files_on_a_full_disk(self):
        """In a sandbox; when idle, where a mount needs some space, with the reserve and after it is used up."""
        for name in ("rests", "later"):
            self.client.create(repo_url=self.url, name=name)
        for name in ("rests", "later", "work"):
            self.client.exec(name, "mkdir -p d/e && head -c 4M /dev/zero >big && cp big d/e/big")
        self.client.stop("rests")
        self.client.stop("later")
        self.fill_from_outside()
        self.client.remove_file("rests", "big")
        for path in ("big", "README.md", "d"):
            for name in ("later", "work"):
                with self.subTest(path, workspace=name):
                    (self.disk.place / "reserve").unlink(missing_ok=True)
                    self.fill_from_outside()
                    self.client.remove_file(name, path, recursive=path == "d")
        self.assertEqual({e["name"] for e in self.client.list_files("work")["entries"]}, {".git", "src"})
        (self.disk.place / "fill").unlink()
        self.daemon.restart()
        for name in ("later", "work"):
            self.assertEqual(self.client.exec(name, "ls").stdout, b"src\n")
        self.assertEqual(self.client.exec("rests", "ls").stdout, b"README.md\nd\nsrc\n")

    def test_rm_as_a_command_works_on_a_full_disk(self):
        self.client.exec("work", "head -c 4M /dev/zero >big")
        self.fill_from_outside()
        self.assertEqual(self.client.exec("work", ["rm", "big"]).exit_code, 0)
        self.assertNotIn("big", {e["name"] for e in self.client.list_files("work")["entries"]})

    def test_output_waits_for_space_and_is_complete(self):
        self.fill_from_inside()
        talker = self.daemon.cli_popen("exec", "--free-space", "work", "--", "sh", "-c", "yes 0123456 | head -c 8000000",
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        impatience = threading.Timer(60, talker.kill)
        impatience.start()
        notice = talker.stderr.readline()
        impatience.cancel()
        self.assertIn(b"the disk of the store is full", notice)
        self.assertEqual(self.client.exec("work", "rm big", free_space=True).exit_code, 0)
        out, _ = talker.communicate(timeout=60)
        self.assertEqual(talker.returncode, 0)
        self.assertEqual(out, b"0123456\n" * 1_000_000)

    def test_a_failed_create_leaves_nothing_behind(self):
        fill = self.disk.place / "fill"
        self.addCleanup(fill.unlink, missing_ok=True)
        with self.assertRaises(OSError), open(fill, "wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        failed = self.daemon.cli("create", "--repo", self.url, "--name", "second", check=False)
        self.assertEqual(failed.returncode, 1)
        # The first write without space varies: each of them reports it.
        self.assertIn(b"full", failed.stderr)
        self.assertIn(b"hint:", failed.stderr)
        fill.unlink()
        self.daemon.cli("rm", "second", check=False)
        back = self.daemon.cli("undelete", "second", check=False)
        self.assertNotEqual(back.returncode, 0)
        self.assertEqual([w["name"] for w in self.client.workspaces()], ["work"])
        self.assertEqual(self.client.create(repo_url=self.url, name="second")["state"], "ready")
        self.assertEqual(self.client.exec("second", "cat README.md").stdout, b"hello\n")


class GuardedDisk(DiskTest):
    settings = {"store.min_free_bytes": 32 << 20}

    def test_verbs_that_need_space_are_refused_and_verbs_that_free_it_work(self):
        self.client.exec("work", "dd if=/dev/zero of=big bs=1M count=8 2>/dev/null")
        self.client.write_file("work", "kept", b"kept")
        self.client.create(repo_url=self.url, name="spare")
        self.assertTrue(self.check()["ok"])
        self.fill_to(24 << 20)
        self.refused(self.client.start_exec, "work", ["true"])
        self.refused(self.client.create, repo_url=self.url, name="next")
        self.refused(self.client.write_file, "work", "more", b"x")
        self.refused(self.client.make_directory, "work", "dir")
        self.refused(self.client.import_bundle, "/somewhere", b"x")
        told = self.refused(self.client.add_repo, self.url)
        self.assertIn("32M", told.message)  # needed and free space
        self.assertRegex(told.message, r"2[0-9](\.[0-9])?M and [0-9]+ files free")
        self.assertFalse(self.check()["ok"])
        metrics = self.daemon.cli("info").stdout.decode()
        self.assertIn("reserved", metrics)
        # Reading, stop and start, removal of files and of workspaces, and a command with a report.
        self.assertEqual(self.client.read_file("work", "kept"), b"kept")
        self.client.stop("work")
        self.client.remove_file("work", "kept")
        freeing = self.daemon.cli("exec", "work", "--", "sh", "-c", "rm big", check=False)
        self.assertIn(b"moorage exec NAME -- rm FILE", freeing.stderr)
        self.assertEqual(self.daemon.cli("exec", "work", "--", "rm", "big").returncode, 0)  # as in the hint
        self.client.exec("work", "touch more", free_space=True)
        self.assertEqual(self.daemon.cli("exec", "work", "--", "/usr/bin/rm", "more").returncode, 0)
        self.client.delete("spare", purge=True)
        (self.disk.place / "fill").unlink()
        self.assertEqual(self.client.exec("work", "echo goes on").stdout, b"goes on\n")
        self.assertTrue(self.check()["ok"])

    def test_rm_works_without_its_snapshot_and_reports_that(self):
        self.client.update("work", snapshot_before_exec=True)
        self.client.exec("work", "head -c 4M /dev/zero >big")
        taken = len(self.client.snapshots("work"))
        self.fill_to(24 << 20)
        removed = self.daemon.cli("exec", "work", "--", "rm", "big")
        self.assertIn(b"skipped the snapshot before it", removed.stderr)
        self.assertEqual(len(self.client.snapshots("work")), taken)
        (self.disk.place / "fill").unlink()
        self.assertEqual(self.daemon.cli("exec", "work", "--", "rm", "README.md").stderr, b"")
        self.assertEqual(len(self.client.snapshots("work")), taken + 1)

    def test_a_checkout_ends_before_the_disk_does(self):
        large = {f"large-{number}": bytes(1 << 20) + bytes([number]) for number in range(200)}
        harness.make_repository(self.daemon.directory / "upstream" / "acme" / "large", large)
        told = self.refused(self.client.create, repo_url=self.git_server.url("acme/large"), name="large")
        self.assertIn("the files of acme/large do not fit", told.message)
        self.assertGreater(self.disk.free(), 100 << 20)  # the written files were removed
        self.assertEqual([w["name"] for w in self.client.workspaces()], ["work"])
        self.assertEqual(self.client.exec("work", "echo goes on").stdout, b"goes on\n")

    def test_an_upload_ends_before_the_disk_does(self):
        with self.assertRaises(raw_api.ApiError) as caught:
            self.client.write_file("work", "huge", bytes(self.disk.free() - (16 << 20)))
        self.assertEqual(caught.exception.code, "resource_exhausted")
        self.assertGreaterEqual(self.disk.free(), 31 << 20)
        self.assertNotIn("huge", [e["name"] for e in self.client.list_files("work")["entries"]])
        self.assertEqual(self.client.exec("work", "true").exit_code, 0)

    def test_only_the_largest_writers_are_ended(self):
        self.client.create(repo_url=self.url, name="quiet")
        quiet = self.client.start_exec("quiet", ["sh", "-c", "while :; do cat README.md >/dev/null; sleep 0.05; done"])
        small = self.client.start_exec("quiet", ["sh", "-c", "while :; do echo line >>log; sleep 0.1; done"])
        self.fill_to(26 << 20)
        writer = self.client.start_exec("work", ["sh", "-c", "while :; do head -c 256K /dev/zero; sleep 0.05; done >big"],
                                        free_space=True)
        ended = self.client.wait(writer["id"])
        self.assertEqual(ended["category"], "disk_full")
        self.assertIn("nearly full", ended["error"])
        self.assertGreater(self.disk.free(), 4 << 20)
        for exec_id in (quiet["id"], small["id"]):
            self.assertEqual(self.client.get_exec(exec_id)["state"], "running")
        kinds = [e["kind"] for e in self.client.events()]
        self.assertIn("store.room", kinds)
        told = next(e for e in self.client.events() if e["kind"] == "store.writer_ended")
        self.assertEqual(told["exec"], writer["id"])
        for exec_id in (quiet["id"], small["id"]):
            self.client.cancel(exec_id)

    def test_a_background_writer_has_its_sandbox_stopped(self):
        self.client.exec("work", "(while :; do head -c 256K /dev/zero; sleep 0.05; done >big) >/dev/null 2>&1 &")
        self.fill_to(20 << 20)
        harness.wait_until(lambda: "sandbox" not in self.client.workspace("work"), seconds=60, what="the stop")
        harness.wait_until(lambda: "store.writer_ended" in [e["kind"] for e in self.client.events()], what="its event, which comes last")
        self.assertGreater(self.disk.free(), 1 << 20)

    def takes_little(self, name):  # below the guard's threshold, for two of its checks
        for _ in range(20):
            entries = self.client.list_files(name)["entries"]
            if sum(entry["size_bytes"] for entry in entries if entry["name"] == "big") >= 256 << 10:
                return False
            time.sleep(0.1)
        return True

    def test_eight_writers_to_the_last_byte_while_others_read(self):
        names = [f"w{i}" for i in range(8)]
        for name in [*names, "reader"]:
            self.client.create(repo_url=self.url, name=name)
            self.client.exec(name, "echo $MOORAGE_WORKSPACE >mine && sync")
        readers_end, failures, reads = threading.Event(), [], [0]
        self.addCleanup(readers_end.set)

        def read():
            while not readers_end.is_set():
                try:
                    if self.client.read_file("reader", "mine") != b"reader\n" or len(self.client.workspaces()) != 10:
                        failures.append("read something else")
                    reads[0] += 1
                except (raw_api.ApiError, OSError) as error:
                    failures.append(repr(error))

        readers = [threading.Thread(target=read) for _ in range(2)]
        for thread in readers:
            thread.start()
        # Faster than the guard: no pause, and another writer takes the freed space.
        script = "while :; do cat /dev/zero >big 2>/dev/null; echo said; sleep 0.2; done"
        writers = [self.client.start_exec(name, ["sh", "-c", script], free_space=True) for name in names]
        # The last writers vary: one that finds almost no space left does not count as a writer and continues.
        harness.wait_until(lambda: all(self.client.get_exec(writer["id"])["state"] != "running" or self.takes_little(name)
                                       for name, writer in zip(names, writers)), seconds=300, what="the guard")
        ended = [end for end in (self.client.get_exec(writer["id"]) for writer in writers) if end["state"] != "running"]
        self.assertGreater(len(ended), 0)
        self.assertEqual({end["category"] for end in ended}, {"disk_full"})
        with self.assertRaises(OSError), open(self.disk.place / "fill", "wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        self.assertLess(self.disk.free(), 1 << 16)
        time.sleep(2)  # two checks of the guard on a disk without a free byte
        readers_end.set()
        for thread in readers:
            thread.join()
        self.assertEqual(failures, [])
        self.assertGreater(reads[0], 10)
        (self.disk.place / "fill").unlink()  # it may have taken the reserve as well
        for writer in writers:
            with contextlib.suppress(raw_api.ApiError):  # most of them ended long ago
                self.client.cancel(writer["id"])
            self.assertIn(self.client.wait(writer["id"], 60_000)["category"], ("disk_full", "cancelled"))
        for name in names:
            self.client.exec(name, "rm -f big", free_space=True)
        harness.wait_until(lambda: self.check()["ok"], what="the guard's all-clear")
        self.daemon.restart()
        for name in [*names, "reader"]:
            self.assertEqual(self.client.exec(name, "cat mine; echo on >>mine").stdout.decode(), name + "\n")
        for writer in writers:
            output = self.client.raw_output(writer["id"]).decode()
            self.assertEqual(set(output.splitlines()) - {"said"}, set(), output[:200])
        self.assertEqual([c["name"] for c in self.client.info()["checks"] if not c["ok"]], [])
        self.client.stop("w0")
        doctor = self.daemon.cli("doctor", "--deep", check=False)
        self.assertEqual(doctor.returncode, 0, doctor.stdout.decode())
        with contextlib.closing(sqlite3.connect(f"file:{self.daemon.store}/state.db?mode=ro", uri=True)) as database:
            self.assertEqual(database.execute("PRAGMA integrity_check").fetchone(), ("ok",))


if __name__ == "__main__":
    unittest.main()
