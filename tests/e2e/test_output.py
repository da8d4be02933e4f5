"""Output: complete, byte-exact, readable from any offset, through disconnects and daemon kills, after the sandbox."""

import hashlib
import random
import unittest

import harness
import moorage

SIZE = 100 * 1000 * 1000
# 100 MB that can be made again here: SHA-256 in counter mode, in Python (which the image has).
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
                if kind == moorage.STDOUT:
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

    def test_logs_print_it_after_the_sandbox_is_gone_and_the_daemon_is_new(self):
        self.client.create(repo_url=self.url, name="logs")
        self.client.exec("logs", "echo to-out; echo to-err >&2")
        self.client.stop("logs")
        self.daemon.restart()
        out = self.daemon.cli("logs", "logs")
        self.assertEqual((out.stdout, out.stderr), (b"to-out\n", b"to-err\n"))

    def test_reading_begins_at_any_byte(self):
        self.client.create(repo_url=self.url, name="offset")
        record = self.client.exec("offset", "for i in $(seq 1000); do echo line $i; done; echo end >&2").exec
        whole = self.client.raw_output(record["id"])
        for offset in (0, 1, 5, len(whole) // 2, len(whole) - 1, len(whole)):
            with self.client.output(record["id"], offset=offset) as stream:
                got = b"".join(p for k, p in stream if k in moorage.OUTPUT_KINDS)
            self.assertEqual(got, whole[offset:], offset)
        with self.assertRaises(moorage.MoorageError) as refused:
            self.client.output(record["id"], offset=len(whole) + 1)
        self.assertEqual(refused.exception.code, "invalid_argument")
        with self.client.output(record["id"], tail_bytes=7) as stream:
            self.assertEqual(b"".join(p for k, p in stream if k in moorage.OUTPUT_KINDS), whole[-7:])

    def test_output_that_looks_like_our_own_records_stays_output(self):
        self.client.create(repo_url=self.url, name="forge")
        forged = b"MJ1\n\x06\0\0\0" + b"\x10\0\0\0" + b"x" * 64 + b"\x06\0\0\0\0\0\0\x02{}"
        result = self.client.exec("forge", ["cat"], stdin=forged * 100)
        self.assertEqual((result.exit_code, result.stdout), (0, forged * 100))
        self.assertEqual(self.client.get_exec(result.exec["id"])["state"], "exited")


class OutputLimit(harness.TestCase):
    settings = {"exec.output_limit_bytes": 1 << 20}

    def test_the_limit_is_kept_and_said(self):
        self.client.create(repo_url=self.url, name="flood")
        result = self.client.exec("flood", "head -c 5000000 /dev/zero")
        self.assertEqual(result.exit_code, 0)
        self.assertEqual(len(result.stdout), 1 << 20)
        self.assertEqual(result.exec["omitted_bytes"], 5000000 - (1 << 20))


if __name__ == "__main__":
    unittest.main()
