"""The power is cut while several clients work. What was acknowledged as durable is there afterwards: design, promise 2.

One life of a machine gives several images, cut at chosen moments. Acknowledgements are read before an image is asked
for and kept here, outside of it. Then each image gets a machine of its own with another boot id: the file system
recovers it, a daemon starts on it, and everything is asked back. The rig proves itself with daemons that forget.
"""

import contextlib
import os
import pathlib
import random
import shutil
import tempfile
import threading
import time
import unittest

import rig
from power import Machine
from rig import harness, moorage

CLIENTS = 3
GIT = "git status --porcelain --untracked-files=no && git log --oneline | wc -l && cat README.md"
IMAGES = 3  # of one life
WORDS = ["put", "put", "counter", "synced", "fsynced", "fsynced", "unsynced", "stop"]


class Lost(AssertionError):
    """Something that was acknowledged as durable is not there: what a mutant must cause and nothing else may."""


class Book:
    """What was begun and what was acknowledged, in the order in which it happened."""

    def __init__(self):
        self.lock, self.begun, self.acknowledged = threading.Lock(), [], []

    def begin(self, kind, **facts):
        with self.lock:
            self.begun.append((kind, facts))

    def acknowledge(self, kind, **facts):
        with self.lock:
            self.acknowledged.append((kind, facts))

    def copy(self):
        with self.lock:
            return list(self.begun), list(self.acknowledged)


class Client(threading.Thread):
    def __init__(self, life, number):
        super().__init__(name=f"client-{number}")
        self.life, self.book = life, life.book
        self.client = harness.Client(str(life.machine.daemon.socket), timeout=60)
        self.chance = random.Random(f"{life.seed} {number}")
        self.number, self.lives, self.error = 0, 0, None
        self.turn = threading.Lock()  # held during a step

    def run(self):
        try:
            while not self.life.over.is_set():
                self.live()
        except BaseException as error:  # noqa: BLE001 - told by the main thread
            self.error = error

    def text(self, path):
        """What is in a file follows from its path: the checker needs no more."""
        return f"{path} ".encode() * (1 + sum(path.encode()) % 3000)

    def live(self):
        name = f"{self.name}-{self.lives}"
        self.lives += 1
        made = self.client.create(repo_url=self.life.url, name=name)
        self.book.acknowledge("created", id=made["id"], name=name)
        unsynced = []
        for _ in range(self.chance.randrange(4, 12)):
            if self.life.over.is_set():
                return
            self.number += 1
            with self.turn:
                getattr(self, self.chance.choice(self.life.words))(made["id"], unsynced)
        if self.chance.random() < 0.5:
            purge = self.chance.random() < 0.5
            self.book.begin("deleted", id=made["id"])
            self.client.delete(made["id"], purge=purge)
            self.book.acknowledge("purged" if purge else "deleted", id=made["id"])

    def put(self, ws, _):
        path = f"put-{self.number}"
        self.client.request("PUT", f"/workspaces/{ws}/file", {"path": path}, body=self.text(path))
        self.book.acknowledge("file", id=ws, path=path)

    def counter(self, ws, _):
        """The same file again and again: an older version, or a torn one, is a loss."""
        data = f"{self.number:08}\n".encode() * 700
        self.client.write_file(ws, "counter", data)
        self.book.acknowledge("counter", id=ws, number=self.number)

    def command(self, ws, script, **fields):
        result = self.client.exec(ws, ["sh", "-c", script], **fields)
        if result.exit_code != 0:
            raise AssertionError(f"{script}: {result.exec} {result.stderr!r}")
        return result

    def script(self, path):
        size = len(self.text(path)) // len(f"{path} ")
        return f"i=0; while [ $i -lt {size} ]; do printf '%s ' {path}; i=$((i+1)); done > {path}"

    def synced(self, ws, unsynced):
        path = f"synced-{self.number}"
        result = self.command(ws, self.script(path) + f"; echo said {path}; cp {path} ~/{path}", sync=True)
        self.book.acknowledge("file", id=ws, path=path)
        self.book.acknowledge("home", id=ws, path=path)
        self.book.acknowledge("journal", id=result.exec["id"], output=f"said {path}\n")
        for path in unsynced:
            self.book.acknowledge("file", id=ws, path=path)
        unsynced.clear()

    def fsynced(self, ws, _):
        path = f"fsynced-{self.number}"
        self.command(ws, self.script(path) + f"; sync {path} . && echo done")
        self.book.acknowledge("file", id=ws, path=path)

    def unsynced(self, ws, unsynced):
        path = f"unsynced-{self.number}"
        result = self.command(ws, self.script(path) + f"; echo said {path}")
        self.book.acknowledge("record", id=result.exec["id"], output=f"said {path}\n")
        unsynced.append(path)

    def stop(self, ws, unsynced):
        self.client.stop(ws)
        for path in unsynced:
            self.book.acknowledge("file", id=ws, path=path)
        unsynced.clear()


