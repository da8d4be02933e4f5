"""Times of calls and of processes, in milliseconds."""

import os
import time


def now_ms():
    return time.perf_counter_ns() / 1e6


class Crashed(SystemExit):
    """A signal ended a program: its own fault, so its time means nothing."""


def timed(function, *arguments):
    """(milliseconds, the function's result)."""
    began = now_ms()
    value = function(*arguments)
    return now_ms() - began, value


def run_program(argv, environment):
    """Runs a program to its end. The same way for all: posix_spawn, no pipes. A failure ends the bench."""
    null = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawn(argv[0], argv, environment, file_actions=null)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status < 0:
        raise Crashed(f"bench: {' '.join(argv)}: signal {-status}")
    if status != 0:
        raise SystemExit(f"bench: {' '.join(argv)}: exit {status}")


def percentile(samples, percent):
    """By nearest rank, so the result is a measured time."""
    ordered = sorted(samples)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]
