"""Crashes at every crash point, and repeatedly during the recovery.

tests/crash/test_processes.py dies once at each. Here the following starts die too: at each crash point of a recovery, then
at random moments. After that a start succeeds, and everything must be as if nothing had happened.
"""

import re
import signal
import subprocess
import time
import unittest

import rig
import yaml
from rig import harness
from verbs import OPERATIONS, Lives

LIFE = {"export": "archived", "repo.import": "imported", "repo.clone": "repaired", "repo.rebuild": "repaired", "lease.acquire": "held",
        "lease.takeover": "held", "gc": "collected", "evict": "collected", "drop_base_tree": "collected",
        "archive": "archived", "unarchive": "archived", "import": "archived", "repo.pack": "packed", "rebase": "rebased",
        "snapshot": "snapped", "promote": "snapped", "collect": "snapped", "restack": "snapped", "flatten": "flattened",
        "best_of": "attempted", "move": "moved", "credential_add": "guarded", "credential_rm": "guarded"}
# The point reached by the recovery from a crash there.
IN_THE_WAY = {"delete.after_intent": "stop.after_intent", "purge.after_intent": "purge.after_files", "exec.after_intent": "exec.before_outcome",
              "exec.after_journal": "exec.before_outcome", "exec.after_start": "exec.after_outcome", "exec.before_outcome": "exec.after_outcome"}
# Points of every start. Other recovery points need objects that died with the daemon; crash_processes dies twice at each.
EVERY_START = ["recovery.after_repositories", "recovery.after_sandboxes", "recovery.after_execs", "recovery.after_snapshots", "recovery.after_strangers",
               "recovery.after_workspaces"]
# Points of no verb: e2e_replica, e2e_store_image, test_workspace and e2e_recovered die at each.
OF_NO_VERB = {"replica", "image", "incoming", "give_up", "salvage"}
OF_READERS = {"export"}  # changes nothing
OF_EVERY_VERB = {"answer"}  # of each request with a key: test_retries
STARTS = 2  # starts killed at a random moment, for each point


def verb_of(point):
    return point.rpartition(".")[0]


class Points(rig.TestCase):
    settings = {"gc.keep_unused_s": 0, "sandbox.allow_process_backend": True, "network.mode": "open"}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.points = harness.run(harness.BIN / "mooraged", "--list-crash-points").stdout.decode().split()

    def test_every_verb_has_crash_points_and_every_point_a_verb(self):
        document = yaml.safe_load((harness.ROOT / "docs/openapi.yaml").read_text())
        changing = {f"{method} {path}" for path, methods in document["paths"].items() for method in methods
                    if method in ("post", "put", "patch", "delete")}
        self.assertEqual(changing, set(OPERATIONS), "calls of the API that this test knows, and those there are")
        claimed = {verb for verbs in OPERATIONS.values() if isinstance(verbs, tuple) for verb in verbs}
        self.assertEqual(claimed | OF_NO_VERB | OF_READERS | OF_EVERY_VERB, {verb_of(point) for point in self.points}, "verbs with crash points")
        sources = [path for path in harness.ROOT.glob("[a-z]*/**/*.cc") if path.relative_to(harness.ROOT).parts[0] not in ("build", "tests")]
        declared = [name for path in sources for name in re.findall(r'MOORAGE_CRASH_POINT\(\w+, "([^"]+)"\)', path.read_text())]
        self.assertEqual(sorted(declared), sorted(self.points), "all that are written are compiled in, once each")
        print(f"{len(changing)} calls, {len(claimed)} verbs with {len(self.points)} crash points")

    def die_again(self, point, chance):
        """Runs starts that die: at a point of the recovery, and at random. Returns the points reached."""
        met = []
        # A start that succeeds leaves nothing to recover: the long form uses the others in other rounds.
        of_verbs = IN_THE_WAY.get(point) if not rig.SOAK_S else chance.choice([IN_THE_WAY.get(point), *self.points])
        always = chance.choice(EVERY_START)
        for wanted in (of_verbs, always):
            if wanted and self.start_and_die(wanted):
                met.append(wanted)
        self.assertIn(always, met)
        for _ in range(STARTS):
            self.daemon.start(wait=False)
            time.sleep(chance.random() * 0.12)
            self.daemon.kill()
        return met

    def start_and_die(self, point):
        """Whether the start reached the point. It is killed in any case."""
        self.daemon.start(crash_at=point, wait=False)
        try:
            harness.wait_until(self.daemon.settled, what="the daemon")
            return False
        except (AssertionError, OSError):  # OSError: during a request
            self.assertEqual(self.daemon.process.wait(5), -signal.SIGKILL, self.daemon.log_tail())
            return True
        finally:
            self.daemon.kill()

    def test_crashes_at_every_point_and_during_recovery_lose_nothing(self):
        chance = rig.chance("points")
        lives = Lives(self)
        again = {}
        for round_number in rig.rounds(1):
            for number, point in enumerate(p for p in self.points if verb_of(p) not in {"recovery"} | OF_NO_VERB):
                with self.subTest(point):
                    name = f"point-{round_number}-{number}"
                    self.daemon.kill()
                    self.daemon.start(crash_at=point)
                    died = lives.run(LIFE.get(verb_of(point), "workspace"), name)
                    try:
                        self.assertEqual(self.daemon.process.wait(5 if died else 0.2), -signal.SIGKILL, died)
                    except subprocess.TimeoutExpired:
                        self.fail(f"{point} was not passed: {died!r}")
                    again[point] = self.die_again(point, chance)
                    self.daemon.start()
                    lives.settle(name)
        met = {name for names in again.values() for name in names}
        print(f"{len(again)} points; recoveries died at {sorted(met)} and {STARTS * len(again)} times anywhere")
        self.assertTrue(met, "no recovery met a crash point")


if __name__ == "__main__":
    unittest.main()
