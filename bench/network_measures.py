"""Measures of the network by name: network_client.py in a sandbox, through moorage-egress, and the same on the host."""

import atexit
import contextlib
import functools
import hashlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

import clock
import network_server
from place import say

CLIENT = pathlib.Path(__file__).with_name("network_client.py").read_text()
HOST = f"one.{network_server.DOMAIN}"
RULES = [f"{network_server.DOMAIN}:443,8080", f".{network_server.DOMAIN}:443,8080"]
PLAIN, TLS = 8080, 443
SANDBOXES, CONNECTIONS, SECONDS = 100, 10, 5
KILLS = 5
# Requests to the first are judged, and get a credential; the bytes of the others pass through.
JUDGED, PASSED = (f"{name}.{network_server.SECURE}" for name in ("judged", "passed"))


@functools.cache
def network():
    """The beginning of free addresses for the server: tests use others of loopback."""
    for number in range(200, 250):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
            probe.bind((f"127.{number}.0.53", 53))
            return f"127.{number}.0"
    raise RuntimeError("no free addresses for the server of the network rows")


@functools.cache
def authority():
    """Of the server's certificate."""
    directory = tempfile.TemporaryDirectory(prefix="moorage-bench-ca-")
    atexit.register(directory.cleanup)
    made = network_server.outside.Authority(directory.name)
    made.context(JUDGED, PASSED)
    return made


def settings():
    return {"network.resolvers": [f"{network()}.53"], "network.reachable": [f"{network()}.0/24"], "network.ca_file": str(authority().file)}


def argv(mode, *arguments):
    return ["python3", "-c", CLIENT, mode, *map(str, arguments)]


