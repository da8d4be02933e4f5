"""Idle stops: their causes, the things that prevent them, and they stop nothing but the sandbox."""

import os
import random
import signal
import socket
import threading
import time
import unittest

import harness
import raw_api

# Short times replace long ones: only their order matters.
IDLE_STOP_S = 1


class Idle(harness.TestCase):
    settings = {"sandbox.idle_stop_s": IDLE_STOP_S}

    def make(self, name, **fields):
        self.client.create(repo_url=self.url, name=name, **fields)

    def sandbox(self, name):
        """From the list: showing one workspace runs git in its sandbox, a hundred times a second here."""
        return next(w for w in self.client.workspaces() if w["name"] == name).get("sandbox")

    def until_stopped(self, name, seconds=15):
        harness.wait_until(lambda: not self.sandbox(name), seconds, f"the idle stop of {name}")

    def events(self, name, kind):
        id_ = self.client.workspace(name)["id"]
        return [e for e in self.client.events() if e["kind"] == kind and e.get("workspace") == id_]

    def stop_reasons(self, name):
        return [e["text"] for e in self.events(name, "sandbox.state") if e["to"] == "stopping"]

    def stays(self, name, seconds):
        """It stays the same sandbox. The wait is the test: nothing may happen during it."""
        before = self.sandbox(name)["id"]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.assertEqual((self.sandbox(name) or {}).get("id"), before)
            time.sleep(0.1)

    def test_an_idle_sandbox_stops_and_restarts_with_all_files(self):
        self.make("back")
        self.client.exec("back", "echo edit > edit; echo home > ~/h; git checkout -q -b mine")
        first = self.sandbox("back")["id"]
        # Frequent queries keep nothing alive.
        harness.wait_until(lambda: "sandbox" not in self.client.workspace("back"), what="the idle stop")
        self.assertEqual(self.stop_reasons("back"), ["idle for 1s"])
        self.assertEqual(self.client.workspace("back")["stopped"]["reason"], "idle for 1s")
        self.assertEqual(self.client.workspace("back")["integrity"]["state"], "intact")
        out = self.client.exec("back", "cat edit ~/h; git branch --show-current")
        self.assertEqual(out.stdout, b"edit\nhome\nmine\n")
        self.assertNotEqual(self.sandbox("back")["id"], first)

    def test_a_silent_command_counts_as_work(self):
        self.make("silent")
        record = self.client.start_exec("silent", ["sleep", str(10 * IDLE_STOP_S)])
        shown = self.client.workspace("silent")["sandbox"]
        self.assertEqual(shown["busy_with"], f"exec {record['id']}")
        self.assertNotIn("idle_stop_in_ms", shown)
        end = self.client.wait(record["id"])
        self.assertEqual((end["state"], end["exit_code"], end["sandbox"]), ("exited", 0, shown["id"]))
        self.assertEqual(self.stop_reasons("silent"), [])
        self.until_stopped("silent")

    def test_an_ended_command_is_not_shown_as_work(self):
        self.make("ended", idle_stop_s=60)
        self.client.exec("ended", "true")
        for _ in range(20):  # the check for idleness may see some of these
            self.client.exec("ended", "sleep 0.3")
            self.assertNotIn("exec", self.sandbox("ended").get("busy_with", ""))
        self.client.stop("ended")

    def test_an_open_terminal_counts_as_work(self):
        self.make("terminal")
        record = self.client.start_exec("terminal", ["bash", "--norc"], tty={"columns": 80, "rows": 24})
        self.stays("terminal", 4 * IDLE_STOP_S)
        self.client.cancel(record["id"])
        self.until_stopped("terminal")

    def test_only_busy_background_processes_prevent_an_idle_stop(self):
        self.make("busy")
        self.make("quiet")
        spin = "(timeout 6 sh -c 'while :; do :; done'; touch done) >/dev/null 2>&1 </dev/null &"
        self.client.exec("busy", spin)
        self.client.exec("quiet", "sleep 1000 >/dev/null 2>&1 </dev/null &")
        harness.wait_until(lambda: self.sandbox("busy").get("busy_with") == "background processes", what="that it is seen")
        self.until_stopped("quiet")
        self.assertTrue(self.sandbox("busy"))
        harness.wait_until(lambda: "done" in [e["name"] for e in self.client.list_files("busy")["entries"]], what="its end")
        self.assertEqual(self.stop_reasons("busy"), [])
        self.until_stopped("busy")

    def test_an_open_upload_prevents_an_idle_stop(self):
        self.make("upload")
        self.client.exec("upload", "true")
        with socket.socket(socket.AF_UNIX) as upload:
            upload.connect(str(self.daemon.socket))
            upload.sendall(b"PUT /v1/workspaces/upload/file?path=big HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n")
            upload.sendall(b"z" * 1_000_000)
            harness.wait_until(lambda: self.sandbox("upload").get("busy_with") == "a transfer", what="that it is seen")
            self.stays("upload", 4 * IDLE_STOP_S)
            upload.sendall(b"z" * 1_000_000)
            self.assertIn(b" 200 ", upload.recv(65536).split(b"\r\n")[0])
        self.until_stopped("upload")
        self.assertEqual(len(self.client.read_file("upload", "big")), 2_000_000)

    def test_a_held_lease_prevents_an_idle_stop(self):
        self.make("leased")
        with self.client.lease("leased", "bot") as held:
            held.exec("leased", "true")
            harness.wait_until(lambda: self.sandbox("leased").get("busy_with") == "its lease", what="that it is seen")
            self.stays("leased", 4 * IDLE_STOP_S)
        self.until_stopped("leased")

    def test_a_workspace_can_set_its_own_idle_time(self):
        self.make("never", idle_stop_s=0)
        self.make("later", idle_stop_s=3600)
        for name in ("never", "later"):
            self.client.exec(name, "true")
        self.stays("never", 4 * IDLE_STOP_S)
        self.assertNotIn("idle_stop_in_ms", self.sandbox("never"))
        shown = self.client.workspace("later")
        self.assertEqual(shown["idle_stop_s"], 3600)
        self.assertLessEqual(shown["sandbox"]["idle_stop_in_ms"], 3_600_000)
        self.assertIn("in 59m", self.daemon.cli("show", "later").stdout.decode())
        self.assertRegex(self.daemon.cli("ls").stdout.decode(), r"later .* idle \d+s ")
        self.daemon.cli("set", "never", "--idle-stop", "default")
        self.daemon.cli("set", "later", "--idle-stop", "2s")
        self.assertEqual(self.client.workspace("never")["idle_stop_s"], IDLE_STOP_S)
        self.until_stopped("never")
        self.until_stopped("later", 30)

    def test_a_restart_of_the_daemon_restarts_the_idle_time(self):
        self.make("anew", idle_stop_s=8)
        self.client.exec("anew", "true")
        harness.wait_until(lambda: self.sandbox("anew")["idle_stop_in_ms"] < 4000, what="half of the time")
        self.daemon.restart()
        self.assertGreater(self.sandbox("anew")["idle_stop_in_ms"], 6000)
        self.until_stopped("anew", 20)

    def test_an_exec_at_the_moment_of_the_stop_neither_fails_nor_runs_twice(self):
        names = [f"race-{i}" for i in range(5)]
        runs = 16
        failures = []

        def worker(name, seed):
            dice = random.Random(seed)
            for i in range(runs):
                try:
                    result = self.client.exec(name, f"echo {i} >> ran")
                    if result.exit_code != 0:
                        failures.append((name, i, result.exec))
                except (raw_api.ApiError, OSError) as error:
                    failures.append((name, i, repr(error)))
                time.sleep(dice.uniform(1.0, 3.2) * IDLE_STOP_S)

        for name in names:
            self.make(name)
        seed = random.randrange(1 << 32)
        threads = [threading.Thread(target=worker, args=(name, seed + i)) for i, name in enumerate(names)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [], f"seed {seed}")
        stops = 0
        for name in names:
            expected = "".join(f"{i}\n" for i in range(runs)).encode()
            self.assertEqual(self.client.read_file(name, "ran"), expected, f"seed {seed}")
            stops += len(self.stop_reasons(name))
        self.assertGreater(stops, 4, "the moment was never met")

    def test_time_with_the_daemon_stopped_does_not_count_as_idle(self):
        self.make("frozen", idle_stop_s=6)
        self.client.exec("frozen", "true")
        left = harness.wait_until(lambda: self.sandbox("frozen").get("idle_stop_in_ms"), what="the count")
        os.kill(self.daemon.process.pid, signal.SIGSTOP)
        time.sleep(7)  # longer than the idle stop: unobserved time does not count
        os.kill(self.daemon.process.pid, signal.SIGCONT)
        self.assertGreater(self.sandbox("frozen")["idle_stop_in_ms"], left - 5000)
        self.until_stopped("frozen", 20)


