"""The worst that one user may do to the others through the daemon that they share, all at once."""

import contextlib
import ctypes
import os
import socket
import threading
import time

from load import harness

SETRESUID = 117 if os.uname().machine == "x86_64" else 147
HOOK_S = 600  # the longest that is allowed


def become(uid):
    """This thread alone, so that its connections are the user's."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(SETRESUID, -1, uid, -1) != 0:
        raise OSError(ctypes.get_errno(), "setresuid")


class Greedy:
    """hooks: stops that wait for one; uploads: that stall; files, ignores: of its directory and its .gitignore;
    snapshots, best_ofs: one after the other, until there were so many."""

    def __init__(self, daemon, url, uid, hooks=20, uploads=24, files=5_000, ignores=2_000, snapshots=8, best_ofs=3):
        self.daemon, self.url, self.uid = daemon, url, uid
        self.hooks, self.uploads, self.files, self.ignores = hooks, uploads, files, ignores
        self.left = {"snapshots": snapshots, "best-ofs": best_ofs}
        self.over = threading.Event()
        self.ready, self.troubles, self.threads = [], [], []

    def _thread(self, work, *arguments):
        def run():
            try:
                become(self.uid)
                work(*arguments)
            except Exception as error:  # noqa: BLE001
                self.troubles.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self.threads.append(thread)

    def _client(self):
        return harness.Client(str(self.daemon.socket), timeout=2 * HOOK_S)

    def _hook(self, number):
        name, client = f"a-hook-{number}", self._client()
        client.create(repo_url=self.url, name=name, pre_stop=f"sleep {HOOK_S}", pre_stop_deadline_s=HOOK_S)
        client.exec(name, "true")
        self.ready.append(name)
        client.stop(name)  # answered when the hook was cancelled

    def _tree(self):
        client = self._client()
        client.create(repo_url=self.url, name="a-tree")
        client.exec("a-tree", f"mkdir many; cd many; seq {self.files} | xargs touch; seq {self.ignores} | sed 's/$/*[a-z]*/' > .gitignore")
        self.ready.append("a-tree")

    def _stalled_upload(self):
        with socket.socket(socket.AF_UNIX) as upload, contextlib.suppress(OSError):
            upload.connect(str(self.daemon.socket))
            upload.sendall(b"PUT /v1/workspaces/a-tree/file?path=stalled HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nx")
            while not self.over.wait(1):
                upload.send(b"x")

    def _again(self, work, what=None):
        """Again and again until it is over; refusals are none of its business."""
        client = self._client()
        while not self.over.is_set():
            if what:
                if self.left[what] == 0:
                    return
                self.left[what] -= 1
            try:
                work(client)
            except (harness.moorage.MoorageError, OSError):
                self.over.wait(0.05)

    def start(self):
        """All of it is under way when it returns."""
        for number in range(self.hooks):
            self._thread(self._hook, number)
        self._thread(self._tree)
        harness.wait_until(lambda: self.troubles or len(self.ready) == self.hooks + 1, 300, "the greedy user's workspaces")
        for _ in range(self.uploads):
            self._thread(self._stalled_upload)
        self._thread(self._again, lambda client: client.snapshot("a-tree"), "snapshots")
        self._thread(self._again, lambda client: client.best_of("a-tree", test="true", each="true", count=2), "best-ofs")
        for work in (lambda client: client.status("a-tree"), lambda client: client.diff("a-tree"),
                     lambda client: client.read_file("a-tree", "README.md"), lambda client: client.history("a-tree"),
                     lambda client: client.exec("a-tree", "true")):
            for _ in range(2):
                self._thread(self._again, work)

    def running_hooks(self, root):
        return [e for e in root.execs(running=True) if e.get("hook") == "pre_stop"]

    def stop(self, root):
        """Ends it; root is a client that sees all. Raises what went wrong in it."""
        self.over.set()
        until = time.monotonic() + 120 * harness.PATIENCE
        while any(thread.is_alive() for thread in self.threads) and time.monotonic() < until:
            for running in root.execs(running=True):
                with contextlib.suppress(harness.moorage.MoorageError):
                    root.cancel(running["id"])
            time.sleep(0.2)
        if self.troubles:
            raise self.troubles[0]
        if any(thread.is_alive() for thread in self.threads):
            raise AssertionError(f"a request of the greedy user has no answer\n{self.daemon.waiting()}")
