"""The base of the end-to-end tests: a store and a daemon of their own, a git server, and a check of the host for leftovers.

Starts and ends everything here, by pid. BIN is the folder with the built programs (environment MOORAGE_BIN, set by
CMake). Uses the real daemon, LXC, git and kernel.
"""

import atexit
import contextlib
import errno
import functools
import json
import os
import pathlib
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
import unittest

import raw_api

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("MOORAGE_BIN", ROOT / "build/dev/bin"))
# Stores need a file system with id-mapped mounts and overlays; /tmp may be a tmpfs.
BASE = os.environ.get("MOORAGE_TEST_DIRECTORY", "/var/tmp")

# Backend of a suite's sandboxes: lxc, docker, docker-userns, whose engine remaps users, or ssh, with a machine of its own. Tests that
# need several backends, or control over their engine, start those themselves (tests/engines).
BACKEND = os.environ.get("MOORAGE_TEST_BACKEND", "lxc")
ENGINES = {"docker": "MOORAGE_TEST_DOCKER_SOCKET", "docker-userns": "MOORAGE_TEST_DOCKER_USERNS_SOCKET"}
# Whether a socket inside tells which of several commands has it (docs/decisions/0386).
TELLS_COMMANDS_APART = BACKEND != "ssh"
HAS_ROOT = BACKEND != "docker"  # without a user namespace there is no root inside

# A sanitizer's own memory would distort memory measurements.
SANITIZED = not {"address", "thread"}.isdisjoint(os.environ.get("MOORAGE_SANITIZE", "").split(","))

# Factor for timeouts, relative to the machines that the tests were written on.
PATIENCE = max(1, int(os.environ.get("MOORAGE_TEST_PATIENCE", "1")))


def wait_until(condition, seconds=20.0, what="condition"):
    """Polls for the effect of another process. Fails loudly after a timeout."""
    seconds *= PATIENCE
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError(f"{what}: not within {seconds} s")


def run(*argv, check=True, **options):
    options.setdefault("capture_output", True)
    result = subprocess.run([str(a) for a in argv], **options)
    if check and result.returncode != 0:
        raise AssertionError(f"{argv}: exit {result.returncode}\n{result.stderr!r}\n{result.stdout!r}")
    return result


def git(directory, *argv, **options):
    environment = {
        "PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@t", "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@t",
    }
    return run("git", "-C", directory, *argv, env=environment, **options).stdout.decode().strip()


def make_repository(path, files=None):
    """A repository with one commit on main. Returns that commit."""
    path = pathlib.Path(path)
    path.mkdir(parents=True)
    git(path, "init", "-q", "-b", "main")
    for name, content in (files or {"README.md": "hello\n", "src/a.txt": "a\n", "src/b.txt": "b\n"}).items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", "first")
    return git(path, "rev-parse", "HEAD")


def commit(path, name, content, message="next"):
    (pathlib.Path(path) / name).write_text(content)
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", message)
    return git(path, "rev-parse", "HEAD")