class Lifetime(harness.TestCase):
    settings = {"sandbox.max_lifetime_s": 3600}

    def test_the_lifetime_cap_stops_a_busy_sandbox_and_keeps_the_workspace(self):
        self.client.create(repo_url=self.url, name="capped", max_lifetime_s=4)
        record = self.client.start_exec("capped", ["sh", "-c", "echo work > work; sleep 1000"])
        left = self.client.workspace("capped")["sandbox"]["lifetime_left_ms"]
        self.assertTrue(0 < left <= 4000, left)
        self.assertIn("at the latest in", self.daemon.cli("show", "capped").stdout.decode())
        self.daemon.restart()  # it does not restart the lifetime
        end = self.client.wait(record["id"], timeout_ms=20000)
        self.assertEqual((end["state"], end["category"]), ("cancelled", "cancelled"))
        self.assertIn("max_lifetime_s", end["error"])
        harness.wait_until(lambda: "sandbox" not in self.client.workspace("capped"), what="the stop")
        events = list(self.client.events())
        warning = [e for e in events if e["kind"] == "sandbox.lifetime"]
        self.assertEqual(len(warning), 1)
        stopping = [e for e in events if e["kind"] == "sandbox.state" and e["to"] == "stopping"]
        self.assertLess(warning[0]["seq"], stopping[0]["seq"])
        self.assertEqual([e for e in events if e["kind"] == "workspace.state" and e["to"] not in ("creating", "ready")], [])
        ended = "cancelled (lifetime of 4s)"
        for words in (("ps", "-a", "capped"), ("history", "capped"), ("report", "capped")):
            self.assertIn(ended, self.daemon.cli(*words).stdout.decode(), words)
        for words in (("wait", record["id"]), ("logs", record["id"])):
            said = self.daemon.cli(*words, check=False)
            self.assertIn(ended, said.stderr.decode(), words)
        for words in (("ls",), ("show", "capped")):
            self.assertIn("lifetime of 4s (max_lifetime_s)", self.daemon.cli(*words).stdout.decode(), words)
        self.assertEqual(self.client.exec("capped", "cat work").stdout, b"work\n")

    def test_the_setting_is_the_default(self):
        self.client.create(repo_url=self.url, name="usual")
        self.client.exec("usual", "true")
        self.assertGreater(self.client.workspace("usual")["sandbox"]["lifetime_left_ms"], 3_500_000)
        self.client.update("usual", max_lifetime_s=0)
        self.assertNotIn("lifetime_left_ms", self.client.workspace("usual")["sandbox"])

    def test_an_end_while_the_daemon_was_away_keeps_its_time(self):
        self.client.create(repo_url=self.url, name="away")
        record = self.client.start_exec("away", ["sleep", "1"])
        self.daemon.kill()
        time.sleep(4)  # it ends while the daemon is down
        self.daemon.start()
        end = self.client.wait(record["id"])
        took = moorage_ms(end["ended_at"]) - moorage_ms(end["started_at"])
        self.assertTrue(900 <= took < 2500, took)