class Outside:
    """The server, and a way to run clients on the host that use its DNS server."""

    def __init__(self, directory):
        directory.mkdir()
        self.resolvers = directory / "resolv.conf"
        self.resolvers.write_text(f"nameserver {network()}.53\n")
        own = [authority().directory / f"{JUDGED}.{end}" for end in ("pem", "key")]
        server = [sys.executable, network_server.__file__, f"{network()}.53", f"{network()}.10", f"{network()}.11", *own]
        self.process = subprocess.Popen(server, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self.process.stdout.readline() != b"ready\n":
            self.close()
            raise RuntimeError("the server of the network rows did not start")

    def popen(self, mode, *arguments):
        bind = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
        return subprocess.Popen(["unshare", "-m", "sh", "-c", bind, self.resolvers, *argv(mode, *arguments)],
                                env={**os.environ, "SSL_CERT_FILE": str(authority().file)}, stdout=subprocess.PIPE)

    def run(self, mode, *arguments):
        process = self.popen(mode, *arguments)
        return self.result(process)

    @staticmethod
    def result(process):
        output = process.communicate()[0]
        if process.returncode != 0:
            raise RuntimeError(f"a client on the host: exit {process.returncode}")
        return json.loads(output)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Sandbox:
    """A running sandbox that may reach the server, and its clients."""

    def __init__(self, bench):
        self.moorage, self.workspace = bench.moorage, bench.create()
        self.moorage.json("POST", f"/v1/workspaces/{self.workspace}/network", {"allow": RULES})
        self.moorage.start(self.workspace)

    def run(self, mode, *arguments):
        return json.loads(self.moorage.exec(self.workspace, argv(mode, *arguments)))

    def begin(self, mode, *arguments):
        return self.moorage.exec_started(self.workspace, argv(mode, *arguments))

    def result(self, execution):
        ended = self.moorage.json("GET", f"/v1/execs/{execution}/wait?timeout_ms=600000")
        output = self.moorage.call("GET", f"/v1/execs/{execution}/output?raw=1&stream=all", accept="*/*")
        if ended.get("exit_code") != 0:
            raise RuntimeError(f"a client in a sandbox: {ended}\n{output.decode(errors='replace')}")
        return json.loads(output)

    def close(self):
        self.moorage.purge(self.workspace)


def in_turns(bench, outside, sandbox, row, rounds, *client):
    """The same client in the sandbox and on the host, in turns; a list of times or one."""
    for i in range(rounds + 1):  # the first is to warm up
        for name, run in ((row, sandbox.run), (f"{row}/direct", outside.run)):
            times = run(*client)
            if i:
                bench.samples[name] += times if isinstance(times, list) else [times]


def net_connect(bench, rounds=5, n=60):
    """From connect() to the first byte of the answer: plain, with a TLS hello to judge, and with a fresh name."""
    outside, sandbox = bench.peer("outside"), Sandbox(bench)
    in_turns(bench, outside, sandbox, "net_connect", rounds, "connect", HOST, PLAIN, n)
    in_turns(bench, outside, sandbox, "net_connect_tls", rounds, "connect", HOST, TLS, n)
    in_turns(bench, outside, sandbox, "net_connect_fresh", rounds, "fresh", network_server.DOMAIN, PLAIN, n)
    sandbox.close()
    for _ in range(10):  # the first name of a sandbox also starts its egress
        sandbox = Sandbox(bench)
        bench.moorage.exec(sandbox.workspace, ["true"])
        bench.samples["net_connect_first"] += sandbox.run("fresh", network_server.DOMAIN, PLAIN, 1)
        sandbox.close()


def net_throughput(bench, rounds=7, size=10**9):
    outside, sandbox = bench.peer("outside"), Sandbox(bench)
    in_turns(bench, outside, sandbox, "net_throughput", rounds, "get", HOST, TLS, size)
    in_turns(bench, outside, sandbox, "net_upload", rounds, "put", HOST, TLS, size)
    sandbox.close()
    for name in ("net_throughput", "net_upload"):
        ours, direct = (size / 1e3 / clock.percentile(bench.samples[each], 50) for each in (name, f"{name}/direct"))
        say(f"  {name}: {ours:.0f} MB/s, direct {direct:.0f} MB/s")


def net_terminated(bench, rounds=5, n=40, size=10**9):
    """A host whose TLS ends at the egress, with a credential in each request: beside one whose bytes pass through, and
    beside direct TLS."""
    outside = bench.peer("outside")
    with tempfile.NamedTemporaryFile("w", prefix="moorage-bench-secret-") as secret:
        secret.write("sk-bench-9f3ab2c4d5e6")
        secret.flush()
        bench.moorage.json("POST", "/v1/credentials", {"name": "bench", "for": [f"https://{JUDGED}/"], "as": "bearer", "file": secret.name})
        sandbox = Sandbox(bench)
        for i in range(rounds + 1):  # the first is to warm up
            for name, host in (("net_terminated", JUDGED), ("net_terminated/passed", PASSED)):
                times = sandbox.run("https_connect", host, TLS, n)
                bench.samples[name] += times if i else []
        for row, mode in (("net_terminated_get", "https_get"), ("net_terminated_put", "https_put")):
            for i in range(rounds + 1):
                for name, run, host in ((row, sandbox.run, JUDGED), (f"{row}/direct", outside.run, PASSED)):
                    ms = run(mode, host, TLS, size)
                    bench.samples[name] += [ms] if i else []
            ours, direct = (size / 1e3 / clock.percentile(bench.samples[each], 50) for each in (row, f"{row}/direct"))
            say(f"  {row}: {ours:.0f} MB/s, direct {direct:.0f} MB/s")
        sandbox.close()
        bench.moorage.call("DELETE", "/v1/credentials/bench")


def net_sandboxes(bench, rounds=3):
    """The p99 of small requests over all connections of all sandboxes, one a second on each."""
    outside = bench.peer("outside")
    sandboxes = [Sandbox(bench) for _ in range(SANDBOXES)]

    def block(begin_one):
        """begin_one(sandbox, *client) returns a function that waits for the client's times."""
        client = ("requests", HOST, PLAIN, SANDBOXES, CONNECTIONS, SECONDS)
        waits = [begin_one(sandbox, *client) for sandbox in sandboxes]
        return clock.percentile([ms for wait in waits for ms in wait()], 99)

    def inside(sandbox, *client):
        return functools.partial(sandbox.result, sandbox.begin(*client))

    def direct(_, *client):
        return functools.partial(outside.result, outside.popen(*client))

    for _ in range(rounds):
        bench.samples["net_sandboxes"].append(block(inside))
        bench.samples["net_sandboxes/direct"].append(block(direct))
    for sandbox in sandboxes:
        sandbox.close()


def daemon_killed_download(bench, rounds=3, size=500_000_000, rate=25_000_000):
    """A download beside a daemon that is killed and started five times, and one that is left in peace."""
    outside, sandbox = bench.peer("outside"), Sandbox(bench)
    expected = hashlib.sha256()
    for piece in network_server.pieces(size):
        expected.update(piece)

    def measured(row, peer, kills):
        execution = sandbox.begin("download", HOST, TLS, size, rate)
        for _ in range(kills):
            time.sleep(size / rate / (KILLS + 2))
            bench.moorage.close()
            bench.daemon.restart()
        if kills and bench.moorage.json("GET", f"/v1/execs/{execution}")["state"] != "running":
            raise RuntimeError("the download ended before the last kill")
        found = sandbox.result(execution)
        if found["sha256"] != expected.hexdigest():
            raise RuntimeError("the download has another hash")
        bench.samples[f"{row}{peer}"].append(found["ms"])
        bench.samples[f"{row}_pause{peer}"].append(found["pause_ms"])

    for _ in range(rounds):
        measured("daemon_killed_download", "", KILLS)
        measured("daemon_killed_download", "/alone", 0)
    sandbox.close()
