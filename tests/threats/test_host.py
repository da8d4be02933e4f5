"""Effects of the host on the store."""

import json
import unittest
import uuid

from threat import Threats, harness, threat


class Host(Threats):
    settings = {"daemon.reconcile_interval_s": 1}

    def start_in_another_boot(self):
        """The daemon with a boot id like after a reboot: a file in its place, in the daemon's own mount namespace."""
        forged = self.daemon.directory / "boot_id"
        forged.write_text(f"{uuid.uuid4()}\n")
        script = f'mount --bind {forged} /proc/sys/kernel/random/boot_id && exec "$@"'
        self.daemon.start(prefix=("unshare", "-m", "sh", "-c", script, "sh"))

    @threat(65, "H", "the host reboots: pids, cgroups and mounts in the database mean nothing any more",
                   "the boot id differs: nothing is running, workspaces are listed, mounts and sandboxes are recreated on demand",
                   "with the same boot id the daemon takes over the sandbox of the same store")
    def test_after_a_reboot_nothing_runs_and_no_work_is_lost(self):
        for name in ("up", "rest"):
            self.client.create(repo_url=self.url, name=name)
            self.client.exec(name, "echo kept > kept; echo home > ~/home", sync=True)
        self.client.stop("rest")
        job = self.client.start_exec("up", ["sh", "-c", "echo begun; sleep 600"])
        harness.wait_until(lambda: self.client.get_exec(job["id"])["output_bytes"] > 0, what="output")
        pids = self.daemon.sandbox_pids("up")
        self.daemon.restart()  # the control: without a reboot it is adopted
        self.assertEqual(self.daemon.sandbox_pids("up")["init"], pids["init"])
        self.assertEqual(self.client.get_exec(job["id"])["state"], "running")

        self.daemon.kill()
        harness.end_sandboxes(pids["name"])  # all processes and cgroups, like a power cut
        self.start_in_another_boot()
        try:
            listed = {w["name"]: w for w in self.client.workspaces()}
            for name in ("up", "rest"):
                self.assertEqual((listed[name]["state"], listed[name].get("sandbox")), ("ready", None))
            self.assertEqual(self.client.get_exec(job["id"])["state"], "interrupted")
            self.assertIn("the host went down while it ran", listed["up"]["integrity"]["reason"])
            self.assertEqual(self.client.workspace("rest")["integrity"]["state"], "intact")
            self.assertTrue(json.loads(self.daemon.cli("--json", "doctor", check=False).stdout)["clean"])
            for name in ("up", "rest"):  # mounts come back on demand
                self.assertEqual(self.client.read_file(name, "kept"), b"kept\n")
        finally:
            # With a mount in its /proc no sandbox can mount its own, so they restart with the real boot id.
            self.daemon.restart()
        self.assertEqual([w for w in self.client.workspaces() if w.get("sandbox")], [])
        for name in ("up", "rest"):
            self.assertEqual(self.client.exec(name, "cat kept ~/home").stdout, b"kept\nhome\n")


if __name__ == "__main__":
    unittest.main()
