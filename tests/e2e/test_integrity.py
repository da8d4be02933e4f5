"""A start always reports intact, changed-outside or lost, and never starts changed files silently."""

import contextlib
import os
import signal
import sqlite3
import time
import unittest

import harness
import raw_api


class Integrity(harness.TestCase):
    settings = {"daemon.reconcile_interval_s": 1}

    def integrity(self, name):
        return self.client.workspace(name).get("integrity", {})

    def seal(self, name):
        with contextlib.closing(sqlite3.connect(self.daemon.store / "state.db")) as database:
            row = database.execute("SELECT seal FROM workspace_integrity i JOIN workspaces w ON w.id = i.workspace WHERE w.name = ?", (name,))
            return (row.fetchone() or ("",))[0]

    def upper(self, name, part="tree"):
        with contextlib.closing(sqlite3.connect(self.daemon.store / "state.db")) as database:
            layer = database.execute("SELECT layer FROM workspaces WHERE name = ?", (name,)).fetchone()[0]
        return self.daemon.store / "layers" / f"ly_{layer}" / part / "upper"

    def stopped(self, name, script="echo one > one; echo two > ~/two"):
        self.client.create(repo_url=self.url, name=name)
        self.client.exec(name, script)
        self.client.stop(name)
        return self.upper(name)

    def test_an_orderly_stop_leaves_an_intact_workspace(self):
        self.stopped("whole")
        self.assertEqual(self.integrity("whole")["state"], "intact")
        self.assertEqual(len(self.seal("whole")), 64)
        self.daemon.restart()
        for _ in range(2):
            self.assertEqual(self.client.exec("whole", "cat one ~/two").stdout, b"one\ntwo\n")
            self.assertEqual(self.seal("whole"), "", "a running one has no seal")
            self.assertEqual((self.integrity("whole")["state"], self.integrity("whole").get("reason")), ("intact", None))
            self.client.stop("whole")
        self.assertIn("intact", self.daemon.cli("show", "whole").stdout.decode())

    def test_a_change_from_outside_is_reported_and_the_workspace_starts(self):
        upper = self.stopped("touched")
        status = (upper / "one").stat()
        (upper / "one").write_text("ONE\n")
        os.utime(upper / "one", ns=(status.st_atime_ns, status.st_mtime_ns))  # size and time unchanged
        (self.upper("touched", "home") / "came").write_text("x")
        started = self.daemon.cli("exec", "touched", "--", "cat", "one")
        self.assertEqual(started.stdout, b"ONE\n")
        self.assertIn(b"touched was changed outside Moorage: 2 paths differ from the files left at", started.stderr)
        self.assertIn(b": /workspace/one, /home/user/came", started.stderr)
        self.assertEqual(self.daemon.cli("exec", "touched", "--", "true").stderr, b"", "said once a start")
        found = self.integrity("touched")
        self.assertEqual(found["state"], "changed-outside")
        self.assertIn("/workspace/one", self.daemon.cli("show", "touched").stdout.decode())
        self.assertIn("CHECK", self.daemon.cli("ls").stdout.decode())
        self.assertTrue([e for e in self.client.events() if e["kind"] == "workspace.integrity" and "changed-outside" in e["text"]])
        self.client.stop("touched")
        self.assertEqual((self.integrity("touched")["state"], self.integrity("touched").get("reason")), ("intact", None))
        (upper / "three").write_text("x")
        self.assertIn(b"1 path differs", self.daemon.cli("start", "touched").stderr)

    def test_our_own_writes_to_an_idle_workspace_do_not_count_as_outside_changes(self):
        self.stopped("written")
        before = self.seal("written")
        self.client.read_file("written", "one")
        self.assertEqual(self.seal("written"), before, "reading keeps the seal")
        self.client.write_file("written", "more", b"more")
        harness.wait_until(lambda: self.seal("written") not in ("", before), what="a new seal")
        self.client.write_file("written", "last", b"last")
        self.daemon.restart()  # it may have died before it could seal it again
        harness.wait_until(lambda: self.seal("written"), what="a seal")
        self.assertEqual(self.client.exec("written", "cat more last").stdout, b"morelast")
        self.assertEqual(self.integrity("written")["state"], "intact")
        self.client.stop("written")

    def test_a_dead_sandbox_is_recovered_with_an_explanation(self):
        self.stopped("died")
        self.client.exec("died", "echo kept > kept")
        os.kill(self.daemon.sandbox_pids("died")["init"], signal.SIGKILL)
        harness.wait_until(lambda: not self.client.workspace("died").get("sandbox"), what="it is cleared")
        found = self.integrity("died")
        self.assertEqual(found["state"], "intact")
        self.assertIn("recovered: its sandbox died", found["reason"])
        self.assertIn("everything it wrote is kept", found["reason"])
        harness.wait_until(lambda: self.seal("died"), what="it is sealed as it was recovered")
        (self.upper("died") / "outside").write_text("x")
        self.assertIn(b"1 path differs", self.daemon.cli("exec", "died", "--", "cat", "kept").stderr)
        self.client.stop("died")

    def test_a_missing_layer_means_lost_and_is_not_replaced(self):
        for number, part in enumerate(("", "tree", "home")):
            name = f"lost-{number}"
            self.stopped(name)
            layer = self.upper(name).parents[1]
            taken = self.daemon.directory / f"taken-{number}"
            (layer / part).rename(taken)
            for _ in range(2):
                with self.assertRaises(raw_api.ApiError) as refused:
                    self.client.exec(name, "true")
                self.assertEqual(refused.exception.code, "corrupted")
                self.assertIn("missing from the store", refused.exception.message)
                self.assertIn("from a backup", refused.exception.hint)
            self.assertFalse((layer / part).exists(), "nothing was put there")
            self.assertEqual(self.integrity(name)["state"], "lost")
            taken.rename(layer / part)
            self.assertEqual(self.client.exec(name, "cat one").stdout, b"one\n")
            self.assertEqual(self.integrity(name)["state"], "intact")
            self.client.stop(name)

    def test_a_layer_removed_before_the_first_stop_is_reported_lost(self):
        self.client.create(repo_url=self.url, name="early")
        self.client.exec("early", "echo work > work")
        os.kill(self.daemon.sandbox_pids("early")["init"], signal.SIGKILL)
        harness.wait_until(lambda: not self.client.workspace("early").get("sandbox"), what="it is cleared")
        layer = self.upper("early").parents[1]
        layer.rename(self.daemon.directory / "early-taken")
        with self.assertRaises(raw_api.ApiError) as refused:
            self.client.exec("early", "true")
        self.assertEqual(refused.exception.code, "corrupted")
        (self.daemon.directory / "early-taken").rename(layer)
        self.assertEqual(self.client.exec("early", "cat work").stdout, b"work\n")

    def test_an_unavailable_base_commit_means_lost(self):
        other = self.upstream / "acme" / "gone"
        harness.make_repository(other)
        self.client.create(repo_url=self.git_server.url("acme/gone"), name="baseless")
        self.client.exec("baseless", "echo mine > mine")
        self.client.stop("baseless")
        repo = self.client.workspace("baseless")["repo"]["id"]
        place = self.daemon.store / "repos" / repo
        self.daemon.stop()
        harness.run("rm", "-rf", place)
        other.rename(self.upstream / "acme" / "away")
        self.daemon.start()
        with self.assertRaises(raw_api.ApiError) as refused:
            self.client.exec("baseless", "true")
        self.assertIn("base commit", refused.exception.message)
        self.assertEqual(self.integrity("baseless")["state"], "lost")
        (self.upstream / "acme" / "away").rename(other)
        self.assertEqual(self.client.exec("baseless", "cat mine README.md").stdout, b"mine\nhello\n")
        self.assertEqual(self.integrity("baseless")["state"], "intact")

    def test_a_damaged_base_tree_is_rebuilt_and_never_used(self):
        self.client.create(repo_url=self.url, name="base")
        repo = self.client.workspace("base")["repo"]["id"]
        tree = next((self.daemon.store / "repos" / repo / "trees").iterdir())
        for damage in (lambda: harness.run("rm", "-rf", tree / "tree"), lambda: (tree / "manifest").write_text("moorage-"),
                       lambda: (tree / "tree" / ".git" / "index").unlink(), lambda: (tree / "tree" / "README.md").unlink(),
                       lambda: harness.run("rm", "-rf", tree / "tree" / "src")):
            damage()
            self.daemon.restart()
            self.assertEqual(self.client.exec("base", "cat README.md src/a.txt; git status --porcelain").stdout, b"hello\na\n")
            self.client.stop("base")

    def test_files_of_a_workspace_that_never_ran_are_checked_too(self):
        self.client.create(repo_url=self.url, name="unstarted")
        self.client.write_file("unstarted", "note", b"mine")
        harness.wait_until(lambda: self.seal("unstarted"), what="the seal")
        (self.upper("unstarted") / "note").write_text("another's")
        self.client.start("unstarted")
        answer = self.integrity("unstarted")
        self.assertEqual(answer["state"], "changed-outside")
        self.assertIn("/workspace/note", answer["reason"])

    def test_a_change_too_large_to_list_is_reported(self):
        descend = "import os\nfor _ in range(14):\n    os.makedirs('d' * 250, exist_ok=True)\n    os.chdir('d' * 250)\n"
        script = descend + "for number in range(4900): open('f%04d' % number, 'w').close()\n"
        self.client.create(repo_url=self.url, name="deep")
        self.assertEqual(self.client.exec("deep", ["python3", "-c", script]).exit_code, 0)
        self.client.stop("deep")
        harness.run("python3", "-c", descend + "open('f4899', 'w').write('outside')", cwd=self.upper("deep"))
        self.client.start("deep")
        answer = self.integrity("deep")
        self.assertEqual(answer["state"], "changed-outside")
        self.assertIn("too many paths to find the changed one", answer["reason"])

    def test_the_integrity_check_is_cheap(self):
        self.stopped("large", "mkdir many; cd many; python3 -c \"\nfor i in range(20000): open(str(i), 'w')\"")
        begin = time.monotonic()
        self.client.start("large")
        large = time.monotonic() - begin
        self.client.stop("large")
        self.stopped("small")
        begin = time.monotonic()
        self.client.start("small")
        print(f"start: {large * 1e3:.0f} ms with 20,000 files of its own, {(time.monotonic() - begin) * 1e3:.0f} ms with two")
        self.assertEqual(self.integrity("large")["state"], "intact")


if __name__ == "__main__":
    unittest.main()
