#!/usr/bin/env python3
"""Prints each verb's synchronous writes, and their cost on a disk with 2 ms more per sync: the table of
docs/reliability.md. Needs root; MOORAGE_BIN as in the tests.

Counted with strace, with the daemon's timers off; the mirror, the base tree and the home's skeleton exist. Each verb is
counted three times and the minimum is printed: the first commit after a checkpoint of the log needs one more sync. Writes
of a command inside its sandbox and of git are not counted. Times are the best of ten, on an otherwise idle machine.
"""

import collections
import re
import time

import rig
from rig import harness
from test_syscalls import traced

CALLS = "fsync,fdatasync,syncfs"
LINE = re.compile(r"^\d+ +(\w+)\(\d+<([^>]*)>")
LIVES = 10
DELAY_MS = 2


def verbs(client, url):
    return {
        "create": lambda: client.create(repo_url=url, name="work"),
        "start": lambda: client.start("work"),
        "exec": lambda: client.exec("work", ["true"]),
        "exec --sync": lambda: client.exec("work", ["true"], sync=True),
        "file PUT": lambda: client.write_file("work", "file", b"x"),
        "stop": lambda: client.stop("work"),
        "archive (stopped)": lambda: client.archive("work"),
        "unarchive": lambda: client.unarchive("work"),
        "delete (stopped)": lambda: client.delete("work"),
        "undelete": lambda: client.undelete(next(w["id"] for w in client.workspaces(deleted=True) if w["state"] == "deleted")),
        "delete --purge (stopped)": lambda: client.delete("work", purge=True),
    }


def counted(daemon, call):
    file = daemon.directory / "calls"
    with traced(daemon.process.pid, "-y", "-e", f"trace={CALLS}", "-o", str(file)):
        call()
    made = map(LINE.match, file.read_text().splitlines())
    return collections.Counter(f"{m[1]} {re.sub('[0-9a-f]*[0-9][0-9a-f]*', 'N', m[2].rpartition('/')[2])}" for m in made if m)


def best_ms(daemon, url, delay_ms):
    """verb -> the fastest of ten."""
    daemon.stop()
    daemon.environment |= {"LD_PRELOAD": rig.BROKEN, "BROKEN": f"slow-sync={delay_ms}"}
    daemon.start()
    best = {}
    for _ in range(LIVES):
        for name, call in verbs(daemon.client, url).items():
            began = time.monotonic()
            call()
            best[name] = min(best.get(name, 1e9), (time.monotonic() - began) * 1000)
    return best


def main():
    daemon = harness.Daemon({"workspace.sync_interval_s": 3600, "daemon.reconcile_interval_s": 3600})
    try:
        harness.make_repository(daemon.directory / "repository")
        url = f"file://{daemon.directory}/repository"
        client = daemon.start().client
        client.create(repo_url=url, name="first")
        client.exec("first", "true")
        lives = [{name: counted(daemon, call) for name, call in verbs(client, url).items()} for _ in range(3)]
        writes = {name: min((life[name] for life in lives), key=collections.Counter.total) for name in lives[0]}
        plain, slow = best_ms(daemon, url, 0), best_ms(daemon, url, DELAY_MS)
        print(f"| verb | synchronous writes | calls | ms | ms, each {DELAY_MS} ms slower |\n|---|---|---|---|---|")
        for name, found in writes.items():
            what = ", ".join(f"{n} x {one}" for one, n in found.most_common())
            print(f"| {name} | {sum(found.values())} | {what} | {plain[name]:.1f} | {slow[name]:.1f} |")
        daemon.close()
    finally:
        daemon.remove()


if __name__ == "__main__":
    main()
