"""Arguments, input and output of a command are those that it would have here."""

import contextlib
import hashlib
import json
import os
import pty
import shlex
import signal
import socket
import subprocess
import threading

import harness
import raw_api

COUNT = ["python3", "-c", "import sys; a = sys.argv[1:]; print(len(a), sum(map(len, a)), a[-1])"]


class Arguments(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client.create(repo_url=cls.url, name="args")
        cls.client.start("args")

    def counted(self, words):
        run = self.daemon.cli("exec", "args", "--", *COUNT, *words, check=False)
        self.assertEqual(run.stdout.decode().split(), [str(len(words)), str(sum(map(len, words))), words[-1]], run.stderr[-500:])

    def test_20000_arguments_arrive(self):
        words = [f"src/module-{n}/file.cc" for n in range(20_000)]
        self.counted(words)
        last = self.client.execs("args")[0]
        self.assertEqual(last["argv"][-1], words[-1])
        self.assertIn(b"python3", self.daemon.cli("history", "args").stdout)

    def test_the_longest_argument_of_linux_arrives_and_a_longer_one_names_the_limit(self):
        self.counted(["x" * (128 * 1024 - 1)])
        with self.assertRaisesRegex(raw_api.ApiError, r"argv\[1\] has 128K, and Linux allows 128 KiB \(MAX_ARG_STRLEN\)"):
            self.client.exec("args", ["echo", "x" * (128 * 1024)])

    def test_two_megabytes_of_odd_bytes_arrive_and_more_name_the_limit(self):
        words = ["\x01" * 100_000] * 19
        code = "import sys; print(len(sys.argv), sum(map(len, sys.argv[1:])), set(''.join(sys.argv[1:])) == {chr(1)})"
        run = self.daemon.cli("exec", "args", "--", "python3", "-c", code, *words, check=False)
        self.assertEqual((run.returncode, run.stdout), (0, b"20 1900000 True\n"), run.stderr[-500:])
        with self.assertRaisesRegex(raw_api.ApiError, r"22 arguments and 0 variables take 2100\d+ bytes, and Linux allows 2 MiB"):
            self.client.exec("args", ["true", *["y" * 100_000] * 21])

    def test_a_body_over_its_limit_names_the_setting(self):
        with self.assertRaisesRegex(raw_api.ApiError, "the JSON body is larger than 4194304 bytes") as caught:
            self.client.exec("args", ["true", "y" * (5 << 20)])
        self.assertIn("api.max_json_bytes", str(caught.exception.hint))


class Streams(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client.create(repo_url=cls.url, name="io")
        cls.client.start("io")
        cls.list = cls.daemon.directory / "list"
        cls.list.write_text("one\ntwo\nthree\n")

    def test_a_shell_ends_when_its_client_is_terminated(self):
        ours, its = pty.openpty()
        with open(ours, "rb", buffering=0) as terminal:
            client = self.daemon.cli_popen("shell", "io", stdin=its, stdout=its, stderr=its)
            os.close(its)
            seen = b""
            while b"$ " not in seen:
                seen += terminal.read(1000)
            client.terminate()  # as timeout(1) does; an interactive shell ignores TERM
            self.assertEqual(client.wait(30), 128 + signal.SIGHUP)
        self.assertEqual(self.client.execs("io")[0]["state"], "signalled")

    def shell(self, script, **options):
        """A script of the caller's shell; `run` is a command in the workspace, `list` a file of three lines."""
        words = f"run() {{ {shlex.quote(str(harness.BIN / 'moorage'))} exec \"$@\"; }}; list={shlex.quote(str(self.list))}; "
        environment = {"PATH": os.environ["PATH"], "HOME": "/root", "MOORAGE_SOCKET": str(self.daemon.socket)}
        done = subprocess.run(["bash", "-c", words + script], env=environment, capture_output=True, check=False, timeout=120 * harness.PATIENCE, **options)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        return done.stdout.decode()

    def test_a_loop_keeps_its_input(self):
        loop = 'while read -r line; do run io -- echo "got $line"; done'
        for script in (f'{loop} < "$list"', f'cat "$list" | {loop}', f'cat "$list" | {{ sleep 0.2; {loop}; }}'):
            self.assertEqual(self.shell(script), "got one\ngot two\ngot three\n", script)

    def test_a_command_that_reads_gets_a_pipe_or_a_file(self):
        for script in ('run io -- cat < "$list"', 'cat "$list" | run io -- cat', '{ echo one; sleep 0.2; echo two; sleep 0.2; echo three; } | run io -- cat'):
            self.assertEqual(self.shell(script), "one\ntwo\nthree\n", script)

    def test_unread_input_is_left_for_the_next_command(self):
        for source, end in (('cat "$list" | ', ""), ("", ' < "$list"')):
            script = source + '{ run io -- sh -c "read a; echo 1 \\$a"; run io -- sh -c "read a; echo 2 \\$a"; cat; }' + end
            self.assertEqual(self.shell(script), "1 one\n2 two\nthree\n", script)

    def test_a_socket_is_shared_like_a_pipe(self):
        """As node gives them to its children."""
        script = 'run io -- true; run io -- sh -c "read a; echo 1 \\$a"; run io -- sh -c "read a; echo 2 \\$a"; cat'
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.sendall(self.list.read_bytes())
            ours.shutdown(socket.SHUT_WR)
            self.assertEqual(self.shell(script, stdin=theirs), "1 one\n2 two\nthree\n")

    def test_a_large_socket_is_read_in_part(self):
        script = "run io -- python3 -c 'import os; n = 3000000\nwhile n: n -= os.write(1, os.read(0, min(n, 65536)))' | sha256sum; cat | sha256sum"
        data = "".join(f"{n}\n" for n in range(1, 1_000_001)).encode()
        ours, theirs = socket.socketpair()

        def send():
            with ours:
                ours.sendall(data)

        sender = threading.Thread(target=send)
        sender.start()
        with theirs:
            expected = [hashlib.sha256(part).hexdigest() for part in (data[:3_000_000], data[3_000_000:])]
            self.assertEqual(self.shell(script, stdin=theirs).split()[::2], expected)
        sender.join()

    def test_a_large_pipe_is_read_in_part(self):
        script = "seq 1 1000000 | { run io -- python3 -c 'import os; n = 3000000\nwhile n: n -= os.write(1, os.read(0, min(n, 65536)))' | sha256sum; cat | sha256sum; }"
        data = "".join(f"{n}\n" for n in range(1, 1_000_001)).encode()
        expected = [hashlib.sha256(part).hexdigest() for part in (data[:3_000_000], data[3_000_000:])]
        self.assertEqual(self.shell(script).split()[::2], expected)

    def test_i_takes_all_of_it(self):
        self.assertEqual(self.shell('cat "$list" | { run io -i -- sh -c "read a; echo \\$a"; cat; }'), "one\n")
        self.assertEqual(self.shell('run io -n -- cat < "$list"; echo end'), "end\n")

    MIXED = ["sh", "-c", "for i in $(seq 300); do echo out $i; echo err $i >&2; done"]
    IN_ORDER = "".join(f"out {n}\nerr {n}\n" for n in range(1, 301))

    def test_one_pipe_or_file_gets_lines_in_the_order_of_writing(self):
        run = self.daemon.cli_popen("exec", "io", "--", *self.MIXED, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual((run.communicate()[0].decode(), run.returncode), (self.IN_ORDER, 0))
        self.assertTrue(self.client.execs("io")[0]["merge_output"])
        with open(self.daemon.directory / "both", "wb") as file:
            self.daemon.cli("exec", "io", "--", *self.MIXED, capture_output=False, stdout=file, stderr=file)
        self.assertEqual((self.daemon.directory / "both").read_text(), self.IN_ORDER)

    def test_a_terminal_gets_lines_in_the_order_of_writing(self):
        ours, theirs = pty.openpty()
        run = self.daemon.cli_popen("exec", "io", "-n", "--", *self.MIXED, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL)
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # EIO: closed
            while piece := os.read(ours, 65536):
                shown += piece
        os.close(ours)
        self.assertEqual((run.wait(), shown.decode().replace("\r\n", "\n")), (0, self.IN_ORDER))

    def test_two_outputs_stay_apart(self):
        run = self.daemon.cli("exec", "io", "--", *self.MIXED)
        self.assertEqual([run.stdout.decode(), run.stderr.decode()],
                         ["".join(f"{word} {n}\n" for n in range(1, 301)) for word in ("out", "err")])
        self.assertFalse(self.client.execs("io")[0]["merge_output"])
        captured = self.daemon.cli_popen("--json", "exec", "io", "--", "sh", "-c", "echo o; echo e >&2", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual({key: value for key, value in json.loads(captured.communicate()[0]).items() if key in ("stdout", "stderr")}, {"stdout": "o\n", "stderr": "e\n"})


if __name__ == "__main__":
    harness.unittest.main()
