"""Random sequences of edits, snapshots, forks, restores, promotes, archives, kills: each tree equals a plain directory.

The model includes one known difference: the first write to a hard link frozen by a snapshot separates it from the other
names (overlayfs copies one name up).
"""

import json
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import time
import unittest

import harness

SEQUENCES = int(os.environ.get("MOORAGE_SEQUENCES", "25"))
STEPS = 14

# Applies `ops` to a tree and prints the errors; without ops it prints the contents. Runs on both sides.
WORK = r"""
import errno, hashlib, json, os, shutil, stat, sys
def write(path, mode, text):
    with open(path, mode) as out: out.write(text)
DO = {"write": lambda p, t: write(p, "w", t), "append": lambda p, t: write(p, "a", t), "mkdir": os.mkdir, "rename": os.rename,
      "unlink": os.unlink, "rmtree": shutil.rmtree, "chmod": os.chmod, "symlink": os.symlink, "link": lambda a, b: os.link(a, b, follow_symlinks=False)}
def work(top, ops):
    os.chdir(top)
    errors = []
    for name, *arguments in ops:
        try:
            DO[name](*arguments)
            errors.append(0)
        except OSError as error:
            errors.append(errno.errorcode.get(error.errno, 1))
        except shutil.Error:
            errors.append("shutil")
    seen = {}
    for place, names, files in os.walk("."):
        names[:] = [n for n in names if (place, n) != (".", ".git")]
        for name in names + files:
            path = os.path.join(place, name)
            status = os.lstat(path)
            content = ""
            if stat.S_ISLNK(status.st_mode): content = os.readlink(path)
            if stat.S_ISREG(status.st_mode):
                with open(path, "rb") as file: content = hashlib.sha1(file.read()).hexdigest()
            seen[path] = [oct(status.st_mode) if not stat.S_ISLNK(status.st_mode) else "link", content]
    return [errors, seen]
"""
exec(WORK, MODEL := {})
INSIDE = WORK + "print(json.dumps(work(*json.loads(sys.argv[1]))))"


def contents(top):
    """The parts of a tree that git stores."""
    seen = {}
    for place, names, files in os.walk(top):
        names[:] = [n for n in names if n != ".git"]
        for name in files + [n for n in names if os.path.islink(os.path.join(place, n))]:
            path = os.path.join(place, name)
            if name == ".git":
                continue
            is_link = os.path.islink(path)
            seen[os.path.relpath(path, top)] = ("link", os.readlink(path)) if is_link else (bool(os.stat(path).st_mode & 0o100), pathlib.Path(path).read_bytes())
    return seen


class Workspace:
    def __init__(self, name, directory):
        self.name, self.directory, self.snapshots = name, directory, {}


