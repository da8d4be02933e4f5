"""What package managers install from, generated: packages of npm, pip and apt, and a server of files."""

import base64
import email.utils
import hashlib
import http.server
import io
import json
import pathlib
import zipfile

import harness
from test_work import package


class Files(http.server.BaseHTTPRequestHandler):
    """GET answers from `server.files`, {path: bytes}."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        path = self.path.partition("?")[0]
        self.server.requests.append((self.headers.get("Host"), path))
        self.answer(self.server.files.get(path))

    def do_POST(self):  # npm's audit
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer(None)

    def answer(self, body):
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"")))
        if self.path.endswith("/"):
            self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(body or b"")


def npm_registry(base_url, count):
    """A project of `count` packages: (files of the registry, package.json, package-lock.json)."""
    files, locked, wanted = {}, {}, {}
    for n in range(count):
        name = f"part{n}"
        needs = {f"part{n + 1}": "^1.0.0"} if n % 10 < 9 and n + 1 < count else {}
        content = {"index.js": f"module.exports = {n}\n"} | {f"lib/file{k}.js": f"// {n} {k}\n" * 50 for k in range(5)}
        tarball = package(name, "1.0.0", content, needs)
        path = f"/{name}/-/{name}-1.0.0.tgz"
        files[path] = tarball
        locked[f"node_modules/{name}"] = {
            "version": "1.0.0", "resolved": base_url + path, "dependencies": needs,
            "integrity": "sha512-" + base64.b64encode(hashlib.sha512(tarball).digest()).decode()}
        if n % 10 == 0:
            wanted[name] = "^1.0.0"
    about = {"name": "shop", "version": "1.0.0", "dependencies": wanted}
    lock = {"name": "shop", "version": "1.0.0", "lockfileVersion": 3, "requires": True, "packages": {"": about} | locked}
    return files, json.dumps(about).encode(), json.dumps(lock).encode()


def wheel(name, version, requires=()):
    """A wheel with one module, which says its version."""
    info = f"{name}-{version}.dist-info"
    content = {f"{name}.py": f"version = '{version}'\n",
               f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" +
                                   "".join(f"Requires-Dist: {other}\n" for other in requires),
               f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    record = ""
    for path, text in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(text)}\n"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path, text in (content | {f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}).items():
            archive.writestr(path, text)
    return out.getvalue()


def python_index(wheels):
    """A package index (PEP 503) of {name: wheel of version 1.0}."""
    files = {}
    for name, content in wheels.items():
        path = f"/files/{name}-1.0-py3-none-any.whl"
        files[path] = content
        page = f'<!DOCTYPE html><a href="{path}#sha256={hashlib.sha256(content).hexdigest()}">{pathlib.Path(path).name}</a>'
        files[f"/simple/{name}/"] = page.encode()
    return files


def debian_archive(directory, count):
    """An archive of `count` packages for apt, unsigned. The first one depends on all others."""
    files, index = {}, ""
    for n in range(count):
        name = f"part{n}"
        root = pathlib.Path(directory) / name
        (root / "DEBIAN").mkdir(parents=True)
        (root / "opt").mkdir()
        (root / "opt" / name).write_text(f"{name}\n" * 1000)
        control = f"Package: {name}\nVersion: 1.0\nArchitecture: all\nMaintainer: Test <t@example.com>\nDescription: a part\n"
        if n == 0 and count > 1:
            control += "Depends: " + ", ".join(f"part{k}" for k in range(1, count)) + "\n"
        (root / "DEBIAN/control").write_text(control)
        harness.run("dpkg-deb", "--root-owner-group", "--build", root, f"{root}.deb")
        content = pathlib.Path(f"{root}.deb").read_bytes()
        files[f"/debian/pool/{name}.deb"] = content
        index += f"{control}Filename: pool/{name}.deb\nSize: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n\n"
    architecture = harness.run("dpkg", "--print-architecture").stdout.decode().strip()
    place = f"main/binary-{architecture}/Packages"
    release = (f"Origin: Test\nSuite: stable\nCodename: stable\nDate: {email.utils.formatdate(usegmt=True)}\n"
               f"Architectures: {architecture}\nComponents: main\nSHA256:\n"
               f" {hashlib.sha256(index.encode()).hexdigest()} {len(index)} {place}\n")
    return files | {"/debian/dists/stable/Release": release.encode(), f"/debian/dists/stable/{place}": index.encode()}
