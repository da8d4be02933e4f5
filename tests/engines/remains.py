"""What came of an engine, found and ended by nothing but its directory.

Programs have it in their arguments; the processes of containers are their children, or have their root directory below
it; mounts lie below it; control groups have a parent of its name. Nothing has to answer, and nothing depends on how far
the engine came or who killed what of it.
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
    """What did not happen, with the end of the engine's own log."""


def wait_until(condition, seconds, what):
    end = time.monotonic() + seconds * PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise EngineFailed(f"{what}: not within {seconds * PATIENCE} s")
        time.sleep(0.01)


def alive(pid):
    """A zombie is not: its parent's word is all that is missing."""
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
    """The line of mountinfo that says what the process's root directory lies on."""
    with contextlib.suppress(OSError):
        for line in pathlib.Path(f"/proc/{pid}/mountinfo").read_text().splitlines():
            if line.split(" ")[4] == "/":
                return line
    return ""


def mounts_below(directory):
    """Mount points, those on top first."""
    lines = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    points = [line.split(" ")[4].encode().decode("unicode_escape") for line in lines]
    return [point for point in reversed(points) if point == str(directory) or point.startswith(f"{directory}/")]


def hierarchies():
    """Where control groups are mounted: one place with version 2 alone, one a controller with version 1 or both."""
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
    """The programs, what they started, and all whose root directory lies below the directory: shims may be dead."""
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
    """The control groups that the engine made, those below others first."""
    found = []
    for hierarchy in hierarchies():
        for place, _, _ in os.walk(hierarchy / directory.name, topdown=False):
            found.append(pathlib.Path(place))
    return found


def end_processes(directory):
    def ended():
        for group in cgroups_of(directory):
            # A process in a frozen group of version 1 does not die.
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
    """Everything that came of an engine, whatever state it is in."""
    end_processes(directory)
    while points := mounts_below(directory):
        subprocess.run(["umount", "-l", points[0]], check=True)  # a failure must not come to rmtree
    for group in cgroups_of(directory):
        wait_until(lambda: rmdir(group), 10, f"an empty {group}")
    for path in shim_sockets(directory):
        path.unlink(missing_ok=True)
    if (directory / "podman.log").exists():
        remove_libpod_groups()
    shutil.rmtree(directory)


def remove_libpod_groups():
    """podman's own parent has no option, is shared by all podmans and keeps some groups: the last one tidies up."""
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
    """containerd has one place for the sockets of all shims, and only a shim that ends well removes its own: a hash of
    the engine's address and the container's id, which the log has for every shim that was started."""
    log = directory / "containerd.log"
    ids = set(re.findall(r"/moby/([0-9a-f]{64})\b", log.read_text(errors="replace"))) if log.exists() else ()
    names = [hashlib.sha256(f"{directory}/containerd.sock/moby/{id}".encode()).hexdigest() for id in ids]
    return [path for path in (pathlib.Path("/run/containerd/s", name) for name in names) if path.exists()]


def sweep():
    """Ends the engines whose tests are gone: no one holds the lock."""
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
