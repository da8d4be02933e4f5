"""Random checkouts of git in every state that a person leaves one in, and an agent's random changes.

Everything follows from a seed. `Checkout.states` names what a checkout is, so that a test can see that all of STATES were met.
"""

import os
import pathlib
import shutil

import harness

NAMES = ["a", "b.txt", "c.win", "run.sh", "dir/d", "dir/e.txt", "dir/sub/f", "odd name", "ümlaut", "-dash", "q\"uote", "new\nline",
         "tab\there", "star*", "deep/er/g", " lead", "back\\slash", "trail.", "é\u0301", "bin.dat", "link"]
# What stays in the checkout: no workspace has it, and `apply` must not touch it.
STAYS = ["nested", "dir/nested", "lib", "x.o", "dir/x.o"]

CLONES = {"full": [], "copied": ["--no-local"], "shallow": ["--depth=1"], "deeper": ["--depth=2"], "partial": ["--filter=blob:none"],
          "treeless": ["--filter=tree:0"], "shallow and partial": ["--depth=1", "--filter=blob:none"]}
PLACES = ["plain", "detached", "worktree", "branch", "unborn"]
SETTINGS = [("core.autocrlf", "true"), ("core.autocrlf", "input"), ("core.fileMode", "false"), ("core.quotePath", "false"),
            ("core.untrackedCache", "true"), ("core.splitIndex", "true"), ("index.version", "4"), ("core.eol", "crlf"), ("core.ignoreCase", "true")]
ATTRIBUTES = ["*.txt text\n", "*.win eol=crlf\n", "* text=auto eol=crlf\n", "* ident\n", "* text=auto\n", "*.sh filter=rot\n", "*.txt ident\n", "* -text\n", "*.dat binary\n",
              "*.win working-tree-encoding=UTF-16LE\n"]
ACTIONS = ["written", "staged", "staged and written", "removed", "removed from index", "mode", "renamed", "moved", "assumed unchanged",
           "skipped", "intent to add", "nested", "ignored", "link", "type change"]
STATES = {*CLONES, *PLACES, *ACTIONS, "remote gone", "submodule", "attributes", "setting", "conflict", "stash"}

# What the agent does. It is run in the workspace and, as the oracle, in a copy of the checkout.
CHANGE = r'''
import os, random, shutil
from pathlib import Path
def change(top, seed, names):
    os.chdir(top)
    r = random.Random(seed)
    did = set()
    def clear(name):
        if os.path.isdir(name) and not os.path.islink(name): shutil.rmtree(name)
        elif os.path.lexists(name): os.unlink(name)
    def parents(name):
        at = os.path.dirname(name)
        while at:
            if os.path.lexists(at) and (os.path.islink(at) or not os.path.isdir(at)): return False
            at = os.path.dirname(at)
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        return True
    for _ in range(r.randrange(1, 7)):
        name = r.choice(names)
        kind = r.choice(["edit", "edit", "append", "new", "remove", "mode", "link", "swap", "empty", "binary", "rename", "to directory",
                         "from directory", "move directory", "long", "attributes"])
        if kind == "from directory" or kind == "move directory":
            name = r.choice(["dir", "deep", "dir/sub"])
            if not os.path.isdir(name) or os.path.islink(name): continue
        elif kind == "attributes":
            if r.random() < 0.7: continue
            name = ".gitattributes"
        elif os.path.isdir(name) and not os.path.islink(name): continue
        is_file = os.path.isfile(name) and not os.path.islink(name)
        if kind in ("remove", "rename", "to directory") and not os.path.lexists(name): continue
        if kind in ("mode", "edit", "append", "binary") and not is_file: continue
        if not parents(name): continue
        path = Path(name)
        if kind == "remove": os.unlink(name)
        elif kind == "mode": os.chmod(name, 0o755 if not os.stat(name).st_mode & 0o100 else 0o644)
        elif kind == "edit":
            lines = path.read_bytes().split(b"\n")
            lines[r.randrange(len(lines))] = b"agent %d" % r.randrange(1000)
            path.write_bytes(b"\n".join(lines))
        elif kind == "append": path.write_bytes(path.read_bytes() + b"agent %d\n" % r.randrange(1000))
        elif kind == "new":
            fresh = os.path.join(os.path.dirname(name), "made %d" % r.randrange(20))
            if os.path.lexists(fresh): continue
            Path(fresh).write_bytes(bytes(r.randrange(256) for _ in range(200)))
        elif kind == "link":
            clear(name)
            os.symlink(r.choice(["target", "a", "../a", "dir", "/nowhere"]), name)
        elif kind == "swap":
            clear(name)
            path.write_bytes(b"swapped %d\n" % r.randrange(1000))
        elif kind == "empty":
            clear(name)
            path.write_bytes(b"")
        elif kind == "binary": path.write_bytes(path.read_bytes()[:50] + bytes(r.randrange(256) for _ in range(100)))
        elif kind == "rename":
            target = r.choice(["named %d", "fresh/named %d", "dir/named %d"]) % r.randrange(20)
            if os.path.lexists(target) or not parents(target): continue
            os.rename(name, target)
        elif kind == "to directory":
            clear(name)
            os.mkdir(name)
            Path(name, "below").write_bytes(b"below\n")
        elif kind == "from directory":
            clear(name)
            if r.random() < 0.5: os.symlink("a", name)
            else: path.write_bytes(b"was a directory\n")
        elif kind == "move directory":
            target = "moved %d" % r.randrange(20)
            if os.path.lexists(target): continue
            os.rename(name, target)
        elif kind == "long": clear(name); path.write_bytes(b"0123456789\n" * 30000)
        elif kind == "attributes": clear(name); path.write_bytes(r.choice([b"* text\n", b"*.txt eol=crlf\n", b"* -text\n"]))
        did.add(kind)
    return did
'''
exec(CHANGE)  # change()


