"""Finds and ends all objects of an engine, by its directory alone.

Programs have it in their arguments; container processes are their children, or have their root directory below
it; mounts are below it; cgroups have a parent named after it. This needs no answer and does not depend on how far
the engine got or which of its processes were killed.
"""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

BASE = pathlib.Path(os.environ.get("MOORAGE_TEST_DIRECTORY", "/var/tmp"))
PATIENCE = max(1, int(os.environ.get("MOORAGE_TEST_PATIENCE", "1")))
PREFIX = "moorage-engine-"
PROGRAMS = {"dockerd", "containerd", "containerd-shim-runc-v2", "runc", "crun", "podman", "conmon"}


class EngineFailed(Exception):
    """The failed step, with the end of the engine's log."""


def wait_until(condition, seconds, what):
    end = time.monotonic() + seconds * PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise EngineFailed(f"{what}: not within {seconds * PATIENCE} s")
        time.sleep(0.01)


def alive(pid):
    """False for a zombie, which only waits for its parent."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def all_pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def arguments(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def parent(pid):
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def root_mount(pid):
    """The line of mountinfo for the process's root directory."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path(f"/proc/{pid}/mountinfo").read_text().splitlines():
            if line.split(" ")[4] == "/":
                return line
    return ""


def mounts_below(directory):
    """Mount points, topmost first."""
    lines = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    points = [line.split(" ")[4].encode().decode("unicode_escape") for line in lines]
    return [point for point in reversed(points) if point == str(directory) or point.startswith(f"{directory}/")]


def hierarchies():
    """Mount points of cgroups: one with version 2 alone, one per controller with version 1 or both."""
    found = []
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        if line.partition(" - ")[2].split(" ")[0] in ("cgroup", "cgroup2"):
            found.append(pathlib.Path(line.split(" ")[4]))
    return found


def programs_of(directory):
    """Pids of an engine's own programs: each has the directory in its arguments."""
    found = []
    for pid in all_pids():
        argv = arguments(pid)
        ours = any(f"{directory}/" in each for each in argv)
        if ours and os.path.basename(argv[0]) in PROGRAMS and alive(pid):
            found.append(pid)
    return found


def pids_of(directory):
    """The programs, their children, and all processes with a root directory below the directory, as shims may be dead."""
    found = set(programs_of(directory))
    parents = {pid: parent(pid) for pid in all_pids()}
    for pid in parents:
        line = [pid]
        while line[-1] in parents and line[-1] not in found:
            line.append(parents[line[-1]])
        if line[-1] in found or f"{directory}/" in root_mount(pid):
            found.add(pid)
    return [pid for pid in found if alive(pid)]


def cgroups_of(directory):
    """The engine's cgroups, children first."""
    found = []
    for hierarchy in hierarchies():
        for place, _, _ in os.walk(hierarchy / directory.name, topdown=False):
            found.append(pathlib.Path(place))
    return found


def end_processes(directory):
    def ended():
        for group in cgroups_of(directory):
            # A process in a frozen version 1 cgroup does not die.
            with contextlib.suppress(OSError):
                if (group / "freezer.state").exists():
                    (group / "freezer.state").write_text("THAWED")
        left = pids_of(directory)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left

    wait_until(ended, 20, f"the end of the processes of {directory}")


def remove(directory):
    """Ends everything of an engine, in any state."""
    end_processes(directory)
    while points := mounts_below(directory):
        subprocess.run(["umount", "-l", points[0]], check=True)  # a failure must prevent the rmtree
    for group in cgroups_of(directory):
        wait_until(lambda: rmdir(group), 10, f"an empty {group}")
    for path in shim_sockets(directory):
        path.unlink(missing_ok=True)
    if (directory / "podman.log").exists():
        remove_libpod_groups()
    shutil.rmtree(directory)


def remove_libpod_groups():
    """podman's parent cgroup is fixed, shared by all podmans and keeps some groups: the last engine removes them."""
    if any(os.path.basename(arguments(pid)[0]) in ("podman", "conmon") for pid in all_pids() if arguments(pid)):
        return
    for hierarchy in hierarchies():
        for place, _, _ in os.walk(hierarchy / "libpod_parent", topdown=False):
            rmdir(pathlib.Path(place))


def rmdir(directory):
    with contextlib.suppress(OSError):
        directory.rmdir()
    return not directory.exists()


def shim_sockets(directory):
    """containerd has one directory for the sockets of all shims, removed only by a clean end of a shim. Their names are a hash of
    the engine's address and the container's id, which the log lists for every shim."""
    log = directory / "containerd.log"
    ids = set(re.findall(r"/moby/([0-9a-f]{64})\b", log.read_text(errors="replace"))) if log.exists() else ()
    names = [hashlib.sha256(f"{directory}/containerd.sock/moby/{id}".encode()).hexdigest() for id in ids]
    return [path for path in (pathlib.Path("/run/containerd/s", name) for name in names) if path.exists()]


def sweep():
    """Ends the engines of dead tests, whose locks are free."""
    for directory in BASE.glob(f"{PREFIX}*"):
        try:
            owner = open(directory / "owner")
        except FileNotFoundError:
            continue  # its own stop() is faster
        with owner:
            try:
                fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            if directory.exists():
                remove(directory)
