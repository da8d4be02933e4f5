"""Recoveries of the daemon, and things that must not block it: failed cleanups, wardens without CPU,
disposable workspaces, early cancels, hanging upstreams."""

import concurrent.futures
import contextlib
import grp
import io
import json
import os
import signal
import socket
import sqlite3
import subprocess
import threading
import time
import unittest

import harness
import raw_api


class Recovery(harness.TestCase):
    # Few threads per lane, so that a wrong wait shows at once.
    settings = {"daemon.reconcile_interval_s": 1, "daemon.threads": 2, "workspace.sync_interval_s": 1}

    def sandbox_state(self, name):
        sandbox = self.client.workspace(name).get("sandbox")
        return sandbox["state"] if sandbox else None

    def test_a_failed_cleanup_of_a_sandbox_is_retried(self):
        self.client.create(repo_url=self.url, name="buried")
        self.client.exec("buried", "echo kept > kept")
        pids = self.daemon.sandbox_pids("buried")
        sandbox = self.client.workspace("buried")["sandbox"]["id"]
        stuck = self.daemon.store / "sandboxes" / sandbox / "stuck"
        stuck.mkdir()
        harness.run("mount", "-t", "tmpfs", "stuck", stuck)  # nothing can be removed below a mount
        try:
            os.kill(pids["init"], signal.SIGKILL)
            harness.wait_until(lambda: "sandbox.not_cleared" in self.daemon.log.read_text(), what="a report of the failure")
            self.assertIsNone(self.daemon.process.poll(), "the daemon lives")
        finally:
            harness.run("umount", stuck)
        harness.wait_until(lambda: self.sandbox_state("buried") is None, what="the dead sandbox is cleared")
        self.assertEqual(self.client.exec("buried", "cat kept").stdout, b"kept\n")

    def note(self, workspace):
        try:
            return json.loads((self.daemon.store / "workspaces" / workspace["id"] / "about.json").read_text())
        except (FileNotFoundError, ValueError):
            return {}

    def test_a_note_on_disk_follows_the_row(self):
        made = self.client.create(repo_url=self.url, name="noted")
        harness.wait_until(lambda: self.note(made), what="the note of a new workspace")
        note = self.note(made)
        self.assertEqual((note["id"], note["name"], note["owner_uid"], note["base_commit"]), (made["id"], "noted", 0, made["base"]["commit"]))
        self.assertEqual((note["repository"]["url"], len(note["layers"])), (self.url, 1))
        self.client.share("noted", "daemon")
        self.assertEqual(self.note(made)["team_gid"], grp.getgrnam("daemon").gr_gid)
        self.client.delete("noted")
        self.client.undelete(made["id"], name="noted-again")
        self.assertEqual(self.note(made)["name"], "noted-again")
        for spoil in (lambda path: path.unlink(), lambda path: path.write_text('{"id":')):
            spoil(self.daemon.store / "workspaces" / made["id"] / "about.json")
            self.daemon.restart()
            harness.wait_until(lambda: self.note(made).get("name") == "noted-again", what="a missing or torn note is made again")
        self.client.delete("noted-again", purge=True)
        self.assertFalse((self.daemon.store / "workspaces" / made["id"]).exists())

    def test_a_warden_without_cpu_keeps_its_commands_over_a_restart(self):
        self.client.create(repo_url=self.url, name="starved")
        record = self.client.start_exec("starved", ["sh", "-c", "echo begun; sleep 2; echo over"])
        harness.wait_until(lambda: self.client.get_exec(record["id"])["output_bytes"] > 0, what="output")
        init = self.daemon.sandbox_pids("starved")["init"]
        os.kill(init, signal.SIGSTOP)
        try:
            self.daemon.restart()
            self.assertEqual(self.client.get_exec(record["id"])["state"], "running")
        finally:
            os.kill(init, signal.SIGCONT)
        end = self.client.wait(record["id"], timeout_ms=20000)
        self.assertEqual((end["state"], end["exit_code"]), ("exited", 0))
        self.assertEqual(self.daemon.sandbox_pids("starved")["init"], init)

    def test_a_disposable_workspace_is_deleted_even_if_the_daemon_died_at_its_end(self):
        self.daemon.stop()
        self.daemon.start(crash_at="exec.after_outcome")
        try:
            self.client.create(repo_url=self.url, name="once", disposable=True)
            with contextlib.suppress(OSError, raw_api.ApiError):
                self.client.exec("once", "true")
            self.daemon.process.wait(20)
        finally:
            self.daemon.restart()
        harness.wait_until(lambda: not [w for w in self.client.workspaces() if w["name"] == "once"], what="it is deleted")

    def test_a_slow_journal_does_not_block_the_daemon(self):
        for name in ("unread", "other"):
            self.client.create(repo_url=self.url, name=name)
        cut = self.client.start_exec("unread", ["sh", "-c", "echo begun; sleep 600"])
        harness.wait_until(lambda: self.client.get_exec(cut["id"])["output_bytes"] > 0, what="output")
        init = self.daemon.sandbox_pids("unread")["init"]
        gate = self.daemon.directory / "gate"
        self.daemon.kill()
        os.kill(init, signal.SIGKILL)
        harness.wait_until(lambda: not os.path.exists(f"/proc/{init}/exe"), what="the end of init")
        gate.touch()
        self.daemon.environment["MOORAGE_PAUSE_AT"] = f"recovery.before_exec={gate}"
        try:
            self.daemon.start(mended=False)
            harness.wait_until(lambda: gate.with_name("gate.reached").exists(), what="its journal is about to be read")
            self.assertEqual(self.client.exec("other", "echo served").stdout, b"served\n")
            self.assertEqual(self.client.get_exec(cut["id"])["state"], "running")
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                end = pool.submit(harness.Client(str(self.daemon.socket)).wait, cut["id"])
                after = pool.submit(harness.Client(str(self.daemon.socket)).exec, "unread", "echo goes on")
                self.daemon.reconcile()
                self.assertEqual(self.client.get_exec(cut["id"])["state"], "running")
                self.assertFalse(end.done() or after.done())
                gate.unlink()
                self.assertEqual((end.result()["state"], end.result()["category"]), ("interrupted", "lost"))
                self.assertEqual(after.result().stdout, b"goes on\n")
        finally:
            gate.unlink(missing_ok=True)
            del self.daemon.environment["MOORAGE_PAUSE_AT"]
            self.daemon.restart()
        output = self.client.get_exec(cut["id"])
        self.assertEqual(output["output_bytes"], len("begun\n"))

    def test_an_upload_is_recorded_before_its_first_byte(self):
        self.client.create(repo_url=self.url, name="touched", disposable=True)
        self.assertNotIn("integrity", self.client.workspace("touched"))
        with socket.socket(socket.AF_UNIX) as upload:
            upload.connect(str(self.daemon.socket))
            upload.sendall(b"PUT /v1/workspaces/touched/file?path=big HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n" + b"z" * 1_000_000)
            harness.wait_until(lambda: "integrity" in self.client.workspace("touched"), what="it is not untouched any more")

    def test_a_repeated_purge_is_done(self):
        made = self.client.create(repo_url=self.url, name="purged")
        for _ in range(2):  # the second with another key: the answer to the first was lost with the daemon
            self.client.delete(made["id"], purge=True)
            self.daemon.restart()
        with self.assertRaises(raw_api.ApiError) as refused:
            self.client.delete(made["id"])
        self.assertEqual(refused.exception.code, "not_found")

    def test_a_cancel_before_the_warden_knows_the_command_ends_it(self):
        self.client.create(repo_url=self.url, name="early")
        self.client.exec("early", "true")
        init = self.daemon.sandbox_pids("early")["init"]
        os.kill(init, signal.SIGSTOP)
        started = threading.Thread(target=self.start_quietly, args=("early", ["sleep", "600"]))
        try:
            started.start()
            rows = lambda: [e for e in self.client.execs("early") if e["state"] == "running"]  # noqa: E731
            record = harness.wait_until(rows, what="the exec has a row")[0]
            cancelled = threading.Thread(target=self.client.cancel, args=(record["id"],))
            cancelled.start()
        finally:
            os.kill(init, signal.SIGCONT)
        started.join()
        cancelled.join()
        self.assertEqual(self.client.wait(record["id"], timeout_ms=20000)["state"], "cancelled")

    def test_a_command_that_never_reached_its_warden_ends(self):
        self.client.create(repo_url=self.url, name="unheard")
        self.client.exec("unheard", "true")
        sandbox = self.client.workspace("unheard")["sandbox"]["id"]
        path = self.daemon.store / "sandboxes" / sandbox / "warden.sock"
        path.rename(path.with_name("aside"))
        with socket.socket(socket.AF_UNIX) as stand_in:  # accepts data and never answers
            stand_in.bind(str(path))
            stand_in.listen(100)
            with self.assertRaises(raw_api.ApiError):
                self.client.start_exec("unheard", ["true"])
            record = self.client.execs("unheard")[0]
            self.assertEqual((record["argv"], record["state"]), (["true"], "running"))  # the state is unknown yet
            path.unlink()
        path.with_name("aside").rename(path)
        harness.wait_until(lambda: self.client.get_exec(record["id"])["state"] != "running", what="its warden was asked")
        record = self.client.get_exec(record["id"])
        self.assertEqual((record["state"], record["category"]), ("interrupted", "not_started"))
        self.assertEqual(self.client.exec("unheard", "echo goes on").stdout, b"goes on\n")

    def start_quietly(self, name, argv):
        with contextlib.suppress(raw_api.ApiError):
            raw_api.Client(str(self.daemon.socket)).start_exec(name, argv)

    def test_a_key_cannot_be_reused_with_other_conditions(self):
        self.client.create(repo_url=self.url, name="keyed")
        self.client.exec("keyed", "true", key="one")
        with self.assertRaises(raw_api.ApiError) as refused:
            self.client.exec("keyed", "true", key="one", sync=True)
        self.assertEqual(refused.exception.code, "already_exists")

    def change_row(self, name, sql):
        """The state after a verb that died, or could not write its outcome."""
        number = self.client.workspace(name)["id"].removeprefix("ws_")
        with contextlib.closing(sqlite3.connect(self.daemon.store / "state.db", timeout=20)) as database, database:
            layer = database.execute("SELECT layer FROM workspaces WHERE id = ?", (number,)).fetchone()[0]
            database.execute(f"UPDATE workspaces SET {sql} WHERE id = ?", (number,))
        return self.daemon.store / "layers" / f"ly_{layer}"

    def test_a_row_from_before_a_clock_change_is_recovered(self):
        made = self.client.create(repo_url=self.url, name="future")
        self.change_row("future", "state = 'deleting', created_wall_ms = created_wall_ms + 400 * 86400000")
        states = lambda: {w["id"]: w["state"] for w in self.client.workspaces(deleted=True)}  # noqa: E731
        harness.wait_until(lambda: states()[made["id"]] == "deleted", what="the delete is finished")

    def test_the_layer_of_a_failed_create_is_removed_later(self):
        self.client.create(repo_url=self.url, name="unmade")
        layer = self.change_row("unmade", "state = 'failed', created_wall_ms = 0")
        harness.wait_until(lambda: not layer.exists(), what="the layer is removed")

    def test_an_interrupted_delete_ends_the_lease(self):
        for point in ("delete.after_intent", "stop.after_backend"):
            with self.subTest(point):
                made = self.client.create(repo_url=self.url, name="leased")
                bearer = harness.Client(str(self.daemon.socket))
                bearer.lease_token = self.client.acquire_lease("leased", "agent", ttl_s=600)["token"]
                bearer.exec("leased", "true")
                self.daemon.stop()
                self.daemon.start(crash_at=point)
                with contextlib.suppress(OSError, raw_api.ApiError):
                    bearer.delete("leased")
                self.daemon.process.wait(20)
                self.daemon.restart()
                self.assertEqual(self.client.show_lease(made["id"])["ended"], "deleted")
                self.client.delete(made["id"], purge=True)

    def test_the_record_of_an_upload_waits_for_an_archived_workspace(self):
        made = self.client.create(repo_url=self.url, name="away")
        name = ".moorage-" + "0" * 32
        self.client.write_file("away", name, b"half a file")
        self.client.archive("away")
        note = self.daemon.store / "uploads" / name[1:]
        note.parent.mkdir(exist_ok=True)
        note.symlink_to(f"{made['id']}/workspace/{name}")
        for _ in range(2):
            self.assertIn(b"clean", self.daemon.cli("doctor", "--fix").stdout)
        self.assertTrue(note.is_symlink())
        self.assertNotIn("upload.not_swept", self.daemon.log.read_text())
        self.client.unarchive("away")
        harness.wait_until(lambda: not note.is_symlink(), what="the note is gone")
        self.assertNotIn(name, [e["name"] for e in self.client.list_files("away")["entries"]])

    def test_a_repository_being_restored_from_an_archive_is_left_alone(self):
        harness.make_repository(self.upstream / "acme" / "travels")
        made = self.client.create(repo_url=self.git_server.url("acme/travels"), name="travels")
        archive = io.BytesIO()
        self.client.export("travels", archive)
        self.client.delete(made["id"], purge=True)
        self.client.delete_repo(made["repo"]["id"])
        gate = self.daemon.directory / "gate"
        self.daemon.stop()
        self.daemon.environment["MOORAGE_PAUSE_AT"] = f"repository.after_mirror={gate}"
        self.daemon.start()
        last = max(e["seq"] for e in self.client.events())
        gate.touch()
        try:
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                importing = pool.submit(harness.Client(str(self.daemon.socket)).import_, archive.getvalue())
                harness.wait_until(lambda: gate.with_name("gate.reached").exists(), what="the objects are there")
                self.daemon.reconcile()
                gate.unlink()
                self.assertEqual(importing.result()["state"], "ready")
        finally:
            gate.unlink(missing_ok=True)
            del self.daemon.environment["MOORAGE_PAUSE_AT"]
            self.daemon.restart()
        moves = [(e["to"], e.get("text", "")) for e in self.client.events(since=last) if e["kind"] == "repository.state"]
        self.assertEqual([to for to, _ in moves], ["cloning", "ready"], moves)
        self.assertNotIn("interrupted", str(moves))

    def repositories_in(self, state):
        query = "SELECT count(*) FROM repositories WHERE state = ?"
        with contextlib.closing(sqlite3.connect(self.daemon.store / "state.db")) as database:
            return database.execute(query, (state,)).fetchone()[0]

    def test_hanging_upstreams_delay_nothing_else(self):
        self.client.create(repo_url=self.url, name="free")
        self.client.exec("free", "true")
        with socket.create_server(("127.0.0.1", 0), backlog=100) as silent:
            url = f"git://127.0.0.1:{silent.getsockname()[1]}/hangs"
            hanging = [subprocess.Popen([str(harness.BIN / "moorage"), "create", "--repo", f"{url}/{i}"],
                                        env={"MOORAGE_SOCKET": str(self.daemon.socket)},
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for i in range(3)]
            try:
                rows = lambda: self.repositories_in("cloning") == len(hanging)  # noqa: E731
                harness.wait_until(rows, what="they are being cloned")
                self.client.stop("free")
                self.client.start("free")
                self.client.create(repo_url=self.url, name="another")
            finally:
                for process in hanging:
                    process.kill()
                    process.wait()


if __name__ == "__main__":
    unittest.main()
