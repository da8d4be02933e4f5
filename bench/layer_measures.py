"""Measures of layers: snapshot, fork, restore, diff, and base trees of nearby commits."""

import contextlib
import os
import shutil
import sqlite3

import clock
from place import GIT_ENVIRONMENT, harness, say

CHANGED = 10
MERGED_FROM = 16  # frozen layers; the daemon merges longer chains, also while they are mounted
REBASED_AT = 4  # this many stacked deltas: then the daemon writes a whole tree in the background
NEW_AFTER = 10  # snapshots per workspace, so that all chains have the same depth

# Changes ten files of the base, spread evenly over the tree.
EDIT = "set -e; git ls-files > /tmp/names; n=$(wc -l < /tmp/names); sed -n \"1~$(( n / 10 + 1 ))p\" /tmp/names | while read -r f; do echo edit >> \"$f\"; done"
# Creates 5,000 files of 40 KiB; BUSY then holds the mounts and keeps writing to them.
FILL = ("mkdir -p out && cd out && python3 -c \"\nimport os\ndata = os.urandom(40960)\nfor i in range(5000):\n"
        "    d = f'd{i // 100}'\n    os.makedirs(d, exist_ok=True)\n    open(f'{d}/f{i}', 'wb').write(data)\n\"")
# A build in the Linux tree that needs only a compiler and make.
BUILD = "test ! -d tools/lib/subcmd || { mkdir /tmp/out; make -s -C tools/lib/subcmd OUTPUT=/tmp/out/ >/dev/null && rm -r /tmp/out; }"
BUSY = "cd out && n=0 && while :; do n=$((n+1)); echo $n >> d$((n % 50))/log; done"


def edited(bench):
    """A workspace with a sandbox and ten changed files."""
    workspace = bench.workspace_running()
    bench.moorage.exec(workspace, ["sh", "-c", EDIT])
    return workspace


def snapshots(bench, name, n, prepare, samples_of=lambda record: {}):
    """Takes n snapshots, NEW_AFTER per workspace; samples_of() extracts more samples from each answer."""
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
    """Stopped; then with a sandbox where nothing holds the mounts; then with a process that holds them."""
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
    """5,000 changed files, 200 MB, and a process that keeps writing. Each in a new workspace: the worst case."""
    def pause(record):
        bench.samples["snapshot_busy_pause"].append(record["pause_us"] / 1000)
        say(f"  {record['way']}: {bench.samples['snapshot_busy'][-1]:.0f} ms, paused {record['pause_us'] / 1000:.1f} ms")

    for _ in range(n):
        workspace = bench.workspace_running()
        bench.moorage.exec(workspace, ["sh", "-c", FILL])
        bench.moorage.exec_started(workspace, ["sh", "-c", BUSY])
        pause(bench.time("snapshot_busy", bench.moorage.snapshot, workspace))
        for _ in range(2):  # files of the last frozen copy are linked
            pause(bench.time("snapshot_busy_next", bench.moorage.snapshot, workspace))
            bench.samples["snapshot_busy_next_pause"].append(bench.samples["snapshot_busy_pause"].pop())
        bench.moorage.purge(workspace)


def number(bench, query, workspace):
    """The one number that the query finds in the daemon's database for this workspace."""
    with contextlib.closing(sqlite3.connect(f"file:{bench.daemon.store}/state.db?mode=ro", uri=True)) as database:
        return database.execute(query, (int(workspace.removeprefix("ws_")),)).fetchone()[0]


def frozen_layers(bench, workspace):
    return number(bench, "WITH RECURSIVE chain (id, above) AS (SELECT layer, 0 FROM workspaces WHERE id = ? UNION ALL "
                         "SELECT parent, above + 1 FROM layers JOIN chain USING (id) WHERE parent IS NOT NULL) "
                         "SELECT max(above) FROM chain", workspace)


def own_kib(bench, workspace):
    """The blocks of a workspace's own layer and its directory, without shared ones."""
    layer = number(bench, "SELECT layer FROM workspaces WHERE id = ?", workspace)
    return blocks_kib(bench.daemon.store / "layers" / f"ly_{layer}") + blocks_kib(bench.daemon.store / "workspaces" / workspace)


