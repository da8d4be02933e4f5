"""best-of and compare: parallel attempts, crashes during them, and their reports."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import time
import unittest

import harness
import raw_api

# Attempts 2 and 4 pass; 4 changes less than 2. Each counts its runs.
EACH = "echo ran >> each-ran; case {i} in 2) seq 100 > fix;; 4) echo small > fix;; *) echo {i} > other;; esac"
TEST = "echo ran >> test-ran; test -e fix || { echo \"attempt $MOORAGE_ATTEMPT has no fix\"; exit 3; }; echo good"


class BestOf(harness.TestCase):
    def make(self, name):
        return self.client.create(repo_url=self.url, name=name)

    def ended(self, best_of, seconds=120):
        found = self.client.get_best_of(best_of["id"], wait_s=seconds)
        self.assertNotIn(found["state"], ("preparing", "running"), found)
        return found

    def states(self, best_of):
        return [a["state"] for a in best_of["attempts"]]

    def refused(self, code, call, *words):
        with self.assertRaises(raw_api.ApiError) as error:
            call()
        self.assertEqual(error.exception.code, code, str(error.exception))
        for word in words:
            self.assertIn(word, str(error.exception))

    def test_the_smaller_of_two_passing_attempts_is_promoted(self):
        self.make("five")
        self.client.write_file("five", "before", b"of the parent\n")
        began = self.client.best_of("five", each=EACH, test=TEST, count=5, promote="smallest-diff")
        self.assertEqual((began["state"], began["count"]), ("running", 5))
        self.assertEqual([(a["number"], a["of"], a["name"]) for a in began["attempts"]], [(n, 5, f"five-{n}") for n in range(1, 6)])
        best_of = self.ended(began)
        self.assertEqual(best_of["state"], "done")
        self.assertEqual(self.states(best_of), ["failed", "passed", "failed", "passed", "failed"])
        self.assertEqual((best_of["chosen"], best_of["promotion"], best_of["reason"]), (4, "done", "2 of 5 passed"))
        first, second, fourth = (best_of["attempts"][n] for n in (0, 1, 3))
        self.assertEqual(first["reason"], "the test exited with 3")
        self.assertEqual(first["test"]["exit_code"], 3)
        self.assertIn("attempt 1 has no fix", first["tail"])
        self.assertEqual(second["diff"]["files"], 2)  # fix and each-ran; neither the parent's file nor the test's output
        self.assertEqual((second["diff"]["added"], fourth["diff"]["added"]), (101, 2))
        self.assertGreater(second["diff"]["bytes"], fourth["diff"]["bytes"])
        self.assertEqual(self.client.read_file("five", "fix"), b"small\n")
        self.assertEqual(self.client.read_file("five", "before"), b"of the parent\n")
        for attempt in best_of["attempts"]:
            fork = self.client.workspace(attempt["workspace"])
            self.assertEqual((fork["state"], fork["attempt"], fork["labels"]["best-of"]), ("ready", {"number": attempt["number"], "of": 5}, best_of["id"]))
            self.assertEqual(fork.get("sandbox"), None, "its sandbox is stopped")
            self.assertEqual(self.client.read_file(fork["id"], "each-ran"), b"ran\n")
            self.assertEqual(self.client.read_file(fork["id"], "test-ran"), b"ran\n")
            key = [e["idempotency_key"] for e in self.client.execs(workspace=fork["id"])]
            self.assertEqual(sorted(key), [f"{best_of['id']}/{attempt['number']}/{step}" for step in ("each", "test")])
        self.assertEqual([b["id"] for b in self.client.best_ofs("five")], [best_of["id"]])
        print(self.daemon.cli("best-of", best_of["id"]).stdout.decode())
        print(self.daemon.cli("tree", "five").stdout.decode())

    def test_first_passing_promotes_the_lowest_number(self):
        self.make("first")
        best_of = self.ended(self.client.best_of("first", each="test {i} != 2 || sleep 2; echo {i} > fix", test="test $MOORAGE_ATTEMPT -ge 2",
                                                 count=4, promote="first-passing", parallel=2))
        self.assertEqual((best_of["chosen"], best_of["promotion"]), (2, "done"), best_of)
        self.assertEqual(self.states(best_of)[:2], ["failed", "passed"])
        self.assertLessEqual(set(self.states(best_of)[2:]), {"passed", "cancelled"})
        self.assertEqual(self.client.read_file("first", "fix"), b"2\n")

    def test_patches_of_a_directory_through_the_cli(self):
        self.make("patched")
        directory = self.daemon.directory / "patches"
        directory.mkdir()
        work = self.daemon.directory / "work"
        harness.git(self.daemon.directory, "clone", "-q", self.upstream / "acme" / "shop", work)
        for name, content in (("a-wrong", "wrong\n"), ("b-right", "right\n"), ("c-large", "right\n" + "more\n" * 200_000)):
            (work / "README.md").write_text(content)
            (work / "binary").write_bytes(bytes(range(256)))
            harness.git(work, "add", "-A")
            (directory / f"{name}.patch").write_bytes(subprocess.check_output(["git", "-C", work, "diff", "--cached", "--binary"]))
        (directory / "d-broken.patch").write_text("diff --git a/none b/none\n--- a/none\n+++ b/none\n@@ -1 +1 @@\n-x\n+y\n")
        out = self.daemon.cli("best-of", "patched", "--patches", directory, "--test", "head -1 README.md | grep -q right && test -e binary",
                              "--promote", "smallest-diff", "--json")
        best_of = json.loads(out.stdout)
        self.assertEqual([(a["patch"], a["state"]) for a in best_of["attempts"]],
                         [("a-wrong.patch", "failed"), ("b-right.patch", "passed"), ("c-large.patch", "passed"), ("d-broken.patch", "failed")])
        self.assertEqual(best_of["chosen"], 2)
        self.assertEqual(best_of["attempts"][3]["reason"], "git apply of the patch exited with 1")
        self.assertIn("none: No such file", best_of["attempts"][3]["tail"])
        self.assertEqual(self.client.read_file("patched", "README.md"), b"right\n")
        self.assertEqual(self.client.read_file("patched-3", "README.md"), b"right\n" + b"more\n" * 200_000)
        left = self.daemon.store / "workspaces" / self.client.workspace("patched")["id"] / "best-of"
        self.assertFalse(left.exists(), "the patches went when they were not needed any more")

    def test_a_time_limit_ends_an_attempt_and_none_passes(self):
        self.make("slow")
        best_of = self.ended(self.client.best_of("slow", each="true", test="sleep 60", count=2, timeout_ms=2000, promote="smallest-diff"))
        self.assertEqual(self.states(best_of), ["failed", "failed"])
        self.assertEqual({a["reason"] for a in best_of["attempts"]}, {"the test exceeded its timeout"})
        self.assertEqual({a["test"]["state"] for a in best_of["attempts"]}, {"timed_out"})
        self.assertNotIn("chosen", best_of)
        shown = self.daemon.cli("best-of", best_of["id"], check=False)
        self.assertEqual(shown.returncode, 1)
        self.assertIn("moorage rm", shown.stdout.decode())

    def test_cancel_ends_running_attempts_and_starts_no_more(self):
        self.make("cancel")
        began = self.client.best_of("cancel", each="echo ran >> each-ran; sleep 60", test="true", count=3, parallel=1)
        harness.wait_until(lambda: self.client.get_best_of(began["id"])["attempts"][0].get("each"), what="the first runs")
        self.daemon.cli("best-of", began["id"], "--cancel")
        best_of = self.ended(began)
        self.assertEqual(best_of["state"], "cancelled")
        self.assertEqual(self.states(best_of), ["cancelled"] * 3)
        self.assertEqual(self.client.execs(workspace="cancel-2"), [])
        self.refused("conflict", lambda: self.client.cancel_best_of(began["id"]), "has ended")

    def test_no_command_runs_twice_after_a_crash(self):
        self.make("dies")
        each = "echo ran >> each-ran; sync each-ran; sleep 1; echo {i} > fix"
        test = "echo ran >> test-ran; sync test-ran; sleep 1; test $MOORAGE_ATTEMPT != 1"
        began = self.client.best_of("dies", each=each, test=test, count=4, parallel=2, promote="smallest-diff")
        for pause in (0.3, 0.7, 1.1, 0.2, 1.5):
            time.sleep(pause)
            self.daemon.restart()
        best_of = self.ended(began)
        self.assertEqual(best_of["state"], "done")
        self.assertEqual(self.states(best_of), ["failed", "passed", "passed", "passed"], best_of)
        for attempt in best_of["attempts"]:
            for step in ("each", "test"):
                self.assertEqual(self.client.read_file(attempt["workspace"], f"{step}-ran"), b"ran\n", attempt)
        self.assertEqual((best_of["chosen"], best_of["promotion"]), (2, "done"))
        self.assertEqual(self.client.read_file("dies", "fix"), b"2\n")
        causes = [s["cause"] for s in self.client.snapshots("dies")]
        self.assertEqual(causes.count("promote"), 1, causes)

    def test_a_promotion_interrupted_with_its_sandbox_is_done_once(self):
        self.make("moves")
        self.client.exec("moves", "true")
        init = self.daemon.sandbox_pids("moves")["init"]
        self.daemon.stop()
        self.daemon.start(crash_at="snapshot.after_intent:3")  # after those of the forks and of the attempt
        with contextlib.suppress(raw_api.ApiError, OSError):
            self.client.best_of("moves", each="echo {i} > fix", test="true", count=2, parallel=1, promote="first-passing")
        self.daemon.process.wait(60 * harness.PATIENCE)
        os.kill(init, signal.SIGKILL)
        harness.wait_until(lambda: not os.path.exists(f"/proc/{init}/exe"), what="the end of init")
        self.daemon.start()
        best_of = self.ended(self.client.best_ofs("moves")[0])
        self.assertEqual((best_of["chosen"], best_of["promotion"]), (1, "done"))
        self.assertEqual(self.client.read_file("moves", "fix"), b"1\n")
        causes = [s["cause"] for s in self.client.snapshots("moves")]
        self.assertEqual(causes.count("promote"), 1, causes)

    def test_recorded_work_that_never_began_is_started(self):
        self.make("anew")
        self.daemon.stop()
        self.daemon.start(crash_at="exec.after_intent")
        began = self.client.best_of("anew", each="echo ran >> each-ran; echo {i} > fix", test="echo ran >> test-ran", count=2, parallel=1)
        self.daemon.process.wait(30 * harness.PATIENCE)
        self.daemon.start()
        best_of = self.ended(began)
        self.assertEqual(self.states(best_of), ["passed", "passed"], best_of)
        first = {e["idempotency_key"]: e["state"] for e in self.client.execs(workspace=best_of["attempts"][0]["workspace"])}
        key = f"{best_of['id']}/1"
        self.assertEqual(first, {f"{key}/each": "interrupted", f"{key}/each/2": "exited", f"{key}/test": "exited"})
        for attempt in best_of["attempts"]:
            self.assertEqual(self.client.read_file(attempt["workspace"], "each-ran"), b"ran\n")

    def test_a_dead_sandbox_interrupts_only_its_attempt(self):
        self.make("cut")
        began = self.client.best_of("cut", each="echo ran >> each-ran; test {i} = 1 && sleep 60; echo {i} > fix", test="true", count=2,
                                    promote="first-passing")
        harness.wait_until(lambda: self.client.execs(workspace="cut-1", running=True), what="the first runs")
        os.kill(self.daemon.sandbox_pids("cut-1")["init"], signal.SIGKILL)
        best_of = self.ended(began)
        self.assertEqual(self.states(best_of), ["interrupted", "passed"])
        self.assertIn("is not run again", best_of["attempts"][0]["reason"])
        self.assertEqual(best_of["chosen"], 2)
        self.assertEqual(len(self.client.execs(workspace="cut-1")), 1)

    def test_a_promotion_does_not_replace_a_busy_workspace(self):
        self.make("busy")
        running = self.client.start_exec("busy", ["sleep", "60"])["id"]
        best_of = self.ended(self.client.best_of("busy", each="echo {i} > fix", test="true", count=2, promote="first-passing"))
        self.assertEqual((best_of["state"], best_of["chosen"], best_of["promotion"]), ("done", 1, "refused"))
        self.assertIn("sleep", best_of["promotion_note"])
        shown = self.daemon.cli("best-of", best_of["id"], check=False)
        self.assertEqual(shown.returncode, 1)
        self.assertIn("moorage promote busy-1 --kill", shown.stdout.decode())
        self.assertEqual(self.client.get_exec(running)["state"], "running")
        self.client.promote("busy-1", kill=True)
        self.assertEqual(self.client.read_file("busy", "fix"), b"1\n")

    def test_a_promotion_respects_a_new_lease(self):
        self.make("leased")
        with self.client.lease("leased", "first") as first:
            best_of = self.ended(first.best_of("leased", each="echo {i} > fix", test="true", count=2, promote="first-passing"))
            self.assertEqual((best_of["promotion"], self.client.read_file("leased", "fix")), ("done", b"1\n"))
            began = first.best_of("leased", each="sleep 3; echo again > fix", test="true", count=2, promote="first-passing")
            second = harness.Client(str(self.daemon.socket))
            second.lease_token = self.client.acquire_lease("leased", "second", takeover=True)["token"]
            best_of = self.ended(began)
            self.assertEqual((best_of["chosen"], best_of["promotion"]), (1, "refused"))
            self.assertIn("lease", best_of["promotion_note"])
            self.assertEqual(self.client.read_file("leased", "fix"), b"1\n")
            self.refused("conflict", lambda: first.best_of("leased", each="true", test="true", count=2), "lease")
            second.release_lease("leased")

    def test_patches_survive_the_daemon_but_not_their_workspace(self):
        self.make("gone")
        big = b"--- /dev/null\n+++ b/big\n@@ -0,0 +1,500000 @@\n" + b"+line\n" * 500_000
        self.daemon.stop()
        self.daemon.start(crash_at="best_of.after_each")
        with self.assertRaises((raw_api.ApiError, OSError, AssertionError)):
            began = self.client.best_of("gone", test="test -e big", patches=[("big", big), ("same", big)], parallel=1)
            self.ended(began)
        self.daemon.kill()
        self.daemon.start()
        best_of = self.ended(self.client.best_ofs("gone")[0])
        self.assertEqual(self.states(best_of), ["passed", "passed"])
        self.assertEqual(best_of["attempts"][0]["diff"]["added"], 500_000)
        self.assertEqual([len(self.client.execs(workspace=f"gone-{n}")) for n in (1, 2)], [2, 2])
        began = self.client.best_of("gone", test="sleep 1", patches=[(str(n), big) for n in range(4)], parallel=1)
        self.client.delete("gone", purge=True)
        names = [a["workspace"] for a in began["attempts"]]
        harness.wait_until(lambda: not self.client.execs(running=True) and all(
            row[0] not in ("waiting", "applying", "testing") for row in self.rows(began["id"])), what="the end without its patches")
        self.assertIn(("failed",), self.rows(began["id"]))
        self.refused("not_found", lambda: self.client.get_best_of(began["id"]), began["id"])
        for name in names:
            self.assertEqual(self.client.workspace(name)["state"], "ready")

    def rows(self, best_of):
        with contextlib.closing(sqlite3.connect(f"file:{self.daemon.store / 'state.db'}?mode=ro", uri=True)) as db:
            return db.execute("SELECT state FROM best_of_attempts WHERE best_of = ?", (best_of.removeprefix("bo_"),)).fetchall()

    def test_the_cli_can_detach_and_find_it_again(self):
        self.make("leave")
        follower = self.daemon.cli_popen("best-of", "leave", "--count", "2", "--each", "sleep 3; echo {i} > fix", "--test", "test -e fix",
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        harness.wait_until(lambda: self.client.best_ofs("leave") and self.client.best_ofs("leave")[0]["attempts"][0].get("each"), what="it runs")
        follower.send_signal(signal.SIGINT)
        _, errors = follower.communicate(timeout=20)
        self.assertEqual(follower.returncode, 130)
        best_of = self.client.best_ofs("leave")[0]
        self.assertIn(f"moorage best-of {best_of['id']}", errors.decode())
        self.assertEqual(best_of["state"], "running")
        again = self.daemon.cli("best-of", best_of["id"])
        self.assertIn("2 of 2 passed", again.stdout.decode())
        self.assertIn("moorage promote FORK", again.stdout.decode())
        listed = self.daemon.cli("best-of", "leave").stdout.decode()
        self.assertIn(best_of["id"], listed)

    def test_a_key_begins_one_best_of(self):
        self.make("keyed")
        one = self.client.best_of("keyed", each="echo {i} > fix", test="true", count=2, key="k-1")
        two = self.client.best_of("keyed", each="echo {i} > fix", test="true", count=2, key="k-1")
        self.assertEqual(one["id"], two["id"])
        self.refused("already_exists", lambda: self.client.best_of("keyed", each="other", test="true", count=2, key="k-1"), "another request")
        self.assertEqual(len(self.client.best_ofs("keyed")), 1)
        self.ended(one)
        self.assertEqual(len([w for w in self.client.workspaces() if w["name"].startswith("keyed-")]), 2)

    def test_bad_requests_get_an_explanation(self):
        self.make("wrong")
        best_of = self.client.best_of
        self.refused("invalid_argument", lambda: best_of("wrong", test="true", count=2), "neither a command nor a patch")
        self.refused("invalid_argument", lambda: best_of("wrong", test=None, each="true", count=2), "a test is missing")
        self.refused("invalid_argument", lambda: best_of("wrong", test="true", each="true"), "0 attempts")
        self.refused("invalid_argument", lambda: best_of("wrong", test="true", each="true", count=101), "1 to 100")
        self.refused("invalid_argument", lambda: best_of("wrong", test="true", each="true", count=2, promote="best"), "first-passing")
        self.refused("invalid_argument", lambda: best_of("wrong", test="true", each="true", patches=[("a", b"x")]), "not both")
        self.refused("invalid_argument", lambda: best_of("wrong", test="true", patches=[("a", b"")]), "empty")
        self.refused("invalid_argument", lambda: best_of("wrong", test="true", patches=[("a", b"x")], count=3), "count is 3")
        self.refused("invalid_argument", lambda: best_of("wrong", test="true", patches=[("a", b"x" * ((16 << 20) + 1))]), "16 MiB")
        self.refused("not_found", lambda: best_of("nobody", test="true", each="true", count=2), "nobody")
        self.refused("not_found", lambda: self.client.get_best_of("bo_4711"), "bo_4711")
        self.refused("invalid_argument", lambda: self.client.request(
            "POST", "/workspaces/wrong/best-of", json_body={"test": "true", "patches": [{"name": "a", "bytes": 5}]}), "5 bytes, but 0 arrived")
        for words, said in ((["--each", "x", "--patches", "/tmp"], "exclude"), (["--test", "x"], "needs --each or --patches"),
                            (["--patches", "/nonexistent", "--test", "x"], "nonexistent")):
            out = self.daemon.cli("best-of", "wrong", *words, check=False)
            self.assertNotEqual(out.returncode, 0)
            self.assertIn(said, out.stderr.decode())
        self.assertEqual(self.client.best_ofs("wrong"), [], "nothing was begun")

    def test_two_workspaces_are_compared(self):
        self.make("left")
        self.client.exec("left", "echo same > both; echo left > mine; rm src/a.txt; git mv src/b.txt b.txt", sync=True)
        self.client.fork("left", names=["right"])
        self.client.exec("right", "echo right > mine; mkdir d; echo new > d/new; chmod +x both; head -c 1000 /dev/zero > zero; exit 7")
        found = self.client.compare("left", "right")
        self.assertEqual({f["path"]: (f["change"], f["added"], f["removed"], f["bytes_from"], f["bytes_to"]) for f in found["files"]},
                         {"mine": ("modified", 1, 1, 5, 6), "d/new": ("added", 1, 0, 0, 4), "both": ("mode", 0, 0, 5, 5),
                          "zero": ("added", 0, 0, 0, 1000)})
        self.assertEqual((found["from"]["name"], found["to"]["last"]["exit_code"]), ("left", 7))
        patch = self.client.compare_patch("left", "right")
        out = self.client.exec("left", ["git", "apply", "--binary", "-"], stdin=patch)
        self.assertEqual(out.exit_code, 0, out.stderr)
        self.assertEqual(self.client.compare("left", "right")["files"], [])
        self.assertEqual(self.client.compare("right", "right")["files"], [])
        harness.commit(self.upstream / "acme" / "shop", "moved.txt", "moved\n")
        self.make("newer")
        across = self.client.compare("right", "newer")
        kinds = {f["path"]: f["change"] for f in across["files"]}
        self.assertEqual(kinds, {"moved.txt": "added", "mine": "deleted", "both": "deleted", "d/new": "deleted", "zero": "deleted",
                                 "src/a.txt": "added", "src/b.txt": "added", "b.txt": "deleted"})
        text = self.daemon.cli("compare", "left", "newer").stdout.decode()
        self.assertIn("moved.txt", text)
        self.assertIn("+moved", self.daemon.cli("compare", "left", "newer", "--patch").stdout.decode())
        harness.make_repository(self.upstream / "acme" / "other")
        self.client.create(repo_url=self.git_server.url("acme/other"), name="other")
        self.refused("invalid_argument", lambda: self.client.compare("left", "other"), "different repositories")


if __name__ == "__main__":
    unittest.main()
