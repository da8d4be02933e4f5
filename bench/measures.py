"""The measures, one function per group of rows. Moorage and its peers take turns, so that noise affects all alike.

A function gets the Bench and appends milliseconds to bench.samples["name"] and bench.samples["name/peer"].
Setup and cleanup around a call are not timed.
"""

import collections
import os
import shutil
import sys

import clock
import syncs
from place import GIT_ENVIRONMENT, harness, say

sys.path.insert(0, str(harness.ROOT / "tests/overload"))
from greedy import Greedy  # noqa: E402

WARM_UP = 3
COUNTED_CALLS = 10
SLOW_CALLS = 20
GREEDY_UID = 61001
SLOWED = ("create", "exec", "exec_started")


class Bench:
    """One run: a daemon with a warm base tree, the samples, and the peers, started on demand."""

    def __init__(self, daemon, upstream, moorage, peer_makers):
        self.daemon, self.upstream, self.moorage = daemon, upstream, moorage
        self._makers, self._peers = peer_makers, {}
        self.samples = collections.defaultdict(list)
        self.sizes = collections.defaultdict(list)  # KiB
        self.syncs, self.sync_targets, self.slow = {}, {}, {}

    def peer(self, name):
        """None if this host lacks its programs."""
        if name not in self._peers:
            self._peers[name] = self._makers[name]()
        return self._peers[name]

    def create(self):
        return self.moorage.create(self.upstream.url, self.upstream.first)

    def time(self, name, function, *arguments):
        """Retries a peer that crashes (lxc-attach does, once in hundreds of runs), but never Moorage."""
        for tries_left in (3, 2, 1, 0) if "/" in name else (0,):
            try:
                milliseconds, value = clock.timed(function, *arguments)
            except clock.Crashed as crash:
                if not tries_left:
                    raise
                say(crash)
                continue
            self.samples[name].append(milliseconds)
            return value

    def workspace_running(self):
        workspace = self.create()
        self.moorage.exec(workspace, ["true"])
        return workspace


def create(bench, n=50, checked=20):
    """By commit: asks nobody. By branch: first asks upstream for the branch's commit."""
    for i in range(n + WARM_UP):
        milliseconds, workspace = clock.timed(bench.create)
        if i >= WARM_UP:
            bench.samples["create"].append(milliseconds)
        bench.moorage.purge(workspace)
    # The branch's commit needs a base tree first: the time is for the question, not for a checkout.
    bench.moorage.purge(bench.moorage.create(bench.upstream.url, bench.upstream.branch))
    for _ in range(checked):
        bench.moorage.purge(bench.time("create_check", bench.moorage.create, bench.upstream.url, bench.upstream.branch))


def start(bench, n=30, docker_runs=12):
    workspace = bench.create()
    docker, lxc = bench.peer("docker"), bench.peer("lxc")
    bench.moorage.start(workspace)
    for i in range(n):
        bench.moorage.stop(workspace)
        bench.time("start", bench.moorage.start, workspace)
        if lxc:
            lxc.stop()
            bench.time("start/lxc_start", lxc.start)
        if docker and i < docker_runs:
            docker.remove(bench.time("start/docker_run", docker.run, f"run-{i}"))
    bench.moorage.purge(workspace)


def exec(bench, n=300):
    """Through the API on one connection; exec_started ends once the command runs, exec once its end was read."""
    workspace = bench.workspace_running()
    docker = bench.peer("docker")
    for _ in range(WARM_UP):
        bench.moorage.exec(workspace, ["true"])
    for i in range(n):
        bench.time("exec", bench.moorage.exec, workspace, ["true"])
        if docker and i % 10 == 0:
            bench.time("exec/docker_exec_api", docker.exec_api)
    for _ in range(50):
        bench.moorage.cancel(bench.time("exec_started", bench.moorage.exec_started, workspace, ["sleep", "100"]))
    bench.moorage.purge(workspace)


def neighbour(bench):
    """The p99 of 100 commands of one user while another user holds its maximum of everything, and without that."""
    beside_greedy(bench, "neighbour", Greedy.WALKS)


def neighbour_busy(bench):
    """The same while the other user also requests files, history and commands at full speed, and so uses the CPUs."""
    beside_greedy(bench, "neighbour_busy", Greedy.ALL)


def beside_greedy(bench, row, asks, blocks=5, n=100):
    bench.daemon.directory.chmod(0o711)  # lets the other user reach the socket
    bench.daemon.socket.chmod(0o666)
    greedy = Greedy(bench.daemon, bench.upstream.url, GREEDY_UID, asks=asks)
    workspace = bench.workspace_running()

    def block():
        times = [clock.timed(bench.moorage.exec, workspace, ["true"])[0] for _ in range(n)]
        return clock.percentile(times, 99)

    block()
    bench.samples[f"{row}/alone"].append(block())
    greedy.start()
    try:
        for _ in range(blocks):  # in turns, so that other load on the machine affects both
            bench.samples[row].append(block())
            with greedy.quiet():
                bench.samples[f"{row}/alone"].append(block())
    finally:
        greedy.stop(bench.daemon.client)
    bench.moorage.purge(workspace)
    for made in bench.daemon.client.workspaces():
        if made["owner"] == GREEDY_UID:
            bench.daemon.client.delete(made["id"], purge=True, force=True)