class GitServer:
    """git daemon on loopback. `fetches()` counts the requests that could move objects."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.trace = self.directory / "packets.log"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process = subprocess.Popen(
            ["git", "daemon", f"--base-path={self.directory}", "--export-all", "--listen=127.0.0.1",
             f"--port={self.port}", "--reuseaddr", "--informative-errors", str(self.directory)],
            env={"PATH": os.environ["PATH"], "GIT_TRACE_PACKET": str(self.trace), "HOME": "/nonexistent",
                 "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        wait_until(self._answers, what="git daemon")

    def _answers(self):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True

    def url(self, name):
        return f"git://127.0.0.1:{self.port}/{name}"

    def fetches(self):
        return self.trace.read_text(errors="replace").count("command=fetch") if self.trace.exists() else 0

    def stop(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Client(raw_api.Client):
    def wait(self, exec_id, timeout_ms=60000):
        return super().wait(exec_id, timeout_ms * PATIENCE)

    def delete(self, workspace, purge=False, force=None, **options):
        """A purge in a test is a cleanup and ends running commands. Pass force=False to test the refusal."""
        return super().delete(workspace, purge=purge, force=purge if force is None else force, **options)


@functools.cache
def spare_machine():
    """Of this process, which only ssh reaches."""
    import ssh_host  # it uses this module
    directory = pathlib.Path(tempfile.mkdtemp(prefix="moorage-machine-", dir=BASE))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    machine = ssh_host.SshHost(directory / "host").start()
    atexit.register(machine.close)
    return machine


class Daemon:
    """One store and the mooraged on it. Tests may kill and restart it; close() removes it."""

    def __init__(self, settings=None):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="moorage-e2e-", dir=BASE))
        self.store = self.directory / "store"
        self.store.mkdir(mode=0o700)
        self.socket = self.directory / "api.sock"
        self.log = self.directory / "daemon.log"
        lines = {"store": {"directory": str(self.store)}, "api": {"socket": str(self.socket)},
                 "repo": {"file_roots": [str(self.directory)]}, "sandbox": {"stop_grace_s": 1},
                 "network": {"credential_key": str(self.directory / "credentials.key")}}
        if BACKEND == "ssh":
            lines["sandbox"]["backend"] = "ssh"
            lines["remote"] = {"sync_interval_s": 1}
            if "MOORAGE_TEST_SSH_CONFIG" in os.environ:  # one that lives longer
                lines["backends"] = {"ssh": {"config_file": os.environ["MOORAGE_TEST_SSH_CONFIG"], "hosts": [
                    {"name": "other", "destination": os.environ["MOORAGE_TEST_SSH_HOST"], "max_sandboxes": 1000,
                     "directory": os.environ["MOORAGE_TEST_SSH_DIRECTORY"]}]}}
            else:
                lines["backends"] = spare_machine().section()
        elif BACKEND != "lxc":
            lines["sandbox"]["backend"] = "docker"
            lines["docker"] = {"socket": os.environ[ENGINES[BACKEND]]}
        for key, value in (settings or {}).items():
            group, _, name = key.partition(".")
            if name:
                lines.setdefault(group, {})[name] = value
            else:
                lines[group] = value
        self.config = self.directory / "moorage.yaml"
        self.config.write_text(json.dumps(lines, indent=1))  # JSON is YAML
        self.bin = BIN
        self.process = None
        self.known_store_id = None
        self.environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        self.environment |= {name: value for name, value in os.environ.items() if name.endswith("SAN_OPTIONS")}
        self.client = Client(str(self.socket))
        self.last_looks = []  # functions that look at the directory, once the daemon has stopped

    def start(self, crash_at=None, wait=True, mended=True, prefix=()):
        """`mended`: also waits for repairs. `prefix`: words before the program, to simulate another host."""
        environment = dict(self.environment)
        if crash_at:
            environment["MOORAGE_CRASH_AT"] = crash_at
        with open(self.log, "ab") as log:
            self.log_begin = log.tell()
            self.process = subprocess.Popen([*prefix, str(self.bin / "mooraged"), "--config", str(self.config)], env=environment,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        if wait:
            try:
                wait_until(self.answers, what="the daemon's answer")
            except AssertionError as late:
                self.kill()
                raise AssertionError(f"{late}; log: {self.log_tail()}") from None
            self.store_id()
            if not mended:
                return self
            # A test with slow or endless repairs waits for its own condition.
            with contextlib.suppress(AssertionError):
                wait_until(self.settled, 5, "repairs after a kill")
        return self

    def answers(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the daemon exited {self.process.returncode}: {self.log_tail()}")
        try:
            self.client.health()
            return True
        except (raw_api.ApiError, OSError):
            return False

    def settled(self):
        """It answers, and has finished the file work interrupted by a kill."""
        if not self.answers():
            return False
        with open(self.log, "rb") as log:
            log.seek(self.log_begin)
            return b"workspaces.settled" in log.read() or "rescue" in (self.client.health() or {})

    def log_tail(self):
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else ""

    def waiting(self):
        """The kernel stacks of its threads, to explain delays."""
        lines = []
        for task in sorted(pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()):
            with contextlib.suppress(OSError):
                calls = [line.split("] ")[-1].split("+")[0] for line in (task / "stack").read_text().splitlines()]
                lines.append(f"{(task / 'comm').read_text().strip()}: {' < '.join(calls[:8])}")
        return "\n".join(lines)

    def kill(self):
        if self.process and self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
        if self.process:
            self.process.wait()

    def restart(self):
        self.kill()
        return self.start()

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            if self.process.wait(30 * PATIENCE) != 0:
                raise AssertionError(f"the daemon did not stop in order, {self.process.returncode}: {self.log_tail()}")

    def store_id(self):
        self.known_store_id = self.client.info()["store_id"]
        return self.known_store_id

    def cli(self, *argv, check=True, **options):
        environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/root"),
                       "XDG_STATE_HOME": str(self.directory / "state"),
                       "MOORAGE_SOCKET": str(self.socket), "LANG": "C.UTF-8"}
        environment.update(options.pop("env", {}))
        return run(BIN / "moorage", *argv, check=check, env=environment, **options)

    def cli_popen(self, *argv, **options):
        environment = {"PATH": os.environ["PATH"], "HOME": "/root", "MOORAGE_SOCKET": str(self.socket),
                       "XDG_STATE_HOME": str(self.directory / "state")}
        return subprocess.Popen([str(BIN / "moorage"), *map(str, argv)], env=environment, **options)

    def add_approval(self, workspace, ref="refs/heads/main"):
        """As a push makes it, without a git host."""
        with contextlib.closing(sqlite3.connect(self.store / "state.db", timeout=30)) as database, database:
            age, = database.execute("SELECT max(created_age_ms) FROM snapshots").fetchone()
            row = database.execute(
                "INSERT INTO approvals (workspace, repository, ref, old_id, new_id, commits, title, state, asked_wall_ms, asked_age_ms) "
                "VALUES (?, 'https://git.example/acme/shop.git', ?, ?, ?, 3, 'Title', 'waiting', ?, ?)",
                (int(workspace.removeprefix("ws_")), ref, "1" * 40, "2" * 40, time.time_ns() // 1_000_000, age or 0))
            return f"ap_{row.lastrowid}"

    def reconcile(self):
        """Waits for a full round of the reconciler: it removes two orphaned directories in the middle of one."""
        for number in (1, 2):
            nobodys = self.store / "sandboxes" / f"sb_{99990 + number}"
            nobodys.mkdir(parents=True)
            wait_until(lambda: not nobodys.exists(), 60, "a round of the reconciler")

    def sandbox_pids(self, workspace):
        """Host pids of a workspace's live sandbox: its init, and the engine's processes for it."""
        sandbox = self.client.workspace(workspace)["sandbox"]["id"]
        name = f"moorage-{self.store_id()}-{sandbox}"
        init = init_pid(self.store, name)
        monitor = monitor_pid(name) if BACKEND == "lxc" else 0 if BACKEND == "ssh" else parent_pid(init)  # a keeper has none
        return {"name": name, "init": init, "monitor": monitor}

    def close(self):
        """Stops all sandboxes and the daemon, and removes the store."""
        try:
            if self.process is None or self.process.poll() is not None:
                self.start()
            for workspace in self.client.workspaces():
                self.client.delete(workspace["id"], force=True)
            self.stop()
            for look in self.last_looks:
                look()
        finally:
            self.remove()

    def remove(self):
        """Removes the daemon, leftovers of its sandboxes if close() failed, and its store."""
        self.kill()
        if self.known_store_id:
            end_sandboxes(f"moorage-{self.known_store_id}-")
        run("chattr", "-R", "-f", "-a", self.store, check=False)
        run("rm", "-rf", self.directory, check=False)  # test trees are deeper than Python's recursion limit


def processes():
    """pid -> command line of every host process with a command line."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                line = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if line:
                    found[int(entry)] = line.strip()
    return found


