"""Secrets of users in the hands of Moorage: row 52. tests/e2e/test_canaries.py follows those that an egress uses."""

import hashlib
import os
import pathlib
import resource
import secrets
import subprocess
import unittest

from threat import Threats, harness, threat

import canaries  # of the end-to-end tests, found through threat
from canaries import Search

# Places for a token in a URL.
IN_URLS = ("https://{}@git.example/a/b", "https://user:{}@git.example/a/b", "ssh://git:{}@git.example/a/b", "https://git.example/a/b?access_token={}",
           "https://git.example/a/b#{}", "git://x:{}@git.example/a/b", "http://x:{}@git.example/a/b", "x:{}@git.example:a/b")


class Secrets(Threats):
    def setUp(self):
        self.new_canary()
        self.place = self.daemon.directory / "outside"
        self.place.mkdir()
        self.addCleanup(harness.shutil.rmtree, self.place)
        self.file = self.place / "secret"
        self.file.write_text(self.canary + "\n")

    def new_canary(self):
        self.canary = f"ghp_canary{secrets.token_hex(16)}"
        self.search = Search(self.canary.encode())

    def refused(self, call):
        """Without repeating what was refused."""
        with self.assertRaises(harness.raw_api.ApiError) as refused:
            call()
        self.assertIn(refused.exception.code, ("invalid_argument", "unsupported"), refused.exception.message)
        self.assertNotIn(self.canary, refused.exception.message + refused.exception.hint)

    def assert_nowhere(self):
        """In no file of the daemon, in no environment and no command line; nor in the daemon's memory."""
        self.assertEqual(self.search.files(self.daemon.directory, without={str(self.place)}), [])
        self.assertEqual(canaries.holders(self.search, canaries.all_processes(), Search.given), [])

    @threat(52, "H", "a token in a URL, an environment, a command line, a log, the history or a core file",
            "URLs with one are refused and not repeated; a credential comes by a file, a command or encrypted, and is passed on through pipes; "
            "of a lease's token, 256 random bits, the store has the SHA-256; neither daemon nor egress writes a core file",
            "the same searches find the token in the command and the file that received it; the same signal makes another process write a core file")
    def test_a_token_leaves_no_trace(self):
        for number, url in enumerate(url.format(self.canary) for url in IN_URLS):
            with self.subTest(url=url):
                self.refused(lambda: self.client.create(repo_url=url, name="never", key=f"create-{number}"))  # noqa: B023
                self.refused(lambda: self.client.add_repo(url, key=f"add-{number}"))  # noqa: B023
                self.refused(lambda: self.client.add_credential("never", [url], file=str(self.file), key=f"credential-{number}"))  # noqa: B023
                self.refused(lambda: self.client.change_network("jail", allow=[url], key=f"network-{number}"))  # noqa: B023
                self.refused(lambda: self.client.check_network("jail", url))  # noqa: B023
        for name in ("token", "access_token"):
            self.refused(lambda: self.client.request("GET", "/workspaces", {name: self.canary}))  # noqa: B023
            self.refused(lambda: self.client.request("POST", "/workspaces", json_body={name: self.canary}))  # noqa: B023
        self.assertEqual(self.search.files(self.daemon.store), [])
        self.new_canary()  # requests with the former were in the daemon's memory
        self.file.write_text(self.canary + "\n")
        checkout = self.place / "checkout"
        harness.make_repository(checkout)
        harness.git(checkout, "remote", "add", "origin", f"https://x:{self.canary}@git.example/a/b")
        self.daemon.cli("create", "--from", checkout, "--name", "local")
        self.assertNotIn(self.canary.encode(), self.client.exec("local", "cat .git/config; env").stdout)
        given = {"file": ["--from-file", self.file], "command": ["--from-command", f"cat {self.file}"], "stdin": ["--from-stdin"]}
        for name, options in given.items():
            self.daemon.cli("credential", "add", name, "--for", "https://git.example/", "--env", "TOKEN", *options, input=self.canary.encode() + b"\n")
            self.addCleanup(self.client.remove_credential, name)
            self.daemon.cli("credential", "test", name)
        self.client.stop("jail")
        self.assertEqual(self.client.exec("jail", "echo $TOKEN").stdout, b"moorage-credential-stdin\n")
        self.assert_nowhere()
        ours = canaries.descendants(self.daemon.process.pid) | canaries.of_sandbox(self.daemon, "jail")
        self.assertEqual(canaries.holders(self.search, ours, Search.memory), [])
        # The control: the same searches, where it is.
        self.assertEqual(self.search.files(self.place), [str(self.file), str(checkout / ".git/config")])
        running = self.client.start_exec("jail", ["sleep", "1000"], env={"TOKEN": self.canary})
        harness.wait_until(lambda: canaries.holders(self.search, canaries.all_processes(), Search.given) == ["sleep"], what="the command has it")
        self.client.cancel(running["id"])
        self.leases()
        self.cores()

    def leases(self):
        token = self.client.acquire_lease("local", "agent")["token"]
        secret = token.rsplit(".")[-1]
        self.assertEqual(len(bytes.fromhex(secret)), 32)
        kept = Search(hashlib.sha256(secret.encode()).hexdigest().encode())
        self.assertIn(str(self.daemon.store / "state.db-wal"), kept.files(self.daemon.store))
        self.assertEqual(Search(secret.encode()).files(self.daemon.directory), [])
        self.assertEqual(Search(bytes.fromhex(secret)).files(self.daemon.directory), [])
        holder = harness.Client(str(self.daemon.socket))
        holder.lease_token = token
        holder.release_lease("local")

    def cores(self):
        dumping = subprocess.Popen(["sleep", "60"], cwd=self.place, preexec_fn=lambda: resource.setrlimit(
            resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)))
        self.assertEqual(harness.end_by_fault(dumping), os.CLD_DUMPED, "no process of this host writes core files")
        limits = pathlib.Path(f"/proc/{self.daemon.process.pid}/limits").read_text()
        self.assertEqual(limits.split("Max core file size")[1].split()[:2], ["0", "0"])
        self.assertEqual(harness.end_by_fault(self.daemon.process), os.CLD_KILLED)
        self.daemon.start()


if __name__ == "__main__":
    unittest.main()
