"""Counts (and slows down) synchronous writes from outside with strace, in calls that are not timed.

A virtual machine's disk answers a flush at once, a user's disk does not; hence the counts. Tracing alone slows the
daemon, so slowed() also measures the same calls traced without delay.
"""

import collections
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import tempfile

import clock
from place import harness

CALLS = "fsync,fdatasync,syncfs,sync,sync_file_range,msync"
CALL = re.compile(r"^\d+ +(\w+)\((.*?)(?:\)| <unfinished)")
NUMBER = re.compile(r"\d+")


def tasks_traced(pid, tracer):
    states = [path.read_text(errors="replace") for path in pathlib.Path(f"/proc/{pid}/task").glob("*/status")]
    return all(f"TracerPid:\t{tracer}\n" in state for state in states)


@contextlib.contextmanager
def traced(pid, *options):
    """Traces every thread of the process and its children. Yields the file of calls."""
    with tempfile.NamedTemporaryFile(prefix="moorage-bench-", suffix=".strace") as file:
        tracer = subprocess.Popen(["strace", "-f", "-y", "-qq", "-e", f"trace={CALLS}", *options, "-o", file.name,
                                   "-p", str(pid)], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            harness.wait_until(lambda: tasks_traced(pid, tracer.pid), what="strace on every thread")
            yield pathlib.Path(file.name)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(tracer.pid, signal.SIGINT)
            tracer.wait(30)


def count(pid, function, calls, prepare=None):
    """Synchronous writes per call, and a Counter of their targets. With prepare, each call is traced alone."""
    found = collections.Counter()
    for _ in range(calls if prepare else 1):
        if prepare:
            prepare()
        with traced(pid) as file:
            for _ in range(1 if prepare else calls):
                function()
            text = file.read_text(errors="replace")
        for match in filter(None, map(CALL.match, text.splitlines())):
            target = match[2].split("<")[-1].rstrip(">")
            found[f"{match[1]} {NUMBER.sub('N', os.path.basename(target))}"] += 1
    return sum(found.values()) / calls, found


def slowed(pid, delay_ms, calls, function):
    """Milliseconds of calls with delay_ms added to each synchronous write of the daemon."""
    delay = f"inject={CALLS}:delay_exit={int(delay_ms * 1000)}"
    with traced(pid, *(("-e", delay) if delay_ms else ())):
        function()
        return [clock.timed(function)[0] for _ in range(calls)]
