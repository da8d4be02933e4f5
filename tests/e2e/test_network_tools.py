"""Common tools as they come, from inside a sandbox: refused with a reason, then allowed while they try again.

In each test the tool fails first, with its own error and Moorage's message. Then it runs again, and the host is allowed
from outside while it retries, by itself or in a loop: it must succeed without a new start.
"""

import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import unittest

import grpc
import harness
import https_server
import network_programs
import outside
import registries

LONG = os.environ.get("MOORAGE_TEST_LONG") == "1"
HOSTS = {name: outside.address(f"1.{n}") for n, name in enumerate(
    ("web.example", "git.example", "registry.example", "pypi.example", "deb.example", "socket.example", "grpc.example",
     "events.example"), 1)}
PATIENCE_S = 180 * harness.PATIENCE
NPM_PACKAGES = 200


class NetworkTools(harness.TestCase):
    settings = {"network.resolvers": [outside.DNS_ADDRESS], "network.reachable": [outside.NETWORK]}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        place = tempfile.TemporaryDirectory(prefix="moorage-tools-")
        cls.addClassCleanup(place.cleanup)
        cls.place = pathlib.Path(place.name)
        cls.authority = outside.Authority(place.name)
        cls.dns = outside.Dns(HOSTS)
        cls.addClassCleanup(cls.dns.close)
        cls.ca = cls.authority.file.read_bytes()

    def serve(self, host, handler=outside.Handler, port=443, **attributes):
        context = self.authority.context(host) if port == 443 else None
        server = outside.Host(HOSTS[host], port, context, handler)
        self.addCleanup(server.close)
        for name, value in attributes.items():
            setattr(server, name, value)
        return server

    def workspace(self, name, **files):
        self.daemon.cli("create", "--repo", self.url, "--name", name)
        self.addCleanup(self.client.delete, name, purge=True)
        self.client.write_file(name, "ca.pem", self.ca)
        for path, content in files.items():
            self.client.write_file(name, path, content if isinstance(content, bytes) else content.encode())

    def inside(self, name, script):
        return self.daemon.cli("exec", name, "--", "sh", "-c", script, check=False, timeout=PATIENCE_S)

    @staticmethod
    def refusal(name, host):
        return f"moorage: {host} was refused: no rule allows it; allow it: moorage net allow {name} {host}\n".encode()

    def assert_refused(self, name, script, host, exit_code):
        result = self.inside(name, script)
        self.assertEqual(result.returncode, exit_code, result)
        self.assertEqual(self.refusals(result.stderr), [self.refusal(name, host)], result)
        return result

    @staticmethod
    def refusals(stderr):
        return [line for line in stderr.splitlines(keepends=True) if b" allow it: " in line]

    def allow_meanwhile(self, name, script, host):
        """Runs it until it is refused, allows the host, and returns what it printed until its end."""
        out, err = self.place / f"{name}.out", self.place / f"{name}.err"
        with open(out, "wb") as out_file, open(err, "wb") as err_file:
            tool = self.daemon.cli_popen("exec", name, "--", "sh", "-c", script, stdout=out_file, stderr=err_file)
        self.addCleanup(tool.wait)
        self.addCleanup(tool.kill)
        harness.wait_until(lambda: self.refusal(name, host) in err.read_bytes(), 60, f"a refusal of {host}")
        self.assertIsNone(tool.poll())
        self.daemon.cli("net", "allow", name, host)
        try:
            code = tool.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            code = "none yet"
        self.assertEqual(code, 0, (out.read_bytes()[-2000:], err.read_bytes()[-4000:]))
        self.assertEqual(self.refusals(err.read_bytes()), [self.refusal(name, host)])
        return out.read_bytes()

    def test_curl(self):
        server = self.serve("web.example")
        self.workspace("curl")
        self.assert_refused("curl", "curl -sS --cacert ca.pem https://web.example/", "web.example", 6)
        self.assertEqual(server.connections, 0)
        out = self.allow_meanwhile("curl", "curl -sS --retry 100 --retry-delay 1 --retry-all-errors --cacert ca.pem "
                                           "https://web.example/curl", "web.example")
        self.assertEqual(out, b"web.example /curl\n")

    def test_wget(self):
        server = self.serve("web.example")
        self.workspace("wget")
        self.assert_refused("wget", "wget -nv -O- --ca-certificate=ca.pem https://web.example/", "web.example", 4)
        self.assertEqual(server.connections, 0)
        out = self.allow_meanwhile("wget", "wget -nv -O- --tries 100 --waitretry 1 --retry-on-host-error "
                                           "--ca-certificate=ca.pem https://web.example/wget", "web.example")
        self.assertEqual(out, b"web.example /wget\n")

    def test_git(self):
        upstream = self.place / "git/acme/shop"
        harness.make_repository(upstream, {"a.txt": "first\n", "big": os.urandom(8 << 20)})
        self.serve("git.example", https_server.Handler, directory=self.place / "git")
        self.workspace("git")
        git = "GIT_SSL_CAINFO=$PWD/ca.pem git"
        result = self.assert_refused("git", f"{git} clone -q https://git.example/acme/shop", "git.example", 128)
        self.assertIn(b"Could not resolve host", result.stderr)
        out = self.allow_meanwhile("git", f"until {git} clone -q https://git.example/acme/shop; do sleep 0.2; done; "
                                          "cat shop/a.txt", "git.example")
        self.assertEqual(out, b"first\n")
        tip = harness.commit(upstream, "a.txt", "second\n")
        self.daemon.cli("net", "deny", "git", "git.example")
        fetch = f"{git} -C shop fetch -q"
        self.assertEqual(self.inside("git", fetch).returncode, 128)
        self.daemon.cli("net", "forget", "git", "git.example")
        out = self.allow_meanwhile("git", f"until {fetch}; do sleep 0.2; done; git -C shop rev-parse origin/main", "git.example")
        self.assertEqual(out.decode().strip(), tip)

    def test_npm_ci_of_200_packages(self):
        files, about, lock = registries.npm_registry("https://registry.example", NPM_PACKAGES)
        server = self.serve("registry.example", registries.Files, files=files)
        self.workspace("npm", **{"package.json": about, "package-lock.json": lock})
        npm = "npm ci --cafile ca.pem --registry https://registry.example"
        result = self.assert_refused("npm", f"{npm} --fetch-retries 0", "registry.example", 1)
        self.assertIn(b"ENOTFOUND", result.stderr)
        self.assertEqual(server.connections, 0)
        self.allow_meanwhile("npm", npm, "registry.example")  # with its own retries, after 10 s and more
        installed = self.inside("npm", "node -e 'let sum = 0; for (let n = 0; n < 200; n++) sum += require(`part${n}`); console.log(sum)'")
        self.assertEqual(installed.stdout, f"{sum(range(NPM_PACKAGES))}\n".encode(), installed)
        self.assertEqual({path for _, path in server.requests if path.endswith(".tgz")}, set(files))

    def test_pip(self):
        wheels = {f"part{n}": registries.wheel(f"part{n}", "1.0") for n in range(10)}
        wheels["whole"] = registries.wheel("whole", "1.0", wheels)
        server = self.serve("pypi.example", registries.Files, files=registries.python_index(wheels))
        self.workspace("pip")
        self.assertEqual(self.inside("pip", "python3 -m venv venv").returncode, 0)
        pip = "REQUESTS_CA_BUNDLE=ca.pem venv/bin/pip install --disable-pip-version-check --index-url https://pypi.example/simple whole"
        self.assert_refused("pip", f"{pip} --retries 0", "pypi.example", 1)
        self.assertEqual(server.connections, 0)
        self.allow_meanwhile("pip", pip, "pypi.example")  # with its own retries, for some seconds
        modules = self.inside("pip", "venv/bin/python -c 'import whole, part0, part9; print(whole.version)'")
        self.assertEqual(modules.stdout, b"1.0\n", modules)

    def test_apt(self):
        server = self.serve("deb.example", registries.Files, 80, files=registries.debian_archive(self.place / "deb", 20))
        self.workspace("apt")
        made = self.inside("apt", "set -e; mkdir -p apt/etc/apt/apt.conf.d apt/etc/apt/preferences.d apt/var/lib/dpkg/info apt/var/lib/dpkg/updates "
                                  "apt/var/lib/apt apt/var/cache/apt apt/var/log/apt; : >apt/var/lib/dpkg/status; "
                                  "echo 'deb [trusted=yes] http://deb.example/debian stable main' >apt/etc/apt/sources.list")
        self.assertEqual(made.returncode, 0, made)
        # dpkg does without root and without the scripts of packages, which these do not have.
        apt = ("apt-get -q -o Dir=$PWD/apt -o DPkg::Options::=--root=$PWD/apt -o DPkg::Options::=--force-not-root "
               "-o DPkg::Options::=--force-script-chrootless -o APT::Update::Error-Mode=any")
        result = self.assert_refused("apt", f"{apt} update", "deb.example", 100)
        self.assertIn(b"Could not resolve 'deb.example'", result.stderr)
        self.assertEqual(server.connections, 0)
        self.allow_meanwhile("apt", f"until {apt} update; do sleep 0.2; done", "deb.example")
        installed = self.inside("apt", f"{apt} install -y part0 && ls apt/opt | wc -l")
        self.assertEqual((installed.returncode, installed.stdout.split()[-1]), (0, b"20"), installed)

    def test_node(self):
        self.serve("web.example")
        self.workspace("node", **{"fetch.js": network_programs.NODE})
        node = "NODE_EXTRA_CA_CERTS=ca.pem node fetch.js"
        result = self.assert_refused("node", node, "web.example", 1)
        self.assertIn(b"ENOTFOUND", result.stderr)
        self.assertEqual(self.allow_meanwhile("node", f"{node} again", "web.example"), b"web.example /node\n")

    def test_go_static(self):
        self.assertTrue(shutil.which("go"), "Go is not installed: apt-get install golang-go")
        source = self.place / "main.go"
        source.write_text(network_programs.GO)
        harness.run("go", "build", "-o", self.place / "client", source,
                    env=os.environ | {"CGO_ENABLED": "0", "GOCACHE": str(harness.BIN.parent / "go"), "GOFLAGS": "-trimpath"})
        self.serve("web.example")
        self.workspace("go", client=(self.place / "client").read_bytes())
        go = "chmod +x client; SSL_CERT_FILE=ca.pem ./client"
        result = self.assert_refused("go", go, "web.example", 1)
        self.assertIn(b"no such host", result.stderr)
        self.assertEqual(self.allow_meanwhile("go", f"{go} again", "web.example"), b"web.example /go\n")

    def test_websocket(self):
        for port in (443, 80):
            self.serve("socket.example", network_programs.WebSockets, port)
        self.workspace("ws", **{"client.py": network_programs.WEBSOCKET})
        result = self.assert_refused("ws", "python3 client.py", "socket.example", 1)
        self.assertIn(b"Name or service not known", result.stderr)
        out = self.allow_meanwhile("ws", "python3 client.py again", "socket.example")
        self.assertEqual(out, b"echoed 1000 at 443\nechoed 1000 at 80\n")

    def test_grpc(self):
        self.authority.context("grpc.example")
        key, certificate = ((self.place / f"grpc.example.{end}").read_bytes() for end in ("key", "pem"))
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test.Echo", {
            "Once": grpc.unary_unary_rpc_method_handler(lambda request, _: request.upper()),
            "Many": grpc.stream_stream_rpc_method_handler(lambda requests, _: (one.upper() for one in requests))})])
        server.add_secure_port(f"{HOSTS['grpc.example']}:443", grpc.ssl_server_credentials([(key, certificate)]))
        server.start()
        self.addCleanup(lambda: server.stop(0).wait())
        self.workspace("grpc", **{"client.py": network_programs.GRPC})
        self.assert_refused("grpc", "python3 client.py", "grpc.example", grpc.StatusCode.UNAVAILABLE.value[0])
        out = self.allow_meanwhile("grpc", "python3 client.py again", "grpc.example")
        self.assertEqual(out, b"ONE\nTWO\nTHREE\n")

    def test_a_stream_of_events_goes_on_through_kills_of_the_daemon(self):
        seconds, count = (600 if LONG else 20), 100
        server = self.serve("events.example", network_programs.Events, count=count, pause_s=seconds / count, sent=0)
        self.workspace("sse")
        curl = "curl -sSN --cacert ca.pem https://events.example/"
        self.assert_refused("sse", curl, "events.example", 6)
        loop = self.client.start_exec("sse", ["sh", "-c", f"until {curl}; do sleep 0.1; done"])
        harness.wait_until(lambda: loop["id"].encode() in self.daemon.cli("net", "log", "sse").stdout, 20, "a refusal")
        self.daemon.cli("net", "allow", "sse", "events.example")
        for part in (0.2, 0.5, 0.8):
            harness.wait_until(lambda: server.sent >= count * part, seconds, "events")  # noqa: B023
            self.daemon.kill()
            sent = server.sent
            harness.wait_until(lambda: server.sent >= sent + 3, seconds, "events without a daemon")  # noqa: B023
            self.daemon.start()
        end = self.client.wait(loop["id"], (seconds + 60) * 1000)
        self.assertEqual(end["exit_code"], 0)
        out = self.client.raw_output(loop["id"], "stdout")
        self.assertEqual(out, b"".join(b"id: %d\ndata: event %d\n\n" % (n, n) for n in range(count)))
        self.assertEqual(len(server.requests), 1)


if __name__ == "__main__":
    unittest.main()
