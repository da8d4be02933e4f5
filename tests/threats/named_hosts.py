"""Hosts outside of the sandbox with names, for the suites about the network by name."""

import contextlib
import os
import pathlib
import socket
import tempfile
import threading

from threat import TRY, Threats

import outside  # of the end-to-end tests, found through threat

# get(host, port, bytes): what a connection to the host gets, or the error's name.
GET = TRY + """
import socket
def get(host, port, data=b"", timeout=10):
    try:
        with socket.create_connection((host, port), timeout) as s:
            s.sendall(data)
            return s.recv(65536)
    except (socket.gaierror, UnicodeError):
        return "no name"
    except OSError as error:
        return errno.errorcode.get(error.errno, "timeout")
def request(host, path="/"):
    return f"GET {path} HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n\\r\\n".encode()
"""

# ask(wire, type): the code and the number of answers of the sandbox's resolver. `wire` is a name as in a question.
ASK = """
import socket, struct
def wire(name):
    labels = [label for label in (name if isinstance(name, bytes) else name.encode()).split(b".") if label]
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\\0"
def question(number, name, kind=1):
    return struct.pack(">6H", number, 0x100, 1, 0, 0, 0) + name + struct.pack(">HH", kind, 1)
def ask(name, kind=1, resolver="127.0.0.53"):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(10)
        s.connect((resolver, 53))
        s.send(question(7, name, kind))
        answer = s.recv(65536)
        return answer[3] & 15, answer[7]
"""

GOOD = b"GET /good HTTP/1.1\r\nHost: web.example\r\n\r\n"
EVIL = b"GET /evil HTTP/1.1\r\nHost: evil.org\r\n\r\n"


def gets(host, port, each):
    """A program: one connection for each of these bytes, and what it gets."""
    return GET + f"for data in {each}: print(get({host!r}, {port}, data))"


class Everywhere:
    """Accepts at a port of every address of the host; `reached` lists the addresses that were connected to."""

    def __init__(self):
        both = socket.has_dualstack_ipv6()
        self.socket = socket.create_server(("::" if both else "0.0.0.0", 0), dualstack_ipv6=both,
                                           family=socket.AF_INET6 if both else socket.AF_INET)
        self.port = self.socket.getsockname()[1]
        self.reached = []
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection:
                self.reached.append(connection.getsockname()[0].removeprefix("::ffff:"))

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join(5)


class NamedHosts(Threats):
    """Workspace jail may reach web.example; evil.org is a trap."""

    @classmethod
    def setUpClass(cls):
        cls.WEB, cls.TRAP, cls.FLIP = map(outside.address, ("0.20", "0.21", "0.22"))
        cls.resolver = outside.DNS_ADDRESS
        files = tempfile.TemporaryDirectory(prefix="moorage-hosts-")
        cls.addClassCleanup(files.cleanup)
        cls.place = pathlib.Path(files.name)
        cls.authority = outside.Authority(files.name)
        cls.settings = {"network.resolvers": [cls.resolver], "network.reachable": [outside.address("0.0/24")],
                        "network.ca_file": str(cls.authority.file),
                        "network.credential_key": str(cls.place / "key" / "credentials.key")}
        super().setUpClass()
        cls.dns = cls.close_later(outside.Dns({"web.example": cls.WEB, "evil.org": cls.TRAP}, cls.resolver))
        cls.plain = cls.close_later(outside.Host(cls.WEB, 80))
        cls.secure = cls.close_later(outside.Host(cls.WEB, 443, cls.authority.context("web.example")))
        cls.trap = cls.close_later(outside.Host(cls.TRAP, 80))
        cls.everywhere = cls.close_later(Everywhere())
        cls.client.change_network("jail", allow=["web.example"])

    @classmethod
    def close_later(cls, thing):
        cls.addClassCleanup(thing.close)
        return thing

    def get(self, *arguments):
        """What a program inside gets."""
        return self.python(GET + f"print(get({', '.join(map(repr, arguments))}))")

    def forget_answers(self):
        """A change of the rules makes the egress ask for each name again."""
        self.client.change_network("jail", allow=["web.example"])

    def egress_pids(self):
        mark = str(self.daemon.store).encode()
        pids = []
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                word = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")[0] if entry.isdigit() else b""
                if b"moorage-egress" in word and mark in word:
                    pids.append(int(entry))
        return pids
