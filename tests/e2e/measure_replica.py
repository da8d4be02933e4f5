#!/usr/bin/env python3
"""Run by hand: destroys and restores 100 workspaces (or the given number). Prints the figures of docs/reliability.md.

usage: MOORAGE_BIN=build/dev/bin measure_replica.py [WORKSPACES [FILES [KIB]]]: files that each has changed, and their size.
"""

import statistics
import sys
import time

import harness
import test_replica
from harness import run

WORKSPACES, FILES, KIB = (int(word) for word in (sys.argv[1:] + ["100", "2000", "8"][len(sys.argv) - 1:])[:3])


class Measure(test_replica.TestCase):
    def test_restore(self):
        client = self.client
        fill = (f"mkdir -p made && cd made && for n in $(seq {FILES}); do mkdir -p $((n / 100)); "
                f"head -c {KIB * 1024} /dev/urandom >$((n / 100))/$n; done")
        begin = time.monotonic()
        for n in range(WORKSPACES):
            client.create(repo_url=self.url, name=f"ws-{n}")
            client.exec(f"ws-{n}", fill)
            if n % 2:
                client.stop(f"ws-{n}")
                client.snapshot(f"ws-{n}", "one")
            if n % 10:
                client.stop(f"ws-{n}")
        print(f"made {WORKSPACES} workspaces in {time.monotonic() - begin:.0f} s")
        begin = time.monotonic()
        self.caught_up()
        print(f"the copy had all {time.monotonic() - begin:.1f} s after")
        behind = []
        for _ in range(40):
            client.exec("ws-0", "date >when")
            time.sleep(0.5)
            behind.append(client.info()["replica"]["behind_s"])
        print(f"behind, while one works: median {statistics.median(behind)} s, most {max(behind)} s")
        size = run("du", "-sh", self.replica).stdout.split()[0].decode()
        self.daemon.kill()
        harness.end_sandboxes(f"moorage-{self.daemon.known_store_id}-")
        store = run("du", "-sh", self.daemon.store).stdout.split()[0].decode()
        run("chattr", "-R", "-f", "-a", self.daemon.store, check=False)
        run("rm", "-rf", self.daemon.store)
        self.daemon.store.mkdir(mode=0o700)
        run("sh", "-c", "sync; echo 3 >/proc/sys/vm/drop_caches")
        other = self.restored()
        restored = other.took_s
        begin = time.monotonic()
        other.start()
        first = time.monotonic() - begin
        for n in range(WORKSPACES):
            assert other.client.exec(f"ws-{n}", "ls made | wc -l").exit_code == 0
        print(other.output)
        print(f"store {store}, copy {size}; restored in {restored:.1f} s, the daemon answers after {first:.1f} s, "
              f"all {WORKSPACES} have run a command {time.monotonic() - begin:.1f} s after its start")
        other.close()


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    harness.unittest.main()
