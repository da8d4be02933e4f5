"""Chains of snapshots: their contents must not make the workspace unusable for its owner."""

import unittest

from threat import Threats, harness, threat

SNAPSHOTS = 60
NEST = """
import os
for level in range(300):
    os.mkdir("d" * 20); os.chdir("d" * 20)
open("bottom", "w").write("deep")
"""
LOOK = """
import os
for level in range(300): os.chdir("d" * 20)
print(open("bottom").read())
"""
WHOLE = """
import errno, os
try:
    open("/".join(["d" * 20] * 300 + ["bottom"]))
except OSError as error:
    print(errno.errorcode[error.errno])
"""


class Chains(Threats):
    def output(self, *argv):
        out = self.client.exec("chain", list(argv))
        self.assertEqual(out.exit_code, 0, out.stderr)
        return out.stdout.decode().strip()

    @threat(71, "H", "a path longer than any system call accepts, in a workspace with many snapshots",
            "layers are merged through descriptors, one name at a time; a snapshot that cannot be mounted is refused, but never a start",
            "the kernel refuses the whole path")
    def test_no_chain_of_snapshots_is_too_deep_to_start(self):
        self.client.create(repo_url=self.url, name="chain")
        self.output("python3", "-c", NEST)
        self.assertEqual(self.output("python3", "-c", WHOLE), "ENAMETOOLONG")
        self.client.stop("chain")
        for number in range(SNAPSHOTS):
            self.client.write_file("chain", f"n{number}", b"x")
            self.client.snapshot("chain")
        self.assertEqual(self.output("python3", "-c", LOOK), "deep")
        self.assertEqual(self.output("sh", "-c", "ls -d n* | wc -l"), str(SNAPSHOTS))

    @threat(72, "H", "a snapshot after each file, so that every writable layer is within the limit",
            "everything in the chain counts: a command that exceeds the limit is ended, and an upload is refused",
            "the same loop without a limit uses unlimited space")
    def test_a_disk_limit_includes_snapshots(self):
        for name, limit in (("bounded", 24 << 20), ("free", 0)):
            self.client.create(repo_url=self.url, name=name, limits={"disk_bytes": limit, "disk_files": 0})
            ends = []
            for number in range(4):
                record = self.client.start_exec(name, ["sh", "-c", f"head -c 10M /dev/urandom >f{number}; sleep 1"])
                ends.append(self.client.wait(record["id"]).get("category"))
                self.client.stop(name)
                self.client.snapshot(name)
            if limit:
                self.assertEqual(ends[:2], [None, None])
                self.assertIn("disk_quota", ends[2:])
                with self.assertRaises(harness.raw_api.ApiError) as refused:
                    self.client.write_file(name, "upload", bytes(10 << 20))
                self.assertEqual(refused.exception.code, "resource_exhausted")
            else:
                self.assertEqual(ends, [None] * 4)


if __name__ == "__main__":
    unittest.main()
