"""The official npm packages, unmodified, accept the fake providers: whole lives, and faults as documented errors."""

import contextlib
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

import fake_daytona
import fake_e2b

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
import npm_packages  # noqa: E402

DEADLINE_S = 120


def left_over():
    """Control groups of machines that this process made."""
    mark = f"rented-{os.getpid()}-"
    return [top for top, _, _ in os.walk("/sys/fs/cgroup") if os.path.basename(top).startswith(mark)]


class Node:
    """Runs scenarios of a file with the packages in `place`."""

    def __init__(self, place, scenarios, environment):
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("E2B_", "DAYTONA_"))}
        self.process = subprocess.Popen(["node", HERE / "sdk.js", place, HERE / scenarios], env=clean | environment,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def run(self, scenario, argument):
        """(value, error)."""
        self.process.stdin.write(json.dumps([scenario, argument]).encode() + b"\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], DEADLINE_S)[0]:
            raise AssertionError(f"{scenario} does not end")
        answer = json.loads(self.process.stdout.readline())
        return answer.get("value"), answer.get("error")

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@unittest.skipUnless(os.environ.get("CI") or shutil.which("npm"), "SKIP: no npm")
@unittest.skipUnless(os.geteuid() == 0, "SKIP: needs root")
class ProviderTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = npm_packages.install(HERE, "remote")
        cls.directory = pathlib.Path(tempfile.mkdtemp(prefix="rented-"))
        cls.addClassCleanup(shutil.rmtree, cls.directory)
        cls.fake, cls.nodes = cls.make_fake(), {}
        cls.addClassCleanup(cls.assert_nothing_left)
        cls.addClassCleanup(cls.fake.close)

    @classmethod
    def assert_nothing_left(cls):
        left = left_over()
        if left or os.listdir(cls.directory):
            raise AssertionError(f"machines remain: {left} {os.listdir(cls.directory)}")

    def setUp(self):
        self.addCleanup(lambda: self.fake.call(self.fake.end_sandboxes()))
        self.addCleanup(self.fake.faults.clear)

    def node(self, scenario, argument=None, **environment):
        """(value, error) of a scenario."""
        key = tuple(environment.items())
        if key not in self.nodes:
            self.nodes[key] = Node(self.place, self.scenarios, self.environment() | environment)
            self.addClassCleanup(self.nodes[key].close)
        return self.nodes[key].run(scenario, argument)

    def value(self, scenario, argument=None, **environment):
        value, error = self.node(scenario, argument, **environment)
        self.assertIsNone(error)
        return value

    def error(self, scenario, argument=None, **environment):
        value, error = self.node(scenario, argument, **environment)
        self.assertIsNotNone(error, value)
        return error

    def count(self, method, path):
        """The statuses of requests so far."""
        return [status for seen, target, status in self.fake.requests
                if (seen, target.partition("?")[0]) == (method, path)]

    def assert_one_was_made(self, state):
        """And ends it, once it is in that state."""
        end = time.monotonic() + DEADLINE_S
        while (found := self.value("list")) and found[0][1] != state or not found:
            self.assertLess(time.monotonic(), end, found)
            time.sleep(0.1)
        (identifier, _), = found
        self.end(identifier)

    @contextlib.contextmanager
    def sandbox(self, **options):
        """The id of one that exists."""
        identifier = self.value("create", options)
        try:
            yield identifier
        finally:
            self.fake.faults.clear()
            self.end(identifier)


class E2B(ProviderTest):
    scenarios = "sdk_e2b.js"
    create = "/v2/sandboxes"

    @classmethod
    def make_fake(cls):
        certificate = cls.directory.parent / f"{cls.directory.name}.pem"
        cls.addClassCleanup(certificate.unlink)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
                        "-keyout", certificate, "-out", f"{certificate}.crt"], check=True, capture_output=True)
        with open(certificate, "ab") as file:
            file.write(pathlib.Path(f"{certificate}.crt").read_bytes())
        os.unlink(f"{certificate}.crt")
        cls.certificate = certificate
        return fake_e2b.FakeE2B(cls.directory, certificate=(certificate, certificate))

    def environment(self):
        return {"E2B_API_URL": self.fake.url, "E2B_SANDBOX_URL": self.fake.url, "E2B_API_KEY": self.fake.api_key}

    def end(self, identifier):
        self.value("kill", identifier)

    def test_commands_have_output_input_signals_and_ends(self):
        seen = self.value("commands")
        self.assertEqual("out word\nuser\n/home/user\n", seen["result"]["stdout"])
        self.assertEqual({"stdout": "out word\nuser\n/home/user\n", "stderr": "err\n"}, seen["streamed"])
        self.assertEqual((0, "0\n"), (seen["result"]["exitCode"], seen["root"]["stdout"]))
        self.assertEqual(("first\nend\n", True), (seen["cat"], seen["listed"]))
        self.assertEqual(("CommandExitError", 3), (seen["exit"]["name"], seen["exit"]["exitCode"]))
        self.assertEqual("InvalidArgumentError", seen["directory"]["name"])
        self.assertEqual((True, "CommandExitError"), (seen["killed"][0], seen["killed"][1]["name"]))
        self.assertEqual(False, seen["program"])
        self.assertIn(seen["late"]["name"], ("TimeoutError", "CommandExitError"))

    def test_a_terminal_is_resized_and_ends(self):
        seen = self.value("terminal")
        self.assertIn("33 99\r\n/dev/pts/", seen["output"])
        self.assertEqual(7, seen["end"]["exitCode"])

    def test_files_are_written_read_listed_moved_and_signed(self):
        seen = self.value("files")
        self.assertEqual(("text", 0, "", 100000), (seen["text"], seen["large"], seen["empty"], seen["packed"]))
        self.assertIn(["/home/user/a/large", "file"], seen["list"])
        self.assertIn(["/home/user/a", "dir"], seen["list"])
        self.assertEqual((4, "user"), (seen["info"]["size"], seen["info"]["owner"]))
        self.assertEqual(([True, False], [True, False], False), (seen["exists"], seen["made"], seen["removed"]))
        self.assertEqual("/home/user/f/two", seen["renamed"])
        self.assertEqual(["FileNotFoundError", "InvalidArgumentError", "AuthenticationError"],
                         [seen[name]["name"] for name in ("missing", "directory", "user")])
        self.assertIn("denied", seen["root"]["message"].lower())
        self.assertEqual(("text", 502), (seen["signed"], seen["unsigned"]))

    def test_lists_are_filtered_by_metadata_and_have_pages(self):
        seen = self.value("listing")
        self.assertEqual({"pages": [["3", "2"], ["1"]], "one": 1, "none": 0, "paused": ["1"]}, seen)

    def test_a_pause_freezes_and_a_connect_resumes(self):
        seen = self.value("life")
        self.assertLess(seen["before"], 30500)
        self.assertGreater(seen["after"], 150000)
        self.assertGreater(seen["never_shorter"], 100000)
        self.assertEqual([True, False, False], seen["paused"][:3])
        self.assertEqual("TimeoutError", seen["paused"][3]["name"])
        self.assertEqual(("kept", True, True), (seen["kept"], seen["ticks"], seen["killed_program"]))
        self.assertEqual([True, False, False], seen["killed"])
        self.assertEqual(["SandboxNotFoundError"] * 3, [each["name"] for each in seen["gone"]])

    def test_a_paused_program_does_nothing(self):
        with self.sandbox() as identifier:
            ticks = self.directory / identifier / "root/home/user/ticks"
            work = "(while :; do echo >>ticks; sleep 0.02; done) >/dev/null 2>&1 & until [ -s ticks ]; do :; done"
            self.assertIsNone(self.value("run", [identifier, work])["error"])
            self.assertTrue(self.value("pause", identifier))
            size = ticks.stat().st_size
            time.sleep(0.3)
            self.assertEqual((size, True), (ticks.stat().st_size, size > 0))

    def test_a_timeout_ends_a_sandbox_and_its_programs(self):
        identifier = self.value("create", {"timeoutMs": 1000})
        end = time.monotonic() + 20
        while left_over() and time.monotonic() < end:
            time.sleep(0.1)
        self.assertEqual(([], []), (left_over(), self.value("list")))
        self.assertEqual("SandboxNotFoundError", self.error("info", identifier)["name"])

    def test_the_same_over_tls(self):
        environment = {"E2B_API_URL": self.fake.tls_url, "E2B_SANDBOX_URL": self.fake.tls_url}
        self.assertEqual("fetch failed", self.error("create", {}, **environment)["message"])
        seen = self.value("files", NODE_EXTRA_CA_CERTS=str(self.certificate), **environment)
        self.assertEqual("text", seen["text"])

    def test_wrong_keys_and_unknown_templates_are_refused(self):
        self.assertEqual("AuthenticationError", self.error("create", {}, E2B_API_KEY="e2b_" + "1" * 40)["name"])
        self.assertIn("template 'none' not found", self.error("create_from", "none")["message"])

    def test_429_is_retried_after_its_time_or_reported(self):
        self.fake.requests.clear()
        self.fake.faults.add("status", method="POST", path=self.create, status=429, retry_after_s=1)
        before = time.monotonic()
        with self.sandbox():
            self.assertEqual([429, 201], self.count("POST", self.create))
            self.assertGreaterEqual(time.monotonic() - before, 1)
        self.fake.faults.add("status", method="POST", path=self.create, status=429)
        self.assertEqual("RateLimitError", self.error("create", {})["name"])

    def test_500_and_409_are_reported(self):
        self.fake.faults.add("status", method="POST", path=self.create, status=500)
        self.assertEqual("SandboxError", self.error("create", {})["name"])
        self.assertEqual([], self.value("list"))
        with self.sandbox() as identifier:
            self.fake.faults.add("status", method="POST", path=".*/pause", status=409)
            self.assertEqual(False, self.value("pause", identifier))

    def test_a_stall_has_no_answer_and_no_effect(self):
        self.fake.faults.add("stall", method="POST", path=self.create)
        self.assertEqual("silent", self.value("silent_create", 1000))
        self.assertEqual([], self.value("list"))

    def test_a_create_whose_answer_is_lost_made_a_sandbox(self):
        for stall in (False, True):
            with self.subTest(stall=stall):
                self.fake.faults.add("lost_answer", method="POST", path=self.create, stall=stall)
                if stall:
                    self.assertEqual("silent", self.value("silent_create", 2000))
                else:
                    self.assertIn("fetch failed", self.error("create", {})["message"])
                self.assert_one_was_made("running")

    def test_a_running_sandbox_may_be_reported_gone(self):
        with self.sandbox() as identifier:
            self.fake.faults.set(lies={identifier: "gone"})
            self.assertEqual("SandboxNotFoundError", self.error("info", identifier)["name"])
            self.assertEqual([], self.value("list"))
            self.assertEqual("here\n", self.value("run", [identifier, "echo here"])["stdout"])

    def test_a_sandbox_that_is_gone_may_be_reported_running(self):
        identifier = self.value("create", {})
        self.end(identifier)
        self.fake.faults.set(lies={identifier: "running"})
        self.assertEqual("running", self.value("info", identifier)["state"])
        self.assertEqual("SandboxNotFoundError", self.error("run", [identifier, "true"])["name"])

    def test_a_cut_stream_leaves_the_program_running(self):
        with self.sandbox() as identifier:
            self.fake.faults.add("cut", path="/process.Process/Start", bytes=60)
            work = "echo early; until [ -e go ]; do sleep 0.02; done; echo late"
            seen = self.value("reattach", [identifier, work, "go"])
            self.assertIsNotNone(seen["error"])
            self.assertEqual(("late\n", 0), (seen["stdout"], seen["exitCode"]))

    def test_slow_bytes_arrive_late(self):
        with self.sandbox() as identifier:
            self.value("run", [identifier, "head -c 2000 /dev/zero | tr '\\0' x >f"])
            self.fake.faults.add("slow", path="/files", bytes_per_s=2000)
            seen = self.value("read", [identifier, "f"])
            self.assertEqual((2000, True), (seen["length"], seen["seconds"] > 0.8))

    def test_the_providers_clock_may_be_wrong(self):
        self.fake.faults.set(skew_s=-7200)
        with self.sandbox() as identifier:
            started = self.value("info", identifier)["startedAt"]
            self.assertLess(started, fake_e2b.timestamp(time.time() - 7000))

    def test_files_are_lost_at_the_second_resume(self):
        self.assertEqual([True, False, True, True], self.value("resumed_twice"))
        self.fake.faults.set(lose_files_at_resume=2)
        self.assertEqual([True, False, True, False], self.value("resumed_twice"))

    def test_a_machine_that_died_is_still_listed(self):
        with self.sandbox() as identifier:
            self.fake.call(self.fake.die(identifier))
            self.assertEqual([[identifier, "running"]], self.value("list"))
            seen = self.value("run", [identifier, "true"])
            self.assertEqual(("SandboxNotFoundError", False), (seen["error"]["name"], seen["running"]))


