"""HTTP/1.1 with chunked bodies, streams and WebSockets for fake providers, in a thread with an event loop of its own.

A provider is a subclass of Provider with `async handle(request)`, which returns an Answer, or takes a WebSocket with
`request.websocket()` and returns None. The same requests are served at `url` and, if a certificate is given, with TLS
at `tls_url`.
"""

import asyncio
import base64
import collections
import concurrent.futures
import email.utils
import gzip
import hashlib
import http
import json
import re
import ssl
import struct
import threading
import time
import traceback
import urllib.parse

import faults
import machine

LIMIT = 64 << 10  # bytes of a request's head
BODY_LIMIT = 256 << 20
FRAME_LIMIT = 16 << 20
WEBSOCKET = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Answer(Exception):
    """Can be returned or raised. `body`: bytes, an object for JSON, or an async generator of bytes."""

    def __init__(self, status=200, body=b"", headers=None):
        super().__init__(status)
        self.status, self.headers = status, dict(headers or {})
        if isinstance(body, (dict, list)):
            self.headers.setdefault("Content-Type", "application/json")
            body = json.dumps(body).encode()
        self.body = body


class Request:
    def __init__(self, method, target, headers, reader, writer):
        self.method, self.target, self.headers, self.reader, self.writer = method, target, headers, reader, writer
        path, _, self.raw_query = target.partition("?")
        self.path = urllib.parse.unquote(path)
        self.query = dict(urllib.parse.parse_qsl(self.raw_query, keep_blank_values=True))
        self.body, self.fault, self.taken = b"", None, False
        scheme = "https" if writer.get_extra_info("ssl_object") else "http"
        self.origin = f"{scheme}://{self.header('host', 'localhost')}"

    def header(self, name, default=None):
        return self.headers.get(name.lower(), default)

    async def read_body(self):
        if self.header("transfer-encoding", "").lower() == "chunked":
            pieces, total = [], 0
            while size := int((await self.reader.readline()).split(b";")[0], 16):
                total += size
                if total > BODY_LIMIT:
                    raise Answer(413, {"code": 413, "message": "the body is too large"})
                pieces.append(await self.reader.readexactly(size))
                await self.reader.readline()
            while (await self.reader.readline()).strip():
                pass  # trailers
            self.body = b"".join(pieces)
        elif length := int(self.header("content-length", 0)):
            if length > BODY_LIMIT:
                raise Answer(413, {"code": 413, "message": "the body is too large"})
            self.body = await self.reader.readexactly(length)

    def json(self):
        """The body as an object; 400 if it is not one."""
        try:
            value = json.loads(self.body or b"{}")
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise Answer(400, {"code": 400, "message": "the body is not a JSON object"})
        return value

    def content(self):
        """The body without its Content-Encoding."""
        return gzip.decompress(self.body) if self.header("content-encoding") == "gzip" else self.body

    def parts(self):
        """Of multipart/form-data: (name, filename or None, bytes), in order."""
        boundary = re.search(r'boundary="?([^";]+)', self.header("content-type", ""))
        if not boundary:
            raise Answer(400, {"code": 400, "message": "the body is not multipart/form-data"})
        result = []
        for part in (b"\r\n" + self.content()).split(b"\r\n--" + boundary[1].encode())[1:-1]:
            head, _, data = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
            head = head.decode(errors="surrogateescape")
            name, file = (re.search(rf'[; ]{word}="((?:[^"\\]|\\.)*)"', head, re.I) for word in ("name", "filename"))
            result.append((name and name[1], file and urllib.parse.unquote(file[1]), data))
        return result

    async def websocket(self, protocol=None):
        self.taken = True
        digest = hashlib.sha1((self.header("sec-websocket-key", "") + WEBSOCKET).encode()).digest()
        lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade",
                 f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}"]
        if protocol:
            lines.append(f"Sec-WebSocket-Protocol: {protocol}")
        self.writer.write("\r\n".join(lines + ["", ""]).encode())
        await self.writer.drain()
        return WebSocket(self.reader, self.writer, self.fault)


