"""Searches for secrets: in files, also compressed ones, and in the memory of processes."""

import base64
import contextlib
import os
import pathlib
import re
import subprocess

import harness

ZSTD = b"\x28\xb5\x2f\xfd"
PIECE = 4 << 20


def forms_of(secret):
    """The bytes of a secret as programs may keep them. In Base64 at each position within its groups, without the
    characters that depend on neighbors."""
    forms = {secret, secret.hex().encode()}
    for shift in range(3):
        for letters in (b"+/", b"-_"):
            forms.add(base64.b64encode(b"\0" * shift + secret, letters)[4 if shift else 0:-4])
    return sorted(forms)


class Search:
    def __init__(self, secret):
        self.forms = forms_of(secret)
        self.longest = max(map(len, self.forms))

    def text(self, text):
        return any(form in text for form in self.forms)

    def stream(self, read):
        """read(n) gives the next bytes."""
        tail = b""
        while piece := read(PIECE):
            if self.text(tail + piece):
                return True
            tail = piece[-self.longest:]
        return False

    def file(self, path):
        """Also in what it was compressed from."""
        with open(path, "rb") as file:
            head = file.read(PIECE)
            file.seek(0)
            if self.stream(file.read):
                return True
        at = head.find(ZSTD)
        if at < 0:
            return False
        with open(path, "rb") as file:
            file.seek(at)
            unpack = subprocess.Popen(["zstd", "-dcq"], stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        with unpack:
            found = self.stream(unpack.stdout.read)
            unpack.stdout.close()
        return found

    def files(self, *places, without=()):
        """The files below with a secret, and the names that are one."""
        found = []
        for place in places:
            for top, names, files in os.walk(place):
                names[:] = [name for name in names if os.path.join(top, name) not in without]
                found += [os.path.join(top, name) for name in names + files if self.text(os.fsencode(name))]
                for name in files:
                    path = os.path.join(top, name)
                    with contextlib.suppress(FileNotFoundError):
                        if os.path.isfile(path) and not os.path.islink(path) and self.file(path):
                            found.append(path)
        return found

    def memory(self, pid):
        """In anything that the process could read, its environment and command line included."""
        with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            for line in maps:
                span, rights, *_ = line.split()
                if rights[0] != "r" or "[v" in line:
                    continue
                begin, end = (int(number, 16) for number in span.split("-"))
                memory.seek(begin)
                left = end - begin

                def read(size):
                    nonlocal left
                    size = min(size, left)
                    left -= size
                    return memory.read(size) if size else b""
                with contextlib.suppress(OSError, OverflowError):  # a page that is not there
                    if self.stream(read):
                        return True
        return False

    def given(self, pid):
        """In the process's environment or command line. Root of a container may not read those of processes outside of it."""
        with contextlib.suppress(PermissionError):
            return any(self.text(pathlib.Path(f"/proc/{pid}/{name}").read_bytes()) for name in ("environ", "cmdline"))


def keep_out(daemon, secret):
    """Fails the suite if the secret is in a file of its daemon, or was given to a process, when its tests are done."""
    search = Search(secret.encode())

    def look():
        assert not (found := search.files(daemon.directory)), f"a secret is in {found}"
        assert not (found := holders(search, all_processes(), Search.given)), f"a secret was given to {found}"
    daemon.last_looks.append(look)


def name_of(pid):
    """Empty: it has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def all_processes():
    return {int(entry) for entry in os.listdir("/proc") if entry.isdigit()} - {os.getpid()}


def descendants(pid):
    found, new = set(), {pid}
    while new:
        found |= new
        new = {child for parent in new for child in children(parent)} - found
    return found


def children(pid):
    found = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            found += map(int, pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text().split())
    return found


def holders(search, pids, how):
    """Names of those processes with a secret. One that ends meanwhile has none."""
    found = []
    for pid in sorted(pids):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if how(search, pid):
                found.append(name_of(pid))
    return found


def engines():
    """Processes of container engines on this host."""
    found = set()
    for pid in all_processes():
        with contextlib.suppress(OSError):
            if re.match("dockerd|containerd|docker-proxy|runc|crun", name_of(pid)):
                found.add(pid)
    return found


def of_sandbox(daemon, workspace):
    """Host pids of everything in its control groups, and of the engine's processes for it."""
    pids = daemon.sandbox_pids(workspace)
    return harness.sandbox_cgroup_pids(pids["name"]) | {pid for pid in (pids["init"], pids["monitor"]) if pid}
