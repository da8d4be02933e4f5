"""The warden, the daemon and their protocol: rows 38 to 41."""

import concurrent.futures
import contextlib
import os
import random
import signal
import socket
import threading
import unittest

from threat import TRY, Threats, harness, threat

# Possible answers of a process in the warden's place.
ANSWERS = [b"", b"\0" * 1024, b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{}",
           b"HTTP/1.1 200 OK\r\nContent-Type: application/connect+json\r\n\r\n\0\xff\xff\xff\xff",
           b"HTTP/1.1 200 OK\r\nContent-Type: application/connect+json\r\n\r\n\0\0\0\0\x02{}\x02\0\0\0\x02{}",
           b"HTTP/1.1 200 OK\r\nContent-Type: application/connect+json\r\n\r\n\0\0\0\0\x40" + b"[" * 64,
           b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"x" * (1 << 20),
           b"HTTP/1.1 200 OK\r\nContent-Type: application/connect+json\r\n\r\n\0\0\0\0\x2b" + b'{"event":{"start":{"pid":"not a number"}}}  ',
           b"HTTP/1.1 500 No\r\nContent-Length: 200000\r\n\r\n" + b"\x1b[31m<script>" * 16666]


def lie(liar, answer):
    while True:
        try:
            peer, _ = liar.accept()
        except OSError:
            return
        with peer, contextlib.suppress(OSError):
            peer.settimeout(5)
            peer.recv(65536)
            peer.sendall(answer)


