"""git in a sandbox: its author, root, and programs that the host gets later."""

import os
import pathlib
import unittest

import harness
import raw_api

LOG = "%an <%ae> | %cn <%ce>"


class GitInside(harness.TestCase):
    settings = {"sandbox.git_name": "Team Bot", "sandbox.git_email": "bot@team.example"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client.create(repo_url=cls.url, name="git")

    def commit_by_cli(self, gitconfig, *options, home=None):
        """The author and committer of a commit by `moorage exec` of a user with this ~/.gitconfig."""
        home = home or self.daemon.directory / "home"
        home.mkdir(exist_ok=True)
        (home / ".gitconfig").write_text(gitconfig)
        self.daemon.cli("exec", *options, "git", "--", "git", "commit", "-q", "--allow-empty", "-m", "x", env={"HOME": str(home)}, cwd=home)
        return self.last()

    def last(self):
        return self.client.exec("git", ["git", "log", "-1", f"--format={LOG}"]).stdout.decode().strip()

    def fallback(self):
        """The daemon reads the git configuration of the caller, who runs this suite, then its settings."""
        own = [harness.run("git", "config", "--global", f"user.{part}", check=False, env={"PATH": os.environ["PATH"], "HOME": os.path.expanduser("~")}).stdout.decode().strip()
               for part in ("name", "email")]
        name, email = (mine or setting for mine, setting in zip(own, ("Team Bot", "bot@team.example")))
        return f"{name} <{email}> | {name} <{email}>"

    def test_commits_are_by_the_one_who_runs_the_command(self):
        ada = "[user]\n\tname = Ada Lovelace\n\temail = ada@example.org\n"
        self.assertEqual(self.commit_by_cli(ada), "Ada Lovelace <ada@example.org> | Ada Lovelace <ada@example.org>")
        other = ada.replace("Ada Lovelace", "J\u00fcrgen O'Neil").replace("ada@", "j@")
        self.assertEqual(self.commit_by_cli(other), "J\u00fcrgen O'Neil <j@example.org> | J\u00fcrgen O'Neil <j@example.org>")
        self.assertIn("me <ada@example.org> | Ada Lovelace", self.commit_by_cli(ada, "-e", "GIT_AUTHOR_NAME=me"))

    def test_the_host_git_is_asked_again_only_after_a_change(self):
        home = self.daemon.directory / "kept"
        project = home / "project"
        project.mkdir(parents=True)
        asked = home / "asked"
        harness.run("git", "init", "-q", cwd=project)
        (home / ".gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@example.org\n")
        environment = {"HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "GIT_TRACE": str(asked)}

        def commit(more=None):
            asked.unlink(missing_ok=True)
            self.daemon.cli("exec", "git", "--", "git", "commit", "-q", "--allow-empty", "-m", "x", env=environment | (more or {}), cwd=project)
            return self.last().split(" | ")[0], asked.exists()

        def kept():
            """The times of changes are coarse: an answer is kept once the files are two seconds old."""
            harness.wait_until(lambda: not commit()[1], 20, "an answer that is kept")

        self.assertEqual(commit(), ("Ada <ada@example.org>", True))
        kept()
        self.assertEqual(commit(), ("Ada <ada@example.org>", False))
        self.assertEqual(commit({"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "user.name", "GIT_CONFIG_VALUE_0": "Eve"}), ("Ada <ada@example.org>", True))
        (home / ".gitconfig").write_text("[user]\n\tname = Bea\n\temail = ada@example.org\n")  # of the same length
        self.assertEqual(commit(), ("Bea <ada@example.org>", True))
        kept()
        harness.run("git", "config", "user.name", "Cleo", cwd=project)
        self.assertEqual(commit(), ("Cleo <ada@example.org>", True))
        kept()
        (home / "more").write_text("[user]\n\temail = c@example.org\n")
        harness.run("git", "config", "include.path", str(home / "more"), cwd=project)
        self.assertEqual(commit(), ("Cleo <c@example.org>", True))
        self.assertEqual(commit(), ("Cleo <c@example.org>", True))
        (home / "more").write_text("[user]\n\temail = d@example.org\n")
        self.assertEqual(commit(), ("Cleo <d@example.org>", True))

    def test_without_an_identity_commits_are_by_the_setting(self):
        self.assertEqual(self.commit_by_cli(""), self.fallback())
        self.assertNotIn("moorage.invalid", self.last())

    def test_a_hostile_identity_is_refused_or_left_out(self):
        for bad in ("a\nb", "<a", "a>", "\x1b[31m", "a\u0085", "...", "", "x" * 201):
            for author in ({"name": bad, "email": "a@b"}, {"name": "a", "email": bad}):
                with self.assertRaisesRegex(raw_api.ApiError, "git_author.(name|email) must be text"):
                    self.client.request("POST", "/workspaces/git/execs", json_body={"argv": ["true"], "git_author": author})
        hostile = '[user]\n\tname = "x> <y@z>\\nauthor evil"\n\temail = a@b\n'
        self.assertEqual(self.commit_by_cli(hostile), self.fallback())

    @unittest.skipUnless(harness.HAS_ROOT, "no root inside")
    def test_root_uses_the_repository_of_the_user(self):
        for argv in (["git", "status", "--short"], ["git", "-C", "/workspace", "log", "-1", "--format=%s"]):
            result = self.client.exec("git", argv, user="root")
            self.assertEqual((result.exit_code, result.stderr), (0, b""))
        self.client.exec("git", ["sh", "-c", "mkdir -p /workspace/roots && cd /workspace/roots && git init -q"], user="root")
        sudo = "true" if harness.BACKEND == "ssh" else "sudo -n git -C /workspace status --short >/dev/null"
        script = f"{sudo} && git -C /workspace/roots status --short"
        result = self.client.exec("git", ["sh", "-c", script])
        self.assertEqual((result.exit_code, result.stderr), (0, b""))
        self.client.exec("git", ["rm", "-rf", "/workspace/roots"], user="root")

    def test_a_pointer_of_lfs_is_counted_and_a_file_with_the_attribute_is_not(self):
        pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 12345\n"
        repository = self.upstream / "acme" / "large"
        harness.make_repository(repository, {".gitattributes": "*.bin filter=lfs\n", "a.bin": pointer, "b.bin": "no pointer\n"})
        self.client.create(repo_url=self.git_server.url("acme/large"), name="large")
        self.assertEqual(self.client.workspace("large")["lfs"], 1)
        self.assertIn("1 LFS pointer, contents not fetched", self.daemon.cli("show", "large").stdout.decode())
        self.assertEqual(self.client.exec("large", "cat a.bin b.bin").stdout.decode(), pointer + "no pointer\n")
        harness.commit(repository, "a.bin", "now an ordinary file\n")  # a delta over the first tree
        self.client.create(repo_url=self.git_server.url("acme/large"), name="larger")
        self.assertEqual(self.client.workspace("larger")["lfs"], 0)


@unittest.skipUnless(harness.BACKEND in ("lxc", "docker", "docker-userns"), "the other machine has its own /usr")
class Alternatives(unittest.TestCase):
    def test_a_program_that_the_host_gets_later_works_in_a_running_sandbox(self):
        daemon = harness.Daemon()
        self.addCleanup(daemon.close)
        repository = daemon.directory / "repo"
        harness.make_repository(repository)
        shown = daemon.directory / "alternatives"
        harness.run("cp", "-a", "/etc/alternatives", shown)
        # Only this daemon sees it in place of the host's.
        daemon.start(prefix=["unshare", "-m", "sh", "-c", f"mount --bind {shown} /etc/alternatives && exec \"$@\"", "sh"])
        daemon.client.create(repo_url=f"file://{repository}", name="running")
        read = ["readlink", "/etc/alternatives/moorage-new"]
        self.assertEqual(daemon.client.exec("running", read).exit_code, 1)
        pathlib.Path(shown, "moorage-new").symlink_to("/usr/bin/env")
        result = daemon.client.exec("running", read)
        self.assertEqual((result.exit_code, result.stdout), (0, b"/usr/bin/env\n"))
        self.assertEqual(daemon.client.exec("running", ["/etc/alternatives/moorage-new", "true"]).exit_code, 0)
        write = daemon.client.exec("running", ["sh", "-c", "echo x > /etc/alternatives/y"])
        self.assertNotEqual(write.exit_code, 0)


if __name__ == "__main__":
    unittest.main()
