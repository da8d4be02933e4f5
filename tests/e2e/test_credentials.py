"""Credentials: a secret takes the place of a placeholder outside of the sandbox, and is nowhere else."""

import os
import pathlib
import tempfile
import threading
import unittest

import canaries
import harness
import outside

API = outside.address("2.10")
OTHER = outside.address("2.11")
SECRET = "sk-canary-5e1f0c7a9b"


JAVA = """
import java.net.URI;
import java.net.http.*;

class Fetch {
  public static void main(String[] arguments) throws Exception {
    var request = HttpRequest.newBuilder(URI.create("https://api.example/v1/java")).build();
    var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
    if (answer.statusCode() != 200) throw new Exception("status " + answer.statusCode());
  }
}
"""


class ApiHandler(outside.Handler):
    """Answers 401 unless the key is the server's; notes what came."""

    def do_GET(self):
        self.server.keys.append(self.headers.get("x-api-key"))
        if self.path.startswith("/v1/") and self.headers.get("x-api-key") != self.server.key:
            self.send_response(401)
            self.send_header("Content-Length", "0")
            return self.end_headers()
        if self.path == "/v1/echo":
            self.send_response(200)
            self.send_header("Content-Length", str(len(self.server.key)))
            self.end_headers()
            return self.wfile.write(self.server.key.encode())
        return super().do_GET()

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()


