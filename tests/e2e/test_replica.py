"""The replica: following the store, refusals, and a restore on an empty machine."""

import datetime
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import tempfile
import threading
import time
import unittest

import harness
import raw_api
import trees
from harness import run, wait_until


def as_of(status):
    """Wall time of the replica's state; 0: none."""
    if not status or "as_of" not in status:
        return 0
    return datetime.datetime.fromisoformat(status["as_of"].replace("Z", "+00:00")).timestamp()


class Restored(harness.Daemon):
    """A machine with only the replica."""

    def __init__(self, replica, settings=None):
        super().__init__(settings)
        self.replica = replica
        self.store.rmdir()

    def restore(self, expect=0):
        begin = time.monotonic()
        made = run(harness.BIN / "moorage", "restore-store", self.replica, "--store", self.store,
                   "--config", self.config, check=False)
        self.took_s = time.monotonic() - begin
        self.output = made.stdout.decode() + made.stderr.decode()
        assert made.returncode == expect, f"exit {made.returncode}: {self.output}"
        return self


class TestCase(harness.TestCase):
    interval_s = 1
    settings = {"replica.directory": "PLACE", "replica.interval_s": 1, "replica.same_disk": True}

    @classmethod
    def setUpClass(cls):
        cls.elsewhere = pathlib.Path(tempfile.mkdtemp(prefix="moorage-replica-", dir=harness.BASE))
        cls.addClassCleanup(lambda: run("rm", "-rf", cls.elsewhere))
        cls.replica = cls.elsewhere / "copy"
        cls.replica.mkdir(mode=0o700)
        cls.settings = {**cls.settings, "replica.directory": str(cls.replica)}
        super().setUpClass()

    def caught_up(self, client=None):
        """Waits until the replica has everything up to now."""
        client = client or self.client
        now = time.time()
        wait_until(lambda: as_of(client.info().get("replica")) > now, 60, f"the copy follows: {client.info().get('replica')}")

    def restored(self, replica=None, settings=None, expect=0):
        other = Restored(replica or self.replica, settings)
        self.addCleanup(other.remove)
        return other.restore(expect)


def layer_of(daemon, name):
    """The writable one, such as "ly_3"."""
    database = sqlite3.connect(f"file:{daemon.store}/state.db?mode=ro", uri=True)
    try:
        return f"ly_{database.execute('SELECT layer FROM workspaces WHERE name = ?', (name,)).fetchone()[0]}"
    finally:
        database.close()


