"""Random checkouts, an agent's random changes in a workspace from each, and their way back: the same bytes as if the changes
had been made in the checkout, or a refusal that names why and changes nothing.

MOORAGE_ROUNDS: how many (200). MOORAGE_SEED: the first of them, to repeat one round.
"""

import collections
import hashlib
import os
import pathlib
import random
import shutil
import unittest

import harness
from checkouts import CHANGE, NAMES, STATES, Checkout, change, without_what_stays
from test_checkout import contents

ROUNDS = int(os.environ.get("MOORAGE_ROUNDS", "200"))
SEED = int(os.environ.get("MOORAGE_SEED", "0")) or random.randrange(10**9)
KINDS = {"edit", "append", "new", "remove", "mode", "link", "swap", "empty", "binary", "rename", "to directory", "from directory",
         "move directory", "long", "attributes"}


def git_state(path):
    """What `apply` and a patch leave alone: the index with its flags, HEAD, branches and tags."""
    return tuple(harness.run("git", "-C", path, *words, check=False).stdout
                 for words in (("ls-files", "-s", "-v", "-z"), ("symbolic-ref", "-q", "HEAD"), ("for-each-ref",), ("stash", "list")))


def digests(found):
    return {name: (kind, runs, hashlib.sha256(data).hexdigest() if kind == "file" else data)
            for name, (kind, runs, data) in found.items()}


def but_for(found, names):
    return {name: entry for name, entry in found.items() if name not in names}


def without_line_ends(found):
    return {name: (kind, runs, data.replace(b"\r\n", b"\n") if kind == "file" else data) for name, (kind, runs, data) in found.items()}


class RoundTrips(harness.TestCase):
    maxDiff = None

    def setUp(self):
        self.directory = self.daemon.directory / "rounds"
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir()

    def copy(self, path, name):
        target = self.directory / name
        harness.run("cp", "-a", path, target)
        if (path / ".git").is_file():  # a linked worktree: its copy needs a repository of its own
            (target / ".git").unlink()
            harness.git(target, "init", "-q")
            for line in (".rot.clean", "tr a-z b-za"), (".rot.smudge", "tr b-za a-z"):
                harness.git(target, "config", "filter" + line[0], line[1])
        return target

    def look(self, name, target):
        """The files of a workspace."""
        shutil.rmtree(target, ignore_errors=True)
        self.daemon.cli("cp", f"{name}:/workspace", target)
        return contents(target)

    def one(self, seed):
        r = random.Random(seed)
        self.setUp()
        source = Checkout(self.directory, r, seed)
        checkout = source.path
        before, git_before = contents(checkout), git_state(checkout)
        wanted = self.copy(checkout, "wanted")
        patched = self.copy(checkout, "patched")
        patched_before = git_state(patched)
        shares_directory = without_what_stays(wanted)
        arriving = contents(wanted)
        stays = {name: entry for name, entry in before.items() if name not in arriving}
        name = f"round-{seed}"
        created = self.daemon.cli("create", "--from", checkout, "--name", name)
        said = created.stderr.decode()
        self.assertEqual((contents(checkout), git_state(checkout)), (before, git_before), "create changed the checkout")
        self.assertEqual(digests(self.look(name, self.directory / "arrived")), digests(arriving), f"other files arrived: {said}")
        self.assertEqual(self.daemon.cli("diff", name).stdout, b"", f"the base is not what arrived: {said}")
        change_seed = r.randrange(10**9)
        program = f"{CHANGE}\nchange('/workspace', {change_seed}, {NAMES!r})"
        self.daemon.cli("exec", name, "--", "python3", "-c", program)
        kinds = change(str(wanted), change_seed, NAMES)
        expected = contents(wanted)
        self.assertEqual(digests(self.look(name, self.directory / "changed")), digests(expected), "the agent did something else")
        outcomes = []
        for how, target, state in (("apply", checkout, git_before), ("patch", patched, patched_before)):
            done, named = self.bring_back(how, name, target)
            found, wanted_now = contents(target), expected | stays
            if done.returncode == 0:
                found, wanted_now = but_for(found, named), but_for(wanted_now, named)
            if how == "patch" and done.returncode == 0 and "attributes" in kinds:
                # git apply converts by the attributes that it is about to replace: the guide says so.
                self.assertEqual({name: entry[:2] for name, entry in found.items()},
                                 {name: entry[:2] for name, entry in wanted_now.items()}, f"{how}: {said}")
            elif how == "patch" and done.returncode == 0 and ("core.autocrlf is" in said or "core.eol is" in said):
                found, wanted_now = without_line_ends(found), without_line_ends(wanted_now)
                self.assertEqual(digests(found), digests(wanted_now), f"{how}: {said}")
            elif done.returncode == 0:
                self.assertEqual(digests(found), digests(wanted_now), f"{how}: {said}")
            else:
                self.assertNotEqual(done.stderr.strip(), b"")
                # git apply itself stops in the middle where a directory that became a file is not empty.
                if how == "apply" or b"Directory not empty" not in done.stderr:
                    self.assertEqual(digests(found), digests(before), f"{how} failed but changed something: {done.stderr}")
            self.assertEqual(git_state(target), state, f"{how} changed the index or refs")
            # Nobody else changes the checkout: only what stayed there can be in the way.
            if how == "apply" and not shares_directory:
                self.assertEqual(done.returncode, 0, done.stderr)
            outcomes.append((how, done.returncode == 0, done.stderr))
            self.partial += bool(named)
        self.daemon.cli("rm", "--purge", name)
        return source.states, kinds, outcomes

    def bring_back(self, how, name, target):
        """(how it ended, the files that the patch names as not the workspace's bytes)"""
        if how == "apply":
            return self.daemon.cli("apply", name, target, check=False), set()
        patch = self.daemon.cli("diff", name, check=False)
        if patch.returncode not in (0, 3) or not patch.stdout:
            return patch, set()
        named = set(self.client.diff_lacks(name))
        self.assertEqual(patch.returncode, 3 if named else 0, patch.stderr)
        return harness.run("git", "-C", target, "apply", input=patch.stdout, check=False), named

    def test_the_way_back_gives_the_same_bytes_or_a_refusal(self):
        went, met, done = collections.Counter(), collections.Counter(), collections.Counter()
        self.partial = 0
        for seed in range(SEED, SEED + ROUNDS):
            with self.subTest(seed=seed):
                states, kinds, outcomes = self.one(seed)
                met.update(states)
                done.update(kinds)
                for how, passed, why in outcomes:
                    went[how] += passed
                    if not passed:
                        print(f"round {seed}: {how} refused: {why.decode(errors='replace').strip()[:200]}", flush=True)
        print(f"{ROUNDS} rounds: {dict(went)}, {self.partial} patches named files\nstates: {dict(met)}\nchanges: {dict(done)}", flush=True)
        self.assertGreaterEqual(went["apply"], ROUNDS * 9 // 10)
        self.assertGreaterEqual(went["patch"], ROUNDS * 3 // 4)
        if ROUNDS >= 200:
            self.assertEqual((STATES - set(met), KINDS - set(done)), (set(), set()))


if __name__ == "__main__":
    unittest.main()
