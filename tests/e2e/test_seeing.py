"""Views of the commands, the disk and the daemon: categories, history, du, metrics, top."""

import contextlib
import fcntl
import json
import os
import pathlib
import pty
import select
import shutil
import signal
import struct
import subprocess
import termios
import time
import unittest

import harness
import raw_api

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

    def test_ends_of_commands_by_themselves(self):
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
        self.client.stop(self.name, force=True)
        self.assertEqual(self.client.wait(running)["category"], "stopped")
        self.assertIn("(stopped by root)", self.daemon.cli("ps", self.name).stdout.decode())
        running = self.client.start_exec(self.name, ["sleep", "60"])["id"]
        os.kill(self.daemon.sandbox_pids(self.name)["init"], 9)
        self.assertEqual(self.client.wait(running)["category"], "lost")

    def test_out_of_memory(self):
        eat = "import sys; x = bytearray(1 << 30)"
        end = self.end_of(["python3", "-c", eat])
        self.assertEqual((end["state"], end["category"]), ("oom_killed", "out_of_memory"))
        end = self.end_of(f"python3 -c '{eat}'; exit 2")  # like make after its compiler was killed
        self.assertEqual((end["state"], end["exit_code"], end["category"]), ("exited", 2, "out_of_memory"))

    def test_process_limit(self):
        self.assertEqual(self.category(["python3", "-c", FORKS]), "pids_limit")
        self.assertIsNone(self.category(f"python3 -c '{FORKS}'; exit 0"), "it succeeded all the same")
        self.assertIsNone(self.category("exit 1"), "an earlier refusal does not count as the reason")

    def test_network_denied(self):
        for address in ("192.0.2.1", "2001:db8::1"):
            self.assertEqual(self.category(["python3", "-c", CONNECT.format(address)]), "network_denied")
        self.assertIsNone(self.category(["python3", "-c", CONNECT.format("127.0.0.1")]))
        self.assertIsNone(self.category("exit 1"))
        said = self.daemon.cli("exec", self.name, "--", "python3", "-c", CONNECT.format("192.0.2.1"), check=False)
        self.assertIn(b"needs a network", said.stderr)

    def test_categories_survive_a_restart_of_the_daemon(self):
        running = self.client.start_exec(self.name, ["sh", "-c", "sleep 1; exec ./plain"])["id"]
        failed = self.end_of(["no-such-program"])["id"]
        self.daemon.restart()
        self.assertEqual(self.client.get_exec(failed)["category"], "not_found")
        self.assertNotIn("category", self.client.wait(running))


class History(harness.TestCase):
    def test_history_lists_events_in_order_with_exit_codes_and_changes(self):
        self.client.create(repo_url=self.url, name="told")
        self.assertEqual(self.client.history("told"), {
            "workspace": {"id": self.client.workspace("told")["id"], "name": "told", "state": "ready"},
            "execs": [], "truncated": False, "total": 0})
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
        self.assertEqual(lines[0].split(), ["EXEC", "STARTED", "TOOK", "BY", "END", "CHANGED", "OUTPUT", "COMMAND"])
        self.assertRegex(lines[1], r"^ex_\d+ +\d+s ago +\S+ \S+ +you +exited 0 +2 files +4 +bash -c ")
        self.assertRegex(lines[2], r" you +exited 127 \(not found\) +- +0 +no-such-program$")
        self.assertEqual(json.loads(self.daemon.cli("history", "told", "--json").stdout), self.client.history("told"))

    def test_changes_are_not_counted_while_another_command_runs(self):
        self.client.create(repo_url=self.url, name="busy")
        running = self.client.start_exec("busy", ["cat"], stdin=True)["id"]
        self.client.exec("busy", "echo 1 > one")
        execs = self.client.history("busy")["execs"]
        self.assertEqual([("changed_files" in e, e["state"]) for e in execs], [(False, "running"), (False, "exited")])
        self.client.send_input(running, b"", close=True)
        self.client.wait(running)
        execs = self.client.history("busy")["execs"]
        self.assertEqual([e.get("changed_files") for e in execs], [1, None], "the one that ended last left it so")

    def test_history_of_stop_delete_undelete_and_purge(self):
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

    def test_history_has_limits_and_pages(self):
        self.client.create(repo_url=self.url, name="pages")
        ids = [self.client.exec("pages", ["true"]).exec["id"] for _ in range(5)]
        page = self.client.history("pages", limit=2)
        self.assertEqual(([e["id"] for e in page["execs"]], page["truncated"]), (ids[3:], True))
        self.assertEqual(page["total"], 5)
        self.assertIn(b"showing the last 2 of 5; all: -n 5", self.daemon.cli("history", "pages", "-n", "2").stderr)
        page = self.client.history("pages", limit=3, before=ids[3])
        self.assertEqual(([e["id"] for e in page["execs"]], page["truncated"]), (ids[:3], False))
        self.assertEqual(len(self.daemon.cli("history", "pages", "-n", "2").stdout.splitlines()), 3)
        for bad in ("0", "x", "1001", "-1"):
            refused = self.daemon.cli("history", "pages", f"--limit={bad}", check=False)
            self.assertEqual(refused.returncode, 1)
            self.assertIn(b"--limit", refused.stderr)

    def test_a_hostile_name_cannot_control_a_terminal(self):
        self.client.create(repo_url=self.url, name="hostile")
        self.client.exec("hostile", ["true", "\x1b[2J\x1b]0;owned\x07\r\n\u202e evil"])
        out = self.daemon.cli("history", "hostile").stdout
        self.assertNotRegex(out, b"[\x00-\x09\x0b-\x1f\x7f]")
        self.assertNotIn("\u202e".encode(), out)
        self.assertIn(b"\\x1b[2J", out)
        self.assertEqual(len(out.splitlines()), 2)