class Checkout:
    """One at directory/checkout or directory/linked. `path` is where it lies."""

    def __init__(self, directory, r, number):
        self.directory = directory
        self.r = r
        self.states = set()
        self.skipped = set()
        # By turns and not by chance: a test of some rounds meets them all.
        self.clone_kind = list(CLONES)[number % len(CLONES)]
        self.place = PLACES[number // 2 % len(PLACES)]
        self.path = self.clone(self.source())
        self.enter()
        for _ in range(r.randrange(8)):
            self.dirty()
        if r.random() < 0.1:
            self.conflict()
        if r.random() < 0.1 and self.git("stash", check=False).returncode == 0:
            self.states.add("stash")
        if self.clone_kind not in ("full", "copied") and r.random() < 0.3:
            shutil.rmtree(directory / "upstream")
            self.states.add("remote gone")

    def git(self, *argv, check=True):
        environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "t",
                       "GIT_AUTHOR_EMAIL": "t@t", "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@t"}
        return harness.run("git", "-C", self.path, *argv, check=check, env=environment)

    def content(self):
        r = self.r
        text = "".join(f"line {r.randrange(50)}\n" for _ in range(r.randrange(30)))
        return r.choice([text, text, text.replace("\n", "\r\n"), text.rstrip("\n"), "", "".join(map(chr, range(256))),
                         text + "$Id$\n", text + "mixed\r\n" + text]).encode("latin-1")

    def put(self, name):
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.is_symlink():
            file.unlink()
        file.write_bytes(self.content())

    def source(self):
        path, r = self.directory / "upstream", self.r
        files = {name: self.content() for name in NAMES if r.random() < 0.6}
        if r.random() < 0.6:
            line = r.choice(ATTRIBUTES)
            files[".gitattributes"] = line
            self.states.add("attributes")
            if "encoding" in line:  # git refuses what is not in that encoding
                files["c.win"] = "wide\n".encode("utf-16-le")
        harness.make_repository(path, files or {"a": "a\n"})
        for number in range(r.randrange(3)):
            harness.commit(path, f"later {number}", "x\n")
        harness.git(path, "tag", "-a", "-m", "one", "v1")
        for setting in ("uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant"):
            harness.git(path, "config", setting, "true")
        return path

    def clone(self, upstream):
        path, r = self.directory / "checkout", self.r
        self.states.add(self.clone_kind)
        settings = []
        if r.random() < 0.3:
            settings = ["-c", "=".join(r.choice(SETTINGS))]
            self.states.add("setting")
        harness.git(self.directory, "clone", "-q", *settings, "-c", "filter.rot.clean=tr a-z b-za", "-c", "filter.rot.smudge=tr b-za a-z",
                    *CLONES[self.clone_kind], f"file://{upstream}", path)
        return path

    def enter(self):
        self.states.add(self.place)
        if self.place == "detached":
            self.git("switch", "-q", "--detach")
        elif self.place == "branch":
            self.git("switch", "-q", "-c", "moorage")  # no name of a workspace fits beside it
            self.git("commit", "-q", "--allow-empty", "-m", "own")
        elif self.place == "unborn":
            self.git("switch", "-q", "--orphan", "empty")
        elif self.place == "worktree":
            linked = self.directory / self.r.choice(["linked", "linked tree"])
            self.git("worktree", "add", "-q", "-b", "side", linked)
            self.path = linked
        if self.r.random() < 0.25:
            self.submodule()

    def submodule(self):
        self.states.add("submodule")
        harness.make_repository(self.directory / "library", {"l": "l\n"})
        self.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", self.directory / "library", "lib")
        if self.r.random() < 0.5:
            self.git("commit", "-q", "-m", "submodule")
        if self.r.random() < 0.5:
            (self.path / "lib/l").write_text("changed\n")

    def conflict(self):
        """A merge that stopped: the index has three versions of a file, the file has marks."""
        name = "both sides"
        lines = f"0 {'0' * 40}\t{name}\n"
        for stage, text in enumerate(("base\n", "ours\n", "theirs\n"), 1):
            (self.path / name).write_text(text)
            blob = self.git("hash-object", "-w", "--no-filters", "--", name).stdout.decode().strip()
            lines += f"100644 {blob} {stage}\t{name}\n"
        harness.run("git", "-C", self.path, "update-index", "--index-info", input=lines.encode())
        (self.path / name).write_text("<<<<<<< ours\nours\n=======\ntheirs\n>>>>>>> theirs\n")
        self.states.add("conflict")

    def dirty(self):
        name = self.r.choice(NAMES)
        action = self.r.choice(ACTIONS)
        if name in self.skipped and action not in ("written", "mode"):
            return  # without its file it counts as outside of a sparse checkout
        try:
            if self.act(action, name, self.path / name):
                self.states.add(action)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            pass  # another action put something else there

    def act(self, action, name, file):
        literal = f":(literal){name}"
        tracked = self.git("ls-files", "-z", "--", literal).stdout != b""
        is_file = file.is_file() and not file.is_symlink()
        if action == "written":
            self.put(name)
        elif action in ("staged", "staged and written"):
            self.put(name)
            if self.git("add", "--", literal, check=False).returncode:
                return False  # it is written, and not in the encoding of its attribute
            if action != "staged":
                self.put(name)
        elif action == "intent to add" and not file.exists():
            self.put(name)
            return self.git("add", "-N", "--", literal, check=False).returncode == 0
        elif action == "nested":
            where = self.path / self.r.choice(STAYS[:2])
            if where.exists() or (where.parent != self.path and not where.parent.is_dir()):
                return False
            harness.make_repository(where, {"n": "n\n"})
        elif action == "ignored":
            (self.path / ".gitignore").write_text("*.o\n")
            for stays in STAYS[3:]:
                if (self.path / stays).parent.is_dir():
                    (self.path / stays).write_text("o\n")
        elif action == "link" and not file.is_dir():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.unlink(missing_ok=True)
            file.symlink_to(self.r.choice(["a", "target", "/nowhere"]))
        elif action == "type change" and is_file:
            file.unlink()
            file.mkdir()
            (file / "below").write_bytes(self.content())
        elif not (tracked and is_file):
            return False
        elif action == "removed":
            file.unlink()
        elif action == "removed from index":
            return self.git("rm", "-q", "--cached", "--", literal, check=False).returncode == 0
        elif action == "mode":
            file.chmod(0o755 if not file.stat().st_mode & 0o100 else 0o644)
        elif action == "renamed":
            return self.git("mv", "--", name, f"renamed {self.r.randrange(10**6)}", check=False).returncode == 0
        elif action == "moved":
            file.rename(self.path / f"moved by me {self.r.randrange(10**6)}")
        elif action in ("assumed unchanged", "skipped"):
            flag = "--assume-unchanged" if action == "assumed unchanged" else "--skip-worktree"
            if self.git("update-index", flag, "--", name, check=False).returncode:
                return False
            self.put(name)
            if action == "skipped":
                self.skipped.add(name)
        else:
            return False
        return True


def without_what_stays(path):
    """Removes from a copy what no workspace gets. Returns whether a directory of the checkout held some of it."""
    shared = False
    for name in STAYS:
        found = path / name
        if os.path.lexists(found):
            shared |= "/" in name
            shutil.rmtree(found) if found.is_dir() else found.unlink()
    for at, _, _ in os.walk(path, topdown=False):
        if ".git" not in pathlib.Path(at).relative_to(path).parts and not os.listdir(at):
            os.rmdir(at)
            shared = True
    return shared
