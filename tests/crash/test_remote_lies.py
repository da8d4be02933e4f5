"""Sandboxes on rented machines whose providers lie, at random moments (remote_faults.py): about states, lists and ends, by
silence, cut streams and refusals, with another time, and with machines that come back, perhaps in an older state. Each lie
ends after a while, as a machine that is always called running and never answers needs a person (`stop --force`)."""

import time
import unittest

import remote_faults
import rig
import test_rented  # in tests/e2e

# For each provider: the path of lists and creates, that of streams, and an empty list.
PATHS = {"e2b": (r"(/v2)?/sandboxes", r"/process\.Process/(Start|Connect)", []),
         "daytona": (r"/api/sandbox", r".*/logs", {"items": [], "nextCursor": None})}
STATES = {"e2b": ("paused", "pausing"), "daytona": ("stopped", "archived", "starting", "error")}
DAYS_S = 86_400


class Lying(remote_faults.Faults, test_rented.RentedCase):
    more = {"e2b": {"max_sandboxes": 1000}, "daytona": {"max_sandboxes": 1000}}
    more_settings = {"daemon.reconcile_interval_s": 1, "remote.start_deadline_s": 20}
    sync_interval_s = 1
    honest = rig.HONEST | {"resource_exhausted"}  # 429
    may_lose = True
    more_steps = ("stop", "elsewhere")
    places = ({"backend": "e2b"}, {"backend": "daytona"})
    kinds = ("dead_machine_called_running", "living_machine_called_gone", "other_state", "list_without_ours", "created_without_answer",
             "ended", "end_not_found", "older_state", "cut_streams", "cut_streams", "silence", "refusals", "wrong_clock", "killed_daemon")

    def strike(self, kind):
        backend = self.chance.choice(sorted(self.fakes))
        fake = self.fakes[backend]
        living = [sandbox for sandbox in list(fake.sandboxes.values()) if sandbox.machine]
        if not living:
            return False
        self.note_moment()
        self.lists, self.streams, self.empty = PATHS[backend]
        self.backend = backend
        try:
            getattr(self, kind)(fake, self.chance.choice(living))
        except KeyError:
            return False  # the sandbox has ended meanwhile
        finally:
            fake.faults.clear()
        return True

    def wait(self, seconds):
        time.sleep(self.chance.random() * seconds)

    def cut(self, fake):
        """All streams of its machines."""
        for sandbox in list(fake.sandboxes.values()):
            inside = sandbox.envd if self.backend == "e2b" else sandbox.toolbox
            if inside:
                fake.loop.call_soon_threadsafe(inside.cut)

    def dead_machine_called_running(self, fake, sandbox):
        fake.call(fake.die(sandbox.id))
        self.wait(8)
        fake.call(fake.destroy(sandbox.id) if self.chance.random() < 0.5 else fake.reboot(sandbox.id))

    def older_state(self, fake, sandbox):
        """Files that were made since a random moment are gone."""
        began = self.moments[-1][0] - 60
        fake.call(fake.die(sandbox.id))
        self.wait(1)
        fake.call(fake.reboot(sandbox.id, since=self.chance.uniform(began, time.time())))

    def living_machine_called_gone(self, fake, sandbox):
        """After some seconds it is given up, and comes back with an older generation."""
        fake.faults.set(lies={sandbox.id: "gone"})
        self.cut(fake)
        self.wait(12)

    def other_state(self, fake, sandbox):
        fake.faults.set(lies={sandbox.id: self.chance.choice(STATES[self.backend])})
        self.cut(fake)
        self.wait(6)

    def list_without_ours(self, fake, _):
        fake.faults.add("status", method="GET", path=self.lists, status=200, body=self.empty, count=None)
        self.cut(fake)
        self.wait(12)

    def created_without_answer(self, fake, sandbox):
        """The next sandbox of a workspace whose machine is gone."""
        fault = fake.faults.add(self.chance.choice(("lost_answer", "late")), method="POST", path=self.lists, count=self.chance.choice((1, 2)),
                                stall=self.chance.random() < 0.3, delay_s=self.chance.random() * 10)
        fake.call(fake.destroy(sandbox.id))
        end = time.monotonic() + 30
        while not fault.met and time.monotonic() < end:
            time.sleep(0.1)
        self.wait(2)

    def ended(self, fake, sandbox):
        fake.call(fake.destroy(sandbox.id))

    def end_not_found(self, fake, _):
        """A machine is said to be gone when it is to be ended."""
        fault = fake.faults.add("status", method="DELETE", path=self.lists + "/[^/]*", status=404)
        end = time.monotonic() + 15
        while not fault.met and time.monotonic() < end:
            time.sleep(0.1)

    def cut_streams(self, fake, _):
        fake.faults.add("cut", path=self.streams, count=self.chance.randrange(1, 4), bytes=self.chance.randrange(5000))
        self.cut(fake)
        self.wait(3)

    def some_path(self):
        return self.chance.choice((".*", self.lists, self.lists + "/.*", self.streams))

    def silence(self, fake, _):
        fake.faults.add("stall", path=self.some_path(), count=self.chance.randrange(1, 3))
        fake.faults.add("delay", path=self.some_path(), count=10, delay_s=self.chance.random() * 2)
        if self.chance.random() < 0.5:
            self.cut(fake)
        self.wait(3)

    def refusals(self, fake, _):
        fake.faults.add("status", path=self.some_path(), status=self.chance.choice((429, 500, 409, 502, 503)),
                        count=self.chance.randrange(1, 6), retry_after_s=self.chance.choice((None, 0, 1, 3)))
        if self.chance.random() < 0.7:
            self.cut(fake)
        self.wait(4)

    def wrong_clock(self, fake, _):
        fake.faults.set(skew_s=self.chance.uniform(-30, 30) * DAYS_S)
        self.cut(fake)
        self.wait(4)

    def killed_daemon(self, *_):
        self.daemon.kill()
        self.daemon.start(mended=False)

    def tearDown(self):
        for fake in self.fakes.values():
            fake.call(fake.end_sandboxes())
        super().tearDown()

    def left_there(self):
        return [f"{name}: machine {identifier}" for name, fake in self.fakes.items() for identifier in list(fake.sandboxes)]

    def test_lies_of_providers_lose_nothing_that_was_answered(self):
        self.begin("lies")
        self.finish(self.work([remote_faults.Churn(self)]))


if __name__ == "__main__":
    unittest.main()
