"""Network `packages` as it comes: package managers install through TLS that ends at the egress, and publish nothing.

No tool gets an option about certificates or registries: hosts have their real names, and programs their usual trust.
"""

import hashlib
import io
import pathlib
import tempfile
import unittest
import zipfile

import harness
import outside
import registries

NAMES = ("registry.npmjs.org", "pypi.org", "deb.debian.org", "proxy.golang.org", "static.rust-lang.org",
         "repo.maven.apache.org")
HOSTS = {name: outside.address(f"4.{n}") for n, name in enumerate(NAMES, 1)}
PATIENCE_S = 180 * harness.PATIENCE


class Registry(registries.Files):
    """Notes methods, and takes what is published."""

    def do_GET(self):
        self.server.methods.append("GET")
        super().do_GET()

    def do_HEAD(self):
        self.server.methods.append("HEAD")
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.files[self.path])))
        self.end_headers()

    def do_POST(self):
        self.server.methods.append(self.command)
        super().do_POST()

    do_PUT = do_POST


def go_module(name):
    """What a module proxy has of NAME at v1.0.0."""
    archive = io.BytesIO()
    mod = f"module {name}\n\ngo 1.19\n"
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr(f"{name}@v1.0.0/go.mod", mod)
        files.writestr(f"{name}@v1.0.0/part.go", "package part\n\nconst Name = \"part\"\n")
    base = f"/{name}/@v"
    return {f"{base}/list": b"v1.0.0\n", f"{base}/v1.0.0.info": b'{"Version": "v1.0.0"}', f"{base}/v1.0.0.mod": mod.encode(),
            f"{base}/v1.0.0.zip": archive.getvalue()}