def is_of_sandbox(group, name):
    """Whether the control group belongs to this sandbox, not to one with a longer name; "moorage-STORE-": to any of that store."""
    return any(part == name or (name.endswith("-") and part.startswith(name)) for part in group.split("/"))


def sandbox_cgroup_pids(name):
    """Processes in the unified control groups of this sandbox."""
    pids = set()
    for top, _, files in os.walk("/sys/fs/cgroup"):
        if is_of_sandbox(top, name) and "cgroup.procs" in files:
            with contextlib.suppress(OSError):
                pids.update(int(p) for p in pathlib.Path(top, "cgroup.procs").read_text().split())
    return pids


def end_sandboxes(name):
    """Like a power cut: kills process 1 of each first, so that the kernel ends the rest. Killing one by one would record a command's end."""
    for pid in sorted(sandbox_cgroup_pids(name), key=is_init, reverse=True):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for top, _, _ in os.walk("/sys/fs/cgroup", topdown=False):
        if is_of_sandbox(top, name):
            wait_until(lambda: remove_cgroup(top), what=f"{top} is empty")  # noqa: B023


def remove_cgroup(path):
    with contextlib.suppress(FileNotFoundError):
        try:
            os.rmdir(path)
        except OSError as error:
            if error.errno == errno.EBUSY:
                return False
            raise
    return True


