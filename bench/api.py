"""A minimal HTTP client on a Unix socket for timing: it keeps one connection and does nothing extra.

tests/e2e/raw_api.py opens a connection per call, which would distort measurements of milliseconds. Reads the answers of
the daemon and of Docker's engine: Content-Length, chunks, or a body that ends with the connection.
"""

import json
import socket
import struct
import time
import uuid

OUTPUT_TYPE = "application/vnd.moorage.output"
STDOUT, END, ERROR = 1, 6, 8
TIMEOUT_S = 900  # a cold base tree is the longest call
IDLE_S = 20  # the daemon closes a connection after 75 s of silence


class ApiError(Exception):
    pass


class Api:
    def __init__(self, path):
        self.path = str(path)
        self._socket = self._reader = None
        self._used_s = 0.0

    def close(self):
        if self._socket:
            self._reader.close()
            self._socket.close()
            self._socket = None

    def _open(self):
        if time.monotonic() - self._used_s > IDLE_S:
            self.close()
        if not self._socket:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.settimeout(TIMEOUT_S)
            self._socket.connect(self.path)
            self._reader = self._socket.makefile("rb")

    def _send(self, method, target, value, accept):
        """Returns (status, headers). Read the whole body before the next call."""
        self._open()
        is_bytes = isinstance(value, bytes)
        body = value if is_bytes else json.dumps(value).encode() if value is not None else b""
        head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nContent-Length: {len(body)}\r\n"
        if method != "GET":
            head += f"Idempotency-Key: {uuid.uuid4().hex}\r\n"
        if body:
            head += f"Content-Type: application/{'octet-stream' if is_bytes else 'json'}\r\n"
        self._socket.sendall(head.encode() + b"\r\n" + body)
        line = self._reader.readline()
        self._used_s = time.monotonic()
        if not line:
            self.close()
            raise ApiError(f"{method} {target}: the connection was closed without an answer")
        headers = {}
        while (field := self._reader.readline()) not in (b"\r\n", b""):
            name, _, text = field.partition(b":")
            headers[name.strip().lower()] = text.strip()
        return int(line.split()[1]), headers

    def _pieces(self, status, headers):
        """The body, piece by piece as it arrives."""
        if b"chunked" in headers.get(b"transfer-encoding", b""):
            while size := int(self._reader.readline().split(b";")[0], 16):
                yield self._reader.read(size)
                self._reader.readline()
            self._reader.readline()
        elif b"content-length" in headers:
            yield self._reader.read(int(headers[b"content-length"]))
        elif status not in (204, 304):
            while piece := self._reader.read1(65536):
                yield piece
            self.close()
        if headers.get(b"connection", b"").lower() == b"close":
            self.close()

    def call(self, method, target, value=None, accept="application/json"):
        status, headers = self._send(method, target, value, accept)
        body = b"".join(self._pieces(status, headers))
        if status >= 400:
            raise ApiError(f"{method} {target}: {status} {body[:400].decode(errors='replace')}")
        return body

    def json(self, method, target, value=None):
        body = self.call(method, target, value)
        return json.loads(body) if body else None

    def records(self, method, target, value):
        """The records of an exec's output as they arrive: (kind, payload)."""
        status, headers = self._send(method, target, value, OUTPUT_TYPE)
        pieces = self._pieces(status, headers)
        if status >= 400:
            raise ApiError(f"{method} {target}: {status} {b''.join(pieces)[:400].decode(errors='replace')}")
        data = b""
        for piece in pieces:
            data += piece
            while len(data) >= 8:
                kind, size = struct.unpack_from(">B3xI", data)
                if len(data) < 8 + size:
                    break
                yield kind, data[8:8 + size]
                data = data[8 + size:]


class Moorage(Api):
    """The measured calls."""

    def create(self, url, ref, **place):
        return self.json("POST", "/v1/workspaces", {"repo_url": url, "ref": ref, **place})["id"]

    def purge(self, workspace):
        self.call("DELETE", f"/v1/workspaces/{workspace}?purge=1&force=1")

    def write_file(self, workspace, path, data):
        self.call("PUT", f"/v1/workspaces/{workspace}/file?path={path}", data)

    def snapshot(self, workspace):
        return self.json("POST", f"/v1/workspaces/{workspace}/snapshots", {})

    def restore(self, workspace, snapshot):
        self.json("POST", f"/v1/workspaces/{workspace}/restore", {"snapshot": snapshot})

    def fork(self, workspace):
        return self.json("POST", f"/v1/workspaces/{workspace}/fork", {"count": 1})["workspaces"][0]["id"]

    def diff(self, workspace):
        return self.call("GET", f"/v1/workspaces/{workspace}/diff", accept="*/*")

    def move(self, workspace, backend):
        self.call("POST", f"/v1/workspaces/{workspace}/move", {"backend": backend})

    def start(self, workspace):
        self.call("POST", f"/v1/workspaces/{workspace}/start")

    def stop(self, workspace):
        self.call("POST", f"/v1/workspaces/{workspace}/stop")

    def exec_started(self, workspace, argv):
        """Returns once the command runs."""
        return self.json("POST", f"/v1/workspaces/{workspace}/execs", {"argv": argv})["id"]

    def cancel(self, execution):
        self.call("POST", f"/v1/execs/{execution}/cancel")
        self.call("GET", f"/v1/execs/{execution}/wait?timeout_ms=10000")

    def exec(self, workspace, argv, at_first_output=lambda: None):
        """Returns the command's standard output after it exited with 0."""
        output = b""
        end = None
        for kind, payload in self.records("POST", f"/v1/workspaces/{workspace}/execs", {"argv": argv}):
            if kind == STDOUT:
                if not output:
                    at_first_output()
                output += payload
            elif kind in (END, ERROR):
                end = json.loads(payload)
        if not end or end.get("state") != "exited" or end.get("exit_code") != 0:
            raise ApiError(f"{argv}: {end}")
        return output
