"""Every verb of the host that reads a workspace, on every hostile tree: rows 67 and 73.

The matrix is generated: a cell is a verb of VERBS on a thing of hostile_things.py. In each the daemon must answer within its deadline,
stay within 200 MB and open nothing outside of the tree: the kernel reports opens of the canary that all links point to. Each route of
docs/openapi.yaml is in VERBS or in LOOK_INTO_NOTHING, so a new verb without a test fails here.
The default is a part of the things; MOORAGE_TEST_LONG=1 uses all, with a million names.
"""

import contextlib
import ctypes
import os
import pathlib
import re
import resource
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from hostile_things import PRELUDE, SHORT, SWAPPED, SWAPPED_NAME, THINGS
from threat import Threats, harness, threat

LONG = os.environ.get("MOORAGE_TEST_LONG") == "1"
SIZE = 1_000_000 if LONG else 10_000
# A walk of a tree ends after 20 s, and a comparison takes two walks, plus the load of a test machine. Some verbs create, pack or compare a
# million names: a minute alone, more than two beside another suite.
DEADLINE_S = (300 if LONG else 60) * harness.PATIENCE
MAX_RSS_KB = 200_000
OPENAPI = harness.ROOT / "docs/openapi.yaml"

# Routes that touch no tree of an agent, or only through another verb of the matrix.
LOOK_INTO_NOTHING = {
    "GET /v1/health", "GET /v1/info", "GET /v1/config", "POST /v1/config/reload", "GET /metrics", "GET /v1/events", "GET /v1/top", "GET /v1/gc", "POST /v1/gc",
    "GET /v1/workspaces/{workspace}/base",  # the files of a commit of the mirror
    "GET /v1/repos", "POST /v1/repos", "GET /v1/repos/import", "POST /v1/repos/import", "GET /v1/repos/{repo}", "DELETE /v1/repos/{repo}",
    "POST /v1/repos/{repo}/fetch", "GET /v1/workspaces", "PATCH /v1/workspaces/{workspace}", "POST /v1/workspaces/{workspace}/undelete",
    "GET /v1/approvals", "POST /v1/approvals/{approval}/approve", "POST /v1/approvals/{approval}/refuse",
    "GET /v1/credentials", "POST /v1/credentials", "GET /v1/credentials/key", "DELETE /v1/credentials/{credential}",
    "POST /v1/credentials/{credential}/test", "POST /v1/workspaces/{workspace}/share", "GET /v1/workspaces/{workspace}/network",
    "POST /v1/workspaces/{workspace}/network", "GET /v1/workspaces/{workspace}/network/check", "GET /v1/workspaces/{workspace}/lease", "POST /v1/workspaces/{workspace}/lease",
    "PUT /v1/workspaces/{workspace}/lease", "DELETE /v1/workspaces/{workspace}/lease", "GET /v1/workspaces/{workspace}/snapshots",
    "GET /v1/workspaces/{workspace}/snapshots/{snapshot}", "GET /v1/workspaces/{workspace}/tree", "POST /v1/workspaces/{workspace}/move/check",
    "GET /v1/workspaces/{workspace}/best-of", "GET /v1/best-of/{bestof}", "POST /v1/best-of/{bestof}/cancel",
    "GET /v1/workspaces/{workspace}/execs", "GET /v1/workspaces/{workspace}/history", "GET /v1/execs", "GET /v1/execs/{exec}",
    "PUT /v1/execs/{exec}/stdin", "POST /v1/execs/{exec}/signal", "POST /v1/execs/{exec}/cancel", "POST /v1/execs/{exec}/resize",
}

# The verbs in the threat list. Each is in the matrix.
WANTED = {"mending", "start", "seal", "status", "diff", "diff --stat", "report", "compare", "measure", "snapshot when idle", "snapshot by new mounts",
          "snapshot by copy", "snapshot of a subvolume", "fork", "restore", "promote", "merge", "archive", "unarchive", "export", "import", "replica",
          "restore-store", "doctor", "rescue", "file API", "journal"}

VERBS = {}  # name -> (function, stage); tried in this order


def verb(name, *routes, stage="workspace"):
    def mark(function):
        function.routes = routes
        VERBS[name] = (function, stage)
        return function

    return mark


