"""Mixed releases: programs are replaced while commands run, by those of a later or an earlier release. Compatible ones
work together; an incompatible one reports that before it changes anything.

The other releases are this one's programs with another base/wire/protocol.cc (tests/releases). The state left by releases
older than protocol numbers is recorded here."""

import hashlib
import json
import os
import shutil
import signal
import sqlite3
import unittest

import harness
import outside

# Writes numbered lines until it is stopped, then prints their number and the errors.
BUSY = 'n=0; until [ -e stop ]; do echo "line $n"; n=$((n+1)); done; read answer; echo "$n" > count; echo "got $answer"; exit 7'


def label_of(name):
    for top, _, _ in os.walk("/sys/fs/cgroup"):
        if os.path.basename(top) == name:
            for attribute in os.listxattr(top):
                if "moorage" in attribute:
                    return top, attribute
    raise AssertionError(f"no label of {name}")


class Upgrade(harness.TestCase):
    settings = {"network.resolvers": [outside.DNS_ADDRESS], "network.reachable": [outside.NETWORK]}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.daemon.stop()
        cls.daemon.bin = cls.daemon.directory / "bin"
        cls.daemon.bin.mkdir()
        cls.install("this")
        cls.daemon.start()

    @classmethod
    def install(cls, release):
        """Like dpkg: each file is written beside the old one and renamed over it."""
        other = harness.BIN.parent / "releases" / release
        for program in ("mooraged", "moorage-warden", "moorage-launch", "moorage-egress"):
            source = other / program
            new = cls.daemon.bin / f"{program}.new"
            shutil.copy2(source if source.exists() else harness.BIN / program, new)
            os.rename(new, cls.daemon.bin / program)

    def setUp(self):
        self.daemon.kill()
        harness.end_sandboxes(f"moorage-{self.daemon.known_store_id}-")  # leftovers of tests, of any release
        self.install("this")
        self.daemon.start()

    def begin(self, name):
        """A workspace with a command that writes at full speed."""
        self.client.create(repo_url=self.url, name=name)
        record = self.client.start_exec(name, ["sh", "-c", BUSY], stdin=True)
        harness.wait_until(lambda: self.client.get_exec(record["id"])["output_bytes"] > 100_000, what="output")
        return record["id"]

    def end(self, name, command):
        """The command is unaffected: it reads input, ends with its own result, and all its output is kept."""
        written = self.client.get_exec(command)["output_bytes"]
        harness.wait_until(lambda: self.client.get_exec(command)["output_bytes"] > written, what="it goes on")
        self.client.write_file(name, "stop", b"")
        self.client.send_input(command, b"fine\n")
        end = self.client.wait(command, timeout_ms=60000)
        self.assertEqual((end["state"], end["exit_code"]), ("exited", 7))
        count = int(self.client.read_file(name, "count"))
        expected = hashlib.sha256()
        for n in range(count):
            expected.update(b"line %d\n" % n)
        expected.update(b"got fine\n")
        got = self.client.raw_output(command)
        self.assertEqual(hashlib.sha256(got).hexdigest(), expected.hexdigest())

    def replace(self, release):
        self.install(release)
        self.daemon.stop()
        self.daemon.start()

    def works_inside(self, name):
        """Every request of a daemon to a warden that it did not start."""
        self.assertEqual(self.client.exec(name, "cat; id -un; exit 3", stdin=b"in\n").stdout, b"in\nuser\n")
        sleeper = self.client.start_exec(name, ["sleep", "1000"])["id"]
        self.client.signal(sleeper, "TERM")
        self.assertEqual(self.client.wait(sleeper, timeout_ms=20000)["state"], "signalled")
        tree = self.client.start_exec(name, ["sh", "-c", "setsid sleep 1000 & sleep 1000"], timeout_ms=200)["id"]
        self.assertEqual(self.client.wait(tree, timeout_ms=20000)["state"], "timed_out")
        harness.wait_until(lambda: self.client.exec(name, "pgrep -x sleep").exit_code == 1, what="all of it is gone")
        self.assertEqual(self.client.read_file(name, "README.md"), b"hello\n")

    def log_since(self, mark):
        return self.daemon.log.read_text(errors="replace")[mark:]

    def change_over(self, name, first, second):
        self.replace(first)
        command = self.begin(name)
        init = self.daemon.sandbox_pids(name)["init"]
        mark = self.daemon.log.stat().st_size
        self.replace(second)
        self.assertIn("sandbox.adopted", self.log_since(mark))
        self.assertEqual(self.daemon.sandbox_pids(name)["init"], init)
        self.end(name, command)
        return init

    def test_a_later_release_takes_over_running_commands(self):
        init = self.change_over("up", "this", "next")
        self.client.exec("up", "rm stop count")
        self.works_inside("up")
        self.client.stop("up")
        self.client.start("up")
        self.assertNotEqual(self.daemon.sandbox_pids("up")["init"], init)
        self.works_inside("up")

    def test_an_earlier_release_takes_over_running_commands(self):
        self.change_over("down", "next", "this")
        self.client.exec("down", "rm stop count")
        self.works_inside("down")

    def web_example(self):
        """A host of that name, until the end of the test."""
        web = outside.address("0.20")
        dns = outside.Dns({"web.example": web})
        self.addCleanup(dns.close)
        host = outside.Host(web, 80)
        self.addCleanup(host.close)
        return host

    def test_a_download_goes_on_through_upgrades(self):
        host = self.web_example()
        host.pause_s = 0.1
        self.client.create(repo_url=self.url, name="net")
        self.client.change_network("net", allow=["web.example"])
        size = 100 * outside.PIECE
        exec_id = self.client.start_exec("net", ["sh", "-c", f"curl -sS http://web.example/pattern/{size} | sha256sum"])["id"]
        harness.wait_until(lambda: host.bytes_sent > 0, what="the download begins")
        for release in ("next", "this"):
            self.replace(release)
            before = host.bytes_sent
            harness.wait_until(lambda: host.bytes_sent > before, what="the download goes on")  # noqa: B023
        self.client.change_network("net", deny=["ads.example"])
        self.assertEqual(self.client.get_exec(exec_id)["state"], "running")
        host.pause_s = 0
        self.assertEqual(self.client.wait(exec_id)["exit_code"], 0)
        digest = hashlib.sha256(outside.pattern(size)).hexdigest()
        self.assertEqual(self.client.raw_output(exec_id).split()[0].decode(), digest)

    def test_an_egress_without_a_common_protocol_is_replaced(self):
        self.web_example()
        shutil.copy2(harness.BIN.parent / "releases" / "far" / "moorage-egress", self.daemon.bin / "moorage-egress")
        self.daemon.restart()
        self.client.create(repo_url=self.url, name="far")
        self.client.change_network("far", allow=["web.example"])
        self.assertEqual(self.client.exec("far", "curl -sS http://web.example/").exit_code, 0)
        mark = self.daemon.log.stat().st_size
        self.replace("this")
        self.client.change_network("far", deny=["web.example"])
        self.assertEqual(self.client.exec("far", "curl -sS http://web.example/").exit_code, 6)
        self.client.change_network("far", allow=["web.example"])
        self.assertEqual(self.client.exec("far", "curl -sS http://web.example/").exit_code, 0)
        self.assertIn("network.started", self.log_since(mark))

    def test_a_sandbox_older_than_protocol_numbers_is_taken_over(self):
        command = self.begin("first")
        self.daemon.stop()
        top, attribute = label_of(self.daemon_name("first"))
        label = json.loads(os.getxattr(top, attribute))
        os.setxattr(top, attribute, json.dumps({k: label[k] for k in ("pid", "start_ticks", "directory")}).encode())
        self.daemon.start()
        self.end("first", command)

    def daemon_name(self, name):
        database = sqlite3.connect(f"file:{self.daemon.store}/state.db?mode=ro", uri=True)
        try:
            query = "SELECT s.id FROM sandboxes s JOIN workspaces w ON w.id = s.workspace WHERE w.name = ? AND s.state = 'running'"
            return f"moorage-{self.daemon.known_store_id}-sb_{database.execute(query, (name,)).fetchone()[0]}"
        finally:
            database.close()

    def refused(self):
        """Starts the installed daemon, which refuses. Returns its error; the store is unchanged."""
        files = ["state.db", "reserve"]
        before = [hashlib.sha256((self.daemon.store / f).read_bytes()).hexdigest() for f in files]
        mark = self.daemon.log.stat().st_size
        self.daemon.start(wait=False)
        self.assertEqual(self.daemon.process.wait(30), 1)
        after = [hashlib.sha256((self.daemon.store / f).read_bytes()).hexdigest() for f in files]
        self.assertEqual(before, after)
        return self.log_since(mark)

    def test_a_sandbox_with_an_unknown_protocol_is_left_alone(self):
        for first, second in (("far", "this"), ("this", "far")):
            with self.subTest(first=first):
                self.replace(first)
                name = f"strange-{first}"
                command = self.begin(name)
                init = self.daemon.sandbox_pids(name)["init"]
                self.daemon.stop()
                self.install(second)
                said = self.refused()
                for part in ("protocol 1001", "protocol 1;" if second == "far" else "protocol 1\n", "moorage stop NAME"):
                    self.assertIn(part, said)
                os.kill(init, 0)
                self.install(first)
                self.daemon.start()
                self.end(name, command)
                self.client.delete(name, purge=True)

    def test_a_database_of_a_later_release_is_left_alone(self):
        command = self.begin("schema")
        init = self.daemon.sandbox_pids("schema")["init"]
        self.daemon.stop()
        database = sqlite3.connect(self.daemon.store / "state.db")
        with database:
            database.execute("INSERT INTO migrations VALUES ('9999-later', '9.9.9', 1)")
        database.close()
        self.daemon.start(wait=False)
        harness.wait_until(self.daemon.answers, what="rescue mode")
        said = self.client.doctor()["findings"][0]
        self.assertIn("newer version (moorage 9.9.9, migration 9999-later)", said["text"])
        self.assertIn("Install moorage 9.9.9 or newer", said["command"])
        self.daemon.stop()
        os.kill(init, 0)
        database = sqlite3.connect(self.daemon.store / "state.db")
        with database:
            database.execute("DELETE FROM migrations WHERE name = '9999-later'")
        database.close()
        self.daemon.start()
        self.end("schema", command)

    def test_sandboxes_start_between_unpacking_and_restart(self):
        self.client.create(repo_url=self.url, name="window")
        for program in ("moorage-warden", "moorage-launch", "moorage-egress"):
            (self.daemon.bin / f"{program}.new").write_text("half of it")
            os.rename(self.daemon.bin / f"{program}.new", self.daemon.bin / program)
        self.client.start("window")
        self.works_inside("window")

    def test_a_warden_of_another_release_is_reported(self):
        self.install("this")
        far = harness.BIN.parent / "releases" / "far" / "moorage-warden"
        shutil.copy2(far, self.daemon.bin / "moorage-warden")
        self.daemon.restart()
        self.client.create(repo_url=self.url, name="mixed")
        with self.assertRaises(harness.raw_api.ApiError) as refused:
            self.client.start("mixed")
        self.assertIn("the warden is of moorage far and speaks protocol 1001", str(refused.exception))
        self.assertIn("of one release", refused.exception.hint)

    def test_a_kill_during_the_upgrade_changes_nothing(self):
        command = self.begin("killed")
        self.install("next")
        self.daemon.restart()
        os.kill(self.daemon.process.pid, signal.SIGKILL)
        self.install("this")
        self.daemon.restart()
        self.end("killed", command)


if __name__ == "__main__":
    unittest.main()
