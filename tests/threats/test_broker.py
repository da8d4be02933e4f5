"""Ways around the judge of requests, and ways to get a credential into the sandbox: rows 47 and 48."""

import base64
import contextlib
import gzip
import html
import json
import os
import pathlib
import re
import signal
import socket
import threading
import unittest
import urllib.parse
import zlib

from named_hosts import EVIL, GET, GOOD, NamedHosts, gets, outside
from threat import harness, threat

import canaries  # of the end-to-end tests, found through threat

SECRET = "sk-canary/4f+7d&1e0b=~2c"
API, OTHER = outside.address("0.23"), outside.address("0.24")

# tls(host, bytes): as `get`, over TLS, until the host closes. ask(host, path, ...): one request.
TLS = GET + """
import ssl
def tls(host, data=b"", timeout=10, address=None):
    context = ssl.create_default_context()
    if address: context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    got = b""
    try:
        with context.wrap_socket(socket.create_connection((address or host, 443), timeout), server_hostname=host) as s:
            s.sendall(data)
            while piece := s.recv(65536): got += piece
    except OSError as error:
        return got or errno.errorcode.get(error.errno, type(error).__name__).encode()
    return got
def ask(host, path, headers="", method="GET", **more):
    return tls(host, f"{method} {path} HTTP/1.1\\r\\nHost: {host}\\r\\nConnection: close\\r\\n{headers}\\r\\n".encode(), **more)
"""

# http2(fields): the bytes of the answer to one stream with this head. RFC 9113, RFC 7541.
HTTP2 = """
def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
def http2(fields):
    head = b"".join(b"\\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode() for name, value in fields.items())
    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2"])
    with context.wrap_socket(socket.create_connection(("web.example", 443), 10), server_hostname="web.example") as s:
        assert s.selected_alpn_protocol() == "h2"
        s.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + frame(4, 0, 0, b"") + frame(1, 5, 1, head))
        got = b""
        while b"}}" not in got and (piece := s.recv(65536)): got += piece
        return got.replace(bytes.fromhex("48826c02"), b"502")  # nghttp2 writes it as Huffman codes
"""


def asks(each, **more):
    """A program: the answer to each of these arguments of `ask`, one a line."""
    return TLS + f"for arguments in {each!r}: print(ask(*arguments, **{more!r}))"


def unchunked(answer):
    """The body of an answer, whole or cut."""
    head, _, body = answer.partition(b"\r\n\r\n")
    if b"chunked" not in head.lower():
        return body
    return b"".join(re.split(rb"(?:^|\r\n)[0-9a-f]+\r\n", body))


# How a host repeats the key, and how a reader gets it back.
ECHOES = {
    "plain": (str.encode, bytes),
    "json": (lambda key: json.dumps({"headers": {"X-Api-Key": key}}).encode(), lambda body: json.loads(body)["headers"]["X-Api-Key"].encode()),
    "json-slash": (lambda key: json.dumps(key).replace("/", "\\/").encode(), lambda body: json.loads(body).encode()),
    "json-html": (lambda key: json.dumps(key).replace("&", "\\u0026").encode(), lambda body: json.loads(body).encode()),
    "url": (lambda key: urllib.parse.quote(key, safe="").encode(), urllib.parse.unquote_to_bytes),
    "url-path": (lambda key: urllib.parse.quote(key).encode(), urllib.parse.unquote_to_bytes),
    "html": (lambda key: html.escape(key).encode(), lambda body: html.unescape(body.decode()).encode()),
    "hex": (lambda key: key.encode().hex().encode(), lambda body: bytes.fromhex(body.decode())),
    "upper": (lambda key: key.upper().encode(), lambda body: SECRET.encode() if body.decode() == SECRET.upper() else body),
    **{f"base64-{shift}": (lambda key, shift=shift: base64.b64encode(b"x" * shift + key.encode() + b"y"), base64.b64decode) for shift in range(3)},
    **{f"urlsafe-{shift}": (lambda key, shift=shift: base64.urlsafe_b64encode(b"x" * shift + key.encode()), base64.urlsafe_b64decode) for shift in range(3)},
}
ENCODINGS = {
    "gzip": (gzip.compress, gzip.decompress), "deflate": (zlib.compress, zlib.decompress),
    "x-gzip": (gzip.compress, gzip.decompress),
    "br": (lambda body: b"\x0b\x0b\x80" + body + b"\x03", lambda body: body[3:-1]),  # stored, as brotli does with short texts
}