class Opened:
    """Opens of a file as reported by the kernel: inotify on the canary and on its directory."""

    OPEN, ACCESS, MODIFY = 0x20, 0x1, 0x2

    def __init__(self, path):
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        mask = self.OPEN | self.ACCESS | self.MODIFY
        if self.fd < 0 or libc.inotify_add_watch(self.fd, os.fsencode(path.parent), mask) < 0:
            raise OSError(ctypes.get_errno(), "watch the canary")

    def events(self):
        try:
            data = os.read(self.fd, 1 << 16)
        except BlockingIOError:
            return []
        found, at = [], 0
        while at < len(data):
            _, mask, _, length = struct.unpack_from("iIII", data, at)
            found.append((hex(mask), data[at + 16:at + 16 + length].rstrip(b"\0")))
            at += 16 + length
        return found

    def close(self):
        os.close(self.fd)


class Tree:
    """A workspace with a hostile tree, and results of earlier verbs for later ones."""

    def __init__(self, case, name):
        self.case, self.client, self.daemon, self.name = case, case.client, case.daemon, name
        self.archive = case.daemon.directory / f"{name}.archive"

    def layer(self):
        with contextlib.closing(sqlite3.connect(f"file:{self.daemon.store}/state.db?mode=ro", uri=True)) as database:
            row = database.execute("SELECT layer FROM workspaces WHERE name = ? AND state NOT IN ('deleted','failed')", (self.name,)).fetchone()
        return self.daemon.store / "layers" / f"ly_{row[0]}"

    def upper(self):
        return self.layer() / "tree/upper"

    def last_snapshot(self):
        found = self.client.snapshots(self.name)
        return found[-1]["id"] if found else None


def program(source, canary, size):
    given = "" if "give()" in source else "give()"
    return f"CANARY = {str(canary)!r}\nSIZE = {size}\n{PRELUDE}\n{source}\n{given}"


# -- the verbs: idle ------------------------------------------------------------------------------

@verb("status", "GET /v1/workspaces/{workspace}/status")
def status(tree):
    tree.client.status(tree.name)


