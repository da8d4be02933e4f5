"""Duration of a restart with a thousand workspaces, a hundred of them running."""

import concurrent.futures
import os
import time
import unittest

from load import harness

SANDBOXES = int(os.environ.get("MOORAGE_RESTART_SANDBOXES", "100"))
WORKSPACES = 1000


class Restart(harness.TestCase):
    settings = {"sandbox.memory_bytes": 64 << 20, "sandbox.cpus": 1, "sandbox.start_deadline_s": 120}

    def test_a_restart_with_a_thousand_workspaces_a_hundred_running(self):
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            running = [f"run-{n}" for n in range(SANDBOXES)]
            list(pool.map(lambda n: self.client.create(repo_url=self.url, name=f"rest-{n}"), range(WORKSPACES - SANDBOXES)))

            def start(name):
                self.client.create(repo_url=self.url, name=name)
                return self.client.start_exec(name, ["sh", "-c", "while [ ! -e go ]; do sleep 1; done; echo over"])["id"]
            execs = list(pool.map(start, running))
            inits = {name: self.daemon.sandbox_pids(name)["init"] for name in running[::10]}
            for what in ("killed", "stopped"):
                if what == "killed":
                    self.daemon.kill()
                else:
                    self.daemon.stop()
                begin = time.monotonic()
                self.daemon.start(wait=False)
                harness.wait_until(self.daemon.answers, 60, "the daemon's answer")
                answered = time.monotonic() - begin
                page = self.client.workspaces()
                listed = time.monotonic() - begin
                harness.wait_until(lambda: self.daemon.log.read_text().count("sandbox.adopted") % SANDBOXES == 0, what="all are adopted")
                self.client.exec(running[0], "true")
                used = time.monotonic() - begin
                print(f"{what} with {len(page)} workspaces, {SANDBOXES} running: first answer after {answered:.2f} s, "
                      f"ls after {listed:.2f} s, first exec after {used:.2f} s")
                self.assertEqual(len(page), WORKSPACES)
                if not harness.SANITIZED:
                    self.assertLess(used, 2.0 * harness.PATIENCE)
                self.assertEqual({e["state"] for e in map(self.client.get_exec, execs)}, {"running"})
            self.assertEqual({name: self.daemon.sandbox_pids(name)["init"] for name in inits}, inits)
            list(pool.map(lambda name: self.client.exec(name, "touch go"), running))
            ends = list(pool.map(lambda one: self.client.wait(one, timeout_ms=120_000), execs))
            self.assertEqual({(e["state"], e["exit_code"]) for e in ends}, {("exited", 0)})


if __name__ == "__main__":
    unittest.main()
