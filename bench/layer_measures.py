"""What is measured of layers: snapshot, fork, restore, diff, and base trees of commits that are near to each other."""

import os
import shutil
import sqlite3

import clock
from place import GIT_ENVIRONMENT, harness, say

CHANGED = 10
REBASED_AT = 4  # deltas on each other: then a whole tree is written in the background
NEW_AFTER = 10  # snapshots of one workspace: then another one, so that all chains are as deep

# Ten files that the base has, one of them a tenth of the tree after the other.
EDIT = "set -e; git ls-files > /tmp/names; n=$(wc -l < /tmp/names); sed -n \"1~$(( n / 10 + 1 ))p\" /tmp/names | while read -r f; do echo edit >> \"$f\"; done"
# Holds the mounts, and goes on writing: 5,000 files of 40 KiB, one of them again and again.
FILL = ("mkdir -p out && cd out && python3 -c \"\nimport os\ndata = os.urandom(40960)\nfor i in range(5000):\n"
        "    d = f'd{i // 100}'\n    os.makedirs(d, exist_ok=True)\n    open(f'{d}/f{i}', 'wb').write(data)\n\"")
# What needs a compiler and make alone, in a tree of Linux.
BUILD = "test ! -d tools/lib/subcmd || { mkdir /tmp/out; make -s -C tools/lib/subcmd OUTPUT=/tmp/out/ >/dev/null && rm -r /tmp/out; }"
BUSY = "cd out && n=0 && while :; do n=$((n+1)); echo $n >> d$((n % 50))/log; done"


def edited(bench):
    """A workspace with a sandbox, and ten changed files in it."""
    workspace = bench.workspace_running()
    bench.moorage.exec(workspace, ["sh", "-c", EDIT])
    return workspace


def snapshots(bench, name, n, prepare, samples_of=lambda record: {}):
    """n of them, NEW_AFTER a workspace; what samples_of() says of an answer are samples too."""
    for i in range(n):
        if i % NEW_AFTER == 0:
            workspace = edited(bench)
            prepare(workspace)
        bench.moorage.write_file(workspace, "README", str(i).encode())
        record = bench.time(name, bench.moorage.snapshot, workspace)
        for row, value in samples_of(record).items():
            bench.samples[row].append(value)
        if i % NEW_AFTER == NEW_AFTER - 1 or i == n - 1:
            bench.moorage.purge(workspace)


def snapshot(bench, n=30):
    """At rest; then with a sandbox in which nothing holds the mounts; then beside a shell that does."""
    ways = {}

    def count(record):
        ways[record["way"]] = ways.get(record["way"], 0) + 1
        return {}

    def hold(workspace):
        bench.moorage.exec_started(workspace, ["sleep", "1000"])

    snapshots(bench, "snapshot", n, bench.moorage.stop, count)
    snapshots(bench, "snapshot_live", n, lambda workspace: None, count)
    snapshots(bench, "snapshot_held", n, hold, count)
    say(f"  ways: {ways}")


def snapshot_busy(bench, n=5):
    """5,000 changed files, 200 MB, and a process in the tree that goes on writing. Each in a new workspace: the worst case."""
    def pause(record):
        bench.samples["snapshot_busy_pause"].append(record["pause_us"] / 1000)
        say(f"  {record['way']}: {bench.samples['snapshot_busy'][-1]:.0f} ms, paused {record['pause_us'] / 1000:.1f} ms")

    for _ in range(n):
        workspace = bench.workspace_running()
        bench.moorage.exec(workspace, ["sh", "-c", FILL])
        bench.moorage.exec_started(workspace, ["sh", "-c", BUSY])
        pause(bench.time("snapshot_busy", bench.moorage.snapshot, workspace))
        for _ in range(2):  # what the last frozen copy has is linked
            pause(bench.time("snapshot_busy_next", bench.moorage.snapshot, workspace))
            bench.samples["snapshot_busy_next_pause"].append(bench.samples["snapshot_busy_pause"].pop())
        bench.moorage.purge(workspace)


def own_kib(bench, workspace):
    """The blocks of a workspace's own layer and its directory: all that it does not share."""
    database = sqlite3.connect(f"file:{bench.daemon.store}/state.db?mode=ro", uri=True)
    layer, = database.execute("SELECT layer FROM workspaces WHERE id = ?", (int(workspace.removeprefix("ws_")),)).fetchone()
    database.close()
    return blocks_kib(bench.daemon.store / "layers" / f"ly_{layer}") + blocks_kib(bench.daemon.store / "workspaces" / workspace)


def blocks_kib(place):
    return sum(os.lstat(os.path.join(top, name)).st_blocks / 2 for top, _, names in os.walk(place) for name in (*names, "."))


def fork(bench, n=30, copies=3):
    """Of a workspace with a live sandbox, nothing busy. What the fork takes of the disk before anything is written there."""
    for i in range(n):
        if i % NEW_AFTER == 0:
            workspace = edited(bench)
        made = bench.time("fork", bench.moorage.fork, workspace)
        bench.sizes["fork_disk"].append(own_kib(bench, made))
        bench.moorage.purge(made)
        if i % NEW_AFTER == NEW_AFTER - 1 or i == n - 1:
            bench.moorage.purge(workspace)
    for kind in ("xfs", "btrfs"):
        image = bench.peer(f"reflink_{kind}")
        for i in range(copies if image else 0):
            bench.time(f"fork/cp_reflink_{kind}", image.copy, f"copy-{i}")
            image.remove(f"copy-{i}")
    container = bench.peer("lxd")
    for i in range(copies if container else 0):
        bench.time("fork/lxd_copy", container.copy, f"copy-{i}")
        container.remove(f"copy-{i}")
    worktrees(bench, "fork/git_worktree", [bench.upstream.first] * 2)


