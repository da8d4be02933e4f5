"""The power is cut while several clients work. Everything acknowledged as durable survives: design, promise 2.

One run of a machine gives several images, cut at chosen moments. Acknowledgements are read before each image and kept
outside of it. Then each image gets a new machine with another boot id: the file system recovers, a daemon starts on it,
and everything is compared. Daemons with missing syncs prove that the rig detects losses.
"""

import contextlib
import os
import pathlib
import random
import shutil
import sqlite3
import tempfile
import threading
import time
import unittest

import rig
from power import Machine
from rig import harness, raw_api

CLIENTS = 3
GIT = "git status --porcelain --untracked-files=no && git log --oneline | wc -l && cat README.md"
IMAGES = 3  # of one run
WORDS = ["put", "put", "counter", "synced", "fsynced", "fsynced", "unsynced", "stop", "snapshot", "snapshot", "fork", "restore"]


class Lost(AssertionError):
    """Something acknowledged as durable is lost: only a broken daemon (mutant) may cause this."""


class Book:
    """Begun and acknowledged operations, in order."""

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
        except BaseException as error:  # noqa: BLE001 - raised by the main thread
            self.error = error

    def text(self, path):
        """A file's content follows from its path, so the checker needs only the path."""
        return f"{path} ".encode() * (1 + sum(path.encode()) % 3000)

    def live(self):
        name = f"{self.name}-{self.lives}"
        self.lives += 1
        made = self.client.create(repo_url=self.life.url, name=name)
        self.book.acknowledge("created", id=made["id"], name=name)
        unsynced, self.snapshots = [], []
        for _ in range(self.chance.randrange(4, 16)):
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
        """Overwrites one file: finding an older or torn version later is a loss."""
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
        self.book.acknowledge("stopped", id=ws)
        for path in unsynced:
            self.book.acknowledge("file", id=ws, path=path)
        unsynced.clear()

    def snapshot(self, ws, unsynced):
        """Of an idle or a running sandbox, at random. A durable one includes unsynced writes before it."""
        taken = self.client.snapshot(ws)
        self.snapshots.append(taken["id"])
        self.book.acknowledge("snapshot", id=ws, snapshot=taken["id"], besides=list(unsynced) if taken["durable"] else [],
                              may_go=taken["way"] == "copy" and not taken["durable"])

    def fork(self, ws, unsynced):
        fork = self.client.fork(ws, names=[f"{self.name}-{self.number}-fork"])[0]
        self.book.acknowledge("forked", id=ws, fork=fork["id"])

    def restore(self, ws, unsynced):
        if not self.snapshots:
            return
        snapshot = self.chance.choice(self.snapshots)
        self.book.begin("restored", id=ws, snapshot=snapshot)
        self.client.restore(ws, snapshot, kill=True)
        self.book.acknowledge("restored", id=ws, snapshot=snapshot)
        unsynced.clear()


class Kept:
    """Required contents of a tree: files whose content follows from their names, and the value of its counter."""

    def __init__(self, files=(), counter=None, may_go=False):
        self.files, self.counter, self.may_go = set(files), counter, may_go

    def copy(self, besides=(), may_go=False):
        return Kept(self.files | {("tree", path) for path in besides}, self.counter, may_go)

    def or_that(self, other):
        """Either of the two states is possible."""
        counters = {self.counter, other.counter}
        return Kept(self.files & other.files, None if None in counters else min(counters))