class Credentials(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="moorage-credentials-")
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.place = pathlib.Path(cls.scratch.name)
        cls.authority = outside.Authority(cls.place / "ca")
        cls.settings = {"network.resolvers": [outside.DNS_ADDRESS], "network.reachable": [outside.NETWORK],
                        "network.ca_file": str(cls.authority.file),
                        "network.credential_key": str(cls.place / "key" / "credentials.key")}
        super().setUpClass()
        canaries.keep_out(cls.daemon, SECRET)
        cls.dns = outside.Dns({"api.example": API, "other.example": OTHER})
        cls.addClassCleanup(cls.dns.close)
        cls.api = outside.Host(API, 443, cls.authority.context("api.example"), ApiHandler)
        cls.other = outside.Host(OTHER, 443, cls.authority.context("other.example"), ApiHandler)
        for host in (cls.api, cls.other):
            cls.addClassCleanup(host.close)
            host.key, host.keys = SECRET, []

    def setUp(self):
        self.api.key = SECRET
        self.api.keys.clear()

    def add(self, name, *options, check=True, **more):
        result = self.daemon.cli("credential", "add", name, *options, check=check, **more)
        if result.returncode == 0:
            self.addCleanup(self.daemon.cli, "credential", "rm", name)
        return result

    def printer(self):
        """A command that prints the secret, and does not contain it."""
        (self.place / "printed").write_text(SECRET)
        return f"cat {self.place / 'printed'}"

    def workspace(self, name, *hosts):
        self.daemon.cli("create", "--repo", self.url, "--name", name)
        self.addCleanup(self.client.delete, name, purge=True)
        if hosts:
            self.daemon.cli("net", "allow", name, *hosts)

    def curl(self, name, path, *options, host="api.example"):
        """Status and body."""
        result = self.client.exec(name, ["curl", "-sS", "-w", "\n%{http_code}", *options, f"https://{host}{path}"])
        body, _, status = result.stdout.decode().rpartition("\n")
        return status, body

    def assert_nowhere(self, secret=SECRET):
        """Not in the store, nor in any process but egresses and this one."""
        found = harness.run("grep", "-rlaF", secret, self.daemon.store, check=False).stdout.decode()
        self.assertEqual(found, "")
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                name = (process / "comm").read_text().strip()
                text = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
            except OSError:
                continue
            if process.name != str(os.getpid()):
                self.assertNotIn(secret.encode(), text, name)

    def test_a_command_inside_uses_a_secret_that_it_never_has(self):
        secret = self.place / "secret"
        secret.write_text(SECRET + "\n")
        self.add("api", "--for", "https://api.example/v1/", "--as", "header:X-Api-Key", "--env", "API_KEY",
                 "--from-file", secret)
        self.workspace("use", "api.example")
        self.assertEqual(self.curl("use", "/v1/models"), ("200", "api.example /v1/models\n"))
        self.assertEqual(self.curl("use", "/public"), ("200", "api.example /public\n"))
        self.assertEqual(self.api.keys, [SECRET, None])
        inside = self.client.exec("use", "echo $API_KEY; env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'").stdout
        self.assertTrue(inside.startswith(b"moorage-credential-api\n"))
        self.assertNotIn(SECRET.encode(), inside)
        # A program's own header does not matter.
        self.assertEqual(self.curl("use", "/v1/x", "-H", "x-api-key: mine")[0], "200")
        secret.unlink()
        self.assert_nowhere()

    def test_a_secret_is_kept_encrypted(self):
        self.add("kept", "--for", "https://api.example/v1/", "--as", "header:X-Api-Key", "--from-stdin",
                 input=SECRET.encode() + b"\n")
        self.workspace("kept", "api.example")
        self.assertEqual(self.curl("kept", "/v1/models")[0], "200")
        self.assert_nowhere()
        self.assertEqual((self.place / "key" / "credentials.key").stat().st_mode & 0o777, 0o600)
        self.daemon.restart()
        self.assertEqual(self.curl("kept", "/v1/models")[0], "200")

    def test_a_rotated_secret_is_used_at_once(self):
        secret = self.place / "rotated"
        secret.write_text(SECRET)
        self.add("rotated", "--for", "https://api.example/v1/", "--as", "header:X-Api-Key", "--from-command",
                 f"cat {secret}")
        self.workspace("rotated", "api.example")
        self.assertEqual(self.curl("rotated", "/v1/a")[0], "200")
        self.api.key = "sk-another-canary-77"
        secret.write_text(self.api.key)
        self.assertEqual(self.curl("rotated", "/v1/b"), ("200", "api.example /v1/b\n"))
        self.assertEqual(self.api.keys, [SECRET, SECRET, "sk-another-canary-77"])
        # A request with a body, too; an expired one is refused.
        self.api.key = "sk-a-third-canary-78"
        secret.write_text(self.api.key)
        self.assertEqual(self.curl("rotated", "/v1/c", "-d", "x" * 10_000), ("200", "api.example /v1/c\n"))
        self.api.key = "sk-nobody-has-it"
        status, body = self.curl("rotated", "/v1/d")
        self.assertEqual(status, "403")
        self.assertIn("api.example did not accept the credential rotated (401)", body)

    def test_a_replaced_credential_is_used_at_once(self):
        for key in (SECRET, "sk-another-canary-78"):
            self.api.key = key
            secret = self.place / "replaced"
            secret.write_text(key)
            options = ("--for", "https://api.example/v1/", "--as", "header:X-Api-Key", "--from-file", secret)
            if key == SECRET:
                self.add("replaced", *options)
                self.workspace("replaced", "api.example")
            else:
                self.daemon.cli("credential", "add", "replaced", *options)
            self.assertEqual(self.curl("replaced", "/v1/a")[0], "200")
        self.assertEqual(self.api.keys, [SECRET, "sk-another-canary-78"])

    def test_without_a_secret_the_answer_has_the_reason(self):
        refused = self.add("broken", "--for", "https://api.example/v1/", "--from-command",
                           "echo no such token >&2; exit 3", check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn(b"the credential broken: its command failed with exit code 3: no such token", refused.stderr)
        flag = self.place / "flag"
        flag.touch()
        self.add("later", "--for", "https://api.example/v1/", "--from-command", f"test -e {flag} && {self.printer()}")
        self.workspace("later", "api.example")
        flag.unlink()
        status, body = self.curl("later", "/v1/x")
        self.assertEqual(status, "403")
        self.assertIn("the credential later: its command failed with exit code 1", body)
        self.assertEqual(self.api.keys, [])

    def test_a_placeholder_goes_nowhere_else(self):
        self.add("api", "--for", "https://api.example/v1/", "--as", "header:X-Api-Key", "--from-command",
                 self.printer())
        self.add("two", "--for", "https://other.example/only/", "--from-command", self.printer())
        self.workspace("stray", "api.example", "other.example")
        for path, host in (("/elsewhere", "api.example"), ("/v1/x", "other.example")):
            status, body = self.curl("stray", path, "-H", "X-Api-Key: moorage-credential-api", host=host)
            self.assertEqual(status, "403")
            self.assertIn("the placeholder of the credential api was sent where it is not valid", body)
        self.assertEqual(self.api.keys + self.other.keys, [])
        log = self.daemon.cli("net", "log", "stray").stdout
        self.assertIn(b"the placeholder of the credential api was sent where it is not valid: GET other.example/v1/x", log)

    def test_an_answer_that_repeats_the_secret_does_not_arrive(self):
        self.add("api", "--for", "https://api.example/v1/", "--as", "header:X-Api-Key", "--from-command",
                 self.printer())
        self.workspace("echo", "api.example")
        self.assertNotIn(SECRET, self.curl("echo", "/v1/echo")[1])

    def test_a_removed_credential_is_gone_at_once(self):
        self.daemon.cli("credential", "add", "gone", "--for", "https://api.example/v1/", "--as", "header:X-Api-Key",
                        "--from-command", self.printer())
        self.workspace("gone", "api.example")
        self.assertEqual(self.curl("gone", "/v1/a")[0], "200")
        self.daemon.cli("credential", "rm", "gone")
        self.assertEqual(self.curl("gone", "/v1/b")[0], "401")
        self.assertEqual(self.api.keys[-1], None)

    def test_labels_limit_it_to_some_workspaces(self):
        self.add("api", "--for", "https://api.example/v1/", "--as", "header:X-Api-Key", "--label", "team=blue",
                 "--from-command", self.printer())
        self.workspace("plain", "api.example")
        self.assertEqual(self.curl("plain", "/v1/a")[0], "401")
        self.client.create(repo_url=self.url, name="blue", labels={"team": "blue"})
        self.addCleanup(self.client.delete, "blue", purge=True)
        self.client.change_network("blue", allow=["api.example"])
        self.assertEqual(self.curl("blue", "/v1/a")[0], "200")

    def test_many_programs_trust_it(self):
        self.add("api", "--for", "https://api.example/v1/", "--as", "header:X-Api-Key", "--from-command",
                 self.printer())
        self.workspace("trust", "api.example")
        python = "import urllib.request; print(urllib.request.urlopen('https://api.example/v1/py').status)"
        node = "fetch('https://api.example/v1/node').then(r => console.log(r.status))"
        self.client.write_file("trust", "Fetch.java", JAVA.encode())
        programs = [["python3", "-c", python], ["wget", "-q", "-O-", "https://api.example/v1/wget"],
                    ["curl", "-sS", "https://api.example/v1/curl"], ["java", "Fetch.java"],
                    ["openssl", "s_client", "-brief", "-verify_return_error", "-connect", "api.example:443"]]
        # Without variables they read the bundle of the system.
        bare = [["env", "-i", f"PATH={os.environ['PATH']}", *argv] for argv in programs]
        for argv in [["node", "-e", node], *programs, *bare]:
            result = self.client.exec("trust", argv)
            self.assertEqual(result.exit_code, 0, (argv, result.stdout, result.stderr))
            self.assertNotIn(b"Picked up", result.stderr)
        # Neither a package's script nor root inside changes it: the system's directories are read-only.
        if harness.HAS_ROOT:
            update = self.client.exec("trust", ["update-ca-certificates"], user="root")
            self.assertNotEqual(update.exit_code, 0)
            self.assertIn(b"Read-only file system", update.stderr)
            self.assertEqual(self.client.exec("trust", bare[1]).exit_code, 0)


if __name__ == "__main__":
    unittest.main()
