"""Measures of the daemon with sandboxes on other machines: over ssh, and rented ones of a server that speaks E2B's API.

The machine of ssh is a network namespace of this host; the server is a fake (tests/remote/fake_e2b.py) with a process of
its own, as the peer has one: node with the official package.
"""

import json
import os
import pathlib
import subprocess
import sys
import time

import clock
import npm_packages  # place.py has its folder in the path
import ssh_host
from place import harness, say


HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = ("ip", "ssh", ssh_host.SSHD, "node", "npm")
SANDBOXES, SECONDS = 50, 30
WARM_UP = 3


class Machines:
    """They are there before the daemon, whose settings name them, and after it."""

    def __init__(self, directory):
        directory.mkdir()
        self.directory = directory
        self.host = ssh_host.SshHost(directory / "machine", number=1).start()
        self.ssh = ["/usr/bin/ssh", "-F", str(self.host.config), "-o", "BatchMode=yes", "-o", f"ControlPath={directory}/master"]
        self.rented = subprocess.Popen([sys.executable, str(harness.ROOT / "tests/remote/fake_e2b.py")],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.provider = json.loads(self.rented.stdout.readline())
        (directory / "key").write_text(self.provider["api_key"])
        (directory / "key").chmod(0o600)
        self.node = None

    def settings(self):
        url = self.provider["url"]
        return {"backends": {
            "ssh": {"config_file": str(self.host.config), "hosts": [
                {"name": self.host.name, "destination": self.host.name, "directory": str(self.host.directory), "max_sandboxes": 2 * SANDBOXES}]},
            "e2b": {"key_file": str(self.directory / "key"), "api_url": url, "sandbox_url": url}}}

    def close(self):
        if self.node:
            self.node.stdin.close()
            self.node.wait()
        self.rented.stdin.close()
        self.rented.wait()
        subprocess.run([*self.ssh, "-q", "-O", "exit", self.host.name], stderr=subprocess.DEVNULL)
        self.host.close()

    def run_ssh(self, *argv):
        clock.run_program([*self.ssh, *argv], {"PATH": os.environ["PATH"], "HOME": "/root"})

    def start_sdk(self):
        place = npm_packages.install(harness.ROOT / "tests/remote", "remote")
        self.node = subprocess.Popen(
            ["node", str(HERE / "sdk_exec.js"), str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={"PATH": os.environ["PATH"], "HOME": "/root", "E2B_API_URL": self.provider["url"],
                 "E2B_SANDBOX_URL": self.provider["url"], "E2B_API_KEY": self.provider["api_key"]})
        if self.node.stdout.readline() != "ready\n":
            raise RuntimeError("the package e2b did not start")

    def run_sdk(self):
        self.node.stdin.write("\n")
        self.node.stdin.flush()
        if self.node.stdout.readline() != "0\n":
            raise RuntimeError("the package e2b: a command failed")


def workspace_on(bench, backend):
    workspace = bench.moorage.create(bench.upstream.url, bench.upstream.first, backend=backend)
    bench.moorage.exec(workspace, ["true"])
    return workspace


def remote_exec(bench, n=100):
    if not (machines := bench.peer("machines")):
        return
    workspace = workspace_on(bench, "ssh")
    machines.run_ssh("-M", "-N", "-f", machines.host.name)
    for i in range(n + WARM_UP):
        bench.time("remote_exec" if i >= WARM_UP else "warm", bench.moorage.exec, workspace, ["true"])
        bench.time("remote_exec/ssh" if i >= WARM_UP else "warm", machines.run_ssh, machines.host.name, "true")
    bench.samples.pop("warm")
    bench.moorage.purge(workspace)


def remote_exec_e2b(bench, n=100):
    if not (machines := bench.peer("machines")):
        return
    workspace = workspace_on(bench, "e2b")
    machines.start_sdk()
    for i in range(n + WARM_UP):
        bench.time("remote_exec_e2b" if i >= WARM_UP else "warm", bench.moorage.exec, workspace, ["true"])
        bench.time("remote_exec_e2b/sdk" if i >= WARM_UP else "warm", machines.run_sdk)
    bench.samples.pop("warm")
    bench.moorage.purge(workspace)


def proportional_kib(pid):
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def processor_ms(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def remote_sandboxes(bench):
    """Each with a command that prints and writes once a second: the daemon's memory and processor time per second."""
    if not bench.peer("machines"):
        return
    workspaces = [workspace_on(bench, "ssh") for _ in range(SANDBOXES)]
    script = f"for i in $(seq {SECONDS + 30}); do echo line $i; echo $i > file-$i; sleep 1; done"
    for workspace in workspaces:
        bench.moorage.exec_started(workspace, ["sh", "-c", script])
    names = [f"moorage-{bench.daemon.store_id()}-{bench.moorage.json('GET', f'/v1/workspaces/{each}')['sandbox']['id']}" for each in workspaces]
    links = [pid for name in names for pid in harness.sandbox_cgroup_pids(name)]
    daemon = bench.daemon.process.pid
    time.sleep(5)
    before, linked = processor_ms(daemon), sum(map(processor_ms, links))
    for _ in range(SECONDS):
        time.sleep(1)
        now = processor_ms(daemon)
        bench.samples["remote_sandboxes"].append(now - before)
        before = now
    bench.sizes["remote_sandboxes"].append(proportional_kib(daemon))
    say(f"  {len(links)} processes of links: {sum(map(proportional_kib, links)) / 1024:.0f} MiB, "
        f"{(sum(map(processor_ms, links)) - linked) / SECONDS:.0f} ms of processor time per second")
    for workspace in workspaces:
        bench.moorage.purge(workspace)
