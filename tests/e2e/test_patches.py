"""A patch is whole but for what it names: files too large, names that git refuses, nested repositories."""

import os
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

    def test_a_diff_of_any_size_names_what_does_not_fit_and_has_the_rest(self):
        self.make("zone", "echo new > small")
        for mib in (20, 21, 23, 25, 27, 28, 31):
            with self.subTest(mib=mib):
                self.client.exec("zone", f"head -c {mib}M /dev/urandom > f")
                patch, notes = self.diff("zone", code=0 if mib == 20 else 3)
                self.assertEqual(f"f ({mib}M) is too large for a patch; copy it: moorage cp zone:f DIR" in notes, mib > 20, notes)
                self.assertIn(b"+new", patch)
        self.make("unchanged")
        compared = self.daemon.cli("compare", "unchanged", "zone", "--patch", check=False)
        self.assertEqual((compared.returncode, b"f (31M) is too large" in compared.stderr), (3, True))
        self.assertIn("f (31M) is too large", self.diff("zone", "--", "f", code=3)[1])
        self.client.exec("zone", "rm f; for i in 1 2 3; do head -c 12M /dev/urandom > g$i; done")
        self.assertEqual(self.applied(self.diff("zone")[0]), ["g1", "g2", "g3", "small"])
        self.client.exec("zone", "for i in 4 5; do head -c 12M /dev/urandom > g$i; done")
        patch, notes = self.diff("zone", code=3)
        self.assertIn("g4 (12M) is not in this patch, which is full; copy it: moorage cp zone:g4 DIR, or name fewer paths: "
                      "moorage diff zone -- PATH", notes)
        self.assertNotIn("g3", notes)
        self.assertEqual(self.client.diff_lacks("zone"), {"g4": "full", "g5": "full"})
        self.assertEqual(self.diff("zone", "--", "g4")[1], "")

    def test_a_printed_command_copies_a_file_of_any_name(self):
        self.make("odd", r"mkdir git~1; printf y > $'git~1/it\'s\ta\nline \377'")
        notes = self.diff("odd", code=3)[1]
        command = notes.split("copy it: ", 1)[1].splitlines()[0].removesuffix(" DIR")
        place = self.daemon.directory / "by name"
        place.mkdir()
        words = subprocess.run(["bash", "-c", f"printf '%s\\0' {command}"], check=True, capture_output=True).stdout.split(b"\0")[:-1]
        self.daemon.cli(*map(os.fsdecode, words[1:]), place)
        self.assertEqual([(os.fsencode(file.name), file.read_text()) for file in place.iterdir()], [(b"it's\ta\nline \xff", "y")])

    def test_a_name_that_git_refuses_is_left_out_and_named(self):
        self.make("named", "mkdir -p sub/.GIT; echo x > sub/.GIT/config; echo y > fine")
        patch, notes = self.diff("named", code=3)
        self.assertIn("sub/.GIT/config is not in this patch: git refuses its name", notes)
        self.assertEqual(self.applied(patch), ["fine"])

    def test_numbers_and_names_have_what_no_patch_can_have(self):
        self.make("counted", "mkdir -p git~1 nest; echo 1 > git~1/x; git init -q nest; echo 2 > nest/y; echo 3 > z")
        self.assertEqual(self.diff("counted", "--name-only")[0], b"git~1/x\nnest/\nz\n")
        self.assertEqual(self.diff("counted", "--name-only", "--", "nest")[0], b"nest/\n")
        stat, notes = self.diff("counted", "--stat")
        self.assertEqual(stat.splitlines()[-1], b" 3 files, +1 -0")
        self.assertIn("git~1/x is not in this patch: git refuses its name", notes)
        self.assertIn("nest/ is a nested repository and not in this patch; copy it: moorage cp counted:nest/ DIR; with all of its "
                      ".git: moorage exec counted -- tar c ./nest/ > FILE.tar", notes)
        listed = {stat["path"]: stat.get("left_out") for stat in self.client.diff_stat("counted")}
        self.assertEqual(listed, {"git~1/x": "name", "nest/": "nested", "z": None})
        self.make("plain")
        compared = self.daemon.cli("compare", "plain", "counted").stdout.decode()
        self.assertRegex(compared, r"git~1/x +added +not in a patch +0 +-> 2")
        self.assertRegex(compared, r"nest/ +added +not in a patch")

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

    def test_attempts_that_end_together_are_measured_whatever_their_size(self):
        self.make("race")
        sizes = {1: 24, 2: 20, 3: 21, 4: 18}
        each = "case {i} in " + " ".join(f"{i}) n={mib};;" for i, mib in sizes.items()) + " esac; head -c ${n}M /dev/urandom > big"
        best = self.client.best_of("race", each=each, test="true", count=4, parallel=4, promote="smallest-diff")
        harness.wait_until(lambda: self.client.get_best_of(best["id"])["state"] == "done", what="the best-of")
        best = self.client.get_best_of(best["id"])
        self.assertEqual(best["chosen"], 4)
        for attempt in best["attempts"]:
            self.assertGreaterEqual(attempt["diff"]["bytes"], sizes[attempt["number"]] << 20)


if __name__ == "__main__":
    unittest.main()
