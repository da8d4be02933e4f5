"""Keys for an API, for git over https and for git over ssh are used by commands on another machine, and never are there: in
no file and no process. Each search also looks for a text that a command left there, which it must find."""

import os
import pathlib
import secrets
import tempfile
import unittest

import canaries
import harness
import outside
import private_git
import ssh_host
from test_remote_network import ApiHandler

GIT = outside.address("4.20")
API = outside.address("4.21")


class RemoteCanaries(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = pathlib.Path(tempfile.mkdtemp(prefix="moorage-remote-canaries-", dir=harness.BASE))
        cls.addClassCleanup(lambda: harness.run("rm", "-rf", cls.place))
        os.chmod(cls.place, 0o755)
        cls.machine = ssh_host.SshHost(cls.place / "machine").start()
        cls.addClassCleanup(cls.machine.close)
        cls.authority = outside.Authority(cls.place / "ca")
        cls.sshd = private_git.Sshd(GIT, "git.example", cls.place / "sshd")
        cls.addClassCleanup(cls.sshd.close)
        cls.settings = {"network.resolvers": [outside.DNS_ADDRESS], "network.reachable": [outside.NETWORK],
                        "network.ca_file": str(cls.authority.file), "repo.ca_file": str(cls.authority.file),
                        "repo.ssh_config": str(cls.sshd.config), "repo.file_roots": [str(cls.place)],
                        "sandbox.backend": "ssh", "backends": cls.machine.section()}
        super().setUpClass()
        cls.dns = outside.Dns({"git.example": GIT, "api.example": API})
        cls.addClassCleanup(cls.dns.close)
        cls.token, cls.api_key = (f"canary-{kind}-{secrets.token_hex(16)}" for kind in ("git", "api"))
        cls.https = private_git.HttpsHost(GIT, cls.authority.context("git.example"), cls.place / "git", [cls.token])
        cls.addClassCleanup(cls.https.close)
        cls.sshd.start()
        cls.api = outside.Host(API, 443, cls.authority.context("api.example"), ApiHandler)
        cls.addClassCleanup(cls.api.close)

    def add_credential(self, name, url, form, secret, *options):
        self.daemon.cli("credential", "add", name, "--for", url, "--as", form, *options, "--from-stdin", input=secret)
        self.addCleanup(self.daemon.cli, "credential", "rm", name)

    def workspace(self, name, url, *hosts):
        self.client.create(repo_url=url, name=name)
        self.addCleanup(self.client.delete, name, purge=True)
        self.client.change_network(name, allow=hosts)
        self.daemon.cli("set", name, "--push", "allow")
        self.control = f"left-behind-{secrets.token_hex(16)}"
        self.out(name, f"echo {self.control} > left")
        # A process that has it in its command line, environment and memory.
        self.client.start_exec(name, ["python3", "-c", f"import time; left = '{self.control}'; time.sleep(600)"])

    def out(self, name, script):
        result = self.client.exec(name, ["sh", "-c", script])
        self.assertEqual(result.exit_code, 0, result.stderr)
        return result.stdout.decode().strip()

    def pushes(self, name, bare, url):
        """Fetches what others made, and pushes what it made itself."""
        self.out(name, f"git clone -q {url} /tmp/clone && cd /tmp/clone && git config user.email a@b && git config user.name a")
        theirs = private_git.add_commit(bare, "README.md", "again\n")
        push = "cd /tmp/clone && git pull -q && echo mine > mine && git add . && git commit -qm mine && git push -q origin HEAD:refs/heads/topic"
        self.out(name, push)
        self.assertEqual(harness.git(bare, "rev-parse", "topic^"), theirs)
        self.out(name, "env > environment; cat /proc/*/environ /proc/*/cmdline > seen 2>/dev/null; cp -r /tmp/clone/.git kept")

    def assert_never_there(self, secret):
        search, control = canaries.Search(secret), canaries.Search(self.control.encode())
        self.assertEqual(search.files(self.machine.root), [])
        self.assertNotEqual(control.files(self.machine.root), [])
        there = self.machine.processes()
        self.assertLessEqual({"sshd", "moorage-outpost", "python3"}, {canaries.name_of(pid) for pid in there})
        for how in (canaries.Search.memory, canaries.Search.given):
            self.assertEqual(canaries.holders(search, there, how), [])
            self.assertNotEqual(canaries.holders(control, there, how), [])

    def test_a_token_for_git_over_https(self):
        bare = self.place / "git/acme/tokens"
        bare.parent.mkdir(parents=True, exist_ok=True)
        private_git.bare_repository(bare)
        self.add_credential("token", "https://git.example/acme/", "basic:git", self.token.encode() + b"\n")
        self.workspace("tokens", self.url, "git.example")
        self.pushes("tokens", bare, "https://git.example/acme/tokens")
        self.assertIn(self.token, [token for _, _, token in self.https.requests])
        self.assert_never_there(self.token.encode())

    def test_a_key_for_git_over_ssh(self):
        bare = self.place / "git/acme/keys"
        bare.parent.mkdir(parents=True, exist_ok=True)
        private_git.bare_repository(bare)
        key = self.sshd.make_key("deploy")
        self.sshd.authorize(key)
        self.add_credential("deploy", f"ssh://root@git.example:{self.sshd.port}{bare.parent}/", "ssh-key", key.read_bytes())
        self.workspace("keys", f"ssh://root@git.example:{self.sshd.port}{bare}", "git.example")
        self.pushes("keys", bare, f"https://git.example{bare}")
        body = key.read_bytes().split(b"\n")[1:-2]
        self.assert_never_there(body[len(body) // 2])

    def test_a_key_of_an_agent(self):
        self.api.key, self.api.right = self.api_key, 0
        self.add_credential("agent", "https://api.example/", "bearer", self.api_key.encode() + b"\n", "--env", "API_KEY")
        self.workspace("agent", self.url, "api.example")
        ask = "import os, urllib.request as u; print(u.urlopen(u.Request('https://api.example/v1', headers={'Authorization': 'Bearer ' + os.environ['API_KEY']})).status)"
        self.assertEqual(self.client.exec("agent", ["python3", "-c", ask]).stdout, b"200\n")
        self.out("agent", "curl -sSf -D headers -H \"Authorization: Bearer $API_KEY\" https://api.example/v1 > answer; env > environment")
        self.assertEqual(self.api.right, 2)
        self.assert_never_there(self.api_key.encode())


if __name__ == "__main__":
    unittest.main()
