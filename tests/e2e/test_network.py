"""The network of a sandbox: hosts by name, refused unless a rule allows them; changes apply at once."""

import hashlib
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

import harness
import outside

WEB = outside.address("0.10")
OTHER = outside.address("0.11")


class Network(harness.TestCase):
    settings = {"network.resolvers": [outside.DNS_ADDRESS], "network.reachable": [outside.NETWORK]}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.files = tempfile.TemporaryDirectory(prefix="moorage-network-")
        cls.addClassCleanup(cls.files.cleanup)
        cls.authority = outside.Authority(cls.files.name)
        cls.dns = outside.Dns({"web.example": WEB, "other.example": OTHER, "inner.example": "10.0.0.1"})
        cls.addClassCleanup(cls.dns.close)
        cls.secure = outside.Host(WEB, 443, cls.authority.context("web.example"))
        cls.plain = outside.Host(WEB, 80)
        cls.special = outside.Host(WEB, 8080)
        cls.other = outside.Host(OTHER, 80)
        for host in (cls.secure, cls.plain, cls.special, cls.other):
            cls.addClassCleanup(host.close)

    def workspace(self, name, *options):
        self.daemon.cli("create", "--repo", self.url, "--name", name, *options)
        self.addCleanup(self.client.delete, name, purge=True)
        return name

    def inside(self, name, script, check=False, **options):
        return self.daemon.cli("exec", name, "--", "sh", "-c", script, check=check, **options)

    def curl(self, name, url, more=""):
        return self.inside(name, f"curl -sS --max-time 20 {more} {url}")

    def test_without_a_rule_no_name_resolves_and_the_user_reads_why(self):
        self.workspace("none")
        before = self.dns.questions
        result = self.curl("none", "http://web.example/")
        self.assertEqual(result.returncode, 6)  # curl's "could not resolve host"
        self.assertIn(b"web.example was refused: no rule allows it; allow it: moorage net allow none web.example",
                      result.stderr)
        self.assertEqual(result.stderr.count(b"web.example was refused"), 1)
        self.assertEqual(self.dns.questions, before)
        last = self.client.history("none")["execs"][-1]
        self.assertEqual(last["category"], "network_denied")

    def test_a_command_that_succeeds_is_not_blamed_but_its_refusals_are_seen(self):
        self.workspace("fine")
        result = self.inside("fine", "curl -sS http://telemetry.example/; echo done")
        self.assertEqual((result.returncode, result.stdout), (0, b"done\n"))
        self.assertIn(b"telemetry.example was refused", result.stderr)
        self.assertNotIn("category", self.client.history("fine")["execs"][-1])

    def test_a_port_below_53_can_be_allowed(self):  # by a warden without root, too
        low = outside.Host(WEB, 22)
        self.addCleanup(low.close)
        self.workspace("low")
        self.daemon.cli("net", "allow", "low", "web.example:22")
        self.assertEqual(self.curl("low", "http://web.example:22/").stdout, b"web.example:22 /\n")

    def test_tcp_inside_does_not_pace_even_if_the_hosts_does(self):
        self.workspace("quick")
        read = "cat /proc/sys/net/ipv4/tcp_congestion_control"
        self.assertEqual(self.inside("quick", read).stdout, b"reno\n")

    @unittest.skipUnless(harness.TELLS_COMMANDS_APART, "on another machine, only one command that runs can be told")
    def test_each_refusal_is_reported_to_the_command_that_asked(self):
        self.workspace("pair")
        bystander = self.client.start_exec("pair", ["sleep", "600"])
        result = self.curl("pair", "http://first.example/")
        self.assertIn(b"first.example was refused", result.stderr)
        first = self.client.history("pair")["execs"][-1]
        self.assertEqual(first.get("category"), "network_denied", first)
        self.daemon.cli("net", "allow", "pair", "web.example")
        result = self.curl("pair", "http://web.example:22/")  # known by its TCP socket
        self.assertIn(b"web.example:22 was refused", result.stderr)
        log = self.daemon.cli("net", "log", "pair").stdout.decode()
        self.assertIn(first["id"], log)
        self.assertNotIn(bystander["id"], log)

    def test_an_allowed_host_is_reached_with_tls_and_without(self):
        self.workspace("web")
        self.daemon.cli("net", "allow", "web", "web.example", "web.example:8080")
        self.assertEqual(self.curl("web", "http://web.example/a").stdout, b"web.example /a\n")
        self.assertEqual(self.curl("web", "http://web.example:8080/b").stdout, b"web.example:8080 /b\n")
        ca = self.authority.file.read_text()
        self.client.write_file("web", "ca.pem", ca.encode())
        self.assertEqual(self.curl("web", "https://web.example/c", "--cacert ca.pem").stdout, b"web.example /c\n")
        big = self.inside("web", "curl -sS --cacert ca.pem https://web.example/bytes/50000000 | wc -c")
        self.assertEqual(big.stdout.strip(), b"50000000")

    def test_rules_apply_to_a_running_command_in_both_directions(self):
        self.workspace("turn")
        loop = self.daemon.cli_popen(
            "exec", "turn", "--", "sh", "-c",
            "while :; do curl -s --max-time 5 http://web.example/ || echo no; sleep 0.1; done",
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.addCleanup(loop.stdout.close)
        self.addCleanup(loop.wait)
        self.addCleanup(loop.kill)

        def reads(expected):
            return lambda: loop.stdout.readline().strip() == expected

        harness.wait_until(reads(b"no"), what="a refusal")
        self.daemon.cli("net", "allow", "turn", "web.example")
        harness.wait_until(reads(b"web.example /"), what="an answer")
        self.daemon.cli("net", "deny", "turn", "web.example")
        harness.wait_until(reads(b"no"), what="a refusal")

    def test_a_blocked_command_is_seen_until_its_host_is_allowed(self):
        self.workspace("blocked")
        loop = self.client.start_exec("blocked", ["sh", "-c", "until curl -s http://web.example/; do sleep 0.1; done"])
        blocked = {"host": "web.example", "exec": loop["id"]}

        def top():
            return next(one for one in self.client.top()["workspaces"] if one["name"] == "blocked")

        harness.wait_until(lambda: self.client.workspace("blocked").get("blocked") == blocked, what="it is blocked")
        self.assertEqual(top()["blocked"], blocked)
        self.assertIn(f"blocked: web.example ({loop['id']})".encode(), self.daemon.cli("ls").stdout)
        self.daemon.cli("net", "allow", "blocked", "web.example")
        self.assertNotIn("blocked", self.client.workspace("blocked"))
        self.assertEqual(self.client.wait(loop["id"])["exit_code"], 0)
        harness.wait_until(lambda: top().get("network", {}).get("connected") == 1, what="its use is reported")

    def test_a_download_arrives_whole_while_the_daemon_is_killed_five_times(self):
        self.workspace("long")
        self.daemon.cli("net", "allow", "long", "web.example:8080")
        size = 100 * outside.PIECE
        url = f"http://web.example:8080/pattern/{size}"
        self.special.pause_s = 0.1
        self.addCleanup(setattr, self.special, "pause_s", 0)
        began = self.special.bytes_sent
        result = self.client.start_exec("long", ["sh", "-c", f"curl -sS {url} | sha256sum"])
        harness.wait_until(lambda: self.special.bytes_sent > began, what="the download begins")
        for _ in range(5):
            self.daemon.restart()
            before = self.special.bytes_sent
            harness.wait_until(lambda: self.special.bytes_sent > before, what="the download goes on")  # noqa: B023
        self.assertEqual(self.client.get_exec(result["id"])["state"], "running")
        self.special.pause_s = 0
        end = self.client.wait(result["id"])
        self.assertEqual(end["exit_code"], 0)
        digest = hashlib.sha256(outside.pattern(size)).hexdigest()
        self.assertEqual(self.daemon.cli("logs", result["id"]).stdout.split()[0].decode(), digest)

    def test_names_that_lead_to_private_addresses_are_refused(self):
        self.workspace("inner", "--network", "none")
        self.daemon.cli("net", "allow", "inner", "inner.example")
        result = self.curl("inner", "http://inner.example/")
        self.assertEqual(result.returncode, 6)
        self.assertIn(b"10.0.0.1 is a private address", result.stderr)
        self.assertIn(b"network.reachable", result.stderr)
        self.assertNotIn(b"allow it", result.stderr)  # it is allowed

    @unittest.skipUnless(harness.TELLS_COMMANDS_APART, "on another machine, only one command that runs can be told")
    def test_a_restart_of_the_daemon_repeats_no_refusal_and_forgets_none(self):
        self.workspace("again")
        self.curl("again", "http://first.example/")
        bystander = self.client.start_exec("again", ["sleep", "600"])
        script = "for n in 2 3; do curl -s http://host$n.example/; done; touch asked; until [ -e go ]; do sleep 0.1; done; exit 1"
        with open(self.files.name + "/again.err", "w+b") as err:
            asks = self.daemon.cli_popen("exec", "again", "--", "sh", "-c", script, stderr=err)
            self.addCleanup(asks.wait)
            self.addCleanup(asks.kill)
            harness.wait_until(lambda: b"host3.example" in pathlib.Path(err.name).read_bytes(), what="its refusals")
            refused = self.daemon.cli("net", "log", "again").stdout
            self.assertEqual(refused.count(b"refused"), 3)
            for _ in range(2):
                self.daemon.restart()
                self.inside("again", "true")
            self.client.write_file("again", "go", b"")
            self.assertEqual(asks.wait(20 * harness.PATIENCE), 1)
            said = pathlib.Path(err.name).read_bytes()
        for name in (b"host2", b"host3"):
            self.assertEqual(said.count(name + b".example was refused: no rule allows it; allow it: "), 1, said)
        last = next(one for one in self.client.history("again")["execs"] if one["argv"][-1] == script)
        self.assertEqual(last.get("category"), "network_denied")
        self.assertEqual(self.daemon.cli("net", "log", "again").stdout, refused)
        self.assertNotIn(bystander["id"].encode(), refused)

    def test_an_egress_that_is_killed_is_back_at_once_and_lets_nothing_pass_meanwhile(self):
        self.workspace("kill")
        self.daemon.cli("net", "allow", "kill", "web.example")
        self.assertEqual(self.curl("kill", "http://web.example/").returncode, 0)
        for _ in range(5):
            pids = self.egress_pids()
            self.assertTrue(pids)
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            harness.wait_until(lambda: self.curl("kill", "http://web.example/").returncode == 0, 5, "egress is back")
        self.assertNotEqual(self.curl("kill", "http://other.example/").returncode, 0)
        self.assertEqual(self.other.requests, [])

    def egress_pids(self):
        pids = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    with open(f"/proc/{entry}/cmdline", "rb") as line:
                        words = line.read().split(b"\0")
                except OSError:
                    continue
                if b"moorage-egress" in words[0] and str(self.daemon.store).encode() in words[0]:
                    pids.append(int(entry))
        return pids

    def test_check_show_and_log_explain(self):
        self.workspace("say")
        self.daemon.cli("net", "allow", "say", "web.example", ".other.example:22")
        allowed = self.daemon.cli("net", "check", "say", "web.example")
        self.assertIn(b"allowed", allowed.stdout)
        refused = self.daemon.cli("net", "check", "say", "github.com:22", check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn(b"no rule allows it", refused.stdout)
        self.curl("say", "http://web.example/")
        self.curl("say", "http://nowhere.example/")
        shown = self.daemon.cli("net", "show", "say").stdout.decode()
        self.assertIn("web.example", shown)
        log = self.daemon.cli("net", "log", "say").stdout.decode()
        self.assertIn("web.example:80", log)
        self.assertIn("nowhere.example", log)
        harness.wait_until(lambda: self.client.network("say").get("use", {}).get("connected") == 1, what="its use is reported")
        page = subprocess.run(["curl", "-sS", "--unix-socket", self.daemon.socket, "http://localhost/metrics"],
                              check=True, capture_output=True).stdout.decode()
        self.assertRegex(page, r"moorage_network_connections_total [1-9]")


class Poster(outside.Handler):
    """Answers POST like GET."""

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.do_GET()


class Requests(harness.TestCase):
    """Rules about methods and paths."""

    @classmethod
    def setUpClass(cls):
        files = tempfile.TemporaryDirectory(prefix="moorage-network-")
        cls.addClassCleanup(files.cleanup)
        authority = outside.Authority(files.name)
        cls.settings = {"network.resolvers": [outside.DNS_ADDRESS], "network.reachable": [outside.NETWORK],
                        "network.ca_file": str(authority.file)}
        super().setUpClass()
        dns = outside.Dns({"web.example": WEB})
        cls.addClassCleanup(dns.close)
        cls.secure = outside.Host(WEB, 443, authority.context("web.example"), Poster)
        cls.plain = outside.Host(WEB, 80, None, Poster)
        for host in (cls.secure, cls.plain):
            cls.addClassCleanup(host.close)

    def workspace(self, name, *rules):
        self.client.create(repo_url=self.url, name=name)
        self.addCleanup(self.client.delete, name, purge=True)
        return self.daemon.cli("net", "allow", name, *rules).stdout.decode()

    def ask(self, name, url, *options):
        """Status and body."""
        result = self.client.exec(name, ["curl", "-sS", "-w", "\n%{http_code}", *options, url])
        body, _, status = result.stdout.decode().rpartition("\n")
        return status, body

    def issuer(self, name):
        """Of the certificate that a program inside sees."""
        return self.client.exec(name, "curl -sSv https://web.example/ 2>&1 >/dev/null | sed -n 's/.*issuer: //p'").stdout

    def test_a_rule_limits_a_host_to_methods_with_tls_and_without(self):
        printed = self.workspace("methods", "web.example", "GET")
        self.assertIn("allow web.example GET\n", printed)
        for scheme, host in (("https", self.secure), ("http", self.plain)):
            host.requests.clear()
            self.assertEqual(self.ask("methods", f"{scheme}://web.example/a"), ("200", "web.example /a\n"))
            self.assertEqual(self.ask("methods", f"{scheme}://web.example/a", "-I")[0], "501")  # HEAD: the host's own answer
            status, body = self.ask("methods", f"{scheme}://web.example/b?c", "-d", "x")
            self.assertEqual(status, "403")
            self.assertIn("POST web.example/b is not allowed, only GET; allow it: moorage net allow methods web.example POST",
                          body)
            self.assertEqual(host.requests, [("web.example", "/a")])
        refusals = [line for line in self.daemon.cli("net", "log", "methods").stdout.decode().splitlines() if " refused " in line]
        self.assertEqual(len(refusals), 2, refusals)
        self.assertIn("web.example:443: POST web.example/b is not allowed", refusals[0])
        self.daemon.cli("net", "allow", "methods", "web.example", "POST")
        self.assertEqual(self.ask("methods", "https://web.example/b", "-d", "x")[0], "200")
        self.assertEqual(self.ask("methods", "https://web.example/b")[0], "200")
        rules = [rule["host"] for rule in self.client.network("methods")["rules"]]
        self.assertEqual(rules, ["web.example GET,POST"])

    def test_a_rule_limits_a_host_to_a_path(self):
        self.workspace("paths", "https://web.example/simple/", "GET")
        self.assertEqual(self.ask("paths", "https://web.example/simple/x")[0], "200")
        for path in ("/", "/simple", "/simple/../secret", "/simple/%2e%2e/secret"):
            status, body = self.ask("paths", f"https://web.example{path}", "--path-as-is")
            self.assertEqual(status, "403", (path, body))
        self.assertNotEqual(self.ask("paths", "http://web.example/simple/x")[0], "200")
        check = self.daemon.cli("net", "check", "paths", "https://web.example/simple/x", "GET").stdout
        self.assertIn(b"a rule of this workspace (https://web.example/simple/ GET)", check)
        refused = self.daemon.cli("net", "check", "paths", "https://web.example/other", "GET", check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn(b"403, with the reason", refused.stdout)

    def test_a_refused_method_is_refused_on_a_host_that_is_allowed(self):
        self.workspace("deny", "web.example")
        outside_issuer = self.issuer("deny")
        self.assertIn(b"Test CA", outside_issuer)
        self.daemon.cli("net", "deny", "deny", "web.example", "POST,PUT")
        self.assertIn(b"Moorage", self.issuer("deny"))
        self.assertEqual(self.ask("deny", "https://web.example/")[0], "200")
        self.assertEqual(self.ask("deny", "https://web.example/", "-d", "x")[0], "403")
        # Where everything is allowed, TLS passes untouched.
        self.daemon.cli("net", "allow", "deny", "web.example", "POST,PUT")
        self.assertEqual(self.issuer("deny"), outside_issuer)
        self.assertEqual(self.ask("deny", "https://web.example/", "-d", "x")[0], "200")

    def test_check_names_variables_that_keep_programs_from_trusting(self):
        self.workspace("variables", "web.example", "GET")
        check = self.daemon.cli("net", "check", "variables", "web.example").stdout.decode()
        self.assertIn("its requests are judged one by one, so TLS ends outside of the sandbox", check)
        self.assertNotIn("SSL_CERT_FILE", check)
        run = self.client.start_exec("variables", ["curl", "-sS", "https://web.example/"],
                                     env={"SSL_CERT_FILE": "/workspace/own.pem", "CURL_CA_BUNDLE": "/workspace/own.pem"})
        self.assertNotEqual(self.client.wait(run["id"])["exit_code"], 0)
        check = self.daemon.cli("net", "check", "variables", "web.example").stdout.decode()
        self.assertIn(f"SSL_CERT_FILE was set for {run['id']}: its programs do not trust web.example unless "
                      "/workspace/own.pem has the certificates of /.moorage/certificates/all.pem", check)
        self.client.change_network("variables", allow=["web.example"])
        self.assertNotIn("SSL_CERT_FILE", self.daemon.cli("net", "check", "variables", "web.example").stdout.decode())


class Certificates(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        files = tempfile.TemporaryDirectory(prefix="moorage-network-")
        cls.addClassCleanup(files.cleanup)
        authority = outside.Authority(files.name)
        cls.authority_file = authority.file
        cls.settings = {"network.resolvers": [outside.DNS_ADDRESS], "network.reachable": [outside.NETWORK],
                        "network.ca_file": str(authority.file)}
        super().setUpClass()
        dns = outside.Dns({"web.example": WEB})
        cls.addClassCleanup(dns.close)
        secure = outside.Host(WEB, 443, authority.context("web.example"))
        cls.addClassCleanup(secure.close)

    def test_programs_trust_the_private_authority_unless_told_otherwise(self):
        self.client.create(repo_url=self.url, name="trust")
        self.client.change_network("trust", allow=["web.example"])
        fetch = "import urllib.request; print(urllib.request.urlopen('https://web.example/py').read().decode())"
        for argv, expected in ((["curl", "-sS", "https://web.example/curl"], b"web.example /curl"),
                               (["python3", "-c", fetch], b"web.example /py")):
            self.assertEqual(self.client.exec("trust", argv).stdout.strip(), expected)
        other = outside.Authority(self.daemon.directory / "other").file.read_bytes()
        self.client.write_file("trust", "other.pem", other)
        own = {"CURL_CA_BUNDLE": "/workspace/other.pem"}
        self.assertEqual(self.client.exec("trust", ["curl", "-sS", "https://web.example/"], env=own).exit_code, 60)
        # Without variables, too; the company's next authority replaces it at the next start of the daemon.
        bare = ["env", "-i", "curl", "-sS", "https://web.example/bare"]
        self.assertEqual(self.client.exec("trust", bare).stdout, b"web.example /bare\n")
        self.addCleanup(self.daemon.restart)
        self.addCleanup(self.authority_file.write_bytes, self.authority_file.read_bytes())
        self.authority_file.write_bytes(other)
        self.daemon.restart()
        if harness.BACKEND == "ssh":  # sent at the start of a sandbox
            self.client.stop("trust")
        self.assertEqual(self.client.exec("trust", bare).exit_code, 60)
        # Nobody inside, nor root there, changes them.
        self.assertNotEqual(self.client.exec("trust", "echo x >> $SSL_CERT_FILE").exit_code, 0)
        if harness.HAS_ROOT:
            self.assertNotEqual(self.client.exec("trust", "echo x >> $SSL_CERT_FILE", user="root").exit_code, 0)


if __name__ == "__main__":
    unittest.main()
