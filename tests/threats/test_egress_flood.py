"""What moorage-egress withstands: very many denied attempts while the rules change, and its own death at any step.

MOORAGE_TEST_LONG=1: a million attempts, 100,000 names and 1,000 changes of the rules.
"""

import contextlib
import os
import pathlib
import signal
import socket
import time
import unittest

from named_hosts import ASK, GET, NamedHosts, outside
from threat import harness

LONG = os.environ.get("MOORAGE_TEST_LONG") == "1"
PROCESSES = 4
QUESTIONS, OVER_TCP, CONNECTIONS, NAMES = (200_000, 30_000, 20_000, 25_000) if LONG else (8_000, 1_000, 600, 1_000)  # of each process
CHANGES = 1_000 if LONG else 40
COMMANDS = 100 if LONG else 5  # with more names each than the egress notes of one command
MOST_ANONYMOUS = 16 << 20  # bytes of memory
MOST_RESIDENT = 32 << 20

# A process of the flood: FIRST is the number of its first name. Prints how many attempts were refused, and each that was not.
FLOOD = ASK + GET + """
import collections, select, sys
FIRST, QUESTIONS, OVER_TCP, CONNECTIONS, NAMES, PORT = map(int, sys.argv[1:])
SPELLINGS = (b"127.0.0.1 127.1 127.0.1 2130706433 0x7f000001 0x7f.0.0.1 0x7f.1 0177.0.0.1 017700000001 127.0.0.01 127.0.0.1. 0 [::1] ::1 "
             b"::ffff:127.0.0.1 [::ffff:7f00:1] 1.0.0.127.in-addr.arpa EVIL.org eViL.oRg evil.org. user@web.example web.example@evil.org "
             b"web.example:443 http://web.example web.example/ web.example%00 web.example%2eevil.org xn--web-.example "
             b"xn--80ak6aa92e.com web-example webxexample evilweb.example web.example.evil.org").split()
SPELLINGS += ["b\\u00fccher.evil.org".encode(), "\\uff57\\uff45\\uff42.example".encode(), "w\\u0435b.example".encode(), b"web.example\\0", b"\\0",
              b"\\xff" * 63 + b".org", b".".join([b"a" * 63] * 3 + [b"b" * 61]), b".".join([b"a"] * 126), b".".join([b"a" * 63] * 20), b"web.ex ample"]
def name(number):
    if number < NAMES: return wire(f"n{FIRST + number}.{('evil.org', 'web.example', 'rebind.example', 'example')[number % 4]}")
    return wire(SPELLINGS[number % len(SPELLINGS)])
KINDS = (1, 1, 28, 65, 16, 255)
refused = collections.Counter()
def judge(answer, number):
    if answer[3] & 15 in (1, 3) and answer[7] == 0: refused["names"] += 1
    else: print("not refused:", name(number), answer)

def ask_over_udp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.connect(("127.0.0.53", 53))
        open_, next_ = {}, 0  # id -> number of the question
        while next_ < QUESTIONS or open_:
            while next_ < QUESTIONS and len(open_) < 32:
                open_[next_ % 65536] = next_
                s.send(question(next_ % 65536, name(next_), KINDS[next_ % 6]))
                next_ += 1
            if select.select([s], [], [], 2)[0]:
                answer = s.recv(65536)
                number = open_.pop(answer[0] << 8 | answer[1], None)
                if number is not None: judge(answer, number)
            else:  # lost
                for id, number in open_.items(): s.send(question(id, name(number), KINDS[number % 6]))

def ask_over_tcp():
    for first in range(0, OVER_TCP, 100):
        with socket.create_connection(("127.0.0.53", 53), 30) as s:
            for number in range(first, first + 100):
                message = question(number % 65536, name(number), KINDS[number % 6])
                s.sendall(len(message).to_bytes(2, "big") + message)
            with s.makefile("rb") as answers:
                for number in range(first, first + 100): judge(answers.read(int.from_bytes(answers.read(2), "big")), number)

def hello(host):
    entry = b"\\0" + len(host).to_bytes(2, "big") + host
    extension = b"\\0\\0" + (len(entry) + 2).to_bytes(2, "big") + len(entry).to_bytes(2, "big") + entry
    body = b"\\3\\3" + b"r" * 32 + b"\\0\\0\\2\\xc0\\x2b\\1\\0" + len(extension).to_bytes(2, "big") + extension
    return b"\\x16\\3\\1" + (len(body) + 4).to_bytes(2, "big") + b"\\1" + len(body).to_bytes(3, "big") + body

def connect():
    address = socket.gethostbyname("web.example")
    hosts = [host[:200] for host in SPELLINGS] + [b"web..example", b".web.example", b""]
    for number in range(CONNECTIONS):
        host = hosts[number % len(hosts)]
        if number % 4 == 0:
            got = get(address, 443, hello(host))
            right = got[:1] in (b"\\x15", b"") or got == "ECONNRESET"
        elif number % 4 < 3:
            request_ = (b"GET /", b"CONNECT " + host + b":443")[number % 4 - 1] + b" HTTP/1.1\\r\\nHost: "
            got = get(address, 80, request_ + (host, b"web.example")[number % 4 - 1] + b"\\r\\n\\r\\n")
            right = got[9:12] == b"403"
        else:
            got = get((address, "198.18.0.1", "127.0.0.1", "127.0.0.53")[number // 4 % 4], (22, 81, 8080, 444)[number // 16 % 4], b"x")
            right = got in (b"", "ECONNRESET", "ECONNREFUSED")
        if number % 10 == 0: get("rebind.example", PORT, b"x")
        if right: refused["connections"] += 1
        else: print("not refused:", number, host, got)

ask_over_udp(), ask_over_tcp(), connect()
print(refused["names"] + refused["connections"])
"""

