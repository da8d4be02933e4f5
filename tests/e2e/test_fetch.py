"""A repository is fetched once, and a workspace starts at upstream's current commit."""

import datetime
import os
import signal
import threading
import time
import unittest

import harness
import raw_api


class Fetch(harness.TestCase):
    def head(self, name):
        return self.client.exec(name, "git rev-parse HEAD").stdout.decode().strip()

    def test_an_unchanged_upstream_moves_no_pack(self):
        self.client.create(repo_url=self.url, name="first")
        before = self.git_server.fetches()
        self.client.create(repo_url=self.url, name="second")
        self.assertEqual(self.git_server.fetches(), before)
        self.assertEqual(self.head("second"), self.head("first"))

    def test_a_new_workspace_starts_at_upstreams_new_commit(self):
        self.client.create(repo_url=self.url, name="old")
        new = harness.commit(self.upstream / "acme" / "shop", "new.txt", "new")
        self.assertEqual(self.client.create(repo_url=self.url, name="new")["base"]["commit"], new)
        self.assertEqual(self.head("new"), new)
        self.assertNotEqual(self.head("old"), new)
        self.assertEqual(self.client.workspace("old")["base"]["behind"], 1)
        # `origin` inside shows upstream's state when the workspace was created.
        self.assertEqual(self.client.exec("new", "git rev-parse origin/main").stdout.decode().strip(), new)

    def test_the_time_of_the_last_check_is_shown_everywhere(self):
        self.client.create(repo_url=self.url, name="first-check")
        for number in range(2):
            before = time.time()
            made = self.client.create(repo_url=self.url, name=f"check-{number}")
            listed = next(w for w in self.client.workspaces() if w["name"] == made["name"])
            repos = next(r for r in self.client.repos() if r["id"] == made["repo"]["id"])
            for shown in (made["base"], listed["base"], self.client.workspace(made["name"])["base"], repos):
                seconds = datetime.datetime.fromisoformat(shown["checked_at"]).timestamp()
                self.assertGreater(seconds, before - 1)
            time.sleep(1.1)

    def test_new_forced_and_deleted_branches_are_followed(self):
        repo = self.upstream / "acme" / "branches"
        harness.make_repository(repo)
        url = self.git_server.url("acme/branches")
        harness.git(repo, "checkout", "-q", "-b", "topic")
        old_tip = harness.commit(repo, "t", "1")
        self.assertEqual(self.client.create(repo_url=url, ref="topic", name="t1")["base"]["commit"], old_tip)
        harness.git(repo, "reset", "-q", "--hard", "HEAD~1")
        forced = harness.commit(repo, "t", "forced")
        self.assertEqual(self.client.create(repo_url=url, ref="topic", name="t2")["base"]["commit"], forced)
        harness.git(repo, "checkout", "-q", "main")
        harness.git(repo, "branch", "-q", "-D", "topic")
        with self.assertRaises(raw_api.ApiError) as refused:
            self.client.create(repo_url=url, ref="topic", name="t3")
        self.assertEqual(refused.exception.code, "not_found")
        # The base trees of the older workspaces are still complete.
        for name, tip in (("t1", old_tip), ("t2", forced)):
            result = self.client.exec(name, f"git cat-file -p {tip} > /dev/null && git fsck --connectivity-only 2>&1")
            self.assertEqual(result.exit_code, 0, result.stdout)
        harness.git(repo, "tag", "v1", "main")
        self.assertEqual(self.client.create(repo_url=url, ref="v1", name="t4")["state"], "ready")

    def test_an_interrupted_clone_recovers(self):
        repo = self.upstream / "acme" / "big"
        harness.make_repository(repo, {f"f{i}.bin": os.urandom(1 << 20) for i in range(60)})
        url = self.git_server.url("acme/big")
        thread = threading.Thread(target=lambda: self.assertRaises(
            (raw_api.ApiError, OSError), self.client.create, repo_url=url, name="cut"))
        fetches = self.git_server.fetches()
        thread.start()
        harness.wait_until(lambda: self.git_server.fetches() > fetches, what="the clone to begin")
        time.sleep(0.05)
        self.daemon.kill()
        thread.join()
        self.daemon.start()
        self.client.create(repo_url=url, name="healed")
        self.assertEqual(self.client.exec("healed", "git fsck --full && ls | wc -l").stdout.split()[-1], b"60")

    def test_24_concurrent_creates_make_one_clone(self):
        harness.make_repository(self.upstream / "acme" / "crowd")
        url = self.git_server.url("acme/crowd")
        before = self.git_server.fetches()
        errors = []

        def create(number):
            try:
                self.client.create(repo_url=url, name=f"crowd-{number}")
            except Exception as error:  # noqa: BLE001 (collected for the assertion)
                errors.append(error)

        threads = [threading.Thread(target=create, args=(i,)) for i in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])
        self.assertEqual(self.git_server.fetches() - before, 1)
        commits = {w["base"]["commit"] for w in self.client.workspaces() if w["name"].startswith("crowd-")}
        self.assertEqual(len(commits), 1)

    def test_a_pull_request_and_a_commit_of_no_branch_are_fetched_when_they_are_named(self):
        source = self.upstream / "acme" / "forge"
        first = harness.make_repository(source)
        url = self.git_server.url("acme/forge")
        self.client.create(repo_url=url, name="plain")

        def offer(ref, text):
            commit = harness.commit(source, "offered", text)
            harness.git(source, "update-ref", ref, commit)
            harness.git(source, "reset", "-q", "--hard", first)
            return commit

        one = offer("refs/pull/7/head", "one\n")
        merge = offer("refs/merge-requests/3/head", "three\n")
        lost = offer("refs/heads/gone", "lost\n")
        harness.git(source, "branch", "-q", "-D", "gone")
        for name, ref, commit in (("review", "pull/7/head", one), ("again", "refs/pull/7/head", one),
                                  ("merge", "merge-requests/3/head", merge), ("lost", lost, lost)):
            made = self.client.create(repo_url=url, ref=ref, name=name)
            self.assertEqual(made["base"]["commit"], commit)
            self.assertEqual(self.client.exec(name, "git rev-parse HEAD").stdout.decode().strip(), commit)
        before = self.git_server.fetches()
        self.client.create(repo_url=url, ref=lost, name="lost-2")
        self.assertEqual(self.git_server.fetches(), before, "it is kept")
        two = offer("refs/pull/7/head", "two\n")
        self.assertEqual(self.client.create(repo_url=url, ref="pull/7/head", name="newer")["base"]["commit"], two)
        base = self.client.workspace("review")["base"]
        self.assertEqual((base["behind"], base["lost"]), (1, 1))
        self.assertIn("upstream rewrote its history without 1 commit of the base", self.daemon.cli("show", "review").stdout.decode())
        self.assertEqual(self.client.exec("review", "cat README.md && git log --oneline | wc -l").exit_code, 0)
        for ref in ("pull/8/head", "f" * 40, "feature/none"):
            with self.assertRaises(raw_api.ApiError) as refused:
                self.client.create(repo_url=url, ref=ref, name="none")
            self.assertEqual(refused.exception.code, "not_found")
        shown = self.daemon.cli("show", "newer").stdout.decode()
        self.assertIn("pull/7/head", shown)

    def test_a_workspace_at_a_commit_alone_claims_no_branch(self):
        repo = self.upstream / "acme" / "side"
        harness.make_repository(repo)
        harness.git(repo, "checkout", "-q", "-b", "feature/x")
        commit = harness.commit(repo, "x", "1")
        harness.git(repo, "checkout", "-q", "main")
        harness.commit(repo, "m", "1")
        made = self.daemon.cli("create", "--repo", self.git_server.url("acme/side"), "--ref", commit, "--name", "side").stdout.decode()
        self.assertRegex(made, rf"base +acme/side {commit[:7]}\n")
        base = self.client.workspace("side")["base"]
        self.assertEqual((base["ref"], base["commit"]), ("", commit))
        self.assertNotIn("behind", base)
        for words in (("show", "side"), ("ls",)):
            self.assertNotRegex(self.daemon.cli(*words).stdout.decode(), r"side +main|acme/side main")

    def test_an_unreachable_upstream_leaves_the_cache_usable_with_a_warning(self):
        harness.make_repository(self.upstream / "acme" / "away")
        url = self.git_server.url("acme/away")
        self.client.create(repo_url=url, name="here")
        os.rename(self.upstream / "acme" / "away", self.upstream / "acme" / "moved-away")
        port = self.git_server.port
        os.killpg(self.git_server.process.pid, signal.SIGKILL)
        self.git_server.process.wait()
        ws = self.client.create(repo_url=url, name="away")
        self.assertTrue(ws["base"]["stale"])
        self.assertEqual(self.client.exec("away", "cat README.md").stdout, b"hello\n")
        with self.assertRaises(raw_api.ApiError) as refused:
            self.client.create(repo_url=f"git://127.0.0.1:{port}/acme/never-seen", name="never")
        self.assertEqual(refused.exception.code, "unavailable")
        type(self).git_server = harness.GitServer(self.upstream)
        type(self).url = self.git_server.url("acme/shop")


if __name__ == "__main__":
    unittest.main()
