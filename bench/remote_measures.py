"""Measures of a sandbox on another machine: moorage-link and its keeper against ssh and rsync, over the same sshd.

The machine is a network namespace of this host (tests/e2e/ssh_host.py), so both ends share its processors and disk, and
nothing waits for a line. The keeper is driven directly, as a daemon drives it (tests/e2e/link_keeper.py).
"""

import contextlib
import os
import shutil
import subprocess
import time

import clock
import link_keeper  # place.py has its folder in the path
import ssh_host
from place import GIT_ENVIRONMENT, harness, say

OWNER = link_keeper.FIRST_ID + link_keeper.USER
PROGRAMS = [str(harness.BIN / name) for name in ("moorage-link", "moorage-outpost", "moorage-warden")]
CHANGED = 10
PATIENCE_S = 900


class Elsewhere:
    """The machine, and a tree here with the owners of a sandbox's."""

    def __init__(self, directory, bare):
        directory.mkdir()
        self.directory = directory
        self.keepers = 0
        self.host = ssh_host.SshHost(directory / "machine").start()
        self.ssh = ["/usr/bin/ssh", "-F", str(self.host.config), "-o", "BatchMode=yes"]
        self.tree = directory / "tree"
        self.tree.mkdir()
        archive = subprocess.Popen(["git", "-C", bare, "archive", "HEAD"], env=GIT_ENVIRONMENT, stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", self.tree], stdin=archive.stdout, check=True)
        if archive.wait() != 0:
            raise RuntimeError("git archive failed")
        subprocess.run(["chown", "-hR", f"{OWNER}:{OWNER}", self.tree], check=True)
        files = sorted(path for path in self.tree.rglob("*") if path.is_file() and not path.is_symlink())
        self.changed = [path.relative_to(self.tree) for path in files[::max(1, len(files) // CHANGED)][:CHANGED]]
        with self.running():  # its programs are there from now on
            pass

    def close(self):
        self.host.close()

    @contextlib.contextmanager
    def keeper(self, **options):
        """One that was not started; nothing of the sandbox is left afterwards."""
        self.keepers += 1
        keeper = link_keeper.Keeper(self.directory / f"keeper-{self.keepers}", self.host, sync_interval_s=3600, **options)
        try:
            yield keeper
        finally:
            keeper.close()
            keeper.remove_there()
            shutil.rmtree(keeper.directory)

    @contextlib.contextmanager
    def running(self, **options):
        with self.keeper(**options) as keeper:
            keeper.start()
            keeper.begin()
            yield keeper

    def forget(self, key):
        shutil.rmtree(self.host.directory / "trees" / key)

    def rsync(self, target):
        self.run(["/usr/bin/rsync", "-a", "-e", " ".join(self.ssh), f"{self.tree}/", f"{self.host.name}:{target}/"])

    def run(self, argv):
        clock.run_program(argv, {"PATH": os.environ["PATH"], "HOME": "/root"})

    def change(self, place, text):
        """The changed files with another line each, below a directory."""
        for name in self.changed:
            path = place / name
            for directory in [*reversed(path.relative_to(place).parents)][1:]:
                if not (place / directory).exists():
                    (place / directory).mkdir()
                    os.chown(place / directory, OWNER, OWNER)
            path.write_bytes((self.tree / name).read_bytes() + text.encode())
            os.chown(path, OWNER, OWNER)


def command(keeper, tag, *argv):
    """Until its end is in the journal here."""
    journal = keeper.start_command(tag, *argv)
    with open(journal, "rb") as file:
        arrived = b""
        while not (end := link_keeper.end_of(arrived)):
            piece = file.read()
            arrived += piece
            if not piece:
                time.sleep(0.0005)
    if end["code"] != 0:
        raise RuntimeError(f"{argv}: {end}")


def elsewhere(bench):
    """None, after saying so, without the programs."""
    found = bench.peer("elsewhere")
    if not found:
        say("  not measured")
    return found


def remote_push(bench, n=3):
    """A whole tree to a machine that has none."""
    if not (there := elsewhere(bench)):
        return
    for i in range(n):
        with there.keeper(base=there.tree, base_key=f"tree-{i}") as keeper:
            os.sync()  # both start without dirty pages
            keeper.start()
            bench.time("remote_push", lambda: keeper.good("/moorage/connect", timeout=PATIENCE_S))
        there.forget(f"tree-{i}")
        target = there.directory / f"rsync-{i}"
        target.mkdir()
        os.sync()
        bench.time("remote_push/rsync", there.rsync, target)
        shutil.rmtree(target)
        say(f"  {bench.samples['remote_push'][-1]:.0f} ms, rsync {bench.samples['remote_push/rsync'][-1]:.0f} ms")


def remote_push_changed(bench, n=7):
    """A second sandbox of the same tree with ten changed files: from a keeper that starts to a warden that answers."""
    if not (there := elsewhere(bench)):
        return
    target = there.directory / "rsync"
    there.rsync(target)
    with there.running(base=there.tree, base_key="tree"):
        pass
    for i in range(n):
        with there.keeper(base=there.tree, base_key="tree") as keeper:
            there.change(keeper.directory / "tree", f"change {i}\n")
            keeper.start()
            bench.time("remote_push_changed", keeper.begin)
        there.change(there.tree, f"change {i}\n")
        bench.time("remote_push_changed/rsync", there.rsync, target)
    there.forget("tree")
    shutil.rmtree(target)


def remote_sync(bench, n=50):
    """A command that changes ten files: until its end is here, after a synced pack of them. And one that changes none."""
    if not (there := elsewhere(bench)):
        return
    files = " ".join(f"'{name}'" for name in there.changed)
    with there.running(base=there.tree, base_key="tree") as keeper:
        for i in range(n + 3):
            script = f"for file in {files}; do echo {i} >>$file; done"
            bench.time("remote_sync" if i >= 3 else "warm", command, keeper, f"ex_{i}", "sh", "-c", script)
            bench.time("remote_sync/unchanged" if i >= 3 else "warm", command, keeper, f"no_{i}", "sh", "-c", f"for file in {files}; do :; done")
    bench.samples.pop("warm")
    there.forget("tree")