def blocks_kib(place):
    return sum(os.lstat(os.path.join(top, name)).st_blocks / 2 for top, _, names in os.walk(place) for name in (*names, "."))


def fork(bench, n=30, copies=3):
    """Of a workspace with an idle live sandbox. Also measures the fork's disk use before its first write."""
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
    """Of a workspace with an idle live sandbox, to its first snapshot."""
    for i in range(n):
        if i % NEW_AFTER == 0:
            workspace = edited(bench)
            first = bench.moorage.snapshot(workspace)["id"]
        bench.moorage.exec(workspace, ["sh", "-c", "echo again >> README"])
        bench.time("restore", bench.moorage.restore, workspace, first)
        if i % NEW_AFTER == NEW_AFTER - 1 or i == n - 1:
            bench.moorage.purge(workspace)


def diff(bench, n=50, of_git=10):
    """The patch of ten changed files, against git diff in the sandbox."""
    workspace = edited(bench)
    for i in range(n):
        patch = bench.time("diff", bench.moorage.diff, workspace)
        if i < of_git:
            git_patch = bench.time("diff/git_diff", bench.moorage.exec, workspace, ["git", "diff"])
            if git_patch.count(b"\ndiff --git ") != patch.count(b"\ndiff --git ") or patch.count(b"diff --git ") < CHANGED:
                raise SystemExit(f"bench: the patch and git's list different files: {patch[:300]!r}")
    bench.moorage.purge(workspace)


def compared(bench, name, workspace, fresh, rounds):
    for _ in range(rounds + 1):  # the first round warms up
        for row, argv in (("git_status", ["git", "status", "--porcelain"]), ("build", ["sh", "-c", BUILD])):
            for where, suffix in ((workspace, ""), (fresh, "/fresh")):
                bench.time(f"{name}_{row}{suffix}", bench.moorage.exec, where, argv)
    for row in ("git_status", "build"):
        for suffix in ("", "/fresh"):
            del bench.samples[f"{name}_{row}{suffix}"][0]


def chain(bench, n=200, rounds=10):
    """A workspace with n snapshots against a fresh one: in the sandbox that took them, and in a new one after flattening."""
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
    bench.moorage.stop(workspace)
    harness.wait_until(lambda: frozen_layers(bench, workspace) <= MERGED_FROM, 120, "fewer layers")
    compared(bench, "chain", workspace, fresh, rounds)
    for one in (workspace, fresh):
        bench.moorage.purge(one)


def deltas(place, commit):
    """The number of deltas in a tree's chain, itself included."""
    manifest = (place / commit / "manifest").read_text()
    return 1 + deltas(place, manifest.split("\nparent ")[1].split("\n")[0]) if "\nparent " in manifest else 0


def create_delta(bench, n=8, checkouts=2):
    """Creates at commits in the mirror, each 100 files ahead of a commit that has a base tree."""
    commits = [bench.upstream.commit_ahead() for _ in range(n)]
    repository = next(r["id"] for r in bench.moorage.json("GET", "/v1/repos"))
    bench.moorage.json("POST", f"/v1/repos/{repository}/fetch")
    bench.moorage.purge(bench.create())
    place = bench.daemon.store / "repos" / repository / "trees"
    for commit in commits:
        os.sync()
        workspace = bench.time("create_delta", bench.moorage.create, bench.upstream.url, commit)
        # A whole tree written in the background would disturb the next sample.
        harness.wait_until(lambda: deltas(place, commit) < REBASED_AT, 120, "a whole tree")  # noqa: B023
        bench.moorage.purge(workspace)
        say(f"  {bench.samples['create_delta'][-1]:.0f} ms")
    if not deltas(place, commits[0]):  # later commits may have whole trees by now
        raise SystemExit("bench: a commit 100 files ahead has a whole tree instead of a delta")
    worktrees(bench, "create_delta/git_checkout", commits[:checkouts])