class Packages(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        place = tempfile.TemporaryDirectory(prefix="moorage-packages-")
        cls.addClassCleanup(place.cleanup)
        cls.place = pathlib.Path(place.name)
        cls.authority = outside.Authority(cls.place / "ca")
        cls.settings = {"network.resolvers": [outside.DNS_ADDRESS], "network.reachable": [outside.NETWORK],
                        "network.ca_file": str(cls.authority.file), "network.mode": "packages"}
        super().setUpClass()
        dns = outside.Dns(HOSTS)
        cls.addClassCleanup(dns.close)

    def serve(self, host, files, port=443):
        context = self.authority.context(host) if port == 443 else None
        server = outside.Host(HOSTS[host], port, context, Registry)
        self.addCleanup(server.close)
        server.files, server.methods = files, []
        return server

    def workspace(self, name, **files):
        self.daemon.cli("create", "--repo", self.url, "--name", name)
        self.addCleanup(self.client.delete, name, purge=True)
        for path, content in files.items():
            self.client.write_file(name, path, content if isinstance(content, bytes) else content.encode())

    def inside(self, name, script, check=True):
        result = self.daemon.cli("exec", name, "--", "sh", "-c", script, check=False, timeout=PATIENCE_S)
        if check:
            self.assertEqual(result.returncode, 0, result)
            self.assertNotIn(b"was refused", result.stderr)
        return result

    def test_npm_installs_and_does_not_publish(self):
        files, about, lock = registries.npm_registry("https://registry.npmjs.org", 30)
        server = self.serve("registry.npmjs.org", files)
        self.workspace("npm", **{"package.json": about, "package-lock.json": lock})
        self.inside("npm", "npm ci")  # with its audit, which is refused quietly
        self.assertIn(b"29\n", self.inside("npm", "node -p 'require(`part29`)'").stdout)
        published = self.inside("npm", "npm publish --//registry.npmjs.org/:_authToken=x", check=False)
        self.assertNotEqual(published.returncode, 0)
        self.assertIn(b"moorage: registry.npmjs.org:443 was refused: PUT registry.npmjs.org/shop is not allowed, only GET; "
                      b"allow it: moorage net allow npm registry.npmjs.org PUT\n", published.stderr)
        self.assertEqual(set(server.methods), {"GET"})
        log = self.daemon.cli("net", "log", "npm").stdout
        self.assertIn(b"npm's audit", log)

    def test_pip_installs(self):
        wheels = {"part0": registries.wheel("part0", "1.0"), "whole": registries.wheel("whole", "1.0", ["part0"])}
        server = self.serve("pypi.org", registries.python_index(wheels))
        self.workspace("pip")
        self.inside("pip", "python3 -m venv venv && venv/bin/pip install --disable-pip-version-check whole")
        self.assertEqual(self.inside("pip", "venv/bin/python -c 'import part0, whole; print(whole.version)'").stdout, b"1.0\n")
        self.assertEqual(set(server.methods), {"GET"})

    def test_apt_installs_over_http_and_https(self):
        files = registries.debian_archive(self.place / "deb", 5)
        plain, secure = self.serve("deb.debian.org", files, 80), self.serve("deb.debian.org", files)
        self.workspace("apt")
        apt = ("apt-get -q -o Dir=$PWD/apt -o DPkg::Options::=--root=$PWD/apt -o DPkg::Options::=--force-not-root "
               "-o DPkg::Options::=--force-script-chrootless -o APT::Update::Error-Mode=any")
        for scheme, server in (("http", plain), ("https", secure)):
            self.inside("apt", "set -e; rm -rf apt; mkdir -p apt/etc/apt/apt.conf.d apt/etc/apt/preferences.d apt/var/lib/dpkg/info "
                               "apt/var/lib/dpkg/updates apt/var/lib/apt apt/var/cache/apt apt/var/log/apt; : >apt/var/lib/dpkg/status; "
                               f"echo 'deb [trusted=yes] {scheme}://deb.debian.org/debian stable main' >apt/etc/apt/sources.list")
            installed = self.inside("apt", f"{apt} update && {apt} install -y part0 && ls apt/opt | wc -l")
            self.assertEqual(installed.stdout.split()[-1], b"5", installed)
            self.assertEqual(set(server.methods), {"GET"})
            posted = self.inside("apt", f"curl -sS -o /dev/null -w '%{{http_code}}' -d x {scheme}://deb.debian.org/debian/", check=False)
            self.assertEqual(posted.stdout, b"403")
            self.assertEqual(set(server.methods), {"GET"})

    def test_go_downloads_modules(self):
        server = self.serve("proxy.golang.org", go_module("example.org/part"))
        self.workspace("go", **{"go.mod": "module shop\n\ngo 1.19\n\nrequire example.org/part v1.0.0\n",
                                "main.go": 'package main\n\nimport "example.org/part"\n\nfunc main() { println(part.Name) }\n'})
        # Its database of checksums signs with Google's key, so this one is not in it.
        self.inside("go", "GONOSUMDB='*' GOFLAGS=-mod=mod go run .")
        self.assertEqual(set(server.methods), {"GET"})

    def test_maven_downloads_a_parent(self):
        about = "<modelVersion>4.0.0</modelVersion><groupId>example</groupId><version>1</version><packaging>pom</packaging>"
        parent = f"<project>{about}<artifactId>parent</artifactId></project>".encode()
        server = self.serve("repo.maven.apache.org", {"/maven2/example/parent/1/parent-1.pom": parent,
                                                      "/maven2/example/parent/1/parent-1.pom.sha1": hashlib.sha1(parent).hexdigest().encode()})
        child = "<parent><groupId>example</groupId><artifactId>parent</artifactId><version>1</version><relativePath/></parent>"
        self.workspace("maven", **{"pom.xml": f"<project>{about}{child}<artifactId>shop</artifactId></project>"})
        self.inside("maven", "mvn -q -B validate")
        self.assertEqual(set(server.methods), {"GET"})

    def test_wget_downloads(self):
        content = outside.pattern(1 << 20)
        server = self.serve("static.rust-lang.org", {"/dist/toolchain.tar": content})
        self.workspace("wget")
        self.inside("wget", "wget -q https://static.rust-lang.org/dist/toolchain.tar && wget -q --spider https://static.rust-lang.org/dist/toolchain.tar")
        self.assertEqual(self.client.read_file("wget", "toolchain.tar"), content)
        self.assertEqual(server.methods, ["GET", "HEAD"])

    def test_hosts_that_only_need_reading_cannot_be_written(self):
        self.workspace("rules")
        rules = {rule["host"] for rule in self.client.network("rules")["rules"] if rule["verdict"] == "allow"}
        self.assertIn("registry.npmjs.org GET", rules)
        self.assertEqual({rule for rule in rules if not rule.endswith(" GET")}, set())


if __name__ == "__main__":
    unittest.main()
