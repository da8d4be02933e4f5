"""Programs that leave children, close streams, exec and daemonize: their output in a sandbox, through pipes and on a
terminal, equals their output to a file here, byte for byte. Output after a command's end counts as late output.

Short: a few rounds. MOORAGE_TEST_LONG=1: 200 of each, or MOORAGE_TEST_ROUNDS.
"""

import concurrent.futures
import os
import pathlib
import subprocess
import tempfile
import time
import unittest

import harness
import raw_api

LONG = bool(os.environ.get("MOORAGE_TEST_LONG"))
ROUNDS = int(os.environ.get("MOORAGE_TEST_ROUNDS", 200 if LONG else 2))
SAME_TIME = 12 if LONG else 4  # they mostly wait


def python(text):
    return ["python3", "-c", text]


def bash(text):
    return ["bash", "-c", text]


DAEMON = """
import os, time
print('parent', flush=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(0.2)
        os.write(1, b'daemon\\n')
    os._exit(0)
"""
PIPED_CHILD = """
import os
r, w = os.pipe()
if os.fork() == 0:
    os.close(w)
    os.write(1, os.read(r, 100))
    os._exit(0)
os.write(w, b'through a pipe\\n')
"""
CLOSES = """
import os
os.write(1, b'first\\n')
if os.fork() == 0:
    os.write(1, b'second\\n')
    os.close(1)
    os._exit(0)
os.wait()
os.close(1)
os.close(0)
"""
NUMBERS = b"".join(b"%d\n" % i for i in range(1, 30001))

# Name: argv, expected output.
PROGRAMS = {
    "process_substitution": (bash("exec > >(tee /dev/null); echo said"), b"said\n"),
    "background_pipeline": (bash("echo END | cat & exit 0"), b"END\n"),
    "popen_and_exit": (python("import subprocess; subprocess.Popen(['sh', '-c', 'echo child'])"), b"child\n"),
    "double_fork_daemon": (python(DAEMON), b"parent\ndaemon\n"),
    "new_session": (bash("setsid sh -c \"while kill -0 $$ 2>/dev/null; do sleep 0.02; done; echo late\" & echo now"), b"now\nlate\n"),
    "piped_child": (python(PIPED_CHILD), b"through a pipe\n"),
    "closes_its_streams": (python(CLOSES), b"first\nsecond\n"),
    "exec_chain": (bash("echo a; exec sh -c 'echo b; exec echo c'"), b"a\nb\nc\n"),
    "exit_trap": (bash("trap 'echo bye' EXIT; echo hi"), b"hi\nbye\n"),
    "long_background": (bash("seq 1 30000 & exit 3"), NUMBERS),
    "long_pipeline": (bash("seq 1 30000 | cat | (cat; exit 0) & exit 0"), NUMBERS),
    "many_children": (bash("yes line | head -n 200 | xargs -P8 -n1 echo"), b"line\n" * 200),
    "parent_killed": (bash("sh -c 'kill -9 $PPID; echo orphan' & wait"), b"orphan\n"),
    "coprocess": (bash("coproc cat; echo x >&${COPROC[1]}; eval \"exec ${COPROC[1]}>&-\"; cat <&${COPROC[0]}"), b"x\n"),
    "children_in_turn": (bash("for i in 1 2 3 4 5; do (echo $i) & wait; done; (echo last) &"), b"1\n2\n3\n4\n5\nlast\n"),
    "threads_and_exit": (python("import os, threading\nt = threading.Thread(target=lambda: os.write(1, b'thread\\n'))\n"
                                "t.start(); t.join(); os.write(1, b'main\\n'); os._exit(0)"), b"thread\nmain\n"),
}


