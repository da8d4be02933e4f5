"""`moorage doctor` finds differences between database and host, fixes the safe ones, and is quiet otherwise."""

import contextlib
import fcntl
import json
import os
import sqlite3
import unittest

import harness


class Doctor(harness.TestCase):
    settings = {"daemon.reconcile_interval_s": 3600}  # so that nothing is repaired meanwhile

    def doctor(self, *options):
        answer = self.daemon.cli("--json", "doctor", *options, check=False)
        told = json.loads(answer.stdout)
        self.assertEqual(answer.returncode, 0 if told["clean"] else 1)
        self.assertIn("overlay", told.pop("storage"))
        return told

    def findings(self, *options):
        return {(f["check"], f["severity"], f["mended"]) for f in self.doctor(*options)["findings"]}

    def test_1_doctor_finds_nothing_when_idle_when_busy_and_after_a_kill(self):
        self.client.create(repo_url=self.url, name="quiet")
        record = self.client.start_exec("quiet", ["sh", "-c", "echo x; sleep 60"])
        self.assertEqual(self.doctor("--deep"), {"clean": True, "findings": []})
        self.daemon.restart()
        self.assertEqual(self.doctor(), {"clean": True, "findings": []})
        self.assertIn("clean", self.daemon.cli("doctor").stdout.decode())
        self.client.cancel(record["id"])
        self.client.wait(record["id"])
        self.client.stop("quiet")
        self.assertEqual(self.doctor("--deep"), {"clean": True, "findings": []})

    def test_2_doctor_fixes_safe_findings_and_names_a_command_for_the_rest(self):
        store = self.daemon.store
        self.client.create(repo_url=self.url, name="ill")
        self.client.exec("ill", "echo one > one")
        self.client.stop("ill")
        repo = self.client.workspace("ill")["repo"]["id"]
        tree = next((store / "repos" / repo / "trees").iterdir())
        (tree / "tree" / "README.md").unlink()
        (store / "repos" / repo / "trees" / ("0" * 40 + ".new")).mkdir()
        (store / "repos" / repo / "trees" / ("1" * 40)).mkdir()
        (store / "sandboxes" / "sb_777").mkdir()
        (store / "layers" / "ly_777").mkdir()
        (store / "workspaces" / "ws_777").mkdir()
        (store / "layers" / "somebody").mkdir()
        (store / "reserve").unlink()
        store.chmod(0o755)
        newest = max((p for p in (store / "layers").glob("ly_?")), key=lambda p: p.stat().st_ctime)
        (newest / "tree" / "upper" / "outside").write_text("x")
        os.makedirs(store / "uploads", exist_ok=True)
        os.symlink("ws_1/workspace/.moorage-" + "0" * 32, store / "uploads" / ("moorage-" + "0" * 32))
        self.daemon.cli("start", "ill")
        found = {(check, severity) for check, severity, _ in self.findings()}
        for wanted in (("base trees", "warning"), ("sandboxes", "warning"), ("layers", "error"), ("journals", "error"),
                       ("reserve", "warning"), ("rights", "error"), ("uploads", "warning"), ("integrity", "warning")):
            self.assertIn(wanted, found)
        fixed = self.doctor("--fix")
        left = {f["subject"]: f for f in fixed["findings"] if not f["mended"] and f["severity"] != "note"}
        self.assertEqual(set(left), {str(store / "layers" / "somebody"), str(store / "lost")}, left)
        self.assertTrue(all(f["command"] for f in left.values()))
        self.assertEqual(self.client.workspace("ill")["integrity"]["state"], "intact")
        self.assertEqual(store.stat().st_mode & 0o777, 0o700)
        self.assertEqual(self.client.exec("ill", "cat one outside README.md").stdout, b"one\nxhello\n")
        (store / "layers" / "somebody").rmdir()
        harness.run("rm", "-rf", store / "lost")
        self.assertTrue(self.doctor()["clean"])

    def test_3_doctor_does_not_suggest_cloning_without_an_upstream(self):
        harness.make_repository(self.daemon.directory / "checkout")
        self.daemon.cli("create", "--from", self.daemon.directory / "checkout", "--name", "local")
        repo = self.client.workspace("local")["repo"]["id"]
        mirror = self.daemon.store / "repos" / repo / "git"
        mirror.rename(mirror.with_name("away"))
        found = self.doctor("--fix")["findings"]
        mirror.with_name("away").rename(mirror)
        gone = next(f for f in found if f["subject"] == repo)
        self.assertEqual((gone["severity"], gone.get("mend", ""), gone["mended"]), ("error", "", False))
        self.assertIn("moorage create --from DIR", gone["command"])
        self.assertTrue(self.doctor()["clean"])

    def test_4_doctor_finds_damaged_git_objects_on_request(self):
        other = self.upstream / "acme" / "deep"
        harness.make_repository(other)
        repo = self.client.add_repo(self.git_server.url("acme/deep"))
        pack = next((self.daemon.store / "repos" / repo["id"] / "git").rglob("*.pack"))
        good = pack.read_bytes()
        pack.chmod(0o600)
        pack.write_bytes(good[:30] + bytes([good[30] ^ 1]) + good[31:])
        self.assertIn(("repositories", "error", False), self.findings("--deep"))
        self.assertIn(("repositories", "error", True), self.findings("--deep", "--fix"))
        self.assertTrue(self.doctor("--deep")["clean"])

    def test_5_a_journal_without_a_file_hides_no_other(self):
        """A journal directory without its file after a kill; and an unreadable journal."""
        self.client.create(repo_url=self.url, name="cut")
        silent, said, odd = (self.client.exec("cut", argv).exec["id"] for argv in ("true", "echo said", "echo odd"))
        self.client.stop("cut")

        def of_journals(*options):
            return {f["subject"]: (f["severity"], f["text"]) for f in self.doctor(*options)["findings"] if f["check"] == "journals"}
        self.assertEqual(of_journals("--deep"), {})
        journals = self.daemon.store / "workspaces" / self.client.workspace("cut")["id"] / "journal"
        for exec_id in (silent, said, odd):  # they only grow
            harness.run("chattr", "-a", journals / exec_id / "output", check=False)
        (journals / silent / "output").unlink()
        self.assertEqual([f for f in self.doctor("--deep")["findings"] if f["severity"] == "error"], [], "it never wrote")
        good = (journals / said / "output").read_bytes()
        (journals / said / "output").write_bytes(good[:-3])
        (journals / odd / "output").unlink()
        (journals / odd / "output").mkdir()
        found = of_journals("--deep")
        self.assertEqual(found[said][0], "note")
        self.assertIn("ends in the middle of a record", found[said][1])
        self.assertEqual(found[odd][0], "error")
        self.assertIn(f"the journal of {odd} cannot be read", found[odd][1])
        harness.run("rm", "-r", journals / odd / "output")
        (journals / said / "output").write_bytes(b"")
        found = of_journals()
        self.assertEqual(found[said][0], "error", "this boot lost no power")
        self.assertNotIn("power cut", found[said][1])
        (journals / said / "output").write_bytes(good)

    def test_6_a_start_that_was_killed_leaves_no_probe(self):
        self.daemon.stop()
        cut, alive = self.daemon.store / "probe.4711", self.daemon.store / "probe.4712"
        (cut / "u" / "work" / "work").mkdir(parents=True)
        alive.mkdir()
        held = os.open(alive, os.O_RDONLY)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            self.daemon.start()
            self.assertEqual([p.name for p in self.daemon.store.glob("probe.*")], ["probe.4712"], "another process probes there")
        finally:
            os.close(held)
        self.daemon.restart()
        self.assertEqual(list(self.daemon.store.glob("probe.*")), [])


class Unsynced(harness.TestCase):
    settings = {"workspace.sync_interval_s": 3600, "daemon.reconcile_interval_s": 3600}

    def test_a_tree_waiting_for_its_sync_is_not_a_finding_despite_clock_jumps(self):
        self.client.create(repo_url=self.url, name="new")
        self.daemon.stop()
        with contextlib.closing(sqlite3.connect(self.daemon.store / "state.db")) as database, database:
            waiting = database.execute("SELECT count(*) FROM base_trees WHERE synced = 0").fetchone()[0]
            database.execute("UPDATE base_trees SET created_wall_ms = created_wall_ms - 86400000")
        self.daemon.start()
        self.assertEqual(waiting, 1)
        self.assertIn("clean", self.daemon.cli("doctor", check=False).stdout.decode())


if __name__ == "__main__":
    unittest.main()
