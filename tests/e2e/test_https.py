"""Repositories over https: clone, certificates, proxy, and the errors for a private one."""

import contextlib
import unittest

import harness
import raw_api
from https_server import ConnectProxy, HttpsGitServer


class Https(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.addClassCleanup(cls.stack.close)
        cls.daemon = harness.Daemon()
        cls.stack.callback(cls.daemon.close)
        upstream = cls.daemon.directory / "upstream"
        for name in ("acme/shop", "acme/other", "private/shop"):
            harness.make_repository(upstream / name)
        cls.server = HttpsGitServer(upstream, cls.daemon.directory)
        cls.stack.callback(cls.server.stop)
        cls.proxy = ConnectProxy()
        cls.stack.callback(cls.proxy.stop)
        cls.daemon.start()
        cls.client = cls.daemon.client

    def with_settings(self, **variables):
        self.daemon.stop()
        self.daemon.environment = {"PATH": self.daemon.environment["PATH"], **variables}
        self.daemon.start()

    def refused(self, url):
        with self.assertRaises(raw_api.ApiError) as refused:
            self.client.create(repo_url=url)
        return refused.exception

    def test_1_an_unknown_certificate_is_refused_with_the_setting_to_change(self):
        error = self.refused(self.server.url("acme/shop"))
        self.assertEqual(error.code, "unavailable")
        self.assertIn("repo.ca_file", error.hint)

    def test_2_clone_and_fetch(self):
        self.with_settings(MOORAGE_REPO_CA_FILE=str(self.server.certificate))
        url = self.server.url("acme/shop")
        self.client.create(repo_url=url, name="one")
        self.assertEqual(self.client.exec("one", "cat README.md; git status --porcelain").stdout, b"hello\n")
        tip = harness.commit(self.daemon.directory / "upstream/acme/shop", "README.md", "again\n")
        self.assertEqual(self.client.create(repo_url=url, name="two")["base"]["commit"], tip)

    def test_3_a_private_or_missing_repository_says_what_to_do(self):
        self.with_settings(MOORAGE_REPO_CA_FILE=str(self.server.certificate))
        error = self.refused(self.server.url("private/shop"))
        self.assertEqual(error.code, "permission_denied")
        self.assertIn("private or does not exist", error.hint)
        self.assertIn("ssh", error.hint)
        self.assertEqual(self.refused(self.server.url("acme/nothing")).code, "not_found")
        # Refused repositories leave nothing.
        self.assertFalse([r for r in self.client.repos() if "private" in r["url"] or "nothing" in r["url"]])

    def test_4_through_a_proxy(self):
        self.with_settings(MOORAGE_REPO_CA_FILE=str(self.server.certificate), MOORAGE_REPO_HTTPS_PROXY=self.proxy.url)
        self.client.create(repo_url=self.server.url("acme/other"), name="proxied")
        self.assertEqual(set(self.proxy.asked), {f"127.0.0.1:{self.server.port}"})
        self.with_settings(MOORAGE_REPO_CA_FILE=str(self.server.certificate),
                           MOORAGE_REPO_HTTPS_PROXY="http://127.0.0.1:1")
        error = self.refused(self.server.url("acme/nothing"))
        self.assertEqual(error.code, "unavailable")
        self.with_settings(MOORAGE_REPO_CA_FILE=str(self.server.certificate),
                           MOORAGE_REPO_HTTPS_PROXY="http://127.0.0.1:1", MOORAGE_REPO_NO_PROXY="git.example:127.0.0.1")
        self.client.create(repo_url=self.server.url("acme/other"), name="direct")


if __name__ == "__main__":
    unittest.main()
