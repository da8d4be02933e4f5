"""Reproduces failures that users of comparable products report. Each passes here for a reason.

The names are those of the complaints. The idle timer has its own tests.
"""

import concurrent.futures
import contextlib
import os
import signal
import subprocess
import unittest

import harness
import raw_api


class Ancestors(harness.TestCase):
    def test_stale_base_commit(self):
        self.client.create(repo_url=self.url, name="before")
        moved = harness.commit(self.upstream / "acme" / "shop", "moved.txt", "new\n")
        made = self.client.create(repo_url=self.url, name="after")
        self.assertEqual(made["base"]["commit"], moved, "it starts at upstream's commit of now, not of clone day")
        self.assertEqual(self.client.exec("after", "git rev-parse HEAD; cat moved.txt").stdout.decode().split(), [moved, "new"])

    def test_clone_killed_half_way(self):
        other = self.upstream / "acme" / "half"
        harness.make_repository(other, {f"f{n}": os.urandom(200_000) for n in range(40)})
        for point in ("repository.before_mirror", "repository.after_mirror"):
            self.daemon.stop()
            self.daemon.start(crash_at=point)
            with contextlib.suppress(raw_api.ApiError, OSError):
                self.client.create(repo_url=self.git_server.url("acme/half"), name="half")
            self.assertEqual(self.daemon.process.wait(20), -signal.SIGKILL)
            self.daemon.start()
            for repo in self.client.repos():
                self.assertIn(repo["state"], ("ready", "broken"), "nothing is left cloning")
        self.client.create(repo_url=self.git_server.url("acme/half"), name="half")
        self.assertEqual(self.client.exec("half", "ls | wc -l; git fsck --connectivity-only 2>&1").stdout.split()[0], b"40")

    def test_incomplete_workspace_taken_for_ready(self):
        for point in ("create.after_intent", "create.after_layer"):
            self.daemon.stop()
            self.daemon.start(crash_at=point)
            with contextlib.suppress(raw_api.ApiError, OSError):
                self.client.create(repo_url=self.url, name="made")
            self.assertEqual(self.daemon.process.wait(20), -signal.SIGKILL)
            self.daemon.start()
            made = [w for w in self.client.workspaces() if w["name"] == "made"]
            if point == "create.after_intent":
                self.assertEqual(made, [])
            else:  # all of it was written
                self.assertEqual([w["state"] for w in made], ["ready"])
        base = self.client.workspace("made")["base"]["commit"]
        self.assertEqual(self.client.exec("made", "git status --porcelain && git rev-parse HEAD").stdout.decode(), base + "\n")

    def test_missing_directory_taken_for_ready(self):
        made = self.client.create(repo_url=self.url, name="missing")
        self.client.exec("missing", "echo work > work")
        self.client.stop("missing")
        layer = max((self.daemon.store / "layers").iterdir(), key=lambda p: int(p.name.split("_")[1]))
        taken = self.daemon.directory / "taken"
        layer.rename(taken)
        for _ in range(2):
            with self.assertRaises(raw_api.ApiError) as refused:
                self.client.exec("missing", "ls")
            self.assertEqual(refused.exception.code, "corrupted")
        self.assertEqual(self.client.workspace(made["id"])["integrity"]["state"], "lost")
        self.assertFalse(layer.exists(), "no empty one takes its place")
        taken.rename(layer)
        self.assertEqual(self.client.exec("missing", "cat work").stdout, b"work\n")

    def test_destroy_during_a_running_command(self):
        self.client.create(repo_url=self.url, name="busy")
        record = self.client.start_exec("busy", ["sh", "-c", "echo kept > kept; echo begun; sleep 600"])
        harness.wait_until(lambda: self.client.get_exec(record["id"])["output_bytes"] > 0, what="output")
        self.client.delete("busy", force=True)
        end = self.client.get_exec(record["id"])
        self.assertIn(end["state"], ("interrupted", "signalled"))
        self.assertNotIn("exit_code", end, "no exit code is made up")
        self.client.undelete("busy")
        self.assertEqual(self.client.exec("busy", "cat kept").stdout, b"kept\n")

    def test_five_first_requests_make_one_sandbox(self):
        self.client.create(repo_url=self.url, name="first")
        with concurrent.futures.ThreadPoolExecutor(5) as pool:
            ends = list(pool.map(lambda n: self.client.exec("first", f"echo {n}").exec, range(5)))
        self.assertEqual(len({end["sandbox"] for end in ends}), 1)
        self.assertEqual({end["exit_code"] for end in ends}, {0})

    def test_a_failed_command_that_wrote_is_not_clean(self):
        self.client.create(repo_url=self.url, name="failed")
        self.assertEqual(self.client.exec("failed", "echo x > written; exit 3").exit_code, 3)
        status = self.daemon.cli("status", "failed").stdout.decode()
        self.assertIn("written", status)
        harness.wait_until(lambda: self.client.workspace("failed").get("changes", {}).get("files") == 1, what="it is counted")

    def test_deleted_branch_resurrected(self):
        other = self.upstream / "acme" / "branches"
        harness.make_repository(other)
        harness.git(other, "branch", "gone")
        url = self.git_server.url("acme/branches")
        self.client.create(repo_url=url, name="old", ref="gone")
        harness.git(other, "branch", "-D", "gone")
        with self.assertRaises(raw_api.ApiError) as refused:
            self.client.create(repo_url=url, name="new", ref="gone")
        self.assertEqual(refused.exception.code, "not_found")
        self.client.create(repo_url=url, name="other")
        self.assertNotIn(b"gone", self.client.exec("other", "git branch -a").stdout)
        self.assertEqual(self.client.exec("old", "git log -1 --format=%s").stdout, b"first\n", "the older one goes on")

    def test_two_daemons_on_one_store(self):
        second = subprocess.run([str(harness.BIN / "mooraged"), "--config", str(self.daemon.config)], capture_output=True, timeout=30,
                                env=self.daemon.environment)
        self.assertNotEqual(second.returncode, 0)
        self.assertIn(b"is in use by process %d" % self.daemon.process.pid, second.stderr)
        self.client.health()

    def test_timeout_that_leaves_a_writer_behind(self):
        self.client.create(repo_url=self.url, name="writer")
        script = "setsid sh -c 'while :; do date +%N >> log; sleep 0.02; done' > /dev/null 2>&1 & sleep 600"
        end = self.client.exec("writer", script, timeout_ms=500).exec
        self.assertEqual(end["state"], "timed_out")
        before = self.client.read_file("writer", "log")
        self.client.exec("writer", "sleep 0.5")
        self.assertEqual(self.client.read_file("writer", "log"), before, "nothing writes any more")

    def test_read_only_workspace_that_is_writable(self):
        # Read-only inside: the system, and the mirror's objects, which all workspaces share.
        made = self.client.create(repo_url=self.url, name="reader")
        for path in ("/usr/x", "/.moorage/objects/x", "/etc/../usr/bin/x"):
            self.assertNotEqual(self.client.exec("reader", f"sudo touch {path}").exit_code, 0, path)
        # And the base tree: no workspace sees another's writes.
        self.client.exec("reader", "echo mine > README.md; rm -r src")
        self.client.create(repo_url=self.url, name="reader-2", ref=made["base"]["commit"])
        self.assertEqual(self.client.exec("reader-2", "cat README.md; ls src").stdout, b"hello\na.txt\nb.txt\n")

    def test_daemon_restart_that_marks_running_sandboxes_failed_and_deletes_their_disks(self):
        self.client.create(repo_url=self.url, name="lives")
        record = self.client.start_exec("lives", ["sh", "-c", "echo work > work; while [ ! -e go ]; do sleep 0.05; done; echo over"])
        harness.wait_until(lambda: self.daemon.cli("cat", "lives:work", check=False).stdout == b"work\n", what="it works")
        init = self.daemon.sandbox_pids("lives")["init"]
        for way in (self.daemon.kill, self.daemon.stop):
            way()
            self.daemon.start()
            self.assertEqual(self.client.workspace("lives")["sandbox"]["state"], "running")
            self.assertEqual(self.daemon.sandbox_pids("lives")["init"], init)
            self.assertEqual(self.client.read_file("lives", "work"), b"work\n")
        self.client.exec("lives", "touch go")
        self.assertEqual(self.client.wait(record["id"])["exit_code"], 0)


if __name__ == "__main__":
    unittest.main()