class Metrics(harness.TestCase):
    def scrape(self):
        """Samples as {(name, labels): value}, by Prometheus's own parser, and checked by promtool if installed."""
        try:
            from prometheus_client.parser import text_string_to_metric_families
        except ImportError:
            if os.environ.get("CI"):
                raise
            self.skipTest("SKIP: no python3-prometheus-client")
        connection = raw_api._Connection(str(self.daemon.socket), 30)
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

    def test_events_are_counted(self):
        before = self.scrape()
        self.client.create(repo_url=self.url, name="counted")
        self.client.exec("counted", "printf 12345")
        self.client.exec("counted", ["no-such-program"])
        with self.assertRaises(raw_api.ApiError):
            self.client.stop("nobody")
        with self.assertRaises(raw_api.ApiError):
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
        self.client.delete("counted", force=True)
        harness.wait_until(lambda: self.value("moorage_execs_running") == 0, what="nothing runs")

    def test_metrics_of_the_process_and_the_disk(self):
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

    def test_metrics_contain_no_names(self):
        self.client.create(repo_url=self.url, name="secret-name", labels={"secret-label": "secret-value"})
        self.client.exec("secret-name", ["sh", "-c", "exit 3", "secret-word"])
        with self.assertRaises(raw_api.ApiError):
            self.client.request("GET", "/workspaces/secret-path/nothing")
        self.scrape()
        for word in ("secret", "acme", str(self.daemon.store), "ws_", "ex_"):
            self.assertNotIn(word, self.text)
        for family in self.families.values():
            self.assertTrue(family.documentation and family.type != "unknown", family.name)

    def test_other_users_of_the_socket_may_read_metrics(self):
        os.chmod(self.daemon.directory, 0o711)
        os.chmod(self.daemon.socket, 0o666)
        out = harness.run("setpriv", "--reuid=65533", "--regid=65533", "--clear-groups", "curl", "-s", "--unix-socket",
                          self.daemon.socket, "http://localhost/metrics").stdout
        self.assertIn(b"moorage_build_info", out)


def disk_of(path):
    """Bytes in use, as reported by du."""
    return int(harness.run("du", "-s", "-x", "--block-size=1", path).stdout.split()[0])


