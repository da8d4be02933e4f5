"""Kernel resources counted per user or for the whole host: used up in one sandbox, they stay available to others, the host and the daemon."""

import contextlib
import json
import os
import pathlib
import unittest

from threat import ON_DOCKER, Threats, daemon, harness, threat, weak_daemon

USERNS_OF_ENGINE = harness.BACKEND == "docker-userns"
LONG = os.environ.get("MOORAGE_TEST_LONG") == "1"

# Takes each resource until it is refused, or `most` times, and keeps it while the process lives.
TAKERS = r"""
import ctypes, errno, fcntl, json, os, resource, select, signal, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
held = []
def call(function, *arguments):
    result = function(*arguments)
    if result < 0: raise OSError(ctypes.get_errno(), "")
    return result
def inotify_instances(n): held.append(call(libc.inotify_init1, 0))
def inotify_watches(n):
    if n == 0: held.append(call(libc.inotify_init1, 0))
    path = b"/tmp/w%d" % n
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    try: call(libc.inotify_add_watch, held[-1], path, 2)
    finally:
        if os.geteuid() == 0: os.unlink(path)
def epoll_watches(n):
    # One per descriptor per instance.
    if n == 0: held.append([call(libc.eventfd, 0, 0) for _ in range(500)])
    if n % 500 == 0: held.append(select.epoll())
    held[-1].register(held[0][n % 500], 0)
def queued_signals(n):
    if n == 0: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})
    call(libc.sigqueue, os.getpid(), int(signal.SIGRTMIN), ctypes.c_void_p(0))
def message_queues(n):
    name = b"/%d-%d" % (os.getpid(), n)
    attributes = (ctypes.c_long * 8)(0, 10, 8192, 0, 0, 0, 0, 0)
    held.append(call(libc.mq_open, name, os.O_CREAT | os.O_RDWR, 0o600, attributes))
    libc.mq_unlink(name)
def terminals(n): held.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))
def pipe_pages(n):
    held.extend(os.pipe())
    fcntl.fcntl(held[-1], 1031, 1 << 20)
def take(name, most):
    n = 0
    try:
        while n < most:
            globals()[name](n)
            n += 1
    except OSError as error: return n, errno.errorcode[error.errno]
    return n, "ok"
"""
NAMES = ["inotify_instances", "epoll_watches", "queued_signals", "message_queues", "terminals", "pipe_pages"] + (["inotify_watches"] if LONG else [])
# The usual limit of epoll watches is 4 % of the host's memory, more than a sandbox can use.
FEW_EPOLL_WATCHES = 20_000
# On an engine with userns-remap all sandboxes have one user's ids and share its account: only a limit inside protects others
# (docs/security.md).
APART = ["terminals"] if USERNS_OF_ENGINE else NAMES
USE = TAKERS + "\nprint(json.dumps({name: take(name, 3)[1] for name in sys.argv[1:]}))"
FREE = TAKERS + "\nprint(take('inotify_instances', 100_000)[0])"
HOLD = TAKERS + "\nprint(json.dumps(take(sys.argv[1], int(sys.argv[2]))), flush=True)\ntime.sleep(600)"

# Counted for the whole host without a limit: unavailable inside.
NONE_INSIDE = TAKERS + r"""
def refused(*arguments):
    ctypes.set_errno(0)
    libc.syscall.restype = ctypes.c_long
    return errno.errorcode[ctypes.get_errno()] if libc.syscall(*[ctypes.c_long(a) for a in arguments]) == -1 else "ok"
def attach(level, option):
    # A filter of one instruction that takes all, or a number: to another level the option is another one.
    code = struct.pack("HBBI", 6, 0, 0, 0xffffffff)
    kept = ctypes.create_string_buffer(code)
    value = struct.pack("HxxxxxxQ", 1, ctypes.addressof(kept)) if level == 1 and option > 20 else struct.pack("i", 1)
    try:
        socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).setsockopt(level, option, value)
        return "ok"
    except OSError as error:
        return errno.errorcode[error.errno]
context = ctypes.c_long(0)
print(json.dumps({"io_setup": refused(206, 65536, ctypes.addressof(context)),
                  "mmap": refused(9, 0, 2 << 20, 3, 0x22 | 0x40000, -1, 0),
                  "memfd_create": refused(319, ctypes.addressof(ctypes.create_string_buffer(b"x")), 4),
                  "filter": [attach(1, 26), attach(1, 50), attach(1, 51), attach(1, 52)],
                  "options": [attach(41, 26), attach(41, 49), attach(1, 9)],
                  "plain": [refused(9, 0, 1 << 20, 3, 0x22, -1, 0), refused(319, ctypes.addressof(ctypes.create_string_buffer(b"x")), 1)]}))
"""


