"""500 commands run while the daemon is killed: each keeps running with its pid, and its output and exit code are correct."""

import contextlib
import pathlib
import unittest

import rig
from rig import harness

SANDBOXES = 10
COMMANDS = 500 if rig.SOAK_S else 100
# Until all of them run and the daemon was killed three times.
LONG_S = 6 + COMMANDS // 20
SCRIPT = "echo begun; sleep {seconds}; echo {n} went on; exit {code}"


class Commands(rig.TestCase):
    settings = {"sandbox.pids": 512, "daemon.reconcile_interval_s": 1}

    def running(self):
        """number -> (pid, start time) of every command's shell on the host."""
        found = {}
        for pid, line in harness.processes().items():
            if "went on; exit" not in line or not line.startswith("sh -c"):
                continue
            with contextlib.suppress(OSError):  # it has ended meanwhile
                if f"moorage-{self.daemon.known_store_id}-" in pathlib.Path(f"/proc/{pid}/cgroup").read_text():
                    start = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
                    found[int(line.split("; echo ")[1].split()[0])] = (pid, start)
        return found

    def test_every_command_survives_the_daemon(self):
        names = [f"w{number}" for number in range(SANDBOXES)]
        for name in names:
            self.client.create(repo_url=self.url, name=name)
            self.client.exec(name, "true")
        records = {}
        for number in range(COMMANDS):
            script = SCRIPT.format(n=number, code=number % 200, seconds=LONG_S + (number % 2) * LONG_S // 2)
            records[number] = self.client.start_exec(names[number % SANDBOXES], ["sh", "-c", script])["id"]
        harness.wait_until(lambda: len(self.running()) == COMMANDS, 60, "all of them run")
        before = self.running()
        for _ in range(3):
            self.daemon.restart()
        self.assertEqual(self.running(), before, "the same processes")
        self.assertEqual({e["id"] for e in self.client.execs(running=True)}, set(records.values()))
        self.daemon.kill()  # half of them end without a daemon
        harness.wait_until(lambda: len(self.running()) <= COMMANDS - COMMANDS // 2, 2 * LONG_S, "the end of half of them")
        self.daemon.start()
        for number, exec_id in records.items():
            end = self.client.wait(exec_id, timeout_ms=60_000)
            self.assertEqual((end["state"], end["exit_code"]), ("exited", number % 200), exec_id)
            self.assertEqual(self.client.raw_output(exec_id), f"begun\n{number} went on\n".encode())
        print(f"{COMMANDS} of {COMMANDS} commands survived 4 kills of the daemon")
        for workspace in self.client.workspaces():
            self.client.delete(workspace["id"], purge=True)
        self.assert_at_rest()


if __name__ == "__main__":
    unittest.main()
