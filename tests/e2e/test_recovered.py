"""A workspace goes on without the last changes of a machine that was cut off: when the machine answers again, they come as a
fork, once, whatever dies meanwhile. They are never merged, and nothing runs on there."""

import json
import os
import pathlib
import re
import signal
import unittest

import harness
import raw_api
import on_ssh

# Waits for SIGUSR1, so that its edits come when the machine is cut off.
LATE = """trap 'echo late > late; echo changed > src/a.txt; rm README.md; mkdir -p dir; ln -s x dir/link; echo h > ~/late
echo more output; touch done' USR1
echo NAME; while :; do sleep 0.05; done"""


class Recovered(on_ssh.OnSsh):
    more = {"daemon.reconcile_interval_s": 1}

    def setUp(self):
        super().setUp()
        self.addCleanup(self.clear)

    def clear(self):
        self.host.plug_in_cable()
        for workspace in self.client.workspaces():
            self.client.delete(workspace["id"], purge=True, force=True)
        harness.wait_until(lambda: not self.notes() and not self.there(), 60, "nothing is left there")

    def notes(self):
        return sorted(path.stem for path in (self.daemon.store / "remote").glob("*.json"))

    def salvages(self):
        path = self.daemon.store / "salvage"
        return sorted(entry.name for entry in path.iterdir()) if path.exists() else []

    def findings(self, *options):
        done = self.daemon.cli("--json", "doctor", *options, check=False)
        return [finding for finding in json.loads(done.stdout)["findings"] if finding["check"] == "machines"]

    def forks(self, name):
        return sorted(w["name"] for w in self.client.workspaces() if w["name"].startswith(f"{name}-recovered"))

    def upper(self, there):
        return self.host.directory / "sandboxes" / there / "tree" / "upper"

    def run_late(self, name):
        """A command that runs there. Returns its record, the name of the sandbox, and what makes the late edits."""
        self.create(name)
        self.out(name, "echo kept > kept")
        record = self.client.start_exec(name, ["sh", "-c", LATE.replace("NAME", name)])
        harness.wait_until(lambda: name.encode() in self.client.raw_output(record["id"]), what="output")
        there = self.name_of(name)

        def edit():
            pids = [pid for pid in os.listdir("/proc") if pid.isdigit() and f"echo {name};" in cmdline(pid)]
            self.assertTrue(pids)
            for pid in pids:
                os.kill(int(pid), signal.SIGUSR1)
            harness.wait_until((self.upper(there) / "done").exists, what="the edits there")
        return record, there, edit

    def go_on_elsewhere(self, name):
        """While the machine cannot be reached."""
        self.client.stop(name, force=True)
        self.client.move(name, backend="lxc")
        self.assertEqual(self.out(name, "cat kept src/a.txt; ls"), "kept\na\nREADME.md\nkept\nsrc")
        self.out(name, "echo elsewhere > late")

    def assert_recovered(self, name, fork):
        self.assertEqual(self.out(fork, "cat kept late src/a.txt ~/late; readlink dir/link; ls"),
                         "kept\nlate\nchanged\nh\nx\ndir\ndone\nkept\nlate\nsrc")
        self.assertEqual(self.out(name, "cat kept late src/a.txt; ls; ls ~"), "kept\nelsewhere\na\nREADME.md\nkept\nlate\nsrc")
        self.assertNotIn("notice", self.client.workspace(name))

    def reach_again(self):
        """With a daemon that has not yet begun to wait longer between its tries."""
        self.daemon.kill()
        self.host.plug_in_cable()
        self.daemon.start()

    def wait_removed(self):
        harness.wait_until(lambda: not self.notes() and not self.salvages(), 60, "the machine is removed")
        self.assertEqual(self.there(), [])

    def test_late_changes_come_as_a_fork_and_nothing_runs_on(self):
        record, there, edit = self.run_late("web")
        self.host.pull_cable()
        edit()
        self.go_on_elsewhere("web")
        self.assertEqual(self.notes(), [there])
        notice = "on spare may have changes that did not arrive; they come as web-recovered once it answers"
        self.assertIn(notice, self.client.workspace("web")["notice"])
        self.assertIn(notice, self.daemon.cli("show", "web").stdout.decode())
        text = next(finding["text"] for finding in self.findings() if finding["subject"] == there)
        self.assertIn("web went on without the last changes on spare (ssh)", text)
        base, = [snapshot for snapshot in self.client.snapshots("web") if snapshot["name"].startswith("given-up-sb-")]
        self.host.plug_in_cable()
        harness.wait_until(lambda: self.forks("web"), 120, "the fork")
        self.wait_removed()
        self.assertEqual(self.forks("web"), ["web-recovered"])
        self.assert_recovered("web", "web-recovered")
        self.assertFalse(any("echo web;" in cmdline(pid) for pid in os.listdir("/proc") if pid.isdigit()), "it runs on there")
        end = self.client.wait(record["id"])
        self.assertEqual(end["state"], "interrupted")
        self.assertNotIn(b"more output", self.client.raw_output(record["id"]))
        events = [event for event in self.client.events() if event["kind"] == "sandbox.recovered"]
        self.assertIn("that had not arrived are in web-recovered", events[-1]["text"])
        fork = self.client.workspace("web-recovered")
        self.assertEqual(fork["forked_from"], base["id"])
        self.assertEqual(self.findings(), [])

    def test_without_changes_there_is_no_fork(self):
        self.run_late("same")
        self.client.status("same")  # fetches everything
        self.host.pull_cable()
        self.go_on_elsewhere("same")
        self.reach_again()
        self.wait_removed()
        self.assertEqual(self.forks("same"), [])
        self.assertEqual([snapshot["name"] for snapshot in self.client.snapshots("same") if snapshot["name"]], [])
        last = [event["text"] for event in self.client.events() if event["kind"] == "sandbox.not_forked"][-1]
        self.assertEqual(last, "all changes of its machine had arrived")

    def test_a_deleted_workspace_wants_nothing_of_its_machine(self):
        _, _, edit = self.run_late("gone")
        self.host.pull_cable()
        edit()
        self.client.delete("gone", force=True)
        self.reach_again()
        self.wait_removed()
        self.assertEqual(self.forks("gone"), [])

    def test_a_pack_that_breaks_the_rules_is_held_for_a_person(self):
        _, there, edit = self.run_late("bad")
        self.host.pull_cable()
        edit()
        self.go_on_elsewhere("bad")
        self.daemon.kill()
        salvage = self.daemon.store / "salvage" / re.search(r"sb_\d+$", there)[0]
        (salvage / "incoming").mkdir(parents=True)
        (salvage / "incoming" / "7.pack").write_bytes(b"not a pack")  # as if the machine had sent it
        (salvage / "fetched").touch()
        self.host.plug_in_cable()
        self.daemon.start()
        harness.wait_until(lambda: "cannot be taken over" in self.client.workspace("bad")["notice"], 60, what="it is held")
        finding = next(finding for finding in self.findings() if finding["subject"] == there)
        self.assertEqual(finding["severity"], "error")
        self.assertIn("cannot be taken over", finding["text"])
        give_up = re.search(r"moorage (drop bad given-up-sb-\d+) gives them up", finding["command"])[1]
        tries = [event for event in self.client.events() if event["kind"] == "sandbox.not_recovered"]
        self.assertEqual((self.there(), self.notes(), len(tries)), ([there], [there], 1))
        self.assertEqual(self.out("bad", "cat kept"), "kept")
        self.daemon.cli(*give_up.split())
        self.findings("--fix")
        self.wait_removed()
        self.assertEqual(self.forks("bad"), [])

    def test_a_kill_at_any_point_neither_loses_it_nor_makes_two(self):
        points = harness.run(harness.BIN / "mooraged", "--list-crash-points").stdout.decode().split()
        mine = [point for point in points if point.partition(".")[0] in ("give_up", "salvage")]
        self.assertGreaterEqual(len(mine), 9)
        for number, point in enumerate(mine):
            with self.subTest(point):
                name = f"point{number}"
                _, _, edit = self.run_late(name)
                self.host.pull_cable()
                edit()
                early = point.startswith("give_up.")
                if early:
                    self.daemon.kill()
                    self.daemon.start(crash_at=point)
                    with self.assertRaises((OSError, raw_api.ApiError)):
                        self.client.stop(name, force=True)
                    self.assertEqual(self.daemon.process.wait(30), -signal.SIGKILL)
                    self.daemon.start()
                self.go_on_elsewhere(name)
                self.daemon.kill()
                self.host.plug_in_cable()
                if not early:
                    self.daemon.start(crash_at=point, wait=False)
                    self.assertEqual(self.daemon.process.wait(60), -signal.SIGKILL, self.daemon.log_tail())
                self.daemon.start()
                harness.wait_until(lambda: self.forks(name), 60, "the fork")
                self.wait_removed()
                self.assertEqual(self.forks(name), [f"{name}-recovered"])
                self.assert_recovered(name, f"{name}-recovered")
                self.clear()


def cmdline(pid):
    try:
        return pathlib.Path("/proc", pid, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


if __name__ == "__main__":
    unittest.main()
