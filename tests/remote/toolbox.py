"""Daytona's daemon inside of a sandbox: commands, sessions with logs, terminals, and files.

Logs are as at Daytona: shells label each line, so a NUL byte is lost, a last line gets a newline, and a log that is
followed begins at its first byte each time. Standard input is text, gets a newline, and never ends.
"""

import asyncio
import base64
import contextlib
import datetime
import json
import os
import posixpath
import re
import tempfile
import uuid

import machine
import programs
from wire import Answer

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PREFIXES = {"stdout": b"\1\1\1", "stderr": b"\2\2\2"}
SPLIT_SINCE = (0, 167, 0)
PLACE = "/var/tmp/.toolbox"
EXECUTE_S = 360
MESSAGE = 32 << 10
EXIT_CONTROL = "X-Daytona-Pty-Exit-Control"
ENVIRONMENT = "X-Daytona-Pty-Envs~"
FILE_STATUS = {"not_found": 404, "invalid_argument": 400, "permission_denied": 403, "already_exists": 409}


class Log:
    """What the shells of a command wrote, and who reads along. In a file: it may be long."""

    def __init__(self):
        self.file, self.size = os.open(tempfile.gettempdir(), os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC), 0
        self.ended, self.grown = False, asyncio.Event()

    def __del__(self):
        os.close(self.file)

    def append(self, data):
        self.size += os.pwrite(self.file, data, self.size)
        self._wake()

    def end(self):
        self.ended = True
        self._wake()

    def _wake(self):
        self.grown.set()
        self.grown = asyncio.Event()

    async def follow(self, follow=True):
        """Whole lines with their prefixes, from the first."""
        at, rest = 0, b""
        while True:
            grown = self.grown
            if at < self.size:
                data = os.pread(self.file, MESSAGE, at)
                at += len(data)
                lines, newline, rest = (rest + data).rpartition(b"\n")
                if newline:
                    yield lines + newline
            elif self.ended or not follow:
                return
            else:
                await grown.wait()

    def read(self):
        return os.pread(self.file, self.size, 0)


def split(log):
    """{"output", "stdout", "stderr"} of a log."""
    parts = {"stdout": [], "stderr": []}
    pieces = re.split(rb"(\x01\x01\x01|\x02\x02\x02)", log)
    for prefix, data in zip(pieces[1::2], pieces[2::2]):
        parts["stdout" if prefix == PREFIXES["stdout"] else "stderr"].append(data)
    text = {name: b"".join(data).decode(errors="replace") for name, data in parts.items()}
    return {"output": b"".join(pieces[2::2]).decode(errors="replace"), **text}


class Command:
    """In the shell of its session. Its streams are named pipes, which the toolbox holds from outside."""

    def __init__(self, text, quiet):
        self.id, self.text, self.quiet = str(uuid.uuid4()), text, quiet
        self.code, self.log, self.task = None, Log(), None
        self.stdin, self.held = None, None

    def details(self):
        return {"id": self.id, "command": self.text, **({} if self.code is None else {"exitCode": self.code})}


class Session:
    def __init__(self, identifier, shell):
        self.id, self.shell, self.commands = identifier, shell, {}

    def end_logs(self):
        for command in self.commands.values():
            command.log.end()

    def details(self):
        return {"sessionId": self.id, "commands": [command.details() for command in self.commands.values()]}


class Terminal:
    def __init__(self, identifier, running, size, cwd, environment):
        self.id, self.running, self.size, self.cwd, self.environment = identifier, running, size, cwd, environment
        self.created = datetime.datetime.now(datetime.timezone.utc)

    def details(self):
        return {"id": self.id, "active": self.running.result is None, **self.size, "cwd": self.cwd,
                "envs": self.environment, "createdAt": self.created.isoformat(), "lazyStart": False}


def open_fifo(path, flags):
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


