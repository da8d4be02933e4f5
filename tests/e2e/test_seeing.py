"""What a person sees of the commands, the disk and the daemon: categories, history, du, metrics, top."""

import json
import os
import unittest

import harness

FORKS = "import os, time\ntry:\n  for _ in range(200):\n    if os.fork() == 0: time.sleep(1); os._exit(0)\nexcept OSError: raise SystemExit(3)"
CONNECT = "import socket; socket.create_connection(('{}', 80), 2)"


class Categories(harness.TestCase):
    def setUp(self):
        self.name = f"cat-{self._testMethodName.replace('_', '-')}"[:60].rstrip("-")
        self.client.create(repo_url=self.url, name=self.name, limits={"memory_bytes": 256 << 20, "pids": 64})

    def end_of(self, argv, **fields):
        return self.client.exec(self.name, argv, **fields).exec

    def category(self, argv, **fields):
        return self.end_of(argv, **fields).get("category")

    def test_by_itself(self):
        for command in ("true", "exit 1", "exit 127", "no-such-program"):  # the last is the shell's 127
            self.assertIsNone(self.category(command), command)

    def test_starts_that_fail(self):
        self.client.write_file(self.name, "plain", b"echo hi\n", mode="0644")
        self.client.write_file(self.name, "bad", b"#!/no/interpreter\n", mode="0755")
        self.assertEqual(self.category(["no-such-program"]), "not_found")
        self.assertEqual(self.category(["./nothing"]), "not_found")
        self.assertEqual(self.category(["./plain"]), "not_executable")
        self.assertEqual(self.category(["./bad"]), "not_executable")
        self.assertEqual(self.category(["true"], cwd="/nowhere"), "not_started")
        result = self.daemon.cli("exec", self.name, "--", "no-such-program", check=False)
        self.assertEqual(result.returncode, 127)

    def test_ends_from_outside(self):
        self.assertEqual(self.category(["sleep", "60"], timeout_ms=200), "timeout")
        self.assertEqual(self.category("kill -SEGV $$"), "signal")
        running = self.client.start_exec(self.name, ["sleep", "60"])["id"]
        self.client.cancel(running)
        self.assertEqual(self.client.wait(running)["category"], "cancelled")

    def test_a_stop_and_a_death_of_the_sandbox(self):
        running = self.client.start_exec(self.name, ["sleep", "60"])["id"]
        self.client.stop(self.name)
        self.assertEqual(self.client.wait(running)["category"], "stopped")
        self.assertIn("(stopped)", self.daemon.cli("ps", self.name).stdout.decode())
        running = self.client.start_exec(self.name, ["sleep", "60"])["id"]
        os.kill(self.daemon.sandbox_pids(self.name)["init"], 9)
        self.assertEqual(self.client.wait(running)["category"], "lost")

    def test_memory(self):
        eat = "import sys; x = bytearray(1 << 30)"
        end = self.end_of(["python3", "-c", eat])
        self.assertEqual((end["state"], end["category"]), ("oom_killed", "out_of_memory"))
        end = self.end_of(f"python3 -c '{eat}'; exit 2")  # as make does when its compiler is killed
        self.assertEqual((end["state"], end["exit_code"], end["category"]), ("exited", 2, "out_of_memory"))

    def test_processes(self):
        self.assertEqual(self.category(["python3", "-c", FORKS]), "pids_limit")
        self.assertIsNone(self.category(f"python3 -c '{FORKS}'; exit 0"), "it succeeded all the same")
        self.assertIsNone(self.category("exit 1"), "what was refused before is no reason")

    def test_network(self):
        for address in ("192.0.2.1", "2001:db8::1"):
            self.assertEqual(self.category(["python3", "-c", CONNECT.format(address)]), "network_denied")
        self.assertIsNone(self.category(["python3", "-c", CONNECT.format("127.0.0.1")]))
        self.assertIsNone(self.category("exit 1"))
        said = self.daemon.cli("exec", self.name, "--", "python3", "-c", CONNECT.format("192.0.2.1"), check=False)
        self.assertIn(b"wanted a network", said.stderr)

    def test_a_restart_of_the_daemon_keeps_them(self):
        running = self.client.start_exec(self.name, ["sh", "-c", "sleep 1; exec ./plain"])["id"]
        failed = self.end_of(["no-such-program"])["id"]
        self.daemon.restart()
        self.assertEqual(self.client.get_exec(failed)["category"], "not_found")
        self.assertNotIn("category", self.client.wait(running))


