"""Snapshots, forks and random sequences with the store on other file systems."""

import unittest

import test_sequences
import test_snapshots


class BtrfsSnapshots(test_snapshots.Snapshots):
    """A layer is a subvolume there, and the file system clones layers with busy mounts."""

    file_system = ["mkfs.btrfs", "-q"]
    beside = "subvolume"

    def test_a_clone_is_durable_at_once(self):
        self.make("at-once", "head -c 20M /dev/urandom > big")
        self.client.start_exec("at-once", ["sh", "-c", "exec 3>>held; sleep 60"])
        taken = self.client.snapshot("at-once", name="one")
        self.assertEqual((taken["way"], taken["durable"]), ("subvolume", True))
        self.run_in("at-once", "rm big")
        self.client.restore("at-once", "one", kill=True)
        self.assertEqual(self.run_in("at-once", "stat -c %s big held"), f"{20 << 20}\n0\n")
        self.client.delete("at-once", purge=True)


class BtrfsSequences(test_sequences.Sequences):
    file_system = ["mkfs.btrfs", "-q"]
    sequences = 5


class XfsSnapshots(test_snapshots.Snapshots):
    file_system = ["mkfs.xfs", "-q"]


class XfsSequences(test_sequences.Sequences):
    file_system = ["mkfs.xfs", "-q"]
    sequences = 5


if __name__ == "__main__":
    unittest.main()
