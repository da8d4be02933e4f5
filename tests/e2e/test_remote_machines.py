"""Machines elsewhere that nothing here uses any more: found, shown, removed, and never waited for."""

import json
import unittest

import harness
import raw_api
import on_ssh


class RemoteMachines(on_ssh.OnSsh):
    more = {"daemon.reconcile_interval_s": 1, "remote.start_deadline_s": 10}

    def create(self, name, **fields):
        self.addCleanup(self.client.delete, name, purge=True)
        return super().create(name, **fields)

    def findings(self, *options):
        done = self.daemon.cli("--json", "doctor", *options, check=False)
        return {finding["subject"]: finding for finding in json.loads(done.stdout)["findings"] if finding["check"] == "machines"}

    def hosts_of_info(self):
        backends = json.loads(self.daemon.cli("--json", "info").stdout)["backends"]
        return {host["name"]: host for backend in backends for host in backend.get("hosts", [])}

    def name_of(self, workspace):
        return self.prefix() + self.client.workspace(workspace)["sandbox"]["id"]

    def prefix(self):
        return f"moorage-{self.daemon.known_store_id}-"

    def notes(self):
        return sorted(path.stem for path in (self.daemon.store / "remote").glob("*.json"))

    def test_info_shows_the_use_of_each_host(self):
        self.create("counted")
        self.out("counted", "true")
        hosts = self.hosts_of_info()
        self.assertEqual((hosts["spare"]["sandboxes"], hosts["spare"]["max_sandboxes"]), (1, 8))
        self.assertIn("last_contact", hosts["spare"])
        self.assertEqual(hosts["other"]["sandboxes"], 0)
        self.assertRegex(" ".join(self.daemon.cli("info").stdout.decode().split()), r"spare: 1 of 8 sandboxes, changes found in an overlay \(root\), limits hold on [a-z, ]+, answered at ")
        self.client.stop("counted")
        self.assertEqual(self.hosts_of_info()["spare"]["sandboxes"], 0)

    def test_a_machine_that_could_not_be_reached_is_removed_once_it_can(self):
        self.create("cut")
        self.out("cut", "true")
        self.client.stop("cut")
        self.host.pull_cable()
        try:
            with self.assertRaises(raw_api.ApiError) as caught:
                self.client.exec("cut", ["true"])
            self.assertIn("could not be started: on spare: ", caught.exception.message)
            name, = self.notes()
            (self.host.directory / "sandboxes" / name).mkdir(0o700)  # as if its answer alone was lost
            self.daemon.restart()
            self.assertEqual(self.notes(), [name])
            found = self.findings()
            self.assertIn("may still exist on spare (ssh)", found[name]["text"])
            self.assertIn("spare did not say which sandboxes it has", found["ssh/spare"]["text"])
            self.assertNotIn("ssh/other", found)
            self.assertEqual(self.there(), [name])
        finally:
            self.host.plug_in_cable()
        self.findings("--fix")
        harness.wait_until(lambda: self.notes() == [], what="the note is gone")
        self.assertEqual(self.there(), [])
        self.assertEqual(self.findings(), {})

    def test_a_sandbox_there_that_nothing_here_knows_is_shown_and_removed(self):
        self.create("known")
        self.out("known", "true")
        stray = self.prefix() + "sb_999999"
        foreign = "moorage-of-another-store-sb_1"
        for each in (stray, foreign):
            (self.host.directory / "sandboxes" / each).mkdir(0o700)
        self.assertEqual(self.findings()[stray]["text"], "a sandbox exists on spare (ssh) that state.db does not list")
        self.assertTrue(self.findings("--fix")[stray]["mended"])
        self.assertEqual(self.there(), sorted([foreign, self.name_of("known")]))
        self.assertEqual(self.out("known", "echo works"), "works")


if __name__ == "__main__":
    unittest.main()
