"""Servers of private repositories on loopback: git over https with basic authorization, and an sshd."""

import base64
import contextlib
import os
import pathlib
import socket
import subprocess

import harness
import https_server
import outside

SSHD = "/usr/sbin/sshd"


class HttpsHandler(outside.Handler):
    """git's CGI program, for who sends one of the server's tokens as the password of basic, as bearer, or in X-Token."""

    cgi_environment = https_server.Handler.cgi_environment
    answer = https_server.Handler.answer

    def token(self):
        scheme, _, value = self.headers.get("Authorization", "").partition(" ")
        if scheme == "Basic":
            return base64.b64decode(value).decode().partition(":")[2]
        return value if scheme == "Bearer" else self.headers.get("X-Token")

    def do_GET(self):
        self.server.requests.append((self.command, self.path, self.token()))
        if self.path.startswith("/moved/"):
            return self.end(302, "Location", self.path.replace("/moved/", "/acme/"))
        if self.token() not in self.server.tokens:
            return self.end(401, "WWW-Authenticate", 'Basic realm="git"')
        environment = self.cgi_environment() | {"REMOTE_USER": "git"}
        self.answer(subprocess.run([https_server.BACKEND], input=self.body(), env=environment, capture_output=True).stdout)

    do_POST = do_GET

    def body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        pieces = []
        while size := int(self.rfile.readline(), 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def end(self, status, name, value):
        self.body()
        self.send_response(status)
        self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()


class HttpsHost(outside.Host):
    def __init__(self, address, context, directory, tokens=()):
        self.directory = directory
        self.tokens = set(tokens)
        super().__init__(address, 443, context, HttpsHandler)


class Sshd:
    """An sshd at ADDRESS:PORT that runs git for the keys in `authorized`; `config` is an ssh_config that knows it as `name`."""

    def __init__(self, address, name, directory):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(mode=0o755)
        with socket.socket() as probe:
            probe.bind((address, 0))
            self.port = probe.getsockname()[1]
        self.address = address
        self.authorized = self.directory / "authorized_keys"
        self.authorized.touch()
        self.host_key = self.make_key("host")
        known = self.directory / "known_hosts"
        known.write_text(f"{name} {(self.directory / 'host.pub').read_text()}")
        self.config = self.directory / "ssh_config"
        self.config.write_text(f"Host {name}\n HostName {address}\n HostKeyAlias {name}\n GlobalKnownHostsFile {known}\n")
        settings = self.directory / "sshd_config"
        settings.write_text(
            f"ListenAddress {address}:{self.port}\nHostKey {self.host_key}\nPidFile none\nStrictModes no\nUsePAM no\n"
            f"AuthorizedKeysFile {self.authorized}\nPasswordAuthentication no\nPermitRootLogin yes\nAcceptEnv GIT_PROTOCOL\n"
            "ForceCommand git-shell -c \"$SSH_ORIGINAL_COMMAND\"\nLogLevel VERBOSE\n")
        os.makedirs("/run/sshd", exist_ok=True)
        self.log = open(self.directory / "log", "wb")
        self.process = None
        self.settings = settings

    def make_key(self, name):
        harness.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.directory / name)
        return self.directory / name

    def authorize(self, *keys):
        self.authorized.write_text("".join(pathlib.Path(f"{key}.pub").read_text() for key in keys))

    def start(self):
        self.process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(self.settings)], stdout=self.log, stderr=self.log)
        harness.wait_until(self._answers, what="sshd")
        return self

    def _answers(self):
        with contextlib.suppress(OSError), socket.create_connection((self.address, self.port), 1):
            return True

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait()
            self.process = None

    def close(self):
        self.stop()
        self.log.close()


def bare_repository(path):
    """One that takes pushes, with a commit on main. Returns that commit."""
    made = pathlib.Path(f"{path}.made")
    commit = harness.make_repository(made)
    harness.git("/", "clone", "-q", "--bare", made, path)
    harness.run("rm", "-rf", made)
    return commit


def add_commit(bare, name, content, branch="main"):
    """A commit by somebody else."""
    clone = pathlib.Path(f"{bare}.clone")
    harness.git("/", "clone", "-q", "-b", branch, bare, clone)
    commit = harness.commit(clone, name, content)
    harness.git(clone, "push", "-q", "origin", f"HEAD:{branch}")
    harness.run("rm", "-rf", clone)
    return commit
