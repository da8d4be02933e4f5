"""The base of the fault suites: replayable random choices, time limits, and invariants of an idle store.

MOORAGE_TEST_SEED replays a run's choices (but not the timing of threads and the kernel). MOORAGE_SOAK_S is the duration
of each test's long form; without it tests use their short form. Everything started is also ended, even after SIGTERM.
"""

import contextlib
import os
import pathlib
import random
import signal
import sqlite3
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import harness  # noqa: E402
import raw_api  # noqa: E402

SEED = int(os.environ.get("MOORAGE_TEST_SEED", random.randrange(1 << 32)))
SOAK_S = float(os.environ.get("MOORAGE_SOAK_S", "0"))
BROKEN = os.environ.get("MOORAGE_BROKEN", str(harness.BIN.parent / "tests/crash/libbroken.so"))

# Errors that a client may get during faults. Any other is a bug.
HONEST = {"unavailable", "conflict", "deadline_exceeded", "unknown_outcome", "io"}


class Ended(BaseException):
    """SIGTERM: not an Exception, so that no code treats it as a failed call."""


ended = False


def _end(*_):
    global ended
    if not ended:
        ended = True
        raise Ended


signal.signal(signal.SIGTERM, _end)


def chance(what):
    """A separate source of random choices for each test, so that one test can be replayed alone."""
    print(f"MOORAGE_TEST_SEED={SEED} {what}", flush=True)
    return random.Random(f"{SEED} {what}")


def rounds(short):
    """Round numbers: `short` of them; in the long form as many as time allows."""
    end = time.monotonic() + SOAK_S
    number = 0
    while number < short or time.monotonic() < end:
        yield number
        number += 1


def keyed(key, call, seconds=60, honest=frozenset(HONEST)):
    """Repeats `call(key)` until it succeeds. Returns the key of the success, and its answer.

    While the outcome is unknown it uses the same key, so that nothing runs twice. A refusal is the final answer of its
    key: the next try uses a new one.
    """
    end = time.monotonic() + seconds * harness.PATIENCE
    number = 1
    while True:
        this = key if number == 1 else f"{key}/{number}"
        try:
            return this, call(this)
        except (OSError, raw_api.ApiError) as error:
            if isinstance(error, raw_api.ApiError):
                if error.code not in honest:
                    raise
                if error.code not in ("unknown_outcome", "deadline_exceeded") and "is in progress" not in error.message:
                    number += 1
            if time.monotonic() > end:
                raise AssertionError(f"no answer within {seconds} s: {error!r}") from error
            time.sleep(0.05)


def stubborn(call, seconds=60, honest=frozenset(HONEST)):
    """Repeats a call that changes nothing, or has a new key each time, until the daemon answers."""
    end = time.monotonic() + seconds * harness.PATIENCE
    while True:
        try:
            return call()
        except (OSError, raw_api.ApiError) as error:
            if isinstance(error, raw_api.ApiError) and error.code not in honest:
                raise
            if time.monotonic() > end:
                raise AssertionError(f"no answer within {seconds} s: {error!r}") from error
            time.sleep(0.05)


def rows(store, query, *values):
    """Rows of state.db, read beside the daemon."""
    with contextlib.closing(sqlite3.connect(f"file:{store}/state.db?mode=ro", uri=True, timeout=10)) as database:
        return database.execute(query, values).fetchall()


def names(directory, prefix=""):
    return {name for name in os.listdir(directory) if name.startswith(prefix)} if directory.exists() else set()


def at_rest(store):
    """Rows in unfinished states, and differences of database and disk, as sentences."""
    found = [f"state.db: {row[0]}" for row in rows(store, "PRAGMA integrity_check") if row[0] != "ok"]
    found += [f"state.db: a reference without a row in {row[0]}" for row in rows(store, "PRAGMA foreign_key_check")]
    resting = {"workspaces": ("ready", "archived", "deleted", "failed"), "sandboxes": ("running", "destroyed"),
               "repositories": ("ready", "broken", "evicted"), "snapshots": ("kept", "dropped"),
               "best_of": ("done", "cancelled", "failed"), "best_of_attempts": ("passed", "failed", "interrupted", "cancelled")}
    for table, states in resting.items():
        marks = ",".join("?" * len(states))
        found += [f"{table} {number} is {state}" for number, state in
                  rows(store, f"SELECT id, state FROM {table} WHERE state NOT IN ({marks})", *states)]
    held = set(rows(store, "SELECT sandbox FROM id_ranges"))
    live = set(rows(store, "SELECT id FROM sandboxes WHERE state <> 'destroyed'"))
    if held != live:
        found.append(f"id ranges are held by the sandboxes {held}, and there are {live}")
    return found + on_disk(store)


