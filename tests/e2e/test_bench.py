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
            harness.make_repository(tree)
            ran = subprocess.run([sys.executable, "-W", "ignore", harness.ROOT / "bench/run", "--tree", tree,
                                  "--only", "create,tti", "--json", figures], capture_output=True, text=True)
            self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
            self.assertNotIn("left over", ran.stdout + ran.stderr)
            rows = {row["name"]: row for row in json.loads(figures.read_text())}
        for name in ("create", "tti"):
            self.assertGreater(rows[name]["p50_ms"], 0)
            self.assertGreater(rows[name]["syncs"], 0)


if __name__ == "__main__":
    unittest.main()
