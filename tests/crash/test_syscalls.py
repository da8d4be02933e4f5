"""SIGKILL at the n-th mutating system call: strace kills the caller, the daemon or one of its children.

A first run of the verbs only counts. Then each (call, n) is one crash, one recovery and one check; n counts per thread.
The short form takes a sample by the seed, the long form runs all in random order.
"""

import collections
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

import rig
from rig import harness
from verbs import Lives

# Calls that change the disk, mounts, or processes. Not openat: strace cannot filter by O_CREAT.
CALLS = ("rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", "mkdir", "mkdirat", "symlink", "symlinkat",
         "rmdir", "write", "pwrite64", "ftruncate", "fallocate", "fsync", "fdatasync", "syncfs", "chmod", "fchmod", "fchmodat", "lchown",
         "fchown", "fchownat", "fsetxattr", "utimensat", "ioctl", "mount", "umount2", "move_mount", "open_tree", "fsmount", "fsconfig",
         "mount_setattr", "clone", "clone3", "vfork", "sendmsg", "kill", "pidfd_send_signal")
LIVES = ("workspace", "imported", "repaired")
SAMPLE = 6  # deaths of each run in the short form
LINE = re.compile(r"^(\d+) +(\w+)\(")


@contextlib.contextmanager
def traced(pid, *options):
    """Inside, every thread of the process and its children are traced. Ends with strace."""
    tracer = subprocess.Popen(["strace", "-f", "-qq", "-e", f"trace={','.join(CALLS)}", *options, "-p", str(pid)],
                              stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def attached():
        states = [path.read_text(errors="replace") for path in pathlib.Path(f"/proc/{pid}/task").glob("*/status")]
        return states and all(f"TracerPid:\t{tracer.pid}\n" in state for state in states)

    try:
        harness.wait_until(attached, what="strace on every thread")
        yield
    finally:
        os.kill(tracer.pid, signal.SIGINT)  # not waited for yet, so its pid is valid
        try:
            tracer.wait(5)
        except subprocess.TimeoutExpired:  # sometimes it waits forever for a thread that it killed
            tracer.kill()
            tracer.wait()


class Syscalls(rig.TestCase):
    def count(self, life):
        """call -> the largest number by one thread in an undisturbed run."""
        file = self.daemon.directory / "calls"
        with traced(self.daemon.process.pid, "-o", str(file)):
            self.assertIsNone(self.lives.run(life, f"count-{life}"))
        self.lives.settle(f"count-{life}")
        made = collections.Counter(m.groups() for m in map(LINE.match, file.read_text(errors="replace").splitlines()) if m)
        most = {}
        for (_, call), number in made.items():
            most[call] = max(most.get(call, 0), number)
        return most

    def die(self, life, call, n):
        """Whether anything died."""
        name = f"{life}-{call.replace('_', '-')}-{n}-{self.deaths}"
        file = self.daemon.directory / "kills"
        with traced(self.daemon.process.pid, "-o", str(file), "-e", f"inject={call}:signal=KILL:when={n}"):
            self.lives.run(life, name)
        met = self.daemon.process.poll() is not None or "+++ killed by SIGKILL" in file.read_text(errors="replace")
        self.daemon.kill()
        self.daemon.start()
        self.lives.settle(name)
        return met

    def test_a_crash_at_the_nth_call_loses_nothing(self):
        chance = rig.chance("syscalls")
        self.lives, self.deaths = Lives(self), 0
        plan = []
        for life in LIVES:
            most = self.count(life)
            self.assertGreater(most.get("fsync", 0) + most.get("fdatasync", 0), 0, "nothing was counted")
            plan.append([(life, call, n) for call, number in most.items() for n in range(1, number + 1)])
        whole = [death for part in plan for death in part]
        calls = {call for _, call, _ in whole}
        if rig.SOAK_S:
            wanted = chance.sample(whole, len(whole))
        else:
            wanted = [death for part in plan for death in chance.sample(part, SAMPLE)]
        began, met = time.monotonic(), 0
        for death in wanted:
            if rig.SOAK_S and time.monotonic() - began > rig.SOAK_S:
                break
            with self.subTest(death):
                met += self.die(*death)
                self.deaths += 1
        seconds = (time.monotonic() - began) / self.deaths
        print(f"{self.deaths} of {len(whole)} places to die ({len(calls)} calls: {', '.join(sorted(calls))}), {met} met; "
              f"{seconds:.1f} s each, all of them {seconds * len(whole) / 60:.0f} minutes")
        self.assertGreater(met, self.deaths // 2, "too few deaths: is the count still that of the verbs?")


if __name__ == "__main__":
    unittest.main()
