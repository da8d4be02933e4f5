"""E2B's daemon inside of a sandbox: files by HTTP, and programs and directories by Connect's JSON protocol."""

import asyncio
import base64
import datetime
import hashlib
import json
import posixpath
import re
import struct
import time

import machine
import programs
from wire import Answer

HOME = {"user": "/home/user", "root": "/root"}
STATUS = {"not_found": 404, "already_exists": 409, "invalid_argument": 400, "failed_precondition": 400,
          "unauthenticated": 401, "permission_denied": 403, "resource_exhausted": 429, "unimplemented": 501,
          "internal": 500, "unavailable": 503, "deadline_exceeded": 504}
FILE_STATUS = {"not_found": 404, "invalid_argument": 400, "unauthenticated": 401, "permission_denied": 403,
               "resource_exhausted": 507}
RETAINED_S = 30
KEEPALIVE_S = 90
SIGNALS = {"SIGNAL_SIGTERM": 15, "SIGNAL_SIGKILL": 9, 15: 15, 9: 9}
METADATA_BYTES = 4096


class RpcError(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def signature(path, operation, user, token, expiration):
    words = [path, operation, user, token] + ([expiration] if expiration else [])
    digest = hashlib.sha256(":".join(words).encode()).digest()
    return "v1_" + base64.b64encode(digest).decode().rstrip("=")


def signed(request, token):
    query = request.query
    operation = "read" if request.method == "GET" else "write"
    wanted = signature(query.get("path", ""), operation, query.get("username", ""), token,
                       query.get("signature_expiration"))
    return query.get("signature") == wanted


def fail(status, message):
    raise Answer(status, {"code": status, "message": message})


def envelope(value, flags=0):
    data = json.dumps(value).encode()
    return struct.pack(">BI", flags, len(data)) + data


async def followed(first, rest):
    try:
        yield first
        async for each in rest:
            yield each
    finally:
        await rest.aclose()


class Envd:
    def __init__(self, rented, environment, token):
        self.machine, self.environment, self.token = rented, environment, token
        self.programs = {}
        self.cuts, self.tasks = set(), set()

    def cut(self):
        """Drops all streams without an end frame, as when the sandbox is gone from the network."""
        for cut in list(self.cuts):
            cut.set()

    def close(self):
        """The sandbox has ended."""
        self.cut()
        for task in list(self.tasks):
            task.cancel()

    async def handle(self, request):
        if request.path == "/health":
            return Answer(204)
        try:
            if request.path == "/files" and request.method in ("GET", "POST"):
                self._authorize_files(request)
                return await (self._download if request.method == "GET" else self._upload)(request)
            if request.header("x-access-token") != self.token:
                fail(401, "unauthorized, please provide a valid access token or method signing if supported")
            if request.path == "/envs" and request.method == "GET":
                return Answer(200, self.environment)
            if request.path == "/metrics" and request.method == "GET":
                return Answer(200, {"ts": int(time.time()), "cpu_count": 2, "cpu_used_pct": 0, "mem_total": 512 << 20,
                                    "mem_used": 64 << 20, "mem_cache": 0, "disk_used": 0, "disk_total": 1 << 30})
            if match := re.fullmatch(r"/(process\.Process|filesystem\.Filesystem)/(\w+)", request.path):
                return await self._rpc(request, match[1], match[2])
        except machine.MachineGone:
            fail(502, "The sandbox was not found")
        fail(404, f"no route {request.method} {request.path}")

    # Files.

    def _authorize_files(self, request):
        if request.header("x-access-token") == self.token:
            return
        if not signed(request, self.token):
            fail(401, "invalid signature" if "signature" in request.query else "missing signature or access token")
        expiration = request.query.get("signature_expiration")
        if expiration and int(expiration) < time.time():
            fail(401, "signature is already expired")

    def _user(self, name):
        name = name or "user"
        if name not in HOME:
            raise RpcError("unauthenticated", f"invalid username: '{name}'")
        return name

    def _path(self, path, user):
        path = "." if not path else path
        path = path.replace("~", HOME[user], 1) if path == "~" or path.startswith("~/") else path
        return posixpath.normpath(posixpath.join(HOME[user], path))

    def _file_user(self, request):
        try:
            return self._user(request.query.get("username"))
        except RpcError as error:
            fail(401, str(error))

    async def _download(self, request):
        user = self._file_user(request)
        try:
            info, stream = await self.machine.read(self._path(request.query.get("path"), user), user)
        except machine.MachineError as error:
            fail(FILE_STATUS.get(error.code, 500), str(error))

        async def body():
            try:
                while data := await stream.read(programs.PIECE):
                    yield data
            finally:
                stream.pipe.close()
        name = info["name"].replace('"', "")
        return Answer(200, body(), {"Content-Length": info["size"], "Content-Type": "application/octet-stream",
                                    "Content-Disposition": f'inline; filename="{name}"'})

    async def _upload(self, request):
        user = self._file_user(request)
        metadata = {name.removeprefix("x-metadata-"): value for name, value in request.headers.items()
                    if name.startswith("x-metadata-")}
        size = sum(map(len, [*metadata, *metadata.values()]))
        if size > METADATA_BYTES or not all(map(str.isprintable, metadata.values())):
            fail(400, "invalid file metadata")
        path = request.query.get("path")
        if request.header("content-type", "").startswith("multipart/form-data"):
            files = [(path or filename, data) for name, filename, data in request.parts() if name == "file"]
        else:
            if not path:
                fail(400, "path is required")
            files = [(path, request.content())]
        files = [(self._path(name, user), data) for name, data in files]
        if len({name for name, _ in files}) != len(files):
            fail(400, "the same path is given twice")
        written = []
        for name, data in files:
            try:
                info = await self.machine.write(name, data, user, metadata=metadata)
            except machine.MachineError as error:
                fail(FILE_STATUS.get(error.code, 500), str(error))
            written.append({"name": info["name"], "path": info["path"], "type": "file",
                            **({"metadata": metadata} if metadata else {})})
        return Answer(200, written)

    # Connect.

    async def _rpc(self, request, service, method):
        stream = request.header("content-type", "").startswith("application/connect+json")
        try:
            message = self._message(request, stream)
            user = self._rpc_user(request)
            if stream:
                streams = {"process.Process/Start": self._start, "process.Process/Connect": self._connect}
                function = streams.get(f"{service}/{method}")
            else:
                function = getattr(self, f"_{service.partition('.')[0]}_{method}", None)
            if function is None:
                raise RpcError("unimplemented", f"{service}.{method} is not implemented here")
            if stream:
                events = self._events(await function(message, user, request), request)
                start = await anext(events)  # now, before the program's first output
                return Answer(200, followed(start, events), {"Content-Type": "application/connect+json"})
            return Answer(200, await function(message, user))
        except (machine.MachineError, RpcError) as error:
            body = {"code": error.code, "message": str(error)}
            if stream:
                return Answer(200, envelope({"error": body}, 2), {"Content-Type": "application/connect+json"})
            return Answer(STATUS.get(error.code, 500), body)

    def _message(self, request, stream):
        body = request.body
        if stream:
            if len(body) < 5 or body[0] != 0 or len(body) != 5 + struct.unpack(">I", body[1:5])[0]:
                raise RpcError("invalid_argument", "the request is not one envelope")
            body = body[5:]
        try:
            return json.loads(body or b"{}")
        except ValueError as error:
            raise RpcError("invalid_argument", "the message is not JSON") from error

    def _rpc_user(self, request):
        scheme, _, value = request.header("authorization", "").partition(" ")
        name = base64.b64decode(value).decode().partition(":")[0] if scheme == "Basic" else ""
        return self._user(name)

    async def _start(self, message, user, request):
        config, pty = message["process"], message.get("pty")
        env = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": HOME[user], "USER": user,
               "LOGNAME": user, **self.environment, **(config.get("envs") or {})}
        size = None if pty is None else {"rows": 24, "cols": 80, **(pty.get("size") or {})}
        argv, cwd = [config["cmd"], *(config.get("args") or [])], self._path(config.get("cwd"), user)
        program = await self.machine.run(argv, env, cwd, user, message.get("stdin", True), size)
        running = programs.Running(program, config, message.get("tag"), pty is not None)
        self.programs[program.pid] = running
        self._keep(self._forget(running))
        if timeout := request.header("connect-timeout-ms"):
            self._keep(self._deadline(running, int(timeout) / 1000))
        return running

    def _keep(self, coroutine):
        """Runs it beside; the loop itself has only weak references."""
        task = asyncio.ensure_future(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _forget(self, running):
        await asyncio.wait([running.task])
        await asyncio.sleep(RETAINED_S)
        if self.programs.get(running.pid) is running:
            del self.programs[running.pid]

    async def _deadline(self, running, seconds):
        """A time limit of the call is one of the process."""
        done, _ = await asyncio.wait([running.task], timeout=seconds)
        if not done:
            await self.machine.signal(running.pid, 9)

    async def _connect(self, message, _user, _request):
        return self._program(message)

    def _program(self, message):
        selector = message.get("process") or {}
        for running in self.programs.values():
            if running.pid == selector.get("pid") or ("tag" in selector and running.tag == selector["tag"]):
                return running
        raise RpcError("not_found", f"process with {json.dumps(selector)} not found")

    async def _events(self, running, request):
        """Start, output and end of a program; cut when the sandbox goes."""
        cut, events = asyncio.Event(), running.events()
        self.cuts.add(cut)
        keepalive = float(request.header("keepalive-ping-interval", KEEPALIVE_S))
        ended = asyncio.ensure_future(cut.wait())
        following = None
        try:
            await anext(events)
            yield envelope({"event": {"start": {"pid": running.pid}}})
            following = asyncio.ensure_future(anext(events))
            while True:
                await asyncio.wait((following, ended), timeout=keepalive, return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    raise ConnectionError("the sandbox is gone")
                if not following.done():
                    yield envelope({"event": {"keepalive": {}}})
                    continue
                kind, value = following.result()
                if kind == "end":
                    yield envelope({"event": {"end": self._end(*value)}})
                    yield envelope({}, 2)
                    return
                yield envelope({"event": {"data": {kind: base64.b64encode(value).decode()}}})
                following = asyncio.ensure_future(anext(events))
        finally:
            self.cuts.discard(cut)
            ended.cancel()
            if following and not following.done():
                following.cancel()
                await asyncio.wait([following])
            await events.aclose()

    def _end(self, code, signal):
        if signal:
            status = f"signal: {'killed' if signal == 9 else signal}"
            return {"exitCode": -1, "exited": False, "status": status, "error": status}
        end = {"exitCode": code, "exited": True, "status": f"exit status {code}"}
        return end | ({"error": f"exit status {code}"} if code else {})

    async def _process_List(self, _message, _user):
        return {"processes": [{"config": each.config, "pid": each.pid, **({"tag": each.tag} if each.tag else {})}
                              for each in self.programs.values() if each.result is None]}

    async def _process_SendInput(self, message, _user):
        running, given = self._program(message), message.get("input") or {}
        data = given.get("pty" if running.pty else "stdin")
        if data is None:
            raise RpcError("failed_precondition", f"the process has {'a' if running.pty else 'no'} terminal")
        if not running.has_stdin():
            raise RpcError("internal", "error writing to stdin: stdin is closed")
        try:
            await running.input(base64.b64decode(data))
        except OSError as error:
            raise RpcError("internal", f"error writing to stdin: {error}") from error
        return {}

    async def _process_CloseStdin(self, message, _user):
        running = self._program(message)
        if running.pty:
            raise RpcError("failed_precondition", "a terminal's input cannot be closed; send Ctrl+D")
        if not running.has_stdin():
            raise RpcError("internal", "stdin is closed")
        running.close_stdin()
        return {}

    async def _process_SendSignal(self, message, _user):
        running = self._program(message)
        if message.get("signal") not in SIGNALS:
            raise RpcError("unimplemented", f"signal {message.get('signal')} is not supported")
        if running.result is not None:
            raise RpcError("not_found", "the process has ended")
        await self.machine.signal(running.pid, SIGNALS[message["signal"]])
        return {}

    async def _process_Update(self, message, _user):
        running = self._program(message)
        if not running.pty:
            raise RpcError("failed_precondition", "the process has no terminal")
        size = (message.get("pty") or {}).get("size") or {}
        running.resize(size.get("rows", 24), size.get("cols", 80))
        return {}

    # Directories.

    def _entry(self, info):
        moment = datetime.datetime.fromtimestamp(info.pop("mtime"), datetime.timezone.utc)
        return {**info, "modifiedTime": moment.isoformat().replace("+00:00", "Z")}

    async def _do(self, operation, user, **arguments):
        return await self.machine.do(operation, user, **arguments)

    async def _filesystem_Stat(self, message, user):
        return {"entry": self._entry(await self._do("stat", user, path=self._path(message.get("path"), user)))}

    async def _filesystem_MakeDir(self, message, user):
        return {"entry": self._entry(await self._do("make_dir", user, path=self._path(message.get("path"), user)))}

    async def _filesystem_Move(self, message, user):
        source, destination = (self._path(message.get(name), user) for name in ("source", "destination"))
        return {"entry": self._entry(await self._do("move", user, source=source, destination=destination))}

    async def _filesystem_ListDir(self, message, user):
        depth = max(1, message.get("depth", 1))
        entries = await self._do("list", user, path=self._path(message.get("path"), user), depth=depth)
        return {"entries": [self._entry(each) for each in entries]}

    async def _filesystem_Remove(self, message, user):
        return await self._do("remove", user, path=self._path(message.get("path"), user))