class Sequences(harness.TestCase):
    settings = {"gc.keep_unused_s": 0}
    sequences = SEQUENCES

    files = {f"d{n % 4}/e{n % 3}/file{n}": f"{n}\n" * 20 for n in range(24)}

    def setUp(self):
        self.models = pathlib.Path(tempfile.mkdtemp(prefix="moorage-model-"))
        self.addCleanup(shutil.rmtree, self.models)
        self.count = 0

    def new_directory(self, of):
        self.count += 1
        made = self.models / f"m{self.count}"
        subprocess.run(["cp", "-a", of, made], check=True)
        return made

    @staticmethod
    def part_names(directory):
        """A write to a frozen file separates its hard links."""
        for place, _, files in os.walk(directory):
            for name in files:
                path = os.path.join(place, name)
                status = os.lstat(path)
                if os.path.islink(path) or status.st_nlink < 2:
                    continue
                shutil.copy2(path, path + ".apart")
                os.rename(path + ".apart", path)

    # -- edits --------------------------------------------------------------------------------------

    def some_path(self, directory, new):
        paths = [""]
        for place, names, files in os.walk(directory):
            inside = os.path.relpath(place, directory)
            inside = "" if inside == "." else inside + "/"
            if new:
                paths.append(inside)
            else:
                paths += [inside + n for n in names + files]
        place = self.chance.choice([p for p in paths if new or p] or ["none"])
        return place + self.chance.choice("abcdefgh") + self.chance.choice("xyz") if new else place

    def edits(self, workspace):
        for _ in range(self.chance.randint(1, 10)):
            old, new = self.some_path(workspace.directory, False), self.some_path(workspace.directory, True)
            kind = self.chance.choice(["write", "write", "append", "mkdir", "rename", "rename", "rename", "unlink", "rmtree", "chmod", "symlink", "link", "swap"])
            text = f"{self.chance.random()}\n" * self.chance.randint(1, 50)
            yield {"write": lambda: [["write", self.chance.choice([old, new]), text]], "append": lambda: [["append", old, text]],
                   "mkdir": lambda: [["mkdir", new]], "rename": lambda: [["rename", old, new]], "unlink": lambda: [["unlink", old]],
                   "rmtree": lambda: [["rmtree", old]] if old.count("/") > 0 else [["mkdir", new]],
                   "chmod": lambda: [["chmod", old, self.chance.choice([0o755, 0o700, 0o644, 0o600])]] if not os.path.isdir(workspace.directory / old) else
                            [["chmod", old, self.chance.choice([0o755, 0o700])]],
                   "symlink": lambda: [["symlink", old, new]], "link": lambda: [["link", old, new]],
                   "swap": lambda: [["rmtree", old], ["write", old, text]] if self.chance.random() < 0.5 else [["unlink", old], ["mkdir", old]]}[kind]()

    def both(self, workspace, ops):
        here = os.getcwd()
        model_errors, model = MODEL["work"](workspace.directory, ops)
        os.chdir(here)
        real = self.client.exec(workspace.name, ["python3", "-ISc", INSIDE, json.dumps(["/workspace", ops])])
        self.assertEqual(real.exit_code, 0, real.stderr.decode(errors="replace"))
        errors, seen = json.loads(real.stdout)
        self.assertEqual(errors, model_errors, ops)
        differs = {p: (model.get(p), seen.get(p)) for p in model.keys() | seen.keys() if model.get(p) != seen.get(p)}
        self.assertEqual(differs, {}, f"{workspace.name} after {self.steps}")

    def as_git_says(self, workspace, commit):
        """Its patch turns the commit into its tree, its status lists the changes that git finds."""
        plain = self.models / "plain"
        harness.git(self.upstream / "acme" / "shop", "worktree", "add", "--detach", plain, commit)
        try:
            subprocess.run(["git", "-C", plain, "apply", "--whitespace=nowarn", "--allow-empty", "-"], input=self.client.diff(workspace.name), check=True)
            self.assertEqual(contents(plain), contents(workspace.directory), f"{workspace.name} after {self.steps}")
            harness.git(plain, "add", "-A", "-f")
            found = harness.git(plain, "diff", "--cached", "--name-only", "--no-renames", commit).splitlines()
            self.assertEqual([f["path"] for f in self.client.status(workspace.name)["files"]], sorted(found))
        finally:
            harness.git(self.upstream / "acme" / "shop", "worktree", "remove", "--force", plain)

    # -- steps --------------------------------------------------------------------------------------

    def edit(self, workspace):
        for ops in self.edits(workspace):
            self.both(workspace, ops)

    def snapshot(self, workspace):
        if self.chance.random() < 0.6:
            self.client.stop(workspace.name)
        taken = self.client.snapshot(workspace.name)
        self.keep(workspace, taken)

    def keep(self, workspace, taken):
        kept = self.new_directory(workspace.directory)
        self.part_names(kept)
        workspace.snapshots[taken["id"]] = kept
        if taken["way"] in ("at-rest", "restack"):
            self.part_names(workspace.directory)

    def fork(self, workspace):
        if len(self.workspaces) >= 4:
            return
        if self.chance.random() < 0.5:
            self.client.stop(workspace.name)
        name = f"{self.prefix}-{len(self.workspaces)}-{self.count}"
        fork = self.client.fork(workspace.name, names=[name])[0]
        taken = self.client.snapshots(workspace.name)[-1]
        self.assertEqual(taken["id"], fork["forked_from"])
        self.keep(workspace, taken)
        self.workspaces.append(Workspace(name, self.new_directory(workspace.snapshots[taken["id"]])))

    def restore(self, workspace):
        all_of = {i: (w, d) for w in self.workspaces for i, d in w.snapshots.items()}
        if not all_of:
            return
        chosen = self.chance.choice(sorted(all_of))
        self.client.restore(workspace.name, chosen, kill=True)
        self.keep(workspace, self.client.snapshots(workspace.name)[-1])
        shutil.rmtree(workspace.directory)
        workspace.directory = self.new_directory(all_of[chosen][1])

    def promote(self, workspace):
        origin = self.client.workspace(workspace.name).get("forked_from")
        parent = next((w for w in self.workspaces if origin in w.snapshots), None)
        if parent is None:
            return
        self.client.promote(workspace.name, kill=True)
        self.keep(workspace, self.client.snapshots(workspace.name)[-1])
        before = self.client.snapshots(parent.name)[-1]
        self.keep(parent, before)
        shutil.rmtree(parent.directory)
        parent.directory = self.new_directory(workspace.directory)
        self.part_names(parent.directory)

    def drop(self, workspace):
        # Its own snapshot, not a fork's origin, which the model looks up.
        origins = {self.client.workspace(w.name).get("forked_from") for w in self.workspaces}
        loose = sorted(set(workspace.snapshots) - origins)
        if loose:
            chosen = self.chance.choice(loose)
            self.client.drop_snapshot(workspace.name, chosen)
            del workspace.snapshots[chosen]

    def archive(self, workspace):
        self.client.stop(workspace.name)
        self.client.archive(workspace.name)
        self.client.unarchive(workspace.name)

    def kill(self, workspace):
        self.daemon.restart()

    def many(self, workspace):
        """Enough for a merge of the lower ones."""
        self.client.stop(workspace.name)
        for _ in range(18):
            self.client.snapshot(workspace.name)
        self.part_names(workspace.directory)

    def test_each_tree_equals_a_plain_directory(self):
        seed = int(os.environ.get("MOORAGE_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
        print(f"MOORAGE_TEST_SEED={seed}, {self.sequences} sequences")
        steps = {self.edit: 10, self.snapshot: 5, self.fork: 3, self.restore: 4, self.promote: 3, self.drop: 2, self.archive: 1, self.kill: 1, self.many: 1}
        done = dict.fromkeys((s.__name__ for s in steps), 0)
        begin = time.monotonic()
        for number in range(self.sequences):
            self.chance = random.Random(seed + number)
            self.prefix, self.steps = f"seq-{number}", []
            with self.subTest(seed=seed + number):
                commit = self.client.create(repo_url=self.url, name=self.prefix)["base"]["commit"]
                checkout = self.models / f"base-{number}"
                subprocess.run(["git", "clone", "-q", self.upstream / "acme" / "shop", checkout], check=True, capture_output=True)
                shutil.rmtree(checkout / ".git")
                self.workspaces = [Workspace(self.prefix, checkout)]
                for _ in range(STEPS):
                    step = self.chance.choices(list(steps), list(steps.values()))[0]
                    workspace = self.chance.choice(self.workspaces)
                    self.steps.append((step.__name__, workspace.name))
                    step(workspace)
                    done[step.__name__] += 1
                    self.both(self.chance.choice(self.workspaces), [])
                for workspace in self.workspaces:
                    self.both(workspace, [])
                    self.as_git_says(workspace, commit)
                    git = self.client.exec(workspace.name, "git fsck 2>&1 && git status >/dev/null")
                    self.assertEqual(git.exit_code, 0, git.stdout)
            for workspace in self.workspaces:
                self.client.delete(workspace.name, purge=True)
        print(f"{done}, {time.monotonic() - begin:.0f} s")
        harness.wait_until(lambda: not list((self.daemon.store / "layers").iterdir()), what="every layer is gone")


if __name__ == "__main__":
    unittest.main()