def expected(begun, acknowledged):
    """The state of each workspace and snapshot according to the acknowledgements, in order."""
    workspaces, snapshots = {}, {}
    open_restores = [facts for word, facts in begun if word == "restored"]
    for word, facts in acknowledged:
        if not facts["id"].startswith("ws_"):
            continue
        own = workspaces.setdefault(facts["id"], Kept())
        if word == "file":
            own.files.add(("tree", facts["path"]))
        elif word == "home":
            own.files.add(("home", facts["path"]))
        elif word == "counter":
            own.counter = facts["number"]
        elif word == "snapshot":
            snapshots[facts["snapshot"]] = (facts["id"], own.copy(facts["besides"], facts["may_go"]))
        elif word == "stopped":
            for ws, kept in snapshots.values():
                kept.may_go &= ws != facts["id"]
        elif word == "forked":
            workspaces[facts["fork"]] = own.copy()
        elif word == "restored":
            open_restores.remove(facts)
            snapshots[facts["snapshot"]][1].may_go = False
            workspaces[facts["id"]] = snapshots[facts["snapshot"]][1].copy()
    for facts in open_restores:
        if facts["id"] in workspaces and facts["snapshot"] in snapshots:
            workspaces[facts["id"]] = workspaces[facts["id"]].or_that(snapshots[facts["snapshot"]][1])
    return workspaces, snapshots


