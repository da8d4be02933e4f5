"""A daemon that follows a script: a unix socket on which each request gets the next answer of a list.

An answer is a list of steps: bytes to send, seconds to wait (a float), a function to call with the request, or CLOSE.
"""

import json
import pathlib
import shutil
import socket
import struct
import tempfile
import threading
import time
import urllib.parse

CLOSE = object()
STDOUT, STDERR, TERMINAL, KEEP_ALIVE, LIMIT, END, POSITION, ERROR = range(1, 9)


class Request:
    def __init__(self, head, body):
        lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, _ = lines[0].split(" ")
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        self.body = body
        self.path, _, query = self.target.partition("?")
        self.query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True, errors="surrogateescape"))

    @property
    def key(self):
        return self.headers.get("idempotency-key")

    def json(self):
        return json.loads(self.body)


def reply(status, body=b"", **headers):
    """A whole answer. A dict becomes JSON."""
    body = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


def refuse(status, code, message="no", **headers):
    return reply(status, {"code": code, "message": message, "hint": "try"}, **headers)


def chunked(content_type="application/vnd.moorage.output", **headers):
    """The head of an answer in chunks; chunk() and LAST follow."""
    lines = ["HTTP/1.1 200 OK", f"Content-Type: {content_type}", "Transfer-Encoding: chunked",
             *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


LAST = b"0\r\n\r\n"


def record(kind, payload=b""):
    payload = json.dumps(payload).encode() if isinstance(payload, dict) else payload
    return struct.pack(">B3xI", kind, len(payload)) + payload


def position(offset, **more):
    return record(POSITION, {"offset": offset, **more})


def end(state="exited", exit_code=0, **more):
    return record(END, {"id": "ex_5", "workspace": "ws_3", "state": state, "argv": ["make"], "exit_code": exit_code, **more})


def output(*records, exec_id="ex_5", **headers):
    """A whole output stream."""
    return chunked(Moorage_Exec=exec_id, **headers) + chunk(b"".join(records)) + LAST


class Daemon:
    def __init__(self, *answers):
        self.directory = tempfile.mkdtemp(prefix="moorage-sdk-")
        self.path = str(pathlib.Path(self.directory) / "socket")
        self.answers, self.requests, self.connections = list(answers), [], 0
        self.lock = threading.Lock()
        self.listen()

    def listen(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(self.path)
        self.socket.listen(64)
        threading.Thread(target=self._accept, args=(self.socket,), daemon=True).start()

    def leave(self):
        """No longer there, like a daemon that restarts."""
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        pathlib.Path(self.path).unlink()

    def close(self):
        self.leave()
        shutil.rmtree(self.directory)

    def _accept(self, listening):
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection, connection.makefile("rb") as incoming:
            try:
                while self._exchange(connection, incoming):
                    pass
            except OSError:
                pass  # the client left

    def _exchange(self, connection, incoming):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = incoming.readline()
            if not line:
                return False
            head += line
        request = Request(head[:-4], b"")
        if "content-length" in request.headers:
            request.body = incoming.read(int(request.headers["content-length"]))
        elif request.headers.get("transfer-encoding") == "chunked":
            while size := int(incoming.readline(), 16):
                request.body += incoming.read(size)
                incoming.readline()
            incoming.readline()
        with self.lock:
            self.requests.append(request)
            steps = self.answers.pop(0) if self.answers else [refuse(500, "internal", "the script has ended")]
        for step in steps if isinstance(steps, list) else [steps]:
            if step is CLOSE:
                return False
            if isinstance(step, float):
                time.sleep(step)
            elif callable(step):
                step(request)
            else:
                connection.sendall(step)
        return True
