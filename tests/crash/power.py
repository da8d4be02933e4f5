"""A store on a disk whose power can be cut: a file system on power_disk.cc, visible only to the test.

It runs in a private mount namespace; after its last process ends, nothing is mounted and no loop device is in use.
"""

import concurrent.futures
import contextlib
import ctypes
import os
import pathlib
import signal
import subprocess
import uuid

import rig
from rig import harness

CLONE_FS, CLONE_NEWNS = 0x200, 0x20000
SIZE_BYTES = 384 << 20  # XFS needs 300 MiB
MAKE = {"ext4": ["mkfs.ext4", "-q", "-F"], "xfs": ["mkfs.xfs", "-q", "-f"], "btrfs": ["mkfs.btrfs", "-q", "-f"]}
CHECK = {"ext4": ["e2fsck", "-fn"], "xfs": ["xfs_repair", "-n"], "btrfs": ["btrfs", "check", "--readonly"]}


def make_image(kind, path, *options):
    with open(path, "wb") as file:
        file.truncate(SIZE_BYTES)
    harness.run(*MAKE[kind], *options, path)
    return path


class Namespace:
    """A private mount namespace, held by a helper process."""

    def __init__(self):
        self.holder = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private",
                                        "sleep", "infinity"], stdin=subprocess.DEVNULL, start_new_session=True)
        own = os.readlink("/proc/self/ns/mnt")
        harness.wait_until(lambda: self._sleeps() and os.readlink(f"/proc/{self.holder.pid}/ns/mnt") != own, what="a mount namespace")
        self.prefix = ["nsenter", "-t", str(self.holder.pid), "-m", "--"]

    def _sleeps(self):
        with contextlib.suppress(OSError):
            return pathlib.Path(f"/proc/{self.holder.pid}/comm").read_text() == "sleep\n"

    def run(self, *argv, **options):
        return harness.run(*self.prefix, *argv, **options)

    def inside(self, function):
        """Calls it in a thread with this namespace's mounts, as SQLite follows no path through /proc."""
        with concurrent.futures.ThreadPoolExecutor(1, initializer=self._enter) as thread:
            return thread.submit(function).result()

    def _enter(self):
        libc = ctypes.CDLL(None, use_errno=True)
        with open(f"/proc/{self.holder.pid}/ns/mnt") as namespace:
            # Only threads after the first can have their own root.
            if libc.unshare(CLONE_FS) != 0 or libc.setns(namespace.fileno(), CLONE_NEWNS) != 0:
                raise OSError(ctypes.get_errno(), "enter the mount namespace")

    def close(self):
        """Also ends its remaining processes, so that none keeps a mount."""
        inside = os.readlink(f"/proc/{self.holder.pid}/ns/mnt")
        for pid in harness.processes():
            with contextlib.suppress(OSError):
                if pid != self.holder.pid and os.readlink(f"/proc/{pid}/ns/mnt") == inside:
                    os.kill(pid, signal.SIGKILL)
        self.holder.kill()
        self.holder.wait()


class Disk:
    """power_disk with an image in it."""

    def __init__(self, namespace, image, directory):
        directory.mkdir()
        self.file, self.figures = directory / "disk", {}
        self.process = subprocess.Popen([*namespace.prefix, "setpriv", "--pdeathsig", "KILL", str(harness.BIN / "power_disk"), str(image), str(directory)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
        line = self.process.stdout.readline()
        if line != "ready\n":
            raise AssertionError(f"power_disk did not start: {line!r}")

    def cut(self, what, seed, path):
        """Writes to `path` the disk after a power cut now. Returns {writes, flushes, pending}."""
        self.process.stdin.write(f"cut {what} {seed} {path}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if len(answer) != 6:
            raise AssertionError(f"no image: {answer}")
        self.figures = dict(zip(answer[::2], map(int, answer[1::2])))
        return self.figures

    def close(self):
        self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Machine:
    """A daemon with its store on a separate disk; `image` None: on a new file system of this kind."""

    def __init__(self, kind, image=None, broken="", settings=None, rebooted=False):
        """rebooted: the boot id differs from the image's last boot."""
        self.kind, self.closed = kind, False
        self.daemon = harness.Daemon({"workspace.sync_interval_s": 3600, "daemon.reconcile_interval_s": 3600, **(settings or {})})
        directory = self.daemon.directory
        self.namespace = Namespace()
        self.disk = None
        try:
            if image is None:
                image = make_image(kind, directory / "new.img")
                self.disk = Disk(self.namespace, image, directory / "power")
                image = self.disk.file
            self.mount(image, rebooted)
            self.namespace.run("chmod", "700", self.daemon.store)
            if rebooted:
                boot, self.boot_id = directory / "boot_id", str(uuid.uuid4())
                boot.write_text(f"{self.boot_id}\n")
                broken += f" boot-id={boot}"
            if broken:
                self.daemon.environment |= {"LD_PRELOAD": rig.BROKEN, "BROKEN": broken}
            self.store = self.daemon.store  # visible only inside
        except BaseException:
            self.close()
            raise

    def mount(self, image, rebooted):
        """A cut may tear the superblock of ext4, which has two sectors and a checksum: then e2fsck at boot uses a copy."""
        argv = ["mount", "-o", "loop", image, self.daemon.store]
        may_be_torn = rebooted and self.kind == "ext4"
        if self.namespace.run(*argv, check=not may_be_torn).returncode != 0:
            harness.run("e2fsck", "-fy", image, check=False)  # 1: it repaired something
            self.namespace.run(*argv)

    def start(self):
        self.daemon.start(prefix=self.namespace.prefix)
        return self

    def unmount(self):
        """After an orderly end of everything. The file system must be clean then."""
        self.daemon.stop()
        self.namespace.run("umount", self.daemon.store)

    def check(self, image):
        result = harness.run(*CHECK[self.kind], image, check=False)
        if result.returncode != 0:
            raise AssertionError(f"{self.kind} is not clean: {result.stdout.decode()[-1000:]} {result.stderr.decode()[-1000:]}")

    def close(self):
        if self.closed:
            return
        self.closed = True
        self.daemon.kill()
        if self.daemon.known_store_id:
            harness.end_sandboxes(f"moorage-{self.daemon.known_store_id}-")
        self.namespace.run("umount", self.daemon.store, check=False)
        if self.disk:
            self.disk.close()
        self.namespace.close()
        self.daemon.remove()
