"""Private repositories over https and ssh: who has shown access may use the mirror, and nobody else."""

import base64
import os
import pathlib
import pwd
import shutil
import tempfile
import time
import unittest

import canaries
import harness
import raw_api
import outside
import private_git
from https_server import ConnectProxy

HOST = "git.example"
ADDRESS = outside.address("3.10")
TOKEN = "ghp-canary-41d0b7c95e"
OTHER = pwd.getpwnam("nobody").pw_uid  # a user without a credential
MEMORY_S = 3


class PrivateRepositories(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="moorage-private-", dir=harness.BASE)
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.place = pathlib.Path(cls.scratch.name)
        os.chmod(cls.place, 0o755)
        cls.program = shutil.copy(harness.BIN / "moorage", cls.place)  # where others may run it
        cls.authority = outside.Authority(cls.place / "ca")
        cls.proxy = ConnectProxy({HOST: ADDRESS})
        cls.addClassCleanup(cls.proxy.stop)
        cls.sshd = private_git.Sshd(ADDRESS, HOST, cls.place / "sshd")
        cls.addClassCleanup(cls.sshd.close)
        cls.settings = {"network.resolvers": [outside.DNS_ADDRESS], "network.reachable": [outside.NETWORK],
                        "network.ca_file": str(cls.authority.file),
                        "network.credential_key": str(cls.place / "key" / "credentials.key"),
                        "repo.ca_file": str(cls.authority.file), "repo.https_proxy": cls.proxy.url,
                        "repo.ssh_config": str(cls.sshd.config), "repo.access_s": MEMORY_S}
        super().setUpClass()
        canaries.keep_out(cls.daemon, TOKEN)
        os.chmod(cls.daemon.directory, 0o711)
        os.chmod(cls.daemon.socket, 0o666)
        cls.dns = outside.Dns({HOST: ADDRESS})
        cls.addClassCleanup(cls.dns.close)
        cls.context = cls.authority.context(HOST)
        cls.git = cls.place / "git"
        cls.serve_https()
        cls.addClassCleanup(lambda: cls.https.close())
        cls.sshd.start()

    @classmethod
    def serve_https(cls):
        cls.https = private_git.HttpsHost(ADDRESS, cls.context, cls.git, [TOKEN])

    def setUp(self):
        self.name = self._testMethodName[5:][:40].replace("_", "-").strip("-")
        self.bare = self.git / "acme" / self.name
        self.bare.parent.mkdir(parents=True, exist_ok=True)
        self.first = private_git.bare_repository(self.bare)
        self.url = f"https://{HOST}/acme/{self.name}"
        self.ssh_url = f"ssh://root@{HOST}:{self.sshd.port}{self.bare}"
        self.https.tokens = {TOKEN}

    def cli_as_other(self, *argv, check=False):
        environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "MOORAGE_SOCKET": str(self.daemon.socket), "LANG": "C.UTF-8"}
        return harness.run(self.program, *argv, check=check, env=environment, user=OTHER, group=OTHER, extra_groups=[])

    def secret_file(self, text=TOKEN):
        file = self.place / f"{self.name}.token"
        file.write_text(text + "\n")
        return file

    def add(self, *options, run=None, **more):
        (run or self.daemon.cli)("credential", "add", self.name, *options, check=True, **more)
        self.addCleanup(run or self.daemon.cli, "credential", "rm", self.name, check=False)

    def add_token(self, **more):
        self.add("--for", f"https://{HOST}/acme/", "--as", "basic:git", "--from-file", self.secret_file(), **more)

    def add_key(self, **more):
        key = self.sshd.make_key(self.name)
        self.sshd.authorize(key)
        self.add("--for", f"ssh://root@{HOST}:{self.sshd.port}{self.git}/acme/", "--as", "ssh-key", "--from-file", key, **more)
        return key

    def create(self, name, url=None, **fields):
        made = self.client.create(repo_url=url or self.url, name=f"{self.name}-{name}", **fields)
        self.addCleanup(self.client.delete, made["id"], purge=True)
        return made

    def refused(self, *words, url=None, code="permission_denied", **fields):
        with self.assertRaises(raw_api.ApiError) as refusal:
            self.client.create(repo_url=url or self.url, name=f"{self.name}-no", **fields)
        self.assertEqual(refusal.exception.code, code, refusal.exception)
        for word in words:
            self.assertIn(word, f"{refusal.exception}\n{refusal.exception.hint}")

    def not_accepted(self):
        return f"{HOST} did not accept the credential {self.name} for ", "it may have expired, or access was revoked"

    def out(self, workspace, script):
        result = self.client.exec(workspace["id"], script)
        self.assertEqual(result.exit_code, 0, result.stdout + result.stderr)
        return result.stdout.decode().strip()

    def assert_nowhere(self, *secrets):
        """Not in the store, nor in a command line or an environment."""
        for secret in secrets:
            found = harness.run("grep", "-rlaF", "-e", secret, self.daemon.store, check=False).stdout.decode()
            self.assertEqual(found, "")
            self.assertNotIn(secret, self.daemon.log.read_text(errors="replace"))
            for process in pathlib.Path("/proc").glob("[0-9]*"):
                try:
                    text = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
                except OSError:
                    continue
                if process.name != str(os.getpid()):
                    self.assertNotIn(secret.encode(), text, process)

    def test_created_and_fetched_over_https(self):
        self.refused("private or does not exist", "credential")
        self.add_token()
        one = self.create("one")
        self.assertEqual(one["base"]["commit"], self.first)
        self.assertEqual(self.out(one, "cat README.md; git remote get-url origin"), f"hello\n{self.url}")
        second = private_git.add_commit(self.bare, "README.md", "again\n")
        self.assertEqual(self.create("two")["base"]["commit"], second)
        third = private_git.add_commit(self.bare, "README.md", "fetched\n")
        self.daemon.cli("repo", "fetch", self.client.workspace(one["id"])["repo"]["id"])
        self.https.tokens = set()
        self.assertEqual(self.create("three", ref=third)["base"]["commit"], third)
        encoded = base64.b64encode(f"git:{TOKEN}".encode()).decode()
        self.assert_nowhere(TOKEN, encoded)

    def test_forms_of_https(self):
        for options in (["bearer"], ["header:X-Token"]):
            self.add("--for", f"https://{HOST}/acme/{self.name}.git", "--as", *options, "--from-stdin", input=TOKEN.encode() + b"\n")
            self.daemon.cli("repo", "add", self.url)
        self.add("--for", f"https://{HOST}/", "--as", "basic", "--from-command", f"printf git:%s $(cat {self.secret_file()})")
        self.daemon.cli("repo", "add", self.url)
        self.assertEqual({token for _, _, token in self.https.requests if token}, {TOKEN})

    def test_a_secret_cannot_become_a_setting(self):
        mark = self.place / "mark"
        self.add("--for", f"https://{HOST}/acme/", "--from-command",
                 f"printf 'x\"\\n[core]\\n\\tgitProxy = touch {mark}\\n\\tsshCommand = touch {mark}\\n'")
        self.refused("has a quote, a backslash or several lines", code="invalid_argument")
        self.assertFalse(mark.exists())

    def test_a_redirect_does_not_take_the_credential_along(self):
        self.add("--for", f"https://{HOST}/moved/", "--as", "basic:git", "--from-file", self.secret_file())
        self.https.requests.clear()
        self.refused("a credential goes to no other place", url=f"https://{HOST}/moved/{self.name}")
        self.assertEqual({path.split("/")[1] for _, path, _ in self.https.requests}, {"moved"})

    def test_a_token_is_rotated_and_expires(self):
        self.add_token()
        one = self.create("one")
        self.https.tokens = {"ghp-second-canary"}
        self.refused(*self.not_accepted())
        self.secret_file("ghp-second-canary")
        self.create("two")
        self.https.tokens = set()
        self.refused(*self.not_accepted())
        # The work goes on.
        self.daemon.cli("stop", one["id"])
        self.assertEqual(self.out(one, "cat README.md; git log --format=%H"), f"hello\n{self.first}")
        self.assert_nowhere("ghp-second-canary")

    def test_a_revoked_user_is_refused_the_cached_mirror(self):
        self.add_token()
        self.create("one")
        self.https.tokens = set()
        self.create("lately", ref=self.first)
        time.sleep(MEMORY_S)
        self.refused(*self.not_accepted(), ref=self.first)
        self.refused(*self.not_accepted())
        # Upstream said no: at once, also for a commit.
        self.https.tokens = {TOKEN}
        self.create("two", ref=self.first)
        self.https.tokens = set()
        self.refused(*self.not_accepted())
        self.refused(*self.not_accepted(), ref=self.first)

    def test_an_upstream_that_does_not_answer(self):
        self.add_token()
        one = self.create("one")
        self.https.close()
        self.addCleanup(self.serve_https)
        self.proxy.names = {HOST: outside.address("3.99")}
        self.addCleanup(lambda: setattr(self.proxy, "names", {HOST: ADDRESS}))
        self.create("lately")
        time.sleep(MEMORY_S)
        self.refused("cannot ask whether you may still read", code="unavailable")
        self.refused("cannot ask whether you may still read", code="unavailable", ref=self.first)
        self.assertEqual(self.out(one, "cat README.md"), "hello")

    def test_another_user_is_refused_the_mirror(self):
        self.add_token()
        one = self.create("one")
        repo = self.client.workspace(one["id"])["repo"]["id"]
        for options in ([], ["--ref", self.first]):
            refused = self.cli_as_other("create", "--repo", self.url, *options)
            self.assertEqual(refused.returncode, 1)
            self.assertIn(b"private or does not exist", refused.stderr)
        self.assertNotIn(self.name.encode(), self.cli_as_other("repo", "ls").stdout)
        self.assertIn(b"there is no repository", self.cli_as_other("repo", "fetch", repo).stderr)
        # With a credential, that user has a mirror of their own.
        self.add_token(run=self.cli_as_other)
        self.cli_as_other("create", "--repo", self.url, "--name", "theirs", check=True)
        self.addCleanup(self.cli_as_other, "rm", "--purge", "--force", "theirs")
        self.assertNotIn(repo.encode(), self.cli_as_other("repo", "ls").stdout)
        self.cli_as_other("credential", "rm", self.name)
        self.assertEqual(self.cli_as_other("create", "--repo", self.url).returncode, 1)

    def test_labels_limit_it(self):
        self.add("--for", f"https://{HOST}/acme/", "--as", "basic:git", "--label", "team=blue", "--from-file", self.secret_file())
        self.refused("private or does not exist")
        self.create("blue", labels={"team": "blue"})

    def test_over_ssh(self):
        self.refused(url=self.ssh_url, code="unavailable")  # that name is only in repo.ssh_config
        key = self.add_key()
        one = self.create("one", self.ssh_url)
        self.assertEqual(self.out(one, "cat README.md"), "hello")
        others = self.cli_as_other("create", "--repo", self.ssh_url)
        self.assertIn(b"you have no credential for", others.stderr)  # root's own key is not for them
        self.assertEqual(others.returncode, 1)
        second = private_git.add_commit(self.bare, "README.md", "again\n")
        self.assertEqual(self.create("two", self.ssh_url)["base"]["commit"], second)
        self.sshd.authorize()
        self.refused(*self.not_accepted(), url=self.ssh_url)
        self.refused(*self.not_accepted(), url=self.ssh_url, ref=second)
        self.assertEqual(self.out(one, "cat README.md"), "hello")
        body = key.read_text().splitlines()[3]
        self.assert_nowhere(body)

    def test_a_key_is_used_as_its_owner(self):
        key = self.sshd.make_key(self.name)
        os.chown(key, OTHER, OTHER)
        self.sshd.authorize(key)
        self.add("--for", f"ssh://root@{HOST}:{self.sshd.port}{self.git}/acme/", "--as", "ssh-key", "--from-file", key,
                 run=self.cli_as_other)
        self.cli_as_other("create", "--repo", self.ssh_url, "--name", "theirs", check=True)
        self.addCleanup(self.cli_as_other, "rm", "--purge", "--force", "theirs")
        self.refused(url=self.ssh_url, code="unavailable")  # that name is only in repo.ssh_config

    def test_a_key_is_kept_encrypted(self):
        key = self.sshd.make_key(self.name)
        self.sshd.authorize(key)
        self.add("--for", f"ssh://root@{HOST}:{self.sshd.port}/", "--as", "ssh-key", "--from-stdin", input=key.read_bytes())
        key.unlink()
        self.create("one", self.ssh_url)

    def test_an_unknown_host_key_is_refused(self):
        self.add_key()
        known = self.sshd.directory / "known_hosts"
        text = known.read_text()
        self.addCleanup(known.write_text, text)
        known.write_text(text.replace(HOST, "else.example"))
        self.refused("Host key verification failed", "known_hosts", url=self.ssh_url)

    def clone_inside(self, workspace, push="allow"):
        """By its https URL, which goes over ssh."""
        self.daemon.cli("net", "allow", workspace["name"], HOST)
        self.daemon.cli("set", workspace["name"], "--push", push)
        self.out(workspace, f"git clone -q https://{HOST}{self.bare} /tmp/inside")
        return "cd /tmp/inside && git config user.email a@b && git config user.name a && "

    def test_git_inside_goes_over_ssh(self):
        self.add_key()
        one = self.create("one", self.ssh_url)
        self.https.requests.clear()
        inside = self.clone_inside(one)
        self.assertEqual(self.out(one, inside + "git log --format=%H"), self.first)
        second = private_git.add_commit(self.bare, "README.md", "again\n")
        self.out(one, inside + "git pull -q")
        self.out(one, inside + "head -c 3000000 /dev/urandom > large && git add . && git commit -qm third && git push -q origin HEAD:refs/heads/topic")
        self.assertEqual(harness.git(self.bare, "rev-parse", "topic^"), second)
        self.assertEqual(self.out(one, inside + "git rev-parse HEAD"), harness.git(self.bare, "rev-parse", "topic"))
        self.out(one, "git fetch -q origin && git rev-parse origin/topic")  # whose URL is one of ssh
        # Many names in the request, which git compresses.
        self.out(one, inside + "for n in $(seq 1 60); do git commit -q --allow-empty -m $n; done")
        private_git.add_commit(self.bare, "README.md", "once more\n")
        self.out(one, inside + "git fetch -q && git push -q origin HEAD:refs/heads/many && git fetch -q --depth 1")
        self.assertEqual(self.https.requests, [])
        self.wait_for_no_bridges()

    def test_a_push_over_ssh_waits_for_its_approval(self):
        self.add_key()
        one = self.create("one", self.ssh_url)
        inside = self.clone_inside(one, push="ask")
        push = inside + "git push -q origin HEAD:refs/heads/agent"
        self.out(one, inside + "git commit -q --allow-empty -m mine")
        self.assertNotEqual(self.client.exec(one["id"], push).exit_code, 0)
        self.assertEqual(harness.git(self.bare, "for-each-ref", "refs/heads/agent"), "")
        shown, = self.client.approvals(one["name"])
        self.daemon.cli("approve", shown["id"])
        self.out(one, push)
        self.assertEqual(self.out(one, inside + "git rev-parse HEAD"), harness.git(self.bare, "rev-parse", "agent"))
        self.assertNotEqual(self.client.exec(one["id"], inside + "git push -q origin HEAD^:refs/heads/other").exit_code, 0)

    def wait_for_no_bridges(self):
        harness.wait_until(lambda: not [line for line in harness.processes().values() if "git-over-ssh" in line], what="no bridge")

    def test_errors_of_ssh_are_shown_by_git_inside(self):
        self.add_key()
        one = self.create("one", self.ssh_url)
        inside = self.clone_inside(one)
        result = self.client.exec(one["id"], f"git clone -q https://{HOST}{self.bare}-none /tmp/none")
        self.assertIn(b"moorage: git over ssh: ", result.stderr)
        self.assertIn(b"does not appear to be a git repository", result.stderr)
        result = self.client.exec(one["id"], inside + "git -c protocol.version=0 fetch")
        self.assertIn(b"fetches over ssh need version 2 of git's protocol", result.stderr)
        known = self.sshd.directory / "known_hosts"
        text = known.read_text()
        self.addCleanup(known.write_text, text)
        known.write_text("")
        result = self.client.exec(one["id"], inside + "git fetch")
        self.assertIn(b"Host key verification failed", result.stderr)
        known.write_text(text)
        self.sshd.authorize()
        result = self.client.exec(one["id"], inside + "git push origin HEAD:refs/heads/x")
        self.assertIn(b"Permission denied (publickey", result.stderr)
        self.daemon.cli("credential", "rm", self.name)
        self.assertNotEqual(self.client.exec(one["id"], inside + "git fetch").exit_code, 0)
        self.wait_for_no_bridges()

    def test_requests_of_others_do_not_go_over_ssh(self):
        self.add_key()
        one = self.create("one", self.ssh_url)
        self.clone_inside(one)
        self.https.requests.clear()
        for path in ("/other/x/info/refs?service=git-upload-pack", f"{self.bare}/README.md", f"{self.bare}/../../acme/x/info/refs?service=git-upload-pack",
                     f"{self.bare}%2f/info/refs?service=git-upload-pack"):
            self.client.exec(one["id"], ["curl", "-s", "--path-as-is", f"https://{HOST}{path}"])
        self.assertEqual([path for _, path, _ in self.https.requests],
                         ["/other/x/info/refs?service=git-upload-pack", f"{self.bare}/README.md"])

    def test_a_key_goes_only_over_ssh(self):
        for url, form in ((self.url, "ssh-key"), (self.ssh_url, "bearer")):
            refused = self.daemon.cli("credential", "add", self.name, "--for", url, "--as", form, "--from-command", "echo x", check=False)
            self.assertEqual(refused.returncode, 1)
            self.assertIn(b"ssh:// URLs go with --as ssh-key", refused.stderr)


if __name__ == "__main__":
    unittest.main()
