"""A machine that a fake provider rents out: namespaces, a root directory and processes of its own on this host.

Programs put there run there as they do on a rented machine, as root or as the machine's user (uid 1000), in mount, pid,
ipc, uts, cgroup and network namespaces (loopback only). Root there can make control groups, unless the machine is plain. `end`
ends them all; `freeze` stops them through the freezer of control groups. Files live below `directory`/root, so they
remain after a `reboot` of the machine.
"""

import asyncio
import contextlib
import json
import os
import pathlib
import shutil
import socket
import subprocess
import threading
import time

INSIDE = pathlib.Path(__file__).resolve().parent / "inside.py"
CGROUPS = pathlib.Path("/sys/fs/cgroup")
PLAIN = "plain"  # the name of a template or snapshot of plain machines
DEADLINE_S = 30
STREAM_BUFFER = 256 << 10
RECORD_BYTES = 64 << 10


class MachineError(Exception):
    """A file operation or program was refused inside; `code` is one of Connect's."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class MachineGone(Exception):
    """The machine ended, or ends."""


CONTROLLERS = ("memory", "pids", "cpu")


def wait_until(condition, what):
    end = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.005)


def remove_group(path):
    """With those that were made below it. False: a process is in one of them."""
    for each in sorted(path.glob("**/"), key=lambda found: len(found.parts), reverse=True):
        with contextlib.suppress(FileNotFoundError):
            try:
                each.rmdir()
            except OSError:
                return False
    return True


def end_left_over():
    """Thaws the frozen machines of processes that were killed. Their process 1 has ended, so they end as well."""
    for path in [*CGROUPS.glob("rented-*"), *CGROUPS.glob("*/rented-*")]:
        if os.path.exists(f"/proc/{path.name.split('-')[1]}"):
            continue
        for name, running in (("cgroup.freeze", "0"), ("freezer.state", "THAWED")):
            with contextlib.suppress(OSError):
                if (path / name).exists():
                    (path / name).write_text(running)
        remove_group(path)


class Groups:
    """The control groups of a machine. In version 1 its process 1 is outside of the freezer's, so that it can always end the rest;
    in version 2 frozen processes can be killed. What a machine's root makes below them ends with the machine."""

    def __init__(self, name):
        self.v1 = not (CGROUPS / "cgroup.controllers").exists()
        if self.v1:
            self.freezer = CGROUPS / "freezer" / name
            self.shown = [path for path in (CGROUPS / controller / name for controller in CONTROLLERS) if path.parent.exists()]
            self.joined, self.all = self.shown, [self.freezer, *self.shown]
            self.programs = self.freezer
        else:
            with contextlib.suppress(OSError):
                (CGROUPS / "cgroup.subtree_control").write_text(" ".join(f"+{each}" for each in CONTROLLERS))
            self.freezer = CGROUPS / name
            self.programs = self.freezer / "programs"
            self.shown, self.joined, self.all = [self.freezer], [self.programs], [self.freezer, self.programs]
        for path in self.all:
            path.mkdir()

    def descriptor(self):
        """Of the file that a program's process joins."""
        return os.open(self.programs / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)

    def freeze(self, frozen):
        if not self.v1:
            (self.freezer / "cgroup.freeze").write_text(str(int(frozen)))
            return self._wait(lambda: f"frozen {int(frozen)}" in (self.freezer / "cgroup.events").read_text())
        state = "FROZEN" if frozen else "THAWED"
        (self.freezer / "freezer.state").write_text(state)
        return self._wait(lambda: (self.freezer / "freezer.state").read_text().strip() == state)

    def wait_for_end(self):
        self._wait(lambda: not any(each.read_text() for path in self.all for each in path.glob("**/cgroup.procs")))
        for path in self.all:
            for made in path.glob("*/"):
                if made != self.programs:
                    self._wait(lambda: remove_group(made))  # noqa: B023

    def remove(self):
        for path in reversed(self.all):
            self._wait(lambda: remove_group(path))  # noqa: B023

    def _wait(self, condition):
        wait_until(condition, f"{self.freezer}: its processes do not follow")