class Toolbox:
    def __init__(self, provider, rented, environment):
        self.provider, self.machine, self.user = provider, rented, rented.user
        self.home = "/root" if self.user == "root" else f"/home/{self.user}"
        self.environment = {"PATH": PATH, "HOME": self.home, "USER": self.user, "LOGNAME": self.user,
                            "SHELL": "/bin/bash", **environment}
        self.sessions, self.terminals, self.tasks, self.streams = {}, {}, set(), set()

    def fail(self, status, message):
        self.provider.fail(status, message)

    def cut(self):
        """The sandbox leaves the network: all its streams break."""
        for task in list(self.streams):
            task.cancel()

    def close(self):
        """The sandbox has stopped."""
        self.cut()
        for task in list(self.tasks):
            task.cancel()

    async def handle(self, request, path):
        for method, pattern, function in self.ROUTES:
            if method != request.method or not (match := re.fullmatch(pattern, path)):
                continue
            try:
                return await function(self, request, *match.groups())
            except machine.MachineError as error:
                self.fail(FILE_STATUS.get(error.code, 500), str(error))
        self.fail(404, f"no route {request.method} {path}")

    def _keep(self, coroutine):
        task = asyncio.ensure_future(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def _stream(self, coroutine):
        """Runs until its end or until `cut`, which ends the connection without a closing frame."""
        task = asyncio.ensure_future(coroutine)
        self.streams.add(task)
        try:
            await asyncio.wait([task])
        finally:
            self.streams.discard(task)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if task.cancelled():
            raise ConnectionError("the sandbox is gone")
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):  # the client left
            task.result()

    def _path(self, path):
        path = (path or ".").replace("~", self.home, 1) if (path or "").startswith("~") else path or "."
        return posixpath.normpath(posixpath.join(self.home, path))

    def _wants_split(self, request):
        version = re.match(r"(\d+)\.(\d+)\.(\d+)", request.header("x-daytona-sdk-version", ""))
        if version:
            return tuple(map(int, version.groups())) >= SPLIT_SINCE
        return request.header("x-daytona-split-output") == "true"

    # Commands.

    async def execute(self, request):
        body = request.json()
        if not isinstance(body.get("command"), str):
            self.fail(400, "command is required")
        environment, cwd = self.environment | (body.get("envs") or {}), self._path(body.get("cwd"))
        program = await self.machine.run(["/bin/sh", "-c", "exec /bin/sh 2>&1"], environment, cwd)
        program.stdin.write(body["command"].encode() + b"\n")
        program.stdin.close()
        output = asyncio.ensure_future(asyncio.gather(program.stdout.read(), program.stderr.read()))
        try:
            done, _ = await asyncio.wait([output], timeout=body.get("timeout") or EXECUTE_S)
            if not done:
                await self.machine.signal(program.pid, 9)
                self.fail(408, "command execution timeout")
            code, signal = await program.ended
        finally:
            output.cancel()
            await asyncio.gather(output, return_exceptions=True)
            program.close()
        result = output.result()[0].decode(errors="replace")
        return Answer(200, {"exitCode": 128 + signal if signal else code, "result": result})

    async def create_session(self, request):
        identifier = request.json().get("sessionId")
        if not isinstance(identifier, str) or not re.fullmatch(r"[\w.-]{1,128}", identifier):
            self.fail(400, "sessionId is required")
        if identifier in self.sessions:
            self.fail(409, "session already exists")
        shell = await self.machine.run(["/bin/bash"], self.environment, self.home)
        session = self.sessions[identifier] = Session(identifier, shell)
        self._keep(self._drain(session))
        return Answer(201)

    async def _drain(self, session):
        """What the shell itself says has no reader."""
        try:
            for stream in (session.shell.stdout, session.shell.stderr):
                while await stream.read(programs.PIECE):
                    pass
            await session.shell.ended
        finally:
            session.shell.close()
            session.end_logs()

    def _session(self, identifier):
        if identifier not in self.sessions:
            self.fail(404, "session not found")
        return self.sessions[identifier]

    def _command(self, session, identifier):
        command = self._session(session).commands.get(identifier)
        if command is None:
            self.fail(404, "command not found")
        return command

    async def list_sessions(self, _):
        return Answer(200, [session.details() for session in self.sessions.values()])

    async def get_session(self, _, identifier):
        return Answer(200, self._session(identifier).details())

    async def delete_session(self, _, identifier):
        session = self._session(identifier)
        await self.machine.signal(-session.shell.pid, 9)  # its process group, so its commands as well
        session.end_logs()
        del self.sessions[identifier]
        return Answer(204)

    async def session_execute(self, request, identifier):
        session, body = self._session(identifier), request.json()
        if not isinstance(body.get("command"), str) or not body["command"]:
            self.fail(400, "command is required")
        if session.shell.ended.done():
            self.fail(410, "session process has exited")
        command = Command(body["command"], bool(body.get("suppressInputEcho")))
        background = bool(body.get("runAsync") or body.get("async"))
        session.commands[command.id] = command
        await self._begin(session, command, background)
        if background:
            return Answer(202, {"cmdId": command.id})
        await asyncio.wait([command.task])
        if command.code is None:
            self.fail(400, "session cancelled")
        result = split(command.log.read())
        if not self._wants_split(request):
            result = {"output": result["output"]}
        return Answer(200, {"cmdId": command.id, "exitCode": command.code, **result})

    async def _begin(self, session, command, background):
        """The command goes into the session's shell, so that its directory and variables stay for the next."""
        place = f"{PLACE}/{session.id}/{command.id}"
        await self.machine.write(f"{place}/command", command.text.encode() + b"\n", mode="600")
        outside = f"{self.machine.root}{place}"
        for name in ("in", "out", "err", "code"):
            os.mkfifo(f"{outside}/{name}", 0o600)
            os.chown(f"{outside}/{name}", *(os.stat(f"{outside}/command")[number] for number in (4, 5)))
        streams = [await machine.reader_of(open_fifo(f"{outside}/{name}", os.O_RDONLY))
                   for name in ("out", "err", "code")]
        if background:
            command.held = open_fifo(f"{outside}/in", os.O_RDWR)  # so that its input never ends
            command.stdin = await machine.writer_of(open_fifo(f"{outside}/in", os.O_WRONLY))
        source = f"{place}/in" if background else "/dev/null"
        line = f"{{ . {place}/command; }} <{source} >{place}/out 2>{place}/err; echo $? >{place}/code\n"
        session.shell.stdin.write(line.encode())
        command.task = self._keep(self._follow(command, *streams))

    async def _follow(self, command, stdout, stderr, code):
        try:
            await asyncio.gather(self._label(command, "stdout", stdout), self._label(command, "stderr", stderr))
            line = await code.readline()
            command.code = int(line) if line else None
        finally:
            for stream in (stdout, stderr, code):
                stream.pipe.close()
            if command.stdin:
                command.stdin.close()
                os.close(command.held)
            command.log.end()

    async def _label(self, command, kind, stream):
        rest, prefix = b"", PREFIXES[kind]
        while data := await stream.read(programs.PIECE):
            *lines, rest = (rest + data.replace(b"\0", b"")).split(b"\n")
            if lines:
                command.log.append(b"".join(prefix + line + b"\n" for line in lines))
        if rest:
            command.log.append(prefix + rest + b"\n")

    async def get_command(self, _, session, identifier):
        return Answer(200, self._command(session, identifier).details())

    async def input(self, request, session, identifier):
        command, data = self._command(session, identifier), request.json().get("data")
        if not isinstance(data, str):
            self.fail(400, "data is required")
        if command.code is not None or command.log.ended:
            self.fail(410, f"command has already completed with exit code {command.code}")
        if command.stdin is None:
            self.fail(500, "failed to open input pipe")
        data = (data if data.endswith("\n") else data + "\n").encode()
        command.stdin.write(data)
        await command.stdin.drain()
        if not command.quiet:
            command.log.append(PREFIXES["stdout"] + data)
        return Answer(204)

    async def logs(self, request, session, identifier):
        command = self._command(session, identifier)
        if request.header("upgrade", "").lower() != "websocket":
            log = split(command.log.read())
            return Answer(200, log if self._wants_split(request) else log["output"].encode())
        socket = await request.websocket()

        async def send():
            async for data in command.log.follow(request.query.get("follow") == "true"):
                await socket.send(data)
            await socket.close()
        await self._stream(self._both(send(), self._until_closed(socket)))
        return None

    async def _until_closed(self, socket):
        while await socket.receive() is not None:
            pass

    async def _both(self, *coroutines):
        """Until the first of them ends."""
        tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # Terminals.

    async def _make_terminal(self, identifier, size, cwd, environment):
        if not identifier or identifier in self.terminals:
            self.fail(409 if identifier else 400, f"PTY session with ID {identifier} exists, or has no ID")
        cwd = self._path(cwd)
        whole = {**self.environment, "TERM": "xterm-256color", **environment}
        program = await self.machine.run(["/bin/bash", "-i", "-l"], whole, cwd, pty=size)
        running = programs.Running(program, {}, pty=True)
        terminal = self.terminals[identifier] = Terminal(identifier, running, size, cwd, environment)
        return terminal

    async def create_terminal(self, request):
        body = request.json()
        size = {"rows": body.get("rows") or 24, "cols": body.get("cols") or 80}
        await self._make_terminal(body.get("id"), size, body.get("cwd"), body.get("envs") or {})
        return Answer(201, {"sessionId": body["id"]})

    async def create_and_connect(self, request):
        query, environment = request.query, {}
        for word in self._protocols(request):
            if word.startswith(ENVIRONMENT):
                word = word.removeprefix(ENVIRONMENT)
                environment = json.loads(base64.urlsafe_b64decode(word + "=" * (-len(word) % 4)))
        size = {"rows": int(query.get("rows") or 24), "cols": int(query.get("cols") or 80)}
        terminal = await self._make_terminal(query.get("id"), size, query.get("cwd"), environment)
        return await self._serve_terminal(request, terminal)

    def _protocols(self, request):
        return [word.strip() for word in request.header("sec-websocket-protocol", "").split(",")]

    def _terminal(self, identifier):
        if identifier not in self.terminals:
            self.fail(404, f"PTY session {identifier} not found")
        return self.terminals[identifier]

    async def connect_terminal(self, request, identifier):
        return await self._serve_terminal(request, self._terminal(identifier))

    async def _serve_terminal(self, request, terminal):
        exit_control = EXIT_CONTROL in self._protocols(request)
        socket = await request.websocket(EXIT_CONTROL if exit_control else None)

        async def send():
            await socket.send(json.dumps({"type": "control", "status": "connected"}))
            async for kind, value in terminal.running.events():
                if kind == "pty":
                    await socket.send(value)
                if kind != "end":
                    continue
                code = 128 + value[1] if value[1] else value[0]
                result = {"exitCode": code, **({"exitReason": f"exit code {code}"} if code else {})}
                if exit_control:
                    await socket.send(json.dumps({"type": "control", "status": "exited", **result}))
                await socket.close(1011 if code else 1000, json.dumps(result))
                self.terminals.pop(terminal.id, None)

        async def receive():
            while (data := await socket.receive()) is not None:
                await terminal.running.input(data)
        await self._stream(self._both(send(), receive()))
        return None

    async def list_terminals(self, _):
        return Answer(200, {"sessions": [terminal.details() for terminal in self.terminals.values()]})

    async def get_terminal(self, _, identifier):
        return Answer(200, self._terminal(identifier).details())

    async def resize_terminal(self, request, identifier):
        terminal, body = self._terminal(identifier), request.json()
        terminal.size = {"rows": body["rows"], "cols": body["cols"]}
        terminal.running.resize(body["rows"], body["cols"])
        return Answer(200, terminal.details())

    async def delete_terminal(self, _, identifier):
        terminal = self._terminal(identifier)
        await self.machine.signal(-terminal.running.pid, 9)
        self.terminals.pop(identifier, None)
        return Answer(200, {})

    # Files.

    def _entry(self, info):
        moment = datetime.datetime.fromtimestamp(info["mtime"], datetime.timezone.utc).isoformat()
        return {"name": info["name"], "path": info["path"], "size": int(info["size"]), "owner": info["owner"],
                "group": info["group"], "isDir": info.get("type") == "FILE_TYPE_DIRECTORY", "mode": info["permissions"],
                "permissions": f"{info['mode']:04o}", "modTime": moment, "modifiedAt": moment}

    def _required(self, request, name):
        if not request.query.get(name):
            self.fail(400, f"{name} is required")
        return self._path(request.query[name])

    async def list_files(self, request):
        depth = int(request.query.get("depth") or 1)
        entries = await self.machine.do("list", path=self._path(request.query.get("path")), depth=depth)
        return Answer(200, [self._entry(each) for each in entries])

    async def info_file(self, request):
        return Answer(200, self._entry(await self.machine.do("stat", path=self._required(request, "path"))))

    async def delete_file(self, request):
        path = self._required(request, "path")
        info = await self.machine.do("stat", path=path)
        if info.get("type") == "FILE_TYPE_DIRECTORY" and request.query.get("recursive") != "true":
            self.fail(400, "cannot delete directory without recursive flag")
        await self.machine.do("remove", path=path)
        return Answer(204)

    async def make_folder(self, request):
        path = self._required(request, "path")
        try:
            await self.machine.do("make_dir", path=path)
        except machine.MachineError as error:
            if error.code != "already_exists":
                raise
        await self.machine.do("permissions", path=path, mode=request.query.get("mode") or "755")
        return Answer(201)

    async def move_file(self, request):
        source, destination = self._required(request, "source"), self._required(request, "destination")
        await self.machine.do("move", source=source, destination=destination)
        return Answer(200)

    async def set_permissions(self, request):
        query = request.query
        await self.machine.do("permissions", "root", path=self._required(request, "path"), mode=query.get("mode"),
                              owner=query.get("owner"), group=query.get("group"))
        return Answer(200)

    async def download(self, request):
        _, stream = await self.machine.read(self._required(request, "path"))
        return Answer(200, self._pieces(stream), {"Content-Type": "application/octet-stream"})

    async def _pieces(self, stream):
        try:
            while data := await stream.read(programs.PIECE):
                yield data
        finally:
            stream.pipe.close()

    async def upload(self, request):
        path = self._required(request, "path")
        await self.machine.write(path, next(data for name, _, data in request.parts() if name == "file"))
        return Answer(200)

    async def bulk_upload(self, request):
        """Pairs files[N].path, files[N].file; the path comes first."""
        paths, errors = {}, []
        for name, _, data in request.parts():
            match = re.fullmatch(r"files\[(\d+)\]\.(path|file)", name or "")
            if not match:
                continue
            if match[2] == "path":
                paths[match[1]] = self._path(data.decode())
                continue
            try:
                await self.machine.write(paths[match[1]], data)
            except (machine.MachineError, KeyError) as error:
                errors.append(f"{name}: {error}")
        if errors:
            self.fail(400, "; ".join(errors))
        return Answer(200)

    async def bulk_download(self, request):
        paths = request.json().get("paths")
        if not paths:
            self.fail(400, "paths is required")
        boundary = uuid.uuid4().hex
        return Answer(200, self._bulk(paths, boundary), {"Content-Type": f"multipart/form-data; boundary={boundary}"})

    async def _bulk(self, paths, boundary):
        for path in paths:
            try:
                info, stream = await self.machine.read(self._path(path))
            except machine.MachineError as error:
                text = json.dumps(self.provider.error(FILE_STATUS.get(error.code, 500), str(error)))
                yield self._part(boundary, "error", path, "application/json", len(text)) + text.encode() + b"\r\n"
                continue
            yield self._part(boundary, "file", path, "application/octet-stream", info["size"])
            async for data in self._pieces(stream):
                yield data
            yield b"\r\n"
        yield f"--{boundary}--\r\n".encode()

    def _part(self, boundary, name, path, kind, size):
        quoted = path.replace("\\", "\\\\").replace('"', '\\"')
        return (f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{quoted}"\r\n'
                f"Content-Type: {kind}\r\nContent-Length: {size}\r\n\r\n").encode()

    async def user_home(self, _):
        return Answer(200, {"dir": self.home})

    async def version(self, _):
        return Answer(200, {"version": "0.190.0"})

    ROUTES = (
        ("POST", r"/process/execute", execute),
        ("GET", r"/process/session", list_sessions),
        ("POST", r"/process/session", create_session),
        ("GET", r"/process/session/([^/]+)", get_session),
        ("DELETE", r"/process/session/([^/]+)", delete_session),
        ("POST", r"/process/session/([^/]+)/exec", session_execute),
        ("GET", r"/process/session/([^/]+)/command/([^/]+)", get_command),
        ("POST", r"/process/session/([^/]+)/command/([^/]+)/input", input),
        ("GET", r"/process/session/([^/]+)/command/([^/]+)/logs", logs),
        ("GET", r"/process/pty", list_terminals),
        ("POST", r"/process/pty", create_terminal),
        ("GET", r"/process/pty/create-connect", create_and_connect),
        ("GET", r"/process/pty/([^/]+)", get_terminal),
        ("DELETE", r"/process/pty/([^/]+)", delete_terminal),
        ("GET", r"/process/pty/([^/]+)/connect", connect_terminal),
        ("POST", r"/process/pty/([^/]+)/resize", resize_terminal),
        ("GET", r"/files/?", list_files),
        ("DELETE", r"/files/?", delete_file),
        ("GET", r"/files/info", info_file),
        ("POST", r"/files/folder", make_folder),
        ("POST", r"/files/move", move_file),
        ("POST", r"/files/permissions", set_permissions),
        ("GET", r"/files/download", download),
        ("POST", r"/files/upload(?:-v2)?", upload),
        ("POST", r"/files/bulk-upload", bulk_upload),
        ("POST", r"/files/bulk-download", bulk_download),
        ("GET", r"/user-home-dir", user_home),
        ("GET", r"/work-dir", user_home),
        ("GET", r"/version", version),
    )
