"""The bench measures and cleans up: on a small tree, ignoring the figures."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import harness


class Bench(unittest.TestCase):
    def ran(self, rows, exit_code=0, broken_git=None):
        """Returns (figures, output). broken_git: this git command fails in the run."""
        with tempfile.TemporaryDirectory(prefix="moorage-e2e-", dir=harness.BASE) as place:
            tree, figures, programs = (pathlib.Path(place) / name for name in ("tree", "figures.json", "bin"))
            harness.make_repository(tree, {f"d{i % 30}/f{i}": f"{i}\n" for i in range(1000)})
            programs.mkdir()
            if broken_git:
                (programs / "git").write_text(f'#!/bin/sh\n[ "$3" != {broken_git} ] || exit 1\nexec {shutil.which("git")} "$@"\n')
                (programs / "git").chmod(0o755)
            ran = subprocess.run([sys.executable, "-W", "ignore", harness.ROOT / "bench/run", "--tree", tree,
                                  "--only", rows, "--json", figures], capture_output=True, text=True,
                                 env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"})
            self.assertEqual(ran.returncode, exit_code, ran.stdout + ran.stderr)
            self.assertNotIn("left over", ran.stdout + ran.stderr)
            return json.loads(figures.read_text()), ran.stdout + ran.stderr

    def measured(self, rows):
        return self.ran(rows)[0]

    def test_rows_include_their_syncs_and_nothing_is_left(self):
        found = self.measured("create,tti,snapshot,fork,restore,diff,create_delta,base_tree")
        rows = {row["name"]: row for row in found}
        for name in ("create", "tti"):
            self.assertGreater(rows[name]["p50_ms"], 0)
            self.assertGreater(rows[name]["syncs"], 0)
        for name in ("snapshot", "snapshot_live", "snapshot_held", "fork", "restore", "diff", "create_delta", "base_tree"):
            self.assertGreater(rows[name]["p50_ms"], 0)
        self.assertLessEqual({"git_worktree", "cp_reflink_xfs", "cp_reflink_btrfs"}, {row.get("peer") for row in found if row["name"] == "fork"})
        self.assertTrue(rows["fork_disk"]["holds"], rows["fork_disk"])

    def test_rows_of_the_network_are_compared_with_direct_connections(self):
        rows = {(row["name"], row["peer"]): row for row in self.measured("net_connect,net_throughput,net_terminated")}
        for name in ("net_connect", "net_connect_tls", "net_connect_fresh", "net_throughput", "net_upload"):
            self.assertGreater(rows[name, "direct"]["ratio"], 0)
        self.assertGreater(rows["net_connect_first", None]["p50_ms"], 0)
        for name, peer in (("net_terminated", "passed"), ("net_terminated_get", "direct"), ("net_terminated_put", "direct")):
            self.assertGreater(rows[name, peer]["ratio"], 0)

    @unittest.skipUnless(os.environ.get("CI") or shutil.which("rsync"), "SKIP: no rsync")
    def test_rows_of_another_machine_are_compared_with_ssh_and_rsync(self):
        rows = {(row["name"], row["peer"]): row for row in
                self.measured("remote_exec,remote_push,remote_push_changed,remote_sync")}
        for name, peer in (("remote_exec", "ssh"), ("remote_push", "rsync"), ("remote_push_changed", "rsync"),
                           ("remote_sync", "unchanged")):
            self.assertGreater(rows[name, peer]["ratio"], 0)

    def test_a_failed_row_keeps_the_others(self):
        found, printed = self.ran("diff,base_tree", exit_code=1, broken_git="mktree")
        self.assertIn("diff", [row["name"] for row in found])
        self.assertIn("bench: not measured because of the errors above: base_tree", printed)

    @unittest.skipUnless(os.environ.get("CI") or shutil.which("dockerd"), "SKIP: no container engine")
    def test_rows_of_backend_docker_are_compared_with_the_plain_engine(self):
        rows = {(row["name"], row["peer"]): row for row in self.measured("exec_docker,start_docker,move")}
        for name, peer in (("exec_docker", "docker_exec_api"), ("exec_docker_cli", "docker_exec"),
                           ("start_docker", "docker_run"), ("start_docker", "docker_run_api")):
            self.assertGreater(rows[name, peer]["ratio"], 0)
        for name in ("move", "move_back"):
            self.assertGreater(rows[name, None]["p50_ms"], 0)


if __name__ == "__main__":
    unittest.main()