@verb("diff", "GET /v1/workspaces/{workspace}/diff")
def diff(tree):
    text = tree.client.diff(tree.name)
    tree.case.assertNotIn(b"the host's secret", text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape"))


@verb("diff --stat", "GET /v1/workspaces/{workspace}/diff")
def diff_stat(tree):
    tree.client.diff_stat(tree.name)


@verb("report")
def report(tree):
    made = tree.daemon.cli("report", tree.name, "-o", tree.daemon.directory / "report.html", check=False, timeout=DEADLINE_S)
    tree.case.assertNotIn(b"the host's secret", made.stdout)


@verb("measure", "GET /v1/workspaces/{workspace}", "GET /v1/du")
def measure(tree):
    tree.client.workspace(tree.name)
    tree.client.disk_usage(tree.name)


def read_begin(client, name, path):
    """A prefix of a sparse file of 8 EiB."""
    with client.open_file(name, path) as stream:
        return stream.read(1 << 20)


@verb("file API", "GET /v1/workspaces/{workspace}/files", "GET /v1/workspaces/{workspace}/file", "PUT /v1/workspaces/{workspace}/file",
      "DELETE /v1/workspaces/{workspace}/file", "POST /v1/workspaces/{workspace}/files/move", "POST /v1/workspaces/{workspace}/files/mkdir",
      "POST /v1/workspaces/{workspace}/files/symlink")
def file_api(tree):
    client, name = tree.client, tree.name
    names = ["hostile", "README.md", "src/a.txt", ".git/config", "way/host-secret", "src/host-secret", "d/host-secret", "l/host-secret", "many", "sparse"]
    calls = [lambda path=path: client.list_files(name, path) for path in ("", "src", "hostile", "many", ".git", "d")]
    calls += [lambda path=path: tree.case.assertNotIn(b"the host's secret", read_begin(client, name, path)) for path in names]
    calls += [lambda: client.write_file(name, "hostile/../new", b"new"), lambda: client.write_file(name, "written", b"new"), lambda: client.make_directory(name, "made/below"),
              lambda: client.make_symlink(name, "linked", "/etc/passwd"), lambda: client.move_file(name, "written", "hostile/moved"),
              lambda: client.remove_file(name, "written")]
    for call in calls:
        with tree.case.answered("file API"):
            call()


@verb("snapshot when idle", "POST /v1/workspaces/{workspace}/snapshots")
def snapshot_at_rest(tree):
    tree.client.snapshot(tree.name)


@verb("fork", "POST /v1/workspaces/{workspace}/fork")
def fork(tree):
    tree.client.fork(tree.name, names=[tree.name + "-fork"])


@verb("compare", "GET /v1/workspaces/{workspace}/compare")
def compare(tree):
    tree.client.compare(tree.name, tree.name + "-fork")
    tree.client.compare_patch(tree.name, tree.name + "-fork")


@verb("promote", "POST /v1/workspaces/{workspace}/promote")
def promote(tree):
    tree.client.promote(tree.name + "-fork")


@verb("doctor", "GET /v1/doctor", "POST /v1/doctor")
def doctor(tree):
    tree.client.doctor(deep=True)


@verb("merge")
def merge(tree):
    """More layers than a chain may have: the next start merges them, or reports why not."""
    for _ in range(18):
        tree.client.snapshot(tree.name)


# -- with a sandbox -----------------------------------------------------------------------------------

@verb("start", "POST /v1/workspaces/{workspace}/start", "POST /v1/workspaces/{workspace}/execs", "GET /v1/execs/{exec}/wait")
def start(tree):
    tree.client.exec(tree.name, ["true"], cwd="/")


@verb("sync", "POST /v1/workspaces/{workspace}/sync")
def sync(tree):
    tree.client.sync(tree.name)


@verb("journal", "GET /v1/execs/{exec}/output")
def journal(tree):
    tree.client.exec(tree.name, ["sh", "-c", "head -c 300000 /dev/urandom; ls -la /workspace | head -c 100000"], cwd="/")


@verb("snapshot by new mounts")
def snapshot_restack(tree):
    tree.client.snapshot(tree.name)


@verb("snapshot by copy")
def snapshot_copy(tree):
    holder = tree.client.start_exec(tree.name, ["sleep", "300"], cwd="/workspace")
    try:
        tree.client.snapshot(tree.name)
    finally:
        tree.client.cancel(holder["id"])
        tree.client.wait(holder["id"])


@verb("restore", "POST /v1/workspaces/{workspace}/restore", "POST /v1/workspaces/{workspace}/undo")
def restore(tree):
    snapshot = tree.last_snapshot()
    if snapshot:
        tree.client.restore(tree.name, snapshot, kill=True)


@verb("seal", "POST /v1/workspaces/{workspace}/stop")
def seal(tree):
    tree.client.stop(tree.name)


@verb("best-of", "POST /v1/workspaces/{workspace}/best-of")
def best_of(tree):
    made = tree.client.best_of(tree.name, ["true"], each=["true"], count=1)
    tree.client.get_best_of(made["id"], wait_s=DEADLINE_S)


@verb("move", "POST /v1/workspaces/{workspace}/move")
def move(tree):
    tree.client.move(tree.name, backend="lxc")


# -- in and out -----------------------------------------------------------------------------------------

@verb("objects", "GET /v1/workspaces/{workspace}/objects")
def objects(tree):
    tree.client.objects(tree.name)


@verb("export", "GET /v1/workspaces/{workspace}/export")
def export(tree):
    with open(tree.archive, "wb") as file:
        tree.client.export(tree.name, file)
    tree.exported = True


@verb("import", "POST /v1/workspaces/import")
def import_(tree):
    if not getattr(tree, "exported", False):
        return
    with open(tree.archive, "rb") as file:
        tree.client.import_(file, name=tree.name + "-back")
    tree.client.delete(tree.name + "-back", purge=True)


@verb("archive", "POST /v1/workspaces/{workspace}/archive")
def archive(tree):
    tree.client.archive(tree.name)


@verb("unarchive", "POST /v1/workspaces/{workspace}/unarchive")
def unarchive(tree):
    if tree.client.workspace(tree.name)["state"] == "archived":
        tree.client.unarchive(tree.name)


# -- of the whole store: once for all things ----------------------------------------------------------

@verb("mending", "POST /v1/workspaces", stage="store")
def mending(case):
    """Creates interrupted by a power cut, each with a tree made hostile before the daemon reads it."""
    names = []
    for number, thing in enumerate(case.things):
        if thing == SWAPPED_NAME:
            continue
        name = f"cut{number}"
        case.client.create(repo_url=case.url, name=name)
        tree = Tree(case, name)
        case.plant(thing, tree.upper())
        head = tree.upper() / ".git/HEAD"
        if head.is_file() and not head.is_symlink():
            os.truncate(head, 0)
        names.append(name)
    case.daemon.restart()
    case.watch_memory()
    for name in names:
        with case.answered("mending"):
            case.client.exec(name, ["true"], cwd="/")
        with case.answered("mending"):
            case.client.stop(name)


@verb("replica", stage="store")
def replica(case):
    now = time.time()

    def followed():
        told = case.client.info()["replica"]
        return told.get("as_of", "") > time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) or told.get("error")

    harness.wait_until(followed, DEADLINE_S, "a round of the copy ends")