class LastOutput(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client.create(repo_url=cls.url, name="last")
        cls.client.start("last")

    def printed_here(self, argv, expected):
        with tempfile.TemporaryDirectory(dir=harness.BASE) as directory:
            path = pathlib.Path(directory) / "out"
            with open(path, "wb") as out:
                subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL, check=False)
            harness.wait_until(lambda: len(path.read_bytes()) >= len(expected), what="the program's output here")
            return path.read_bytes()

    def logs(self, exec_id):
        with self.client.output(exec_id, late=True) as stream:
            return b"".join(payload for kind, payload in stream if kind in raw_api.OUTPUT_KINDS)

    def check_program(self, name, tty):
        argv, expected = PROGRAMS[name]
        if tty:
            expected = expected.replace(b"\n", b"\r\n")
        record = self.client.start_exec("last", argv, **({"tty": {"columns": 80, "rows": 24}} if tty else {}))
        began = time.monotonic()
        # Thousands of commands may meet a machine that stalls for a minute.
        end = self.client.wait(record["id"], 600_000 if LONG else 60_000)
        self.assertNotEqual(end["state"], "running", (name, tty, record["id"]))
        printed = []

        def is_whole():
            printed[:] = [self.logs(record["id"])]
            return len(printed[0]) >= len(expected)
        harness.wait_until(is_whole, what=f"{name}, tty {tty}: all of its output, of {record['id']}")
        self.assertEqual(printed[0], expected, (name, tty, time.monotonic() - began))

    def test_programs_print_the_same_as_on_the_host(self):
        self.assertEqual(len(PROGRAMS), 16)
        for name, (argv, expected) in PROGRAMS.items():
            self.assertEqual(self.printed_here(argv, expected), expected, name)
        jobs = [(name, tty) for _ in range(ROUNDS) for name in PROGRAMS for tty in (False, True)]
        with concurrent.futures.ThreadPoolExecutor(SAME_TIME) as pool:
            for _ in pool.map(lambda job: self.check_program(*job), jobs):
                pass

    def test_the_last_output_is_in_the_answer(self):
        for name in ("process_substitution", "background_pipeline", "popen_and_exit", "piped_child"):
            argv, expected = PROGRAMS[name]
            for _ in range(5 * ROUNDS):
                self.assertEqual(self.client.exec("last", argv).stdout, expected, name)

    def test_a_command_whose_child_holds_its_output_ends_at_once(self):
        best = min(self.took() for _ in range(5))  # the best, as the machine may be busy
        self.assertLess(best, 0.5 * harness.PATIENCE)

    def took(self):
        began = time.monotonic()
        result = self.client.exec("last", bash("sleep 3600 & echo started"))
        self.assertEqual(result.stdout, b"started\n")
        return time.monotonic() - began

    def test_logs_include_output_after_the_end(self):
        record = self.client.exec("last", bash("(while ! [ -e go ]; do sleep 0.1; done; echo late) & echo now")).exec
        self.assertEqual(self.logs(record["id"]), b"now\n")
        self.client.exec("last", "touch go")
        harness.wait_until(lambda: self.logs(record["id"]) == b"now\nlate\n", what="late output")
        out = self.daemon.cli("logs", record["id"])
        self.assertEqual(out.stdout, b"now\nlate\n")
        self.assertIn(b"written after the command ended, at 20", out.stderr)
        self.assertEqual(self.client.get_exec(record["id"])["output_bytes"], 4)
        with self.client.output(record["id"], follow=True) as stream:  # a follower ends with the command
            self.assertEqual(b"".join(p for k, p in stream if k in raw_api.OUTPUT_KINDS), b"now\n")
        self.daemon.restart()
        self.assertEqual(self.logs(record["id"]), b"now\nlate\n")


class OwnStreams(harness.TestCase):
    """/dev/stdin, /dev/stdout and /dev/stderr can be opened, for any way to run the command."""

    SCRIPT = ("echo out >/dev/stdout; echo err >/dev/stderr; echo fd >/dev/fd/1; "
              "python3 -c 'open(\"/dev/stdout\", \"w\").write(\"python\\n\")'")

    def test_streams_in_exec_with_input_and_on_a_terminal(self):
        self.client.create(repo_url=self.url, name="own")
        result = self.client.exec("own", ["sh", "-c", self.SCRIPT])
        self.assertEqual((result.exit_code, result.stdout, result.stderr), (0, b"out\nfd\npython\n", b"err\n"))
        for path in ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"):
            result = self.client.exec("own", ["cat", path], stdin=b"some input")
            self.assertEqual((result.exit_code, result.stdout), (0, b"some input"), path)
        result = self.client.exec("own", ["sh", "-c", "cat /dev/stdin && echo none"])
        self.assertEqual((result.exit_code, result.stdout), (0, b"none\n"))
        result = self.client.exec("own", ["sh", "-c", self.SCRIPT], tty={"columns": 80, "rows": 24})
        self.assertEqual(result.exit_code, 0)
        self.assertEqual(result.stdout, b"out\r\nerr\r\nfd\r\npython\r\n")

    def test_streams_in_run_and_in_the_background(self):
        out = self.daemon.cli("run", "--repo", self.url, "--", "sh", "-c", self.SCRIPT)
        self.assertEqual(out.stdout, b"out\nfd\npython\n")
        self.client.create(repo_url=self.url, name="back")
        started = self.daemon.cli("exec", "-d", "back", "--", "sh", "-c", self.SCRIPT)
        exec_id = started.stdout.decode().split()[0]
        self.assertEqual(self.client.wait(exec_id)["exit_code"], 0)
        self.assertEqual(self.client.raw_output(exec_id, stream="stdout"), b"out\nfd\npython\n")

    def test_streams_in_pre_stop(self):
        self.client.create(repo_url=self.url, name="hook", pre_stop=self.SCRIPT)
        self.client.exec("hook", "true")
        self.client.stop("hook")
        hook = next(one for one in self.client.history("hook")["execs"] if one.get("hook"))
        self.assertEqual((hook["state"], hook["exit_code"]), ("exited", 0))
        self.assertEqual(self.client.raw_output(hook["id"], stream="stdout"), b"out\nfd\npython\n")


if __name__ == "__main__":
    unittest.main()