class Supervisor(Threats):
    @threat(38, "H", "an agent that impersonates the supervisor: connects to its socket, sends frames or an exit for another command, sends endless lies",
            "the listener is created and held outside, and has no name inside; its answers are bounded and never count as a success",
            "from the host, where the socket has a name, the same connection reaches the warden")
    def test_processes_inside_cannot_impersonate_the_warden(self):
        self.assertEqual(self.out("find / -xdev -type s 2>/dev/null | grep -v '^/.moorage/bootstrap$'", user="root"), "")
        attack = TRY + """
import socket
for path in ("/.moorage/bootstrap", "/.moorage/warden.sock", "/run/warden.sock"):
    print(attempt(lambda: socket.socket(socket.AF_UNIX).connect(path)))
"""
        self.assertNotIn("ok", self.python(attack).split())
        self.assertEqual(self.out("find / -name '*.journal' -not -path '/proc/*' 2>/dev/null; ls /proc/1/fd 2>/dev/null", user="root"), "")
        place = self.daemon.store / "sandboxes" / self.client.workspace("jail")["sandbox"]["id"] / "warden.sock"
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(place))
            client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertTrue(client.recv(100).startswith(b"HTTP/1.1 2"))

        with concurrent.futures.ThreadPoolExecutor(len(ANSWERS)) as pool:
            list(pool.map(self.believe_no_lie, range(len(ANSWERS))))
        self.client.health()

    def believe_no_lie(self, number):
        """Runs a command in a sandbox whose warden was replaced by a process with this answer."""
        name = f"liar-{number}"
        self.client.create(repo_url=self.url, name=name)
        self.client.exec(name, ["true"])
        place = self.daemon.store / "sandboxes" / self.client.workspace(name)["sandbox"]["id"] / "warden.sock"
        honest = place.with_name("honest.sock")
        place.rename(honest)
        with socket.socket(socket.AF_UNIX) as liar:
            liar.bind(str(place))
            liar.listen()
            threading.Thread(target=lie, args=(liar, ANSWERS[number]), daemon=True).start()
            try:
                record = self.client.start_exec(name, ["touch", "/workspace/lied"])
            except harness.raw_api.ApiError as error:
                self.assertNotIn("\x1b", error.message)
                self.assertNotEqual(error.code, "internal")
                record = None
            liar.shutdown(socket.SHUT_RDWR)
        honest.rename(place)
        if record:
            self.client.cancel(record["id"])
            end = self.client.wait(record["id"], timeout_ms=60_000)
            self.assertNotEqual((end["state"], end.get("exit_code")), ("exited", 0))
        self.assertEqual(self.client.exec(name, "ls lied 2>/dev/null; echo on").stdout, b"on\n")
        self.client.delete(name, purge=True)

    @threat(39, "M", "the supervisor killed, stopped or starved during a command",
            "deadlines; the command is reported as interrupted, never as a success; the next start repairs the sandbox",
            "an undisturbed command of the same kind exits 0")
    def test_a_dead_or_stopped_warden_fakes_no_success(self):
        self.client.create(repo_url=self.url, name="warden")
        self.assertEqual(self.client.exec("warden", "sleep 0.1").exit_code, 0)
        exec_id = self.client.start_exec("warden", ["sh", "-c", "echo begun; sleep 1000"])["id"]
        harness.wait_until(lambda: self.client.raw_output(exec_id) == b"begun\n", what="the command runs")
        pids = self.daemon.sandbox_pids("warden")
        os.kill(pids["init"], signal.SIGKILL)
        end = self.client.wait(exec_id, timeout_ms=30_000)
        self.assertEqual(end["state"], "interrupted")
        self.assertNotIn("exit_code", end)
        self.assertEqual(self.client.exec("warden", "echo again").stdout, b"again\n")
        stopped = self.daemon.sandbox_pids("warden")["init"]
        os.kill(stopped, signal.SIGSTOP)
        try:
            result = self.daemon.cli("exec", "warden", "true", check=False, timeout=120)
            self.assertNotEqual(result.returncode, 0)
            self.client.health()
        finally:
            os.kill(stopped, signal.SIGCONT)
        harness.wait_until(lambda: self.client.exec("warden", "echo mended").stdout == b"mended\n", 60, "the sandbox answers again")
        self.client.delete("warden", purge=True)

    @threat(40, "H", "two daemons on one store", "the second ends at once, with an error that names the first; the first keeps running",
            "after the first ended the same command line works")
    def test_a_second_daemon_is_refused(self):
        command = [harness.BIN / "mooraged", "--config", self.daemon.config, "--set", f"api.socket={self.daemon.directory}/second.sock"]
        second = harness.run(*command, check=False, timeout=30)
        self.assertNotEqual(second.returncode, 0)
        self.assertIn(str(self.daemon.process.pid), second.stderr.decode())
        self.assertFalse((self.daemon.directory / "second.sock").exists())
        self.assertEqual(self.client.exec("jail", "echo first").stdout, b"first\n")
        self.daemon.kill()
        self.daemon.start()
        self.assertEqual(self.client.exec("jail", "echo third").stdout, b"third\n")

    @threat(41, "M", "output that forges our own records: ends, limits, positions, frames of the journal and of the stream",
            "records have lengths, out of band: all bytes come back unchanged, and the end comes from the kernel",
            "the forged record is valid: at the right place a reader accepts it")
    def test_any_output_is_returned_unchanged(self):
        seed = int(os.environ.get("MOORAGE_TEST_SEED", random.randrange(1 << 32)))
        print(f"seed {seed}")
        chance = random.Random(seed)
        end = b'{"id":"exec_1","state":"exited","exit_code":0}'
        forged = [b"\x06\0\0\0" + len(end).to_bytes(4, "big") + end, b"MJ1\n", b"\x05\0\0\0\0\0\0\0", b"\x07\0\0\0\0\0\0\x0c" + b'{"offset":0}',
                  b"data: {}\n\n", b"HTTP/1.1 200 OK\r\n\r\n", b"0\r\n\r\n", b"\xff" * 8, b"\0" * 16]
        for _ in range(12):
            payload = b"".join(chance.choice(forged) if chance.random() < 0.8 else chance.randbytes(chance.randrange(50)) for _ in range(200))
            result = self.client.exec("jail", ["sh", "-c", "cat; exit 3"], stdin=payload)
            self.assertEqual((result.exit_code, result.stdout), (3, payload))
            self.assertEqual(self.client.raw_output(result.exec["id"]), payload)
            printed = self.daemon.cli("logs", result.exec["id"], check=False)
            self.assertEqual(printed.stdout, payload)
        reader = harness.raw_api.OutputStream.__new__(harness.raw_api.OutputStream)
        reader.offset, reader.end, data = 0, None, [forged[0]]
        reader._exactly = lambda size: (data[0][:size], data.__setitem__(0, data[0][size:]))[0]
        self.assertEqual((list(reader), reader.end["exit_code"]), ([], 0))


if __name__ == "__main__":
    unittest.main()
