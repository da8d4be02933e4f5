"""The worst attacks of one user on others through the shared daemon, all at once.

They run in a separate process, so that measuring another user's calls does not wait for this interpreter to read long
answers; and at the lowest priority, as the daemon is not responsible for the CPU use of A's own programs.
"""

import contextlib
import ctypes
import multiprocessing
import os
import socket
import threading
import time

from load import harness

SETRESUID = 117 if os.uname().machine == "x86_64" else 147
HOOK_S = 600  # the longest allowed time


def become(uid):
    """Only this thread, so that its connections have the user's id."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(SETRESUID, -1, uid, -1) != 0:
        raise OSError(ctypes.get_errno(), "setresuid")


class Greedy:
    """hooks: waiting stops; uploads: stalled ones; files, ignores: sizes of its directory and its .gitignore;
    snapshots, best_ofs: number to create in sequence; asks: requests in endless loops, two of each at a time."""

    WALKS = ("status", "diff")  # requests that read the whole directory
    ALL = (*WALKS, "read_file", "history", "exec")

    def __init__(self, daemon, url, uid, hooks=20, uploads=24, files=5_000, ignores=2_000, snapshots=8, best_ofs=3, asks=ALL):
        self.daemon, self.url, self.uid, self.asks = daemon, url, uid, asks
        self.hooks, self.uploads, self.files, self.ignores = hooks, uploads, files, ignores
        self.left = {"snapshots": snapshots, "best-ofs": best_ofs}
        processes = multiprocessing.get_context("fork")
        self.under_way, self.paused, self.over = processes.Event(), processes.Event(), processes.Event()
        self.asking, self.troubles = processes.Value("i", 0), processes.SimpleQueue()
        self.process = processes.Process(target=self._run, daemon=True)
        self.ready, self.threads = [], []  # of the attacking process

    # -- in the attacking process -----------------------------------------------------------------------

    def _run(self):
        os.nice(19)
        for number in range(self.hooks):
            self._thread(self._hook, number)
        self._thread(self._tree)
        while len(self.ready) < self.hooks + 1:
            if self.over.wait(0.05):
                return
        for _ in range(self.uploads):
            self._thread(self._stalled_upload)
        self._thread(self._again, lambda client: client.snapshot("a-tree"), "snapshots")
        self._thread(self._again, lambda client: client.best_of("a-tree", test="true", each="true", count=2), "best-ofs")
        arguments = {"read_file": ["README.md"], "exec": ["true"]}
        for verb in self.asks:
            for _ in range(2):
                self._thread(self._again, lambda client, verb=verb: getattr(client, verb)("a-tree", *arguments.get(verb, ())))
        self.under_way.set()
        for thread in self.threads:
            thread.join()

    def _thread(self, work, *arguments):
        def run():
            try:
                become(self.uid)
                work(*arguments)
            except Exception as error:  # noqa: BLE001
                self.troubles.put(f"{type(error).__name__}: {error}")

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
        client.stop(name)  # answered after the hook was cancelled

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
        """Repeats until the end; ignores refusals."""
        client = self._client()
        while not self.over.is_set():
            if self.paused.is_set():
                self.over.wait(0.05)
                continue
            with self._counted():
                if self.paused.is_set():
                    continue
                if what:
                    if self.left[what] == 0:
                        return
                    self.left[what] -= 1
                try:
                    work(client)
                except (harness.raw_api.ApiError, OSError):
                    self.over.wait(0.05)

    @contextlib.contextmanager
    def _counted(self):
        """Counts as asking before it checks for a pause."""
        with self.asking.get_lock():
            self.asking.value += 1
        try:
            yield
        finally:
            with self.asking.get_lock():
                self.asking.value -= 1

    # -- in the measuring process -----------------------------------------------------------------------------

    def start(self):
        """All attacks are in progress on return."""
        self.process.start()
        harness.wait_until(lambda: not self.troubles.empty() or self.under_way.is_set(), 300, "the greedy user's work")
        self._raise_trouble()

    @contextlib.contextmanager
    def quiet(self):
        """During the pause it sends no requests, and all earlier ones are answered. Its hooks and uploads stay."""
        self.paused.set()
        try:
            harness.wait_until(lambda: self.asking.value == 0, 300, "the greedy user's answers")
            yield
        finally:
            self.paused.clear()

    def running_hooks(self, root):
        return [e for e in root.execs(running=True) if e.get("hook") == "pre_stop"]

    def stop(self, root):
        """Ends it; `root` is a client that sees everything. Raises its errors."""
        self.over.set()
        until = time.monotonic() + 120 * harness.PATIENCE
        while self.process.is_alive() and time.monotonic() < until:
            for running in root.execs(running=True):
                with contextlib.suppress(harness.raw_api.ApiError):
                    root.cancel(running["id"])
            self.process.join(0.2)
        self._raise_trouble()
        if self.process.is_alive():
            self.process.kill()
            raise AssertionError(f"a request of the greedy user has no answer\n{self.daemon.waiting()}")

    def _raise_trouble(self):
        if not self.troubles.empty():
            self.over.set()
            raise AssertionError(f"the greedy user: {self.troubles.get()}")
