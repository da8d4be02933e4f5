"""A moorage-egress without a daemon: started as backends/local_backend.cc does, and spoken to over its control socket
(egress/control.h)."""

import contextlib
import json
import os
import socket
import subprocess

import harness

UID = 65534


def rule(host, *ports, verdict="allow"):
    return {"verdict": verdict, "host": host, "ports": list(ports), "reason": "", "methods": [], "path": ""}


class Egress:
    """`hosts` are names with their addresses, all of which may be dialed if a rule allows the name."""

    def __init__(self, directory, hosts, rules):
        self.hosts = hosts
        path = str(directory / "egress.sock")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(path)
            listener.listen()
            # It goes to the background, and ends when its line does.
            subprocess.run([str(harness.BIN / "moorage-egress"), "--control-fd", str(listener.fileno()), "--uid", str(UID)],
                           pass_fds=[listener.fileno()], check=True)
        self.control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(10 * harness.PATIENCE)
        self.control.connect(path)
        self.allow(rules)

    def ask(self, text, *fds):
        socket.send_fds(self.control, [text.encode()], list(fds))
        answer = self.control.recv(1 << 20).decode()
        assert not answer.startswith("error"), answer
        return answer

    def allow(self, rules):
        """Returns how many connections that cut."""
        policy = {"mode": "test", "open": False, "open_ports": [], "refused_by_operator": [], "allowed_by_operator": [],
                  "own": rules, "preset": []}
        resolver = {"servers": [], "hosts": {name: [address] for name, address in self.hosts.items()}, "host": [],
                    "reachable": sorted({f"{address}/32" for address in self.hosts.values()})}
        answer = self.ask("configure " + json.dumps({
            "workspace": "test", "policy": policy, "credentials": [], "push": {"mode": "refuse", "refs": []},
            "resolver": resolver, "proxy": None, "limits": {"connections": 512, "rate_bytes": 0, "total_bytes": 0}}))
        return int(answer.split()[1])

    def sightings(self, command):
        """What command ex_N tried, by its mark (base/wire/command_mark.h)."""
        return json.loads(self.ask(f"seen {command + 1}").partition(" ")[2])

    def close(self):
        with contextlib.suppress(OSError):
            self.control.close()
