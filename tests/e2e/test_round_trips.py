"""Random checkouts, an agent's random changes in a workspace from each, and their way back: the same bytes as if the changes
had been made in the checkout, or a refusal that names why and changes nothing.

MOORAGE_ROUNDS: how many (200). MOORAGE_SEED: the first of them, to repeat one round.
"""

import os
import pathlib
import random
import shutil
import unittest

import harness
from test_checkout import contents

ROUNDS = int(os.environ.get("MOORAGE_ROUNDS", "200"))
SEED = int(os.environ.get("MOORAGE_SEED", "0")) or random.randrange(10**9)

NAMES = ["a", "b.txt", "c.win", "run.sh", "dir/d", "dir/e.txt", "dir/sub/f", "odd name", "ümlaut", "-dash", "q\"uote", "new\nline",
         "tab\there", "star*", "deep/er/g"]

# What the agent does; also run in the checkout itself. Paths that a round does not have are made.
CHANGE = r'''
import os, random
from pathlib import Path
def change(top, seed, names):
    os.chdir(top)
    r = random.Random(seed)
    for _ in range(r.randrange(1, 7)):
        name = r.choice(names)
        action = r.choice(["edit", "edit", "append", "new", "remove", "mode", "link", "swap"])
        there = os.path.lexists(name)
        parent = os.path.dirname(name)
        if parent and not os.path.isdir(parent):
            continue
        if os.path.isdir(name) and not os.path.islink(name):
            continue
        if action in ("remove", "mode", "edit", "append") and (not there or os.path.islink(name)):
            continue
        if action == "remove":
            os.unlink(name)
        elif action == "mode":
            os.chmod(name, 0o755 if not os.stat(name).st_mode & 0o100 else 0o644)
        elif action == "edit":
            lines = Path(name).read_bytes().split(b"\n")
            lines[r.randrange(len(lines))] = b"agent %d" % r.randrange(1000)
            Path(name).write_bytes(b"\n".join(lines))
        elif action == "append":
            Path(name).write_bytes(Path(name).read_bytes() + b"agent %d\n" % r.randrange(1000))
        elif action == "new":
            fresh = (parent + "/" if parent else "") + "made %d" % r.randrange(20)
            if not os.path.lexists(fresh):
                Path(fresh).write_bytes(bytes(r.randrange(256) for _ in range(200)))
        elif action == "link":
            if there: os.unlink(name)
            os.symlink("target %d" % r.randrange(5), name)
        elif action == "swap":
            if there: os.unlink(name)
            Path(name).write_bytes(b"swapped %d\n" % r.randrange(1000))
'''
exec(CHANGE)  # change()