# A program of each step: creates the file `at`, when it is there, and prints how the connection ended, and after how many seconds.
STEPS = {
    "before the question": """
arrive()
print(get("web.example", 80, request("web.example"), 30))
""",
    "while the name is resolved": """
arrive()
print(get("mute.example", 80, request("mute.example"), 30))
""",
    "in a question over TCP": """
s = socket.create_connection(("127.0.0.53", 53), 30)
s.sendall(b"\\0")
arrive()
print(end_of(s))
""",
    "after the answer": """
address = socket.gethostbyname("web.example")
arrive()
print(get(address, 80, request("web.example"), 30))
""",
    "while dialing": """
s = socket.create_connection(("silent.example", 8080), 30)
s.sendall(b"x")
arrive()
print(end_of(s))
""",
    "in the hello of TLS": """
s = socket.create_connection(("web.example", 443), 30)
s.sendall(b"\\x16\\3\\1\\2\\0\\1")
arrive()
print(end_of(s))
""",
    "in a request": """
s = socket.create_connection(("web.example", 80), 30)
s.sendall(b"GET / HTTP/1.1\\r\\nHost: ")
arrive()
print(end_of(s))
""",
    "in a transfer": """
s = socket.create_connection(("web.example", 80), 30)
s.sendall(request("web.example", "/bytes/100000000"))
size = len(s.recv(1 << 20))
arrive()
print(end_of(s))
""",
}
STEP = GET + """
import os, pathlib, sys, time
def arrive():
    pathlib.Path("at").touch()
    while os.path.exists("at"): time.sleep(0.001)
def end_of(s):
    try:
        size = 0
        while data := s.recv(1 << 20): size += len(data)
        return f"end {size}"
    except OSError as error:
        return errno.errorcode.get(error.errno, "timeout")
"""


