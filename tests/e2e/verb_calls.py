"""The verbs of a workspace, each as one function that calls it through the daemon and checks what it did. A function returns None,
or in words what is missing on that backend. A refusal by the daemon (unsupported) is its own reason.

VERBS has them in the order of the table in docs/backends.md."""

import io
import time

import harness
import raw_api

LEFT_S = 60  # for what a provider takes its time with
FORKS = """import os, signal, time
children = []
try:
    for _ in range(150):
        children.append(os.fork())
        if children[-1] == 0:
            time.sleep(60)
            os._exit(0)
finally:
    for child in children:
        os.kill(child, signal.SIGKILL)
"""


class Task:
    """A workspace on one backend."""

    def __init__(self, test, backend, name):
        self.test, self.backend, self.name = test, backend, name
        self.client, self.daemon = test.client, test.daemon

    def out(self, script, name=None, **fields):
        result = self.client.exec(name or self.name, ["sh", "-c", script], **fields)
        self.test.assertEqual(result.exit_code, 0, result.stderr)
        return result.stdout.decode().strip()

    def begin(self, script, **fields):
        return self.client.start_exec(self.name, ["sh", "-c", script], **fields)["id"]

    def ended(self, *argv):
        """Its record after its end."""
        return self.client.wait(self.client.start_exec(self.name, argv)["id"])

    def until(self, exec_id, text):
        """Its output so far, once it has that text."""
        def found():
            ended = self.client.get_exec(exec_id)
            output = self.client.raw_output(exec_id)
            if text not in output and ended["state"] != "running":
                raise AssertionError(f"no {text} in {output}: {ended}")
            return output if text in output else None
        return harness.wait_until(found, LEFT_S, f"{text} in the output")

    def end(self, exec_id):
        return self.client.wait(exec_id)

    def equal(self, *values):
        self.test.assertEqual(*values)


def run(task):
    result = task.client.exec(task.name, ["sh", "-c", "cat; echo err >&2; echo made > made; exit 3"], stdin=b"in")
    task.equal((result.stdout, result.stderr, result.exit_code), (b"in", b"err\n", 3))
    task.equal(task.client.read_file(task.name, "made"), b"made\n")


def attach(task):
    exec_id = task.begin("echo ready; read line; echo got $line; exit 4", stdin=True)
    task.until(exec_id, b"ready")
    attached = task.daemon.cli("attach", exec_id, input=b"typed\n", check=False)
    task.equal((attached.stdout.splitlines()[-1], attached.returncode), (b"got typed", 4))


def shell(task):
    exec_id = task.client.start_exec(task.name, ["bash", "--norc"], tty={"columns": 80, "rows": 24})["id"]
    sent = 0
    for line, expected in ((b"stty size\n", b"24 80"), (b"echo again; stty size\n", b"30 100"), (b"exit 7\n", b"exit")):
        if expected == b"30 100":
            task.client.resize(exec_id, 100, 30)
        sent = task.client.send_input(exec_id, line, offset=sent)
        task.until(exec_id, expected)
    task.equal(task.end(exec_id)["exit_code"], 7)


def logs(task):
    exec_id = task.begin("for i in $(seq 40); do echo line $i; sleep 0.05; done")
    during = task.until(exec_id, b"line 5\n")
    with task.client.output(exec_id, follow=True) as followed:
        whole = b"".join(payload for kind, payload in followed if kind == raw_api.STDOUT)
    task.equal(whole, b"".join(b"line %d\n" % i for i in range(1, 41)))
    task.equal(bytes(during) + bytes(task.client.raw_output(exec_id, offset=len(during))), whole)


def signal(task):
    exec_id = task.begin("trap 'echo caught; exit 9' USR1; echo ready; while :; do sleep 0.1; done")
    task.until(exec_id, b"ready")
    task.client.signal(exec_id, "USR1")
    task.equal(task.end(exec_id)["exit_code"], 9)


def cancel(task):
    exec_id = task.begin("sleep 98765 & echo ready; wait")
    task.until(exec_id, b"ready")
    task.client.cancel(exec_id)
    end = task.end(exec_id)
    task.equal((end["state"], end["category"]), ("cancelled", "cancelled"))
    harness.wait_until(lambda: task.out("grep -l 9876[5] /proc/[0-9]*/cmdline | wc -l") == "0", LEFT_S, "the end of its child")


def timeout(task):
    end = task.end(task.begin("sleep 1000", timeout_ms=500))
    task.equal((end["state"], end["category"]), ("timed_out", "timeout"))


def categories(task):
    found = [task.ended(*argv).get("category") for argv in
             (["/no/such/program"], ["/etc/passwd"], ["sh", "-c", "kill -SEGV $$"], ["false"])]
    task.equal(found, ["not_found", "not_executable", "signal", None])


def memory(task):
    """Never more than it may have, where nothing holds the limit."""
    end = task.ended("sh", "-c", "head -c 400000000 /dev/zero | tail -c 400000000 > /dev/null; exit $?")
    if end.get("exit_code") == 0:
        return "no limit holds: the login on its machine may not make control groups"
    return None if end.get("category") == "out_of_memory" else "the limit holds, but the machine does not say whose memory it was"


def processes(task):
    end = task.ended("python3", "-c", FORKS)
    if end.get("exit_code") == 0:
        return "no limit holds: the login on its machine may not make control groups"
    return None if end.get("category") == "pids_limit" else "the limit holds, but the machine does not say who reached it"


