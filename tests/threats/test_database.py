"""A state.db that is locked, full, read-only, failing, damaged, missing, of another version or from another time: row 61."""

import contextlib
import os
import pathlib
import shutil
import sqlite3
import struct
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "crash"))

from test_access import User  # noqa: E402
from test_syscalls import traced  # noqa: E402
from test_time import FAKETIME, YEAR_S  # noqa: E402
from threat import Threats, harness, threat  # noqa: E402

PAGE = 4096
FIXTURE = harness.ROOT / "tests/state_db/fixtures/0001-first.sql"
BUSY_S = 5  # the daemon's busy timeout
TABLES = ("meta", "migrations", "events", "repositories", "base_trees", "layers", "workspaces", "sandboxes", "execs")


class Database(Threats):
    settings = {"daemon.reconcile_interval_s": 1, "workspace.sync_interval_s": 1}

    # -- the files ----------------------------------------------------------------------------------

    @property
    def store(self):
        return self.daemon.store

    @property
    def file(self):
        return self.store / "state.db"

    def log_file(self, suffix="-wal"):
        return self.store / f"state.db{suffix}"

    def copies(self):
        return sorted(self.store.glob("state.db.damaged-*"))

    def database_files(self):
        return {name: (self.store / name).read_bytes() for name in ("state.db", "state.db-wal") if (self.store / name).is_file()}

    def remove_database(self):
        for path in (self.file, self.log_file(), self.log_file("-shm")):
            if path.is_dir():
                shutil.rmtree(path)
            path.unlink(missing_ok=True)

    def put_back(self, good):
        """Like a person: restores the good files, and the work that was set aside."""
        self.remove_database()
        for name, data in good.items():
            (self.store / name).write_bytes(data)
        for path in (self.store / "lost").glob("*"):
            name = path.name.split("-")[0]
            place = self.store / ("layers" if name.startswith("ly_") else "workspaces") / name
            if place.exists():
                shutil.rmtree(place)
            path.rename(place)

    def sql(self, *statements):
        """Runs them in another program after a full checkpoint. Returns the last result."""
        with contextlib.closing(sqlite3.connect(self.file, isolation_level=None)) as database:
            for statement in statements:
                rows = database.execute(statement).fetchall()
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return rows

    def overwrite(self, offset, data, path=None):
        with open(path or self.file, "r+b") as database:
            database.seek(offset)
            database.write(data)

    def spoil_page_of(self, name):
        page = self.sql(f"SELECT rootpage FROM sqlite_schema WHERE name = '{name}'")[0][0]
        self.overwrite((page - 1) * PAGE, b"\x5a" * PAGE)

    def spoil_index(self):
        """Its rows differ from its table's, although every page is valid."""
        row = self.sql("SELECT type, name, tbl_name, rootpage, sql FROM sqlite_schema WHERE name = 'layers_of_base'")[0]
        self.sql("PRAGMA writable_schema = ON", "DELETE FROM sqlite_schema WHERE name = 'layers_of_base'")
        self.sql("UPDATE layers SET base_commit = base_commit || 'x'", "UPDATE layers SET base_commit = substr(base_commit, 1, 40)",
                 "INSERT INTO layers (repository, base_commit, frozen, created_wall_ms) SELECT repository, base_commit, 1, 0 FROM layers LIMIT 1")
        quoted = ", ".join(str(v) if isinstance(v, int) else f"'{v}'" for v in row)
        self.sql("PRAGMA writable_schema = ON", f"INSERT INTO sqlite_schema VALUES ({quoted})")

    def spoil_free_pages(self):
        self.sql("CREATE TABLE junk (x)", "INSERT INTO junk WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900) "
                 "SELECT randomblob(4000) FROM n", "DROP TABLE junk")
        trunk = struct.unpack(">I", self.file.read_bytes()[32:36])[0]
        self.assertGreater(trunk, 0, "there are free pages")
        self.overwrite((trunk - 1) * PAGE, b"\x5a" * PAGE)

    # -- the daemon ---------------------------------------------------------------------------------

    def start_anyhow(self):
        self.daemon.start(wait=False)
        harness.wait_until(self.daemon.answers, what=f"an answer; log: {self.daemon.log_tail()}")

    def refusal(self, prefix=()):
        """The error of a daemon that does not start."""
        ended = harness.run(*prefix, harness.BIN / "mooraged", "--config", self.daemon.config, check=False, timeout=60 * harness.PATIENCE,
                            env=self.daemon.environment)
        self.assertEqual(ended.returncode, 1, ended.stderr)
        said = ended.stderr.decode(errors="replace")
        self.assertIn("mooraged: ", said)
        self.assertNotIn("terminate called", said)
        return said

    def assert_all_is_there(self):
        self.assertEqual(self.client.exec("jail", "cat work").stdout, b"precious\n")
        self.assertEqual(self.client.raw_output(self.record["id"]), b"said before\n")
        self.assertIn("jail", [w["name"] for w in self.client.workspaces()])

    def tree(self):
        """The store without the database and without files that the kernel and sandboxes change."""
        return sorted(str(p) for part in ("layers", "workspaces", "repos", "sandboxes", "lost") for p in (self.store / part).glob("*"))

    def assert_rescue(self, said, copied):
        before = self.database_files()
        tree, copies = self.tree(), self.copies()
        why = self.client.health()["rescue"]
        self.assertRegex(why, said)
        self.assertEqual(self.client.info()["rescue"], why)
        jail = next(w for w in self.client.workspaces() if w["name"] == "jail")
        self.assertEqual((jail["rescued"], jail["id"], jail["owner"]), (True, self.jail["id"], os.getuid()))
        self.assertEqual(jail["repo"]["url"], self.jail["repo"]["url"])
        self.assertEqual(jail["base"]["commit"], self.first_commit)
        self.assertEqual(len(jail["layers"]), 1)
        self.assertGreater(jail["disk_bytes"], 0)
        diagnosis = self.client.doctor()
        self.assertFalse(diagnosis["clean"])
        self.assertRegex(diagnosis["findings"][0]["text"], said)
        self.assertTrue(diagnosis["findings"][0]["command"])
        for method, path in (("GET", "/repos"), ("GET", "/workspaces/jail"), ("POST", "/workspaces"), ("POST", "/doctor"), ("GET", "/nothing")):
            with self.assertRaises(harness.raw_api.ApiError) as refused:
                self.client.request(method, path)
            self.assertEqual((refused.exception.code, refused.exception.status), ("unavailable", 503), path)
            self.assertRegex(refused.exception.message, said)
            self.assertTrue(refused.exception.hint)
        self.assert_exported(jail["layers"][0])
        self.assertEqual(self.database_files(), before, "the database is as it was found")
        self.assertEqual((self.tree(), self.copies()), (tree, copies), "nothing in the store was changed")
        if copied:
            self.assertTrue(any(all((copy / name).read_bytes() == data for name, data in before.items()) for copy in copies), "a copy is kept")
        return diagnosis

    def assert_exported(self, layer):
        with tempfile.TemporaryDirectory(dir=harness.BASE) as place:
            archive = pathlib.Path(place) / "jail.tar.zst"
            with self.client.rescue_export("jail") as stream:
                archive.write_bytes(stream.read())
            harness.run("tar", "--zstd", "--warning=no-unknown-keyword", "-xf", archive, "-C", place)
            self.assertEqual((pathlib.Path(place) / "layers" / layer / "tree/work").read_bytes(), b"precious\n")
            self.assertIn(b"said before", (pathlib.Path(place) / "journal" / self.record["id"] / "output").read_bytes())
            self.assertIn(b'"jail"', (pathlib.Path(place) / "about.json").read_bytes())

    # -- the cases ----------------------------------------------------------------------------------

    @threat(61, "C", "state.db is locked for a minute, read-only, full, fails, is damaged page by page, loses its log, is missing, of another version or time",
            "a clear error, or 503; an unreadable database is copied and left unmodified, its workspaces are listed and exported from the "
            "disk, and restoring a good one loses nothing",
            "SQLite alone treats the emptied file as a new database, and ignores the log of noise")
    def test_an_unusable_database_loses_no_work(self):
        self.jail = self.client.workspace("jail")
        self.client.exec("jail", "echo precious > work", sync=True)
        self.record = self.client.start_exec("jail", ["echo", "said before"])
        self.client.wait(self.record["id"])
        note = self.store / "workspaces" / self.jail["id"] / "about.json"
        harness.wait_until(note.exists, what="the note on disk")
        self.client.archive(self.client.create(repo_url=self.url, name="cold")["id"])
        self.while_running()
        self.daemon.kill()
        for name, case in self.at_start():
            with self.subTest(name):
                good = self.database_files()
                try:
                    case()
                finally:
                    self.daemon.kill()
                    for copy in self.copies():
                        shutil.rmtree(copy)
                    self.put_back(good)
                self.daemon.start()
                self.assert_all_is_there()
                self.daemon.kill()
        self.daemon.start()
        # Work done with an older state.db in place has a journal but no row: only that is reported.
        wrong = [finding for finding in self.client.doctor()["findings"] if finding["severity"] != "note" and finding["check"] != "journals"]
        self.assertEqual(wrong, [])

    def while_running(self):
        for name, case in (("locked", self.locked_while_running), ("full", self.full_while_running), ("failing", self.failing_while_running),
                           ("damaged", self.damaged_while_running)):
            with self.subTest("while running", case=name):
                case()
                self.assert_all_is_there()

    def locked_while_running(self):
        # Long enough for two waiting requests, which shows the same as a minute.
        with contextlib.closing(sqlite3.connect(self.file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            until = time.monotonic() + 2 * BUSY_S + 1
            while time.monotonic() < until:
                with self.assertRaises(harness.raw_api.ApiError) as refused:
                    self.client.create(repo_url=self.url, name="locked")
                self.assertEqual((refused.exception.code, refused.exception.status), ("unavailable", 503))
                self.assertIn("locked", refused.exception.message)
                self.assertTrue(refused.exception.hint)
            other.execute("ROLLBACK")
        self.assertIsNone(self.daemon.process.poll())
        self.client.delete(self.client.create(repo_url=self.url, name="locked")["id"], purge=True)

    def full_while_running(self):
        pid = self.daemon.process.pid
        with traced(pid, "-o", "/dev/null", "-P", str(self.log_file()), "-e", "inject=pwrite64:error=ENOSPC"):
            with self.assertRaises(harness.raw_api.ApiError) as refused:
                self.client.create(repo_url=self.url, name="full")
            self.assertEqual((refused.exception.code, refused.exception.status), ("resource_exhausted", 507))
        self.assertIsNone(self.daemon.process.poll())
        self.client.delete(self.client.create(repo_url=self.url, name="full")["id"], purge=True)

    def failing_while_running(self):
        pid = self.daemon.process.pid
        with traced(pid, "-o", "/dev/null", "-P", str(self.log_file()), "-e", "inject=pwrite64:error=EIO"), \
                self.assertRaises((harness.raw_api.ApiError, OSError)):
            self.client.create(repo_url=self.url, name="failing")
        self.assertEqual(self.daemon.process.wait(10 * harness.PATIENCE), 1)
        self.assertIn("daemon.store_failed", self.daemon.log.read_text())
        self.daemon.start()

    def damaged_while_running(self):
        """It never continues on damage: the daemon ends, and the next start reports it."""
        self.daemon.stop()
        self.sql("VACUUM")
        good = self.database_files()
        self.spoil_page_of("idempotency_keys_by_age")
        self.start_anyhow()  # an orderly end is trusted
        deadline = time.monotonic() + 60 * harness.PATIENCE
        while self.daemon.process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(harness.raw_api.ApiError, OSError):
                self.client.stop("jail", key=f"key-{time.monotonic()}")
        self.assertEqual(self.daemon.process.wait(1), 1)
        self.assertIn("daemon.store_failed", self.daemon.log.read_text())
        self.start_anyhow()
        self.assert_rescue("state.db is damaged", copied=True)
        self.daemon.kill()
        for copy in self.copies():
            shutil.rmtree(copy)
        self.put_back(good)
        self.daemon.start()

    def at_start(self):
        yield "locked", self.locked_at_start
        yield "read-only file", self.read_only_file
        yield "read-only file system", self.read_only_file_system
        yield "reads fail", self.reads_fail
        yield "damaged head", lambda: self.rescued(lambda: self.overwrite(0, os.urandom(100)), "state.db")
        for table in TABLES:
            yield f"damaged page of {table}", lambda t=table: self.damaged_table(t)
        yield "damaged page of an index", lambda: self.rescued(lambda: self.spoil_page_of("workspaces_live_name"), "damaged")
        yield "damaged free pages", lambda: self.rescued(self.spoil_free_pages, "damaged")
        yield "index of other rows", self.index_of_other_rows
        yield "no log", self.no_log
        yield "cut log", self.cut_log
        yield "log of noise", self.log_of_noise
        yield "log's index of noise", self.index_of_the_log_of_noise
        yield "empty file", self.empty_file
        yield "text", lambda: self.rescued(lambda: self.file.write_text("to do: buy a disk\n" * 1000), "state.db")
        yield "cut file", lambda: self.rescued(lambda: os.truncate(self.file, self.file.stat().st_size // PAGE // 2 * PAGE), "state.db")
        yield "directory", lambda: self.rescued(lambda: (self.remove_database(), self.file.mkdir()), "is a directory", copied=False)
        yield "gone", lambda: self.rescued(self.remove_database, "state.db is gone", copied=False)
        yield "gone, with its log there", lambda: self.rescued(self.file.unlink, "state.db is gone")
        yield "newer version", self.newer_version
        yield "another program's", self.another_programs
        yield "older version", self.older_version
        if not harness.SANITIZED:  # libfaketime conflicts with sanitizers
            yield "years ago", self.years_ago

    def rescued(self, damage, said, copied=True):
        damage()
        self.start_anyhow()
        return self.assert_rescue(said, copied)

    def locked_at_start(self):
        with contextlib.closing(sqlite3.connect(self.file, isolation_level=None)) as other:
            other.execute("PRAGMA locking_mode = EXCLUSIVE")
            other.execute("BEGIN EXCLUSIVE")
            self.assertIn("locked", self.refusal())
            other.execute("ROLLBACK")

    def read_only_file(self):
        harness.run("chattr", "+i", self.file)
        try:
            self.assertIn("state.db", self.refusal())
        finally:
            harness.run("chattr", "-i", self.file)

    def read_only_file_system(self):
        here = f"mount --bind {self.store} {self.store} && mount -o remount,bind,ro {self.store} && exec \"$@\""
        self.assertIn("Read-only file system", self.refusal(("unshare", "-m", "sh", "-c", here, "sh")))

    def reads_fail(self):
        self.assertIn("state.db", self.refusal(("strace", "-f", "-qq", "-o", "/dev/null", "-P", self.file, "-e", "trace=pread64",
                                                "-e", "inject=pread64:error=EIO")))
        self.assertEqual(self.copies(), [], "nothing is written to a failing disk")

    def damaged_table(self, table):
        diagnosis = self.rescued(lambda: self.spoil_page_of(table), "state.db")
        if table not in ("meta", "migrations"):  # without these two tables the others are never read
            self.assertIn(f"table {table}: ", " ".join(finding["text"] for finding in diagnosis["findings"]))

    def index_of_other_rows(self):
        self.spoil_index()
        self.sql("UPDATE meta SET value = '0' WHERE name = 'clean'")
        damaged = self.file.read_bytes()
        self.daemon.start()
        self.assertIn("store.mended", self.daemon.log_tail())
        self.assertEqual([(copy / "state.db").read_bytes() == damaged for copy in self.copies()], [True])
        self.assertIn("indexes were rebuilt", " ".join(finding["text"] for finding in self.client.doctor()["findings"]))
        self.assert_all_is_there()

    def no_log(self):
        self.sql("SELECT 1")  # moves everything into state.db
        self.log_file().unlink(missing_ok=True)
        self.daemon.start()
        self.assert_all_is_there()

    def cut_log(self):
        """An older state: newer work is set aside, never removed."""
        self.sql("SELECT 1")
        self.daemon.start()
        self.client.create(repo_url=self.url, name="newer")
        self.client.write_file("newer", "work", b"precious, too\n")
        layer = max(int(p.name[3:]) for p in (self.store / "layers").glob("ly_*"))
        self.daemon.kill()
        os.truncate(self.log_file(), 32 + 24 + PAGE // 2)
        self.daemon.start()
        self.assert_all_is_there()
        self.assertNotIn("newer", [w["name"] for w in self.client.workspaces()])
        kept = list((self.store / "lost").glob(f"ly_{layer}-*/tree/upper/work"))
        self.assertEqual([path.read_bytes() for path in kept], [b"precious, too\n"])
        self.daemon.kill()
        for path in (self.store / "lost").glob("*"):
            shutil.rmtree(path)

    def log_of_noise(self):
        self.log_file().write_bytes(os.urandom(20 * PAGE))
        with tempfile.TemporaryDirectory(dir=harness.BASE) as place:  # the control: SQLite reports nothing
            for name, data in self.database_files().items():
                (pathlib.Path(place) / name).write_bytes(data)
            with contextlib.closing(sqlite3.connect(f"{place}/state.db")) as alone:
                alone.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        self.start_anyhow()
        self.assert_rescue("state.db-wal", copied=True)

    def index_of_the_log_of_noise(self):
        self.log_file("-shm").write_bytes(os.urandom(8 * PAGE))
        self.daemon.start()
        self.assert_all_is_there()

    def empty_file(self):
        self.remove_database()
        self.file.touch()
        with contextlib.closing(sqlite3.connect(self.file)) as alone:  # the control
            self.assertEqual(alone.execute("PRAGMA integrity_check").fetchone(), ("ok",))
        self.start_anyhow()
        self.assert_rescue("state.db is empty", copied=False)
        self.by_the_command_line()
        self.by_others()

    def by_the_command_line(self):
        listed = self.daemon.cli("ls").stdout.decode()
        self.assertRegex(listed, r"jail .* on disk")
        self.assertIn("rescue mode: state.db is empty", listed)
        self.assertIn("RESCUE", self.daemon.cli("info").stdout.decode())
        doctor = self.daemon.cli("doctor", check=False)
        self.assertEqual(doctor.returncode, 1)
        self.assertIn(b"state.db is empty", doctor.stdout)
        archive = self.daemon.directory / "jail.tar.zst"
        self.daemon.cli("rescue", "export", "jail", archive)
        self.assertIn(b"tree/work", harness.run("tar", "--zstd", "-tf", archive).stdout)
        again = self.daemon.cli("rescue", "export", "jail", archive, check=False)
        self.assertNotEqual(again.returncode, 0, "no file is written over")
        nobody = self.daemon.cli("rescue", "export", "nobody", self.daemon.directory / "nobody", check=False)
        self.assertIn(b"the disk has no workspace 'nobody'", nobody.stderr)
        self.assertFalse((self.daemon.directory / "nobody").exists())
        self.assertRegex(listed, r"cold .* archived")
        saved = self.daemon.directory / "cold.tar.zst"
        self.daemon.cli("rescue", "export", "cold", saved)
        self.assertEqual([saved.read_bytes()], [path.read_bytes() for path in (self.store / "archive").glob("*-ws_*.tar.zst")])
        refused = self.daemon.cli("exec", "jail", "--", "true", check=False)
        self.assertIn(b"rescue mode", refused.stderr)

    def by_others(self):
        self.assertIn("is in use by process", self.refusal())
        self.daemon.socket.chmod(0o666)
        other = User(self.daemon.socket, 61009)
        try:
            for path in ("/v1/health", "/v1/workspaces", "/v1/doctor", "/v1/rescue/workspaces/jail"):
                status, answer = other.json("GET", path)
                self.assertEqual((status, answer["code"]), (503, "unavailable"), path)
        finally:
            other.close()

    def newer_version(self):
        self.sql("INSERT INTO migrations VALUES ('9999-later', '9.9.9', 1)")
        self.start_anyhow()
        self.assert_rescue(r"newer version \(moorage 9.9.9", copied=False)
        self.assertEqual(self.copies(), [])

    def another_programs(self):
        self.remove_database()
        self.sql("CREATE TABLE songs (title TEXT)")
        self.start_anyhow()
        self.assert_rescue("not a moorage database", copied=False)

    def older_version(self):
        """From the first release, without this store's rows: migrated, and the work set aside."""
        store_id = self.sql("SELECT value FROM meta WHERE name = 'store_id'")[0][0]
        self.remove_database()
        with contextlib.closing(sqlite3.connect(self.file, isolation_level=None)) as database:
            database.executescript(FIXTURE.read_text())
            database.execute("PRAGMA application_id = 0x4d4f4f52")
            database.execute("INSERT INTO migrations VALUES ('0001-first', '0.1', 1)")
            database.execute("INSERT INTO meta VALUES ('store_id', ?), ('clean', '1')", (store_id,))
        self.daemon.start()
        self.assertEqual(self.client.workspaces(), [])
        layer = self.tree_layer()
        self.assertEqual([path.read_bytes() for path in (self.store / "lost").glob(f"{layer}-*/tree/upper/work")], [b"precious\n"])

    def tree_layer(self):
        return "ly_" + self.jail["id"].split("_")[1]

    def years_ago(self):
        now = self.libexec / "years"
        now.write_text(f"{-10 * YEAR_S:+d}")
        usual = dict(self.daemon.environment)
        self.daemon.environment |= {"LD_PRELOAD": FAKETIME, "FAKETIME_TIMESTAMP_FILE": str(now), "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                                    "FAKETIME_NO_CACHE": "1"}
        try:
            self.daemon.start()
            self.assertIn("the clock went back", " ".join(finding["text"] for finding in self.client.doctor()["findings"]))
            self.assert_all_is_there()
        finally:
            self.daemon.kill()
            self.daemon.environment = usual


if __name__ == "__main__":
    unittest.main()