def is_init(pid):
    """Whether it is process 1 of a child pid namespace."""
    with contextlib.suppress(OSError):
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        numbers = next(l for l in status.splitlines() if l.startswith("NSpid:")).split()
        return numbers[-1] == "1" and len(numbers) > 2
    return False


def is_keeper(pid):
    """Whether it is the keeper of a link to another machine."""
    with contextlib.suppress(OSError):
        return b"\0keeper\0" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def init_pid(store, name):
    for pid in sandbox_cgroup_pids(name):
        if is_init(pid) or is_keeper(pid):
            return pid
    raise AssertionError(f"no init of {name}")


def end_by_fault(process):
    """How a child ends after a signal that writes a core file if it may: os.CLD_DUMPED or os.CLD_KILLED."""
    os.kill(process.pid, signal.SIGSEGV)
    how = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    process.wait()
    return how.si_code


def parent_pid(pid):
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def monitor_pid(name):
    return next((pid for pid, line in processes().items() if name in line and "monitor" in line), None)


def census(store_id, directory):
    """This store's objects on the host outside its directory. Empty lists: no leftovers."""
    marks = f"moorage-{store_id}"
    mounts = [l for l in pathlib.Path("/proc/self/mounts").read_text().splitlines() if marks in l or str(directory) in l]
    cgroups = [top for top, _, _ in os.walk("/sys/fs/cgroup") if marks in top]
    return {"mounts": mounts, "cgroups": cgroups, "processes": [l for l in processes().values() if marks in l]}


def mount_image(daemon, file_system, options="loop", size=2 << 30):
    """Mounts a new image as the store of a daemon that has not been started."""
    image = daemon.directory / "disk.img"
    with open(image, "wb") as file:
        file.truncate(size)
    run(*file_system, image)
    run("mount", "-o", options, image, daemon.store)
    os.chmod(daemon.store, 0o700)


class TestCase(unittest.TestCase):
    """A daemon for the class, with one repository served over git://."""

    settings = {}
    files = None
    file_system = None  # a mkfs and its options: puts the store in an image
    image_bytes = 2 << 30

    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(cls.settings)
        if cls.file_system:
            cls.addClassCleanup(lambda: run("rm", "-rf", cls.daemon.directory))
            mount_image(cls.daemon, cls.file_system, size=cls.image_bytes)
            cls.addClassCleanup(lambda: run("umount", cls.daemon.store, check=False))  # if setUpClass fails
        cls.upstream = cls.daemon.directory / "upstream"
        cls.upstream.mkdir()
        cls.first_commit = make_repository(cls.upstream / "acme" / "shop", cls.files)
        cls.git_server = GitServer(cls.upstream)
        cls.addClassCleanup(lambda: cls.git_server.stop())  # also after a failure below; a test may replace it
        cls.url = cls.git_server.url("acme/shop")
        cls.daemon.start()
        cls.client = cls.daemon.client

    @classmethod
    def tearDownClass(cls):
        store_id = cls.daemon.store_id() if cls.daemon.process.poll() is None else None
        cls.daemon.close()
        if cls.file_system:
            run("umount", cls.daemon.store)
        if store_id:
            left = census(store_id, cls.daemon.directory)
            assert not any(left.values()), f"left behind: {left}"