class Life:
    """A busy machine, and its images after power cuts."""

    def __init__(self, test, kind, seed, broken=""):
        # A volatile overlay cannot be mounted twice, but stop and file calls on an idle workspace do that.
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
                    if chance.random() < 0.5:  # right after an acknowledgement, so that no later write syncs it
                        for client in clients:
                            quiet.enter_context(client.turn)
                    else:
                        time.sleep(chance.random() * 0.05)
                    self.cut(number, chance)
        finally:
            self.over.set()
            for client in clients:
                client.join()
            self.machine.close()  # before its images start, as they use the same names
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
    """One image, started on a machine with another boot id."""

    def __init__(self, kind, path, begun, acknowledged):
        self.kind, self.path, self.acknowledged = kind, path, acknowledged
        self.deleted = {facts["id"] for word, facts in begun if word == "deleted"}
        self.expected, self.snapshots = expected(begun, acknowledged)
        self.machine = Machine(kind, image=path, rebooted=True, settings={"daemon.reconcile_interval_s": 1})

    def check(self):
        """Raises Lost, or AssertionError for other problems. Returns the number of checks."""
        try:
            self.come_up()
            self.machine.namespace.inside(self.look_at_all)
            self.machine.unmount()
            self.machine.check(self.path)
            return len(self.acknowledged)
        except sqlite3.DatabaseError as error:
            raise Lost(f"state.db: {error}") from None
        finally:
            self.machine.close()

    def come_up(self):
        try:
            self.machine.start()
        except AssertionError as error:
            raise Lost(f"the daemon does not start: {error}") from None
        torn = self.machine.namespace.inside(lambda: rig.rows(self.machine.store, "SELECT id FROM snapshots WHERE state = 'kept' AND way = 'copy' AND NOT durable"))
        if torn:
            raise Lost(f"copies that may be torn are still there: {torn}")
        self.client = self.machine.daemon.client
        self.workspaces = {w["id"]: w for w in self.client.workspaces(deleted=True)}

    def look_at_all(self):
        for word, facts in self.acknowledged:
            self.look(word, **facts)
        for ws, kept in self.expected.items():
            self.look_at_workspace(ws, kept)
        for snapshot, (ws, kept) in self.snapshots.items():
            self.look_at_snapshot(snapshot, ws, kept)
        self.ask_the_doctor()
        self.use()
        for workspace in self.client.workspaces():
            self.client.stop(workspace["id"])
        findings = []

        def rests():
            findings[:] = rig.at_rest(self.machine.store)
            return not findings

        try:  # the reconciler removes a replaced base tree after its last sandbox
            harness.wait_until(rests, what="rest")
        except AssertionError:
            raise Lost("; ".join(findings)) from None

    def look(self, word, id, **facts):  # noqa: A002
        if word in ("journal", "record"):
            return self.look_at_exec(word, id, facts["output"])
        # A deleted workspace leaves a tombstone; a purged one leaves history.
        if word in ("deleted", "purged") and id in {w["id"] for w in self.client.workspaces()}:
            raise Lost(f"{id} was deleted and is back")
        return None

    def look_at_workspace(self, ws, kept):
        found = rig.rows(self.machine.store, "SELECT layer FROM workspaces WHERE id = ?", int(ws.removeprefix("ws_")))
        if not found:
            raise Lost(f"{ws} was created and has no row")
        if ws in self.deleted:
            return
        if ws not in self.workspaces or self.workspaces[ws]["state"] != "ready":
            raise Lost(f"{ws} was created and is {self.workspaces.get(ws, {}).get('state', 'missing')}")
        self.compare(ws, found[0][0], kept)

    def look_at_snapshot(self, snapshot, ws, kept):
        if ws in self.deleted:
            return
        found = rig.rows(self.machine.store, "SELECT state, layer FROM snapshots WHERE id = ?", int(snapshot.removeprefix("sn_")))
        if found and found[0][0] == "dropped" and kept.may_go:
            return
        if not found or found[0][0] != "kept":
            raise Lost(f"{snapshot} of {ws} was taken and is {found}")
        self.compare(f"{snapshot} of {ws}", found[0][1], kept)

    def content(self, layer, part, path):
        """From the top layer that contains it."""
        chain = rig.rows(self.machine.store, "WITH RECURSIVE chain (id, n) AS (SELECT ?, 0 UNION ALL SELECT parent, n + 1 FROM layers JOIN chain "
                         "USING (id) WHERE parent IS NOT NULL) SELECT id FROM chain ORDER BY n", layer)
        for (one,) in chain:
            with contextlib.suppress(FileNotFoundError):
                return (self.machine.store / "layers" / f"ly_{one}" / part / "upper" / path).read_bytes()
        return None

    def compare(self, what, layer, kept):
        for part, path in sorted(kept.files):
            wanted, found = Client.text(None, path), self.content(layer, part, path)
            if found is None:
                raise Lost(f"{what} {part}/{path} was acknowledged and is missing")
            if found != wanted:
                raise Lost(f"{what} {part}/{path} was acknowledged: {len(wanted)} bytes, now {len(found)}: {found[:40]!r}")
        if kept.counter is not None:
            data = self.content(layer, "tree", "counter") or b""
            if len(set(data.splitlines())) != 1 or len(data) != 9 * 700 or int(data[:8]) < kept.counter:
                raise Lost(f"{what} counter was {kept.counter}, is {len(data)} bytes: {data[:20]!r}")

    def look_at_exec(self, word, exec_id, output):
        try:
            record = self.client.get_exec(exec_id)
            if record["state"] != "exited":
                raise Lost(f"{exec_id} had ended, is {record['state']}")
            kept = self.client.raw_output(exec_id)
        except raw_api.ApiError as error:
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

    def ask_the_doctor(self):
        """Losses that the documents allow are not errors."""
        errors = [finding["text"] for finding in self.client.doctor(deep=True)["findings"] if finding["severity"] == "error"]
        if errors:
            raise Lost(f"doctor: {errors}")

    def use(self):
        """A workspace still works: git runs, and the base has no edits."""
        live = self.client.workspaces()
        for workspace in live[:1]:
            try:
                result = self.client.exec(workspace["id"], GIT)
            except raw_api.ApiError as error:
                raise Lost(f"{workspace['id']} does not start: {error}") from None
            if (result.exit_code, result.stdout) != (0, b"1\nhello\n"):
                raise Lost(f"{workspace['id']}: git says {result.exit_code} {result.stdout!r} {result.stderr!r}")
            self.use_a_snapshot()
            boots = rig.rows(self.machine.store, "SELECT boot_id FROM sandboxes ORDER BY id DESC LIMIT 1")
            if boots != [(self.machine.boot_id,)]:
                raise AssertionError(f"the image's machine was not another boot: {boots}")

    def use_a_snapshot(self):
        for snapshot, (ws, kept) in self.snapshots.items():
            if ws in self.deleted or (kept.may_go and snapshot not in {s["id"] for s in self.client.snapshots(ws)}):
                continue
            try:
                fork = self.client.fork(ws, snapshot=snapshot)[0]["id"]
                for part, path in kept.files:
                    if part == "tree" and self.client.read_file(fork, path) != Client.text(None, path):
                        raise Lost(f"{path} is another one in a fork of {snapshot}")
            except raw_api.ApiError as error:
                raise Lost(f"there is no fork of {snapshot} of {ws}: {error}") from None
            return


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

    def test_ext4_keeps_acknowledged_work(self):
        self.images_hold("ext4")

    def test_xfs_keeps_acknowledged_work(self):
        self.images_hold("xfs")

    def test_btrfs_keeps_acknowledged_work(self):
        self.images_hold("btrfs")

    def cut_after_the_first_create(self, kind, what):
        """An image of a machine with one busy workspace, and nothing else that syncs its base tree."""
        machine = Machine(kind).start()
        self.addCleanup(machine.close)
        machine.daemon.client.create(repo_url=self.url, name="first")
        self.assertEqual(machine.daemon.client.exec("first", GIT).stdout, b"1\nhello\n")
        path = self.directory / f"first-{kind}-{what}.img"
        machine.disk.cut(what, rig.chance(f"first {kind} {what}").randrange(1 << 32), path)
        machine.close()
        return path

    def stands_on_what_was_synced(self, machine, old_boots):
        """Every base tree in use was written in this boot, or synced before."""
        torn = rig.rows(machine.store, "SELECT commit_id, boot_id FROM base_trees WHERE NOT synced AND boot_id IN "
                        f"({','.join('?' * len(old_boots))})", *old_boots)
        self.assertEqual(torn, [], "a sandbox runs, and its base tree is of an earlier boot and was never synced")
        self.assertEqual(list(machine.store.glob("repos/*/trees/*.damaged-*")), [], "nobody stands on a torn one")

    def test_no_sandbox_of_a_later_boot_uses_an_unsynced_base_tree(self):
        ways = {"exec": lambda c: c.exec("first", GIT), "file": lambda c: c.read_file("first", "README.md"),
                "fork": lambda c: c.exec(c.fork("first", names=["second"])[0]["id"], GIT),
                "create": lambda c: c.exec(c.create(repo_url=self.url, name="other")["id"], GIT)}
        for kind in ("ext4", "xfs", "btrfs") if os.environ.get("MOORAGE_TEST_LONG") else ("ext4",):
            for what in ("none", "some"):
                image = self.cut_after_the_first_create(kind, what)
                for way, use in ways.items():
                    with self.subTest(kind, cut=what, way=way):
                        copy = image.with_suffix(".copy")
                        shutil.copy(image, copy)
                        machine = Machine(kind, image=copy, rebooted=True)
                        try:
                            machine.start()
                            old = [row[0] for row in machine.namespace.inside(
                                lambda: rig.rows(machine.store, "SELECT DISTINCT boot_id FROM base_trees"))]  # noqa: B023
                            self.assertNotIn(machine.boot_id, old)
                            self.assertNotEqual(old, [], "the base tree is not known, so nothing is tried")
                            # Torn in the worst way, whatever this cut left: its index and its names exist.
                            machine.namespace.inside(lambda: [p.write_bytes(b"") for p in machine.store.glob("repos/*/trees/*/tree/README.md")])  # noqa: B023
                            use(machine.daemon.client)
                            machine.namespace.inside(lambda: self.stands_on_what_was_synced(machine, old))  # noqa: B023
                            self.assertEqual(machine.daemon.client.exec("first", GIT).stdout, b"1\nhello\n")
                            findings = machine.daemon.client.doctor(deep=True)["findings"]
                            self.assertEqual([f["text"] for f in findings if f["severity"] == "error" or "damaged" in f["text"]], [])
                        finally:
                            machine.close()

    def is_caught(self, kind, broken, by=""):
        """The same check detects the losses of a daemon broken in this way, with the message `by`."""
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

    def test_a_database_without_a_sync_of_its_log_is_caught(self):
        self.is_caught("ext4", "log-sync")

    def test_a_volatile_overlay_is_caught(self):
        self.is_caught("ext4", "overlay", by="was acknowledged")  # also: it cannot be mounted again


if __name__ == "__main__":
    unittest.main()
