"""The hosts that the network rows reach: a DNS server that answers every name below bench.example, and a server on two
ports of the same address. A process of its own, so that the bench's work does not slow it down.

A request is a line: "get N" is answered with N bytes, "get N RATE" with N bytes at RATE bytes a second, "put N" with a
byte after N more came, "meet N" with a byte once N clients have asked for it. On port 443 a TLS hello, one record,
comes first.

At a second address, port 443 is a real HTTPS server: GET /N is answered with N bytes, PUT once its body came.
"""

import pathlib
import random
import socket
import socketserver
import ssl
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/e2e"))
import outside  # noqa: E402

DOMAIN = "bench.example"
SECURE = "secure.bench.example"  # the names below it have the second address
PORTS = (8080, 443)
# Not a power of two, so that no piece of a copy begins where one of these does.
BLOCK = random.Random(1).randbytes(1_000_003)
SLICE = 128 << 10  # at a rate: this many bytes, then a pause


def pieces(size, most=len(BLOCK)):
    """The bytes of an answer."""
    for at in range(0, size, len(BLOCK)):
        block = memoryview(BLOCK)[:size - at]
        for begin in range(0, len(block), most):
            yield block[begin:begin + most]


class Names(dict):
    """Every name of the domain."""

    def __init__(self, address, secure_address):
        super().__init__()
        self.address, self.secure_address = address, secure_address

    def get(self, name, default=None):
        if name.endswith("." + SECURE):
            return self.secure_address
        return self.address if name == DOMAIN or name.endswith("." + DOMAIN) else default


class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = self.request.makefile("rb", buffering=65536)
        if self.server.server_address[1] == 443:
            head = self.reader.read(5)
            self.reader.read(int.from_bytes(head[3:5], "big"))
        while line := self.reader.readline():
            word, *numbers = line.split()
            {b"get": self.get, b"put": self.put, b"meet": self.meet}[word](*map(int, numbers))

    def get(self, size, rate=0):
        began, sent = time.monotonic(), 0
        for piece in pieces(size, SLICE if rate else len(BLOCK)):
            self.request.sendall(piece)
            sent += len(piece)
            if rate:
                time.sleep(max(0, began + sent / rate - time.monotonic()))

    def put(self, size):
        buffer = bytearray(1 << 20)
        left = size - len(self.reader.read(min(size, len(self.reader.peek()))))
        while left:
            taken = self.request.recv_into(buffer, min(left, len(buffer)))
            if not taken:
                return
            left -= taken
        self.request.sendall(b"k")

    def meet(self, clients):
        with self.server.meeting:
            waiting = self.server.waiting
            waiting.append(self.request)
            if len(waiting) < clients:
                return
            self.server.waiting = []
        for request in waiting:
            request.sendall(b"m")


class SecureHandler(socketserver.BaseRequestHandler):
    """HTTP/1.1, with no more memory or work than it takes."""

    def handle(self):
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = self.server.context.wrap_socket(self.request, server_side=True)
        while head := self.head(connection):
            first, body = head.split(b"\r\n\r\n", 1)
            method, target, _ = first.split(b"\r\n")[0].split()
            if method == b"GET":
                size = int(target[1:])
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
                for piece in pieces(size):
                    connection.sendall(piece)
            else:
                lengths = [line for line in first.split(b"\r\n") if line.lower().startswith(b"content-length:")]
                self.take(connection, int(lengths[0].split(b":")[1]) - len(body))

    @staticmethod
    def head(connection):
        head = b""
        while b"\r\n\r\n" not in head:
            piece = connection.recv(65536)
            if not piece:
                return b""
            head += piece
        return head

    @staticmethod
    def take(connection, left):
        buffer = bytearray(1 << 20)
        while left:
            taken = connection.recv_into(buffer, min(left, len(buffer)))
            if not taken:
                return
            left -= taken
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 1024

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.meeting, self.waiting = threading.Lock(), []

    def handle_error(self, request, client_address):
        pass  # clients that leave


def main(dns_address, address, secure_address, certificate, key):
    threading.stack_size(256 << 10)
    dns = outside.Dns(address=dns_address)
    dns.names = Names(address, secure_address)
    servers = [Server((address, port), Handler) for port in PORTS]
    secure = Server((secure_address, 443), SecureHandler)
    secure.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secure.context.load_cert_chain(certificate, key)
    for server in (*servers, secure):
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()  # until the bench ends


if __name__ == "__main__":
    main(*sys.argv[1:])
