"""Rules of sandboxes on rented machines without network namespaces (fakes of E2B and Daytona): the provider holds what it
can, and a sandbox whose rules say more does not start."""

import pathlib
import shutil
import sys
import tempfile
import unittest

import harness
import raw_api

sys.path.insert(0, str(harness.ROOT / "tests/remote"))
import fake_daytona  # noqa: E402
import fake_e2b  # noqa: E402
import machine  # noqa: E402


class ProviderRules(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="moorage-provider-rules-", dir=harness.BASE))
        cls.addClassCleanup(shutil.rmtree, cls.root, ignore_errors=True)
        for name in ("e2b", "daytona"):
            (cls.root / name).mkdir()
        kinds = (machine.PLAIN, "base")
        cls.e2b = fake_e2b.FakeE2B(cls.root / "e2b", templates=kinds)
        cls.daytona = fake_daytona.FakeDaytona(cls.root / "daytona", snapshots=kinds)
        backends = {}
        for name, fake in (("e2b", cls.e2b), ("daytona", cls.daytona)):
            cls.addClassCleanup(fake.close)
            key = cls.root / f"{name}.key"
            key.write_text(fake.api_key + "\n")
            key.chmod(0o600)
            backends[name] = {"key_file": str(key)}
        backends["e2b"] |= {"api_url": cls.e2b.url, "sandbox_url": cls.e2b.url, "template": machine.PLAIN}
        backends["daytona"] |= {"api_url": cls.daytona.url + "/api", "snapshot": machine.PLAIN}
        cls.settings = {"backends": backends, "remote.sync_interval_s": 1}
        super().setUpClass()

    def create(self, name, backend, *rules):
        self.addCleanup(self.client.delete, name, purge=True)
        self.client.create(repo_url=self.url, name=name, backend=backend)
        if rules:
            self.client.change_network(name, allow=rules)

    def run_in(self, name):
        result = self.client.exec(name, ["sh", "-c", "cat src/a.txt"])
        self.assertEqual((result.exit_code, result.stdout), (0, b"a\n"), result.stderr)

    def refused(self, call, *argv, **fields):
        with self.assertRaises(raw_api.ApiError) as caught:
            call(*argv, **fields)
        return f"{caught.exception.message} {caught.exception.hint}"

    def only(self, fake):
        [sandbox] = fake.sandboxes.values()
        return sandbox

    def network_of(self, name):
        return self.client.workspace(name)["sandbox"]["remote"].get("network")

    def test_without_rules_the_provider_lets_nothing_out(self):
        self.create("closed", "e2b")
        self.run_in("closed")
        self.assertEqual((self.only(self.e2b).internet, self.only(self.e2b).network), (False, None))
        self.assertEqual(self.network_of("closed"), "held by the provider: no host")
        self.create("shut", "daytona")
        self.run_in("shut")
        self.assertEqual(self.only(self.daytona).network, {"networkBlockAll": True})

    def test_allowed_names_are_let_out_before_the_first_command(self):
        self.create("names", "e2b", "web.example", ".other.example")
        self.run_in("names")
        self.assertEqual(self.only(self.e2b).network, {"allowOut": ["web.example", "other.example", "*.other.example"],
                                                       "denyOut": ["0.0.0.0/0"]})
        self.assertIn(b"network held by the provider: web.example, .other.example", self.daemon.cli("show", "names").stdout)
        self.create("domains", "daytona", "web.example", ".other.example")
        self.run_in("domains")
        self.assertEqual(self.only(self.daytona).network, {
            "networkBlockAll": False, "networkAllowList": "", "domainAllowList": "web.example,other.example,*.other.example"})

    def test_rules_that_it_cannot_hold_are_refused_before_a_start(self):
        for name, rule, reason in (("ports", "web.example:22", "the rule 'web.example:22' is about ports"),
                                   ("requests", "web.example GET", "is about requests")):
            self.create(name, "e2b", rule)
            said = self.refused(self.client.exec, name, ["true"])
            self.assertIn(reason, said)
            self.assertIn(f"moorage set {name} --network none", said)
            harness.wait_until(lambda: not self.e2b.sandboxes, what="the end of the machine")
        self.create("more", "daytona")
        self.client.update("more", network="open")
        self.assertIn("network open is about ports", self.refused(self.client.exec, "more", ["true"]))

    def test_a_credential_never_goes_there(self):
        self.create("secret", "e2b", "api.example")
        self.daemon.cli("credential", "add", "key", "--for", "https://api.example/", "--from-stdin", input=b"sk-canary\n")
        self.addCleanup(self.daemon.cli, "credential", "rm", "key")
        self.assertIn("the credential key for api.example", self.refused(self.client.exec, "secret", ["true"]))

    def test_a_change_waits_for_a_stop(self):
        self.create("later", "e2b", "web.example")
        self.run_in("later")
        said = self.refused(self.client.change_network, "later", allow=["next.example"])
        self.assertIn("moorage stop later", said)
        self.assertNotIn("next.example", str(self.client.network("later")))
        self.assertIn("moorage stop later", self.refused(self.client.update, "later", network="open"))
        self.client.stop("later")
        self.client.change_network("later", allow=["next.example"])
        self.run_in("later")
        self.assertEqual(self.only(self.e2b).network["allowOut"], ["web.example", "next.example"])

    def test_a_server_that_ignores_names_is_closed_again(self):
        self.daytona.network_settings = ("networkBlockAll", "networkAllowList")
        self.addCleanup(setattr, self.daytona, "network_settings", fake_daytona.NETWORK)
        self.create("old", "daytona", "web.example")
        self.assertIn("cannot let a sandbox reach some hosts only", self.refused(self.client.exec, "old", ["true"]))


if __name__ == "__main__":
    unittest.main()
