"""Error messages for people."""

import os
import pathlib
import shutil
import tempfile
import unittest

import harness
import raw_api


class Messages(harness.TestCase):
    def fails(self, *argv, code=None, **options):
        result = self.daemon.cli(*argv, check=False, **options)
        self.assertNotEqual(result.returncode, 0, result.stdout)
        if code is not None:
            self.assertEqual(result.returncode, code)
        return result.stderr.decode()

    def test_no_daemon(self):
        text = self.fails("--socket", "/nonexistent/sock", "ls")
        self.assertIn("/nonexistent/sock", text)
        self.assertIn("hint:", text)

    def test_an_unknown_workspace_exits_with_125(self):
        text = self.fails("exec", "nope", "--", "true", code=125)
        self.assertIn("there is no workspace 'nope'", text)

    def test_bad_urls(self):
        for url in ("ext::sh -c id", "-oProxyCommand=x", "--upload-pack=x", "ftp://h/x", "https://user:secret@host/x",
                    "file:///etc", "/etc", "https://host/a\nb", "https://"):
            text = self.fails("create", "--repo=" + url)
            self.assertNotIn("secret", text)
            self.assertIn("hint:", text, url)

    def test_unknown_host_missing_repository_and_empty_one(self):
        harness.run("git", "init", "-q", self.upstream / "empty")
        self.assertIn("empty", self.fails("create", "--repo", self.git_server.url("empty")))
        self.assertTrue(self.fails("create", "--repo", self.git_server.url("missing")))
        self.assertIn("Connection refused", self.fails("create", "--repo", "git://127.0.0.1:1/x/y"))
        text = self.fails("create", "--repo", "ssh://git@no-host.invalid/x/y")
        self.assertIn("no-host.invalid", text)
        self.assertNotIn("\\r", text)

    def test_unknown_ref(self):
        self.assertIn("no-such-branch", self.fails("create", "--repo", self.url, "--ref", "no-such-branch"))

    def test_taken_name(self):
        self.client.create(repo_url=self.url, name="taken")
        self.assertIn("taken", self.fails("create", "--repo", self.url, "--name", "taken"))

    def test_unknown_command_inside(self):
        self.client.create(repo_url=self.url, name="inside")
        text = self.fails("exec", "inside", "--", "no-such-program", code=127)
        self.assertIn("no-such-program", text)
        text = self.fails("exec", "inside", "--cwd", "/nowhere", "--", "true", code=126)
        self.assertIn("/nowhere", text)

    def test_config_mistakes_name_line_and_column(self):
        bad = self.daemon.directory / "bad.yaml"
        bad.write_text("store:\n  directry: /x\n")
        result = harness.run(harness.BIN / "mooraged", "--config", bad, check=False)
        self.assertEqual(result.returncode, 1)
        text = result.stderr.decode()
        self.assertIn("bad.yaml:2:3", text)
        self.assertIn("directory", text)

    def test_settings_on_the_command_line_and_in_the_environment(self):
        result = harness.run(harness.BIN / "mooraged", "--set", "store.bogus=1", "--show-config", check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn('unknown setting "store.bogus"', result.stderr.decode())
        shown = harness.run(harness.BIN / "mooraged", "--config", "/dev/null", "--set", "sandbox.pids=77", "--show-config")
        self.assertRegex(shown.stdout.decode(), r"sandbox.pids +77 +--set")
        self.assertIn(b"MOORAGE_GROUP_KEY", harness.run(harness.BIN / "mooraged", "--help").stdout)

    def test_empty_fields_and_unknown_backends(self):
        for field in ("name", "ref", "branch"):
            with self.assertRaises(raw_api.ApiError) as refused:
                self.client.request("POST", "/workspaces", json_body={"repo_url": self.url, field: ""})
            self.assertEqual(refused.exception.code, "invalid_argument")
            self.assertIn(field, str(refused.exception))
        text = self.fails("create", "--repo", self.url, "--backend", "nspawn")
        self.assertIn("there is no backend 'nspawn'", text)
        self.assertNotIn("\\", text)

    def test_deleted_workspaces_of_one_name_can_be_distinguished(self):
        ids = []
        for _ in range(2):
            ids.append(self.client.create(repo_url=self.url, name="twice")["id"])
            self.client.delete("twice")
        for words in (("undelete", "twice"), ("rm", "--purge", "twice")):
            text = self.fails(*words)
            self.assertIn(", ".join(ids), text)
        listed = self.daemon.cli("ls", "--deleted").stdout.decode()
        for workspace in ids:
            self.assertIn(f"{workspace} ", listed)
        text = self.fails("exec", "twice", "--", "true")
        self.assertIn("the workspace 'twice' is deleted", text)
        self.assertIn("moorage undelete twice", text)
        self.daemon.cli("undelete", ids[0])
        self.daemon.cli("rm", "--purge", ids[1])

    def test_a_source_that_is_neither_a_directory_nor_a_url(self):
        for place in ("../nothing", "/nothing/at/all", "nothing"):
            text = self.fails("create", place)
            self.assertIn(f"there is no directory '{place}'", text)
            self.assertIn("a URL looks like https://", text)

    def test_files_outside_of_the_workspace(self):
        self.client.create(repo_url=self.url, name="files")
        self.assertIn("below /workspace or /home/user", self.fails("files", "files", "/etc"))
        self.assertIn("is not a directory", self.fails("files", "files", "README.md"))

    def test_a_local_repository_that_was_removed(self):
        path = self.daemon.directory / "local"
        harness.make_repository(path)
        self.client.create(repo_url=f"file://{path}", name="local")
        os.rename(path, f"{path}-gone")
        again = self.client.create(repo_url=f"file://{path}", name="local-2")
        self.assertTrue(again["base"]["stale"])
        self.assertIn("no such directory", self.fails("repo", "fetch", f"file://{path}"))
        self.assertIn("no such directory", self.fails("create", "--repo", f"{self.daemon.directory}/never"))

    def test_a_second_daemon_on_the_store_is_refused_with_the_pid(self):
        result = harness.run(harness.BIN / "mooraged", "--config", self.daemon.config, check=False, timeout=20)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn(str(self.daemon.process.pid), result.stderr.decode())
        self.client.health()

    def test_without_root(self):
        with tempfile.TemporaryDirectory(dir=harness.BASE) as place:
            os.chmod(place, 0o755)  # the checkout may be readable only by root
            shutil.copytree(harness.ROOT / "scripts", pathlib.Path(place) / "scripts")
            for program in (harness.ROOT / "quickstart", harness.ROOT / "check", harness.BIN / "mooraged"):
                shutil.copy(program, place)
                result = harness.run("setpriv", "--reuid=65533", "--regid=65533", "--clear-groups",
                                     pathlib.Path(place) / program.name, check=False, cwd="/")
                self.assertEqual(result.returncode, 1)
                self.assertIn(b"must run as root", result.stderr)
                self.assertIn(b"sudo", result.stderr)

    def test_unknown_fields_and_bad_json_are_refused(self):
        for body in ({"repo_url": self.url, "privileged": True}, {"repo_url": 5}, {"limits": {"memory": 1}}):
            with self.assertRaises(raw_api.ApiError) as refused:
                self.client.request("POST", "/workspaces", json_body=body)
            self.assertEqual(refused.exception.code, "invalid_argument")

    def test_another_user_sees_nothing(self):
        self.client.create(repo_url=self.url, name="private")
        os.chmod(self.daemon.directory, 0o711)
        os.chmod(self.daemon.socket, 0o666)
        script = ("import sys; sys.path.insert(0, sys.argv[1]); import raw_api\nc = raw_api.Client(sys.argv[2])\n"
                  "print(c.workspaces())\nfor call in (c.workspace, c.stop, c.delete, c.diff):\n"
                  "  try: call('private'); print('leak')\n  except raw_api.ApiError as e: print(e.code)\n")
        client = pathlib.Path(self.daemon.directory) / "client"
        client.mkdir(mode=0o755)
        (client / "raw_api.py").write_bytes(pathlib.Path(raw_api.__file__).read_bytes())
        out = harness.run("setpriv", "--reuid=65533", "--regid=65533", "--clear-groups", "python3", "-c", script, client,
                          self.daemon.socket, env={"PATH": "/usr/bin:/bin"}).stdout.decode()
        self.assertEqual(out.split("\n"), ["[]"] + ["not_found"] * 4 + [""])


class PoorHost(unittest.TestCase):
    """A daemon on a host where something is missing. It still answers, and says what is missing and what to do."""

    def daemon(self, *prefix, prepare=":"):
        """Starts one after `prefix`, in a new mount namespace, after the script `prepare`."""
        daemon = harness.Daemon()
        self.addCleanup(daemon.remove)
        return daemon.start(prefix=["unshare", "-m", "sh", "-ec", prepare + '; exec "$@"', "sh", *prefix])

    def assert_refused(self, daemon, check, *words):
        info = " ".join(daemon.cli("info").stdout.decode().split())
        self.assertIn(f"MISSING {check}", info)
        created = daemon.cli("create", "--repo", "git://127.0.0.1:1/a/b", check=False)
        self.assertEqual(created.returncode, 1)
        for word in words:
            self.assertIn(word, info)
            self.assertIn(word, created.stderr.decode())

    def test_an_old_kernel(self):
        daemon = self.daemon("setarch", "--uname-2.6")
        self.assert_refused(daemon, "kernel", "is too old", "upgrade to Linux 6.1 or later")
        result = harness.run("setarch", "--uname-2.6", "bash", harness.ROOT / "quickstart", check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"too old: 6.1 or later is needed", result.stderr)

    def test_check_host_reports_problems_before_a_start(self):
        fit = harness.run(harness.BIN / "mooraged", "--check-host", "--set", f"store.directory={harness.BASE}/not-yet/there")
        lines = dict(l.split(None, 2)[1::1] for l in fit.stdout.decode().splitlines() if len(l.split(None, 2)) == 3)
        for name in ("kernel", "cgroup", "overlay", "apparmor", "lxc", "docker", "disk"):
            self.assertIn(name, lines)
        old = harness.run("setarch", "--uname-2.6", harness.BIN / "mooraged", "--check-host", "--set", "store.directory=/no/such/place", check=False)
        self.assertEqual(old.returncode, 1)
        self.assertRegex(old.stdout.decode(), r"missing +kernel +Linux 2.6.* is too old; upgrade to Linux 6.1 or later")
        self.assertFalse(os.path.exists("/no"))

    def test_no_lxc(self):
        # An overlay with whiteouts: the library's directory without LXC's files.
        library = next(pathlib.Path("/usr/lib").glob("*-linux-gnu/liblxc.so.1"))
        hide = (f"mkdir {{0}}/w; for f in {library}*; do mknod {{0}}/w/${{{{f##*/}}}} c 0 0; done; "
                f"mount -t overlay overlay -o lowerdir={{0}}/w:{library.parent} {library.parent}")
        with tempfile.TemporaryDirectory(dir=harness.BASE) as place:
            daemon = self.daemon(prepare=hide.format(place))
            self.assert_refused(daemon, "lxc", "LXC's library is not installed", "apt-get install")

    def test_a_container_that_hides_parts_of_proc(self):
        with tempfile.NamedTemporaryFile(dir=harness.BASE) as boot_id:
            boot_id.write(pathlib.Path("/proc/sys/kernel/random/boot_id").read_bytes())
            boot_id.flush()
            daemon = self.daemon(prepare=f"mount --bind {boot_id.name} /proc/sys/kernel/random/boot_id")
            self.assert_refused(daemon, "proc", "cannot mount their own /proc", "security.nesting=true")

    def test_missing_host_programs_for_the_image(self):
        with tempfile.NamedTemporaryFile(dir=harness.BASE) as nothing:
            os.chmod(nothing.name, 0o644)
            cover = "; ".join(f"mount --bind {nothing.name} $(readlink -f /usr/bin/{name})"
                              for name in ("sudo", "git", "python3"))
            daemon = self.daemon(prepare=cover)
            info = " ".join(daemon.cli("info").stdout.decode().split())
            for name in ("sudo", "git", "python3"):
                self.assertIn(f"MISSING {name}: {name} is not installed", info)
                self.assertIn(f"apt-get install {name}", info)


if __name__ == "__main__":
    unittest.main()