@verb("restore-store", stage="store")
def restore_store(case):
    place = case.daemon.directory / "restored"
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    made = case.daemon.cli("restore-store", case.replica, "--store", place, "--config", case.daemon.config, check=False, timeout=10 * DEADLINE_S)
    case.assertIn(made.returncode, (0, 1), made.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    if not harness.SANITIZED and after > before:
        case.assertLess(after, MAX_RSS_KB)
    harness.run("chattr", "-R", "-f", "-i", "-a", place, check=False)
    harness.run("rm", "-rf", place)


@verb("rescue", "GET /v1/rescue/workspaces/{workspace}", stage="store")
def rescue(case):
    case.daemon.stop()
    kept = {}
    for suffix in ("", "-wal", "-shm"):
        path = case.daemon.store / f"state.db{suffix}"
        if path.exists():
            kept[path] = path.read_bytes()
            path.unlink()
    (case.daemon.store / "state.db").write_bytes(b"damaged" * 4096)
    case.daemon.start(wait=False)
    try:
        harness.wait_until(case.daemon.answers, what="rescue mode")
        case.watch_memory()
        for workspace in case.client.workspaces():
            with case.answered("rescue"), case.client.rescue_export(workspace["name"]) as stream:
                while chunk := stream.read(1 << 20):
                    case.assertNotIn(b"the host's secret", chunk)
        case.check_memory("rescue")
    finally:
        case.daemon.kill()
        harness.run("rm", "-rf", *case.daemon.store.glob("state.db*"))
        for path, data in kept.items():
            path.write_bytes(data)
        case.daemon.start()
        case.watch_memory()


@verb("snapshot of a subvolume", stage="elsewhere")
def snapshot_subvolume(tree):
    """On btrfs: the class below runs the other verbs there, too."""


# -- the matrix -----------------------------------------------------------------------------------------

class Matrix(Threats):
    """Verbs of stage workspace run on each thing, those of stage store on all at once."""

    __test__ = False
    things = tuple(THINGS) + (SWAPPED_NAME,) if LONG else SHORT
    size = SIZE

    @classmethod
    def setUpClass(cls):
        cls.elsewhere = pathlib.Path(tempfile.mkdtemp(prefix="moorage-replica-", dir=harness.BASE))
        cls.addClassCleanup(lambda: harness.run("rm", "-rf", cls.elsewhere))
        cls.replica = cls.elsewhere / "copy"
        cls.replica.mkdir(mode=0o700)
        cls.settings = {"replica.directory": str(cls.replica), "replica.interval_s": 1, "replica.same_disk": True, "daemon.reconcile_interval_s": 1}
        super().setUpClass()
        # Alone in its directory: any open or lookup there followed a link.
        trap = cls.daemon.directory / "trap"
        trap.mkdir()
        cls.trap = trap / "host-secret"
        cls.trap.write_text("the host's secret\n")
        for name in ("HEAD", "a.txt", "exclude", "info"):
            (trap / name).write_text("the host's secret\n")
        cls.opened = Opened(cls.trap)
        cls.addClassCleanup(cls.opened.close)
        # Before the daemon is closed and its store removed, as they cannot change immutable files.
        cls.watch_memory()

    @classmethod
    def tearDownClass(cls):
        harness.run("chattr", "-R", "-f", "-i", "-a", cls.daemon.store, check=False)
        super().tearDownClass()

    @classmethod
    def watch_memory(cls):
        pathlib.Path(f"/proc/{cls.daemon.process.pid}/clear_refs").write_text("5")

    def check_memory(self, what):
        if harness.SANITIZED:
            return
        text = pathlib.Path(f"/proc/{self.daemon.process.pid}/status").read_text()
        peak = int(re.search(r"VmHWM:\s+(\d+)", text).group(1))
        self.watch_memory()  # first, so that each cell is measured alone
        self.assertLess(peak, MAX_RSS_KB, f"{what}: the daemon took {peak} kB")

    def plant(self, thing, directory):
        made = subprocess.run([sys.executable, "-c", program(THINGS[thing], self.trap, self.size)], cwd=directory, capture_output=True, check=False)
        self.assertEqual(made.returncode, 0, f"{thing}: {made.stderr.decode(errors='replace')}")

    @contextlib.contextmanager
    def answered(self, what, deadline_s=DEADLINE_S):
        """Any answer in time is fine, except an internal error of the daemon."""
        begin = time.monotonic()
        try:
            yield
        except harness.raw_api.ApiError as error:
            self.assertNotEqual(error.code, "internal", f"{what}: {error.message}")
            self.assertTrue(error.message)
            self.answers.append(f"{what}: {error.code}: {error.message}")
        took_s = time.monotonic() - begin
        self.assertLess(took_s, deadline_s, what)
        self.took[what] = max(self.took.get(what, 0), took_s)

    def cell(self, function, argument, what, deadline_s=DEADLINE_S):
        begin = time.monotonic()
        self.opened.events()
        with self.answered(what, deadline_s):
            function(argument)
        self.assertIsNone(self.daemon.process.poll(), f"{what}: the daemon ended: {self.daemon.log_tail()}")
        self.client.health()
        self.check_memory(what)
        self.assertEqual(self.opened.events(), [], f"{what}: something outside of the tree was opened")
        self.cells.append((what, time.monotonic() - begin))

    def try_thing(self, number, thing):
        tree = Tree(self, f"hostile{number}")
        self.client.create(repo_url=self.url, name=tree.name)
        swapping = None
        if thing == SWAPPED_NAME:
            (tree.upper() / "README.md").write_text("inside")
            swapping = subprocess.Popen([sys.executable, "-c", program(SWAPPED, self.trap, self.size)], cwd=tree.upper(), stderr=subprocess.DEVNULL)
        else:
            self.plant(thing, tree.upper())
        try:
            for name, (function, stage) in VERBS.items():
                if stage == "workspace":
                    with self.subTest(verb=name, thing=thing):
                        self.cell(function, tree, f"{name} x {thing}")
        finally:
            if swapping:
                swapping.kill()
                swapping.wait()
            tree.archive.unlink(missing_ok=True)

    def try_all(self):
        self.cells, self.answers, self.took = [], [], {}
        for number, thing in enumerate(self.things):
            self.try_thing(number, thing)
        for name, (function, stage) in VERBS.items():
            if stage == "store":
                with self.subTest(verb=name):
                    # Requests for each of the things, and creating them: each request has its own deadline.
                    self.cell(function, self, name, 10 * DEADLINE_S)
        if os.environ.get("MOORAGE_TEST_SHOW"):
            print(*self.answers, *sorted(self.cells, key=lambda c: -c[1])[:30], sep="\n", file=sys.stderr)


class HostileTree(Matrix):
    @threat(67, "C", "FIFOs, devices, sockets, links in every place, swapped names, millions of names, 5,000 levels, hostile marks and attributes, below every verb of the host",
            "all opens go through base: beneath the tree, no links, without blocking, regular files only; the daemon answers within its deadline, in 200 MB, and repairs after READY",
            "the kernel reports the open of a canary by host code that follows the same link")
    def test_every_verb_on_every_hostile_tree_answers_in_time_and_follows_nothing(self):
        self.try_all()
        os.symlink(self.trap, self.daemon.directory / "plain")
        (self.daemon.directory / "plain").read_text()
        self.assertTrue(self.opened.events(), "the kernel reports nothing at all")

    def test_no_verb_is_missing_from_the_matrix(self):
        self.assertEqual(WANTED - set(VERBS), set())
        routes, path = set(), None
        for line in OPENAPI.read_text().splitlines():
            if found := re.match(r"  (/\S+):$", line):
                path = found.group(1)
            elif line and not line.startswith(" "):
                path = None
            elif path and (found := re.match(r"    (get|put|post|patch|delete):$", line)):
                routes.add(f"{found.group(1).upper()} {path}")
        self.assertGreater(len(routes), 60)
        tried = {route for function, _ in VERBS.values() for route in function.routes} | {"GET /v1/workspaces/{workspace}/compare"}
        tried |= {"DELETE /v1/workspaces/{workspace}", "DELETE /v1/workspaces/{workspace}/snapshots/{snapshot}"}  # closing the class
        self.assertEqual(tried & LOOK_INTO_NOTHING, set())
        self.assertEqual(routes - tried - LOOK_INTO_NOTHING, set(), "put the new route into VERBS, or say in LOOK_INTO_NOTHING that it reads no tree")
        self.assertEqual((tried | LOOK_INTO_NOTHING) - routes, set(), "no longer a route")


class Mending(Threats):
    """Work interrupted by a kill or a power cut is repaired after READY, and one workspace does not affect others."""

    settings = {"daemon.reconcile_interval_s": 1}

    def layer(self, name):
        return Tree(self, name).upper()

    def restart_and_use_the_others(self):
        begin = time.monotonic()
        self.daemon.restart()
        self.assertLess(time.monotonic() - begin, 20 * harness.PATIENCE)
        self.assertEqual(self.client.exec("jail", ["true"]).exit_code, 0)

    def test_no_file_of_an_agent_prevents_the_start_of_the_daemon(self):
        """With a live sandbox its tree is left alone, without any wait."""
        self.client.create(repo_url=self.url, name="fifos")
        self.sh("cd .git; : > HEAD; mkfifo HEAD.new packed-refs.new .HEAD.moorage-new; rm -f packed-refs; mkfifo packed-refs", name="fifos")
        self.restart_and_use_the_others()
        self.assertEqual(self.sh("stat -c %s .git/HEAD", name="fifos").stdout, b"0\n")
        self.client.stop("fifos")
        self.restart_and_use_the_others()
        self.assertEqual(self.sh("stat -c %s .git/HEAD", name="fifos").stdout, b"0\n")

    def test_an_interrupted_create_is_repaired_despite_hostile_names(self):
        self.client.create(repo_url=self.url, name="cut")
        git = self.layer("cut") / ".git"
        for name in ("HEAD.new", ".HEAD.moorage-new", "packed-refs.new"):
            os.mkfifo(git / name)
        (git / ".packed-refs.moorage-new").mkdir()
        os.truncate(git / "HEAD", 0)
        os.truncate(git / "packed-refs", 10)
        self.restart_and_use_the_others()
        self.assertEqual(self.sh("git rev-parse HEAD", name="cut").stdout.decode().strip(), self.first_commit)
        self.assertEqual(self.client.workspace("cut")["integrity"]["state"], "intact")

    def test_an_irreparable_workspace_is_reported_and_others_stay_usable(self):
        self.client.create(repo_url=self.url, name="fixed")
        git = self.layer("fixed") / ".git"
        os.truncate(git / "HEAD", 0)
        harness.run("chattr", "+i", git)
        try:
            self.restart_and_use_the_others()
            found = harness.wait_until(lambda: self.client.workspace("fixed").get("integrity"), what="its state")
            self.assertEqual(found["state"], "needs-repair")
            self.assertIn("cannot write the git files of fixed", found["reason"])
            with self.assertRaises(harness.raw_api.ApiError) as refused:
                self.client.exec("fixed", ["true"])
            self.assertIn("git files", refused.exception.message)
            self.assertIn("needs repair", str(self.client.doctor()))
            self.client.status("fixed")
        finally:
            harness.run("chattr", "-i", git)
        self.assertEqual(self.sh("git rev-parse HEAD", name="fixed").stdout.decode().strip(), self.first_commit)
        self.assertEqual(self.client.workspace("fixed")["integrity"]["state"], "intact")



MANY_AT_ONCE = ("large ignores", "many names", "many ignored names", "large attributes", "many lines")


class Memory(Threats):
    def watch_memory(self):
        pathlib.Path(f"/proc/{self.daemon.process.pid}/clear_refs").write_text("5")

    def check_memory(self):
        text = pathlib.Path(f"/proc/{self.daemon.process.pid}/status").read_text()
        if not harness.SANITIZED:
            self.assertLess(int(re.search(r"VmHWM:\s+(\d+)", text).group(1)), MAX_RSS_KB)

    def test_a_huge_committed_blob_is_not_read_into_memory(self):
        """Zeros, which compress well; a checkout holds them once in memory, a comparison never."""
        source = self.upstream / "acme" / "zeros"
        harness.make_repository(source, {".gitattributes": "* text=auto\n", "small": "s\n"})
        for name in ("emptied", "touched", "removed"):
            with open(source / name, "wb") as file:
                file.truncate(220 << 20)
        harness.git(source, "add", "-A")
        harness.git(source, "commit", "-q", "-m", "zeros")
        self.client.create(repo_url=self.git_server.url("acme/zeros"), name="zeros")
        self.sh(": > emptied; touch touched; rm removed", name="zeros")
        self.client.stop("zeros")
        self.watch_memory()
        changed = {file["path"]: file["change"] for file in self.client.status("zeros")["files"]}
        self.assertEqual(changed, {"emptied": "modified", "removed": "deleted"})
        self.check_memory()
        found = {file["path"]: file["binary"] for file in self.client.diff_stat("zeros")}
        self.assertEqual(found, {"emptied": True, "removed": True})
        self.assertEqual(self.client.diff_lacks("zeros"), {"emptied": "too_large", "removed": "too_large"})
        self.check_memory()

    @threat(73, "C", "patterns of a megabyte in .gitignore against paths of 4 KiB, directories with a million names, in eight concurrent requests",
            "the length of patterns is limited, requests share 96 MiB and report omissions: the daemon stays within 200 MB",
            "one bit per pair of positions of that pattern and path would need twice the daemon's memory")
    def test_concurrent_reads_of_agents_trees_share_bounded_memory(self):
        for number, thing in enumerate(MANY_AT_ONCE):
            self.client.create(repo_url=self.url, name=f"memory{number}")
            made = subprocess.run([sys.executable, "-c", program(THINGS[thing], self.canary, SIZE)], cwd=Tree(self, f"memory{number}").upper(),
                                  capture_output=True, check=False)
            self.assertEqual(made.returncode, 0, made.stderr)
        ignore = Tree(self, "memory0").upper() / ".gitignore"
        longest = max(len(line) for line in ignore.read_bytes().splitlines())
        self.assertGreater(longest * 3900 // 8, 2 * MAX_RSS_KB * 1000)
        self.watch_memory()
        failed = []

        def look(number, verb):
            client = harness.Client(str(self.daemon.socket))
            try:
                getattr(client, verb)(f"memory{number}")
            except harness.raw_api.ApiError as error:
                if error.code == "internal":
                    failed.append(f"{verb}: {error.message}")

        threads = [threading.Thread(target=look, args=(number, verb)) for number in range(len(MANY_AT_ONCE)) for verb in ("status", "diff_stat", "diff")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S * 3)
        self.assertEqual([t for t in threads if t.is_alive()], [])
        self.assertEqual(failed, [])
        self.check_memory()


@unittest.skipUnless(LONG and shutil.which("mkfs.btrfs"), "long: the same on btrfs, where a snapshot is one of a subvolume")
class HostileTreeOnBtrfs(Matrix):
    file_system = ["mkfs.btrfs", "-q"]
    image_bytes = 16 << 30  # it keeps each name several times
    size = 100_000  # a million is for the daemon's memory, which the same code takes on every file system

    def test_the_matrix_on_btrfs_subvolumes(self):
        self.try_all()


if __name__ == "__main__":
    unittest.main()
