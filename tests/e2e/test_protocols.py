"""Protocols through the broker: gRPC, WebSockets, events, and bodies that are larger than any buffer.

MOORAGE_TEST_LONG=1: bodies of 1 GiB, and a stream that is silent for six minutes.
"""

import base64
import concurrent.futures
import contextlib
import hashlib
import http.server
import os
import pathlib
import tempfile
import threading
import unittest

import canaries
import grpc
import harness
import outside

LONG = os.environ.get("MOORAGE_TEST_LONG") == "1"
MUCH = (1 << 30) if LONG else (128 << 20)
MOST_RESIDENT = 48 << 20
SILENCE_S = 360 if LONG else 3
HOSTS = {"api.example": outside.address("3.10"), "grpc.example": outside.address("3.11"), "old.example": outside.address("3.12")}
SECRET = "sk-canary-91c7ab02ff"
PLACEHOLDER = "moorage-credential-api"

GRPC = """
import os, sys, grpc
host, method, *messages = sys.argv[1:]
credentials = grpc.ssl_channel_credentials(open(os.environ["SSL_CERT_FILE"], "rb").read())
with grpc.secure_channel(host + ":443", credentials) as channel:
    try:
        for part in channel.stream_stream("/test.Api/" + method)((m.encode() for m in messages), timeout=60,
                                                                   metadata=[("x-api-key", "moorage-credential-api")]):
            print(part.decode(), flush=True)
    except grpc.RpcError as error:
        print(error.code().name, error.details())
"""

WEBSOCKET = r"""
import base64, os, socket, ssl, struct
context = ssl.create_default_context()
with context.wrap_socket(socket.create_connection(("api.example", 443), 20), server_hostname="api.example") as s, s.makefile("rb") as stream:
    s.sendall(b"GET /v1/socket HTTP/1.1\r\nHost: api.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
              b"X-Api-Key: moorage-credential-api\r\nSec-WebSocket-Extensions: permessage-deflate\r\n"
              b"Sec-WebSocket-Key: " + base64.b64encode(os.urandom(16)) + b"\r\n\r\n")
    print(stream.readline().decode().strip())
    while (line := stream.readline()) != b"\r\n": print(line.decode().strip()) if b"xtensions" in line else None
    def send(payload, mask=b"abcd"):
        s.sendall(b"\x81" + bytes([0x80 | len(payload)]) + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(payload)))
    for n in range(50):
        send(b"message %d" % n)
        size = stream.read(2)[1]
        assert stream.read(size) == b"message %d" % n
    print("echoed")
    send(b"key")
    print("then", stream.read())
"""

# Uploads zeros with a length; reads the answer.
UPLOAD = """
import http.client, ssl, sys
size, piece = int(sys.argv[1]), bytes(1 << 20)
connection = http.client.HTTPSConnection("api.example", context=ssl.create_default_context(), timeout=120)
connection.request("POST", "/v1/take", (piece for _ in range(size >> 20)), {"Content-Length": str(size)})
print(connection.getresponse().read().decode())
"""


