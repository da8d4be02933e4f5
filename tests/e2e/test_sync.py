"""Newer commits of upstream in a workspace, and a base of the changes that follows a rebase or merge inside."""

import unittest

import harness
import raw_api


class Sync(harness.TestCase):
    def repository(self, name):
        source = self.upstream / "acme" / name
        first = harness.make_repository(source, {"README.md": "hello\n", "a.c": "int a;\n", "b.c": "int b;\n"})
        return source, first, self.git_server.url(f"acme/{name}")

    def out(self, name, script):
        result = self.client.exec(name, ["sh", "-euc", script])
        self.assertEqual(result.exit_code, 0, result)
        return result.stdout.decode().strip()

    def base(self, name):
        return self.client.workspace(name)["base"]

    def changed(self, name):
        return sorted(f"{file['change']} {file['path']}" for file in self.client.status(name)["files"])

    def test_sync_moves_the_remote_branches_and_nothing_else(self):
        source, first, url = self.repository("news")
        harness.git(source, "branch", "old")
        harness.git(source, "tag", "v1")
        self.client.create(repo_url=url, name="news")
        self.out("news", "echo mine >> a.c; git commit -qam mine; git tag v2")
        head = self.out("news", "git rev-parse HEAD")
        newest = harness.commit(source, "b.c", "int b2;\n")
        harness.git(source, "branch", "-q", "-D", "old")
        harness.git(source, "branch", "old/nested", first)  # git refuses both names beside each other
        harness.git(source, "tag", "v2")
        harness.git(source, "tag", "v3")
        text = self.daemon.cli("sync", "news")
        self.assertIn(f"origin/main {first[:7]} -> {newest[:7]}", text.stdout.decode())
        self.assertIn("origin/old is gone", text.stdout.decode())
        self.assertIn("tag v3 is new", text.stdout.decode())
        self.assertIn("1 tag inside differs from upstream's and stays", text.stdout.decode())
        self.assertIn("1 commit behind; moorage exec news -- git rebase --autostash origin/main", text.stderr.decode())
        self.assertEqual(self.out("news", "git rev-parse origin/main origin/HEAD HEAD v2"), f"{newest}\n{newest}\n{head}\n{head}")
        self.assertEqual(self.out("news", "git for-each-ref --format='%(refname)' refs/remotes"),
                         "refs/remotes/origin/HEAD\nrefs/remotes/origin/main\nrefs/remotes/origin/old/nested")
        self.assertEqual(self.changed("news"), ["modified a.c"])
        self.out("news", "git tag -d v2 >/dev/null")
        self.client.sync("news")
        self.assertEqual(self.client.sync("news")["notice"], "nothing new upstream")

    def test_the_base_follows_a_rebase_and_a_merge(self):
        source, first, url = self.repository("moving")
        for name in ("rebased", "merged"):
            self.client.create(repo_url=url, name=name)
            self.out(name, "echo mine >> a.c; git commit -qam mine; echo new > new")
        second = harness.commit(source, "b.c", "int b2;\n")
        for name, way in (("rebased", "git rebase -q origin/main"), ("merged", "git merge -q origin/main")):
            self.client.sync(name)
            self.assertEqual(self.base(name)["behind"], 1)
            self.out(name, way)
            base = self.base(name)
            self.assertEqual((base["commit"], base["moved_to"], base["behind"]), (first, second, 0))
            self.assertEqual(self.changed(name), ["modified a.c", "untracked new"])
            self.assertEqual(self.client.workspace(name)["changes"]["files"], 2)
            self.assertNotIn(b"b.c", self.client.diff(name))
            self.assertIn(f"{first[:7]}, after a rebase or merge inside {second[:7]}", self.daemon.cli("show", name).stdout.decode())
            # The patch is one over upstream's branch.
            checkout = self.daemon.directory / name
            harness.run("git", "clone", "-q", str(source), str(checkout))
            harness.run("git", "apply", cwd=checkout, input=self.client.diff(name))
            self.assertEqual(harness.run("git", "status", "--short", cwd=checkout).stdout.decode(), " M a.c\n?? new\n")
            self.assertEqual(self.daemon.cli("diff", name, "--name-only").stdout, b"a.c\nnew\n")
        third = harness.commit(source, "c.c", "int c;\n")
        self.client.sync("merged")
        self.assertEqual(self.base("merged")["behind"], 1)
        self.assertEqual(self.changed("merged"), ["modified a.c", "untracked new"])
        self.out("merged", "git merge -q origin/main")
        self.assertEqual(self.base("merged")["moved_to"], third)

    def test_it_survives_stops_forks_restores_and_archives(self):
        source, first, url = self.repository("kept")
        self.client.create(repo_url=url, name="kept")
        self.out("kept", "echo mine >> a.c; git commit -qam mine")
        self.client.snapshot("kept", "before")
        second = harness.commit(source, "b.c", "int b2;\n")
        self.client.sync("kept")
        self.out("kept", "git rebase -q origin/main")
        self.client.snapshot("kept", "after")
        whole = self.daemon.directory / "whole.moorage"
        self.daemon.cli("export", "kept", str(whole))
        self.daemon.cli("import", str(whole), "--name", "whole")
        self.client.restore("whole", "before")
        self.assertNotIn("moved_to", self.base("whole"))
        self.client.restore("whole", "after")
        self.assertEqual((self.base("whole")["moved_to"], self.changed("whole")), (second, ["modified a.c"]))
        self.client.fork("kept", names=["early"], snapshot="before")
        self.client.fork("kept", names=["late"])
        self.client.stop("kept")
        self.daemon.kill()
        self.daemon.start()
        self.assertEqual([self.base(name).get("moved_to") for name in ("kept", "early", "late")], [second, None, second])
        self.assertEqual([self.changed(name) for name in ("kept", "early", "late")], [["modified a.c"]] * 3)
        self.client.restore("kept", "before")
        self.assertNotIn("moved_to", self.base("kept"))
        self.assertEqual(self.changed("kept"), ["modified a.c"])
        self.client.restore("kept", "after")
        self.assertEqual(self.base("kept")["moved_to"], second)
        self.client.archive("kept")
        self.client.unarchive("kept")
        self.assertEqual((self.base("kept")["moved_to"], self.changed("kept")), (second, ["modified a.c"]))
        file = self.daemon.directory / "kept.moorage"
        self.daemon.cli("export", "late", str(file))
        self.daemon.cli("import", str(file), "--name", "copy")
        self.assertEqual((self.base("copy")["moved_to"], self.changed("copy")), (second, ["modified a.c"]))
        # Back on the old base.
        self.out("early", "true")
        self.assertNotIn("moved_to", self.base("early"))
        self.out("late", "git reset -q --hard HEAD@{1} 2>/dev/null || true; git reset -q --hard " + first)
        self.assertNotIn("moved_to", self.base("late"))
        self.assertEqual(self.changed("late"), [])

    def test_upstream_rewrote_its_history(self):
        source, first, url = self.repository("rewritten")
        doomed = harness.commit(source, "b.c", "int doomed;\n")
        self.client.create(repo_url=url, name="rewritten")
        self.out("rewritten", "echo mine >> a.c; git commit -qam mine")
        harness.git(source, "reset", "-q", "--hard", first)
        forced = harness.commit(source, "c.c", "int c;\n")
        self.client.sync("rewritten")
        base = self.base("rewritten")
        self.assertEqual((base["commit"], base["behind"], base["lost"]), (doomed, 1, 1))
        self.out("rewritten", f"git rebase -q --onto origin/main {doomed}")
        base = self.base("rewritten")
        self.assertEqual((base["moved_to"], base["behind"], base.get("lost")), (forced, 0, None))
        self.assertEqual(self.changed("rewritten"), ["modified a.c"])
        harness.git(source, "reset", "-q", "--hard", first)  # after the agent rebased on it
        again = harness.commit(source, "d.c", "int d;\n")
        self.client.sync("rewritten")
        base = self.base("rewritten")
        self.assertEqual((base["moved_to"], base["behind"], base["lost"]), (forced, 1, 1))
        self.assertEqual(self.changed("rewritten"), ["modified a.c"])
        self.out("rewritten", f"git rebase -q --onto origin/main {forced}")
        base = self.base("rewritten")
        self.assertEqual((base["moved_to"], base["behind"], base.get("lost")), (again, 0, None))
        self.assertEqual(self.changed("rewritten"), ["modified a.c"])

    def test_a_pull_request_is_followed(self):
        source, first, url = self.repository("review")
        offered = harness.commit(source, "b.c", "int offered;\n")
        harness.git(source, "update-ref", "refs/pull/7/head", offered)
        harness.git(source, "reset", "-q", "--hard", first)
        self.client.create(repo_url=url, ref="pull/7/head", name="review")
        self.assertEqual(self.out("review", "git rev-parse origin/pull/7/head"), offered)
        harness.git(source, "checkout", "-q", offered)
        newer = harness.commit(source, "c.c", "int c;\n")
        harness.git(source, "update-ref", "refs/pull/7/head", newer)
        harness.git(source, "checkout", "-q", "main")
        self.assertIn(f"origin/pull/7/head {offered[:7]} -> {newer[:7]}", self.client.sync("review")["notice"])
        self.out("review", "git merge -q --ff-only origin/pull/7/head")
        self.assertEqual((self.base("review")["moved_to"], self.changed("review")), (newer, []))

    def test_a_lying_git_moves_the_base_nowhere_else(self):
        source, first, url = self.repository("liar")
        self.client.create(repo_url=url, name="liar")
        self.out("liar", "echo mine >> a.c; git commit -qam mine")
        mine = self.out("liar", "git rev-parse HEAD")
        harness.commit(source, "b.c", "int b2;\n")
        self.client.sync("liar")
        # git reads this as upstream's new commit: it is the agent's own.
        tip = self.out("liar", "git rev-parse origin/main")
        self.out("liar", f"git replace -f {tip} {mine}; git reset -q --hard {mine}")
        self.assertNotIn("moved_to", self.base("liar"))
        self.assertEqual(self.changed("liar"), ["modified a.c"])

    def test_tags_and_links_in_the_way_keep_their_place(self):
        source, first, url = self.repository("odd")
        self.client.create(repo_url=url, name="odd")
        self.out("odd", "git tag v1; git branch work; git symbolic-ref refs/remotes/origin/gone refs/heads/work; "
                        "git symbolic-ref refs/remotes/origin/next refs/heads/work")
        newest = harness.commit(source, "b.c", "int b2;\n")
        harness.git(source, "tag", "v1/rc")
        harness.git(source, "branch", "next")
        notice = self.client.sync("odd")["notice"]
        self.assertIn("1 tag inside differs from upstream's and stays", notice)
        self.assertEqual(self.out("odd", "git rev-parse origin/main origin/next work v1"), "\n".join([newest, newest, first, first]))
        self.assertEqual(self.out("odd", "git for-each-ref --format='%(refname)' refs/remotes"),
                         "refs/remotes/origin/HEAD\nrefs/remotes/origin/main\nrefs/remotes/origin/next")

    def test_refusals_say_what_to_do(self):
        source, first, url = self.repository("refused")
        checkout = self.daemon.directory / "checkout"
        harness.run("git", "clone", "-q", str(source), str(checkout))
        self.daemon.cli("create", "--name", "local", "--from", str(checkout))
        refused = self.daemon.cli("sync", "local", check=False)
        self.assertIn(b"came from a checkout", refused.stderr)
        self.assertIn(b"git bundle create", refused.stderr)
        harness.git(checkout, "commit", "-q", "--allow-empty", "-m", "newer")
        newer = harness.run("git", "rev-parse", "HEAD", cwd=checkout).stdout.decode().strip()
        branch = harness.run("git", "branch", "--show-current", cwd=checkout).stdout.decode().strip()
        harness.git(checkout, "bundle", "create", "-q", "new.bundle", branch)
        self.daemon.cli("cp", str(checkout / "new.bundle"), "local:/home/user/new.bundle")
        self.assertEqual(self.out("local", f"git fetch -q /home/user/new.bundle {branch} && git rev-parse FETCH_HEAD"), newer)
        self.client.create(repo_url=url, name="refused")
        harness.commit(source, "b.c", "int b2;\n")
        self.out("refused", "rm -f .git/packed-refs; mkdir -p .git/refs/remotes/origin; echo garbage > .git/refs/remotes/origin/main; touch .git/refs/remotes/origin/main.lock")
        refused = self.daemon.cli("sync", "refused", check=False)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn(b"git in the sandbox did not", refused.stderr)
        self.out("refused", "rm .git/refs/remotes/origin/main.lock .git/refs/remotes/origin/main")
        self.client.sync("refused")
        with self.assertRaises(raw_api.ApiError) as missing:
            self.client.sync("nobody")
        self.assertEqual(missing.exception.code, "not_found")


if __name__ == "__main__":
    unittest.main()
