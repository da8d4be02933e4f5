"""kill -9 of the daemon, the sandbox, LXC's monitor, all of them; idle and during an exec. Nothing may be lost."""

import contextlib
import io
import os
import signal
import socket
import sqlite3
import subprocess
import threading
import unittest

import rig
from rig import harness, raw_api
import trees  # in tests/e2e

# Writes numbered lines to a file and to standard output at the same time, until the test says stop.
WRITER = "i=0; until [ -e over ]; do i=$((i+1)); echo line $i >> log.txt; echo line $i; done; echo finished >&2"


class Crash(harness.TestCase):
    settings = {"gc.keep_unused_s": 0}

    def kill(self, what, name, before_start=lambda: None):
        pids = self.daemon.sandbox_pids(name)
        if what in ("monitor", "all"):
            self.assertIsNotNone(pids["monitor"], "LXC's monitor was not found")
            os.kill(pids["monitor"], signal.SIGKILL)
        if what in ("daemon", "all"):
            self.daemon.kill()
        if what in ("init", "all"):
            os.kill(pids["init"], signal.SIGKILL)
            # A sanitized daemon takes a while to die; until then it exists but does not answer.
            harness.wait_until(lambda: not os.path.exists(f"/proc/{pids['init']}/exe"), what="the end of init")
        if what in ("daemon", "all"):
            before_start()
            self.daemon.start()

    def assert_no_strays(self):
        census = harness.census(self.daemon.store_id(), self.daemon.directory)
        live = {w["sandbox"]["id"] for w in self.client.workspaces() if w.get("sandbox")}
        for kind, entries in census.items():
            for entry in entries:
                self.assertTrue(any(f"-{sandbox}" in entry for sandbox in live), f"stray {kind}: {entry}")
        self.assertEqual(census["mounts"], [], "nothing is ever mounted in the host's namespace")
        on_disk = set(os.listdir(self.daemon.store / "sandboxes")) if (self.daemon.store / "sandboxes").exists() else set()
        self.assertEqual(on_disk, live)

    def test_idle_kills_lose_nothing(self):
        for what in ("daemon", "init", "monitor", "all"):
            with self.subTest(what):
                name = f"idle-{what}"
                self.client.create(repo_url=self.url, name=name)
                self.assertEqual(self.client.exec(name, "echo edit > edit; echo home > ~/h; mkdir ign; echo i > ign/f").exit_code, 0)
                self.kill(what, name)
                out = self.client.exec(name, "cat edit ~/h ign/f; git status --porcelain | wc -l")
                self.assertEqual((out.exit_code, out.stdout), (0, b"edit\nhome\ni\n2\n"))
                self.assert_no_strays()
                self.client.delete(name, purge=True)

    def write(self, name):
        """Starts a writer in a new workspace and waits for output. Returns its exec."""
        self.client.create(repo_url=self.url, name=name)
        exec_id = self.client.start_exec(name, ["sh", "-c", WRITER])["id"]
        self.wait_for_more(exec_id, 50_000)
        return exec_id

    def wait_for_more(self, exec_id, size=10_000):
        before = self.client.get_exec(exec_id)["output_bytes"]
        harness.wait_until(lambda: self.client.get_exec(exec_id)["output_bytes"] > before + size, what="output")

    def end_writer(self, name, exec_id):
        """It still runs; none of its output is missing or duplicated."""
        self.wait_for_more(exec_id)
        self.client.write_file(name, "over", b"")
        end = self.client.wait(exec_id, timeout_ms=60000)
        self.assertEqual((end["state"], end["exit_code"]), ("exited", 0))
        written = self.client.read_file(name, "log.txt")
        self.assertEqual(written, "".join(f"line {i}\n" for i in range(1, written.count(b"\n") + 1)).encode())
        self.assertEqual(self.client.raw_output(exec_id, "stdout"), written)
        self.assertEqual(self.client.raw_output(exec_id, "stderr"), b"finished\n")

    def test_a_command_survives_the_daemon(self):
        writer = self.write("goes-on")
        for _ in range(3):
            self.daemon.restart()
        self.end_writer("goes-on", writer)
        self.assert_no_strays()

    def test_a_killed_command_is_interrupted_and_keeps_all_its_output(self):
        for what in ("init", "all"):
            with self.subTest(what):
                name = f"cut-{what}"
                writer = self.write(name)
                self.kill(what, name)
                end = self.client.wait(writer, timeout_ms=20000)
                self.assertEqual(end["state"], "interrupted")
                self.assertNotIn("exit_code", {k for k, v in end.items() if v is not None})
                out = self.client.raw_output(writer, "stdout")
                lines = out.decode().split("\n")
                self.assertGreater(len(lines), 1000)
                self.assertEqual(lines[:-1], [f"line {i}" for i in range(1, len(lines))])
                log = self.client.read_file(name, "log.txt").decode().split("\n")
                self.assertGreaterEqual(len(log), len(lines))  # each line went to the file first
                self.assertEqual(self.client.exec(name, "true").exit_code, 0)
                self.assert_no_strays()
                self.client.delete(name, purge=True)

    def test_a_killed_monitor_does_not_matter(self):
        writer = self.write("monitor")
        init = self.daemon.sandbox_pids("monitor")["init"]
        self.kill("monitor", "monitor")
        self.end_writer("monitor", writer)
        self.assertEqual(self.daemon.sandbox_pids("monitor")["init"], init)
        self.client.stop("monitor")
        self.assert_no_strays()

    def test_the_same_key_never_runs_twice(self):
        self.client.create(repo_url=self.url, name="once")
        key = "retry-me"
        argv = ["sh", "-c", "echo ran >> count; sleep 1"]
        first = self.client.start_exec("once", argv, key=key)
        self.daemon.restart()
        again = self.client.start_exec("once", argv, key=key)
        self.assertEqual(first["id"], again["id"])
        ids = []
        threads = [threading.Thread(target=lambda: ids.append(self.client.start_exec("once", argv, key=key)["id"])) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(set(ids), {first["id"]})
        self.client.wait(first["id"], timeout_ms=10000)
        self.assertEqual(self.client.read_file("once", "count"), b"ran\n")
        with self.assertRaises(raw_api.ApiError) as refused:
            self.client.start_exec("once", ["true"], key=key)
        self.assertEqual(refused.exception.code, "already_exists")

    def test_the_next_start_recovers_from_every_crash_point(self):
        names = harness.run(harness.BIN / "mooraged", "--list-crash-points").stdout.decode().split()
        self.assertGreater(len(names), 15)
        # A rebase needs a larger tree: test_base_trees kills it; test_replica the replica's rounds, test_store_image starts without a
        # store, and test_move moves.
        for number, point in enumerate(n for n in names if not n.startswith(("recovery.", "rebase.", "replica.", "image.", "move."))):
            with self.subTest(point):
                name = f"point-{number}"
                harness.commit(self.upstream / "acme" / "shop", "moved.txt", name)
                self.daemon.stop()
                self.daemon.start(crash_at=point)
                died = self.run_every_verb(name)
                try:
                    self.assertEqual(self.daemon.process.wait(1 if died else 0.2), -signal.SIGKILL, died)
                except subprocess.TimeoutExpired:
                    self.fail(f"{point} was never passed by the verbs of this test: {died!r}")
                self.daemon.start()
                self.settle(name)
        self.daemon.restart()

    def test_a_second_crash_during_the_recovery_changes_nothing(self):
        points = [n for n in harness.run(harness.BIN / "mooraged", "--list-crash-points").stdout.decode().split() if n.startswith("recovery.")]
        self.assertGreater(len(points), 6)
        self.client.create(repo_url=self.url, name="lives")
        self.client.create(repo_url=self.url, name="rests")
        self.client.exec("rests", "echo kept > kept", sync=True)
        self.client.stop("rests")
        job = self.client.start_exec("lives", ["sh", "-c", "while [ ! -e go ]; do sleep 0.1; done; echo over"])
        init = self.daemon.sandbox_pids("lives")["init"]
        for number, point in enumerate(points):
            with self.subTest(point):
                dead = f"dead-{number}"
                self.client.create(repo_url=self.url, name=dead)
                cut = self.client.start_exec(dead, ["sh", "-c", "echo begun > begun; sync; echo begun; sleep 600"])
                harness.wait_until(lambda: self.client.get_exec(cut["id"])["output_bytes"] > 0, what="output")
                pids = self.daemon.sandbox_pids(dead)
                self.daemon.kill()
                os.kill(pids["init"], signal.SIGKILL)
                harness.wait_until(lambda: not os.path.exists(f"/proc/{pids['init']}/exe"), what="the end of init")
                (self.daemon.store / "sandboxes" / "sb_9999").mkdir()
                for _ in range(2):  # and again at the same place
                    self.daemon.start(crash_at=point, wait=False)
                    status = self.daemon.process.wait(30)
                    if status != -signal.SIGKILL:  # recovered by the previous start: this point is no longer reached
                        self.fail(f"{point}: {status} {self.daemon.log_tail()}")
                    if point == "recovery.after_sandbox":
                        break
                self.daemon.start()
                self.assertEqual(self.client.get_exec(cut["id"])["state"], "interrupted")
                self.assertEqual(self.client.exec(dead, "cat begun").stdout, b"begun\n")
                self.client.delete(dead, purge=True)
                self.assertEqual(self.client.get_exec(job["id"])["state"], "running")
                self.assertEqual(self.daemon.sandbox_pids("lives")["init"], init)
                self.assert_no_strays()
        self.assertEqual(self.client.exec("rests", "cat kept").stdout, b"kept\n")
        self.assertEqual(self.client.workspace("rests")["integrity"]["state"], "intact")
        self.client.exec("lives", "touch go")
        self.assertEqual(self.client.wait(job["id"])["exit_code"], 0)
        for name in ("lives", "rests"):
            self.client.delete(name, purge=True)

    def of_an_earlier_boot(self):
        """With the daemon stopped, rewrites its sandboxes' rows as of an earlier boot."""
        with contextlib.closing(sqlite3.connect(self.daemon.store / "state.db")) as database, database:
            database.execute("UPDATE sandboxes SET boot_id = 'of-an-earlier-boot'")

    def test_a_head_emptied_by_a_power_cut_loses_no_branch(self):
        self.client.create(repo_url=self.url, name="refs")
        self.client.exec("refs", "git branch mine && git pack-refs --all && : > .git/HEAD", sync=True)
        self.kill("all", "refs", before_start=self.of_an_earlier_boot)
        self.assertEqual(self.client.exec("refs", "git rev-parse mine HEAD").stdout.decode().split(),
                         [self.client.workspace("refs")["base"]["commit"]] * 2)
        self.client.delete("refs", purge=True)

    def cut_upload(self, name, path):
        """Kills the daemon during a PUT. Returns the open connection."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self.daemon.socket))
        connection.sendall(f"PUT /v1/workspaces/{name}/file?path={path} HTTP/1.1\r\nHost: x\r\n"
                           "Content-Length: 900000000\r\n\r\n".encode())
        connection.sendall(b"z" * 3_000_000)
        return connection

    def test_an_interrupted_upload_leaves_nothing_in_the_tree(self):
        own = ".moorage-" + "0" * 32
        for name in ("up-rest", "up-live"):
            self.client.create(repo_url=self.url, name=name)
            self.client.exec(name, f"ln -s src link; echo mine > src/{own}; cp src/{own} ~")
        self.client.stop("up-rest")
        connections = [self.cut_upload(name, path) for name in ("up-rest", "up-live")
                       for path in ("link/big", "/home/user/big", "top")]
        notes = self.daemon.store / "uploads"
        harness.wait_until(lambda: notes.exists() and len(os.listdir(notes)) == 6, what="six uploads")
        self.daemon.restart()
        for connection in connections:
            connection.close()
        self.assertEqual(os.listdir(notes), [])
        for name in ("up-rest", "up-live"):
            found = self.client.exec(name, "find /workspace /home/user -name '.moorage-*' -o -name big").stdout
            self.assertEqual(sorted(found.decode().split()), [f"/home/user/{own}", f"/workspace/src/{own}"])
            self.client.delete(name, purge=True)

    def test_an_older_state_db_loses_no_newer_work(self):
        self.client.create(repo_url=self.url, name="older")
        self.client.exec("older", "echo one > file", sync=True)
        self.client.stop("older")
        self.daemon.stop()
        database = self.daemon.store / "state.db"
        backup = database.read_bytes()  # closed properly, so the log is empty
        self.daemon.start()
        self.client.create(repo_url=self.url, name="newer")
        self.client.exec("newer", "echo precious > work", sync=True)
        newer = self.client.workspace("newer")["id"]
        self.client.stop("newer")
        self.daemon.stop()
        layers = set(os.listdir(self.daemon.store / "layers"))
        for log in self.daemon.store.glob("state.db-*"):
            log.unlink()
        database.write_bytes(backup)
        self.daemon.start()
        lost = self.daemon.store / "lost"
        self.assertEqual([p.read_text() for p in lost.glob("ly_*/tree/upper/work")], ["precious\n"])
        self.assertEqual(len(list(lost.glob(f"{newer}-*/journal/*/output"))), 1)
        self.assertIn("it does not list 2", self.daemon.cli("info").stdout.decode())
        self.assertEqual(self.client.exec("older", "cat file").stdout, b"one\n")
        again = self.client.create(repo_url=self.url, name="newer")
        self.assertNotEqual(again["id"], newer)
        self.assertEqual(self.client.exec("newer", "ls work").exit_code, 2)
        self.assertEqual(len(set(os.listdir(self.daemon.store / "layers")) - layers), 1)
        for name in ("older", "newer"):
            self.client.delete(name, purge=True)
        self.assertEqual(len(os.listdir(lost)), 2)

    def run_every_verb(self, name):
        try:
            self.client.add_credential(name, ["https://api.example/"], sealed=self.client.seal(b"first"))
            self.client.remove_credential(name)
            # Upstream has moved: needs a fetch and a base tree.
            self.client.create(repo_url=self.url, name=name, pre_stop="echo stopping >> stops")
            self.client.exec(name, "echo kept > kept", sync=True)
            self.client.write_file(name, "put", b"put")
            self.client.stop(name)
            with self.client.lease(name, "first") as first:
                first.exec(name, "cat kept")
                second = harness.Client(str(self.daemon.socket))
                second.lease_token = self.client.acquire_lease(name, "second", takeover=True)["token"]
            second.release_lease(name)
            self.client.exec(name, "cat kept")
            self.client.snapshot(name)
            self.client.archive(name)
            self.client.unarchive(name)
            archive = io.BytesIO()
            self.client.export(name, archive)
            self.import_into_no_mirror(name, archive)
            self.client.delete(name, purge=True)
            self.snap(f"{name}-snap")
            local = self.daemon.directory / f"local-{name}"
            harness.make_repository(local)
            (local / "untracked").write_text(name)
            self.daemon.cli("create", "--from", local, "--name", f"{name}-local")
            harness.make_repository(self.upstream / "acme" / name)
            repo = self.client.add_repo(self.git_server.url(f"acme/{name}"))
            for pack in (self.daemon.store / "repos" / repo["id"] / "git").rglob("*.pack"):
                pack.chmod(0o600)
                pack.write_bytes(b"broken")
            self.client.fetch(repo["id"])
            self.attempt(name)
            self.collect(name)
            return None
        except (raw_api.ApiError, OSError, AssertionError) as error:
            return error

    def snap(self, name):
        """All kinds of snapshots; a chain that is merged; layers that are removed."""
        self.client.create(repo_url=self.url, name=name)
        self.client.exec(name, "echo kept > kept", sync=True)
        busy = self.client.start_exec(name, ["sleep", "1"])
        self.client.snapshot(name)
        self.client.wait(busy["id"], 10_000)
        self.client.snapshot(name)
        self.client.fork(name, names=[f"{name}-fork"])
        self.client.promote(f"{name}-fork")
        self.client.delete(f"{name}-fork", purge=True)
        self.client.stop(name)
        before = self.daemon.log.read_bytes().count(b"layers.flattened")
        for _ in range(20):
            self.client.snapshot(name)
        harness.wait_until(lambda: self.client.workspaces() and self.daemon.log.read_bytes().count(b"layers.flattened") > before, what="a merge of layers")
        self.client.drop_snapshot(name, self.client.snapshots(name)[-1]["id"])
        self.client.delete(name, purge=True)

    def attempt(self, name):
        """A best-of with two patches, one of which is promoted."""
        self.client.create(repo_url=self.url, name=f"{name}-bo")
        patch = b"--- /dev/null\n+++ b/patched\n@@ -0,0 +1 @@\n+patched\n"
        began = self.client.best_of(f"{name}-bo", test="echo ran >> ran", patches=[("a", patch), ("b", patch)], promote="smallest-diff")
        self.client.get_best_of(began["id"], wait_s=60)

    def settle_attempts(self, name):
        """It ends by itself; none of its commands ran twice."""
        found = any(w["name"] == f"{name}-bo" for w in self.client.workspaces())
        for best_of in self.client.best_ofs(f"{name}-bo") if found else []:
            ended = self.client.get_best_of(best_of["id"], wait_s=60)
            self.assertIn(ended["state"], ("done", "failed"))
            if any(a["state"] == "passed" for a in ended["attempts"]):
                self.assertEqual(self.client.read_file(f"{name}-bo", "patched"), b"patched\n")
        for workspace in [w["name"] for w in self.client.workspaces() if w["name"].startswith(f"{name}-bo")]:
            self.assertIn(self.client.exec(workspace, "cat ran 2>/dev/null").stdout, (b"ran\n", b""))
            self.client.delete(workspace, purge=True)

    def collect(self, name):
        """A declared cache; an unused base tree and an unused mirror."""
        self.client.create(repo_url=self.url, name=f"{name}-cache", caches=["cache"])
        self.client.exec(f"{name}-cache", "mkdir cache; echo rubbish >cache/rubbish; echo kept >kept")
        self.client.stop(f"{name}-cache")
        harness.commit(self.upstream / "acme" / "shop", "again.txt", name)
        self.client.create(repo_url=self.url, name=f"{name}-tree")
        self.client.delete(f"{name}-tree", purge=True)
        self.client.gc_run()

    def import_into_no_mirror(self, name, archive):
        """The objects must come from the archive, as its repository is not cached here."""
        other = archive.getvalue()
        self.client.import_(trees.edited(other, {b"manifest.json": lambda m: m.replace(b"acme/shop", name.encode())}),
                            name=f"{name}-import")
        self.client.exec(f"{name}-import", "cat kept", sync=True)
        self.client.delete(f"{name}-import", purge=True)

    def settle_credential(self):
        """The store has the encrypted secrets of those that are listed, and no others."""
        known = [credential["name"] for credential in self.client.credentials()]
        self.assertEqual(len(list((self.daemon.store / "credentials").glob("*"))), len(known))
        for name in known:
            self.client.test_credential(name)
            self.client.remove_credential(name)

    def settle(self, name):
        self.settle_credential()
        self.settle_attempts(name)
        # A command that survived the daemon may need a moment to end.
        harness.wait_until(lambda: not self.client.execs(running=True), what="the end of every command")
        self.assert_no_strays()
        kept = self.daemon.store / "archive"
        for workspace in self.client.workspaces(deleted=True):
            # Deleted and not purged yet: its snapshots are kept with it.
            if workspace["state"] == "deleted" and workspace["name"].startswith(f"{name}-snap"):
                self.client.delete(workspace["id"], purge=True)
        for workspace in self.client.workspaces():
            if workspace["name"] == f"{name}-cache":
                self.client.gc_run()
                listed = self.client.exec(workspace["id"], "ls; cat kept 2>/dev/null").stdout.decode()
                self.assertNotIn("cache", listed.split(), listed)
                self.client.delete(workspace["id"], purge=True)
            if workspace["name"] == f"{name}-tree":
                self.client.delete(workspace["id"], purge=True)
            if workspace["name"] in (f"{name}-snap", f"{name}-snap-fork"):
                # Nothing, or all of it.
                kept = self.client.exec(workspace["id"], "cat kept 2>/dev/null").stdout
                self.assertIn(kept, (b"kept\n", b"") if not self.client.snapshots(workspace["id"]) else (b"kept\n",))
                self.client.delete(workspace["id"], purge=True)
            if workspace["name"] == f"{name}-import":
                self.assertEqual(workspace["state"], "ready")
                self.assertEqual(self.client.exec(workspace["id"], "cat kept").stdout, b"kept\n")
                self.client.delete(workspace["id"], purge=True)
            if workspace["name"] != name:
                continue
            # Either hot or cold.
            self.assertIn(workspace["state"], ("ready", "archived"))
            self.assertEqual(len(list(kept.glob("moorage-*"))), int(workspace["state"] == "archived"))
            if "holder" in workspace:  # it survives the daemon; the next client takes it over
                self.assertEqual(self.client.execs(workspace=name, running=True), [], "a writer of the lease before")
                mine = harness.Client(str(self.daemon.socket))
                lease = self.client.acquire_lease(name, "settled", takeover=True)
                mine.lease_token = lease["token"]
                self.assertGreater(lease["generation"], workspace["holder"]["generation"])
                mine.release_lease(name)
            if self.client.history(name)["execs"]:
                self.assertIn(self.client.exec(name, "cat kept").stdout, (b"kept\n", b""))
            self.assertEqual(self.client.exec(name, "git status --porcelain --untracked-files=no").stdout, b"")
            self.client.delete(name, purge=True)
        again = self.client.create(repo_url=self.url, name=name)
        self.assertEqual(self.client.exec(name, "cat moved.txt").stdout.decode(), name)
        self.client.delete(again["id"], purge=True)
        rows = {w["id"] for w in self.client.workspaces(deleted=True)}
        layers = set(os.listdir(self.daemon.store / "layers"))
        self.assertLessEqual(len(layers), len(rows), "a layer without a workspace")


if __name__ == "__main__":
    unittest.main()
