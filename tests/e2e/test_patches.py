"""A patch is whole but for what it names: files too large, names that git refuses, nested repositories."""

import subprocess
import unittest

import harness


class Patches(harness.TestCase):
    def make(self, name, script=None):
        self.client.create(repo_url=self.url, name=name)
        if script:
            self.client.exec(name, script)

    def diff(self, name, *options, code=0):
        """(standard output, standard error)"""
        done = self.daemon.cli("diff", name, *options, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout, done.stderr.decode()

    def applied(self, patch):
        """The changed files of a fresh clone with the patch."""
        place = self.daemon.directory / f"applied-{self.id().rsplit('.', 1)[-1]}"
        harness.git(self.daemon.directory, "clone", "-q", self.url, place)
        subprocess.run(["git", "-C", place, "apply", "--binary", "-"], input=patch, check=True)
        return sorted(harness.git(place, "ls-files", "-mo").splitlines())

    def test_a_large_file_is_left_out_and_the_rest_applies(self):
        self.make("large", "truncate -s 80M big.bin; head -c 40M /dev/urandom > noise; echo more >> README.md; echo new > new")
        patch, notes = self.diff("large", code=3)
        self.assertIn("big.bin (80M) is too large for a patch; copy it: moorage cp large:big.bin DIR", notes)
        self.assertIn("noise (40M) is too large for a patch", notes)
        self.assertEqual(self.applied(patch), ["README.md", "new"])
        self.assertEqual(self.client.diff_lacks("large"), {"big.bin": "too_large", "noise": "too_large"})
        copied = self.daemon.directory / "copied"
        copied.mkdir()
        self.daemon.cli("cp", "large:big.bin", copied)
        self.assertEqual((copied / "big.bin").stat().st_size, 80 << 20)
        self.make("other")
        compared = self.daemon.cli("compare", "other", "large", "--patch", check=False)
        self.assertEqual(compared.returncode, 3)
        self.assertIn(b"moorage cp large:noise DIR", compared.stderr)
        self.assertEqual(compared.stdout, patch)

    def test_a_name_that_git_refuses_is_left_out_and_named(self):
        self.make("named", "mkdir -p sub/.GIT; echo x > sub/.GIT/config; echo y > fine")
        patch, notes = self.diff("named", code=3)
        self.assertIn("sub/.GIT/config is not in this patch: git refuses its name", notes)
        self.assertEqual(self.applied(patch), ["fine"])

    def test_line_ends_that_git_would_change_are_named(self):
        self.make("ends", r"printf '*.txt text\n*.x filter=lfs\n' > .gitattributes; printf 'a\r\n' > a.txt; echo b > b.txt; echo > c.x")
        patch, notes = self.diff("ends", code=3)
        self.assertIn("a.txt: git apply may write other bytes (line ends, filters) than the workspace has", notes)
        self.assertIn("c.x: git apply may write other bytes", notes)
        self.assertNotIn("b.txt", notes)
        self.assertEqual(self.applied(patch), [".gitattributes", "a.txt", "b.txt", "c.x"])

    def test_paths_and_names_only(self):
        self.make("some", "mkdir -p src/deep; echo 1 > src/deep/a; echo 2 > 'src/b c'; echo 3 > srcs; echo 4 >> README.md")
        self.assertEqual(self.diff("some", "--name-only")[0], b"README.md\nsrc/b c\nsrc/deep/a\nsrcs\n")
        self.assertEqual(self.diff("some", "--name-only", "--", "src")[0], b"src/b c\nsrc/deep/a\n")
        self.assertEqual(self.diff("some", "--name-only", "src/deep/", "srcs")[0], b"src/deep/a\nsrcs\n")
        patch, _ = self.diff("some", "--", "src/b c", "README.md")
        self.assertEqual(self.applied(patch), ["README.md", "src/b c"])
        self.assertEqual(self.diff("some", "--", "nothing")[0], b"")
        for spelled in ("./src/deep", "/workspace/src/deep/", "src//deep/."):
            self.assertEqual(self.diff("some", "--name-only", "--", spelled)[0], b"src/deep/a\n")
        for everything in (".", "/workspace"):
            self.assertEqual(self.diff("some", "--name-only", "--", everything)[0].count(b"\n"), 4)
        checkout = self.daemon.directory / "some"
        harness.git(self.daemon.directory, "clone", "-q", self.url, checkout)
        for bad in ("/etc", "../up", "/workspace/.."):
            self.assertIn(f"'{bad}' is not a path in /workspace", self.diff("some", "--", bad, code=1)[1])
            refused = self.daemon.cli("apply", "some", checkout, "--only", bad, check=False)
            self.assertEqual((refused.returncode, f"'{bad}' is not a path in /workspace" in refused.stderr.decode()), (1, True))
        self.daemon.cli("apply", "some", checkout, "--only", "./src/", "--only", "/workspace/README.md")
        self.assertEqual(sorted(harness.git(checkout, "ls-files", "-mo").splitlines()), ["README.md", "src/b c", "src/deep/a"])

    def test_the_smallest_attempt_is_not_the_one_with_a_file_too_large_for_a_patch(self):
        self.make("best")
        each = 'if [ {i} = 1 ]; then truncate -s 80M big; else seq 2000 > small; fi'
        best = self.client.best_of("best", each=each, test="true", count=2, promote="smallest-diff")
        harness.wait_until(lambda: self.client.get_best_of(best["id"])["state"] == "done", what="the best-of")
        best = self.client.get_best_of(best["id"])
        self.assertEqual(best["chosen"], 2)
        self.assertGreaterEqual(best["attempts"][0]["diff"]["bytes"], 80 << 20)


if __name__ == "__main__":
    unittest.main()