class RoundTrips(harness.TestCase):
    def setUp(self):
        self.directory = self.daemon.directory / "rounds"
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir()

    def content(self, r):
        text = "".join(f"line {r.randrange(50)}\n" for _ in range(r.randrange(30)))
        return r.choice([text, text, text.replace("\n", "\r\n"), text.rstrip("\n"), "", "".join(map(chr, range(256)))]).encode("latin-1")

    def put(self, path, r):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.content(r))

    def source(self, r):
        path = self.directory / "upstream"
        files = {name: self.content(r) for name in NAMES if r.random() < 0.6}
        if r.random() < 0.5:
            files[".gitattributes"] = r.choice(["*.txt text\n", "*.win eol=crlf\n", "* text=auto\n", "*.sh filter=rot\n", "*.txt ident\n"])
        harness.make_repository(path, files or {"a": "a\n"})
        if r.random() < 0.5:
            harness.commit(path, "later", "x\n")
        for setting in ("uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"):
            harness.git(path, "config", setting, "true")
        return path

    def checkout(self, r):
        upstream = self.source(r)
        path = self.directory / "checkout"
        options = r.choice([[], [], [], ["--depth=1"], ["--filter=blob:none"], ["--no-local"]])
        harness.git(self.directory, "clone", "-q", *options, f"file://{upstream}", path)
        harness.git(path, "config", "filter.rot.clean", "tr a-z b-za")
        harness.git(path, "config", "filter.rot.smudge", "tr b-za a-z")
        kind = r.choice(["plain", "plain", "plain", "detached", "worktree", "branch"])
        if kind == "detached":
            harness.git(path, "switch", "-q", "--detach")
        elif kind == "branch":
            harness.git(path, "switch", "-q", "-c", "moorage")  # no name of a workspace fits beside it
        elif kind == "worktree":
            harness.git(path, "worktree", "add", "-q", "-b", "side", self.directory / "linked")
            path = self.directory / "linked"
        if r.random() < 0.25:
            harness.make_repository(self.directory / "library", {"l": "l\n"})
            harness.git(path, "-c", "protocol.file.allow=always", "submodule", "add", "-q", self.directory / "library", "lib")
            if r.random() < 0.5:
                harness.git(path, "commit", "-q", "-m", "submodule")
            if r.random() < 0.5:
                (path / "lib/l").write_text("changed\n")
        return path

    def dirty(self, path, r):
        for _ in range(r.randrange(6)):
            name = r.choice(NAMES)
            file = path / name
            action = r.choice(["write", "write", "stage", "remove", "mode", "rename", "assume", "nested", "ignored"])
            if file.is_dir():
                continue
            try:
                if action in ("write", "stage"):
                    self.put(file, r)
                elif not file.is_file():
                    continue
                if action == "stage":
                    harness.git(path, "add", "--", f":(literal){name}")
                elif action == "remove":
                    file.unlink()
                elif action == "mode":
                    file.chmod(0o755)
                elif action == "rename" and name in harness.git(path, "ls-files", "-z").split("\0"):
                    harness.git(path, "mv", "--", name, f"renamed {r.randrange(10**6)}")
                elif action == "assume":
                    harness.run("git", "-C", path, "update-index", "--assume-unchanged", "--", name, check=False)
                    self.put(file, r)
                elif action == "nested":
                    harness.make_repository(path / "nested", {"n": "n\n"})
                elif action == "ignored":
                    (path / ".gitignore").write_text("*.o\n")
                    (path / "x.o").write_text("o\n")
            except (FileExistsError, NotADirectoryError):
                continue

    def copy(self, path, name):
        target = self.directory / name
        harness.run("cp", "-a", path, target)
        if (path / ".git").is_file():  # a linked worktree: its copy needs a repository of its own
            (target / ".git").unlink()
            harness.git(target, "init", "-q")
            for line in (".rot.clean", "tr a-z b-za"), (".rot.smudge", "tr b-za a-z"):
                harness.git(target, "config", "filter" + line[0], line[1])
        return target

    def one(self, seed):
        r = random.Random(seed)
        self.setUp()
        checkout = self.checkout(r)
        self.dirty(checkout, r)
        before = contents(checkout)
        wanted = self.copy(checkout, "wanted")
        patched = self.copy(checkout, "patched")
        name = f"round-{seed}"
        created = self.daemon.cli("create", "--from", checkout, "--name", name)
        self.assertEqual(contents(checkout), before, "create changed the checkout")
        change_seed = r.randrange(10**9)
        program = f"{CHANGE}\nchange('/workspace', {change_seed}, {NAMES!r})"
        self.daemon.cli("exec", name, "--", "python3", "-c", program)
        change(str(wanted), change_seed, NAMES)  # noqa: F821
        expected = contents(wanted)
        outcomes = []
        for how, target in (("apply", checkout), ("patch", patched)):
            if how == "apply":
                done = self.daemon.cli("apply", name, target, check=False)
            else:
                patch = self.daemon.cli("diff", name, check=False)
                if patch.returncode or not patch.stdout:
                    done = patch
                else:
                    done = harness.run("git", "-C", target, "apply", input=patch.stdout, check=False)
            found = contents(target)
            if done.returncode == 0:
                self.assertEqual(found, expected, f"{how}: {created.stderr.decode()}")
            else:
                self.assertEqual(found, before, f"{how} failed but changed something: {done.stderr}")
                self.assertNotEqual(done.stderr.strip(), b"")
            outcomes.append((how, done.returncode == 0, done.stderr))
        self.daemon.cli("rm", "--purge", name)
        return outcomes

    def test_the_way_back_gives_the_same_bytes_or_a_refusal(self):
        counts = {"apply": 0, "patch": 0}
        for seed in range(SEED, SEED + ROUNDS):
            with self.subTest(seed=seed):
                for how, went, why in self.one(seed):
                    counts[how] += went
                    if not went:
                        print(f"round {seed}: {how} refused: {why.decode(errors='replace').strip()[:200]}", flush=True)
        print(f"{ROUNDS} rounds: {counts}", flush=True)
        # Nobody else changes the checkout: apply has no reason to refuse.
        self.assertEqual(counts["apply"], ROUNDS)
        self.assertGreaterEqual(counts["patch"], ROUNDS // 2)


if __name__ == "__main__":
    unittest.main()
