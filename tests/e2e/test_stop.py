"""`stop` and `rm` with running commands and with pre_stop: no thread waits for either, and no command
ends without a report."""

import concurrent.futures
import json
import os
import signal
import threading
import time
import unittest

import harness
from harness import raw_api

OTHER = 65533  # a user that is not root
HOOK_S = 300  # far longer than any wait here


def in_background(function, *arguments, **fields):
    """A thread, and a list for its result or exception."""
    answer = []

    def call():
        try:
            answer.append(function(*arguments, **fields))
        except Exception as error:  # noqa: BLE001
            answer.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread, answer


class Hooks(harness.TestCase):
    settings = {"sandbox.idle_stop_s": 0, "daemon.threads": 4, "sandbox.allow_process_backend": True}

    def client_of_thread(self):
        return harness.Client(str(self.daemon.socket))

    def hooks(self, name, state="running"):
        return [e for e in self.client.history(name)["execs"] if e.get("hook") and e["state"] == state]

    def with_hook(self, name, hook=f"sleep {HOOK_S}", **fields):
        self.client.create(repo_url=self.url, name=name, pre_stop=hook, pre_stop_deadline_s=HOOK_S, **fields)
        self.client.exec(name, "true")

    def test_stops_waiting_for_their_hooks_occupy_no_thread(self):
        names = [f"hooked-{n}" for n in range(6)]  # more than the number of threads
        stops = []
        for name in names:
            self.with_hook(name)
            stops.append(in_background(self.client_of_thread().stop, name))
        # These also fill the pool for ends of commands: each is deleted when its command has ended.
        thrown_away = [f"thrown-{n}" for n in range(5)]
        for name in thrown_away:
            self.client.create(repo_url=self.url, name=name, pre_stop=f"sleep {HOOK_S}", pre_stop_deadline_s=HOOK_S, disposable=True)
            self.client.exec(name, "true")
        for name in names + thrown_away:
            harness.wait_until(lambda: self.hooks(name), what=f"the hook of {name}")  # noqa: B023
        self.client.create(repo_url=self.url, name="free")
        done = in_background(self.use, "free")
        done[0].join(60 * harness.PATIENCE)
        self.assertEqual(done[1], ["used"])
        self.assertEqual([answer for _, answer in stops], [[]] * len(names))
        for name in names + thrown_away:
            self.client.cancel(self.hooks(name)[0]["id"])
        for thread, answer in stops:
            thread.join(60 * harness.PATIENCE)
            self.assertIn("cancelled", answer[0]["notice"])
            self.assertNotIn("sandbox", answer[0])
        for name in thrown_away:
            harness.wait_until(lambda: name not in [w["name"] for w in self.client.workspaces()], what=f"{name} is gone")  # noqa: B023

    def use(self, name):
        client = self.client_of_thread()
        client.start(name)
        assert client.exec(name, "echo a > new; echo b").stdout == b"b\n"
        assert b"+a" in client.diff(name)
        client.write_file(name, "c", b"c")
        assert client.read_file(name, "c") == b"c"
        client.stop(name)
        client.delete(name)
        return "used"

    def test_a_hook_on_a_sandbox_that_died_ends_with_it(self):
        self.with_hook("dead")
        thread, answer = in_background(self.client_of_thread().stop, "dead")
        harness.wait_until(lambda: self.hooks("dead"), what="the hook")
        os.kill(self.daemon.sandbox_pids("dead")["init"], signal.SIGKILL)
        thread.join(60 * harness.PATIENCE)
        self.assertFalse(thread.is_alive(), "the stop waits for the hook's whole deadline")
        self.assertNotIn("sandbox", answer[0])
        self.assertEqual(self.client.history("dead")["execs"][-1]["state"], "interrupted")

    def test_a_client_that_disconnects_during_a_hook_still_stops_the_sandbox(self):
        self.with_hook("left", "sleep 3; echo x > hooked")
        with self.daemon.cli_popen("stop", "left") as cli:
            harness.wait_until(lambda: self.hooks("left"), what="the hook")
            cli.kill()
        harness.wait_until(lambda: "sandbox" not in self.client.workspace("left"), what="the stop")
        self.assertEqual(self.client.read_file("left", "hooked"), b"x\n")

    def test_two_concurrent_stops_run_the_hook_once(self):
        self.with_hook("both", "sleep 2; echo x >> stops")
        stops = [in_background(self.client_of_thread().stop, "both") for _ in range(2)]
        for thread, answer in stops:
            thread.join(60 * harness.PATIENCE)
            self.assertNotIn("sandbox", answer[0])
        self.assertEqual(self.client.read_file("both", "stops"), b"x\n")

    def test_a_retry_with_its_key_finds_the_first_one_in_progress(self):
        self.with_hook("keyed", "sleep 3; echo x >> stops")
        thread, answer = in_background(self.client_of_thread().stop, "keyed", key="once")
        harness.wait_until(lambda: self.hooks("keyed"), what="the hook")
        with self.assertRaises(raw_api.ApiError) as refused:
            self.client.stop("keyed", key="once")
        self.assertEqual(refused.exception.code, "conflict")
        thread.join(60 * harness.PATIENCE)
        self.assertNotIn("sandbox", answer[0])
        self.assertNotIn("sandbox", self.client.stop("keyed", key="once"))

    def test_archive_and_move_wait_for_a_hook_like_a_stop(self):
        self.with_hook("cold", "sleep 1; echo x >> stops")
        self.client.update("cold", network="open")  # the other backend refuses no host
        self.client.archive("cold")
        self.client.unarchive("cold")
        self.assertEqual(self.client.read_file("cold", "stops"), b"x\n")
        self.client.exec("cold", "true")
        self.client.move("cold", backend="process")
        self.assertEqual(self.client.read_file("cold", "stops"), b"x\nx\n")

    def test_a_best_of_with_hooks_in_its_forks_ends(self):
        self.client.create(repo_url=self.url, name="tries", pre_stop="sleep 1", pre_stop_deadline_s=HOOK_S)
        best = self.client.best_of("tries", test="true", each="echo {i} > n", count=3)
        harness.wait_until(lambda: self.client.get_best_of(best["id"])["state"] == "done", 60, "its end")


