"""After many snapshots in a row a workspace with any contents can be started."""

import concurrent.futures
import os
import pathlib
import re
import unittest

import harness
import raw_api

LONG = bool(os.environ.get("MOORAGE_TEST_LONG"))
SNAPSHOTS = 60
DEEP = 18  # snapshots, after which lower layers are merged
LEVELS = 5000  # "d/" each: a path of 10,000 bytes, beyond the limit of every call
NAMES = 3_000_000 if LONG else 20_000
EXTRA_KB = 100 << 10  # of the daemon, above its initial memory
NEST = f"""
import os
for level in range({LEVELS}):
    os.mkdir("d"); os.chdir("d")
open("bottom", "w").write("deep")
"""
LOOK = f"""
import os
for level in range({LEVELS}): os.chdir("d")
print(open("bottom").read())
"""
FILL = f"""
import os
os.mkdir("many"); os.chdir("many")
open("f0", "w").close()
for n in range(1, {NAMES}): os.mknod(f"f{{n}}")
"""


class DeepChains(harness.TestCase):
    def run_in(self, name, *argv):
        out = self.client.wait(self.client.start_exec(name, list(argv))["id"], 600_000)
        self.assertEqual(out.get("exit_code"), 0, out)

    def output(self, name, *argv):
        out = self.client.exec(name, list(argv))
        self.assertEqual(out.exit_code, 0, out.stderr.decode())
        return out.stdout.decode()

    def memory_kb(self, what):
        status = pathlib.Path(f"/proc/{self.daemon.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith(what)).split()[1])

    def snapshot(self, name, number):
        """Counts the copies of a file of this workspace. Waits for a merge of millions of names."""
        self.client.write_file(name, f"n{number}", b"x")

        def taken():
            try:
                return self.client.snapshot(name)
            except raw_api.ApiError as refused:
                if "still being merged" not in str(refused):
                    raise
        return harness.wait_until(taken, seconds=600, what="a snapshot")

    def test_a_workspace_with_any_contents_starts_after_60_snapshots(self):
        self.client.create(repo_url=self.url, name="deep", limits={"disk_bytes": 0, "disk_files": 0})  # they are not counted
        self.run_in("deep", "python3", "-c", NEST)
        self.run_in("deep", "python3", "-c", FILL)
        self.client.stop("deep")
        pathlib.Path(f"/proc/{self.daemon.process.pid}/clear_refs").write_text("5")  # VmHWM restarts here
        before = self.memory_kb("VmRSS")
        for number in range(SNAPSHOTS):
            self.snapshot("deep", number)
        self.assertEqual(self.output("deep", "python3", "-c", LOOK), "deep\n")
        self.assertEqual(self.output("deep", "sh", "-c", "ls -f many | wc -l; ls -d n* | wc -l").split(),
                         [str(NAMES + 2), str(SNAPSHOTS)])
        self.assertEqual(len(self.client.snapshots("deep")), SNAPSHOTS)
        if not harness.SANITIZED:
            self.assertLess(self.memory_kb("VmHWM") - before, EXTRA_KB)
        self.client.delete("deep", purge=True)

    def test_a_purge_succeeds_during_a_merge_of_its_layers(self):
        gates = {point: self.daemon.store.parent / f"gate-{point}" for point in ("flatten.after_files", "collect.after_files")}
        merges, collects = gates.values()
        self.daemon.kill()
        self.daemon.environment["MOORAGE_PAUSE_AT"] = ",".join(f"{point}={gate}" for point, gate in gates.items())
        try:
            self.daemon.start()
            merges.touch()
            self.client.create(repo_url=self.url, name="gone")
            for number in range(DEEP):
                self.client.write_file("gone", f"n{number}", b"x")
                self.client.snapshot("gone")
            reached = [gate.with_name(f"{gate.name}.reached") for gate in gates.values()]
            harness.wait_until(reached[0].exists, what="the layers are merged")
            collects.touch()
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                purge = pool.submit(self.client.delete, "gone", purge=True)
                harness.wait_until(reached[1].exists, what="the files of the layers are gone")
                merges.unlink()
                harness.wait_until(lambda: re.search(r"layers\.(not_)?flattened", self.daemon.log.read_text()), what="the merge's end")
                collects.unlink()
                purge.result()
            harness.wait_until(lambda: not list((self.daemon.store / "layers").iterdir()), what="nothing is left of it")
        finally:
            for gate in gates.values():
                gate.unlink(missing_ok=True)
            del self.daemon.environment["MOORAGE_PAUSE_AT"]

    def test_a_chain_that_cannot_be_merged_refuses_a_snapshot_and_never_a_start(self):
        self.client.create(repo_url=self.url, name="stuck")
        self.output("stuck", "mkdir", "covered")
        self.client.stop("stuck")
        first = self.client.snapshot("stuck")
        # A mount by root in the oldest frozen layer: no merge enters it.
        oldest = min((self.daemon.store / "layers").iterdir(), key=lambda layer: int(layer.name.split("_")[1]))
        covered = oldest / "tree" / "upper" / "covered"
        harness.run("mount", "-t", "tmpfs", "none", covered)
        self.addCleanup(harness.run, "umount", covered, check=False)
        with self.assertRaises(raw_api.ApiError) as refused:
            for number in range(SNAPSHOTS):
                self.client.write_file("stuck", f"n{number}", b"x")
                self.client.snapshot("stuck")
        self.assertEqual(refused.exception.code, "resource_exhausted")
        self.assertIn("cannot be merged", str(refused.exception))
        taken = len(self.client.snapshots("stuck"))
        self.assertGreater(taken, 40)
        self.assertEqual(self.output("stuck", "sh", "-c", "ls -d n* | wc -l").strip(), str(taken))
        self.client.stop("stuck")
        self.client.fork("stuck", names=["branched"], snapshot=first["id"])
        self.assertEqual(self.output("branched", "ls", "-d", "covered").strip(), "covered")
        harness.run("umount", covered)
        self.client.snapshot("stuck")
        self.assertEqual(self.output("stuck", "sh", "-c", "ls -d n* | wc -l").strip(), str(taken))
        for name in ("branched", "stuck"):
            self.client.delete(name, purge=True)


if __name__ == "__main__":
    unittest.main()
