"""Sandboxes on another machine while processes here and there are killed, connections are cut and whole machines lost, at
random moments (remote_faults.py)."""

import contextlib
import json
import os
import pathlib
import shutil
import time
import unittest

import remote_faults
from remote_faults import kill
from rig import harness
import on_ssh  # in tests/e2e


class OnHosts(remote_faults.Faults, on_ssh.OnSsh):
    settings_here = {"daemon.reconcile_interval_s": 1}
    max_sandboxes = 1000  # a machine that could not be cleaned counts until it is
    places = ({"backend": "ssh", "runtime": "spare"}, {"backend": "ssh", "runtime": "other"})

    @classmethod
    def setUpClass(cls):
        cls.more = cls.settings_here
        super().setUpClass()

    def left_there(self):
        found = [f"{name}: sandbox {entry}" for name, host in self.hosts.items() for entry in self.there(host)]
        return found + [f"{name}: process {pid} {line}" for name, host in self.hosts.items() for pid, line in self.processes_of(host)]

    @staticmethod
    def processes_of(host):
        """(pid, command line) of our programs there."""
        found = []
        for pid, line in harness.processes().items():
            with contextlib.suppress(OSError):
                serves = line.startswith(f"moorage-outpost serve --dir {host.directory} ")  # from a copy without a path
                if serves or os.readlink(f"/proc/{pid}/exe").startswith(f"{host.directory}/"):
                    found.append((pid, line))
        return found


class Here(OnHosts):
    """The processes of this host. What runs there goes on: everything ends as if nothing had happened."""
    kinds = ("killed_daemon", "killed_keeper", "killed_worker", "killed_worker", "killed_packer", "killed_ssh", "killed_all")

    def kin(self):
        """kind -> pids of the links' processes."""
        found = {"keeper": [], "worker": [], "packer": [], "ssh": []}
        pids = harness.sandbox_cgroup_pids(f"moorage-{self.daemon.known_store_id}-")
        keepers = {pid for pid in pids if harness.is_keeper(pid)}
        for pid in sorted(pids):
            with contextlib.suppress(OSError, IndexError):
                line = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
                if pid in keepers:
                    found["keeper"].append(pid)
                elif b"\0worker\0" in line:
                    found["worker" if harness.parent_pid(pid) in keepers else "packer"].append(pid)
                elif line.startswith(b"ssh\0") or b"/ssh\0" in line:
                    found["ssh"].append(pid)
        return found

    def kill_one(self, kind):
        pids = self.kin()[kind]
        if pids:
            kill(self.chance.choice(pids))
        return bool(pids)

    def killed_keeper(self):
        return self.kill_one("keeper")

    def killed_worker(self):
        return self.kill_one("worker")

    def killed_packer(self):
        return self.kill_one("packer")

    def killed_ssh(self):
        return self.kill_one("ssh")

    def start_daemon(self):
        while self.chance.random() < 0.25:  # also killed during its start
            self.daemon.start(wait=False)
            time.sleep(self.chance.random() * 0.3)
            self.daemon.kill()
            self.faults["start"] += 1
        self.daemon.start(mended=False)

    def killed_daemon(self):
        self.daemon.kill()
        time.sleep(self.chance.random() * 0.5)
        self.start_daemon()
        return True

    def killed_all(self):
        self.daemon.kill()
        for pid in sum(self.kin().values(), []):
            kill(pid)
        self.start_daemon()
        return True

    def test_kills_of_everything_here_lose_and_double_nothing(self):
        self.begin("kills here")
        self.finish(self.work())


class There(OnHosts):
    """Processes of two machines, the way to them, and all of them at once. Only what ran may be lost, and not all of it."""
    settings_here = {"daemon.reconcile_interval_s": 1, "remote.start_deadline_s": 20}
    may_lose = True
    more_steps = ("stop", "elsewhere")
    kinds = ("killed_outpost", "killed_inside", "killed_inside", "cut_connections", "stopped_sshd", "pulled_cable", "pulled_cable",
             "restarted_machine", "wiped_machine", "lost_behind_a_cut", "killed_daemon")

    @contextlib.contextmanager
    def fault(self):
        self.note_moment()
        yield self.chance.choice([self.hosts[name] for name in sorted(self.hosts)])

    def kill_in_sandbox(self, host, name):
        """The process whose pid is in this file of one of the sandboxes there. The file may be older than its pid."""
        pids = {pid for pid, _ in self.processes_of(host)}
        for sandbox in self.chance.sample(self.there(host), k=len(self.there(host))):
            with contextlib.suppress(OSError):
                text = (host.directory / "sandboxes" / sandbox / name).read_text()
                if not text:  # it is being written
                    continue
                pid = json.loads(text)["pid"] if name == "init.json" else int(text.split()[0])
                if pid in pids:
                    kill(pid)
                    return True
        return False

    def killed_outpost(self):
        with self.fault() as host:
            return self.kill_in_sandbox(host, "serve.pid")

    def killed_inside(self):
        """Process 1 of a sandbox, its warden."""
        with self.fault() as host:
            return self.kill_in_sandbox(host, "init.json")

    def cut_connections(self):
        with self.fault() as host:
            host.cut_connections()
            return True

    def stopped_sshd(self):
        with self.fault() as host:
            host.stop()
            time.sleep(self.chance.random() * 3)
            host.start()
            return True

    def pulled_cable(self):
        with self.fault() as host:
            host.pull_cable()
            time.sleep(self.chance.random() * 5)
            host.plug_in_cable()
            return True

    def end_machine(self, host):
        host.stop()
        harness.wait_until(lambda: not [kill(pid) or pid for pid, _ in self.processes_of(host)], what="the end of a machine")

    def wipe(self, host):
        shutil.rmtree(host.directory, ignore_errors=True)

    def restarted_machine(self):
        with self.fault() as host:
            self.end_machine(host)
            time.sleep(self.chance.random())
            host.start()
            return True

    def wiped_machine(self):
        with self.fault() as host:
            self.end_machine(host)
            self.wipe(host)
            host.start()
            return True

    def lost_behind_a_cut(self):
        with self.fault() as host:
            host.pull_cable()
            if self.chance.random() < 0.5:
                self.end_machine(host)
                self.wipe(host)
                host.start(wait=False)
            else:
                self.kill_in_sandbox(host, self.chance.choice(("serve.pid", "init.json")))
            time.sleep(self.chance.random() * 3)
            host.plug_in_cable()
            return True

    def killed_daemon(self):
        self.daemon.kill()
        self.daemon.start(mended=False)
        return True

    def mend(self):
        super().mend()
        for host in self.hosts.values():
            host.plug_in_cable()
            if not host.process:
                host.start()

    def test_lost_and_cut_machines_lose_nothing_that_was_answered(self):
        self.begin("faults there")
        churn = remote_faults.Churn(self)
        self.finish(self.work([churn]))
        self.assertGreater(churn.lives, 0)


if __name__ == "__main__":
    unittest.main()
