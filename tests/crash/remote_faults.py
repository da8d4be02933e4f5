"""The base of suites in which sandboxes on other machines work while faults come at random moments. What was answered is
kept outside of the store, and compared at the end: there, and after a move to a backend of this host. MOORAGE_KILLS is
the number of faults of each test."""

import collections
import contextlib
import os
import signal
import statistics
import sys
import threading
import time

import remote_work
import rig
from rig import harness

FAULTS = int(os.environ.get("MOORAGE_KILLS", "10"))
CLIENTS = 3
# Beyond the interval of syncs: a walk there and the way here, on a machine where much else runs.
SLACK_S = 3 * harness.PATIENCE
PATIENCE_S = remote_work.PATIENCE_S


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class Faults(rig.TestCase):
    """`kinds`: functions that do one fault and return whether there was one. `places`: of a create, or of a move."""

    kinds = ()
    places = ()
    honest = rig.HONEST
    may_lose = False
    more_steps = ()

    def begin(self, what):
        self.chance = rig.chance(what)
        self.over, self.faults, self.history = threading.Event(), collections.Counter(), []
        self.moments = []  # (when a fault began, {client: until when its files were here})
        self.gaps = []     # seconds between the two, for commands that were lost
        self.clients = [remote_work.Client(self, number, self.may_lose, self.more_steps) for number in range(CLIENTS)]
        for number, client in enumerate(self.clients):
            self.client.create(repo_url=self.url, name=client.name, **self.places[number % len(self.places)])

    def strike(self, kind):
        return getattr(self, kind)()

    def work(self, threads=()):
        """Random faults, one after the other, while the clients work. Returns the seconds of each."""
        threads = [*self.clients, *threads]
        began = time.monotonic()
        try:
            for thread in threads:
                thread.start()
            while self.faults.total() < FAULTS or time.monotonic() - began < rig.SOAK_S:
                self.wait_for_progress()
                kind = self.chance.choice(self.kinds)
                self.history.append((time.strftime("%H:%M:%S"), kind))
                self.faults[kind] += bool(self.strike(kind))
                for thread in threads:
                    if thread.error:
                        raise thread.error
        except BaseException:
            self.tell()
            raise
        finally:
            self.over.set()
            self.mend()
            for thread in threads:
                thread.join()
        for thread in threads:
            if thread.error:
                raise thread.error
        return (time.monotonic() - began) / self.faults.total()

    def tell(self):
        print(*self.history[-30:], *(f"{client.name}: {list(client.refusals)}" for client in self.clients),
              self.daemon.log_tail(), sep="\n", file=sys.stderr, flush=True)

    def wait_for_progress(self):
        """Mostly until something was answered, so that faults do not only meet recoveries; then for a while."""
        before, end = self.answered(), time.monotonic() + (15 if self.chance.random() < 0.9 else 0)
        while self.answered() == before and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(self.chance.random() * 1.5)

    def answered(self):
        return sum(client.done.total() for client in self.clients)

    def mend(self):
        if self.daemon.process.poll() is not None:
            self.daemon.start()

    # ---- what a lost command must have left here

    def note_moment(self):
        """A fault begins."""
        if self.chance.random() < 0.6:
            self.wait_connected()
            time.sleep(self.chance.random() * 3)
        seen = {client.name: self.here_until(client) for client in self.clients}
        self.moments.append((time.time(), seen))

    def wait_connected(self):
        end = time.monotonic() + 15 * harness.PATIENCE
        while time.monotonic() < end:
            remotes = [self.remote_of(client) for client in self.clients]
            if all(remote.get("connected", True) for remote in remotes):
                return
            time.sleep(0.1)

    def remote_of(self, client):
        view = rig.stubborn(lambda: self.client.workspace(client.name), PATIENCE_S, self.honest)
        return view.get("sandbox", {}).get("remote", {})

    def here_until(self, client):
        """The moment until which files that changed there are here, as `show` reports it; 0: not known."""
        now = time.time()
        behind = self.remote_of(client).get("behind_ms")
        return now - behind / 1000 if behind is not None else 0

    def files_expected_until(self, name, record):
        """Of a running command that was lost: files from before this moment must be here. None: not known."""
        began = remote_work.moment(record["started_at"])
        for at, until in self.moments:
            if at <= began:
                continue
            if not until[name]:
                return None
            self.gaps.append(at - max(until[name], began))
            return until[name] if until[name] > began else None
        return None

    # ---- the end

    def finish(self, seconds):
        """All compared, there and after a move here; then nothing is left anywhere."""
        done = sum((client.done for client in self.clients), collections.Counter())
        try:
            for client in self.clients:
                client.check()
                client.stubborn(lambda: self.client.move(client.name, backend="lxc"))  # noqa: B023
            checked = [client.check() for client in self.clients]
            forks = self.check_forks()
        except BaseException:
            self.tell()
            raise
        print(f"{self.faults.total()} faults {dict(self.faults)}, {seconds:.1f} s each; {dict(done)}; {forks} forks; "
              f"compared {sum(c[0] for c in checked)} files, {sum(c[1] for c in checked)} bytes of output", flush=True)
        for kind in ("exited", "puts"):
            self.assertGreater(done[kind], 0, f"nothing was answered: {kind}")
        self.check_gaps()
        for workspace in self.client.workspaces():
            rig.stubborn(lambda: self.client.delete(workspace["id"], purge=True), PATIENCE_S, self.honest)  # noqa: B023
        self.daemon.reconcile()
        try:
            harness.wait_until(self.nothing_is_left, PATIENCE_S)
        except AssertionError:
            raise AssertionError("left: " + "; ".join(self.left())) from None
        self.assert_at_rest(60)
        for kind in set(self.kinds) if FAULTS >= 100 else ():  # fewer may miss one by chance
            self.assertGreater(self.faults[kind], 0, f"no {kind}")

    def check_forks(self):
        """What came late is in workspaces of its own, and ran once."""
        names = {client.name for client in self.clients}
        forks = [workspace for workspace in self.client.workspaces() if workspace["name"] not in names]
        for fork in forks:
            with contextlib.suppress(rig.raw_api.ApiError):  # it has none
                runs = collections.Counter(self.client.read_file(fork["id"], "counter").split())
                self.assertEqual(max(runs.values(), default=0), 1, fork)
        return len(forks)

    def check_gaps(self):
        """Mostly: a busy machine makes some syncs late."""
        if len(self.gaps) < 10:
            return
        print(f"{len(self.gaps)} lost commands; their files here were {statistics.median(self.gaps):.1f} s behind, at most "
              f"{max(self.gaps):.1f} s", flush=True)
        self.assertLess(statistics.median(self.gaps), self.sync_interval_s + SLACK_S)

    def nothing_is_left(self):
        if not self.left():
            return True
        self.client.doctor(fix=True)  # at once: the rounds wait longer after each failure
        return not self.left()

    def left_there(self):
        """What is on the machines."""
        raise NotImplementedError

    def left(self):
        notes = [f"note {path.name}" for path in (self.daemon.store / "remote").glob("*.json")]
        running = [f"command {pid} {line[:100]}" for pid, line in harness.processes().items() if f"begin {rig.SEED}-" in line]
        return [*self.left_there(), *notes, *running]


class Churn(threading.Thread):
    """Workspaces that come and go, with a command that never ends by itself."""

    def __init__(self, suite):
        super().__init__(name="churn")
        self.suite, self.client = suite, harness.Client(str(suite.daemon.socket), timeout=120)
        self.lives, self.error = 0, None

    def run(self):
        try:
            while not self.suite.over.is_set():
                self.lives += 1
                self.live(f"churn-{self.lives}")
        except BaseException as error:  # noqa: BLE001 - raised by the main thread
            self.error = error

    def keyed(self, key, call):
        return rig.keyed(key, call, PATIENCE_S, self.suite.honest)

    def live(self, name):
        key = f"{rig.SEED}-{name}"
        place = self.suite.places[self.lives % len(self.suite.places)]
        _, made = self.keyed(f"{key}-new", lambda key: self.client.create(repo_url=self.suite.url, name=name, key=key, **place))
        script = f": begin {key}; sleep 1000"
        self.keyed(key, lambda key: self.client.start_exec(name, ["sh", "-c", script], key=key))
        time.sleep(1)
        self.keyed(f"{key}-rm", lambda key: self.client.delete(made["id"], purge=True, force=True, key=key))