def diff(task):
    task.out("echo changed >> README.md; echo new > new.txt")
    patch = task.client.diff(task.name)
    for expected in (b"+changed", b"new.txt"):
        task.test.assertIn(expected, patch)
    task.test.assertIn("new.txt", [each["path"] for each in task.client.status(task.name)["files"]])


def snapshot(task):
    exec_id = task.begin("echo before > state; echo ready; sleep 1000")
    task.until(exec_id, b"ready")
    task.client.snapshot(task.name, name="before")
    task.equal(task.client.get_exec(exec_id)["state"], "running")
    task.client.cancel(exec_id)
    task.end(exec_id)


def restore(task):
    task.out("echo after > state")
    task.client.restore(task.name, "before")
    task.equal(task.out("cat state"), "before")


def fork(task):
    child = f"{task.name}-child"
    task.client.fork(task.name, names=[child])
    task.equal(task.out("cat state; echo other > state", name=child), "before")
    task.equal(task.out("cat state"), "before")
    task.client.delete(child, purge=True)


def best_of(task):
    began = task.client.best_of(task.name, each="echo {i} > attempt", test="grep 2 attempt", count=2, promote="first-passing")
    found = task.client.get_best_of(began["id"], wait_s=120)
    task.equal((found["state"], [each["state"] for each in found["attempts"]]), ("done", ["failed", "passed"]))
    task.equal(task.out("cat attempt"), "2")
    for each in found["attempts"]:
        task.client.delete(each["name"], purge=True)


def move(task):
    digest = "find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum; cat ~/of-home"
    task.out("echo h > ~/of-home")
    before = task.out(digest)
    for backend in ("docker" if task.backend == "lxc" else "lxc", task.backend):
        if backend not in task.test.backends:
            continue
        task.client.move(task.name, backend=backend)
        task.equal(task.client.workspace(task.name)["backend"], backend)
        task.equal(task.out(digest), before)


def archive(task):
    before = task.out("cat state ~/of-home")
    task.client.stop(task.name)
    task.equal(task.client.archive(task.name)["state"], "archived")
    task.equal(task.out("cat state ~/of-home"), before)


def export(task):
    file = io.BytesIO()
    task.client.export(task.name, file)
    copy = task.client.import_(file.getvalue(), name=f"{task.name}-copy")
    task.equal(task.out("cat state ~/of-home", name=copy["id"]), task.out("cat state ~/of-home"))
    task.client.delete(copy["id"], purge=True)


def lease(task):
    with task.client.lease(task.name, holder="agent") as holder:
        try:
            task.client.exec(task.name, ["true"])
            raise AssertionError("a command without the lease ran")
        except raw_api.ApiError as refusal:
            task.test.assertIn("held by agent", str(refusal))
        task.equal(holder.exec(task.name, ["true"]).exit_code, 0)
    task.out("true")


def history(task):
    execs = task.client.history(task.name)["execs"]
    task.test.assertGreater(len(execs), 10)
    task.equal(execs[0]["exit_code"], 3)
    task.equal(task.client.raw_output(execs[0]["id"], stream="stdout"), b"in")


def files(task):
    client, name = task.client, task.name
    client.start(name)
    client.write_file(name, "api/data", bytes(range(256)) * 100) if client.make_directory(name, "api") is None else None
    client.make_symlink(name, "api/link", "data")
    client.move_file(name, "api/data", "api/moved")
    task.equal(task.out("wc -c < api/moved; readlink api/link; echo inside > api/inside"), "25600\ndata")
    task.equal(client.read_file(name, "api/inside"), b"inside\n")
    task.equal(sorted(each["name"] for each in client.list_files(name, "api")["entries"]), ["inside", "link", "moved"])
    client.remove_file(name, "api", recursive=True)
    task.equal(task.out("ls -d api 2>&1 || echo gone").splitlines()[-1], "gone")


def stop(task):
    task.out("echo kept > kept")
    before = task.client.workspace(task.name)["sandbox"]["id"]
    task.client.stop(task.name)
    task.equal(task.client.read_file(task.name, "kept"), b"kept\n")
    task.equal(task.out("cat kept"), "kept")
    task.test.assertNotEqual(task.client.workspace(task.name)["sandbox"]["id"], before)


def delete(task):
    task.client.delete(task.name)
    task.client.undelete(task.name)
    task.equal(task.out("cat kept"), "kept")


def idle_stop(task):
    """With a daemon that stops them after a second."""
    task.out("echo edit > edit")
    id_ = task.client.workspace(task.name)["id"]

    def stopped():
        time.sleep(0.2)
        return not next(each for each in task.client.workspaces() if each["id"] == id_).get("sandbox")
    harness.wait_until(stopped, LEFT_S, "the idle stop")
    task.equal(task.out("cat edit"), "edit")


VERBS = {
    "exec, with input": run,
    "attach": attach,
    "shell with a terminal, resized": shell,
    "logs from an offset, during and after": logs,
    "signal": signal,
    "cancel, with all that it started": cancel,
    "timeout": timeout,
    "categories of ends": categories,
    "limit of memory": memory,
    "limit of processes": processes,
    "file API": files,
    "diff, status": diff,
    "snapshot while a command runs": snapshot,
    "restore": restore,
    "fork": fork,
    "best-of, promote": best_of,
    "move away and back": move,
    "archive, unarchive": archive,
    "export, import": export,
    "lease": lease,
    "history": history,
    "stop, start": stop,
    "delete, undelete": delete,
}