class Flood(NamedHosts):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        addresses = [cls.WEB] * 4 + ["127.0.0.1", "169.254.169.254", "10.0.0.1"]
        cls.turns = 0

        def turning(kind):
            if kind != outside.A:
                return []
            cls.turns += 1
            return addresses[cls.turns % len(addresses)]

        cls.dns.names["rebind.example"] = turning
        cls.client.change_network("jail", allow=[f"rebind.example:{cls.everywhere.port}"])

    def start(self, source, *arguments):
        return self.client.start_exec("jail", ["python3", "-c", source, *map(str, arguments)])["id"]

    def end(self, exec_id, seconds=30):
        """Its output, once it ended."""
        code = self.client.wait(exec_id, seconds * 1000).get("exit_code")
        logs = self.daemon.cli("logs", exec_id)
        self.assertEqual(code, 0, logs.stderr)
        return logs.stdout.decode(errors="replace").strip()

    def works(self):
        return "200 OK" in self.get("web.example", 80, b"GET / HTTP/1.1\r\nHost: web.example\r\nConnection: close\r\n\r\n")

    def memory(self, pid):
        lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
        return {line.split(":")[0]: int(line.split()[1]) << 10 for line in lines if line.startswith(("Vm", "Rss"))}

    def test_very_many_denied_attempts_pass_nothing_and_take_bounded_memory(self):
        self.assertTrue(self.works())
        pid, = self.egress_pids()
        before = {host: host.connections for host in (self.trap, self.secure)}
        asked, known = set(), self.dns.names

        class Recording(dict):
            def get(self, name, default=None):
                asked.add(name)
                return known.get(name, default)

        self.dns.names = Recording()
        self.addCleanup(setattr, self.dns, "names", known)
        self.everywhere.reached.clear()
        self.plain.requests.clear()
        began = time.monotonic()
        running = [self.start(FLOOD, number * NAMES, QUESTIONS, OVER_TCP, CONNECTIONS, NAMES, self.everywhere.port)
                   for number in range(PROCESSES)]
        changes = 0
        while changes < CHANGES or self.client.execs("jail", running=True):
            self.client.change_network("jail", **{("allow", "deny", "forget")[changes % 3]: [f"x{changes // 3 % 50}.other.example"]})
            changes += 1
        refused = 0
        for exec_id in running:
            printed = self.end(exec_id, 60)
            self.assertNotIn("not refused", printed)
            refused += int(printed)
        took = time.monotonic() - began
        self.assertEqual(refused, PROCESSES * (QUESTIONS + OVER_TCP + CONNECTIONS))
        for number in range(COMMANDS):
            self.python(ASK + f"for i in range(300): ask(wire(f'm{{i}}.c{number}.evil.org'))")
        self.assertEqual({host: host.connections for host in before}, before)
        self.assertEqual(self.plain.requests, [])
        self.assertLessEqual(asked, {"web.example", "rebind.example"})
        while self.turns < 14:
            self.forget_answers()
            self.get("rebind.example", self.everywhere.port, b"x")
        self.assertEqual(set(self.everywhere.reached), {self.WEB})
        # it is the same process, and it is as good as new
        self.assertEqual(self.egress_pids(), [pid], self.daemon.log_tail())
        use = self.memory(pid)
        files = len(os.listdir(f"/proc/{pid}/fd"))
        print(f"{refused} attempts refused in {took:.0f} s beside {changes} changes of the rules; memory of moorage-egress: "
              f"{use['RssAnon'] >> 10} KiB anonymous, {use['VmHWM'] >> 10} KiB resident at most, {use['VmPeak'] >> 20} MiB of addresses at most; "
              f"{files} descriptors", flush=True)
        if not harness.SANITIZED:
            self.assertIn("268435456", next(line for line in pathlib.Path(f"/proc/{pid}/limits").read_text().splitlines()
                                            if line.startswith("Max address space")))
            self.assertLess(use["RssAnon"], MOST_ANONYMOUS)
            self.assertLess(use["VmHWM"], MOST_RESIDENT)
        self.assertLess(files, 100)
        self.assertTrue(self.works())
        self.dns.names = known
        self.client.change_network("jail", allow=["evil.org"])  # the control: the trap sees what passes
        self.assertIn("200 OK", self.get("evil.org", 80, b"GET / HTTP/1.1\r\nHost: evil.org\r\n\r\n"))
        self.client.change_network("jail", forget=["evil.org"])
        self.assertEqual(self.trap.connections, before[self.trap] + 1)

    def test_a_rule_counts_although_the_egress_takes_no_more_clients(self):
        self.assertTrue(self.works())
        sandbox = self.client.workspace("jail")["sandbox"]["id"]
        with contextlib.ExitStack() as clients:
            for _ in range(100):
                client = clients.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                client.connect(str(self.daemon.store / "sandboxes" / sandbox / "egress.sock"))
            self.client.change_network("jail", deny=["web.example"])
            self.assertEqual(self.get("web.example", 80, b"x"), "no name")
        self.forget_answers()
        harness.wait_until(self.works, what="the network is back")

    @contextlib.contextmanager
    def silent_host(self):
        """At port 8080 of an address: a full queue, so a connection gets no answer."""
        with socket.create_server((self.FLIP, 8080), backlog=0), contextlib.ExitStack() as kept:
            with contextlib.suppress(OSError):
                while True:
                    kept.enter_context(socket.create_connection((self.FLIP, 8080), 0.3))
            yield

    def dialing(self):
        """Whether a connection to the silent host is being made."""
        to = f"{int.from_bytes(socket.inet_aton(self.FLIP), 'little'):08X}:{8080:04X} 02"
        return to in pathlib.Path("/proc/net/tcp").read_text()

    def test_an_egress_that_is_killed_at_any_step_lets_nothing_pass_and_is_back_at_once(self):
        before = self.trap.connections

        def mute(kind):
            raise IndexError  # no answer

        self.dns.names["silent.example"] = self.FLIP
        self.client.change_network("jail", allow=["silent.example:8080", "mute.example"])
        hostile = self.start(GET + """
denied = 0
while not os.path.exists("stop-hostile"):
    got = get("evil.org", 80, request("evil.org"), 3)
    if isinstance(got, bytes) and got: print("passed", got)
    denied += 1
print(denied > 20)
""")
        self.addCleanup(self.client.write_file, "jail", "stop-hostile", b"")
        with self.silent_host():
            for step, source in STEPS.items():
                with self.subTest(step):
                    self.dns.names["mute.example"] = mute
                    self.assertTrue(self.works())
                    self.kill_at(step, source)
        self.client.write_file("jail", "stop-hostile", b"")
        self.assertEqual(self.end(hostile), "True")
        self.assertEqual(self.trap.connections, before)

    def arrived(self):
        with contextlib.suppress(harness.raw_api.ApiError):
            return self.client.read_file("jail", "at") == b""

    def kill_at(self, step, source):
        opened = self.secure.connections
        running = self.start(STEP + source)
        harness.wait_until(self.arrived, what=step)
        if step == "while dialing":
            harness.wait_until(self.dialing, what=step)
        questions = self.dns.questions
        if step == "while the name is resolved":
            self.client.remove_file("jail", "at")
            harness.wait_until(lambda: self.dns.questions > questions, what=step)
        pids = self.egress_pids()
        self.assertEqual(len(pids), 1)
        os.kill(pids[0], signal.SIGKILL)
        killed = time.monotonic()
        if "resolved" not in step:
            self.client.remove_file("jail", "at")
        self.dns.names["mute.example"] = self.WEB
        harness.wait_until(self.works, 10, "the network is back")
        back = time.monotonic() - killed
        printed = self.end(running)
        took = time.monotonic() - killed
        print(f"killed {step}: back within {back:.2f} s; the connection: {printed[:40]} within {took:.2f} s", flush=True)
        if "question" in step and "TCP" not in step or "resolved" in step:
            self.assertIn("200 OK", printed)
        else:
            self.assertRegex(printed, "^(ECONNRESET|ECONNREFUSED|EPIPE|end [0-9]{1,8}|b'')$")
        self.assertEqual(self.secure.connections, opened)


if __name__ == "__main__":
    unittest.main()
