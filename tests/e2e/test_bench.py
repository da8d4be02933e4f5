"""The bench measures and cleans up: on a small tree, and not for its figures."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import harness


class Bench(unittest.TestCase):
    def test_rows_come_with_their_syncs_and_nothing_is_left(self):
        with tempfile.TemporaryDirectory(prefix="moorage-e2e-", dir=harness.BASE) as place:
            tree, figures = pathlib.Path(place) / "tree", pathlib.Path(place) / "figures.json"
            harness.make_repository(tree, {f"d{i % 30}/f{i}": f"{i}\n" for i in range(1000)})
            ran = subprocess.run([sys.executable, "-W", "ignore", harness.ROOT / "bench/run", "--tree", tree,
                                  "--only", "create,tti,snapshot,fork,restore,diff,create_delta", "--json", figures], capture_output=True, text=True)
            self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
            self.assertNotIn("left over", ran.stdout + ran.stderr)
            found = json.loads(figures.read_text())
        rows = {row["name"]: row for row in found}
        for name in ("create", "tti"):
            self.assertGreater(rows[name]["p50_ms"], 0)
            self.assertGreater(rows[name]["syncs"], 0)
        for name in ("snapshot", "snapshot_live", "snapshot_held", "fork", "restore", "diff", "create_delta"):
            self.assertGreater(rows[name]["p50_ms"], 0)
        self.assertLessEqual({"git_worktree", "cp_reflink_xfs", "cp_reflink_btrfs"}, {row.get("peer") for row in found if row["name"] == "fork"})
        self.assertTrue(rows["fork_disk"]["holds"], rows["fork_disk"])


if __name__ == "__main__":
    unittest.main()
