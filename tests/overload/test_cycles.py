"""Thousands of life cycles leave nothing behind. MOORAGE_CYCLES: their number (300)."""

import os
import time
import unittest

import load
from load import harness

CYCLES = int(os.environ.get("MOORAGE_CYCLES", "300"))
SOAK = CYCLES >= 5000
# Until threads have reached their deepest calls, heaps their largest answers, and the database its pages.
WARM_UP = 2000 if SOAK else 100
DIRECTORIES_BYTES = 256 << 10  # a directory keeps its largest size
TIDY_S = 20  # more than the daemon's pause between two rounds, which release memory


class Cycles(harness.TestCase):
    def cycle(self, number):
        name = f"cycle-{number}"
        self.client.create(repo_url=self.url, name=name)
        result = self.client.exec(name, "echo some output; echo edit >> README.md; (setsid sleep 100 &)", timeout_ms=60_000 * harness.PATIENCE)
        self.assertEqual(result.stdout, b"some output\n")
        if number % 10 == 0:
            self.assertIn(b"+edit", self.client.diff(name))
            self.client.stop(name)
            self.client.start(name)
        if number % 25 == 0:
            self.client.write_file(name, "big", bytes(1 << 20))
            self.client.delete(name)
            self.client.undelete(name)
        self.client.delete(name, purge=True)

    def settled(self):
        """The daemon's resources after its background work: stable for a second."""
        harness.wait_until(lambda: load.holdings(self.daemon)["layers"] == 0, 120, "purged layers are gone")

        def held():
            return {what: number for what, number in load.holdings(self.daemon).items() if what != "descriptors"}

        def unchanged():
            first = held()
            time.sleep(1)
            return held() == first

        harness.wait_until(unchanged, 120, "the background work is done")
        return load.holdings(self.daemon)

    def disk(self):
        """Bytes of the store without shared files (caches, images, the reserve) and the database."""
        out = harness.run("du", "-s", "-B1", "--exclude=repos", "--exclude=images", "--exclude=*reserve*", "--exclude=state.db*",
                          self.daemon.store).stdout
        return int(out.split()[0])

    def memory(self):
        if SOAK:
            time.sleep(TIDY_S)
        return load.status_bytes(self.daemon.process.pid, "VmRSS")

    def database(self):
        return (self.daemon.store / "state.db").stat().st_size

    def test_thousands_of_life_cycles_leave_nothing(self):
        for number in range(WARM_UP):
            self.cycle(number)
        before, rss, disk, database = self.settled(), self.memory(), self.disk(), self.database()
        for number in range(WARM_UP, WARM_UP + CYCLES):
            self.cycle(number)
            if number % 500 == 0:
                print(f"{number} cycles, RSS {load.status_bytes(self.daemon.process.pid, 'VmRSS') >> 10} KiB", flush=True)
        after, rss_after, disk_after = self.settled(), self.memory(), self.disk()
        print(f"{CYCLES} cycles: {after}")
        print(f"RSS {rss >> 10} -> {rss_after >> 10} KiB, disk {disk >> 10} -> {disk_after >> 10} KiB; "
              f"history in the database, {(self.database() - database) // CYCLES} bytes a cycle")
        # Temporary descriptors: the query's own connection, a database handle being opened.
        self.assertLessEqual(abs(after.pop("descriptors") - before.pop("descriptors")), 2)
        self.assertEqual(after, before)
        self.assertEqual(self.client.workspaces(), [])
        self.assertLessEqual(disk_after, disk + DIRECTORIES_BYTES)
        if SOAK:
            self.assertLess(rss_after, rss * 1.01)


if __name__ == "__main__":
    unittest.main()