class PreStop(harness.TestCase):
    settings = {"sandbox.idle_stop_s": 0}

    def hooks(self, name):
        return [e for e in self.client.history(name)["execs"] if e.get("hook")]

    def test_pre_stop_runs_before_every_stop_and_is_in_the_history(self):
        self.client.create(repo_url=self.url, name="hook", pre_stop="echo stopping; echo x >> stops")
        self.client.stop("hook")  # nothing runs: no pre_stop
        self.assertEqual(self.hooks("hook"), [])
        self.client.exec("hook", "true")
        self.assertNotIn("notice", self.client.stop("hook"))
        record, = self.hooks("hook")
        self.assertEqual((record["hook"], record["state"], record["exit_code"]), ("pre_stop", "exited", 0))
        self.assertEqual(record["argv"], ["/bin/sh", "-c", "echo stopping; echo x >> stops"])
        self.assertEqual(self.client.raw_output(record["id"]), b"stopping\n")
        self.assertRegex(self.daemon.cli("history", "hook").stdout.decode(), r"pre_stop +exited 0 ")
        self.client.update("hook", idle_stop_s=1)
        self.client.exec("hook", "true")
        harness.wait_until(lambda: "sandbox" not in self.client.workspace("hook"), what="the idle stop")
        self.client.update("hook", idle_stop_s=0, max_lifetime_s=2)
        self.client.exec("hook", "true")
        harness.wait_until(lambda: "sandbox" not in self.client.workspace("hook"), what="the stop of the cap")
        self.client.update("hook", max_lifetime_s=0)
        self.client.exec("hook", "true")
        self.client.stop("hook", hook=False)
        self.client.exec("hook", "true")
        self.daemon.cli("stop", "--no-hook", "hook")
        self.assertEqual(len(self.hooks("hook")), 3)
        self.assertEqual(self.client.exec("hook", "cat stops").stdout, b"x\n" * 3)
        id_ = self.client.delete("hook")["id"]
        self.client.undelete(id_)
        self.assertEqual(self.client.exec("hook", "cat stops").stdout, b"x\n" * 4)

    def test_a_pre_stop_that_fails_or_times_out_is_reported_and_the_stop_continues(self):
        self.client.create(repo_url=self.url, name="fails", pre_stop=["sh", "-c", "exit 3"])
        self.client.exec("fails", "true")
        self.assertIn("failed: exit 3", self.client.stop("fails")["notice"])
        self.client.update("fails", pre_stop=["no-such-program"])
        self.client.exec("fails", "true")
        self.assertIn("exit 127", self.client.stop("fails")["notice"])
        self.daemon.cli("set", "fails", "--pre-stop", "trap '' TERM; while :; do sleep 1; done", "--pre-stop-deadline", "1s")
        self.client.exec("fails", "true")
        began = time.monotonic()
        told = self.daemon.cli("stop", "fails")
        self.assertIn(b"did not finish within 1 s", told.stderr)
        self.assertLess(time.monotonic() - began, 10)
        self.assertNotIn("sandbox", self.client.workspace("fails"))
        self.assertEqual(self.hooks("fails")[-1]["state"], "timed_out")
        texts = [e["text"] for e in self.client.events() if e["kind"] == "workspace.pre_stop"]
        self.assertEqual(len(texts), 3)
        self.client.update("fails", pre_stop=[])
        self.client.exec("fails", "true")
        self.assertNotIn("notice", self.client.stop("fails"))

    def test_an_exec_during_pre_stop_keeps_an_idle_sandbox(self):
        self.client.create(repo_url=self.url, name="kept", pre_stop="sleep 3", idle_stop_s=1)
        sandbox = self.client.exec("kept", "true").exec["sandbox"]
        harness.wait_until(lambda: self.hooks("kept"), what="the hook")
        record = self.client.start_exec("kept", ["sleep", "4"])
        end = self.client.wait(record["id"])
        self.assertEqual((end["state"], end["exit_code"], end["sandbox"]), ("exited", 0, sandbox))
        harness.wait_until(lambda: "sandbox" not in self.client.workspace("kept"), what="the stop after all")

    def test_a_daemon_that_ends_during_pre_stop_leaves_nothing_hanging(self):
        self.client.create(repo_url=self.url, name="cut", pre_stop="echo begun; sleep 8", idle_stop_s=1)
        for end_daemon in (self.daemon.kill, self.daemon.stop):
            self.client.exec("cut", "true")
            known = len(self.hooks("cut"))
            harness.wait_until(lambda: [h["output_bytes"] for h in self.hooks("cut")[known:]] > [0], what="the hook")  # noqa: B023
            end_daemon()
            self.daemon.start()
            self.assertIn("sandbox", self.client.workspace("cut"))
            self.client.update("cut", idle_stop_s=0)
            harness.wait_until(lambda: self.hooks("cut")[-1]["state"] != "running", what="the hook's end")
            self.assertEqual(self.hooks("cut")[-1]["state"], "exited")
            self.client.stop("cut", hook=False)
            self.client.update("cut", idle_stop_s=1)


