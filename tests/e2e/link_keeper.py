"""A keeper of moorage-link without a daemon: started in a mount namespace with /workspace and /home/user, given its
listener as backends/launcher.cc does, and spoken to by HTTP."""

import base64
import contextlib
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import zlib

import harness

# A root directory with this host's own in it, and the two places where the workspace is attached.
INSIDE = r"""set -e
root=$1/root; mkdir -p "$root"
mount -t tmpfs -o size=1m,mode=755 root "$root"
for entry in /*; do
  case $entry in /home|/workspace) continue ;; esac
  if [ -L "$entry" ]; then cp -P "$entry" "$root$entry"
  elif [ -d "$entry" ]; then mkdir "$root$entry"; mount --rbind "$entry" "$root$entry"; fi
done
mkdir -p "$root/workspace" "$root/home/user"
mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/tree,workdir=$1/tree-work" "$root/workspace"
mount --bind "$1/home" "$root/home/user"
shift 2
exec chroot "$root" "$@"
"""
FIRST_ID = 100000
USER = 1000


def frames(journal):
    """(kind, payload) of each whole frame of a journal's bytes, checked. See base/wire/journal.h."""
    offset = 0
    while len(journal) >= 32:
        magic, kind, size, crc, _, output = struct.unpack_from("<4sB3xIIqQ", journal)
        payload = journal[32:32 + size]
        assert magic == b"MJ1\n", journal[:40]
        if len(payload) < size:
            return  # it is being written
        assert crc == zlib.crc32(journal[:12] + journal[16:32] + payload) and output == offset, (kind, output, offset)
        if kind <= 3:
            offset += size
        yield kind, payload
        journal = journal[32 + size:]


def output_of(journal):
    return b"".join(payload for kind, payload in frames(journal) if kind == 1)


def end_of(journal):
    """The payload of the frame `end`; None: not there yet."""
    return next((json.loads(payload) for kind, payload in frames(journal) if kind == 6), None)


def changes_of(pack):
    """({path: contents, None for what is not a file}, [removed paths]) of a pack. See packs/delta_pack.h."""
    # The foot after its frames is not zstd's.
    data = subprocess.run(["zstd", "-dcq"], input=pathlib.Path(pack).read_bytes(), capture_output=True).stdout
    at = 0

    def number(form):
        nonlocal at
        [value] = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return value

    def text():
        nonlocal at
        size = number("I")
        at += size
        return data[at - size:at]
    entries, removed = {}, []
    while (letter := data[at:at + 1]) != b"z":
        at += 1
        path = text().decode()
        if letter == b"r":
            removed.append(path)
            continue
        assert letter == b"e", (letter, path)
        kind = number("B")
        at += 12 + 12  # mode, owners; mtime
        for _ in range(2 * number("I")):
            text()  # attributes
        text()  # a link's target
        content = bytearray(number("Q"))
        while kind == 0:
            offset = number("Q")
            if not (piece := text()):
                break
            content[offset:offset + len(piece)] = piece
        entries[path] = bytes(content) if kind == 0 else None
    return entries, removed