class Handler(http.server.BaseHTTPRequestHandler):
    """/v1/events waits for server.go before each event; /v1/socket is an echo, and answers "key" with the key."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def start(self, size=None, status=200, **fields):
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        if size is not None:
            self.send_header("Content-Length", str(size))
        self.end_headers()

    def do_GET(self):
        self.server.heads.append(self.headers)
        if self.path == "/v1/events":
            self.start(Content_Type="text/event-stream", Connection="close")
            for n in range(3):
                self.server.go.acquire()
                self.wfile.write(f"data: event {n}\n\n".encode())
        elif self.path == "/v1/chunks":
            self.start(Transfer_Encoding="chunked")
            for n in range(3):
                self.server.go.acquire()
                self.wfile.write(b"8\r\nchunk %d\n\r\n" % n)
            self.wfile.write(b"0\r\n\r\n")
        elif self.path == "/v1/socket":
            self.web_socket()
        else:
            size = int(self.path.rpartition("/")[2])
            self.start(size)
            for _ in range(size >> 20):
                self.wfile.write(bytes(1 << 20))

    def do_POST(self):
        self.server.heads.append(self.headers)
        left = size = int(self.headers["Content-Length"])
        while left > 0:
            self.server.may_read.wait()
            left -= len(self.rfile.read(min(left, 1 << 20)))
            self.server.taken = size - left
        self.start(len(str(size)))
        self.wfile.write(str(size).encode())

    def web_socket(self):
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.start(status=101, Connection="Upgrade", Upgrade="websocket",
                   Sec_WebSocket_Accept=base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.close_connection = True
        while head := self.rfile.read(2):
            mask = self.rfile.read(4)
            payload = bytes(b ^ mask[i % 4] for i, b in enumerate(self.rfile.read(head[1] & 0x7f)))
            if payload == b"key":
                payload = self.headers["X-Api-Key"].encode()
            self.wfile.write(bytes([head[0], len(payload)]) + payload)


class Protocols(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="moorage-broker-")
        cls.addClassCleanup(scratch.cleanup)
        cls.place = pathlib.Path(scratch.name)
        cls.authority = outside.Authority(cls.place / "ca")
        cls.settings = {"network.resolvers": [outside.DNS_ADDRESS], "network.reachable": [outside.NETWORK],
                        "network.ca_file": str(cls.authority.file),
                        "network.credential_key": str(cls.place / "key" / "credentials.key")}
        super().setUpClass()
        canaries.keep_out(cls.daemon, SECRET)
        dns = outside.Dns(HOSTS)
        cls.addClassCleanup(dns.close)
        cls.api = outside.Host(HOSTS["api.example"], 443, cls.authority.context("api.example"), Handler)
        cls.old = outside.Host(HOSTS["old.example"], 443, cls.authority.context("old.example"))
        for host in (cls.api, cls.old):
            cls.addClassCleanup(host.close)
        cls.api.go, cls.api.may_read = threading.Semaphore(0), threading.Event()
        cls.api.may_read.set()
        cls.serve_grpc()
        (cls.place / "secret").write_text(SECRET)
        scopes = [word for host in HOSTS for word in ("--for", f"https://{host}/")]
        cls.daemon.cli("credential", "add", "api", *scopes, "--as", "header:X-Api-Key", "--from-file", cls.place / "secret")
        cls.client.create(repo_url=cls.url, name="work")
        cls.client.change_network("work", allow=list(HOSTS))

    @classmethod
    def serve_grpc(cls):
        cls.key = SECRET

        def key_of(context):
            return dict(context.invocation_metadata()).get("x-api-key")

        def echo(requests, context):
            if key_of(context) != cls.key:
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you")
            for request in requests:
                yield request.upper()

        def leak(requests, context):
            for request in requests:
                yield request
            yield f"the key is {key_of(context)}".encode()

        def leak_at_end(_, context):
            yield b"fine"
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"bad key {key_of(context)}")

        def packed(requests, context):
            context.set_compression(grpc.Compression.Gzip)
            yield from leak(requests, context)

        cls.authority.context("grpc.example")
        key, certificate = ((cls.place / "ca" / f"grpc.example.{end}").read_bytes() for end in ("key", "pem"))
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("test.Api", {
            name: grpc.stream_stream_rpc_method_handler(method)
            for name, method in {"Echo": echo, "Leak": leak, "LeakAtEnd": leak_at_end, "Packed": packed}.items()})])
        server.add_secure_port(f"{HOSTS['grpc.example']}:443", grpc.ssl_server_credentials([(key, certificate)]))
        server.start()
        cls.addClassCleanup(lambda: server.stop(0).wait())

    def setUp(self):
        self.api.heads = []

    def inside(self, source, *words):
        result = self.client.exec("work", ["python3", "-c", source, *map(str, words)])
        self.assertEqual(result.exit_code, 0, result.stderr)
        return result.stdout.decode()

    def test_grpc_calls_get_a_credential(self):
        self.assertEqual(self.inside(GRPC, "grpc.example", "Echo", "one", "two"), "ONE\nTWO\n")
        self.assertEqual(self.inside(GRPC, "grpc.example", "Echo", *["x" * 90_000] * 8), ("X" * 90_000 + "\n") * 8)

    def test_grpc_programs_see_why_they_are_refused(self):
        type(self).key = "another"
        self.addCleanup(setattr, type(self), "key", SECRET)
        self.assertEqual(self.inside(GRPC, "grpc.example", "Echo", "one"),
                         "PERMISSION_DENIED moorage: grpc.example did not accept the credential api (401): it may have expired; "
                         "moorage credential test api\n")
        self.assertIn("UNAVAILABLE moorage: no TLS connection to old.example: it does not speak HTTP/2",
                      self.inside(GRPC, "old.example", "Echo", "one"))

    def test_grpc_answers_do_not_repeat_the_credential(self):
        refused = "PERMISSION_DENIED moorage: the host's answer contained the credential\n"
        self.assertEqual(self.inside(GRPC, "grpc.example", "Leak", "first"), "first\n" + refused)
        self.assertEqual(self.inside(GRPC, "grpc.example", "LeakAtEnd", "first"), "fine\n" + refused)
        self.assertEqual(self.inside(GRPC, "grpc.example", "Packed", "first"),
                         "UNAVAILABLE moorage: the host compressed its answer, and was asked not to\n")

    def test_a_web_socket_gets_a_credential_and_frames_that_can_be_read(self):
        out = self.inside(WEBSOCKET)
        self.assertIn("101 Switching Protocols\nechoed\nthen b", out)
        self.assertNotIn(SECRET, out)
        head, = self.api.heads
        self.assertEqual(head["X-Api-Key"], SECRET)
        self.assertIsNone(head["Sec-WebSocket-Extensions"])

    def test_events_and_chunks_arrive_before_the_next_is_sent(self):
        for path, each in (("events", "data: event {}\n\n"), ("chunks", "chunk {}\n")):
            running = self.client.start_exec("work", ["curl", "-sSN", "-H", f"X-Api-Key: {PLACEHOLDER}", f"https://api.example/v1/{path}"])
            expected = ""
            for n in range(3):
                if n == 2:
                    threading.Event().wait(SILENCE_S)
                self.api.go.release()
                expected += each.format(n)
                harness.wait_until(lambda: self.daemon.cli("logs", running["id"]).stdout.decode() == expected, 10, f"{path} {n}")
            self.assertEqual(self.client.wait(running["id"])["exit_code"], 0)

    def test_a_program_that_waits_for_100_continue_gets_it(self):
        out = self.client.exec("work", ["sh", "-c", "head -c 3000000 /dev/zero | curl -sS --expect100-timeout 60 -H 'Expect: 100-continue' "
                                        "-H 'Content-Length: 3000000' -w ' %{time_total}' --data-binary @- https://api.example/v1/take"]).stdout
        size, seconds = out.split()
        self.assertEqual(size, b"3000000")
        self.assertLess(float(seconds), 30)
        self.assertEqual(self.api.heads[0]["Expect"], "100-continue")

    def test_bodies_of_any_size_need_little_memory(self):
        self.assertEqual(self.inside(UPLOAD, MUCH), f"{MUCH}\n")
        got = self.client.exec("work", ["curl", "-sS", "-o", "/dev/null", "-w", "%{size_download}", f"https://api.example/v1/bytes/{MUCH}"])
        self.assertEqual(got.stdout.decode(), str(MUCH))
        self.assertLess(self.most_resident(), MOST_RESIDENT)

    def test_an_upload_waits_for_its_host(self):
        self.api.may_read.clear()
        self.addCleanup(self.api.may_read.set)
        self.api.taken = 0
        running = self.client.start_exec("work", ["python3", "-c", UPLOAD, str(MUCH)])
        harness.wait_until(lambda: self.api.heads, what="the upload begins")
        threading.Event().wait(2)
        self.assertEqual(self.api.taken, 0)
        self.assertLess(self.most_resident(), MOST_RESIDENT)
        self.api.may_read.set()
        self.assertEqual(self.client.wait(running["id"])["exit_code"], 0)
        self.assertEqual(self.api.taken, MUCH)

    def most_resident(self):
        """Bytes of memory that the egress has had at most."""
        mark = str(self.daemon.store).encode()
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                word = (process / "cmdline").read_bytes().split(b"\0")[0]
                if b"moorage-egress" in word and mark in word:
                    status = (process / "status").read_text()
                    return int(status.split("VmHWM:")[1].split()[0]) << 10
        raise AssertionError("no egress runs")


if __name__ == "__main__":
    unittest.main()