def on_disk(store):
    found = []

    def compare(what, there, known, needed):
        found.extend(f"{what} {name} has no row" for name in sorted(there - known))
        found.extend(f"{what} {name} is missing" for name in sorted(needed - there))

    # Layers of workspaces and snapshots, and all below them.
    chains = "WITH RECURSIVE chain (id) AS ({} UNION SELECT parent FROM layers JOIN chain USING (id) WHERE parent IS NOT NULL) SELECT id FROM chain"
    stood_on = "SELECT layer FROM workspaces WHERE layer IS NOT NULL AND state {} UNION SELECT layer FROM snapshots WHERE layer IS NOT NULL"
    layers = {f"ly_{row[0]}" for row in rows(store, chains.format(stood_on.format("<> 'failed'")))}
    needed = {f"ly_{row[0]}" for row in rows(store, chains.format(stood_on.format("= 'ready'")))}
    compare("layer", names(store / "layers"), layers, needed)
    sandboxes = {f"sb_{row[0]}" for row in rows(store, "SELECT id FROM sandboxes WHERE state <> 'destroyed'")}
    compare("sandbox directory", names(store / "sandboxes"), sandboxes, sandboxes)
    workspaces = {f"ws_{row[0]}" for row in rows(store, "SELECT id FROM workspaces WHERE purged_wall_ms IS NULL")}
    compare("workspace directory", names(store / "workspaces"), workspaces, set())
    for repository in names(store / "repos"):
        trees = {f"{row[0]}" for row in rows(store, "SELECT commit_id FROM base_trees WHERE repository = ?",
                                             int(repository.removeprefix("repo_")))}
        compare(f"{repository}: base tree", names(store / "repos" / repository / "trees"), trees, trees)
    # The record of a deleted workspace waits for an undelete.
    deleted = {f"ws_{row[0]}" for row in rows(store, "SELECT id FROM workspaces WHERE state = 'deleted' AND purged_wall_ms IS NULL")}
    waiting = {name for name in names(store / "uploads") if os.readlink(store / "uploads" / name).split("/")[0] in deleted}
    compare("upload", names(store / "uploads"), waiting, set())
    compare("lost work", names(store / "lost"), set(), set())
    return found


def on_host(daemon):
    """This store's objects on the host that belong to no live sandbox."""
    live = {row[0] for row in rows(daemon.store, "SELECT id FROM sandboxes WHERE state = 'running'")}
    found = []
    for kind, entries in harness.census(daemon.known_store_id, daemon.directory).items():
        for entry in entries:
            if kind == "mounts" or not any(f"-sb_{number}" in entry.replace("/", " ").split("moorage-", 1)[-1] for number in live):
                found.append(f"stray {kind}: {entry}")
    return found


class TestCase(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client.timeout = 120 * harness.PATIENCE  # a hanging daemon is a finding and must not block the run

    def run(self, result=None):
        super().run(result)
        if ended and result is not None:
            result.stop()

    def assert_at_rest(self, seconds=30):
        """Waits until all rows are in resting states without orphans: commands and cleanups may still be ending. Doctor must agree."""
        seen = []

        def look():
            seen[:] = at_rest(self.daemon.store) + on_host(self.daemon)
            seen.extend(f"{e['id']} runs" for e in self.client.execs(running=True))
            if not seen:
                seen.extend(f"doctor: {f['text']}" for f in self.client.doctor()["findings"] if f["severity"] != "note")
            return not seen

        try:
            harness.wait_until(look, seconds, "rest")
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *seen, self.daemon.log_tail()[-2000:]])) from None