class Program:
    """A program that runs in a machine. `stdin` is a StreamWriter or None, the others are StreamReaders."""

    def __init__(self, pid, stdin=None, stdout=None, stderr=None, pty=None):
        self.pid, self.stdin, self.stdout, self.stderr, self.pty = pid, stdin, stdout, stderr, pty
        self.ended = None  # resolves to (exit code, signal)

    def close(self):
        """Lets go of its streams."""
        if self.stdin:
            self.stdin.close()
        for stream in (self.stdout, self.stderr):
            if stream:
                stream.pipe.close()
        if self.pty is not None:
            os.close(self.pty)
            self.pty = None


class Machine:
    """Functions that are not coroutines block; call them in an executor."""

    def __init__(self, name, directory, user="user", plain=False, volumes=()):
        """`volumes`: (directory of this host, mount point)."""
        self.name, self.directory, self.user, self.plain = name, pathlib.Path(directory), user, plain
        self.volumes = [(str(source), target) for source, target in volumes]
        self.root = self.directory / "root"
        self.root.mkdir(parents=True, exist_ok=True)
        self.groups = Groups(f"rented-{os.getpid()}-{name}")
        self.lock = threading.Lock()
        self.process, self.over = None, False
        self.boot()

    def boot(self):
        self.control, other = socket.socketpair()
        cgroup = self.groups.descriptor()
        groups = {"joined": [str(path) for path in self.groups.joined], "shown": [str(path) for path in self.groups.shown],
                  "volumes": self.volumes}
        try:
            self.process = subprocess.Popen(
                ["unshare", "--mount", "--pid", "--ipc", "--uts", "--net", "--fork", "--kill-child", "/usr/bin/python3",
                 "-I", str(INSIDE), str(self.root), self.user, str(other.fileno()), str(cgroup), json.dumps(groups),
                 *(["plain"] if self.plain else [])],
                pass_fds=(other.fileno(), cgroup), stdin=subprocess.DEVNULL, start_new_session=True)
        finally:
            other.close()
            os.close(cgroup)
        self.control.settimeout(DEADLINE_S)
        if self.control.recv(1) != b"r":
            raise RuntimeError(f"the machine {self.name} does not start")

    def halt(self):
        """Ends all processes; files stay."""
        with self.lock:
            if self.process is None:
                return
            process, self.process = self.process, None
        process.kill()  # its child follows (--kill-child), and all processes of that pid namespace with it
        self.control.close()
        self.groups.freeze(False)
        process.wait(DEADLINE_S)
        self.groups.wait_for_end()

    def boot_again(self, since=None):
        """After a halt, without the files that changed after `since`. Its end may come meanwhile."""
        if since is not None:
            self.lose_changes_since(since)
        self.forget_boot()
        try:
            self.boot()
        except (OSError, RuntimeError):
            if not self.over:
                raise
        if self.over:
            self.halt()

    def end(self):
        self.over = True
        self.halt()
        self.groups.remove()
        shutil.rmtree(self.directory, ignore_errors=True)

    def freeze(self):
        self.groups.freeze(True)

    def thaw(self):
        self.groups.freeze(False)

    def lose_changes_since(self, when):
        """Removes the files of homes and of /var/tmp that changed after `when`, seconds since 1970."""
        for path in self.files():
            with contextlib.suppress(FileNotFoundError):
                if path.lstat().st_ctime > when:
                    path.unlink()

    def forget_boot(self):
        """A kernel that starts has another boot id. It is the host's here, so files with the earlier one change instead."""
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
        for path in self.files():
            with contextlib.suppress(FileNotFoundError):
                if path.is_symlink() or not path.is_file() or path.stat().st_size > RECORD_BYTES:
                    continue
                if boot in (data := path.read_bytes()):
                    path.write_bytes(data.replace(boot, bytes(reversed(boot))))

    def files(self):
        """Of homes and of /var/tmp."""
        for place in ("home", "root", "var/tmp"):
            for top, _, files in os.walk(self.root / place):
                yield from (pathlib.Path(top, name) for name in files)

    def _request(self, streams, request):
        """Returns (the answer's socket, what was answered, descriptors)."""
        answer, other = socket.socketpair()
        with other:
            answer.settimeout(DEADLINE_S)
            try:
                with self.lock:
                    if self.process is None:
                        raise MachineGone(self.name)
                    socket.send_fds(self.control, [b"x"], [other.fileno(), *streams])
                answer.sendall(json.dumps(request).encode() + b"\n")
                other.close()
                line, numbers = b"", []
                while not line.endswith(b"\n"):
                    piece, more, _, _ = socket.recv_fds(answer, 1 << 20 if line else 65536, 1)
                    if not piece:
                        raise MachineGone(self.name)
                    line, numbers = line + piece, numbers + more
            except (OSError, MachineGone) as error:
                answer.close()
                raise MachineGone(self.name) from error
        head, _, rest = line.partition(b"\n")
        result = json.loads(head)
        if "signal" in result:  # it was killed before it answered: the machine ends
            answer.close()
            raise MachineGone(self.name)
        if "ok" not in result:
            answer.close()
            raise MachineError(result["code"], result["message"])
        return answer, rest, result["ok"], numbers

    async def do(self, operation, user=None, streams=(), **arguments):
        """A file operation of inside.py."""
        request = {"do": operation, "user": user or self.user, **arguments}
        answer, _, result, _ = await asyncio.get_running_loop().run_in_executor(None, self._request, streams, request)
        answer.close()
        return result

    async def read(self, path, user=None):
        """Returns the file's entry and a StreamReader of its bytes."""
        source, target = os.pipe2(os.O_CLOEXEC)
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        try:
            result = await self.do("read", user, (null, target), path=path)
        except BaseException:
            os.close(source)
            raise
        finally:
            os.close(target)
            os.close(null)
        return result, await reader_of(source)

    async def write(self, path, data, user=None, **options):
        source, target = os.pipe2(os.O_CLOEXEC)
        pending = asyncio.get_running_loop().run_in_executor(None, write_and_close, target, data)
        try:
            return await self.do("write", user, (source,), path=path, **options)
        finally:
            os.close(source)
            await pending

    async def run(self, argv, env, cwd, user=None, stdin=True, pty=None):
        """Starts a program. `pty`: {"rows", "cols"}; then `program.pty` is its descriptor, for resizing."""
        request = {"do": "run", "user": user or self.user, "argv": argv, "env": env, "cwd": cwd, "pty": pty}
        pipes = [] if pty else [os.pipe2(os.O_CLOEXEC) for _ in range(3)]
        streams = [pipes[0][0], pipes[1][1], pipes[2][1]] if pipes else []
        ours = [pipes[0][1], pipes[1][0], pipes[2][0]] if pipes else []
        if pipes and not stdin:
            os.close(pipes[0][0])
            os.close(ours[0])
            streams[0] = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
        loop = asyncio.get_running_loop()
        try:
            answer, rest, result, numbers = await loop.run_in_executor(None, self._request, streams, request)
        except BaseException:
            for number in ours if stdin else ours[1:]:
                os.close(number)
            raise
        finally:
            for number in streams:
                os.close(number)
        if pty:
            program = Program(result["pid"], await writer_of(os.dup(numbers[0])), await reader_of(os.dup(numbers[0])),
                              pty=numbers[0])
        else:
            program = Program(result["pid"], await writer_of(ours[0]) if stdin else None, await reader_of(ours[1]),
                              await reader_of(ours[2]))
        answer.settimeout(None)
        program.ended = asyncio.ensure_future(wait_for_end(answer, rest))
        return program

    async def signal(self, pid, number):
        program = await self.run(["/bin/kill", f"-{number}", "--", str(pid)], {}, "/", "root", stdin=False)
        await program.ended
        program.close()


def write_and_close(descriptor, data):
    try:
        with os.fdopen(descriptor, "wb", 0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view):]
    except BrokenPipeError:
        pass  # the answer says why it was not read


async def reader_of(descriptor):
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(STREAM_BUFFER)
    file = os.fdopen(descriptor, "rb", 0)
    reader.pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    return reader


async def writer_of(descriptor):
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop), os.fdopen(descriptor, "wb", 0))
    return asyncio.StreamWriter(transport, protocol, None, loop)


async def wait_for_end(answer, rest):
    reader, writer = await asyncio.open_connection(sock=answer)
    try:
        line = rest + await reader.readline()
    except OSError:
        line = b""
    finally:
        writer.close()
    if not line:
        return -1, 9  # the machine ended
    end = json.loads(line)
    return end["code"], end["signal"]