class Life:
    """A machine at work, and the images that were cut of it."""

    def __init__(self, test, kind, seed, broken=""):
        # A volatile overlay cannot be mounted a second time, as stop and file calls at rest do.
        self.words = WORDS if broken != "overlay" else ["fsynced", "unsynced"]
        self.seed, self.kind, self.book, self.over = seed, kind, Book(), threading.Event()
        self.images = []  # (path, begun, acknowledged, figures)
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="moorage-cuts-", dir=harness.BASE))
        test.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.machine = Machine(kind, broken=broken)
        test.addCleanup(self.machine.close)
        self.url = test.url

    def work(self, images):
        chance = random.Random(f"{self.seed} cuts")
        self.machine.start()
        clients = [Client(self, number) for number in range(CLIENTS)]
        try:
            for client in clients:
                client.start()
            for number in range(images):
                seen = len(self.book.copy()[1])
                more = chance.randrange(3, 25)
                harness.wait_until(lambda: len(self.book.copy()[1]) >= seen + more or any(c.error for c in clients), 60, "work")  # noqa: B023
                if any(c.error for c in clients):
                    break
                with contextlib.ExitStack() as quiet:
                    if chance.random() < 0.5:  # right after an acknowledgement: no later write brings it to disk
                        for client in clients:
                            quiet.enter_context(client.turn)
                    else:
                        time.sleep(chance.random() * 0.05)
                    self.cut(number, chance)
        finally:
            self.over.set()
            for client in clients:
                client.join()
            self.machine.close()  # before its images come to life: they have the same names
        for client in clients:
            if client.error:
                raise client.error
        if self.images[-1][4]["writes"] == 0 or self.images[-1][4]["flushes"] == 0:
            raise AssertionError(f"nothing reached the disk: {self.images[-1][4]}")


    def cut(self, number, chance):
        what = chance.choice(("none", "none", "some", "some", "all"))
        path = self.directory / f"{number}.img"
        acknowledged = self.book.copy()[1]  # before the cut
        figures = self.machine.disk.cut(what, chance.randrange(1 << 32), path)
        self.images.append((path, what, self.book.copy()[0], acknowledged, figures))


class Image:
    """One image, come to life on a machine with another boot id."""

    def __init__(self, kind, path, begun, acknowledged):
        self.kind, self.path, self.acknowledged = kind, path, acknowledged
        self.deleted = {facts["id"] for word, facts in begun if word == "deleted"}
        self.machine = Machine(kind, image=path, rebooted=True, settings={"daemon.reconcile_interval_s": 1})

    def check(self):
        """Raises Lost, or AssertionError for what is wrong otherwise. Returns how much was asked back."""
        try:
            self.come_up()
            self.machine.namespace.inside(self.look_at_all)
            self.machine.unmount()
            self.machine.check(self.path)
            return len(self.acknowledged)
        finally:
            self.machine.close()

    def come_up(self):
        try:
            self.machine.start()
        except AssertionError as error:
            raise Lost(f"the daemon does not start: {error}") from None
        self.client = self.machine.daemon.client
        self.workspaces = {w["id"]: w for w in self.client.workspaces(deleted=True)}

    def look_at_all(self):
        for word, facts in self.acknowledged:
            self.look(word, **facts)
        self.use()
        for workspace in self.client.workspaces():
            self.client.stop(workspace["id"])
        findings = []

        def rests():
            findings[:] = rig.at_rest(self.machine.store)
            return not findings

        try:  # a base tree that was set aside goes with a round of the reconciler, after the last sandbox
            harness.wait_until(rests, what="rest")
        except AssertionError:
            raise Lost("; ".join(findings)) from None

    def upper(self, ws, part="tree"):
        layer = rig.rows(self.machine.store, "SELECT layer FROM workspaces WHERE id = ?", int(ws.removeprefix("ws_")))[0][0]
        return self.machine.store / "layers" / f"ly_{layer}" / part / "upper"

    def look(self, word, id, **facts):  # noqa: A002
        if word in ("journal", "record"):
            return self.look_at_exec(word, id, facts["output"])
        if word in ("deleted", "purged"):
            # What rests of a deleted one is a tombstone; of a purged one history.
            if id in {w["id"] for w in self.client.workspaces()}:
                raise Lost(f"{id} was deleted and is back")
            return None
        known = id in self.workspaces or rig.rows(self.machine.store, "SELECT 1 FROM workspaces WHERE id = ?", int(id.removeprefix("ws_")))
        if not known:
            raise Lost(f"{id} was created and has no row")
        if id in self.deleted:
            return None
        if id not in self.workspaces or self.workspaces[id]["state"] != "ready":
            raise Lost(f"{id} was created and is {self.workspaces.get(id, {}).get('state', 'missing')}")
        if word == "file":
            self.compare(id, "tree", facts["path"])
        elif word == "home":
            self.compare(id, "home", facts["path"])
        elif word == "counter":
            self.compare_counter(id, facts["number"])
        return None

    def compare(self, ws, part, path):
        wanted = Client.text(None, path)
        with contextlib.suppress(FileNotFoundError):
            if (found := (self.upper(ws, part) / path).read_bytes()) == wanted:
                return
            raise Lost(f"{ws} {part}/{path} was acknowledged: {len(wanted)} bytes, now {len(found)}: {found[:40]!r}")
        raise Lost(f"{ws} {part}/{path} was acknowledged and is missing")

    def compare_counter(self, ws, number):
        path = self.upper(ws) / "counter"
        data = path.read_bytes() if path.exists() else b""
        if len(set(data.splitlines())) != 1 or len(data) != 9 * 700 or int(data[:8]) < number:
            raise Lost(f"{ws} counter was {number}, is {len(data)} bytes: {data[:20]!r}")

    def look_at_exec(self, word, exec_id, output):
        try:
            record = self.client.get_exec(exec_id)
            if record["state"] != "exited":
                raise Lost(f"{exec_id} had ended, is {record['state']}")
            kept = self.client.raw_output(exec_id)
        except moorage.MoorageError as error:
            if self.purged(exec_id):
                return
            raise Lost(f"{exec_id}: {error}") from None
        if self.purged(exec_id):
            return
        if word == "journal" and kept != output.encode():
            raise Lost(f"{exec_id} said {output!r} and was synced, its journal has {kept!r}")
        if not output.encode().startswith(kept):
            raise AssertionError(f"{exec_id} said {output!r}, its journal has {kept!r}")

    def purged(self, exec_id):
        found = rig.rows(self.machine.store, "SELECT workspace FROM execs WHERE id = ?", int(exec_id.removeprefix("ex_")))
        return bool(found) and f"ws_{found[0][0]}" in self.deleted

    def use(self):
        """A workspace goes on: its git works and no edit of the base is seen."""
        live = self.client.workspaces()
        for workspace in live[:1]:
            try:
                result = self.client.exec(workspace["id"], GIT)
            except moorage.MoorageError as error:
                raise Lost(f"{workspace['id']} does not start: {error}") from None
            if (result.exit_code, result.stdout) != (0, b"1\nhello\n"):
                raise Lost(f"{workspace['id']}: git says {result.exit_code} {result.stdout!r} {result.stderr!r}")
            boots = rig.rows(self.machine.store, "SELECT boot_id FROM sandboxes ORDER BY id DESC LIMIT 1")
            if boots != [(self.machine.boot_id,)]:
                raise AssertionError(f"the image's machine was not another boot: {boots}")