class Daytona(ProviderTest):
    scenarios = "sdk_daytona.js"

    @classmethod
    def make_fake(cls):
        return fake_daytona.FakeDaytona(cls.directory)

    def environment(self):
        return {"DAYTONA_API_URL": f"{self.fake.url}/api", "DAYTONA_API_KEY": self.fake.api_key,
                "DAYTONA_TARGET": "local"}

    def end(self, identifier):
        self.fake.call(self.fake.destroy(identifier))

    def test_commands_and_sessions_have_output_input_and_ends(self):
        seen = self.value("commands")
        self.assertEqual(("started", 30), (seen["state"], seen["interval"]))
        self.assertEqual((3, "out word\nerr\n"), (seen["execute"]["exitCode"], seen["execute"]["result"]))
        self.assertEqual("/tmp\n1\n", seen["place"]["result"])
        self.assertEqual("DaytonaTimeoutError", seen["late"]["name"])
        self.assertEqual(("out\n", "err\n", 0), tuple(seen["first"][name] for name in ("stdout", "stderr", "exitCode")))
        self.assertEqual(("/tmp\n7\n", 1), (seen["second"]["stdout"], seen["second"]["exitCode"]))
        # As at Daytona: lines are labeled by shells, so a NUL byte is lost and the last line gets a newline.
        self.assertEqual((None, "got one\ntwotail\n", "err\n", 3),
                         (*(seen["streamed"][name] for name in ("error", "stdout", "stderr")), seen["code"]))
        self.assertEqual("got one\ntwotail\n", seen["logs"]["stdout"])
        self.assertEqual(["DaytonaGoneError", "DaytonaConflictError", "DaytonaNotFoundError"],
                         [seen[name]["name"] for name in ("ended", "twice", "deleted")])
        self.assertEqual(["kept", "session"], seen["sessions"])

    def test_a_terminal_is_resized_and_ends(self):
        seen = self.value("terminal")
        self.assertIn("33 99\r\nword\r\n", seen["output"])
        self.assertEqual(5, seen["end"]["exitCode"])

    def test_files_are_uploaded_downloaded_listed_and_moved(self):
        seen = self.value("files")
        self.assertEqual(("61000d0a62", 0), (seen["one"], seen["large"]))
        self.assertEqual([["up/one", 5], ["up/none", 404]], seen["several"])
        self.assertEqual("DaytonaNotFoundError", seen["missing"]["name"])
        self.assertEqual([["large", 3 << 20, False], ["one", 5, False]], sorted(seen["list"]))
        self.assertEqual((5, "daytona"), (seen["info"]["size"], seen["info"]["owner"]))
        self.assertEqual(("0600", ["large"]), (seen["moved"], seen["left"]))

    def test_lists_are_filtered_by_labels_and_have_pages(self):
        seen = self.value("listing")
        self.assertEqual(seen["made"][::-1], seen["all"])
        self.assertEqual((1, 0), (seen["one"], seen["none"]))
        self.assertEqual((seen["made"][:1], seen["made"][1:2]), (seen["stopped"], seen["other"]))
        self.assertEqual(["DaytonaConflictError", "DaytonaValidationError"],
                         [seen["name"]["name"], seen["snapshot"]["name"]])

    def test_a_stop_ends_programs_and_keeps_files(self):
        seen = self.value("life")
        self.assertEqual(["started", "stopped", "started", "destroyed"], seen["states"])
        self.assertEqual(("kept", "0\n", 7), (seen["kept"], seen["programs"], seen["interval"]))
        self.assertEqual(["DaytonaValidationError", "DaytonaValidationError", "DaytonaNotFoundError"],
                         [seen[name]["name"] for name in ("stopped", "again", "gone")])

    def test_a_volume_is_shared_by_those_that_mount_the_same_part_of_it(self):
        seen = self.value("volumes")
        self.assertEqual(("trees", ["kept\n", "0\n"], 0), (seen["name"], seen["seen"], seen["left"]))
        self.assertEqual([{"volumeId": seen["id"], "mountPath": "/mnt/trees", "subpath": "a/b"}], seen["mounts"])
        self.assertEqual("DaytonaConflictError", seen["used"]["name"])

    def test_an_idle_sandbox_stops_by_itself(self):
        with self.sandbox(autoStopInterval=1) as identifier, unittest.mock.patch.object(self.fake, "minute_s", 1):
            self.assertEqual("stopped", self.value("wait_stopped", [identifier, 30000]))

    def test_wrong_keys_are_refused(self):
        self.assertEqual("DaytonaAuthenticationError", self.error("create", {}, DAYTONA_API_KEY="dtn_1")["name"])

    def test_429_500_and_409_are_reported_and_not_retried(self):
        errors = {429: "DaytonaRateLimitError", 500: "DaytonaInternalServerError", 409: "DaytonaConflictError"}
        for status, name in errors.items():
            with self.subTest(status=status):
                self.fake.requests.clear()
                self.fake.faults.add("status", method="POST", path="/api/sandbox", status=status, retry_after_s=1)
                self.assertEqual(name, self.error("create", {})["name"])
                self.assertEqual([status], self.count("POST", "/api/sandbox"))

    def test_a_verb_during_a_change_of_state_is_refused(self):
        with self.sandbox() as identifier:
            self.fake.call(self.change_state(identifier, "resizing"))
            self.assertEqual("DaytonaConflictError", self.error("stop", identifier)["name"])

    async def change_state(self, identifier, state):
        self.fake.sandboxes[identifier].state = state

    def test_a_stall_has_no_answer_and_no_effect(self):
        self.fake.faults.add("stall", method="POST", path="/api/sandbox")
        self.assertEqual("silent", self.value("silent_create", 1000))
        self.assertEqual([], self.value("list"))

    def test_a_create_whose_answer_is_lost_made_a_sandbox(self):
        self.fake.requests.clear()
        self.fake.faults.add("lost_answer", method="POST", path="/api/sandbox")
        self.assertRegex(self.error("create", {})["message"], "hang up|ECONNRESET")
        self.assert_one_was_made("started")
        self.assertEqual([200], self.count("POST", "/api/sandbox"))

    def test_lies_about_states(self):
        with self.sandbox() as identifier:
            self.fake.faults.set(lies={identifier: "gone"})
            self.assertEqual([], self.value("list"))
            self.assertEqual("DaytonaNotFoundError", self.error("state", identifier)["name"])
            self.fake.faults.set(lies={identifier: "stopped"})
            self.assertEqual("stopped", self.value("state", identifier))
            self.assertEqual("here\n", self.value("execute", [identifier, "echo here"])["result"])
        self.fake.faults.set(lies={identifier: "started"})
        self.assertEqual("started", self.value("state", identifier))
        self.assertEqual("DaytonaNotFoundError", self.error("execute", [identifier, "true"])["name"])

    def test_a_cut_log_begins_again_at_its_first_byte(self):
        with self.sandbox() as identifier:
            self.fake.faults.add("cut", method="GET", path=".*/logs", bytes=300)
            seen = self.value("follow", [identifier, "for i in $(seq 200); do echo line $i; done; sleep 1; echo late"])
            self.assertNotIn("late", seen["stdout"])
            whole = "".join(f"line {number}\n" for number in range(1, 201)) + "late\n"
            self.assertEqual(whole, self.value("follow_again", [identifier, seen["cmdId"]]))

    def test_a_machine_that_died_remains_started(self):
        with self.sandbox() as identifier:
            self.fake.call(self.fake.die(identifier))
            self.assertEqual("started", self.value("state", identifier))
            self.assertEqual("DaytonaBadGatewayError", self.error("execute", [identifier, "true"])["name"])


del ProviderTest


if __name__ == "__main__":
    unittest.main()
