"""A store on a file system that cannot hold layers: in an image file (store.image). That file system is an overlay, like a container's root."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import harness
import test_sequences
import trees
from harness import run, wait_until

GIB = 1 << 30


class Place:
    """A mounted overlay with contents."""

    def __init__(self):
        self.top = pathlib.Path(tempfile.mkdtemp(prefix="moorage-image-", dir=harness.BASE))
        for name in ("lower", "upper", "work", "merged"):
            (self.top / name).mkdir()
        self.merged = self.top / "merged"
        run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir={self.top}/lower,upperdir={self.top}/upper,workdir={self.top}/work", self.merged)
        self.image = self.merged / "store.img"
        self.settings = {"store.directory": str(self.merged / "store"), "store.image": str(self.image), "store.image_bytes": GIB}

    def daemon(self, **settings):
        made = harness.Daemon(self.settings | {f"store.{name}": value for name, value in settings.items()})
        made.store.rmdir()
        made.store = self.merged / "store"
        return made

    def unmount(self, place="store"):
        """Like a reboot, after the end of all processes. Starting processes may hold copies of mounts for a moment."""
        wait_until(lambda: subprocess.run(["umount", self.merged / place], capture_output=True).returncode == 0, 60, f"{place} is unmounted")

    def loops(self):
        return run("losetup", "--noheadings", "--output", "NAME", "--associated", self.image).stdout.split()

    def remove(self):
        if (self.merged / "store").is_mount():
            self.unmount()
        self.unmount("")
        run("rm", "-rf", self.top)


class StoreImage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = Place()
        cls.addClassCleanup(lambda: cls.place.remove())
        cls.upstreams = pathlib.Path(tempfile.mkdtemp(prefix="moorage-upstream-", dir=harness.BASE))
        cls.addClassCleanup(lambda: run("rm", "-rf", cls.upstreams))
        harness.make_repository(cls.upstreams / "acme" / "shop", None)
        git_server = harness.GitServer(cls.upstreams)
        cls.addClassCleanup(git_server.stop)
        cls.url = git_server.url("acme/shop")
        cls.daemon = cls.place.daemon()
        cls.addClassCleanup(lambda: cls.daemon.remove())
        cls.daemon.start()
        cls.client = cls.daemon.client

    @classmethod
    def tearDownClass(cls):
        store_id = cls.daemon.store_id()
        cls.daemon.close()
        cls.place.unmount()
        wait_until(lambda: not cls.place.loops(), what="no loop device is left")
        left = harness.census(store_id, cls.daemon.directory)
        assert not any(left.values()), f"left behind: {left}"

    def set(self, **settings):
        lines = json.loads(self.daemon.config.read_text())
        lines["store"] |= settings
        self.daemon.config.write_text(json.dumps(lines))

    def refused(self, daemon=None):
        """The reason why it does not start."""
        daemon = daemon or self.daemon
        before = daemon.log.stat().st_size if daemon.log.exists() else 0
        daemon.start(wait=False)
        self.assertEqual(daemon.process.wait(60 * harness.PATIENCE), 1)
        return daemon.log.read_text()[before:]

    def may_grow(self):
        """ext4 needs CAP_SYS_RESOURCE, which some test machines lack; the virtual machine of `./check --vm` has it."""
        effective = next(line for line in pathlib.Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff:"))
        return bool(int(effective.split()[1], 16) >> 24 & 1)

    def reboot(self):
        self.daemon.kill()
        harness.end_sandboxes(f"moorage-{self.daemon.known_store_id}-")
        self.place.unmount()
        wait_until(lambda: not self.place.loops(), what="the loop device is gone")

    def test_the_main_job_and_recovery_from_all_kills(self):
        told = next(c for c in self.client.info()["checks"] if c["name"] == "storage")
        self.assertTrue(told["ok"])
        self.assertRegex(told["text"], rf"^image: [12]G of ext4 in {self.place.image} on overlay, set as store.image$")
        self.assertIn("of ext4 in", self.daemon.cli("doctor").stdout.decode())
        self.assertEqual(oct(self.place.image.stat().st_mode)[-3:], "600")
        self.client.create(repo_url=self.url, name="one")
        out = self.client.exec("one", ["python3", "-c", trees.MAKE])
        self.assertEqual(out.exit_code, 0, out.stderr)
        self.client.snapshot("one", "first")
        self.client.exec("one", "echo 2 >later; rm -r moved")
        look = trees.look(self.client, "one")
        self.client.fork("one", names=["fork"])
        # It and its mount survive the daemon.
        pids = self.daemon.sandbox_pids("one")
        running = self.client.start_exec("one", ["sh", "-c", "sleep 2; echo lived"])["id"]
        self.daemon.restart()
        self.assertEqual(self.daemon.sandbox_pids("one"), pids)
        self.client.wait(running)
        self.assertIn(b"lived", self.client.raw_output(running))
        self.assertEqual(len(self.place.loops()), 1)
        # After the end of all processes and the mount, it is mounted again.
        self.reboot()
        below = self.place.merged / "store"
        self.assertEqual(sorted(os.listdir(below)), ["store-is-in-image"])
        self.daemon.start()
        self.assertEqual(trees.differences(look, trees.look(self.client, "one"), times_of=set()), [])
        self.assertEqual(trees.differences(look, trees.look(self.client, "fork"), times_of=set()), [])
        self.client.restore("one", "first", kill=True)
        self.assertEqual(self.client.exec("one", "ls moved >/dev/null && cat later").exit_code, 1)
        self.client.archive("fork")
        self.client.unarchive("fork")
        self.assertEqual(trees.differences(look, trees.look(self.client, "fork"), times_of=set()), [])
        self.assertTrue(self.client.doctor(deep=True)["clean"], self.client.doctor())

    def test_a_store_image_in_use_is_refused_to_others(self):
        other = self.place.daemon(directory=str(self.place.merged / "elsewhere"))
        self.addCleanup(other.remove)
        self.assertIn("is in use by another mooraged", self.refused(other))
        # Another host sees neither that lock nor this loop device.
        device = run("losetup", "--find", "--show", self.place.image).stdout.decode().strip()
        self.addCleanup(run, "losetup", "--detach", device)
        there = self.place.top / "there"
        there.mkdir()
        mounted = subprocess.run(["mount", device, there], capture_output=True, text=True)
        self.assertNotEqual(mounted.returncode, 0)

    def test_starts_that_would_create_an_empty_store_are_refused(self):
        self.addCleanup(lambda: self.daemon.process.poll() is None or self.daemon.start())
        self.reboot()
        size = self.place.image.stat().st_size
        self.addCleanup(self.set, image=str(self.place.image), image_bytes=size)
        self.set(image="", image_bytes=0)
        self.assertIn(f"is in {self.place.image}", self.refused())
        self.set(image=str(self.place.image), image_bytes=size)
        away = self.place.image.with_suffix(".away")
        self.place.image.rename(away)
        try:
            self.assertIn("mount the image's file system", self.refused())
            self.assertFalse(self.place.image.exists())
        finally:
            away.rename(self.place.image)
        self.set(image=str(self.daemon.store / "store.img"))
        self.assertIn("would be hidden by its own mount", self.refused())
        self.set(image=str(self.place.image), image_bytes=1 << 20)
        self.assertIn("at least 1G", self.refused())
        self.place.image.chmod(0o644)
        self.set(image_bytes=size)
        self.assertIn("other than root can use", self.refused())
        self.place.image.chmod(0o600)
        self.daemon.start()

    def test_the_image_grows_and_never_shrinks(self):
        def size():
            status = os.statvfs(self.daemon.store)
            return status.f_blocks * status.f_frsize
        before = size()
        may_grow = self.may_grow()
        self.set(image_bytes=GIB + GIB // 2)
        self.daemon.restart()  # while mounted
        self.assertEqual(size() > before + GIB // 3, may_grow)
        self.assertIn("storage.grown" if may_grow else "storage.not_grown", self.daemon.log_tail())
        self.set(image_bytes=2 * GIB)
        self.reboot()
        self.daemon.start()
        self.assertEqual(size() > before + GIB - (256 << 20), may_grow)
        self.daemon.kill()
        self.set(image_bytes=GIB)
        self.assertIn("cannot shrink", self.refused())
        self.set(image_bytes=2 * GIB)
        self.daemon.start()
        self.set(image_bytes=64 << 40)
        self.daemon.kill()
        self.assertIn("no room for an image of 64T", " ".join(self.refused().split()))
        self.set(image_bytes=2 * GIB)
        self.daemon.start()
        self.assertTrue(self.client.doctor()["clean"])

    def test_the_next_start_recovers_from_a_crash_at_any_point(self):
        points = [p for p in run(harness.BIN / "mooraged", "--list-crash-points").stdout.decode().split() if p.startswith("image.")]
        self.assertGreaterEqual(len(points), 4)
        for point in points:
            with self.subTest(point):
                place = Place()
                self.addCleanup(place.remove)
                daemon = place.daemon()
                self.addCleanup(daemon.remove)
                daemon.start(crash_at=point, wait=False)
                wait_until(lambda: daemon.process.poll() is not None, what=f"it dies at {point}")
                daemon.start()
                daemon.stop()
                self.assertEqual(sorted(os.listdir(place.merged)), ["store", "store.img"])
                place.unmount()

    def test_a_replica_beside_the_image_is_refused_and_a_store_is_restored_into_an_image(self):
        beside = self.place.merged / "copy"
        beside.mkdir(mode=0o700)
        self.addCleanup(self.daemon.restart)
        lines = json.loads(self.daemon.config.read_text())
        self.addCleanup(self.daemon.config.write_text, json.dumps(lines))

        def copy_to(directory, **more):
            self.daemon.config.write_text(json.dumps(lines | {"replica": {"directory": str(directory), "interval_s": 1} | more}))
            self.daemon.restart()
        copy_to(beside)
        wait_until(lambda: self.client.info()["replica"]["state"] == "refused", what="the copy on the image's own disk is refused")
        self.assertIn("on the disk of the store", self.client.info()["replica"]["problem"])
        self.client.create(repo_url=self.url, name="comes-back")
        self.client.exec("comes-back", "echo kept >kept")
        self.client.stop("comes-back")
        copy_to(beside, same_disk=True)
        wait_until(lambda: self.client.workspace("comes-back")["replica"].get("behind_s") == 0, what="it is in the copy")
        self.daemon.kill()
        place = Place()
        self.addCleanup(place.remove)
        other = place.daemon()
        self.addCleanup(other.remove)
        made = run(harness.BIN / "moorage", "restore-store", beside, "--config", other.config)
        self.assertIn(b"the store is complete", made.stdout)
        other.start()
        self.assertEqual(other.client.read_file("comes-back", "kept"), b"kept\n")
        other.stop()

    def test_the_example_in_the_guide_is_accepted(self):
        example = re.search(r"`(store\.image): ([^`]+)`,\s+`(store\.image_bytes): ([^`]+)`", (harness.ROOT / "docs/guide/operations.md").read_text())
        self.assertTrue(example)
        shown = run(harness.BIN / "mooraged", "--show-config", "--set", "=".join(example.group(1, 2)), "--set", "=".join(example.group(3, 4)))
        self.assertIn(example.group(4).encode(), shown.stdout)

    def test_without_an_image_the_error_suggests_one(self):
        told = run(harness.BIN / "mooraged", "--check-host", "--set", f"store.directory={self.place.merged}/new", check=False)
        text = told.stdout.decode()
        self.assertEqual(told.returncode, 1)
        line = next(line for line in text.splitlines() if line.split()[1] == "overlay")
        self.assertTrue(line.startswith("missing"), text)
        self.assertIn("store.image", line)


class ImageSequences(test_sequences.Sequences):
    sequences = 5

    @classmethod
    def setUpClass(cls):
        cls.place = Place()
        cls.addClassCleanup(lambda: cls.place.remove())
        cls.settings = {**cls.settings, **cls.place.settings, "store.image_bytes": 2 * GIB}
        super().setUpClass()
        cls.daemon.store = cls.place.merged / "store"

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.place.unmount()


if __name__ == "__main__":
    unittest.main()