class WebSocket:
    def __init__(self, reader, writer, fault):
        self.reader, self.output = reader, faults.Output(writer, fault)

    async def send(self, data):
        """Text for str, binary for bytes."""
        await self._frame(1 if isinstance(data, str) else 2, data.encode() if isinstance(data, str) else data)

    async def close(self, code=1000, reason=""):
        await self._frame(8, struct.pack(">H", code) + reason.encode()[:123])

    async def receive(self):
        """The next message, as bytes; None at its end."""
        message = b""
        while True:
            first, second = await self.reader.readexactly(2)
            size = second & 127
            if size >= 126:
                form, length = (">H", 2) if size == 126 else (">Q", 8)
                size, = struct.unpack(form, await self.reader.readexactly(length))
            if size + len(message) > FRAME_LIMIT or not second & 128:
                return None
            mask = await self.reader.readexactly(4)
            data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(await self.reader.readexactly(size)))
            if first & 15 == 8:
                return None
            if first & 15 == 9:
                await self._frame(10, data)
            elif first & 15 < 8:
                message += data
                if first & 128:
                    return message

    async def _frame(self, kind, data):
        size = len(data)
        head = struct.pack(">BB", 128 | kind, size) if size < 126 else struct.pack(">BBH", 128 | kind, 126, size) \
            if size < 65536 else struct.pack(">BBQ", 128 | kind, 127, size)
        await self.output.write(head + data)