def worktrees(bench, name, commits):
    for i, commit in enumerate(commits):
        os.sync()
        place = bench.daemon.directory / "worktrees" / str(i)
        argv = [shutil.which("git"), "-C", str(bench.upstream.bare), "worktree", "add", "-q", "-f", "--detach", str(place), commit]
        bench.time(name, clock.run_program, argv, GIT_ENVIRONMENT)
        shutil.rmtree(place)


def restore(bench, n=30):
    """Of a workspace with a live sandbox, nothing busy, to its first snapshot."""
    for i in range(n):
        if i % NEW_AFTER == 0:
            workspace = edited(bench)
            first = bench.moorage.snapshot(workspace)["id"]
        bench.moorage.exec(workspace, ["sh", "-c", "echo again >> README"])
        bench.time("restore", bench.moorage.restore, workspace, first)
        if i % NEW_AFTER == NEW_AFTER - 1 or i == n - 1:
            bench.moorage.purge(workspace)


def diff(bench, n=50, of_git=10):
    """The patch of ten changed files, against git's own in the sandbox."""
    workspace = edited(bench)
    for i in range(n):
        patch = bench.time("diff", bench.moorage.diff, workspace)
        if i < of_git:
            theirs = bench.time("diff/git_diff", bench.moorage.exec, workspace, ["git", "diff"])
            if theirs.count(b"\ndiff --git ") != patch.count(b"\ndiff --git ") or patch.count(b"diff --git ") < CHANGED:
                raise SystemExit(f"bench: the patch has other files than git's: {patch[:300]!r}")
    bench.moorage.purge(workspace)


def compared(bench, name, workspace, fresh, rounds):
    for _ in range(rounds + 1):  # the first one warms up
        for row, argv in (("git_status", ["git", "status", "--porcelain"]), ("build", ["sh", "-c", BUILD])):
            for where, suffix in ((workspace, ""), (fresh, "/fresh")):
                bench.time(f"{name}_{row}{suffix}", bench.moorage.exec, where, argv)
    for row in ("git_status", "build"):
        for suffix in ("", "/fresh"):
            del bench.samples[f"{name}_{row}{suffix}"][0]


def chain(bench, n=200, rounds=10):
    """Beside a fresh workspace, one with n snapshots: in the sandbox that saw them all, and in a new one, with fewer layers."""
    fresh, workspace = bench.workspace_running(), bench.workspace_running()
    names = bench.moorage.exec(workspace, ["git", "ls-files", "*.rst", "*.txt", "*Makefile"]).decode().split("\n")
    some = names[:: len(names) // n]
    ways = {}
    for i in range(n):
        bench.moorage.write_file(workspace, some[i % len(some)] + ".new", b"new\n")
        if some[i % len(some)].endswith((".rst", ".txt")):
            bench.moorage.write_file(workspace, some[i % len(some)], b"changed\n")
        way = bench.moorage.snapshot(workspace)["way"]
        ways[way] = ways.get(way, 0) + 1
    say(f"  {ways}")
    compared(bench, "chain_live", workspace, fresh, rounds)
    flattened = bench.daemon.log.read_bytes().count(b"layers.flattened")
    bench.moorage.stop(workspace)
    harness.wait_until(lambda: bench.daemon.log.read_bytes().count(b"layers.flattened") > flattened, 120, "fewer layers")
    compared(bench, "chain", workspace, fresh, rounds)
    for one in (workspace, fresh):
        bench.moorage.purge(one)


def deltas(place, commit):
    """How many a tree lies on, itself included."""
    manifest = (place / commit / "manifest").read_text()
    return 1 + deltas(place, manifest.split("\nparent ")[1].split("\n")[0]) if "\nparent " in manifest else 0


def create_delta(bench, n=8, checkouts=2):
    """A create whose commit is in the mirror, 100 files ahead of one whose base tree is there. Each is ahead of the one before."""
    commits = [bench.upstream.commit_ahead() for _ in range(n)]
    repository = next(r["id"] for r in bench.moorage.json("GET", "/v1/repos"))
    bench.moorage.json("POST", f"/v1/repos/{repository}/fetch")
    bench.moorage.purge(bench.create())
    place = bench.daemon.store / "repos" / repository / "trees"
    for commit in commits:
        os.sync()
        workspace = bench.time("create_delta", bench.moorage.create, bench.upstream.url, commit)
        # A whole tree that is written in the background would be in the way of the next one.
        harness.wait_until(lambda: deltas(place, commit) < REBASED_AT, 120, "a whole tree")  # noqa: B023
        bench.moorage.purge(workspace)
        say(f"  {bench.samples['create_delta'][-1]:.0f} ms")
    if not deltas(place, commits[0]):  # later ones may be whole by now
        raise SystemExit("bench: a commit 100 files ahead has a whole tree")
    worktrees(bench, "create_delta/git_checkout", commits[:checkouts])
