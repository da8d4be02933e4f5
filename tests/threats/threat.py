"""The base of every threat test.

A test is one row of the threat list. It tries the attack against the real daemon and the real sandbox, and then
shows that the attack works without its defense (`weakened`: by a preloaded library, see weaken.cc, and on
Docker by a proxy before the engine, see weak_engine.py), or from a place without the defense (host
root, plain git). A test whose control fails proves nothing, so it fails.
"""

import contextlib
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import harness  # noqa: E402
from weak_engine import WeakEngine, engine  # noqa: E402

# The greatest privileges of an attacker.
USERS = ("user", "root") if harness.HAS_ROOT else ("user",)
ATTACKER = USERS[-1]
ON_DOCKER = harness.BACKEND.startswith("docker")

WEAKEN = pathlib.Path(os.environ.get("MOORAGE_WEAKEN", harness.BIN.parent / "tests/threats/libweaken.so"))

# Asan must be the first library of a program, unless configured otherwise.
ASAN_OPTIONS = ":".join(filter(None, (os.environ.get("ASAN_OPTIONS"), "verify_asan_link_order=0")))


def threat(row, severity, attack, answer, control):
    """row: number in the threat list; severity: C, H or M; control: how the test shows that it can fail."""

    def mark(function):
        function.threat = {"row": row, "severity": severity, "attack": attack, "answer": answer, "control": control}
        function.__doc__ = f"row {row} ({severity}): {attack}"
        return function

    return mark


def host_id(pid):
    """Host user of the process."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1])


class Threats(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.libexec = pathlib.Path(tempfile.mkdtemp(prefix="moorage-libexec-", dir=harness.BASE))
        cls.addClassCleanup(harness.shutil.rmtree, cls.libexec)
        cls.off = cls.libexec / "weaken"
        cls.off.write_text("")
        for name in ("moorage-warden", "moorage-egress", "moorage-link", "moorage-outpost", "networks"):
            (cls.libexec / name).symlink_to(harness.BIN / name)
        launch = cls.libexec / "moorage-launch"
        program = shlex.quote(str(harness.BIN / "moorage-launch"))
        shared = f"nsenter --target={cls.start_holder()} --net --ipc" if not ON_DOCKER else ""
        launch.write_text(f'#!/bin/sh\nWEAKEN=$(cat {shlex.quote(str(cls.off))})\n[ -z "$WEAKEN" ] && exec {program}\n'
                          f"export WEAKEN LD_PRELOAD={shlex.quote(str(WEAKEN))} ASAN_OPTIONS={shlex.quote(ASAN_OPTIONS)}\nexec {shared} {program}\n")
        launch.chmod(0o755)
        cls.settings = {**cls.settings, "libexec_directory": str(cls.libexec)}
        if ON_DOCKER:
            cls.engine = WeakEngine(cls.libexec, os.environ[harness.ENGINES[harness.BACKEND]], cls.off)
            cls.addClassCleanup(cls.engine.close)
            cls.settings["docker.socket"] = str(cls.engine.path)
        super().setUpClass()
        # A host file that must not be visible, readable or writable from inside.
        cls.canary = cls.daemon.directory / "host-secret"
        cls.canary.write_text("the host's secret\n")
        # World-accessible, so that only the tested defense protects it.
        cls.daemon.directory.chmod(0o755)
        cls.canary.chmod(0o644)
        cls.client.create(repo_url=cls.url, name="jail")

    @classmethod
    def start_holder(cls):
        """A process with the namespaces that a weakened sandbox of LXC shares: the host's own would be changed."""
        holder = subprocess.Popen(["unshare", "--net", "--ipc", "sleep", "1000000"])
        cls.addClassCleanup(holder.wait)
        cls.addClassCleanup(holder.kill)
        harness.wait_until(lambda: os.readlink(f"/proc/{holder.pid}/ns/ipc") != os.readlink("/proc/self/ns/ipc"), what="the holder")
        cls.holder = holder
        return holder.pid

    def holder_pid(self):
        return self.engine.holder_pid() if ON_DOCKER else self.holder.pid

    def sh(self, script, name="jail", user="user", **fields):
        """Runs a script inside; returns standard output as text, and fails with its standard error."""
        return self.client.exec(name, ["bash", "-c", script], user=user, **fields)

    def out(self, script, **fields):
        return self.sh(script, **fields).stdout.decode(errors="replace").strip()

    def python(self, source, name="jail", user=ATTACKER, **fields):
        """Output of a Python program inside. Root there has all privileges of a sandbox's root."""
        return self._printed(self.client.exec(name, ["python3", "-c", source], user=user, **fields))

    def _printed(self, result):
        self.assertEqual(result.exit_code, 0, result.stderr.decode(errors="replace"))
        return result.stdout.decode(errors="replace").strip()

    @staticmethod
    def on_host(source):
        return harness.run("python3", "-c", source).stdout.decode(errors="replace").strip()

    def race(self):
        """Shell text: `d`, with a file named like the canary, and a link to the canary's directory swap places forever."""
        return (f"mkdir -p d; echo inside > d/{self.canary.name}; ln -sfn {self.canary.parent} l; "
                "python3 -c 'import ctypes\nwhile True: ctypes.CDLL(None).renameat2(-100, b\"d\", -100, b\"l\", 2)' & wait")

    def assert_the_race_can_be_won(self):
        """For an attacker of a daemon whose openat2 resolves like the host."""
        with weak_daemon("resolve") as weak:
            weak.client.create(repo_url=self.url, name="open")
            weak.client.start_exec("open", ["bash", "-c", self.race()])

            def outside():
                try:
                    return weak.client.read_file("open", f"d/{self.canary.name}") == self.canary.read_bytes()
                except harness.raw_api.ApiError as error:
                    return "another mount" in error.message  # the host's file was opened; a later check refused it

            harness.wait_until(outside, 60, "the race is won where nothing guards")

    @contextlib.contextmanager
    def weakened(self, *defences):
        """A workspace whose sandbox lacks these defenses; other sandboxes on the host keep theirs."""
        name = "weak-" + "-".join(defences)
        self.off.write_text(" ".join(defences))
        try:
            self.client.create(repo_url=self.url, name=name)
            try:
                self.client.exec(name, ["true"])
                self.off.write_text("")
                yield name
            finally:
                self.client.delete(name, purge=True)
        finally:
            self.off.write_text("")


@contextlib.contextmanager
def daemon(settings=None, prefix=(), **environment):
    """Another daemon with its own store, in a with statement. `prefix`: words before the program."""
    other = harness.Daemon(settings)
    other.environment.update(environment)
    try:
        other.start(prefix=prefix)
        yield other
        other.environment = {"PATH": other.environment["PATH"]}
        other.close()
    finally:
        other.remove()


def weak_daemon(*defences, **options):
    """A daemon without these defenses; its children are not affected."""
    return daemon(LD_PRELOAD=str(WEAKEN), WEAKEN=" ".join(defences), ASAN_OPTIONS=ASAN_OPTIONS, **options)


# An errno's name, or "ok", for a call made inside or on the host.
TRY = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def attempt(call):
    try: call(); return "ok"
    except OSError as error: return errno.errorcode[error.errno]
def system_call(number, *arguments):
    ctypes.set_errno(0)
    if libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]) < 0:
        raise OSError(ctypes.get_errno(), "")
"""
