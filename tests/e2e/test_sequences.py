"""Random sequences of edits, snapshots, forks, restores, promotes, archives, moves, kills: each tree equals a plain directory.

The model includes one known difference: here the first change of a hard link frozen by a snapshot separates this name from the
others (overlayfs copies one name up). On another machine one upper directory has all layers, so nothing is frozen there; names of
a file that is changed there are sent together and are no longer frozen here.
"""

import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import unittest

import harness

SEQUENCES = int(os.environ.get("MOORAGE_SEQUENCES", "8" if harness.BACKEND == "ssh" else "25"))
STEPS = 14

# Applies `ops` to a tree and prints the errors; without ops it prints the contents. Runs on both sides.
WORK = r"""
import errno, hashlib, json, os, shutil, stat, sys
def write(path, mode, text):
    with open(path, mode) as out: out.write(text)
DO = {"write": lambda p, t: write(p, "w", t), "append": lambda p, t: write(p, "a", t), "mkdir": os.mkdir, "rename": os.rename,
      "unlink": os.unlink, "rmtree": shutil.rmtree, "chmod": os.chmod, "symlink": os.symlink, "utime": lambda p, t: os.utime(p, (t, t)),
      "setxattr": lambda p, t: os.setxattr(p, "user.note", t.encode()), "link": lambda a, b: os.link(a, b, follow_symlinks=False)}
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
            if status.st_mtime < 1e9: seen[path].append(status.st_mtime)  # set by utime
            if not stat.S_ISLNK(status.st_mode): seen[path] += [os.getxattr(path, n).decode() for n in os.listxattr(path) if n == "user.note"]
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


def linked(directory):
    """Inode -> change time of the files with several names."""
    found = {}
    for place, names, files in os.walk(directory):
        for name in names + files:
            status = os.lstat(os.path.join(place, name))
            if not stat.S_ISDIR(status.st_mode) and status.st_nlink > 1:
                found[status.st_ino] = status.st_ctime_ns
    return found


class Workspace:
    def __init__(self, name, backend, directory, frozen=False):
        self.name, self.backend, self.snapshots = name, backend, {}
        self.replace(directory)
        if not frozen:
            self.frozen = set()

    def replace(self, directory):
        """Contents of a snapshot."""
        self.directory = directory
        self.freeze()

    def freeze(self):
        self.frozen = set(linked(self.directory))

    def separate(self, name, arguments):
        """Before an operation here: it changes only one name of a frozen file."""
        if name not in ("write", "append", "chmod", "utime", "setxattr", "rename", "link"):
            return
        path = self.directory / arguments[0]
        if name not in ("rename", "link"):
            path = pathlib.Path(os.path.realpath(path))
        if name in ("rename", "link"):  # the kernel refuses some before it copies
            target = self.directory / arguments[1]
            if not target.parent.is_dir() or os.path.lexists(target) and (name == "link" or stat.S_ISDIR(target.lstat().st_mode)):
                return
        with contextlib.suppress(OSError):
            status = path.lstat()
            if status.st_ino not in self.frozen or status.st_nlink < 2:
                return
            apart = path.with_name(path.name + ".apart")
            shutil.copy2(path, apart, follow_symlinks=False)
            apart.rename(path)


class Sequences(harness.TestCase):
    settings = {"gc.keep_unused_s": 0}
    sequences = SEQUENCES

    files = {f"d{n % 4}/e{n % 3}/file{n}": f"{n}\n" * 20 for n in range(24)}

    def setUp(self):
        self.models = pathlib.Path(tempfile.mkdtemp(prefix="moorage-model-", dir=harness.BASE))
        self.addCleanup(shutil.rmtree, self.models)
        self.count = 0

    def new_directory(self, of):
        self.count += 1
        made = self.models / f"m{self.count}"
        subprocess.run(["cp", "-a", of, made], check=True)
        return made

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
            kind = self.chance.choice(["write", "write", "append", "mkdir", "rename", "rename", "rename", "unlink", "rmtree", "chmod", "symlink", "link", "swap", "utime", "setxattr"])
            text = f"{self.chance.random()}\n" * self.chance.randint(1, 50)
            yield {"write": lambda: [["write", self.chance.choice([old, new]), text]], "append": lambda: [["append", old, text]],
                   "mkdir": lambda: [["mkdir", new]], "rename": lambda: [["rename", old, new]], "unlink": lambda: [["unlink", old]],
                   "rmtree": lambda: [["rmtree", old]] if old.count("/") > 0 else [["mkdir", new]],
                   "chmod": lambda: [["chmod", old, self.chance.choice([0o755, 0o700, 0o644, 0o600])]] if not os.path.isdir(workspace.directory / old) else
                            [["chmod", old, self.chance.choice([0o755, 0o700])]],
                   "utime": lambda: [["utime", old, self.chance.randrange(10**9)]], "setxattr": lambda: [["setxattr", old, text[:100]]],
                   "symlink": lambda: [["symlink", old, new]], "link": lambda: [["link", old, new]],
                   "swap": lambda: [["rmtree", old], ["write", old, text]] if self.chance.random() < 0.5 else [["unlink", old], ["mkdir", old]]}[kind]()

    def by_hand(self, workspace, ops):
        """In the model: errors, and what is there afterwards."""
        here = os.getcwd()
        errors = []
        before = linked(workspace.directory)
        for name, *arguments in ops:
            if workspace.backend != "ssh":
                workspace.separate(name, arguments)
            errors += MODEL["work"](workspace.directory, [[name, *arguments]])[0]
            os.chdir(here)
        _, model = MODEL["work"](workspace.directory, [])
        os.chdir(here)
        if workspace.backend == "ssh":
            after = linked(workspace.directory)
            workspace.frozen = {inode for inode in workspace.frozen if after.get(inode) == before.get(inode)}
        return errors, model

    def both(self, workspace, ops):
        model_errors, model = self.by_hand(workspace, ops)
        real = self.client.exec(workspace.name, ["python3", "-ISc", INSIDE, json.dumps(["/workspace", ops])])
        self.assertEqual(real.exit_code, 0, real.stderr.decode(errors="replace"))
        errors, seen = json.loads(real.stdout)
        self.assertEqual(errors, model_errors, ops)
        differs = {p: (model.get(p), seen.get(p)) for p in model.keys() | seen.keys() if model.get(p) != seen.get(p)}
        self.assertEqual(differs, {}, f"{workspace.name} after {self.steps}")
        if workspace.backend == "ssh":
            self.copy_here(workspace, model)

    def copy_here(self, workspace, model):
        """A command has ended: its files are here."""
        here = os.getcwd()
        keeper = self.daemon.sandbox_pids(workspace.name)["init"]
        _, seen = MODEL["work"](f"/proc/{keeper}/root/workspace", [])
        os.chdir(here)
        differs = {p: (model.get(p), seen.get(p)) for p in model.keys() | seen.keys() if model.get(p) != seen.get(p)}
        self.assertEqual(differs, {}, f"{workspace.name}, here, after {self.steps}")

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

    def by_api(self, workspace):
        """Through the API. A write makes a new file, so names of one file are left out."""
        for _ in range(self.chance.randint(1, 4)):
            old, new = self.some_path(workspace.directory, False), self.some_path(workspace.directory, True)
            text = f"{self.chance.random()}\n"
            free = not os.path.lexists(workspace.directory / new)
            path = workspace.directory / old
            plain = not path.is_symlink() and path.is_file() and path.stat().st_nlink == 1
            kind = self.chance.choice(["write", "rewrite", "mkdir", "rename", "remove"])
            if kind == "write" and free:
                self.client.write_file(workspace.name, new, text.encode())
                self.by_hand(workspace, [["write", new, text]])
            elif kind == "rewrite" and plain:
                self.client.write_file(workspace.name, old, text.encode())
                self.by_hand(workspace, [["write", old, text]])
            elif kind == "mkdir" and free:
                self.client.make_directory(workspace.name, new)
                self.by_hand(workspace, [["mkdir", new]])
            elif kind == "rename" and free and not new.startswith(old + "/"):
                self.client.move_file(workspace.name, old, new)
                self.by_hand(workspace, [["rename", old, new]])
            elif kind == "remove" and old.count("/") > 0:
                self.client.remove_file(workspace.name, old, recursive=True)
                self.by_hand(workspace, [["rmtree" if path.is_dir() and not path.is_symlink() else "unlink", old]])

    def snapshot(self, workspace):
        if self.chance.random() < 0.6:
            self.client.stop(workspace.name)
        taken = self.client.snapshot(workspace.name)
        self.keep(workspace, taken)

    def keep(self, workspace, taken):
        workspace.snapshots[taken["id"]] = self.new_directory(workspace.directory)
        if taken["way"] in ("at-rest", "restack"):
            workspace.freeze()

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
        self.workspaces.append(Workspace(name, workspace.backend, self.new_directory(workspace.snapshots[taken["id"]]), frozen=True))

    def restore(self, workspace):
        all_of = {i: (w, d) for w in self.workspaces for i, d in w.snapshots.items()}
        if not all_of:
            return
        chosen = self.chance.choice(sorted(all_of))
        self.client.restore(workspace.name, chosen, kill=True)
        self.keep(workspace, self.client.snapshots(workspace.name)[-1])
        shutil.rmtree(workspace.directory)
        workspace.replace(self.new_directory(all_of[chosen][1]))

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
        parent.replace(self.new_directory(workspace.directory))

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
        """Of the daemon, and of what stands here for a sandbox elsewhere, which runs on."""
        keeper = None
        if workspace.backend == "ssh" and self.chance.random() < 0.5 and "sandbox" in self.client.workspace(workspace.name):
            keeper = self.daemon.sandbox_pids(workspace.name)["init"]
        self.daemon.kill()
        if keeper:
            os.kill(keeper, signal.SIGKILL)
        self.daemon.start()
        if keeper:  # until then a command is refused
            harness.wait_until(lambda: self.client.workspace(workspace.name)["sandbox"]["remote"]["connected"], 60, "the machine's answer")

    def many(self, workspace):
        """Enough for a merge of the lower ones."""
        self.client.stop(workspace.name)
        for _ in range(18):
            self.client.snapshot(workspace.name)
        workspace.freeze()

    def move(self, workspace):
        """With its sandbox, or at rest."""
        if self.chance.random() < 0.2:
            self.client.stop(workspace.name)
        workspace.backend = self.chance.choice([backend for backend in self.backends if backend != workspace.backend])
        self.client.move(workspace.name, backend=workspace.backend)

    def test_each_tree_equals_a_plain_directory(self):
        seed = int(os.environ.get("MOORAGE_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
        print(f"MOORAGE_TEST_SEED={seed}, {self.sequences} sequences")
        self.backends = ["lxc", "ssh"] if harness.BACKEND == "ssh" else [harness.BACKEND.partition("-")[0]]
        steps = {self.edit: 10, self.by_api: 2, self.snapshot: 5, self.fork: 3, self.restore: 4, self.promote: 3, self.drop: 2, self.archive: 1, self.kill: 1, self.many: 1}
        if len(self.backends) > 1:
            steps |= {self.move: 4, self.kill: 2}
        done = dict.fromkeys((s.__name__ for s in steps), 0)
        begin = time.monotonic()
        for number in range(self.sequences):
            self.chance = random.Random(seed + number)
            self.prefix, self.steps = f"seq-{number}", []
            with self.subTest(seed=seed + number):
                backend = self.chance.choice(self.backends)
                commit = self.client.create(repo_url=self.url, name=self.prefix, backend=backend)["base"]["commit"]
                checkout = self.models / f"base-{number}"
                subprocess.run(["git", "clone", "-q", self.upstream / "acme" / "shop", checkout], check=True, capture_output=True)
                shutil.rmtree(checkout / ".git")
                self.workspaces = [Workspace(self.prefix, backend, checkout)]
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