class ApiHandler(outside.Handler):
    """Repeats the key that came, in the way that the path asks for."""

    def do_GET(self):
        key = self.headers.get("X-Api-Key") or ""
        self.server.requests.append((self.command, self.path, key))
        way = self.path.partition("/v1/")[2]
        fields, body, status = {}, b"fine", 200
        if way in ECHOES:
            body = b"before " + ECHOES[way][0](key) + b" after" if way == "plain" else ECHOES[way][0](key)
        elif way in ENCODINGS:
            fields, body = {"Content-Encoding": way}, ENCODINGS[way][0](key.encode())
        elif way == "redirect":
            fields, status = {"Location": "https://other.example/v1/next"}, 302
        elif way == "redirect-echo":
            fields, status = {"Location": f"https://other.example/?key={urllib.parse.quote(key)}"}, 302
        elif way == "header":
            fields = {"X-Echo": key}
        elif way == "cookie":
            fields = {"Set-Cookie": f"key={base64.b64encode(key.encode()).decode()}"}
        elif way == "error":
            body, status = f"no such thing\n{self.headers}".encode(), 500
        elif way in ("pieces", "late"):
            return self.in_pieces(key, 1 if way == "pieces" else 7)
        elif way == "trailer":
            return self.raw(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Key: {key}\r\n\r\n")
        elif way == "reason":
            return self.raw(f"HTTP/1.1 200 {key}\r\nContent-Length: 0\r\n\r\n")
        elif way == "early":
            return self.raw(f"HTTP/1.1 103 Early Hints\r\nLink: {key}\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        elif way == "extension":
            return self.raw(f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;x={key}\r\n.\r\n0\r\n\r\n")
        elif way == "more":
            return self.raw(f"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nX-Key: {key}\r\n\r\n")
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        return None

    do_POST = do_TRACE = do_HEAD = do_PUT = do_GET

    def in_pieces(self, key, size):
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for at in range(0, len(key), size):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(key[at:at + size]), key[at:at + size].encode()))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def raw(self, text):
        self.wfile.write(text.encode())
        self.close_connection = True


class SlowHost:
    """An API at API:443 that stops at a step of its one connection: accept, handshake, head, half, none."""

    def __init__(self, address, context):
        self.context = context
        self.stop_at, self.reached, self.heads = "none", threading.Event(), []
        self.listener = socket.create_server((address, 443))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _stops(self, step, connection):
        if self.stop_at != step:
            return False
        self.reached.set()
        with contextlib.suppress(OSError):  # until the other side is gone
            while connection.recv(1, socket.MSG_PEEK) and self.stop_at == step:
                threading.Event().wait(0.02)
        connection.close()
        return True

    def _answer(self, plain):
        if self._stops("accept", plain):
            return
        with contextlib.suppress(OSError), self.context.wrap_socket(plain, server_side=True) as connection:
            under = socket.socket(fileno=os.dup(connection.fileno()))
            with under:
                if self._stops("handshake", under):
                    return
                head = b""
                while b"\r\n\r\n" not in head and (piece := connection.recv(65536)):
                    head += piece
                self.heads.append(head)
                key = re.search(rb"X-Api-Key: (.*)\r\n", head)[1]
                if self._stops("head", under):
                    return
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\nConnection: close\r\n\r\nhalf " + key[:len(key) // 2])
                if self._stops("half", under):
                    return
                connection.sendall(b"." * (35 - len(key) // 2))
                connection.unwrap()

    def close(self):
        self.stop_at = "none"
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


class Broker(NamedHosts):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        canaries.keep_out(cls.daemon, SECRET)
        cls.dns.names |= {"api.example": API, "other.example": OTHER}
        cls.api_context = cls.authority.context("api.example")
        cls.other = cls.close_later(outside.Host(OTHER, 443, cls.authority.context("other.example"), ApiHandler))
        cls.source = cls.place / "secret"
        cls.source.write_text(SECRET)
        cls.hold = cls.place / "hold"
        command = f"while [ -e {cls.hold} ]; do sleep 0.02; done; cat {cls.source}"
        for name, scope in (("api", "https://api.example/v1/"), ("web", "https://web.example/v1/")):
            cls.daemon.cli("credential", "add", name, "--for", scope, "--as", "header:X-Api-Key", "--from-command", command)
        cls.client.change_network("jail", allow=["api.example", "other.example"])

    def tls(self, source):
        """Output of a program inside that has the functions of TLS."""
        return self.python(TLS + source)

    def assert_secret_is_not_in(self, text, what):
        for form in (SECRET, SECRET[4:], SECRET[:-4], SECRET.upper(), urllib.parse.quote(SECRET), urllib.parse.quote(SECRET, safe=""),
                     SECRET.encode().hex(), base64.b64encode(SECRET.encode()).decode().rstrip("=")):
            self.assertNotIn(form, text, what)

    @threat(47, "C", "a request to an allowed host that asks for another host, path or protocol than it seems to: Host, absolute targets, a second "
            "request, smuggled bodies, CONNECT, TRACE; in plain HTTP, and in HTTP/1.1 and HTTP/2 over TLS that ends at the egress",
            "every request of a connection is parsed before it leaves, judged by itself and written anew; otherwise it gets 403 from the egress, and nothing "
            "of it is forwarded",
            "the same requests for the right host reach it, one after another on a connection; the wrong ones do, sent directly")
    def test_every_request_is_judged_by_itself(self):
        post = b"POST / HTTP/1.1\r\nHost: web.example\r\n"
        attacks = [EVIL, GOOD + EVIL, EVIL + GOOD, b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                   b"GET http://evil.org/ HTTP/1.1\r\nHost: web.example\r\n\r\n",
                   b"GET http://web.example@evil.org/ HTTP/1.1\r\nHost: web.example\r\n\r\n",
                   b"GET https://evil.org/ HTTP/1.1\r\nHost: web.example\r\n\r\n",
                   b"GET //evil.org HTTP/1.1\r\nHost: evil.org\r\n\r\n",
                   b"GET / HTTP/1.1\r\nHost: web.example\r\nHost: evil.org\r\n\r\n",
                   b"GET / HTTP/1.1\r\nHost: evil.org\r\nHost: web.example\r\n\r\n",
                   b"GET / HTTP/1.1\r\nX: y\r\n Host: evil.org\r\n\r\n", b"GET / HTTP/1.1\r\nHost : web.example\r\n\r\n",
                   b"GET / HTTP/1.1\nHost: evil.org\n\n", b"GET / HTTP/1.1\r\nHost: web.example, evil.org\r\n\r\n",
                   b"GET / HTTP/1.1\r\nHost: web.example:81\r\n\r\n", b"GET / HTTP/1.1\r\nHost: web.example\0.evil.org\r\n\r\n",
                   b"CONNECT evil.org:443 HTTP/1.1\r\nHost: web.example\r\n\r\n",
                   b"CONNECT web.example:443 HTTP/1.1\r\nHost: web.example\r\n\r\n",
                   b"GET / HTTP/1.1\r\nHost: web.example\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n" + EVIL,
                   post + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + EVIL,
                   post + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello" + EVIL,
                   post + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + EVIL,
                   post + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + EVIL,
                   post + b"Content-Length: 0\r\nExpect: 100-continue\r\n\r\n" + EVIL,
                   post + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" + EVIL]
        self.plain.requests.clear()
        answers = self.python(gets("web.example", 80, attacks)).split("\n")
        for attack, answer in zip(attacks, answers, strict=True):
            self.assertIn("403 Forbidden", answer, attack)
        self.assertEqual(self.plain.requests, [])
        self.attack_over_tls(attacks, post)
        for port, begin, refusal in ((80, "socket.create_connection(('web.example', 80), 10)", "403"), (443, self.SECURELY, "403")):
            with self.subTest(port=port):
                self.assertEqual(self.tls(self.SEQUENCE.format(begin=begin, requests=(GOOD, GOOD, EVIL))).split(), ["200", "200", refusal])
        self.assertEqual(self.plain.requests, [("web.example", "/good")] * 2)
        self.assertEqual(self.secure.requests, [("web.example", "/good")] * 2)
        self.attack_over_http2()
        # the controls
        self.assertIn("200 OK", self.on_host(gets(self.WEB, 80, [EVIL])))
        self.assertEqual(self.plain.requests[2:], [("evil.org", "/evil")])
        smuggled = GOOD.replace(b"\r\n\r\n", b"\r\nContent-Length: %d\r\n\r\n" % len(EVIL)) + EVIL
        self.on_host(TLS + f"tls('web.example', {smuggled!r}, 2, {self.WEB!r})")
        self.assertEqual(self.secure.requests[2:], [("web.example", "/good"), ("evil.org", "/evil")])

    SECURELY = "ssl.create_default_context().wrap_socket(socket.create_connection(('web.example', 443), 10), server_hostname='web.example')"
    SEQUENCE = """
with {begin} as s, s.makefile("rb") as answers:
    for request in {requests!r}:
        s.sendall(request)
        print(answers.readline().split()[1].decode())
        size = 0
        while line := answers.readline().strip():
            if line.lower().startswith(b"content-length:"): size = int(line.split()[1])
        answers.read(size)
"""

    def attack_over_tls(self, attacks, post):
        """The host reads no Transfer-Encoding: it would take a body for the next request."""
        self.secure.requests.clear()
        attacks = [*attacks, b"TRACE /good HTTP/1.1\r\nHost: web.example\r\n\r\n", b"OPTIONS evil HTTP/1.1\r\nHost: web.example\r\n\r\n",
                   b"GET /good HTTP/1.1\r\nHost: web.example\r\nX-HTTP-Method-Override: DELETE\r\n\r\n",
                   b"GET /v1/../evil HTTP/1.1\r\nHost: web.example\r\n\r\n", b"GET /v1/%2e%2e/evil HTTP/1.1\r\nHost: web.example\r\n\r\n",
                   b"GET /v1/..%2fevil HTTP/1.1\r\nHost: web.example\r\n\r\n", b"GET //v1/x HTTP/1.1\r\nHost: web.example\r\n\r\n",
                   post + b"Content-Length: 0\r\nTransfer-Encoding:\x0bchunked\r\n\r\n" + EVIL,
                   post + b"Content-Length: 5, 5\r\n\r\nhello" + EVIL, post + b"Content-Length: +5\r\n\r\nhello" + EVIL,
                   post + b"Transfer-Encoding: chunked\r\n\r\n5;\n\r\nhello\r\n0\r\n\r\n" + EVIL,
                   post + b"X: y\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + EVIL]
        answers = self.tls(f"for data in {attacks}: print(tls('web.example', data, 3))").split("\n")
        for attack, answer in zip(attacks, answers, strict=True):
            self.assertRegex(answer, "403 Refused by moorage|501 Unsupported method", attack)
        # A good first request is answered; the host closes the connection after a POST, which it does not know.
        self.assertLessEqual(set(self.secure.requests), {("web.example", "/good")})
        self.secure.requests.clear()

    def attack_over_http2(self):
        """The last one is the control: it is dialed, and the host does not speak HTTP/2."""
        good = {":method": "GET", ":scheme": "https", ":authority": "web.example", ":path": "/good"}
        attacks = [good | change for change in (
            {":authority": "evil.org"}, {":authority": "web.example@evil.org"}, {":authority": "web.example:444"}, {"host": "evil.org"},
            {":scheme": "http"}, {":method": "TRACE"}, {":path": "/v1/../evil"}, {":path": "/v1/%2e%2e/evil"}, {"x-original-url": "/v1/evil"},
            {":path": "/other", "x-api-key": "moorage-credential-web"})]
        attacks.append({":method": "CONNECT", ":authority": "evil.org:443"})
        connections = self.secure.connections
        for attack, answer in zip([*attacks, good], self.tls(HTTP2 + f"for fields in {[*attacks, good]!r}: print(http2(fields))").split("\n"), strict=True):
            self.assertIn("does not speak HTTP/2" if attack is good else "moorage_refused", answer, attack)
            self.assertIn("502" if attack is good else "403", answer, attack)
        self.assertEqual(self.secure.connections, connections + 1)

    @threat(48, "C", "get the credential back from the host: by TRACE, a redirect, an error page, a header, a trailer, pieces, and forms like Base64; "
            "from another host or path of the allow list; by the death of the egress at any step",
            "it goes to its own host, path and method only, after the certificate was verified; an answer that repeats it is cut before it arrives, and one "
            "that is compressed is not taken",
            "the same answers contain it for a client that sends it directly")
    def test_a_credential_never_comes_back(self):
        api = outside.Host(API, 443, self.api_context, ApiHandler)
        self.addCleanup(api.close)
        ways = [*ECHOES, *ENCODINGS, "redirect-echo", "header", "cookie", "error", "pieces", "late", "trailer", "reason", "early", "extension", "more"]
        attacks = [("api.example", f"/v1/{way}", "X-Api-Key: moorage-credential-api\r\nAccept-Encoding: gzip, br\r\n") for way in ways]
        answers = [eval(line) for line in self.python(asks(attacks)).split("\n")]
        controls = [eval(line) for line in self.on_host(asks([(host, path, f"X-Api-Key: {SECRET}\r\n") for host, path, _ in attacks], address=API)).split("\n")]
        for way, answer, control in zip(ways, answers, controls, strict=True):
            with self.subTest(way=way):
                decode = {**ECHOES, **ENCODINGS}.get(way, (None, lambda body: body))[1]
                read = unchunked(answer)
                with contextlib.suppress(ValueError, KeyError, EOFError, OSError, zlib.error):  # the answer was cut
                    read = decode(read)
                for text in (answer, read):
                    self.assert_secret_is_not_in(text.decode(errors="replace"), way)
                repeated = control + decode(unchunked(control))
                self.assertTrue(SECRET in repeated.decode(errors="replace") or base64.b64encode(SECRET.encode()) in repeated
                                or urllib.parse.quote(SECRET).encode() in repeated, (way, control))
        self.assertEqual([key for _, _, key in api.requests], [SECRET] * 2 * len(ways))
        self.lose_it_elsewhere(api)

    def lose_it_elsewhere(self, api):
        api.requests.clear()
        self.other.requests.clear()
        redirected = self.out("curl -sSL -o /dev/null -w '%{url_effective}' -H 'X-Mine: 1' https://api.example/v1/redirect")
        self.assertEqual(redirected, "https://other.example/v1/next")
        self.assertEqual((api.requests, self.other.requests), ([("GET", "/v1/redirect", SECRET)], [("GET", "/v1/next", "")]))
        placeholder = "X-Api-Key: moorage-credential-api\r\n"
        elsewhere = [("api.example", "/v2/plain", placeholder), ("api.example", "/v1", placeholder),
                     ("api.example", "/v1/plain?key=moorage-credential-api", ""), ("api.example", "/v1/plain", placeholder.replace("X-Api-Key", "X-Other")),
                     ("api.example", "/v1/plain", "", "TRACE"), ("web.example", "/v1/plain", placeholder)]
        for attack, answer in zip(elsewhere, self.python(asks(elsewhere)).split("\n"), strict=True):
            self.assertIn("403 Refused by moorage", answer, attack)
        self.assertEqual((len(api.requests), len(self.other.requests)), (1, 1))
        self.assertIn("fine", self.python(asks([("api.example", "/v2/plain")])))
        self.assertEqual(api.requests[1:], [("GET", "/v2/plain", "")])
        api.close()
        self.die_at_every_step()

    def die_at_every_step(self):
        """The egress is killed while it waits for the secret, has it, and has sent it; half of an answer repeats its first half."""
        slow = SlowHost(API, self.api_context)
        self.addCleanup(slow.close)
        program = asks([("api.example", "/v1/slow", "X-Api-Key: moorage-credential-api\r\n")])
        self.assertIn("200 OK", self.python(program))
        self.kill_egress()
        for step in ("ask", "accept", "handshake", "head", "half"):
            with self.subTest(step=step):
                heads = len(slow.heads)
                if step == "ask":
                    self.hold.touch()
                slow.reached.clear()
                slow.stop_at = step
                running = self.client.start_exec("jail", ["python3", "-c", program])
                if step == "ask":
                    harness.wait_until(lambda: self.reads_secret(), what="the secret is asked for")
                else:
                    self.assertTrue(slow.reached.wait(20), step)
                self.kill_egress()
                self.hold.unlink(missing_ok=True)
                slow.stop_at = "none"
                self.client.wait(running["id"])
                got = self.daemon.cli("logs", running["id"]).stdout.decode()
                self.assert_secret_is_not_in(got, step)
                self.assertNotIn(SECRET[:len(SECRET) // 2], got)
                self.assertEqual(len(slow.heads) - heads, step in ("head", "half"), step)
                harness.wait_until(lambda: "200 OK" in self.python(program), what="a new egress works")
                self.assertIn(b"X-Api-Key: " + SECRET.encode(), slow.heads[-1])
        self.assert_secret_is_nowhere()

    def kill_egress(self):
        pids = self.egress_pids()
        self.assertEqual(len(pids), 1)
        os.kill(pids[0], signal.SIGKILL)
        harness.wait_until(lambda: pids[0] not in self.egress_pids(), what="the egress is gone")

    def reads_secret(self):
        """Whether the command that prints the secret runs."""
        for entry in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                if entry.isdigit() and str(self.hold).encode() in pathlib.Path(f"/proc/{entry}/cmdline").read_bytes():
                    return True
        return False

    def assert_secret_is_nowhere(self):
        """Not in the store, nor in environment or arguments of any process."""
        found = harness.run("grep", "-rlaF", SECRET, self.daemon.store, check=False).stdout.decode()
        self.assertEqual(found, "")
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                text = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
                self.assertTrue(process.name == str(os.getpid()) or SECRET.encode() not in text, process)


if __name__ == "__main__":
    unittest.main()
