"""The world outside of a sandbox, on loopback: a DNS server, hosts with names, and TLS with a private CA.

Hosts live at addresses of NETWORK, at their real ports (443, 80...), which the settings make reachable. Each process that
takes them from `address` has a part of its own, so that suites can run at the same time.
"""

import contextlib
import http.server
import pathlib
import socket
import socketserver
import ssl
import struct
import subprocess
import threading
import time


def claim_part():
    """The second byte of addresses that no other process uses, and what holds it."""
    for number in range(110, 128):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0moorage-test-outside-{number}")
            return number, claim
        except OSError:
            claim.close()
    raise RuntimeError("all parts are in use")


NETWORK = "127.64.0.0/10"
NUMBER, CLAIM = claim_part()


def address(host):
    return f"127.{NUMBER}.{host}"


DNS_ADDRESS = address("0.53")
PIECE = 256 << 10


A, AAAA = 1, 28  # types of DNS questions


def packed(address):
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


def dns_answer(question, names):
    """Answers A and AAAA questions from `names`, {name: address, list of addresses, or function of the question's type
    that returns them}; other names do not exist, and other types have no data."""
    labels, at = [], 12
    while question[at]:
        labels.append(question[at + 1:at + 1 + question[at]].decode().lower())
        at += 1 + question[at]
    kind, = struct.unpack(">H", question[at + 1:at + 3])
    asked = question[12:at + 5]
    found = names.get(".".join(labels))
    if found is None:
        return question[:2] + b"\x81\x83" + b"\0\1" + b"\0" * 6 + asked
    found = found(kind) if callable(found) else found
    addresses = [packed(address) for address in ([found] if isinstance(found, str) else found)]
    addresses = [address for address in addresses if len(address) == {A: 4, AAAA: 16}.get(kind)]
    records = b"".join(b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 5, len(address)) + address for address in addresses)
    return question[:2] + b"\x81\x80" + b"\0\1" + struct.pack(">H", len(addresses)) + b"\0" * 4 + asked + records


class Dns:
    """`names` may change at any time; `questions` counts all."""

    def __init__(self, names=None, address=DNS_ADDRESS):
        self.names = dict(names or {})
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((address, 53))
        self.questions = 0
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        while True:
            try:
                question, peer = self.socket.recvfrom(4096)
            except OSError:
                return
            if not question:
                return
            self.questions += 1
            with contextlib.suppress(IndexError, UnicodeDecodeError, struct.error, OSError):
                self.socket.sendto(dns_answer(question, self.names), peer)

    def close(self):
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join(5)


class Authority:
    """A private CA. `file` is its certificate."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.file = self.directory / "ca.pem"
        self.key = self.directory / "ca.key"
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
                      "-subj", "/CN=Test CA", "-keyout", self.key, "-out", self.file)

    def _openssl(self, *argv, **options):
        subprocess.run(["openssl", *map(str, argv)], check=True, capture_output=True, **options)

    def context(self, *names):
        """A server's TLS context for these names."""
        stem = self.directory / names[0]
        extensions = "subjectAltName=" + ",".join(f"DNS:{name}" for name in names)
        self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={names[0]}",
                      "-addext", extensions, "-keyout", f"{stem}.key", "-out", f"{stem}.csr")
        (self.directory / f"{names[0]}.ext").write_text(extensions)
        self._openssl("x509", "-req", "-in", f"{stem}.csr", "-CA", self.file, "-CAkey", self.key, "-CAcreateserial", "-days", "30",
                      "-extfile", f"{stem}.ext", "-out", f"{stem}.pem")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{stem}.pem", f"{stem}.key")
        return context


def pattern(size):
    """Bytes in which no piece looks like another."""
    return b"".join(b"%015x\n" % i for i in range(-(-size // 16)))[:size]


class Handler(http.server.BaseHTTPRequestHandler):
    """GET answers with the path and the Host header; /bytes/N with N bytes, /pattern/N with those of `pattern`."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.requests.append((self.headers.get("Host"), self.path))
        body = f"{self.headers.get('Host')} {self.path}\n".encode()
        if self.path.startswith("/bytes/"):
            body = b"x" * int(self.path.removeprefix("/bytes/"))
        if self.path.startswith("/pattern/"):
            body = pattern(int(self.path.removeprefix("/pattern/")))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        for at in range(0, len(body), PIECE):
            self.wfile.write(body[at:at + PIECE])
            self.server.bytes_sent += len(body[at:at + PIECE])
            time.sleep(self.server.pause_s)


class Host(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """An HTTP server at ADDRESS:PORT, with TLS if it has a context. `requests` lists what came, `bytes_sent` counts bodies;
    it waits `pause_s` after each piece of a body."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address, port, context=None, handler=Handler):
        super().__init__((address, port), handler)
        self.requests = []
        self.connections = 0
        self.bytes_sent = 0
        self.pause_s = 0
        if context:
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()

    def get_request(self):
        self.connections += 1
        return super().get_request()

    def handle_error(self, request, client_address):
        pass  # clients that give up

    def close(self):
        self.shutdown()
        self.server_close()
        self.thread.join(5)