class Keeper:
    """`host` has the driver's settings."""

    def __init__(self, directory, host, base=None, base_key="b1", **config):
        self.directory = pathlib.Path(directory)
        self.host = host
        for name in ("tree", "tree-work", "home", "empty", "journals"):
            (self.directory / name).mkdir(parents=True)
        for name in ("tree", "home"):
            os.chown(self.directory / name, FIRST_ID + USER, FIRST_ID + USER)
        self.base = base or self.directory / "empty"
        self.outpost = os.environ.get("MOORAGE_TEST_OUTPOST", harness.BIN / "moorage-outpost")
        self.config = self.directory / "link.json"
        self.name = f"moorage-{os.getpid()}-sb_{self.directory.name}"
        none = {"key": "", "path": ""}
        self.config.write_text(json.dumps({
            "name": self.name, "directory": str(self.directory), "generation": 1, "driver": "ssh",
            "settings": host.settings_of(), "place": "", "key": "", "first_id": FIRST_ID, "outpost": str(self.outpost),
            "warden": str(harness.BIN / "moorage-warden"), "base": {"key": base_key, "path": str(self.base)} if base else none,
            "objects": none, "certificates": none, "kept_trees": "", "sync_interval_s": 1, "start_deadline_s": 120, "machine_is_ours": False,
            "provider_rules": {"hosts": [], "refusal": "", "hint": ""},
            "machine": "", "machine_generation": 0,
            "memory_bytes": 0, "pids": 0, "cpus": 0} | config))
        self.socket = str(self.directory / "warden.sock")
        self.process = None

    def start(self, network_line=None):
        with socket.socket(socket.AF_UNIX) as bootstrap, socket.socket(socket.AF_UNIX) as listener:
            self._start(bootstrap, [listener] + ([network_line] if network_line else []))
        return self

    def _start(self, bootstrap, given):
        listener = given[0]
        path = str(self.directory / "bootstrap.sock")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        bootstrap.bind(path)
        bootstrap.listen()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket)
        listener.bind(self.socket)
        listener.listen(128)
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(
                ["unshare", "--mount", "--propagation", "private", "sh", "-c", INSIDE, "sh", str(self.directory), str(self.base),
                 str(harness.BIN / "moorage-link"), "keeper", "--bootstrap", path, "--config", str(self.config)],
                stdout=log, stderr=log)
        bootstrap.settimeout(20 * harness.PATIENCE)
        peer, _ = bootstrap.accept()
        assert peer.recv(256) == b'{"version":1}\n'
        socket.send_fds(peer, [b"L"], [one.fileno() for one in given])
        peer.close()

    def ask(self, path, body=None, method="POST", timeout=120, fds=(), headers=()):
        """(status, bytes of the answer)"""
        raw = body if isinstance(body, bytes) else json.dumps(body if body is not None else {}).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: moorage\r\nContent-Length: {len(raw)}\r\nConnection: close\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in dict(headers).items()) + "\r\n"
        request = head.encode() + raw
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout * harness.PATIENCE)
            connection.connect(self.socket)
            if fds:
                socket.send_fds(connection, [request[:1]], fds)
                request = request[1:]
            connection.sendall(request)
            answer = b""
            while piece := connection.recv(65536):
                answer += piece
        if not answer:
            raise ConnectionError("no answer")
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]), body

    def good(self, path, body=None, **options):
        status, answer = self.ask(path, body, **options)
        assert status == 200, (path, status, answer, self.log())
        return json.loads(answer or b"{}")

    def begin(self):
        self.good("/moorage/connect")
        return self.good("/moorage/begin", {"layers": [{"tree": str(self.directory / "tree"), "home": str(self.directory / "home")}]})

    def status(self):
        return self.good("/moorage/remote", method="GET")

    def start_command(self, tag, *argv, room=0, **process):
        """Starts it; returns the path of its journal here."""
        path = self.directory / "journals" / tag
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            message = json.dumps({"process": {"cmd": argv[0], "args": argv[1:], "envs": {"PATH": "/usr/bin:/bin"},
                                              "cwd": "/workspace"} | process, "stdin": False, "tag": tag}).encode()
            headers = {"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1", "Moorage-Journal": "1",
                       "Moorage-Kill-Fd": "0", "Moorage-Tag": tag, "Moorage-Journal-Room": room, "Moorage-User": "user"}
            status, answer = self.ask("/process.Process/Start", b"\0" + struct.pack(">I", len(message)) + message, fds=[file],
                                      headers=headers)
            assert status == 200, (status, answer)
        finally:
            os.close(file)
        return path

    def run_command(self, tag, *argv, seconds=30, **options):
        """(bytes of standard output, the end)"""
        path = self.start_command(tag, *argv, **options)
        end = harness.wait_until(lambda: end_of(path.read_bytes()), seconds, what=f"the end of {tag}; {self.log()}")
        return output_of(path.read_bytes()), end

    def signal_tree(self, tag):
        return self.ask("/process.Process/SendSignal",
                        {"process": {"tag": tag}, "signal": "SIGNAL_SIGKILL", "tree": True},
                        headers={"Content-Type": "application/json"})

    def send_input(self, tag, text):
        return self.ask("/process.Process/SendInput",
                        {"process": {"tag": tag}, "input": {"stdin": base64.b64encode(text).decode()}},
                        headers={"Content-Type": "application/json"})

    def packs(self):
        numbers = [int(path.stem) for path in (self.directory / "incoming").glob("*.pack")]
        return sorted(numbers)

    def worker(self):
        """Its pid, once there is one that has taken over."""
        def children(pid):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                return [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
            return []
        return next((pid for pid in children(self.process.pid)), None)

    def kill_worker(self):
        pid = harness.wait_until(self.worker, what="a worker")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return pid

    def log(self):
        with contextlib.suppress(FileNotFoundError):
            return (self.directory / "log").read_text()[-2000:]
        return ""

    def close(self):
        if not self.process:
            return
        self.process.kill()
        self.process.wait()
        self.process = None

    def salvage(self, into):
        """What moorage-link salvage prints."""
        return json.loads(harness.run(harness.BIN / "moorage-link", "salvage", "--config", self.config, "--into", into).stdout)

    def remove_there(self, check=True):
        return harness.run(harness.BIN / "moorage-link", "remove", "--config", self.config, check=check)
