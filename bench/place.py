"""The environment of a run: the tree, an upstream that serves it, a daemon with its own store.

The tree (Linux 6.1 as Debian ships it, 78,000 files, one packed commit) stays in CACHE between runs; everything else is
removed after the run. The commits for a run are created in a bare clone, never in the tree.
"""

import os
import pathlib
import shutil
import subprocess
import sys

for suite in ("e2e", "engines"):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / suite))
os.environ.setdefault("MOORAGE_BIN", str(pathlib.Path(__file__).resolve().parents[1] / "build/release/bin"))
import engine  # noqa: E402, F401
import harness  # noqa: E402

CACHE = pathlib.Path("/var/tmp/moorage-bench")
ARCHIVE = pathlib.Path("/usr/src/linux-source-6.1.tar.xz")
GIT_ENVIRONMENT = {
    "PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_COUNT": "2", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*",
    "GIT_CONFIG_KEY_1": "gc.auto", "GIT_CONFIG_VALUE_1": "0",  # keeps git's own gc from running during a measurement
    "GIT_AUTHOR_NAME": "bench", "GIT_AUTHOR_EMAIL": "bench@bench.invalid",
    "GIT_COMMITTER_NAME": "bench", "GIT_COMMITTER_EMAIL": "bench@bench.invalid",
}


def say(text):
    print(text, file=sys.stderr, flush=True)


def git(directory, *argv, data=None, **extra):
    result = subprocess.run(["git", "-C", str(directory), *map(str, argv)], env={**GIT_ENVIRONMENT, **extra},
                            input=data, capture_output=True)
    if result.returncode != 0:
        raise RuntimeError(f"git {argv[0]}: {result.stderr.decode(errors='replace').strip()}")
    return result.stdout.decode(errors="surrogateescape").strip()


def find_tree(named):
    """The checkout to measure with: the given one, or Linux from the cache, unpacked if missing."""
    if named:
        git(named, "rev-parse", "--verify", "HEAD")
        return pathlib.Path(named).resolve()
    place = CACHE / "linux-source-6.1"
    if place.exists():
        return place
    if not ARCHIVE.exists():
        raise SystemExit(f"bench: {ARCHIVE} is missing.\n  apt-get install --no-install-recommends linux-source-6.1\n"
                         "or use your own checkout: bench/run --tree DIR")
    unpacking = CACHE / "unpacking"
    shutil.rmtree(unpacking, ignore_errors=True)
    unpacking.mkdir(parents=True)
    say(f"unpacking {ARCHIVE} (once)")
    subprocess.run(["tar", "-xJf", ARCHIVE, "-C", unpacking, "--strip-components=1"], check=True)
    say("committing it")
    git(unpacking, "init", "-q", "-b", "main")
    git(unpacking, "add", "-A", "-f")
    git(unpacking, "commit", "-q", "-m", "linux 6.1")
    git(unpacking, "gc", "-q")  # packed with deltas, like a clone of a real project
    unpacking.rename(place)
    return place


class Upstream:
    """A bare clone of the tree, served by git daemon. It shares the tree's objects."""

    def __init__(self, tree, directory):
        self.bare = pathlib.Path(directory) / "upstream" / "bench" / "tree.git"
        self.bare.parent.mkdir(parents=True)
        git(tree, "clone", "-q", "--bare", "--shared", tree, self.bare)
        self.branch = git(self.bare, "symbolic-ref", "--short", "HEAD")
        self.first = self.ahead = git(self.bare, "rev-parse", "HEAD")
        self.files = len(git(self.bare, "ls-tree", "-r", "--name-only", "-z", "HEAD").split("\0")) - 1
        self.server = harness.GitServer(self.bare.parents[1])
        self.url = self.server.url("bench/tree.git")

    def commit_far(self, number):
        """All its file paths are new, so no base tree is near and the daemon writes a whole one."""
        below = git(self.bare, "rev-parse", f"{self.first}^{{tree}}")
        return self._advance(git(self.bare, "mktree", data=f"040000 tree {below}\tfar-{number}\n".encode()))

    def commit_ahead(self):
        """Differs from the previous such commit in 100 files all over the tree."""
        index = {"GIT_INDEX_FILE": str(self.bare / "bench-index")}
        git(self.bare, "read-tree", self.ahead, **index)
        names = git(self.bare, "ls-tree", "-r", "--name-only", self.first).split("\n")
        chosen = [name for name in names[::max(1, len(names) // 100)] if not name.startswith('"')][:100]
        lines = ""
        for name in chosen:
            blob = git(self.bare, "hash-object", "-w", "--stdin", data=f"{name} after {self.ahead}\n".encode())
            lines += f"100644 {blob}\t{name}\n"
        git(self.bare, "update-index", "--index-info", data=lines.encode(), **index)
        self.ahead = self._advance(git(self.bare, "write-tree", **index))
        return self.ahead

    def _advance(self, tree):
        """Advances the branch to a commit of that tree."""
        commit = git(self.bare, "commit-tree", tree, "-p", "HEAD", "-m", "bench")
        git(self.bare, "update-ref", f"refs/heads/{self.branch}", commit)
        return commit

    def close(self):
        self.server.stop()


class Daemon(harness.Daemon):
    """A daemon with default settings, including the log level."""

    def restart_without_timers(self):
        """Keeps the daemon's own periodic work out of the counts of synchronous writes."""
        self.environment["MOORAGE_WORKSPACE_SYNC_INTERVAL_S"] = "3600"
        self.environment["MOORAGE_DAEMON_RECONCILE_INTERVAL_S"] = "3600"
        self.stop()
        self.start()