class Budgets(harness.TestCase):
    def refusal(self, name):
        with self.assertRaises(raw_api.ApiError) as refused:
            self.client.start_exec(name, ["true"])
        self.assertEqual(refused.exception.code, "resource_exhausted")
        self.assertIn(f"moorage set {name} --max-exec", refused.exception.hint)
        return refused.exception.message

    def test_the_number_of_commands_is_limited(self):
        self.client.create(repo_url=self.url, name="count", max_execs=3, pre_stop="true")
        key = {"key": "one"}
        first = self.client.start_exec("count", ["true"], **key)["id"]
        self.assertEqual(self.client.start_exec("count", ["true"], **key)["id"], first)  # the same one
        self.client.exec("count", "true")
        self.client.stop("count")  # its hook does not count
        self.client.exec("count", "true")
        self.assertIn("3 of 3 commands (max_execs)", self.refusal("count"))
        self.assertEqual(self.client.start_exec("count", ["true"], **key)["id"], first)
        self.assertEqual(len([e for e in self.client.history("count")["execs"] if not e.get("hook")]), 3)
        self.assertIn("3 of 3 commands", self.daemon.cli("show", "count").stdout.decode())
        self.daemon.restart()
        self.refusal("count")
        self.daemon.cli("set", "count", "--max-execs", "4")
        self.client.exec("count", "true")
        self.refusal("count")

    def test_concurrent_commands_stay_within_the_limit(self):
        self.client.create(repo_url=self.url, name="many", max_execs=5)
        answers = []

        def one():
            try:
                answers.append(self.client.exec("many", "echo x >> ran").exit_code)
            except raw_api.ApiError as error:
                answers.append(error.code)
        threads = [threading.Thread(target=one) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((answers.count(0), answers.count("resource_exhausted")), (5, 7))
        self.assertEqual(self.client.read_file("many", "ran"), b"x\n" * 5)

    def test_the_time_of_one_command_is_limited(self):
        self.client.create(repo_url=self.url, name="each", max_exec_s=1)
        for timeout_ms in (0, 60_000):
            end = self.client.wait(self.client.start_exec("each", ["sleep", "30"], timeout_ms=timeout_ms)["id"])
            self.assertEqual((end["state"], end["category"]), ("timed_out", "timeout"))
            self.assertIn("max_exec_s", end["error"])
        end = self.client.wait(self.client.start_exec("each", ["sleep", "30"], timeout_ms=200)["id"])
        self.assertEqual(end["state"], "timed_out")
        self.assertNotIn("error", end)  # its own limit

    def test_the_total_time_of_commands_is_limited(self):
        self.client.create(repo_url=self.url, name="total", max_exec_total_s=4)
        self.client.exec("total", "sleep 2")
        used = self.client.workspace("total")["used_exec_ms"]
        self.assertTrue(1900 <= used < 3500, used)
        end = self.client.wait(self.client.start_exec("total", ["sleep", "30"])["id"])
        self.assertEqual(end["state"], "timed_out")
        self.assertIn("max_exec_total_s", end["error"])
        self.assertIn("4 of 4 s", self.refusal("total"))
        self.client.update("total", max_exec_total_s=3600)
        self.assertEqual(self.client.exec("total", "true").exit_code, 0)

    def test_concurrent_commands_share_the_time_limit(self):
        self.client.create(repo_url=self.url, name="beside", max_exec_total_s=6)
        ids = [self.client.start_exec("beside", ["sleep", "30"])["id"] for _ in range(3)]
        ends = [self.client.wait(id_) for id_ in ids]
        self.assertEqual({e["state"] for e in ends}, {"timed_out"})
        self.assertTrue(all("max_exec_total_s" in e["error"] for e in ends))
        used = self.client.workspace("beside")["used_exec_ms"]
        self.assertTrue(6000 <= used < 6000 + 3 * 4000, used)  # 3 x (a check each second, the grace, a busy machine)


def moorage_ms(text):
    import datetime
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000


if __name__ == "__main__":
    unittest.main()
