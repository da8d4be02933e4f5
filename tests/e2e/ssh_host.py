"""A machine that only ssh reaches: an sshd of its own in a network namespace of its own, joined to this host by a veth
pair. Its files and control groups are this host's, so what is "there" is a directory. The cable can be pulled."""

import contextlib
import os
import pathlib
import shlex
import socket
import subprocess

import harness

SSHD = "/usr/sbin/sshd"
PORT = 22
USER = "agent"
USER_ID = 61234  # outside of the ranges of useradd and of systemd


class SshHost:
    """`config` is an ssh_config that reaches it as NAME; `directory` is where sandboxes may live there. The login is root's, or
    with `as_user` that of an ordinary account, which exists for this sshd only."""

    def __init__(self, directory, name="spare", number=0, as_user=False):
        self.root = pathlib.Path(directory)
        self.as_user = as_user
        self.root.mkdir(mode=0o755, parents=True)
        self.name = name
        tag = f"{os.getpid() % 100000}{number}"
        self.namespace = f"moorage-{tag}"
        self.device = f"mo{tag}"
        # A /30 of its own for each process and number, in a range for benchmarks (RFC 2544).
        slot = (os.getpid() * 4 + number) % (1 << 14) * 4
        self.here, self.address = (f"198.{18 + (slot >> 16)}.{slot >> 8 & 255}.{(slot & 255) + i}" for i in (1, 2))
        self.directory = self.root / "there"
        self.process = None
        self.log = open(self.root / "log", "ab")
        try:
            self._make_network()
            self._make_files()
        except BaseException:
            self.close()
            raise

    def _make_network(self):
        harness.run("ip", "netns", "add", self.namespace)
        harness.run("ip", "link", "add", self.device, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
        harness.run("ip", "address", "add", f"{self.here}/30", "dev", self.device)
        harness.run("ip", "link", "set", self.device, "up")
        for arguments in (["address", "add", f"{self.address}/30", "dev", "eth0"], ["link", "set", "eth0", "up"],
                          ["link", "set", "lo", "up"]):
            harness.run("ip", "-n", self.namespace, *arguments)

    def _make_files(self):
        for name in ("host", "key"):
            harness.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.root / name)
        self.authorized = self.root / "authorized_keys"
        self.authorized.write_text((self.root / "key.pub").read_text())
        self.known_hosts = self.root / "known_hosts"
        self.known_hosts.write_text(f"{self.name} {(self.root / 'host.pub').read_text()}")
        self.config = self.root / "ssh_config"
        self.config.write_text(
            f"Host {self.name}\n HostName {self.address}\n Port {PORT}\n User {USER if self.as_user else 'root'}\n HostKeyAlias {self.name}\n"
            f" IdentityFile {self.root / 'key'}\n IdentitiesOnly yes\n GlobalKnownHostsFile {self.known_hosts}\n"
            " UserKnownHostsFile /dev/null\n")
        self.settings = self.root / "sshd_config"
        self.settings.write_text(
            f"ListenAddress {self.address}:{PORT}\nHostKey {self.root / 'host'}\nPidFile none\nStrictModes no\nUsePAM no\n"
            f"AuthorizedKeysFile {self.authorized}\nPasswordAuthentication no\nPermitRootLogin yes\nPrintMotd no\n"
            "MaxStartups 200\nMaxSessions 200\nLogLevel INFO\n")
        if self.as_user:
            self._make_account()

    def _make_account(self):
        self.directory.mkdir(mode=0o700)
        os.chown(self.directory, USER_ID, USER_ID)
        lines = {"passwd": f"{USER}:x:{USER_ID}:{USER_ID}::{self.directory}:/bin/sh", "group": f"{USER}:x:{USER_ID}:",
                 "shadow": f"{USER}:*:1:0:99999:7:::"}
        for name, line in lines.items():
            with open(self.root / name, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                file.write(pathlib.Path(f"/etc/{name}").read_text() + line + "\n")
                os.chmod(file.fileno(), 0o600 if name == "shadow" else 0o644)

    def _command(self):
        # Not `ip netns exec`, which would hide the control groups.
        enter = ["nsenter", f"--net=/run/netns/{self.namespace}"]
        sshd = [SSHD, "-D", "-e", "-f", str(self.settings)]
        if not self.as_user:
            return enter + sshd
        binds = "".join(f"mount --bind {shlex.quote(str(self.root / name))} /etc/{name} && " for name in ("passwd", "group", "shadow"))
        return [*enter, "unshare", "--mount", "sh", "-c", f"{binds}exec {shlex.join(sshd)}"]

    def start(self, wait=True):
        """`wait`: until it answers, for which the cable must be plugged in."""
        if not os.access(SSHD, os.X_OK):
            raise AssertionError(f"{SSHD} is missing: install openssh-server")
        os.makedirs("/run/sshd", exist_ok=True)
        self.process = subprocess.Popen(self._command(), stdout=self.log, stderr=self.log, start_new_session=True)
        if wait:
            harness.wait_until(self._answers, what="sshd")
        return self

    def _answers(self):
        with contextlib.suppress(OSError), socket.create_connection((self.address, PORT), 1):
            return True

    def ssh(self, *command, **options):
        """Runs it there, as a person would."""
        return harness.run("ssh", "-F", self.config, "-o", "BatchMode=yes", self.name, *command, **options)

    def settings_of(self, **more):
        """The link's settings for the driver ssh (base/wire/link_config.h)."""
        return {"host": self.name, "destination": self.name, "config_file": str(self.config),
                "directory": str(self.directory)} | more

    def logins(self):
        return (self.root / "log").read_text().count("Accepted publickey")

    def section(self, max_sandboxes=32):
        """The section `backends` of a daemon's configuration."""
        host = {"name": self.name, "destination": self.name, "directory": str(self.directory), "max_sandboxes": max_sandboxes}
        return {"ssh": {"config_file": str(self.config), "hosts": [host]}}

    def processes(self):
        """The pids of all in its network, or in one of a sandbox there."""
        def network(pid):
            return os.readlink(f"/proc/{pid}/ns/net")

        there, found = {network(self.process.pid)}, set()
        for _ in range(2):
            for pid in filter(str.isdigit, os.listdir("/proc")):
                with contextlib.suppress(OSError):  # it has ended, or is the kernel's
                    if os.readlink(f"/proc/{pid}/exe").startswith(str(self.directory)):
                        there.add(network(pid))
                    if network(pid) in there:
                        found.add(int(pid))
        return found

    def pull_cable(self):
        harness.run("ip", "link", "set", self.device, "down")

    def plug_in_cable(self):
        harness.run("ip", "link", "set", self.device, "up")

    def connections(self):
        """The pids of sshd's processes for connections that are open now."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in children.read_text().split()]

    def cut_connections(self):
        for pid in self.connections():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)

    def stop(self):
        if self.process:
            self.cut_connections()
            self.process.terminate()
            self.process.wait()
            self.process = None

    def close(self):
        self.stop()
        self.log.close()
        harness.run("ip", "netns", "del", self.namespace, check=False)
        harness.run("ip", "link", "del", self.device, check=False)
