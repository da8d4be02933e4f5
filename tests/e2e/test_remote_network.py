"""Rules and credentials of a sandbox on another machine, through the daemon: they are judged and kept here."""

import hashlib
import os
import pathlib
import secrets
import subprocess
import tempfile
import unittest

import canaries
import harness
import outside
import ssh_host

WEB = outside.address("4.10")
API = outside.address("4.11")


class ApiHandler(outside.Handler):
    def do_GET(self):
        right = self.headers.get("Authorization") == f"Bearer {self.server.key}"
        self.server.right += right
        self.send_response(200 if right else 401)
        self.send_header("Content-Length", "0")
        self.end_headers()


class RemoteNetwork(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = pathlib.Path(tempfile.mkdtemp(prefix="moorage-remote-network-", dir=harness.BASE))
        cls.addClassCleanup(lambda: harness.run("rm", "-rf", cls.place))
        cls.machine = ssh_host.SshHost(cls.place / "machine").start()
        cls.addClassCleanup(cls.machine.close)
        cls.authority = outside.Authority(cls.place / "ca")
        cls.settings = {"network.resolvers": [outside.DNS_ADDRESS], "network.reachable": [outside.NETWORK],
                        "network.ca_file": str(cls.authority.file), "sandbox.backend": "ssh",
                        "backends": cls.machine.section()}
        super().setUpClass()
        cls.dns = outside.Dns({"web.example": WEB, "api.example": API, "other.example": WEB})
        cls.addClassCleanup(cls.dns.close)
        cls.web = outside.Host(WEB, 80)
        cls.addClassCleanup(cls.web.close)
        cls.api = outside.Host(API, 443, cls.authority.context("api.example"), ApiHandler)
        cls.addClassCleanup(cls.api.close)

    def workspace(self, name):
        self.client.create(repo_url=self.url, name=name)
        self.addCleanup(self.client.delete, name, purge=True)
        return name

    def curl(self, name, url, more=""):
        return self.client.exec(name, f"curl -sS --max-time 20 {more} {url}")

    def test_rules_hold_and_change_while_a_command_runs(self):
        name = self.workspace("rules")
        refused = self.daemon.cli("exec", name, "--", "curl", "-sS", "http://web.example/", check=False)
        self.assertEqual(refused.returncode, 6)
        self.assertIn(b"web.example was refused: no rule allows it; allow it: moorage net allow rules web.example", refused.stderr)
        self.assertEqual(self.client.history(name)["execs"][-1]["category"], "network_denied")
        self.client.change_network(name, allow=["web.example"])
        self.assertEqual(self.curl(name, "http://web.example/a").stdout, b"web.example /a\n")
        self.assertEqual(self.curl(name, "http://other.example/").exit_code, 6)
        for address in (WEB, "10.0.0.1", "169.254.169.254", self.machine.here):
            self.assertEqual(self.curl(name, f"http://{address}/").exit_code, 7, address)
        loop = self.daemon.cli_popen("exec", name, "--", "sh", "-c",
                                     "while :; do curl -s --max-time 5 http://web.example/ || echo no; sleep 0.1; done",
                                     stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(loop.stdout.close)
        self.addCleanup(loop.wait)
        self.addCleanup(loop.kill)
        for rule, line in (("deny", b"no"), ("allow", b"web.example /"), ("deny", b"no")):
            self.client.change_network(name, **{rule: ["web.example"]})
            harness.wait_until(lambda: loop.stdout.readline().strip() == line, what=f"{rule}: {line}")  # noqa: B023

    def test_a_download_arrives_whole_while_the_daemon_is_killed(self):
        name = self.workspace("long")
        self.client.change_network(name, allow=["web.example"])
        size = 40 * outside.PIECE
        self.web.pause_s = 0.2
        self.addCleanup(setattr, self.web, "pause_s", 0)
        began = self.web.bytes_sent
        running = self.client.start_exec(name, ["sh", "-c", f"curl -sS http://web.example/pattern/{size} | sha256sum"])
        harness.wait_until(lambda: self.web.bytes_sent > began, what="the download begins")
        for _ in range(2):
            self.daemon.restart()
            before = self.web.bytes_sent
            harness.wait_until(lambda: self.web.bytes_sent > before, what="the download goes on")  # noqa: B023
        self.web.pause_s = 0
        self.assertEqual(self.client.wait(running["id"])["exit_code"], 0)
        digest = hashlib.sha256(outside.pattern(size)).hexdigest()
        self.assertEqual(self.daemon.cli("logs", running["id"]).stdout.split()[0].decode(), digest)
        self.assertEqual(self.curl(name, "http://web.example/b").stdout, b"web.example /b\n")

    def test_each_command_reads_its_refusals_also_those_that_an_earlier_one_had(self):
        name = self.workspace("again")
        for _ in range(3):
            refused = self.daemon.cli("exec", name, "--", "curl", "-sS", "http://web.example/", check=False)
            self.assertEqual(refused.stderr.count(b"web.example was refused: no rule allows it; allow it: "), 1, refused.stderr)
            self.assertEqual(self.client.history(name)["execs"][-1].get("category"), "network_denied")

    def test_an_egress_that_is_killed_is_back_and_lets_nothing_pass_meanwhile(self):
        name = self.workspace("kill")
        self.client.change_network(name, allow=["web.example"])
        self.assertEqual(self.curl(name, "http://web.example/").exit_code, 0)
        for _ in range(3):
            pids = self.egresses(name)
            self.assertTrue(pids)
            for pid in pids:
                os.kill(pid, 9)
            harness.wait_until(lambda: self.curl(name, "http://web.example/").exit_code == 0, what="a way out")
            self.assertEqual(self.curl(name, "http://other.example/").exit_code, 6)

    def egresses(self, name):
        sandbox = self.client.workspace(name)["sandbox"]["id"]
        pids = harness.sandbox_cgroup_pids(f"moorage-{self.daemon.store_id()}-{sandbox}")
        return [pid for pid in pids if canaries.name_of(pid).startswith("moorage-egress")]

    def test_a_secret_is_used_and_never_there(self):
        key = f"sk-canary-{secrets.token_hex(12)}"
        self.api.key, self.api.right = key, 0
        left = f"left-behind-{secrets.token_hex(16)}"
        search, control = canaries.Search(key.encode()), canaries.Search(left.encode())
        self.daemon.cli("credential", "add", "api", "--for", "https://api.example/", "--env", "API_KEY", "--from-stdin",
                        input=key.encode() + b"\n")
        self.addCleanup(self.daemon.cli, "credential", "rm", "api")
        name = self.workspace("secret")
        self.client.change_network(name, allow=["api.example"])
        self.client.exec(name, "cat > left", stdin=left.encode())
        self.client.start_exec(name, ["python3", "-c", f"import time, urllib.request; left = '{left}'; time.sleep(600)"])
        script = "curl -sS -D headers -o answer -w '%{http_code}' https://api.example/x && env > environment"
        for round in range(3):
            answer = self.client.exec(name, script)
            self.assertEqual(answer.stdout, b"200", answer.stderr)
        python = "import os, urllib.request as u; print(u.urlopen('https://api.example/y').status)"
        self.assertEqual(self.client.exec(name, ["python3", "-c", python]).stdout, b"200\n")
        self.assertEqual(self.api.right, 4)
        self.assertEqual(search.files(self.machine.root), [])
        self.assertNotEqual(control.files(self.machine.root), [])
        there = self.machine.processes()
        self.assertLessEqual({"sshd", "moorage-outpost", "python3"}, {canaries.name_of(pid) for pid in there})
        for how in (canaries.Search.memory, canaries.Search.given):
            self.assertEqual(canaries.holders(search, there, how), [])
            self.assertNotEqual(canaries.holders(control, there, how), [])
        # It is here, in the memory of the workspace's egress.
        self.assertTrue(any(search.memory(pid) for pid in self.egresses(name)))


if __name__ == "__main__":
    unittest.main()