class Follow(TestCase):
    def raw(self, store, layer):
        return {part: trees.raw(store / "layers" / layer / part / "upper") for part in ("tree", "home", "system")}

    def packs(self, series):
        return sorted((p for p in (self.replica / "packs").iterdir() if p.name.split(".")[0] == series),
                      key=lambda p: int(p.name.split(".")[1]))

    def test_the_replica_follows_a_tree_with_all_overlay_attributes(self):
        self.client.create(repo_url=self.url, name="tree")
        out = self.client.exec("tree", ["python3", "-c", trees.MAKE])
        self.assertEqual(out.exit_code, 0, out.stderr)
        self.assertEqual(self.client.exec("tree", trees.ROOT, user="root").exit_code, 0)
        self.client.exec("tree", "head -c 3000000 /dev/urandom >big")
        self.caught_up()
        time.sleep(2.1)  # younger changes are in doubt, and sent again
        self.caught_up()
        first = self.packs(layer_of(self.daemon, "tree"))
        self.assertTrue(first[0].name.endswith(".whole"))
        # Small changes are sent as such while the sandbox runs, including deletions, renames and links.
        out = self.client.exec("tree", "mkdir -p d/e && echo one >d/e/f && ln d/e/f d/linked && mv moved moved2 && rm -r README.md && "
                                       "mkdir twice && echo x >twice/gone && sync")
        self.assertEqual(out.exit_code, 0, out.stderr)
        self.caught_up()
        out = self.client.exec("tree", "rm -rf twice && mv d d2 && mkdir d && echo other >d/e && ln d2/linked d/again && "
                                       "chmod 0751 d2 && git add moved2 && git commit -qm second")
        self.assertEqual(out.exit_code, 0, out.stderr)
        git = self.client.exec("tree", "git fsck 2>&1 && git log --format=%s && git status --porcelain | sort").stdout
        before = trees.look(self.client, "tree")
        self.client.stop("tree")
        self.caught_up()
        layer = layer_of(self.daemon, "tree")
        later = [p for p in self.packs(layer) if p.name not in {p.name for p in first}]
        self.assertTrue(later and all(p.name.endswith(".more") for p in later), later)
        self.assertLess(max(p.stat().st_size for p in later), 1 << 20)
        self.assertIn("replica 0 s behind", self.daemon.cli("show", "tree").stdout.decode())

        refused = Restored(self.replica)
        self.addCleanup(refused.remove)
        self.assertIn("is in use", refused.restore(expect=1).output)
        self.daemon.kill()
        self.addCleanup(self.daemon.start)
        self.assertIn("the store is complete", refused.restore().output)  # what it left hinders nothing
        other = self.restored()
        self.assertIn("the store is complete", other.output)
        self.assertEqual(self.raw(other.store, layer), self.raw(self.daemon.store, layer))
        self.git_server.stop()  # nothing is fetched
        try:
            other.start()
            self.assertEqual(trees.differences(before, trees.look(other.client, "tree"), times_of=set()), [])
            self.assertEqual(other.client.exec("tree", "git fsck 2>&1 && git log --format=%s && git status --porcelain | sort").stdout, git)
            self.assertEqual([e["state"] for e in other.client.history("tree")["execs"]],
                             ["exited"] * len(other.client.history("tree")["execs"]))
            self.assertTrue(other.client.doctor()["clean"], other.client.doctor())
            other.close()
        finally:
            type(self).git_server = harness.GitServer(self.upstream)


# Writes a line every 20 ms and a commit now and then, until killed.
BUSY = r"""
import itertools, os, subprocess, time
for n in itertools.count():
    with open("lines", "a") as out:
        out.write(f"{time.time()} {n}\n")
    os.makedirs(f"made/{n % 50}", exist_ok=True)
    open(f"made/{n % 50}/{n % 7}", "w").write(str(n) * 100)
    if n % 5 == 0:
        subprocess.run(["rm", "-rf", f"made/{(n + 25) % 50}"])
    if n % 20 == 0:
        subprocess.run("git add -A && git commit -qm next", shell=True, check=True)
    print(n, flush=True)
    time.sleep(0.02)
"""