def exec_cli(bench, n=200, docker_execs=30):
    """As a process, including its start, against peer processes that do the same."""
    workspace = bench.workspace_running()
    docker, lxc = bench.peer("docker"), bench.peer("lxc")
    argv = [str(harness.BIN / "moorage"), "exec", workspace, "--", "true"]
    environment = {"PATH": os.environ["PATH"], "HOME": "/root", "MOORAGE_SOCKET": str(bench.daemon.socket)}
    for _ in range(WARM_UP):
        clock.run_program(argv, environment)
        if lxc:
            lxc.attach()
    for i in range(n):
        bench.time("exec_cli", clock.run_program, argv, environment)
        if lxc:
            bench.time("exec_cli/lxc_attach", lxc.attach)
        if docker and i < docker_execs:
            bench.time("exec_cli/docker_exec", docker.exec_cli)
    bench.moorage.purge(workspace)


def tti(bench, n=25):
    """Time to interactive: from no workspace to the first output byte of a command in it."""
    for i in range(n + WARM_UP):
        bytes_at = []
        began = clock.now_ms()
        workspace = bench.create()
        bench.moorage.exec(workspace, ["echo", "x"], lambda: bytes_at.append(clock.now_ms()))
        if i >= WARM_UP:
            bench.samples["tti"].append(bytes_at[0] - began)
        bench.moorage.purge(workspace)


def base_tree(bench, n=3):
    """Creates at commits in the mirror that were never checked out, against git worktree of the same commits."""
    commits = [bench.upstream.commit_far(i) for i in range(n)]
    repository = next(r["id"] for r in bench.moorage.json("GET", "/v1/repos"))
    bench.moorage.json("POST", f"/v1/repos/{repository}/fetch")
    for i, commit in enumerate(commits):
        os.sync()  # both start without dirty pages
        workspace = bench.time("base_tree", bench.moorage.create, bench.upstream.url, commit)
        bench.moorage.purge(workspace)
        os.sync()
        place = bench.daemon.directory / "worktrees" / str(i)
        argv = [shutil.which("git"), "-C", str(bench.upstream.bare), "worktree", "add", "-q", "-f", "--detach",
                str(place), commit]
        bench.time("base_tree/git_checkout", clock.run_program, argv, GIT_ENVIRONMENT)
        shutil.rmtree(place)
        say(f"  {bench.samples['base_tree'][-1]:.0f} ms, git {bench.samples['base_tree/git_checkout'][-1]:.0f} ms")
    os.sync()
    # Without Moorage, a workspace at a cached commit also costs a `git worktree add`.
    bench.samples["create/git_worktree"] = bench.samples["base_tree/git_checkout"]


# Calls lstat once for every file of the index, in two processes with half of them each.
LSTAT_ALL = """
import os
with open("/home/user/names", "rb") as file:
    names = file.read().split(b"\\0")[:-1]
parent = os.fork()
half = len(names) // 2
for name in names[half:] if parent else names[:half]:
    os.lstat(name)
if parent:
    os.wait()
"""


def git_status_first(bench, n=5):
    plain = bench.peer("overlay")
    for _ in range(n):
        argv = [shutil.which("git"), "-C", str(plain.mounted()), "status", "--porcelain"]
        bench.time("git_status_first/plain_overlay", clock.run_program, argv, GIT_ENVIRONMENT)
        plain.close()
        workspace = bench.workspace_running()
        bench.moorage.exec(workspace, ["sh", "-c", "git ls-files -z >/home/user/names"])
        bench.time("git_status_first/lstat_first", bench.moorage.exec, workspace, ["python3", "-c", LSTAT_ALL])
        bench.moorage.purge(workspace)
        workspace = bench.workspace_running()
        for name in ("git_status_first", "git_status_first/git_status_second"):
            output = bench.time(name, bench.moorage.exec, workspace, ["git", "status", "--porcelain"])
            if output:
                raise SystemExit(f"bench: git status is not clean in a new workspace: {output[:200]!r}")
        bench.moorage.purge(workspace)


def sync_calls(bench, running, made):
    """name -> (the call, its preparation or None)."""
    moorage, upstream = bench.moorage, bench.upstream

    def create_and_exec():
        made.append(bench.create())
        moorage.exec(made[-1], ["echo", "x"])

    return {
        "create": (lambda: made.append(bench.create()), None),
        "create_check": (lambda: made.append(moorage.create(upstream.url, upstream.branch)), None),
        "start": (lambda: moorage.start(running), lambda: moorage.stop(running)),
        "exec": (lambda: moorage.exec(running, ["true"]), None),
        "exec_started": (lambda: moorage.exec_started(running, ["sleep", "1000"]), None),
        "tti": (create_and_exec, None),
    }


def count_syncs(bench, slow_ms):
    """Runs after all timings: counts the synchronous writes of each call, and times the calls on a slow disk."""
    bench.moorage.close()
    bench.daemon.restart_without_timers()
    pid = bench.daemon.process.pid
    made, running = [], bench.workspace_running()
    for name, (call, prepare) in sync_calls(bench, running, made).items():
        if name not in bench.samples:
            continue
        call() if not prepare else None  # leaves out work that happens only once
        bench.syncs[name], bench.sync_targets[name] = syncs.count(pid, call, COUNTED_CALLS, prepare)
        if slow_ms and name in SLOWED:
            bench.slow[name] = {ms: syncs.slowed(pid, ms, SLOW_CALLS, call) for ms in (0, slow_ms)}
    for workspace in [*made, running]:
        bench.moorage.purge(workspace)