class Provider:
    """`certificate`: (PEM file of the certificate, of the key). Call `close` at the end, or use it with `with`."""

    def __init__(self, port=0, certificate=None):
        machine.end_left_over()
        self.faults = faults.Faults()
        self.requests = collections.deque(maxlen=20000)  # (method, target, status)
        self.received = 0  # bytes of their bodies
        self.connections, self.late = set(), set()
        self.loop = asyncio.new_event_loop()
        # Each machine call holds a thread for as long as process 1 of that machine needs.
        self.loop.set_default_executor(concurrent.futures.ThreadPoolExecutor(64))
        self.thread = threading.Thread(target=self.loop.run_forever, name=type(self).__name__)
        self.thread.start()
        self.servers = [self.call(asyncio.start_server(self._serve, "127.0.0.1", port, limit=LIMIT))]
        self.port = self.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.servers.append(self.call(asyncio.start_server(self._serve, "127.0.0.1", 0, limit=LIMIT, ssl=context)))
            self.tls_url = f"https://127.0.0.1:{self.servers[1].sockets[0].getsockname()[1]}"
        else:
            self.tls_url = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def call(self, coroutine):
        """Runs it on the provider's loop, from another thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(120)

    def now(self):
        """The provider's clock, which may be wrong."""
        return time.time() + self.faults.skew_s

    def close(self):
        self.call(self._close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    async def _close(self):
        for server in self.servers:
            server.close()
        for task in list(self.connections):
            task.cancel()
        await asyncio.gather(*self.connections, return_exceptions=True)
        await self.end_all()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await self.loop.shutdown_default_executor()

    async def end_all(self):
        """Ends what the provider runs."""

    async def handle(self, request):
        raise NotImplementedError

    def error(self, status, message):
        """The provider's body of an error."""
        return {"code": status, "message": message}

    def fail(self, status, message):
        raise Answer(status, self.error(status, message))

    async def _serve(self, reader, writer):
        task = asyncio.current_task()
        self.connections.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # the client went away, or does not speak HTTP
        except asyncio.CancelledError:
            pass  # close()
        finally:
            self.connections.discard(task)
            writer.transport.abort()

    async def _one(self, reader, writer):
        """One request; False at the end of its connection."""
        head = await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b""
        if not head:
            return False
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        method, target, _ = first.split(" ", 2)
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        request = Request(method, target, headers, reader, writer)
        if request.header("expect") == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await request.read_body()
        self.received += len(request.body)
        if request.path.startswith("/_fake/"):
            await self._send(request, await self._control(request))
            return True
        fault = request.fault = self.faults.take(method, request.path)
        answer = await self._meet(request, fault)
        if answer is None:
            answer = await self._answer(request)
        self.requests.append((method, target, 101 if answer is None else answer.status))
        if fault and fault.kind == "lost_answer":
            if hasattr(answer.body, "aclose"):
                await answer.body.aclose()
            await self._vanish(fault.stall)
        if answer is None:
            return False
        await self._send(request, answer)
        return request.header("connection", "").lower() != "close"

    async def _take_effect(self, request, seconds):
        await asyncio.sleep(seconds)
        answer = await self._answer(request)
        self.requests.append((request.method, request.target, answer.status))

    async def _meet(self, request, fault):
        kind = fault.kind if fault else None
        if kind == "status":
            headers = {} if fault.retry_after_s is None else {"Retry-After": f"{fault.retry_after_s:g}"}
            body = self.error(fault.status, "a scripted fault") if fault.body is None else fault.body
            return Answer(fault.status, body, headers)
        if kind == "late":
            self.late.add(asyncio.ensure_future(self._take_effect(request, fault.delay_s)))
        if kind in ("refuse", "stall", "late"):
            await self._vanish(kind == "stall")
        if kind == "delay":
            await asyncio.sleep(fault.delay_s)
        return None

    async def _vanish(self, stall):
        if stall:
            await asyncio.get_running_loop().create_future()  # until the client leaves or the provider closes
        raise faults.Cut

    async def _answer(self, request):
        try:
            return await self.handle(request)
        except Answer as answer:
            return answer
        except (OSError, asyncio.IncompleteReadError):
            if request.taken:
                raise
            traceback.print_exc()
        except Exception:
            traceback.print_exc()
        return Answer(500, self.error(500, "the fake provider failed; its standard error says why"))

    async def _send(self, request, answer):
        fixed = isinstance(answer.body, bytes)
        headers = {"Date": email.utils.formatdate(self.now(), usegmt=True), **answer.headers}
        if fixed and answer.status not in (204, 304):
            headers["Content-Length"] = str(len(answer.body))
        elif not fixed and "Content-Length" not in headers:
            headers["Transfer-Encoding"] = "chunked"
        lines = [f"HTTP/1.1 {answer.status} {http.HTTPStatus(answer.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        request.writer.write("\r\n".join(lines + ["", ""]).encode())
        output = faults.Output(request.writer, request.fault)
        if fixed:
            if answer.body and request.method != "HEAD":
                await output.write(answer.body)
            return await request.writer.drain()
        await request.writer.drain()
        size = headers.get("Content-Length")
        await self._stream(request, answer.body, output, None if size is None else int(size))

    async def _stream(self, request, body, output, size):
        """The pieces of `body`, until the client leaves."""
        async def pieces():
            total = 0
            async for piece in body:
                total += len(piece)
                await output.write(b"%x\r\n%s\r\n" % (len(piece), piece) if size is None else piece)
            if size is None:
                await output.write(b"0\r\n\r\n")
            elif total != size:
                raise faults.Cut  # a file that shrank while it was read
        sending = asyncio.ensure_future(pieces())
        watching = asyncio.ensure_future(gone(request.reader))
        try:
            await asyncio.wait((sending, watching), return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                raise faults.Cut
            await sending
        finally:
            for task in (sending, watching):
                task.cancel()
            await asyncio.gather(sending, watching, return_exceptions=True)
            await body.aclose()

    async def _control(self, request):
        """The tests' own paths, for programs in other processes: faults.py describes them."""
        what = request.path.removeprefix("/_fake/")
        try:
            if what == "faults" and request.method == "DELETE":
                self.faults.clear()
            elif what == "faults":
                self.faults.add(**request.json())
            elif what == "set":
                self.faults.set(**request.json())
            elif what == "requests":
                return Answer(200, [list(each) for each in self.requests])
            elif what == "die":
                await self.die(request.json()["id"])
            else:
                return Answer(404, {"message": f"unknown: {request.path}"})
        except (Answer, KeyError, TypeError, ValueError, re.error) as error:
            return Answer(400, {"message": str(error)})
        return Answer(204)

    async def die(self, identifier):
        raise NotImplementedError


async def gone(reader):
    """Returns when the client has closed its connection. A request that it sends early stays for later."""
    while not reader.at_eof() and reader.exception() is None:
        await asyncio.sleep(0.2)
