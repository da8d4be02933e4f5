"""The base of tests with sandboxes on other machines: a daemon whose backend ssh has two hosts, each a real sshd with its
own keys in a network namespace of its own."""

import pathlib
import shutil
import tempfile

import harness
import raw_api
import ssh_host


class OnSsh(harness.TestCase):
    sync_interval_s = 1
    max_sandboxes = 8
    more = {}  # settings

    @classmethod
    def setUpClass(cls):
        root = pathlib.Path(tempfile.mkdtemp(prefix="moorage-ssh-", dir=harness.BASE))
        cls.addClassCleanup(shutil.rmtree, root, ignore_errors=True)
        cls.hosts = {}
        for number, name in enumerate(("spare", "other")):
            cls.hosts[name] = ssh_host.SshHost(root / name, name, number).start()
            cls.addClassCleanup(cls.hosts[name].close)
        cls.host = cls.hosts["spare"]
        config = root / "config"
        config.write_text("".join(host.config.read_text() for host in cls.hosts.values()))
        cls.settings = {
            "remote": {"sync_interval_s": cls.sync_interval_s},
            "backends": {"ssh": {"config_file": str(config), "hosts": [
                {"name": name, "destination": name, "max_sandboxes": cls.max_sandboxes, "directory": str(host.directory)}
                for name, host in cls.hosts.items()]}}} | cls.more
        super().setUpClass()

    def create(self, name, **fields):
        return self.client.create(repo_url=self.url, name=name, **{"backend": "ssh", "runtime": "spare"} | fields)

    def out(self, name, script, **fields):
        result = self.client.exec(name, ["sh", "-c", script], **fields)
        self.assertEqual(result.exit_code, 0, result.stderr)
        return result.stdout.decode().strip()

    def refused(self, status, text, call, *argv, **fields):
        with self.assertRaises(raw_api.ApiError) as caught:
            call(*argv, **fields)
        self.assertEqual(caught.exception.status, status, caught.exception)
        self.assertIn(text, caught.exception.message + " " + str(caught.exception.hint))

    def there(self, host=None):
        """Names of the sandboxes that a host still has something of."""
        path = (host or self.host).directory / "sandboxes"
        return sorted(entry.name for entry in path.iterdir()) if path.exists() else []

    def name_of(self, workspace):
        """Of its sandbox, here and there."""
        return f"moorage-{self.daemon.store_id()}-{self.client.workspace(workspace)['sandbox']['id']}"

    def keeper(self, workspace):
        """The pid of its link's keeper; None: there is none now."""
        return next(filter(harness.is_keeper, harness.sandbox_cgroup_pids(self.name_of(workspace))), None)