class Destroyed(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = pathlib.Path(tempfile.mkdtemp(prefix="moorage-archive-", dir=harness.BASE))
        cls.addClassCleanup(lambda: run("rm", "-rf", cls.place))
        for name in ("before", "after"):
            (cls.place / name).mkdir(mode=0o700)
        cls.settings = {**cls.settings, "archive.directory": str(cls.place / "before")}
        super().setUpClass()

    def start_load(self):
        client = self.client
        for name in ("busy-1", "busy-2"):
            client.create(repo_url=self.url, name=name)
            client.start_exec(name, ["python3", "-u", "-c", BUSY])
        client.create(repo_url=self.url, name="snapped")
        for n in range(3):
            client.exec("snapped", f"echo {n} >state; rm -f only-*; echo x >only-{n}")
            client.snapshot("snapped", f"s{n}")
        client.fork("snapped", count=2, names=["fork-1", "fork-2"], snapshot="s1")
        client.exec("fork-1", "echo forked >state")
        client.create(repo_url=self.url, name="cold")
        client.exec("cold", "echo archived >cold")
        client.archive("cold")
        client.create(repo_url=self.url, name="tried")
        best = client.best_of("tried", each="echo {i} >choice", test="test $(cat choice) = 2", count=3, promote="first-passing")
        client.get_best_of(best["id"], wait_s=60)
        client.create(repo_url=self.url, name="never-ran")
        client.write_file("never-ran", "note", b"by the API")
        client.create(repo_url=self.url, name="gone")
        client.exec("gone", "echo kept >kept")
        client.delete("gone")
        client.best_of("snapped", each="sleep 60", test="true", count=2)  # runs when everything is destroyed

    def test_a_store_destroyed_under_load_is_restored_elsewhere(self):
        self.start_load()
        self.caught_up()
        before = {name: trees.look(self.client, name) for name in ("snapped", "fork-1", "tried")}
        time.sleep(3)
        self.caught_up()
        shown = self.daemon.cli("show", "busy-1").stdout.decode()
        self.assertRegex(shown, r"replica \d+ s behind")
        said = self.client.info()["replica"]["behind_s"]
        # Somebody removes it, and the daemon lives for a while.
        at = time.time()
        run("chattr", "-R", "-f", "-a", self.daemon.store, check=False)
        run("rm", "-rf", self.daemon.store, check=False)
        time.sleep(2)
        self.daemon.kill()
        harness.end_sandboxes(f"moorage-{self.daemon.known_store_id}-")
        run("rm", "-rf", self.daemon.store, check=False)
        self.daemon.store.mkdir(mode=0o700)  # for the cleanup of the class
        # Archives may be elsewhere, where an object of that name may exist.
        (archive,) = (self.place / "before").glob("*.zst")
        (self.place / "after" / archive.name).write_bytes(archive.read_bytes()[:-1] + b"?")
        other = self.restored(settings={"archive.directory": str(self.place / "after")})
        self.assertIn("the store is complete", other.output)
        self.assertEqual((self.place / "after" / archive.name).read_bytes(), archive.read_bytes())
        other.start()
        client = other.client
        self.assertTrue(client.doctor(deep=True)["clean"], client.doctor(deep=True))
        for name in ("busy-1", "busy-2"):
            self.assertIn("restored from a replica", client.workspace(name)["integrity"]["reason"])
            lines = client.read_file(name, "lines").decode().splitlines()
            missing = at - float(lines[-1].split()[0])
            print(f"{name}: {missing:.1f} s of work are missing, {said} s had been said", flush=True)
            self.assertLess(missing, 10 * harness.PATIENCE)
            self.assertEqual([int(line.split()[1]) for line in lines], list(range(len(lines))))
            out = client.exec(name, "git fsck 2>&1; rm -f .git/*.lock; git log --format=%s | wc -l; git status >/dev/null")
            self.assertEqual(out.exit_code, 0, out.stdout)
            for word in (b"missing", b"error", b"broken", b"corrupt"):
                self.assertNotIn(word, out.stdout)
            history = client.history(name)["execs"]
            self.assertEqual([e["state"] for e in history if e["argv"][0] == "python3"], ["interrupted"])
            output = client.raw_output(history[-1]["id"] if history[-1]["argv"][0] == "python3" else history[0]["id"])
            self.assertGreater(len(output), 100)
        for name, tree in before.items():
            found = trees.differences(tree, trees.look(client, name), times_of=set())
            # The base tree's index has its times; merged layers share unchanged files, which then have a name in each.
            self.assertEqual([line for line in found if "/.git/index'" not in line and "' links: " not in line], [])
        self.assertEqual([s["name"] for s in client.snapshots("snapped") if s["name"]], ["s0", "s1", "s2"])
        client.restore("snapped", "s0")
        self.assertEqual(client.read_file("snapped", "state"), b"0\n")
        self.assertEqual(client.unarchive("cold")["state"], "ready")
        self.assertEqual(client.read_file("cold", "cold"), b"archived\n")
        self.assertEqual(client.read_file("tried", "choice"), b"2\n")
        self.assertEqual(client.read_file("never-ran", "note"), b"by the API")
        client.undelete("gone")
        self.assertEqual(client.read_file("gone", "kept"), b"kept\n")
        self.assertEqual({s["integrity"]["state"] for s in client.workspaces() if "integrity" in s}, {"intact"})
        # It has the old store's name, and must not continue the old replica.
        other.stop()
        other.config.write_text(json.dumps(json.loads(other.config.read_text()) |
                                           {"replica": {"directory": str(self.replica), "same_disk": True, "interval_s": 1}}))
        other.start()
        wait_until(lambda: client.info()["replica"]["state"] == "refused", what="another store's copy is refused")
        self.assertIn("before its restore", client.info()["replica"]["problem"])
        other.close()


class Elsewhere(harness.TestCase):
    """The replica on a small disk that fails in every way."""

    @classmethod
    def setUpClass(cls):
        cls.elsewhere = pathlib.Path(tempfile.mkdtemp(prefix="moorage-replica-", dir=harness.BASE))
        cls.addClassCleanup(lambda: run("rm", "-rf", "--one-file-system", cls.elsewhere))
        cls.replica = cls.elsewhere / "disk"
        cls.replica.mkdir(mode=0o700)
        cls.image = cls.elsewhere / "disk.img"
        with open(cls.image, "wb") as file:
            file.truncate(96 << 20)
        run("mkfs.ext4", "-q", cls.image)
        cls.mount()
        cls.addClassCleanup(lambda: run("umount", cls.replica, check=False))
        cls.settings = {"replica.directory": str(cls.replica), "replica.interval_s": 1}
        super().setUpClass()

    @classmethod
    def mount(cls):
        run("mount", "-o", "loop", cls.image, cls.replica)
        os.chmod(cls.replica, 0o700)

    caught_up = TestCase.caught_up
    restored = TestCase.restored

    def status(self):
        return self.client.info()["replica"]

    def becomes(self, state):
        return wait_until(lambda: self.status()["state"] == state and self.status(), 30, f"the copy is {state}: {self.status()}")

    def spared(self):
        """A copy of the replica, for a test to damage. The daemon is stopped meanwhile."""
        self.daemon.kill()
        place = pathlib.Path(tempfile.mkdtemp(prefix="spared-", dir=self.elsewhere)) / "copy"
        run("cp", "-a", self.replica, place)
        self.daemon.start()
        return place

    def refused_once(self, break_it, mend, what):
        def words(*argv):
            return " ".join(self.daemon.cli(*argv).stdout.decode().split())
        break_it()
        try:
            status = self.becomes("refused")
            self.assertIn(what, status["problem"])
            self.assertTrue(status["hint"])
            finding = next(f for f in self.client.doctor()["findings"] if f["check"] == "replica")
            self.assertIn(what, finding["text"])
            self.assertIn("not updated", words("show", "one"))
            self.assertIn(what, words("info"))
            self.assertEqual(self.metric("moorage_replica_up"), 0)
        finally:
            mend()
        self.becomes("following")
        self.caught_up()
        self.assertEqual(self.metric("moorage_replica_up"), 1)
        self.assertLess(self.metric("moorage_replica_behind_seconds"), 60)

    def metric(self, name):
        page = run("curl", "--silent", "--unix-socket", self.daemon.socket, "http://localhost/metrics").stdout.decode()
        return float(next(line.split()[1] for line in page.splitlines() if line.split()[0] == name))

    def setUp(self):
        if not any(w["name"] == "one" for w in self.client.workspaces()):
            self.client.create(repo_url=self.url, name="one")
            self.client.exec("one", "echo 1 >one")
            self.client.stop("one")  # so that it uses the snapshot
            self.client.snapshot("one", "first")
            self.client.exec("one", "echo 2 >one")
        self.caught_up()

    def test_an_unsafe_directory_is_refused_until_it_is_safe(self):
        self.refused_once(lambda: os.chmod(self.replica, 0o770), lambda: os.chmod(self.replica, 0o700), "other than root")
        self.refused_once(lambda: os.chown(self.replica, 65534, 0), lambda: os.chown(self.replica, 0, 0), "belong to root")
        self.refused_once(lambda: run("umount", "-l", self.replica), self.mount, "on the disk of the store")

        def another():
            self.owner = (self.replica / "replica").read_text()
            (self.replica / "replica").unlink()
            (self.replica / "replica").write_text("moorage replica 1\nffffffff 0\n")
            self.daemon.restart()
        self.refused_once(another, lambda: (self.replica / "replica").write_text(self.owner), "another store")

    def test_links_in_the_replica_are_not_followed(self):
        victim = self.elsewhere / "victim"
        victim.mkdir()
        (victim / "file").write_text("precious")
        for name in ("packs", "state", "archives"):
            def swap():
                self.daemon.kill()
                os.rename(self.replica / name, self.replica / "aside")
                os.symlink(victim, self.replica / name)
                self.daemon.start()

            def mend():
                os.unlink(self.replica / name)
                os.rename(self.replica / "aside", self.replica / name)
            self.refused_once(swap, mend, "was not made by Moorage")

        def lock():
            self.daemon.kill()
            os.unlink(self.replica / "lock")
            os.symlink(victim / "file", self.replica / "lock")
            self.daemon.start()
        self.refused_once(lock, lambda: os.unlink(self.replica / "lock"), "was not made by Moorage")
        # Names that will be written or removed.
        layer = max((self.daemon.store / "layers").iterdir(), key=lambda p: int(p.name[3:])).name
        for number in range(1, 60):
            for kind in ("whole", "more"):
                path = self.replica / "packs" / f"{layer}.{number}.{kind}.new"
                if not path.exists():
                    os.symlink(victim / "file", path)
        os.symlink(victim, self.replica / "packs" / "directory")
        os.symlink(victim / "file", self.replica / "archives" / "file")
        self.client.exec("one", "echo 3 >>one")
        self.caught_up()
        self.assertEqual((victim / "file").read_text(), "precious")
        self.assertEqual(sorted(p.name for p in victim.iterdir()), ["file"])
        # The same when a store is restored from it.
        place = self.spared()
        pack = next(p for p in (place / "packs").iterdir() if p.name.startswith(layer) and p.name.endswith(".whole"))
        shutil.move(pack, victim / "pack")
        os.symlink(victim / "pack", pack)
        self.assertIn("was not made by Moorage", self.restored(place, expect=1).output)

    def test_damage_is_reported_and_everything_else_is_restored(self):
        self.client.create(repo_url=self.url, name="two")
        self.client.exec("two", "echo 2 >two")
        self.client.stop("two")
        self.caught_up()
        time.sleep(2.5)
        self.client.exec("one", "echo 4 >one")
        self.caught_up()
        ids = {w["name"]: w["id"] for w in self.client.workspaces()}
        place = self.spared()
        copies = sorted((place / "state").iterdir())
        self.assertEqual(len(copies), 3)

        def flip(path, at):
            content = bytearray(path.read_bytes())
            content[at] ^= 4
            path.write_bytes(content)
        flip(copies[-1], copies[-1].stat().st_size // 2)
        copies[-2].write_bytes(copies[-2].read_bytes()[:-1])
        other = self.restored(place)
        self.assertIn(f"{copies[-1].name} is skipped", other.output)
        self.assertIn(f"{copies[-2].name} is skipped", other.output)

        place = self.spared()
        database = sqlite3.connect(self.restored(place).store / "state.db")
        layers = dict(database.execute("SELECT name, 'ly_' || layer FROM workspaces"))
        below = database.execute("SELECT 'ly_' || layer FROM snapshots WHERE name = 'first'").fetchone()[0]
        database.close()
        packs = sorted((p for p in (place / "packs").iterdir() if p.name.split(".")[0] == layers["two"]),
                       key=lambda p: int(p.name.split(".")[1]))
        flip(packs[0], packs[0].stat().st_size // 3)
        other = self.restored(place, expect=1)
        self.assertIn(f"two ({ids['two']})", other.output)
        self.assertNotIn(f"one ({ids['one']})", other.output)
        running = self.client.start_exec("one", ["sleep", "1000"])
        with self.assertRaisesRegex(AssertionError, f"a copy of this store runs on this host: process {self.daemon.process.pid} in {self.daemon.store}"):
            other.start()
        self.assertEqual(self.client.get_exec(running["id"])["state"], "running")
        self.client.cancel(running["id"])
        self.daemon.stop()  # spared() starts it again
        self.addCleanup(other.stop)
        other.start()
        self.assertEqual(other.client.read_file("one", "one"), b"4\n")
        with self.assertRaises(raw_api.ApiError) as lost:
            other.client.exec("two", "true")
        self.assertEqual(lost.exception.code, "corrupted")
        two = other.client.workspace("two")["integrity"]
        self.assertEqual(two["state"], "lost")
        self.assertIn("missing from the store", two["reason"])
        other.client.delete("two")
        other.close()

        # A missing pack of a snapshot also loses its users.
        place = self.spared()
        for pack in (place / "packs").glob(f"{below}.*"):
            pack.unlink()
        other = self.restored(place, expect=1)
        for word in (f"one ({ids['one']})", "snapshot sn_", "of one"):
            self.assertIn(word, other.output)
        # All copies are damaged: no store is created.
        for copy in (place / "state").iterdir():
            copy.write_bytes(b"")
        self.assertIn("has no intact copy of the database", self.restored(place, expect=1).output)
        self.assertIn("is not empty", other.restore(expect=1).output)

    def test_a_full_or_hanging_replica_disk_delays_nothing(self):
        self.client.exec("one", "head -c 150000000 /dev/urandom >big")
        status = self.becomes("failing")
        self.assertIn("No space left", status["problem"])
        wait_until(lambda: self.status()["behind_s"] >= 3, what="it falls behind")
        self.assertFalse(self.client.doctor()["clean"])
        begin = time.monotonic()
        self.assertEqual(self.client.exec("one", "echo works; rm big").stdout, b"works\n")
        self.assertLess(time.monotonic() - begin, 2 * harness.PATIENCE)
        self.becomes("following")
        self.caught_up()
        run("fsfreeze", "-f", self.replica)
        try:
            self.client.exec("one", "echo 5 >one")
            wait_until(lambda: self.status()["behind_s"] >= 4, what="it falls behind")
            begin = time.monotonic()
            self.client.exec("one", "true")
            self.client.snapshot("one")
            self.client.stop("one")
            self.client.delete(self.client.create(repo_url=self.url, name="short")["id"], purge=True)
            self.assertLess(time.monotonic() - begin, 4 * harness.PATIENCE)
        finally:
            run("fsfreeze", "-u", self.replica)
        self.becomes("following")
        self.caught_up()
        # And after a kill at any point it continues where it was.
        points = [p for p in run(harness.BIN / "mooraged", "--list-crash-points").stdout.decode().split() if p.startswith("replica.")]
        self.assertGreaterEqual(len(points), 4)
        for point in points:
            self.daemon.kill()
            self.daemon.start(crash_at=f"{point}:3", wait=False)
            wait_until(lambda: self.daemon.process.poll() is not None or self.touch(point), 30, f"it dies at {point}")
            self.daemon.start()
            self.caught_up()
        self.assertEqual([p.name for p in self.replica.glob("*/*.new")], [])
        other = self.restored(self.spared())
        self.assertIn("the store is complete", other.output)

    def touch(self, point):
        try:
            self.client.write_file("one", f"at-{point}", str(time.time()).encode())
        except (OSError, raw_api.ApiError):
            pass

    def test_a_restart_sends_nothing_again(self):
        self.client.exec("one", "head -c 5000000 /dev/urandom >blob")
        time.sleep(2.5)
        self.caught_up()
        layer = layer_of(self.daemon, "one")
        before = {p.name for p in (self.replica / "packs").iterdir()}
        self.daemon.restart()
        self.caught_up()
        self.client.exec("one", "echo new >new")
        self.caught_up()
        time.sleep(1.5)
        new = [p for p in (self.replica / "packs").iterdir() if p.name not in before]
        self.assertTrue(any(p.name.startswith(layer + ".") for p in new), new)
        self.assertLess(sum(p.stat().st_size for p in new), 1 << 20)


class OrderlyStop(TestCase):
    settings = {**TestCase.settings, "replica.interval_s": 3600}

    def test_the_last_changes_are_in_the_copy(self):
        self.client.create(repo_url=self.url, name="one")
        self.client.exec("one", "seq 1000 >last")
        self.daemon.stop()
        other = self.restored()
        other.start()
        self.assertEqual(other.client.exec("one", "wc -l <last").stdout, b"1000\n")
        self.assertEqual(len(other.client.execs("one")), 2)


if __name__ == "__main__":
    unittest.main()
