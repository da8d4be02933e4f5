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


if __name__ == "__main__":
    unittest.main()
