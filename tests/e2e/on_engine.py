"""The base of the Docker and move tests: a daemon with its own container engine, which tests may kill."""

import sys

import harness
import raw_api

sys.path.insert(0, str(harness.ROOT / "tests/engines"))
import engine  # noqa: E402


class OnEngine(harness.TestCase):
    """Has its own engine, which tests may kill."""

    userns = False
    config = None  # members of the engine's daemon.json
    backend = "docker"  # of new workspaces

    @classmethod
    def setUpClass(cls):
        cls.engine = engine.Engine(userns=cls.userns, config=cls.config).start()
        cls.addClassCleanup(cls.engine.stop)
        cls.small = cls.engine.make_small_image()
        cls.settings = {"docker.socket": str(cls.engine.socket), "sandbox.backend": cls.backend, "sandbox.start_deadline_s": 30}
        super().setUpClass()

    def create(self, name, **fields):
        return self.client.create(repo_url=self.url, name=name, **fields)

    def out(self, name, script, **fields):
        result = self.client.exec(name, ["sh", "-c", script], **fields)
        self.assertEqual(result.exit_code, 0, result.stderr)
        return result.stdout.decode().strip()

    def refused(self, status, text, call, *argv, **fields):
        with self.assertRaises(raw_api.ApiError) as caught:
            call(*argv, **fields)
        self.assertIn(caught.exception.status, (status,) if isinstance(status, int) else status, caught.exception)
        self.assertIn(text, caught.exception.message + " " + str(caught.exception.hint))