class DiskUsage(harness.TestCase):
    def usage(self, workspace=None):
        time.sleep(1.1)  # a measurement of the last second is reused
        return self.client.disk_usage(workspace)

    def test_the_parts_add_up_to_the_result_of_du(self):
        for name in ("one", "two", "three"):
            self.client.create(repo_url=self.url, name=name)
        self.client.exec("one", "head -c 20M /dev/urandom > big; truncate -s 1G hole; mkdir d; echo > d/f")
        self.client.exec("two", "head -c 3M /dev/urandom | base64", stdin=b"")
        self.client.exec("three", "head -c 5M /dev/urandom > home; mv home ~/")
        self.client.delete("three")
        self.client.stop("one")
        usage = self.usage()
        self.assertTrue(usage["complete"])
        store = dict(usage["store"])
        total = store.pop("total_bytes")
        self.assertEqual(total, sum(store.values()))
        said = disk_of(self.daemon.store)
        self.assertLess(abs(total - said), said // 100 + (256 << 10), f"{store}")
        by_name = {w["name"]: w for w in usage["workspaces"]}
        self.assertEqual(set(by_name), {"one", "two", "three"})
        self.assertEqual(sum(w["edits_bytes"] for w in usage["workspaces"]), store["edits_bytes"])
        self.assertEqual(sum(w["journal_bytes"] for w in usage["workspaces"]), store["journals_bytes"])
        for name, field, least in (("one", "edits_bytes", 20), ("two", "journal_bytes", 4), ("three", "edits_bytes", 5)):
            self.assertGreater(by_name[name][field], least << 20)
            self.assertLess(by_name[name][field], (least + 2) << 20)
        self.assertEqual(by_name["three"]["state"], "deleted")
        self.assertEqual({w["base"]["shared_by"] for w in usage["workspaces"]}, {3})
        self.assertEqual(usage["repos"][0]["trees"][0]["bytes"], by_name["one"]["base"]["bytes"])
        self.assertEqual(store["reserve_bytes"], disk_of(self.daemon.store / "reserve"))
        self.assertEqual(store["lost_bytes"], 0)
        only = self.client.disk_usage("three")
        self.assertEqual([w["name"] for w in only["workspaces"]], ["three"])
        self.assertNotIn("store", only)
        self.client.delete("three", purge=True)
        self.assertLess(self.usage()["store"]["edits_bytes"], store["edits_bytes"] - (5 << 20))

        printed = self.daemon.cli("du").stdout.decode()
        self.assertRegex(printed, r"(?m)^one +ws_\d+ +ready +20M +0 +\S+ +\S+, shared by 2 +you$")
        self.assertRegex(printed, r"(?m)^total +\S+ +\S+ free of \S+$")
        self.assertEqual(len(self.daemon.cli("du", "one").stdout.splitlines()), 2)
        samples = Metrics.scrape(self)
        self.assertEqual(samples["moorage_store_bytes", (("part", "reserve"),)], store["reserve_bytes"])


class DiskUsageOfStrangers(harness.TestCase):
    def test_a_hostile_tree_delays_no_other_user(self):
        self.client.create(repo_url=self.url, name="hostile")
        deep = "import os\nfor i in range(3000):\n  os.mkdir('d' * 200); os.chdir('d' * 200)"
        self.client.exec("hostile", ["python3", "-c", deep])
        usage = self.client.disk_usage("hostile")
        self.client.delete("hostile", purge=True)
        self.assertTrue(usage["workspaces"][0]["complete"])
        self.assertGreater(usage["workspaces"][0]["edits_bytes"], 3000 * 4096)

    def test_another_user_sees_their_own(self):
        self.client.create(repo_url=self.url, name="private")
        os.chmod(self.daemon.directory, 0o711)
        os.chmod(self.daemon.socket, 0o666)
        out = harness.run("setpriv", "--reuid=65533", "--regid=65533", "--clear-groups", "curl", "-s", "--unix-socket",
                          self.daemon.socket, "http://localhost/v1/du").stdout
        answer = json.loads(out)
        self.assertEqual((answer["workspaces"], answer["repos"], "store" in answer), ([], [], False))
        out = harness.run("setpriv", "--reuid=65533", "--regid=65533", "--clear-groups", "curl", "-s", "--unix-socket",
                          self.daemon.socket, "http://localhost/v1/du?workspace=private").stdout
        self.assertEqual(json.loads(out)["code"], "not_found")


class Terminal:
    """`moorage top` on a terminal of a given size."""

    def __init__(self, daemon, *argv, columns=80, rows=24, env=None):
        self.master, slave = pty.openpty()
        self.slave = os.dup(slave)
        self.settings = termios.tcgetattr(slave)
        self.resize(columns, rows)
        environment = {"PATH": os.environ["PATH"], "HOME": "/root", "MOORAGE_SOCKET": str(daemon.socket), "TERM": "xterm",
                       "LANG": "C.UTF-8", **(env or {})}
        self.process = subprocess.Popen([harness.BIN / "moorage", "top", *argv], stdin=slave, stdout=slave, stderr=slave,
                                        start_new_session=True, env=environment, close_fds=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.seen = b""

    def resize(self, columns, rows):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys):
        os.write(self.master, keys)

    def wait_for(self, text, what=None):
        def came():
            while select.select([self.master], [], [], 0)[0]:
                self.seen += os.read(self.master, 65536)
            return text in self.seen
        harness.wait_until(came, what=what or f"{text!r} on the terminal: {self.seen[-2000:]!r}")

    def end(self):
        """The exit code, after the terminal's screen and settings are restored."""
        code = self.process.wait(20)
        self.wait_for(b"\x1b[?1049l")
        assert self.seen.rstrip().endswith(b"\x1b[?7h\x1b[?25h\x1b[?1049l"), self.seen[-200:]
        assert termios.tcgetattr(self.slave) == self.settings
        self.close()
        return code

    def close(self):
        self.process.kill()
        self.process.wait()
        for fd in (self.master, self.slave):
            with contextlib.suppress(OSError):
                os.close(fd)


class Top(harness.TestCase):
    def line(self, name):
        return next(w for w in self.client.top()["workspaces"] if w["name"] == name)

    def waits(self, name):
        return [w["exec"] for w in self.line(name)["waiting"]]

    def test_top_shows_commands_waiting_for_input(self):
        self.client.create(repo_url=self.url, name="asks")
        stdin = {"stdin": True}
        tty = {"tty": {"columns": 80, "rows": 24}}
        for argv, fields in ((["cat"], stdin), (["sh", "-c", "read x; sleep 60"], stdin),
                             (["sh", "-c", "python3 -c 'input()'"], stdin), (["python3", "-c", "input()"], tty),
                             (["bash", "--norc"], tty), (["sh", "-c", "sleep 60 & cat"], tty),
                             (["python3", "-c", "import select,sys; select.select([sys.stdin],[],[])"], stdin),
                             (["python3", "-c", "import select; p=select.poll(); p.register(0, 1); p.poll()"], stdin)):
            running = self.client.start_exec("asks", argv, **fields)["id"]
            harness.wait_until(lambda: self.waits("asks") == [running], what=f"{argv} waits")  # noqa: B023
            self.client.signal(running, "KILL")
            self.client.wait(running)
        for argv, fields in ((["sh", "-c", "echo go; sleep 60"], stdin), (["sh", "-c", "echo go; sleep 60 | cat"], stdin),
                             (["sh", "-c", "echo go; sleep 60"], tty), (["sh", "-c", "echo go; cat fifo"], stdin),
                             (["sh", "-c", "echo go; while :; do :; done & cat"], stdin),
                             (["sh", "-c", "echo go; exec sleep 60"], {})):
            self.client.exec("asks", "test -p fifo || mkfifo fifo")
            running = self.client.start_exec("asks", argv, **fields)["id"]
            harness.wait_until(lambda: self.client.get_exec(running)["output_bytes"] > 0, what="go")  # noqa: B023
            for _ in range(20):
                self.assertEqual(self.waits("asks"), [], argv)
            self.client.cancel(running)
            self.client.wait(running)
        running = self.client.start_exec("asks", ["sh", "-c", "read x; sleep 60"], **stdin)["id"]
        harness.wait_until(lambda: self.waits("asks") == [running], what="it waits")
        self.client.send_input(running, b"an answer\n")
        harness.wait_until(lambda: self.waits("asks") == [], what="it has its answer")
        self.client.delete("asks", force=True)

    def test_top_skips_sandboxes_with_too_many_processes(self):
        self.client.create(repo_url=self.url, name="crowd", limits={"pids": 400})
        crowd = "for i in $(seq 300); do sleep 60 & done; echo go; read x"
        running = self.client.start_exec("crowd", ["bash", "-c", crowd], stdin=True)["id"]
        harness.wait_until(lambda: self.client.get_exec(running)["output_bytes"] > 0, what="go")
        self.assertEqual(self.waits("crowd"), [])
        self.client.delete("crowd", force=True)

    def test_top_shows_correct_figures(self):
        self.client.create(repo_url=self.url, name="busy")
        self.client.create(repo_url=self.url, name="rests")
        spin = "echo go; exec python3 -c 'x = bytearray(200 << 20)\nwhile True: pass'"
        running = self.client.start_exec("busy", ["sh", "-c", spin])["id"]
        harness.wait_until(lambda: self.line("busy")["sandbox"].get("memory_bytes", 0) > 190 << 20, what="its memory")
        before = self.client.top()
        time.sleep(0.5)
        after = self.client.top()
        used = [next(w for w in look["workspaces"] if w["name"] == "busy")["sandbox"]["cpu_us"] for look in (before, after)]
        self.assertGreater(used[1], used[0])
        self.assertLess(used[1] - used[0], (after["boot_us"] - before["boot_us"]) * after["cpus"] * 1.1)
        line = self.line("busy")
        self.assertEqual((line["execs_running"], line["doing"]["exec"]), (1, running))
        self.assertIn("last_output_at", line)
        self.assertNotIn("sandbox", self.line("rests"))
        # Polling does not recreate the cgroup of an ended exec.
        self.client.cancel(running)
        self.client.wait(running)
        self.client.top()
        sandbox = f"moorage-{self.daemon.store_id()}-{line['sandbox']['id']}"
        self.assertEqual([p for p, _, _ in os.walk("/sys/fs/cgroup") if p.endswith(f"{sandbox}/cmd/{running}")], [])

        printed = self.daemon.cli("top", "--once", "--sort", "name").stdout.decode().splitlines()
        self.assertEqual(printed[0].split(), ["NAME", "OWNER", "STATE", "EXECS", "CPU%", "MEM", "LIMIT", "PROCS", "CONNS", "NET/S", "DISK",
                                              "OUTPUT", "DOING"])
        self.assertRegex(printed[1], r"^busy +you +idle +0 +\d+\.\d ")
        self.assertRegex(printed[2], r"^rests +you +stopped +0 +- +- +4G +- ")
        self.assertEqual(self.daemon.cli("top").stdout.decode().splitlines()[0], printed[0], "no terminal: one table")
        self.assertEqual(set(json.loads(self.daemon.cli("top", "--json").stdout)), set(self.client.top()))
        refused = self.daemon.cli("top", "--once", "--sort", "beauty", check=False)
        self.assertEqual((refused.returncode, b"--sort" in refused.stderr), (1, True))
        for name in ("busy", "rests"):
            self.client.delete(name)

    def test_top_restores_the_screen(self):
        self.client.create(repo_url=self.url, name="shown")
        for leave, code in ((b"q", 0), (b"\x03", 0), (signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            terminal = Terminal(self.daemon)
            self.addCleanup(terminal.close)
            terminal.wait_for(b"shown")
            self.assertTrue(terminal.seen.startswith(b"\x1b[?1049h"))
            if isinstance(leave, bytes):
                terminal.type(leave)
            else:
                terminal.process.send_signal(leave)
            self.assertEqual(terminal.end(), code)
        self.client.delete("shown")

    def test_keys_sizes_and_colors(self):
        for name in ("one", "two"):
            self.client.create(repo_url=self.url, name=name)
        terminal = Terminal(self.daemon, env={"NO_COLOR": "1"})
        self.addCleanup(terminal.close)
        terminal.wait_for(b"[c cpu]")
        terminal.type(b"n")
        terminal.wait_for(b"[n name]")
        terminal.type(b"\x1b[B")
        terminal.wait_for(b"\x1b[7mone")
        terminal.type(b"\x1b[B")
        terminal.wait_for(b"\x1b[7mtwo")
        self.assertNotRegex(terminal.seen, b"\x1b\\[3[0-9]m")
        terminal.resize(200, 50)
        terminal.wait_for(b"PROCS")
        terminal.type(b"o")
        terminal.wait_for(b"[o own]")
        # The daemon stops and restarts: the screen says so, and keys still work.
        self.daemon.kill()
        terminal.wait_for(b"; retrying")
        terminal.seen = b""
        terminal.type(b"m")
        terminal.wait_for(b"[m memory]")
        self.daemon.start()
        terminal.seen = b""
        terminal.wait_for(b"free")
        terminal.type(b"q")
        self.assertEqual(terminal.end(), 0)
        for name in ("one", "two"):
            self.client.delete(name)


if __name__ == "__main__":
    unittest.main()