class Power(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = pathlib.Path(tempfile.mkdtemp(prefix="moorage-power-", dir=harness.BASE))
        cls.addClassCleanup(shutil.rmtree, cls.directory, ignore_errors=True)
        harness.make_repository(cls.directory / "acme" / "shop")
        cls.git_server = harness.GitServer(cls.directory)
        cls.addClassCleanup(cls.git_server.stop)
        cls.url = cls.git_server.url("acme/shop")

    def life(self, kind, seed, images, broken=""):
        life = Life(self, kind, seed, broken)
        life.work(images)
        return life

    def images_hold(self, kind):
        chance, images, asked = rig.chance(f"power {kind}"), 0, 0
        for _ in rig.rounds(1):
            seed = chance.randrange(1 << 32)
            life = self.life(kind, seed, IMAGES if rig.SOAK_S == 0 else 10)
            for path, what, begun, acknowledged, figures in life.images:
                try:
                    asked += Image(kind, path, begun, acknowledged).check()
                except BaseException as error:
                    found = f"{kind}, life {seed}, image {path.name} ({what}, {figures}), after {images} good ones: {error}"
                    print(found, flush=True)
                    raise AssertionError(found) from error
                images += 1
                path.unlink()
        print(f"{kind}: {images} images, {asked} acknowledgements asked back, none lost; the last disk had {figures}")

    def test_ext4_keeps_what_was_acknowledged(self):
        self.images_hold("ext4")

    def test_xfs_keeps_what_was_acknowledged(self):
        self.images_hold("xfs")

    def test_btrfs_keeps_what_was_acknowledged(self):
        self.images_hold("btrfs")

    def is_caught(self, kind, broken, by=""):
        """The same look finds what a daemon forgets that is broken in this way, and says `by` of it."""
        chance = rig.chance(f"mutant {broken}")
        for life_number in range(5):
            life = self.life(kind, chance.randrange(1 << 32), 6, broken)
            for path, what, begun, acknowledged, _ in life.images:
                try:
                    Image(kind, path, begun, acknowledged).check()
                except Lost as lost:
                    if by not in str(lost):
                        continue
                    print(f"{broken} on {kind}, life {life_number}, {what}: {lost}")
                    return
        self.fail(f"a daemon without {broken} was not caught in 30 images")

    def test_a_daemon_that_syncs_nothing_is_caught(self):
        self.is_caught("xfs", "sync")

    def test_a_daemon_that_syncs_no_directory_is_caught(self):
        self.is_caught("btrfs", "directory-sync")

    def test_a_database_with_synchronous_normal_is_caught(self):
        self.is_caught("ext4", "synchronous")

    def test_a_volatile_overlay_is_caught(self):
        self.is_caught("ext4", "overlay", by="was acknowledged")  # also: nothing is mounted on it again


if __name__ == "__main__":
    unittest.main()
