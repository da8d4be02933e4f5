"""The work of one client whose sandbox is on another machine, during faults. What was answered is kept here, outside of
the store, and compared afterwards. One command at a time, so that a model of its files is exact."""

import collections
import contextlib
import datetime
import hashlib
import random
import shlex
import threading
import time

import rig
from rig import harness, raw_api

# Numbered output in bursts, a line in a file for each burst, then one change of files, and a code of its own.
SCRIPT = """echo begin {key} $(head -c 8 /dev/urandom | od -An -tx1 | tr -d ' ')
echo {key} >> counter
i=0
while [ $i -lt {lines} ]; do
  i=$((i+1)); echo "line $i of {key}"
  [ $((i % {burst})) != 0 ] || {{ date +%s.%N >> ticks/{key}; sleep {pause}; }}
done
{change}
exit {code}"""
LARGE_BYTES = 3_000_000
PATIENCE_S = 300  # until a state that a busy machine reaches late


def large(text):
    return (f"{text}\n".encode() * (LARGE_BYTES // (len(text) + 1) + 1))[:LARGE_BYTES]


class Client(threading.Thread):
    """`may_lose`: its machine may be lost, and a command with it. Its model: path -> bytes; None: it does not exist."""

    def __init__(self, suite, number, may_lose, more=()):
        super().__init__(name=f"w{number}")
        self.suite, self.may_lose = suite, may_lose
        self.client = harness.Client(str(suite.daemon.socket), timeout=120)
        self.chance = random.Random(f"{rig.SEED} client {number}")
        self.steps = (self.command,) * 8 + (self.put, self.put, self.look, *(getattr(self, step) for step in more))
        self.model = {}
        self.unknown = set()  # an interrupted command may have changed them
        self.records = {}     # key -> the record of its end
        self.outputs = {}     # exec id -> its whole output
        self.done = collections.Counter()
        self.refusals = collections.deque(maxlen=10)
        self.story = []       # what was answered, in words
        self.error = None
        self.number = 0

    def run(self):
        try:
            while not self.suite.over.is_set():
                self.number += 1
                self.chance.choice(self.steps)()
        except BaseException as error:  # noqa: BLE001 - raised by the main thread
            self.error = error

    def key(self):
        return f"{rig.SEED}-{self.name}-{self.number}"

    def keyed(self, key, call):
        return rig.keyed(key, call, PATIENCE_S, self.suite.honest)

    def stubborn(self, call):
        return rig.stubborn(call, PATIENCE_S, self.suite.honest)

    # ---- commands

    def change(self):
        """(a script, {path: its content afterwards})"""
        path, text = f"w-{self.number}", f"{self.name} {self.chance.random()}"
        known = sorted(path for path, content in self.model.items() if content is not None)
        match self.chance.randrange(6 if known else 3):
            case 0:
                return f"printf %s {shlex.quote(text)} > {path}", {path: text.encode()}
            case 1:
                inside = f"d-{self.number}/{path}"
                return f"mkdir d-{self.number}; printf %s {shlex.quote(text)} > {inside}", {inside: text.encode()}
            case 2:
                return f"yes {shlex.quote(text)} | head -c {LARGE_BYTES} > {path}", {path: large(text)}
            case 3:
                old = self.chance.choice(known)
                return f"rm {old}", {old: None}
            case 4:
                old = self.chance.choice(known)
                return f"mv {old} {path}", {path: self.model[old], old: None}
            case 5:
                old = self.chance.choice(known)
                return f"printf %s {shlex.quote(text)} > {old}", {old: text.encode()}

    def command(self):
        key, code, lines, burst = self.key(), self.chance.randrange(120), self.chance.randrange(1, 3000), self.chance.randrange(20, 400)
        script, files = self.change()
        text = SCRIPT.format(key=key, lines=lines, burst=burst, pause=round(self.chance.random() * 0.3, 2), change=script, code=code)
        def start(key):
            try:
                return self.client.start_exec(self.name, ["sh", "-c", "mkdir -p ticks\n" + text], key=key)
            except raw_api.ApiError as error:
                self.refusals.append(f"{time.strftime('%H:%M:%S')} {error.code}: {error.message}")
                raise
        try:
            used, record = self.keyed(key, start)
        except BaseException:
            self.forget(files)
            raise
        if self.chance.random() < 0.3:
            again = self.stubborn(lambda: start(used))
            self.suite.assertEqual(again["id"], record["id"], "the same key made another command")
        read = self.follow(record["id"]) if self.chance.random() < 0.5 else b""
        record = self.ended(record["id"])
        kept = self.stubborn(lambda: bytes(self.client.raw_output(record["id"])))
        self.suite.assertTrue(kept.startswith(read), f"{record['id']}: output that was read is gone")
        whole = "".join(f"line {i} of {key}\n" for i in range(1, lines + 1)).encode()
        head, _, rest = kept.partition(b"\n")
        begin = f"begin {key} ".encode()
        self.suite.assertEqual(head[:len(begin)], begin[:len(head)], record["id"])
        self.suite.assertTrue(whole.startswith(rest), f"{record['id']}: its output has {differs(rest, whole)}")
        self.records[key], self.outputs[record["id"]] = record, kept
        if self.good(record, code, kept):
            self.suite.assertEqual(rest, whole, record["id"])
            self.learn(files, record["id"])
        else:
            self.forget(files)
            if kept:
                self.check_ticks(key, record, lines // burst)

    def follow(self, exec_id):
        read = b""
        with contextlib.suppress(OSError, raw_api.ApiError):  # the daemon dies: keep the output so far
            with self.client.output(exec_id, follow=True) as stream:
                for kind, payload in stream:
                    read += payload if kind == raw_api.STDOUT else b""
        return read

    def ended(self, exec_id):
        end = time.monotonic() + PATIENCE_S * harness.PATIENCE
        while time.monotonic() < end:
            record = self.stubborn(lambda: self.client.wait(exec_id, 5000))
            if record["state"] != "running":
                return record
        raise AssertionError(f"{exec_id} never ended: {self.client.workspace(self.name)}")

    def good(self, record, code, output):
        """Whether it ended by itself. Otherwise its end is honest."""
        if record["state"] == "exited":
            self.suite.assertEqual(record["exit_code"], code, record)
            self.done["exited"] += 1
            return True
        self.suite.assertEqual(record["state"], "interrupted", record)
        self.suite.assertNotIn("exit_code", record)
        self.suite.assertTrue(record["error"], record)
        if not self.may_lose:
            self.suite.assertEqual((record["category"], output), ("not_started", b""), record)
        self.done[record["category"]] += 1
        return False

    def learn(self, files, what):
        self.model.update(files)
        sizes = {path: data if data is None else len(data) for path, data in files.items()}
        self.story.append(f"{time.strftime('%H:%M:%S')} {what} {sizes}")

    def told(self, path):
        return f"{self.name}/{path} was answered: {[line for line in self.story if repr(path) in line]}"

    def forget(self, files):
        self.unknown.update(files)
        for path in files:
            self.model.pop(path, None)

    def check_ticks(self, key, record, every):
        """Of a command that was lost: its files are here as far as `show` said before. `every`: the number of its ticks."""
        until = self.suite.files_expected_until(self.name, record)
        if not until or until < moment(record["started_at"]) + 5:  # it may have begun late
            return
        try:
            ticks = self.stubborn(lambda: self.client.read_file(self.name, f"ticks/{key}")).split()
        except raw_api.ApiError as error:
            if error.code != "not_found":
                raise
            ticks = []
        self.done["lost with its files"] += 1
        if len(ticks) == every:
            return
        self.suite.assertTrue(ticks, f"{record}: nothing of its files is here; expected those until {until}")
        # The next one after the last here was later than what must be here, give or take its pause.
        times = [float(tick) for tick in ticks]
        pause = max([1.0, *(after - before for before, after in zip(times, times[1:]))])
        self.suite.assertGreater(times[-1], until - 2 * pause, record)

    # ---- files

    def put(self):
        path, data = f"put-{self.number % 20}", self.chance.randbytes(self.chance.randrange(1, 30_000))
        if path in self.unknown:
            return
        self.keyed(self.key(), lambda key: self.client.write_file(self.name, path, data, key=key))
        self.learn({path: data}, "put")
        self.done["puts"] += 1

    def look(self):
        """At one file, as it is here."""
        if not self.model:
            return
        path = self.chance.choice(sorted(self.model))
        self.suite.assertEqual(self.content(path), self.model[path], self.told(path))
        self.done["looks"] += 1

    def content(self, path):
        def read():
            try:
                return self.client.read_file(self.name, path)
            except raw_api.ApiError as error:
                if error.code != "not_found":
                    raise
                return None
        return self.stubborn(read)

    def stop(self):
        self.stubborn(lambda: self.client.stop(self.name))
        self.done["stops"] += 1

    def elsewhere(self):
        """On the other machine, wherever it is."""
        place = self.chance.choice(self.suite.places)
        self.stubborn(lambda: self.client.move(self.name, **place))
        self.done["moves"] += 1

    # ---- afterwards

    def seen(self):
        """Digests and the counter, as a command sees them. Another one is needed if its machine is lost now."""
        script = "find . -path ./.git -prune -o -type f -print0 | xargs -0 sha256sum; echo; cat counter"
        end = time.monotonic() + PATIENCE_S * harness.PATIENCE
        while True:
            result = self.stubborn(lambda: self.client.exec(self.name, ["sh", "-c", script]))
            if result.exec["state"] != "interrupted" or time.monotonic() > end:
                return result

    def check(self):
        """Compares with what a command sees. Returns the number of compared files and bytes of output."""
        result = self.seen()
        self.suite.assertEqual(result.exit_code, 0, result.stderr)
        sums, _, counter = result.stdout.decode().partition("\n\n")
        there = {line[66:].removeprefix("./"): line[:64] for line in sums.splitlines()}
        runs = collections.Counter(counter.split())
        for key, record in self.records.items():
            possible = (1,) if record["state"] == "exited" else (0,) if not self.may_lose else (0, 1)
            self.suite.assertIn(runs[key], possible, f"{self.name} {key}: {record}")
        for path, data in self.model.items():
            expected = None if data is None else hashlib.sha256(data).hexdigest()
            self.suite.assertEqual(there.get(path), expected, self.told(path))
        for exec_id, kept in self.outputs.items():
            self.suite.assertEqual(self.client.raw_output(exec_id), kept, f"{exec_id}: its output changed")
        return len(self.model), sum(map(len, self.outputs.values()))


def differs(part, whole):
    """Where, in words."""
    at = next((i for i, (one, other) in enumerate(zip(part, whole)) if one != other), min(len(part), len(whole)))
    return f"at byte {at} of {len(part)} {part[max(0, at - 60):at + 60]!r} instead of {whole[max(0, at - 60):at + 60]!r}"


def moment(text):
    """Seconds since the epoch of a time of the API."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
