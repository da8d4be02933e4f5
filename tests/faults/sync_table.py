#!/usr/bin/env python3
"""Prints what each verb writes synchronously: the table of docs/reliability.md. Root; MOORAGE_BIN as in the tests.

Counted with strace, the daemon's timers off, each call alone: the mirror, the base tree and the home's skeleton are there.
What a command of the call writes inside of its sandbox is not counted, nor what git does.
"""

import collections
import re

from rig import harness
from test_syscalls import traced

CALLS = "fsync,fdatasync,syncfs"
LINE = re.compile(r"^\d+ +(\w+)\(\d+<([^>]*)>")


def main():
    daemon = harness.Daemon({"workspace.sync_interval_s": 3600, "daemon.reconcile_interval_s": 3600})
    try:
        harness.make_repository(daemon.directory / "repository")
        url = f"file://{daemon.directory}/repository"
        client = daemon.start().client
        client.create(repo_url=url, name="first")
        client.exec("first", "true")
        calls = {
            "create": lambda: client.create(repo_url=url, name="work"),
            "start": lambda: client.start("work"),
            "exec": lambda: client.exec("work", ["true"]),
            "exec --sync": lambda: client.exec("work", ["true"], sync=True),
            "file PUT": lambda: client.write_file("work", "file", b"x"),
            "stop": lambda: client.stop("work"),
            "delete (at rest)": lambda: client.delete("work"),
            "undelete": lambda: client.undelete(next(w["id"] for w in client.workspaces(deleted=True) if w["state"] == "deleted")),
            "delete --purge (at rest)": lambda: client.delete("work", purge=True),
        }
        print("| verb | synchronous writes | of what |\n|---|---|---|")
        for name, call in calls.items():
            file = daemon.directory / "calls"
            with traced(daemon.process.pid, "-y", "-e", f"trace={CALLS}", "-o", str(file)):
                call()
            found = collections.Counter(f"{m[1]} {re.sub('[0-9]+', 'N', m[2].rpartition('/')[2])}" for m in map(LINE.match, file.read_text().splitlines()) if m)
            print(f"| {name} | {sum(found.values())} | {', '.join(f'{n} x {what}' for what, n in found.most_common())} |")
        daemon.close()
    finally:
        daemon.remove()


if __name__ == "__main__":
    main()