@contextlib.contextmanager
def few_epoll_watches():
    """Lowers the per-user limit of the host meanwhile."""
    limit = pathlib.Path("/proc/sys/fs/epoll/max_user_watches")
    usual = limit.read_text()
    limit.write_text(str(FEW_EPOLL_WATCHES))
    try:
        yield
    finally:
        limit.write_text(usual)


class Allowances(Threats):
    settings = {"sandbox.memory_bytes": 1 << 30}

    def hold(self, workspace, name, most=10**9):
        """Takes and keeps it there. Returns the command's id, the number, and the error of the next one."""
        exec_id = self.client.start_exec(workspace, ["python3", "-c", HOLD, name, str(most)])["id"]
        return exec_id, json.loads(harness.wait_until(lambda: self.printed(exec_id), 60, f"{name} are taken"))

    def printed(self, exec_id):
        """Its output so far, after the first line."""
        text = self.client.raw_output(exec_id)
        return text if text.endswith(b"\n") else None

    def let_go(self, exec_id):
        self.client.cancel(exec_id)
        self.client.wait(exec_id, 30_000)

    def free_for_root(self):
        """Number of inotify instances that host root can create now."""
        return int(self.on_host(FREE))

    @threat(75, "C", "use up inotify instances and watches, epoll watches, queued signals, message queues, terminals, pipe pages, AIO contexts, huge pages in one sandbox",
            "each sandbox has its own account in the kernel, or a limit, or the resource is unavailable inside: others, host root, a new sandbox and a starting daemon keep theirs",
            "in a sandbox whose user namespace was created by root, used resources are missing in host root's account")
    def test_resources_used_up_in_one_sandbox_stay_available_to_others(self):
        self.client.create(repo_url=self.url, name="other")
        self.client.exec("other", "true")
        for name in NAMES:
            with self.subTest(name), few_epoll_watches():
                exec_id, (taken, refusal) = self.hold("jail", name)
                self.assertNotEqual(refusal, "ok")
                self.assertGreater(taken, 3)
                if name == "terminals":
                    self.assertLessEqual(taken, 64)
                    with self.assertRaisesRegex(harness.raw_api.ApiError, "kernel limit reached"):
                        self.client.start_exec("jail", ["true"], tty={"columns": 80, "rows": 24})
                if name in APART:
                    self.assertEqual(json.loads(self.python_of(USE, "other", name)), {name: "ok"})
                    self.assertEqual(json.loads(harness.run("python3", "-c", USE, name).stdout), {name: "ok"})
                self.assertEqual(self.client.exec("other", "echo runs").stdout, b"runs\n")
                self.client.create(repo_url=self.url, name="late")
                self.assertEqual(self.client.exec("late", "echo starts").stdout, b"starts\n")
                self.client.delete("late", purge=True)
                if name.startswith(("inotify", "epoll")):
                    with daemon() as another:
                        another.client.health()
                self.let_go(exec_id)
        self.client.delete("other", purge=True)

    def python_of(self, source, workspace, *arguments):
        return self._printed(self.client.exec(workspace, ["python3", "-c", source, *arguments]))

    @unittest.skipIf(USERNS_OF_ENGINE, "all sandboxes of such an engine share one account")
    def test_the_kernel_account_of_a_sandbox_is_not_roots(self):
        before = self.free_for_root()
        exec_id, (taken, _) = self.hold("jail", "inotify_instances", 60)
        self.assertEqual(taken, 60)
        self.assertGreater(self.free_for_root(), before - 40)
        self.let_go(exec_id)
        if ON_DOCKER:
            return
        with self.weakened("account") as weak:
            before = self.free_for_root()
            exec_id, (taken, _) = self.hold(weak, "inotify_instances", 60)
            self.assertLess(self.free_for_root(), before - 40, "without the defence root pays for it")
            self.let_go(exec_id)

    def test_resources_counted_only_for_the_host_are_unavailable_inside(self):
        self.assertEqual(json.loads(self.python(NONE_INSIDE)),
                         {"io_setup": "ENOSYS", "mmap": "ENOMEM", "memfd_create": "ENOMEM", "filter": ["EPERM"] * 4, "options": ["ok"] * 3,
                          "plain": ["ok", "ok"]})

    def test_commands_run_when_the_daemon_has_no_inotify_left(self):
        for missing in ("instances", "watches"):
            with self.subTest(missing), weak_daemon(missing) as other:
                other.client.create(repo_url=self.url, name="polled")
                self.assertEqual(other.client.exec("polled", "echo a; sleep 0.2; echo b; exit 3").exit_code, 3)


if __name__ == "__main__":
    unittest.main()
