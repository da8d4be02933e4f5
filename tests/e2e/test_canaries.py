"""A secret of a credential is in the memory of its workspace's egress, and nowhere else.

Each search also looks for a canary that a command left in the workspace, which it must find: a search that sees nothing
proves nothing.
"""

import os
import pathlib
import pwd
import resource
import secrets
import signal
import subprocess
import tempfile
import time
import unittest

import canaries
import harness
import outside
from canaries import Search
from test_replica import as_of

API = outside.address("3.10")
SOURCES = ("command", "file", "stdin")


class ApiHandler(outside.Handler):
    """/SOURCE/... needs its key."""

    def do_GET(self):
        key = self.server.keys[self.path.split("/")[1]].decode()
        right = self.headers.get("Authorization") == f"Bearer {key}"
        self.server.right += right
        self.send_response(200 if right else 401)
        self.send_header("Content-Length", "0")
        self.end_headers()


class Canaries(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = pathlib.Path(tempfile.mkdtemp(prefix="moorage-canaries-", dir=harness.BASE))
        cls.addClassCleanup(lambda: harness.run("rm", "-rf", cls.place))
        cls.replica = cls.place / "replica"
        cls.replica.mkdir(mode=0o700)
        authority = outside.Authority(cls.place / "ca")
        cls.settings = {"network.resolvers": [outside.DNS_ADDRESS], "network.reachable": [outside.NETWORK],
                        "network.ca_file": str(authority.file), "replica.directory": str(cls.replica),
                        "replica.interval_s": 1, "replica.same_disk": True}
        super().setUpClass()
        cls.dns = outside.Dns({"api.example": API})
        cls.addClassCleanup(cls.dns.close)
        cls.api = outside.Host(API, 443, authority.context("api.example"), ApiHandler)
        cls.addClassCleanup(cls.api.close)

    def setUp(self):
        canary = f"sk-canary-{secrets.token_hex(12)}"
        self.keys = {source: f"{canary}-{source}-{secrets.token_hex(8)}".encode() for source in SOURCES}
        self.api.keys, self.api.right = self.keys, 0
        self.left = b"left-behind-" + secrets.token_hex(16).encode()
        self.search, self.control = Search(canary.encode()), Search(self.left)
        self.kept = self.place / "sources"  # the only files that have them
        self.kept.mkdir()
        self.addCleanup(harness.run, "rm", "-rf", self.kept)
        for source in ("command", "file"):
            (self.kept / source).write_bytes(self.keys[source] + b"\n")
            (self.kept / source).chmod(0o600)

    def use(self, name):
        """A workspace whose commands have used all three, and left the other canary in a file."""
        given = {"command": ["--from-command", f"cat {self.kept / 'command'}"], "file": ["--from-file", self.kept / "file"],
                 "stdin": ["--from-stdin"]}
        for source, options in given.items():
            self.daemon.cli("credential", "add", source, "--for", f"https://api.example/{source}/", "--env", f"{source.upper()}_KEY",
                            *options, input=self.keys["stdin"] + b"\n")
            self.addCleanup(self.daemon.cli, "credential", "rm", source)
        self.client.create(repo_url=self.url, name=name)
        self.addCleanup(self.client.delete, name, purge=True)
        self.client.change_network(name, allow=["api.example"])
        self.client.exec(name, "cat > left", stdin=self.left)
        self.ask(name)
        self.assertEqual(self.api.right, len(SOURCES))

    def ask(self, name):
        for source in SOURCES:
            answer = self.client.exec(name, f"curl -sS -o answer -w '%{{http_code}}' https://api.example/{source}/x")
            self.assertEqual(answer.stdout, b"200", (source, answer.stderr))

    def assert_in_no_file(self, *places):
        self.assertEqual(self.search.files(*places), [])
        self.assertNotEqual(self.control.files(*places), [], f"a search of {places} finds nothing")

    def test_no_file_has_it(self):
        self.use("files")
        self.client.snapshot("files", name="before")
        self.client.exec("files", "env > environment; cat /proc/*/environ > environments 2>/dev/null; true")
        self.assert_in_no_file(self.daemon.store)
        root = f"/proc/{self.daemon.sandbox_pids('files')['init']}/root"
        inside = [f"{root}/{name}" for name in os.listdir(root)
                  if name not in ("proc", "sys", "usr") and not os.path.islink(f"{root}/{name}")]
        self.assert_in_no_file(*inside)
        export = self.place / "export.tar.zst"
        self.daemon.cli("export", "files", export)
        self.assertFalse(self.search.file(export))
        self.assertTrue(self.control.file(export))
        now = time.time()
        harness.wait_until(lambda: as_of(self.client.info().get("replica")) > now, 60, "the replica follows")
        self.assert_in_no_file(self.replica)
        self.client.archive("files")
        self.assert_in_no_file(self.daemon.store / "archive")
        self.daemon.stop()  # nothing is left in a buffer
        self.assert_in_no_file(self.daemon.directory)
        self.daemon.start()
        self.assert_in_no_file(self.daemon.directory)
        for text in (self.daemon.cli("credential", "ls", "--json").stdout, self.daemon.cli("events").stdout,
                     self.daemon.cli("history", "files").stdout):
            self.assertFalse(self.search.text(text))

    def test_a_command_that_fails_is_quoted_to_its_owner_only(self):
        flag = self.kept / "flag"
        flag.touch()
        self.daemon.cli("credential", "add", "talks", "--for", "https://api.example/command/", "--from-command",
                        f"cat {self.kept / 'command'} >&2; test -e {flag} && cat {self.kept / 'command'}")
        self.addCleanup(self.daemon.cli, "credential", "rm", "talks")
        self.client.create(repo_url=self.url, name="talks")
        self.addCleanup(self.client.delete, "talks", purge=True)
        self.client.change_network("talks", allow=["api.example"])
        self.client.exec("talks", "cat > left", stdin=self.left)
        flag.unlink()
        answer = self.client.exec("talks", "curl -s -w '%{http_code}' https://api.example/command/x").stdout
        self.assertIn(b"the credential talks: its command failed with exit code 1", answer)
        self.assertTrue(answer.endswith(b"403"), answer)
        self.assertFalse(self.search.text(answer))
        with self.assertRaises(harness.raw_api.ApiError) as refused:
            self.client.add_credential("talks", ["https://api.example/"], key="twice", command=f"cat {self.kept / 'command'} >&2; exit 1")
        self.assertIn(self.keys["command"].decode(), refused.exception.message)
        self.assert_in_no_file(self.daemon.directory)

    def test_another_users_workspace_does_not_use_it(self):
        self.use("owners")
        os.chmod(self.daemon.directory, 0o711)
        os.chmod(self.daemon.socket, 0o666)
        other = pwd.getpwnam("nobody").pw_uid

        def moorage_as_other(*argv):
            environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "MOORAGE_SOCKET": str(self.daemon.socket), "LANG": "C.UTF-8"}
            return harness.run(harness.BIN / "moorage", *argv, env=environment, user=other, group=other, extra_groups=[]).stdout

        moorage_as_other("create", "--repo", self.url, "--name", "others")
        self.addCleanup(self.client.delete, "others", purge=True)
        moorage_as_other("net", "allow", "others", "api.example")
        answer = moorage_as_other("exec", "others", "--", "curl", "-s", "-w", "%{http_code}", "https://api.example/file/x")
        self.assertEqual(answer, b"401")
        self.assertEqual(moorage_as_other("exec", "others", "--", "sh", "-c", "echo $FILE_KEY"), b"\n")
        self.assertEqual(moorage_as_other("credential", "ls"), b"No credentials.\n")
        self.ask("owners")

    def test_a_store_without_its_key_or_from_a_replica_says_what_to_do(self):
        self.client.add_credential("kept", ["https://api.example/"], sealed=self.client.seal(self.keys["stdin"]))
        self.addCleanup(self.client.remove_credential, "kept")
        key = self.daemon.directory / "credentials.key"
        with self.subTest("another key"):
            key.rename(self.place / "away")
            self.refused("the key that its secret was encrypted for is gone: " + str(key), "put the key back")
            self.client.request("GET", "/credentials/key")  # makes a new one
            self.refused(f"it cannot be decrypted with {key}: it was encrypted for another key", "moorage credential test kept")
            (self.place / "away").rename(key)
            self.client.test_credential("kept")
        with self.subTest("the key comes from systemd"):
            given = self.place / "given"
            given.mkdir()
            self.addCleanup(harness.run, "rm", "-rf", given)
            key.rename(given / "moorage-credentials.key")
            self.daemon.environment["CREDENTIALS_DIRECTORY"] = str(given)
            self.addCleanup(self.daemon.environment.pop, "CREDENTIALS_DIRECTORY")
            self.daemon.restart()
            self.client.test_credential("kept")
            self.assertFalse(key.exists())
        now = time.time()
        harness.wait_until(lambda: as_of(self.client.info().get("replica")) > now, 60, "the replica follows")
        self.daemon.stop()  # it writes the replica
        self.addCleanup(self.daemon.start)
        other = harness.Daemon()
        self.addCleanup(other.remove)  # first: the two are copies of one store
        other.store.rmdir()
        harness.run(harness.BIN / "moorage", "restore-store", self.replica, "--store", other.store, "--config", other.config)
        other.start()
        self.refused("its encrypted secret is not in this store (a replica has none)", "add it again", other.client)

    def refused(self, message, hint, client=None):
        with self.assertRaises(harness.raw_api.ApiError) as refused:
            (client or self.client).test_credential("kept")
        self.assertIn("the credential kept: " + message, refused.exception.message)
        self.assertIn(hint, refused.exception.hint)

    def egress_of(self, name):
        found = [pid for pid in canaries.of_sandbox(self.daemon, name) if canaries.name_of(pid).startswith("moorage-egress")]
        self.assertEqual(len(found), 1)
        return found[0]

    def test_only_the_memory_of_its_egress_has_it(self):
        self.use("memory")
        running = self.client.start_exec("memory", ["python3", "-c", "import os, time; k = dict(os.environ); time.sleep(600)"])
        self.client.create(repo_url=self.url, name="neighbour")
        self.addCleanup(self.client.delete, "neighbour", purge=True)
        self.client.change_network("neighbour", allow=["api.example"])
        self.client.exec("neighbour", "curl -s https://api.example/; curl -s https://api.example/none/; true")
        egress, other = self.egress_of("memory"), self.egress_of("neighbour")
        self.ask("memory")
        ours = canaries.descendants(self.daemon.process.pid) | canaries.engines()
        ours |= canaries.of_sandbox(self.daemon, "memory") | canaries.of_sandbox(self.daemon, "neighbour")
        names = {canaries.name_of(pid) for pid in ours}
        self.assertLessEqual({"mooraged", "moorage-egress-", "warden", "python3"}, names)
        self.assertIn(other, ours)
        self.assertEqual(canaries.holders(self.search, ours - {egress}, Search.memory), [])
        self.assertEqual(canaries.holders(self.search, canaries.all_processes(), Search.given), [])
        for source, key in self.keys.items():
            self.assertTrue(Search(key).memory(egress), f"the search does not find the key from {source}")
        self.client.cancel(running["id"])

    def test_nothing_that_has_it_can_be_dumped(self):
        self.use("dumped")
        egress = self.egress_of("dumped")
        for pid in (egress, self.daemon.process.pid):
            limits = pathlib.Path(f"/proc/{pid}/limits").read_text()
            self.assertEqual(limits.split("Max core file size")[1].split()[:2], ["0", "0"])
        # The files of a process that is not dumpable belong to root, whatever its user (proc(5)).
        status = pathlib.Path(f"/proc/{egress}/status").read_text()
        self.assertNotIn("\nUid:\t0\t", status)
        self.assertEqual(os.stat(f"/proc/{egress}/mem").st_uid, 0)
        dumping = subprocess.Popen(["sleep", "60"], cwd=self.place, preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)))
        self.assertEqual(harness.end_by_fault(dumping), os.CLD_DUMPED, "a process without these limits writes no core file either")
        self.assertEqual(harness.end_by_fault(self.daemon.process), os.CLD_KILLED)
        os.kill(egress, signal.SIGSEGV)
        harness.wait_until(lambda: not pathlib.Path(f"/proc/{egress}/mem").exists(), what="the egress ends")
        self.daemon.start()
        self.assert_in_no_file(self.daemon.directory)
        self.ask("dumped")


if __name__ == "__main__":
    unittest.main()
