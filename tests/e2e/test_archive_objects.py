"""Git objects in an archive, including those that upstream deleted after an agent merged them."""

import io
import shutil
import unittest

import harness


class Objects(harness.TestCase):
    def check(self, client, name, tip):
        out = client.exec(name, f"git fsck --full 2>&1 && git cat-file -t {tip} && git show {tip}:topic && git log --format=%s")
        self.assertEqual(out.exit_code, 0, out.stdout + out.stderr)
        self.assertNotRegex(out.stdout.decode(), "missing|broken|error")
        self.assertIn("commit\nof the topic\n", out.stdout.decode())
        self.assertIn("merge of the topic", out.stdout.decode())

    def deleted_after_merge(self, name):
        """Creates a workspace with a merged branch that upstream then deleted, known to the mirror. Returns the branch's tip."""
        upstream = self.daemon.directory / "upstream" / "acme" / "shop"
        harness.git(upstream, "checkout", "-q", "-b", "topic")
        tip = harness.commit(upstream, "topic", "of the topic\n", "on the topic")
        harness.git(upstream, "checkout", "-q", "main")
        self.client.create(repo_url=self.url, name=name)
        out = self.client.exec(name, "git commit -q --allow-empty -m own && git merge -q --no-edit -m 'merge of the topic' origin/topic")
        self.assertEqual(out.exit_code, 0, out.stderr)
        harness.git(upstream, "branch", "-q", "-D", "topic")
        harness.git(upstream, "reflog", "expire", "--expire=now", "--all")
        harness.git(upstream, "gc", "-q", "--prune=now")
        repo = self.client.workspace(name)["repo"]["id"]
        self.client.fetch(repo)
        self.check(self.client, name, tip)
        return tip, repo

    def test_a_tip_deleted_upstream_is_in_the_archive(self):
        tip, repo = self.deleted_after_merge("merged")
        self.client.archive("merged")
        self.client.unarchive("merged")
        self.check(self.client, "merged", tip)
        exported = io.BytesIO()
        self.client.export("merged", exported)

        # Back in the first store without the mirror, or with one cloned after the branch was deleted.
        for clones_first in (False, True):
            self.client.archive("merged")
            self.daemon.stop()
            shutil.rmtree(self.daemon.store / "repos" / repo)
            self.daemon.start()
            if clones_first:
                self.client.create(repo_url=self.url, name="cloner")
            self.client.unarchive("merged")
            self.check(self.client, "merged", tip)

        # Another store without the mirror, and with a mirror without the branch.
        other = harness.Daemon()
        self.addCleanup(other.close)
        other.start()
        client = harness.Client(str(other.socket))
        client.import_(exported.getvalue(), name="first")
        self.check(client, "first", tip)
        client.create(repo_url=self.url, name="fresh")
        self.assertNotEqual(client.exec("fresh", f"git cat-file -e {tip}").exit_code, 0)
        client.import_(exported.getvalue(), name="second")
        self.check(client, "second", tip)
        client.archive("second")
        client.unarchive("second")
        self.check(client, "second", tip)


if __name__ == "__main__":
    unittest.main()