class History(harness.TestCase):
    def test_one_list_in_order_with_exit_and_changes(self):
        self.client.create(repo_url=self.url, name="told")
        self.assertEqual(self.client.history("told"), {
            "workspace": {"id": self.client.workspace("told")["id"], "name": "told", "state": "ready"},
            "execs": [], "truncated": False})
        self.client.exec("told", "echo out; echo 1 > one; echo 2 > two")
        first = self.client.history("told")["execs"]
        self.assertEqual([e["changed_files"] for e in first], [2])
        self.client.exec("told", ["no-such-program"])
        self.client.exec("told", "rm one; echo 3 > README.md; echo 4 > new")
        execs = self.client.history("told")["execs"]
        self.assertEqual([e["id"] for e in execs], sorted((e["id"] for e in execs), key=lambda i: int(i[3:])))
        self.assertEqual(execs[0], first[0])
        self.assertEqual([e["exit_code"] for e in execs], [0, 127, 0])
        self.assertEqual([e["owner"] for e in execs], [os.getuid()] * 3)
        self.assertEqual(execs[2]["changed_files"], 3)
        lines = self.daemon.cli("history", "told").stdout.decode().splitlines()
        self.assertEqual(lines[0].split(), ["EXEC", "STARTED", "TOOK", "BY", "EXIT", "CHANGED", "OUTPUT", "COMMAND"])
        self.assertRegex(lines[1], r"^ex_\d+ +\d+s ago +\S+ \S+ +you +0 +2 files +4 +bash -c ")
        self.assertRegex(lines[2], r" you +127 not_found +- +0 +no-such-program$")
        self.assertEqual(json.loads(self.daemon.cli("history", "told", "--json").stdout), self.client.history("told"))

    def test_while_a_command_runs_nothing_is_counted_for_another(self):
        self.client.create(repo_url=self.url, name="busy")
        running = self.client.start_exec("busy", ["cat"], stdin=True)["id"]
        self.client.exec("busy", "echo 1 > one")
        execs = self.client.history("busy")["execs"]
        self.assertEqual([("changed_files" in e, e["state"]) for e in execs], [(False, "running"), (False, "exited")])
        self.client.send_input(running, b"", close=True)
        self.client.wait(running)
        execs = self.client.history("busy")["execs"]
        self.assertEqual([e.get("changed_files") for e in execs], [1, None], "the one that ended last left it so")

    def test_stopped_deleted_undeleted_and_purged(self):
        self.client.create(repo_url=self.url, name="gone")
        self.client.exec("gone", "echo 1 > one")
        before = self.client.history("gone")["execs"]
        self.client.stop("gone")
        self.assertEqual(self.client.history("gone")["execs"], before)
        gone = self.client.delete("gone")["id"]
        for name in ("gone", gone):
            history = self.client.history(name)
            self.assertEqual((history["execs"], history["workspace"]["state"]), (before, "deleted"))
        self.assertIn(b"moorage undelete " + gone.encode(), self.daemon.cli("history", "gone").stderr)
        self.client.create(repo_url=self.url, name="gone")
        self.assertEqual(self.client.history("gone")["execs"], [], "a live one of that name comes first")
        self.client.delete("gone", purge=True)
        self.client.delete(gone, purge=True)
        missing = self.daemon.cli("history", "gone", check=False)
        self.assertEqual(missing.returncode, 1)
        self.assertIn(b"there is no workspace 'gone'", missing.stderr)

    def test_limits_and_pages(self):
        self.client.create(repo_url=self.url, name="pages")
        ids = [self.client.exec("pages", ["true"]).exec["id"] for _ in range(5)]
        page = self.client.history("pages", limit=2)
        self.assertEqual(([e["id"] for e in page["execs"]], page["truncated"]), (ids[3:], True))
        page = self.client.history("pages", limit=3, before=ids[3])
        self.assertEqual(([e["id"] for e in page["execs"]], page["truncated"]), (ids[:3], False))
        self.assertEqual(len(self.daemon.cli("history", "pages", "-n", "2").stdout.splitlines()), 3)
        for bad in ("0", "x", "1001", "-1"):
            refused = self.daemon.cli("history", "pages", f"--limit={bad}", check=False)
            self.assertEqual(refused.returncode, 1)
            self.assertIn(b"--limit", refused.stderr)

    def test_a_hostile_name_drives_no_terminal(self):
        self.client.create(repo_url=self.url, name="hostile")
        self.client.exec("hostile", ["true", "\x1b[2J\x1b]0;owned\x07\r\n\u202e evil"])
        out = self.daemon.cli("history", "hostile").stdout
        self.assertNotRegex(out, b"[\x00-\x09\x0b-\x1f\x7f]")
        self.assertNotIn("\u202e".encode(), out)
        self.assertIn(b"\\x1b[2J", out)
        self.assertEqual(len(out.splitlines()), 2)


if __name__ == "__main__":
    unittest.main()
