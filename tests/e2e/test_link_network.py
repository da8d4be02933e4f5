"""The network of a sandbox on another machine: a real moorage-egress here, a real sshd there, the real keeper between them."""

import contextlib
import hashlib
import os
import pathlib
import shutil
import socket
import tempfile
import threading
import time
import unittest

import harness
import link_egress
import link_keeper
import outside
import ssh_host

GOOD = "good.example"
OTHER = "other.example"
SIZE = 50 << 20

CLIENT = """
import hashlib, socket, struct, sys, threading, time
def connect(name, port, patience=60):
    return socket.create_connection((name, port), patience)
def read_all(connection):
    pieces = []
    while piece := connection.recv(65536): pieces.append(piece)
    return b"".join(pieces)
def outcome(work):
    try: return work()
    except OSError as error: return type(error).__name__
"""


class Echo:
    """Answers with what it got, once that has ended. `connections` lists what came whole."""

    def __init__(self, address, port):
        self.listener = socket.create_server((address, port), backlog=512)
        self.connections = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._answer, args=self.listener.accept()[:1], daemon=True).start()

    def _answer(self, connection):
        with connection, contextlib.suppress(OSError):
            data = b""
            while piece := connection.recv(1 << 16):
                data += piece
            self.connections.append(data)
            connection.sendall(data)

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


class LinkNetworkTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(dir=harness.BASE, prefix="moorage-link-network-"))
        cls.addClassCleanup(shutil.rmtree, cls.root, ignore_errors=True)
        cls.host = ssh_host.SshHost(cls.root / "host").start()
        cls.addClassCleanup(cls.host.close)
        cls.web = outside.Host(outside.address("1.1"), 80)
        cls.addClassCleanup(cls.web.close)
        cls.echo = Echo(outside.address("1.1"), 7)
        cls.addClassCleanup(cls.echo.close)
        cls.count = 0

    def setUp(self):
        type(self).count += 1
        self.keeper = link_keeper.Keeper(self.root / str(self.count), self.host)
        self.addCleanup(shutil.rmtree, self.keeper.directory, ignore_errors=True)
        self.addCleanup(self.keeper.remove_there, check=False)
        self.addCleanup(self.keeper.close)
        self.tags = 0

    def begin(self, late=False):
        """The line comes with the bootstrap, or later by POST."""
        self.egress = link_egress.Egress(self.keeper.directory, {GOOD: outside.address("1.1"), OTHER: outside.address("1.1")},
                                         [link_egress.rule(GOOD, 80, 7)])
        self.addCleanup(self.egress.close)
        if late:
            self.keeper.start()
            self.give_line()
        else:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with ours, theirs:
                self.egress.ask("line", ours.fileno())
                self.keeper.start(network_line=theirs)
        self.keeper.begin()

    def give_line(self):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            self.egress.ask("line", ours.fileno())
            self.keeper.good("/moorage/network", fds=[theirs.fileno()])

    def start(self, script):
        self.tags += 1
        return self.keeper.start_command(f"ex_{self.tags}", "python3", "-c", CLIENT + script)

    def out(self, script, seconds=60):
        self.tags += 1
        output, end = self.keeper.run_command(f"ex_{self.tags}", "python3", "-c", CLIENT + script, seconds=seconds)
        self.assertEqual(end["code"], 0, end)
        return output.decode().strip()

    def get(self, name, port=80):
        return self.out(f"""
def get():
    connection = connect("{name}", {port})
    connection.sendall(b"GET /hello HTTP/1.0\\r\\nHost: {name}\\r\\n\\r\\n")
    return read_all(connection).decode().split("\\r\\n\\r\\n")[1].strip()
print(outcome(get))""")

    def test_a_rule_allows_a_host_and_nothing_else_is_reached(self):
        self.begin()
        self.assertEqual(self.get(GOOD), f"{GOOD} /hello")
        self.assertEqual(self.get(OTHER), "gaierror")
        self.assertIn(self.get(GOOD, 443), ("ConnectionResetError", "ConnectionRefusedError"))
        self.assertIn(self.get(outside.address("1.1")), ("ConnectionRefusedError", "OSError"))
        self.assertEqual(self.out("print(open('/proc/net/dev').read().count(':'))"), "1")
        refused = {(one["host"], one["port"]) for command in range(self.tags + 1)
                   for one in self.egress.sightings(command) if one["kind"] == "refused"}
        self.assertEqual(refused, {(OTHER, 0), (GOOD, 443)})
        # The rules change while it runs.
        self.egress.allow([link_egress.rule(GOOD, 80), link_egress.rule(OTHER, 80)])
        self.assertEqual(self.get(OTHER), f"{OTHER} /hello")

    def test_a_line_that_comes_later_serves_as_one_from_the_start(self):
        self.begin(late=True)
        self.assertEqual(self.get(GOOD), f"{GOOD} /hello")
        self.give_line()  # as a daemon does after a restart of egress
        self.assertEqual(self.get(GOOD), f"{GOOD} /hello")

    def test_questions_come_by_tcp_too(self):
        self.begin()
        answer = self.out(f"""
question = b"\\x12\\x34\\x01\\0\\0\\1\\0\\0\\0\\0\\0\\0" + b"".join(bytes([len(p)]) + p for p in b"{GOOD}".split(b".")) + b"\\0\\0\\1\\0\\1"
connection = connect("127.0.0.53", 53)
connection.sendall(struct.pack(">H", len(question)) + question)
size, = struct.unpack(">H", connection.recv(2))
print(connection.recv(size)[:4].hex())""")
        self.assertEqual(answer, "12348180")

    def test_each_half_of_a_connection_ends_by_itself(self):
        self.begin()
        size = 300_000
        self.assertEqual(self.out(f"""
connection = connect("{GOOD}", 7)
connection.sendall(b"x" * {size})
connection.shutdown(socket.SHUT_WR)
time.sleep(0.3)
print(len(read_all(connection)))"""), str(size))

    def test_100_connections_at_once_carry_their_own_bytes(self):
        self.begin()
        self.assertEqual(self.out(f"""
together = threading.Barrier(100)
def one(number, good):
    connection = connect("{GOOD}", 7)
    together.wait(60)
    sent = b"%d " % number * 10_000
    connection.sendall(sent)
    connection.shutdown(socket.SHUT_WR)
    good.append(read_all(connection) == sent)
good = []
threads = [threading.Thread(target=one, args=(i, good)) for i in range(100)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(good.count(True))"""), "100")

    def test_a_slow_reader_gets_50_mb_whole_and_little_waits_for_it(self):
        self.begin()
        journal = self.start(f"""
connection = connect("{GOOD}", 80)
connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
connection.sendall(b"GET /pattern/{SIZE} HTTP/1.0\\r\\nHost: {GOOD}\\r\\n\\r\\n")
print(len(connection.recv(1)), flush=True)
input_ends = time.time() + 3
while time.time() < input_ends: time.sleep(0.1)
body = read_all(connection).split(b"\\r\\n\\r\\n", 1)[1]
print(len(body), hashlib.sha256(body).hexdigest())""")
        sent = self.web.bytes_sent
        harness.wait_until(lambda: link_keeper.output_of(journal.read_bytes()) == b"1\n", 30, what="the first byte")
        time.sleep(1.5)  # long enough for all of it, if nothing made the server wait
        self.assertLess(self.web.bytes_sent - sent, SIZE * 9 // 10)  # the kernel's buffers of three connections
        self.assertLess(self.memory_of_worker(), 60 << 20)
        harness.wait_until(lambda: link_keeper.end_of(journal.read_bytes()), 120, what="the rest")
        self.assertEqual(link_keeper.output_of(journal.read_bytes()).split()[1:],
                         [str(SIZE).encode(), hashlib.sha256(outside.pattern(SIZE)).hexdigest().encode()])

    def memory_of_worker(self):
        status = pathlib.Path(f"/proc/{self.keeper.worker()}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) << 10

    def test_a_cut_resets_connections_and_later_ones_work(self):
        self.begin()
        for cut in (self.keeper.kill_worker, self.host.cut_connections):
            journal = self.start(f"""
connection = connect("{GOOD}", 7)
connection.sendall(b"half")
print("connected", flush=True)
print(outcome(lambda: read_all(connection)), flush=True)""")
            harness.wait_until(lambda: b"connected" in link_keeper.output_of(journal.read_bytes()), 30, what="a connection")
            cut()
            harness.wait_until(lambda: link_keeper.end_of(journal.read_bytes()), 60, what="the reset")
            self.assertEqual(link_keeper.output_of(journal.read_bytes()).split(), [b"connected", b"ConnectionResetError"])
            harness.wait_until(lambda: self.keeper.worker() and self.keeper.status()["runs"], 30, what="the next stream")
            self.assertEqual(self.get(GOOD), f"{GOOD} /hello")

    def test_a_serve_that_is_killed_there_ends_no_network(self):
        self.begin()
        self.assertEqual(self.get(GOOD), f"{GOOD} /hello")
        for _ in range(3):
            pid = self.serve_there()
            os.kill(pid, 9)
            harness.wait_until(lambda: self.serve_there() not in (None, pid) and self.keeper.status()["runs"], 30, what="another serve")
            self.assertEqual(self.get(GOOD), f"{GOOD} /hello")

    def serve_there(self):
        with contextlib.suppress(FileNotFoundError, IndexError):
            return int((self.host.directory / "sandboxes" / self.keeper.name / "serve.pid").read_text().split()[0])

    def test_a_place_where_egress_stops_listening_is_closed_there(self):
        self.begin()
        self.assertEqual(self.get(GOOD), f"{GOOD} /hello")
        address = self.out(f"print(socket.gethostbyname('{GOOD}'))")
        self.egress.allow([])
        attempts = [self.get(address) for _ in range(3)]
        self.assertEqual(attempts[-1], "ConnectionRefusedError", attempts)


if __name__ == "__main__":
    unittest.main()
