"""Output: complete, byte-exact, readable from any offset, through disconnects and daemon kills, after the sandbox."""

import hashlib
import io
import json
import random
import subprocess
import unittest

import harness
import raw_api

SIZE = 100 * 1000 * 1000
# 100 MB that can be recomputed here: SHA-256 in counter mode, in Python (which the image has).
MAKER = """
import hashlib, sys
left, i = {size}, 0
while left > 0:
    block = b''.join(hashlib.sha256(b'%d' % (i + k)).digest() for k in range(2048))[:left]
    sys.stdout.buffer.write(block); left -= len(block); i += 2048
"""


def expected(size):
    digest, left, i = hashlib.sha256(), size, 0
    while left > 0:
        block = b"".join(hashlib.sha256(b"%d" % (i + k)).digest() for k in range(2048))[:left]
        digest.update(block)
        left -= len(block)
        i += 2048
    return digest.hexdigest()


class Output(harness.TestCase):
    def follow(self, exec_id, digest, offset, stop_at):
        """Reads from offset until stop_at bytes or the end. Returns (offset, end record or None)."""
        with self.client.output(exec_id, offset=offset, follow=True) as stream:
            for kind, payload in stream:
                if kind == raw_api.STDOUT:
                    digest.update(payload)
                if stream.offset >= stop_at:
                    return stream.offset, None
            return stream.offset, stream.end

    def test_100_mb_survive_20_disconnects_and_3_daemon_kills(self):
        self.client.create(repo_url=self.url, name="big")
        record = self.client.start_exec("big", ["python3", "-c", MAKER.format(size=SIZE)])
        digest, offset, end = hashlib.sha256(), 0, None
        seed = random.randrange(1 << 32)
        print(f"seed {seed}")
        chance = random.Random(seed)
        stops = sorted(chance.sample(range(1, SIZE - 1), 23))
        kills = set(chance.sample(range(23), 3))
        for number, stop in enumerate(stops):
            offset, end = self.follow(record["id"], digest, offset, stop)
            if number in kills:
                self.daemon.restart()
        while end is None:
            offset, end = self.follow(record["id"], digest, offset, SIZE + 1)
        self.assertEqual((end["state"], end["exit_code"], end["output_bytes"]), ("exited", 0, SIZE))
        self.assertEqual(offset, SIZE)
        self.assertEqual(digest.hexdigest(), expected(SIZE))
        self.client.delete("big")
        raw = self.client.raw_output(record["id"])
        self.assertEqual(hashlib.sha256(raw).hexdigest(), digest.hexdigest())

    def test_logs_work_after_the_sandbox_ended_and_the_daemon_restarted(self):
        self.client.create(repo_url=self.url, name="logs")
        self.client.exec("logs", "echo to-out; echo to-err >&2")
        self.client.stop("logs")
        self.daemon.restart()
        out = self.daemon.cli("logs", "logs")
        self.assertEqual((out.stdout, out.stderr), (b"to-out\n", b"to-err\n"))

    def test_the_last_lines_are_those_that_tail_prints(self):
        self.client.create(repo_url=self.url, name="tail")
        texts = {"empty": b"", "one": b"x\n", "unfinished": b"a\nb\nc", "blank": b"\n\n\n", "long": b"z" * 300_000 + b"\nend\n",
                 "many": b"".join(b"line %d\n" % n for n in range(60_000))}
        for name, text in texts.items():
            self.client.write_file("tail", f"/workspace/{name}", text)
            exec_id = self.client.exec("tail", ["cat", name]).exec["id"]
            lines = text.splitlines(keepends=True)
            for count in (0, 1, 2, 5, 59_999, 1_000_000):
                out = self.daemon.cli("logs", exec_id, "--tail", str(count)).stdout
                self.assertEqual(out, b"".join(lines[-count:] if count else []), (name, count))
        self.assertEqual(self.daemon.cli("logs", "tail", "-n", "1").stdout, b"line 59999\n")
        exec_id = self.client.exec("tail", "for i in 1 2 3; do echo out $i; echo err $i >&2; sleep 0.1; done").exec["id"]
        self.assertEqual(self.daemon.cli("logs", exec_id, "-n", "2", "--stderr").stderr, b"err 2\nerr 3\n")
        waits = "seq 5; until [ -e go ]; do sleep 0.05; done; echo six"
        running = self.daemon.cli("exec", "-d", "tail", "--", "sh", "-c", waits).stdout.decode().split()[0]
        harness.wait_until(lambda: self.daemon.cli("logs", running).stdout.endswith(b"5\n"), what="its first output")
        following = self.daemon.cli_popen("logs", "-f", "--tail", "2", running, stdout=subprocess.PIPE)
        self.assertEqual(following.stdout.read(4), b"4\n5\n")
        self.client.write_file("tail", "/workspace/go", b"")
        self.assertEqual(following.communicate()[0], b"six\n")
        for wrong in (("--tail", "x"), ("--tail", "-1"), ("--tail", "1000001"), ("--tail", "1", "--since-offset", "1")):
            self.assertIn(b"--tail", self.daemon.cli("logs", exec_id, *wrong, check=False).stderr)

    def test_reading_begins_at_any_byte(self):
        self.client.create(repo_url=self.url, name="offset")
        record = self.client.exec("offset", "for i in $(seq 1000); do echo line $i; done; echo end >&2").exec
        whole = self.client.raw_output(record["id"])
        for offset in (0, 1, 5, len(whole) // 2, len(whole) - 1, len(whole)):
            with self.client.output(record["id"], offset=offset) as stream:
                got = b"".join(p for k, p in stream if k in raw_api.OUTPUT_KINDS)
            self.assertEqual(got, whole[offset:], offset)
        with self.assertRaises(raw_api.ApiError) as refused:
            self.client.output(record["id"], offset=len(whole) + 1)
        self.assertEqual(refused.exception.code, "invalid_argument")
        with self.client.output(record["id"], tail_bytes=7) as stream:
            self.assertEqual(b"".join(p for k, p in stream if k in raw_api.OUTPUT_KINDS), whole[-7:])

    def test_output_that_imitates_our_records_stays_output(self):
        self.client.create(repo_url=self.url, name="forge")
        forged = b"MJ1\n\x06\0\0\0" + b"\x10\0\0\0" + b"x" * 64 + b"\x06\0\0\0\0\0\0\x02{}"
        result = self.client.exec("forge", ["cat"], stdin=forged * 100)
        self.assertEqual((result.exit_code, result.stdout), (0, forged * 100))
        self.assertEqual(self.client.get_exec(result.exec["id"])["state"], "exited")


# Numbers its output: 16 bytes per line.
COUNTER = "import os; [os.write(1, b''.join(b'%015d\\n' % (i * 4096 + k) for k in range(4096))) for i in range({blocks})]"


def lines(first, last):
    return b"".join(b"%015d\n" % i for i in range(first, last))


class OutputLimit(harness.TestCase):
    LIMIT = 1 << 20
    settings = {"exec.output_limit_bytes": LIMIT}

    def journal(self, record):
        return self.daemon.store / "workspaces" / record["workspace"] / "journal" / record["id"] / "output"

    def check_head_and_tail(self, record, total):
        """The beginning and the end are kept, with a mark for the gap between them."""
        record = self.client.wait(record["id"])
        self.assertEqual(record["output_bytes"], total)
        self.assertLess(self.journal(record).stat().st_blocks * 512, self.LIMIT + (768 << 10))
        raw = self.client.raw_output(record["id"])
        self.assertEqual(len(raw), total - record["omitted_bytes"])
        self.assertEqual(sum(end - begin for begin, end in raw.gaps), record["omitted_bytes"])
        begin, end = raw.gaps[-1]
        behind = self.client.raw_output(record["id"], offset=begin + 1)
        self.assertEqual((behind, behind.gaps), (raw[-(total - end):], ((begin + 1, end),)))
        all_lines = raw.split(b"\n")
        self.assertEqual((all_lines[0], all_lines[-2]), (b"%015d" % 0, b"%015d" % (total // 16 - 1)))
        positions = []
        with self.client.output(record["id"]) as stream:
            for kind, payload in stream:
                if kind == raw_api.POSITION:
                    positions.append(json.loads(payload))
        self.assertGreater(len(positions), 1)
        dropped = sum(position["gap"]["bytes"] for position in positions[1:])
        self.assertEqual(dropped, record["omitted_bytes"])
        gap = positions[-1]
        self.assertLessEqual(gap["gap"]["first_at"], gap["gap"]["last_at"])
        with self.client.output(record["id"], offset=gap["offset"] - 5) as stream:  # dropped: the next kept byte
            kinds = [kind for kind, _ in stream]
            self.assertEqual(kinds[:2], [raw_api.POSITION, raw_api.POSITION])
        with self.client.output(record["id"], tail_bytes=1600) as stream:
            tail = b"".join(payload for kind, payload in stream if kind in raw_api.OUTPUT_KINDS)
        self.assertEqual(tail, lines(total // 16 - 100, total // 16))
        return record

    def test_the_beginning_and_end_are_kept_and_the_gap_is_reported(self):
        self.client.create(repo_url=self.url, name="flood")
        record = self.client.start_exec("flood", ["python3", "-c", COUNTER.format(blocks=300)])
        record = self.check_head_and_tail(record, 300 * 65536)
        out = self.daemon.cli("logs", record["id"])
        self.assertIn(b"bytes of output were dropped, offsets ", out.stderr)
        self.assertTrue(out.stdout.endswith(lines(300 * 4096 - 10, 300 * 4096)))
        doctor = self.daemon.cli("doctor", "--deep")
        self.assertEqual(doctor.returncode, 0, doctor.stdout)

    def test_the_limit_works_when_the_daemon_dies_meanwhile(self):
        self.client.create(repo_url=self.url, name="killed")
        script = COUNTER.format(blocks=600).replace("[os.write", "[time.sleep(0.003) or os.write").replace("import os", "import os, time")
        record = self.client.start_exec("killed", ["python3", "-c", script])
        for _ in range(3):
            harness.wait_until(lambda before=self.client.get_exec(record["id"])["output_bytes"]:
                               self.client.get_exec(record["id"])["output_bytes"] > before + (4 << 20)
                               or self.client.get_exec(record["id"])["state"] != "running", what="more output")
            self.daemon.restart()
        self.check_head_and_tail(record, 600 * 65536)

    def test_without_a_daemon_output_is_bounded_and_its_end_is_kept(self):
        self.client.create(repo_url=self.url, name="alone")
        script = "import time; time.sleep(1); " + COUNTER.format(blocks=300)
        record = self.client.start_exec("alone", ["python3", "-c", script])
        self.daemon.kill()
        path = self.journal(record)
        harness.wait_until(lambda: path.read_bytes()[-2000:].find(b'"kind":"exited"') > 0, 60, "its end")
        self.assertLess(path.stat().st_size, self.LIMIT + (1 << 20))
        self.daemon.start()
        self.check_head_and_tail(record, 300 * 65536)

    def test_an_archive_of_limited_output_is_small_and_complete(self):
        self.client.create(repo_url=self.url, name="archived")
        record = self.client.start_exec("archived", ["python3", "-c", COUNTER.format(blocks=300)])
        self.client.wait(record["id"])
        before = self.client.raw_output(record["id"])
        archive = io.BytesIO()
        self.client.export("archived", archive)
        self.client.import_(archive.getvalue(), name="again")
        copy = self.client.history("again")["execs"][0]
        self.assertEqual(self.client.raw_output(copy["id"]), before)
        self.assertEqual((copy["output_bytes"], copy["omitted_bytes"]), (300 * 65536, 300 * 65536 - len(before)))
        self.assertLess(self.journal(copy).stat().st_size, self.LIMIT + (1 << 20))


    def test_an_export_has_a_valid_journal_of_an_ongoing_flood(self):
        self.client.create(repo_url=self.url, name="flows")
        record = self.client.start_exec("flows", ["python3", "-c", COUNTER.format(blocks=10**9)])
        harness.wait_until(lambda: self.client.get_exec(record["id"])["output_bytes"] > 4 * self.LIMIT, what="a flood")
        for number in range(3):
            archive = io.BytesIO()
            self.client.export("flows", archive)
            self.client.import_(archive.getvalue(), name=f"flows-{number}")
            copy = self.client.history(f"flows-{number}")["execs"][0]
            raw = self.client.raw_output(copy["id"])
            self.assertEqual((copy["state"], copy["output_bytes"]), ("interrupted", len(raw) + copy["omitted_bytes"]))
            at, begin = 0, 0
            for end, following in (*raw.gaps, (copy["output_bytes"], None)):
                part = raw[at:at + end - begin]
                self.assertEqual(part, lines(begin // 16, end // 16 + 1)[begin % 16:][:end - begin])
                at, begin = at + len(part), following
            self.assertTrue(raw.gaps)  # several if the daemon was late and the warden ran out of space
            self.assertEqual(at, len(raw))
        self.client.cancel(record["id"])
        self.client.wait(record["id"])
        doctor = self.daemon.cli("doctor", "--deep")
        self.assertEqual(doctor.returncode, 0, doctor.stdout)


class OutputOfAWorkspace(harness.TestCase):
    settings = {"exec.output_limit_bytes": 1 << 20, "workspace.output_limit_bytes": 2 << 20}

    def test_the_oldest_output_is_dropped_and_its_record_stays(self):
        id = self.client.create(repo_url=self.url, name="many")["id"]
        records = [self.client.exec("many", f"head -c 400000 /dev/zero; exit {i}").exec for i in range(10)]

        def kept():
            return sum(f.stat().st_blocks * 512 for f in self.daemon.store.glob(f"workspaces/{id}/journal/*/output"))
        harness.wait_until(lambda: kept() <= 2 << 20, what="room in the workspace's output")
        self.assertEqual(len(self.client.raw_output(records[-1]["id"])), 400000)
        gone = self.client.raw_output(records[0]["id"])
        self.assertEqual((gone, gone.gaps), (b"", ((0, 400000),)))
        with self.client.output(records[0]["id"], offset=7) as stream:
            told = [(kind, json.loads(payload)) for kind, payload in stream]
        self.assertEqual(told[1][1]["offset"], 400000)
        self.assertEqual(stream.end["exit_code"], 0)
        self.assertEqual(self.daemon.cli("doctor", "--deep").returncode, 0)

    def test_output_of_a_background_process_is_kept_or_its_loss_reported(self):
        self.client.create(repo_url=self.url, name="server")
        served = self.client.exec("server", "echo up; (until [ -e go ]; do sleep 0.05; done; echo late; touch went; sleep 1000) &").exec
        silent = self.client.exec("server", "(until [ -e go ]; do sleep 0.05; done; echo late) &").exec
        records = [self.client.exec("server", "head -c 400000 /dev/zero").exec for _ in range(10)]
        harness.wait_until(lambda: self.client.raw_output(records[0]["id"]).gaps, what="the oldest output is removed")
        self.client.exec("server", "touch go; until [ -e went ]; do sleep 0.05; done")

        def told(record):
            with self.client.output(record["id"], late=True) as stream:
                return b"".join(payload for kind, payload in stream if kind in raw_api.OUTPUT_KINDS), stream.gaps
        harness.wait_until(lambda: told(served)[0].endswith(b"late\n"), what="its late output")
        self.assertIn(told(served), ((b"up\nlate\n", ()), (b"late\n", ((0, 3),))))
        # The other one cannot be written any more: it is dropped, and its size is recorded.
        for _ in range(10):
            self.client.exec("server", "head -c 400000 /dev/zero")
        harness.wait_until(lambda: told(silent) == (b"", ((0, 5),)), what="the journal that nobody writes to goes")
        self.assertTrue(told(served)[0].endswith(b"late\n"))
        self.assertEqual(self.daemon.cli("doctor", "--deep").returncode, 0)


if __name__ == "__main__":
    unittest.main()