class Busy(harness.TestCase):
    settings = {"sandbox.idle_stop_s": 0}

    def running(self, name, *argv):
        self.client.create(repo_url=self.url, name=name)
        exec_id = self.client.start_exec(name, list(argv) or ["sleep", "1000"])["id"]
        harness.wait_until(lambda: "sandbox" in self.client.workspace(name), what="its sandbox")
        return exec_id

    def refusal(self, call, *arguments, **fields):
        with self.assertRaises(raw_api.ApiError) as refused:
            call(*arguments, **fields)
        self.assertEqual(refused.exception.code, "conflict")
        return refused.exception

    def end_of(self, exec_id):
        return harness.wait_until(lambda: (e := self.client.get_exec(exec_id))["state"] != "running" and e, what=f"the end of {exec_id}")

    def test_stop_and_rm_refuse_to_end_a_command_and_name_it(self):
        exec_id = self.running("busy")
        for call, fields in ((self.client.stop, {}), (self.client.delete, {}), (self.client.delete, {"purge": True, "force": False}),
                             (self.client.stop, {"wait_ms": 300})):
            told = self.refusal(call, "busy", **fields)
            self.assertIn(f"busy is busy: {exec_id} (sleep 1000) runs", told.message)
            self.assertIn("--force", told.hint)
        self.assertEqual(self.client.get_exec(exec_id)["state"], "running")
        said = self.daemon.cli("rm", "--purge", "busy", check=False)
        self.assertNotEqual(said.returncode, 0)
        self.assertIn(exec_id.encode(), said.stderr)
        self.assertEqual(self.client.get_exec(exec_id)["state"], "running")
        self.client.delete("busy", purge=True, force=True)

    def gates_at(self, *points):
        """Pause files: while one exists, a verb that reaches its point waits, and another file shows the wait."""
        gates = [self.daemon.store.parent / f"gate-{point}" for point in points]
        self.daemon.kill()
        self.daemon.environment["MOORAGE_PAUSE_AT"] = ",".join(f"{point}={gate}" for point, gate in zip(points, gates))
        self.daemon.start()
        for gate in gates:
            gate.touch()

        def back():
            for gate in gates:
                gate.unlink(missing_ok=True)
                gate.with_name(f"{gate.name}.reached").unlink(missing_ok=True)
            del self.daemon.environment["MOORAGE_PAUSE_AT"]
            self.daemon.restart()
        self.addCleanup(back)
        return gates

    def reached(self, gate):
        harness.wait_until(gate.with_name(f"{gate.name}.reached").exists, what=gate.name)

    def test_a_command_that_begins_during_the_check_is_not_ended(self):
        for verb in ("stop", "delete"):
            with self.subTest(verb):
                self.client.create(repo_url=self.url, name=verb)
                self.client.start(verb)
                (gate,) = self.gates_at(f"{verb}.before_intent")
                with concurrent.futures.ThreadPoolExecutor(1) as pool:
                    refused = pool.submit(self.refusal, getattr(self.client, verb), verb)
                    self.reached(gate)
                    exec_id = self.client.start_exec(verb, ["sleep", "1000"])["id"]
                    gate.unlink()
                    self.assertIn(f"{exec_id} (sleep 1000) runs", refused.result().message)
                self.assertEqual(self.client.get_exec(exec_id)["state"], "running")
                self.assertEqual(self.client.stop(verb, force=True)["ended"], [exec_id])
                self.doCleanups()

    def test_a_command_sent_during_a_stop_runs_after_it(self):
        self.client.create(repo_url=self.url, name="met")
        before = self.client.start("met")["sandbox"]["id"]
        stops, begins = self.gates_at("stop.after_intent", "exec.before_intent")
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            ran = pool.submit(self.client.exec, "met", "echo ran")
            self.reached(begins)
            stopped = pool.submit(self.client.stop, "met")
            self.reached(stops)
            begins.unlink()
            stops.unlink()
            self.assertEqual(stopped.result()["state"], "ready")
            self.assertEqual(ran.result().stdout, b"ran\n")
        self.assertNotEqual(self.client.workspace("met")["sandbox"]["id"], before)

    def test_a_command_sent_during_a_delete_does_not_start(self):
        self.client.create(repo_url=self.url, name="leaves")
        self.client.start("leaves")
        deletes, begins = self.gates_at("delete.after_intent", "exec.before_intent")
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            ran = pool.submit(self.client.start_exec, "leaves", ["sleep", "1000"])
            self.reached(begins)
            deleted = pool.submit(self.client.delete, "leaves")
            self.reached(deletes)
            begins.unlink()
            deletes.unlink()
            self.assertNotIn("ended", deleted.result())
            with self.assertRaises(raw_api.ApiError):
                ran.result()

    def test_a_forced_stop_names_its_user_in_logs_ps_and_history(self):
        exec_id = self.running("forced")
        said = self.daemon.cli("stop", "--force", "forced").stdout.decode()
        self.assertIn(exec_id, said)
        end = self.end_of(exec_id)
        self.assertEqual((end["category"], end["error"]), ("stopped", "ended with its sandbox: stopped by root"))
        self.assertIn(b"stopped by root", self.daemon.cli("logs", exec_id, check=False).stderr)
        for words in (("ps", "forced"), ("history", "forced")):
            self.assertRegex(self.daemon.cli(*words).stdout.decode(), rf"{exec_id} .*stopped by root")

    def test_a_delete_names_its_user_too(self):
        exec_id = self.running("gone")
        self.assertEqual(self.client.delete("gone", force=True)["ended"], [exec_id])
        end = self.end_of(exec_id)
        self.assertEqual((end["category"], end["error"]), ("stopped", "ended with its sandbox: deleted by root"))

    def test_a_cancel_names_its_user_too(self):
        exec_id = self.running("killed")
        self.assertEqual(self.daemon.cli("kill", exec_id).returncode, 0)
        end = self.end_of(exec_id)
        self.assertEqual((end["state"], end["category"], end["error"]), ("cancelled", "cancelled", "cancelled by root"))
        self.assertIn(b"cancelled by root", self.daemon.cli("logs", exec_id, check=False).stderr)
        self.assertRegex(self.daemon.cli("history", "killed").stdout.decode(), rf"{exec_id} .*cancelled by root")
        later = self.client.start_exec("killed", ["sleep", "1000"])["id"]
        self.daemon.kill()
        self.daemon.start()
        self.client.cancel(later)
        self.assertEqual(self.end_of(later)["error"], "cancelled by root")

    def as_other(self, path, body):
        """The answer to a POST by a user other than root."""
        os.chmod(self.daemon.directory, 0o711)
        os.chmod(self.daemon.socket, 0o666)
        out = harness.run("setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups", "curl", "-sf", "--unix-socket", self.daemon.socket,
                          "--data-binary", json.dumps(body), f"http://daemon/v1{path}", env={"PATH": "/usr/bin:/bin"}).stdout
        return json.loads(out or "null")

    def test_a_signal_to_another_users_command_names_its_sender(self):
        workspace = self.as_other("/workspaces", {"repo_url": self.url, "name": "theirs"})["id"]

        def ended_by(argv, call):
            exec_id = self.as_other(f"/workspaces/{workspace}/execs", {"argv": argv})["id"]
            harness.wait_until(lambda: b"ready" in self.client.raw_output(exec_id), what="it runs")
            call(exec_id)
            end = self.end_of(exec_id)
            return end["state"], end.get("error"), exec_id

        sleeps = ["sh", "-c", "echo ready; exec sleep 1000"]
        state, error, exec_id = ended_by(sleeps, lambda e: self.daemon.cli("kill", e, "TERM"))
        self.assertEqual((state, error), ("signalled", "SIGTERM sent by root"))
        self.assertIn(b"SIGTERM sent by root", self.daemon.cli("logs", exec_id, check=False).stderr)
        # Its shell reports the end of its child.
        self.assertEqual(ended_by(["sh", "-c", "trap : INT; echo ready; sleep 1000; exit $?"], lambda e: self.client.signal(e, "INT"))[:2],
                         ("exited", "SIGINT sent by root"))

        def one_that_it_outlives(exec_id):
            self.client.signal(exec_id, "USR1")
            self.as_other(f"/execs/{exec_id}/signal", {"signal": "TERM"})

        survives = ["sh", "-c", "trap : USR1; echo ready; while :; do sleep 0.1; done"]
        self.assertEqual(ended_by(survives, one_that_it_outlives)[:2], ("signalled", None), "the owner's own signal needs no name")

        def across_a_death(exec_id):
            self.daemon.kill()
            self.daemon.start()
            self.client.signal(exec_id, "KILL")
        self.assertEqual(ended_by(sleeps, across_a_death)[:2], ("signalled", "SIGKILL sent by root"))

    def test_a_disposable_workspace_waits_for_the_last_of_its_commands(self):
        self.client.create(repo_url=self.url, name="shared", disposable=True)
        first = self.client.start_exec("shared", ["sh", "-c", "read line"], stdin=True)["id"]
        second = self.client.start_exec("shared", ["sh", "-c", "read line"], stdin=True)["id"]
        for command in ("true", "exit 3"):
            self.client.exec("shared", command)  # neither the first nor the last one
        self.client.send_input(first, b"\n")
        self.assertEqual(self.end_of(first)["exit_code"], 0)
        self.assertEqual(self.client.exec("shared", "echo on").stdout, b"on\n")
        self.assertEqual(self.client.get_exec(second)["state"], "running")
        self.client.send_input(second, b"\n")
        self.assertEqual((self.end_of(second)["state"], self.end_of(second)["exit_code"]), ("exited", 0))
        harness.wait_until(lambda: "shared" not in [w["name"] for w in self.client.workspaces()], what="it is deleted")

    def test_a_stop_waits_for_a_command_that_ends_by_itself(self):
        self.running("waited", "sleep", "2")
        self.assertNotIn("sandbox", self.client.stop("waited", wait_ms=60_000))
        record = self.client.history("waited")["execs"][-1]
        self.assertEqual((record["state"], record["exit_code"]), ("exited", 0))

    def test_an_automatic_stop_names_its_reason(self):
        exec_id = self.running("leased")
        with self.client.lease("leased", "another", takeover=True):
            self.assertIn("the lease was taken over by another", self.end_of(exec_id)["error"])
        exec_id = self.running("old")
        self.client.update("old", max_lifetime_s=1)
        self.assertIn("max_lifetime_s", self.end_of(exec_id)["error"])

    def test_a_background_process_does_not_count_as_a_command(self):
        self.client.create(repo_url=self.url, name="left")
        self.client.exec("left", "setsid sleep 1000 >/dev/null 2>&1 &")
        self.assertNotIn("sandbox", self.client.stop("left"))

    def test_many_commands_are_counted(self):
        self.running("many")
        for _ in range(6):
            self.client.start_exec("many", ["sleep", "1000"])
        self.assertIn("and 2 more run", self.refusal(self.client.stop, "many").message)
        began = time.monotonic()
        self.assertEqual(len(self.client.stop("many", force=True)["ended"]), 7)
        self.assertLess(time.monotonic() - began, 30 * harness.PATIENCE)


if __name__ == "__main__":
    unittest.main()
