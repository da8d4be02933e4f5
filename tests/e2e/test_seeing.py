"""What a person sees of the commands, the disk and the daemon: categories, history, du, metrics, top."""

import json
import os
import pathlib
import shutil
import unittest

import harness
import moorage

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


class Metrics(harness.TestCase):
    def scrape(self):
        """Samples as {(name, labels): value}, by the parser that Prometheus gives out; promtool's opinion where it is."""
        try:
            from prometheus_client.parser import text_string_to_metric_families
        except ImportError:
            if os.environ.get("CI"):
                raise
            self.skipTest("SKIP: no python3-prometheus-client")
        connection = moorage._Connection(str(self.daemon.socket), 30)
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        self.assertEqual(response.status, 200)
        self.assertEqual(response.getheader("Content-Type"), "text/plain; version=0.0.4; charset=utf-8")
        if shutil.which("promtool"):
            harness.run("promtool", "check", "metrics", input=text.encode())
        self.families = {f.name: f for f in text_string_to_metric_families(text)}
        self.text = text
        return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in self.families.values() for s in f.samples}

    def value(self, name, **labels):
        return self.scrape().get((name, tuple(sorted(labels.items()))), 0)

    def test_what_happens_is_counted(self):
        before = self.scrape()
        self.client.create(repo_url=self.url, name="counted")
        self.client.exec("counted", "printf 12345")
        self.client.exec("counted", ["no-such-program"])
        with self.assertRaises(moorage.MoorageError):
            self.client.stop("nobody")
        with self.assertRaises(moorage.MoorageError):
            self.client.request("GET", "/nowhere")
        after = self.scrape()

        def more(name, **labels):
            key = (name, tuple(sorted(labels.items())))
            return after.get(key, 0) - before.get(key, 0)

        self.assertEqual(more("moorage_verb_duration_seconds_count", verb="create"), 1)
        self.assertEqual(more("moorage_verb_duration_seconds_bucket", verb="create", le="+Inf"), 1)
        self.assertEqual(more("moorage_verb_duration_seconds_count", verb="exec"), 2)
        self.assertEqual(more("moorage_verb_refusals_total", verb="stop", code="not_found"), 1)
        self.assertEqual(more("moorage_sandbox_start_duration_seconds_count"), 1)
        self.assertEqual(more("moorage_exec_start_duration_seconds_count"), 2)
        self.assertEqual(more("moorage_exec_duration_seconds_count"), 2)
        self.assertEqual(more("moorage_exec_output_bytes_total"), 5)
        self.assertEqual(more("moorage_execs_ended_total", state="exited", category="none"), 1)
        self.assertEqual(more("moorage_execs_ended_total", state="exited", category="not_found"), 1)
        post = {"method": "POST", "route": "/v1/workspaces/{}/stop", "status": "404"}
        self.assertEqual(more("moorage_http_requests_total", **post), 1)
        self.assertEqual(more("moorage_http_requests_total", method="none", route="none", status="404"), 1)
        for name in ("moorage_workspaces", "moorage_sandboxes"):
            state = "ready" if name == "moorage_workspaces" else "running"
            harness.wait_until(lambda: self.value(name, state=state) >= 1, what=name)
        self.client.start_exec("counted", ["sleep", "60"])
        harness.wait_until(lambda: self.value("moorage_execs_running") == 1, what="moorage_execs_running")
        self.client.delete("counted")
        harness.wait_until(lambda: self.value("moorage_execs_running") == 0, what="nothing runs")

    def test_the_process_and_the_disk(self):
        samples = self.scrape()
        status = pathlib.Path(f"/proc/{self.daemon.process.pid}/status").read_text()
        threads = int(status.split("Threads:")[1].split()[0])
        resident = int(status.split("VmRSS:")[1].split()[0]) * 1024
        self.assertEqual(samples["process_threads", ()], threads)
        self.assertLess(abs(samples["process_resident_memory_bytes", ()] - resident), 16 << 20)
        fds = len(os.listdir(f"/proc/{self.daemon.process.pid}/fd"))
        self.assertLess(abs(samples["process_open_fds", ()] - fds), 5)
        disk = os.statvfs(self.daemon.store)
        self.assertEqual(samples["moorage_disk_size_bytes", ()], disk.f_blocks * disk.f_frsize)
        self.assertEqual(samples["moorage_reserve_bytes", ()], (self.daemon.store / "reserve").stat().st_size)
        self.assertGreater(samples["moorage_database_wal_bytes", ()] + samples["moorage_database_bytes", ()], 0)
        self.assertEqual(samples["moorage_http_connections", ()], 1)
        self.assertIn(("moorage_build_info", (("version", self.client.info()["version"]),)), samples)

    def test_no_name_of_anybody_is_in_it(self):
        self.client.create(repo_url=self.url, name="secret-name", labels={"secret-label": "secret-value"})
        self.client.exec("secret-name", ["sh", "-c", "exit 3", "secret-word"])
        with self.assertRaises(moorage.MoorageError):
            self.client.request("GET", "/workspaces/secret-path/nothing")
        self.scrape()
        for word in ("secret", "acme", str(self.daemon.store), "ws_", "ex_"):
            self.assertNotIn(word, self.text)
        for family in self.families.values():
            self.assertTrue(family.documentation and family.type != "unknown", family.name)

    def test_another_user_of_the_socket_may_read_it(self):
        os.chmod(self.daemon.directory, 0o711)
        os.chmod(self.daemon.socket, 0o666)
        out = harness.run("setpriv", "--reuid=65533", "--regid=65533", "--clear-groups", "curl", "-s", "--unix-socket",
                          self.daemon.socket, "http://localhost/metrics").stdout
        self.assertIn(b"moorage_build_info", out)


if __name__ == "__main__":
    unittest.main()
