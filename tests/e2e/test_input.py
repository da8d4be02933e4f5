"""Standard input: any script, any bytes, any size, even unread, and across a daemon kill."""

import hashlib
import os
import subprocess
import time
import unittest

import harness


class Input(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client.create(repo_url=cls.url, name="in")
        cls.client.start("in")

    def test_a_script_can_be_piped_in(self):
        script = b"set -e\nread first <<'X'\nfrom here\nX\necho \"$first\"; cat <<'E' | od -c | head -n1\n\x01\xff\nE\n"
        out = self.daemon.cli("exec", "in", "--", "sh", "-s", input=script)
        self.assertTrue(out.stdout.startswith(b"from here\n0000000 001 377"), out.stdout)

    def test_200_mb_arrive_unchanged(self):
        data = os.urandom(1 << 20) * 200
        out = self.daemon.cli("exec", "in", "--", "sha256sum", input=data)
        self.assertEqual(out.stdout.split()[0].decode(), hashlib.sha256(data).hexdigest())

    def test_a_command_that_reads_none_of_200_mb_ends_at_once(self):
        begin = time.monotonic()
        out = self.daemon.cli("exec", "in", "--", "true", input=bytes(200 << 20))
        self.assertEqual(out.returncode, 0)
        self.assertLess(time.monotonic() - begin, 20)
        slow = self.daemon.cli("exec", "in", "--", "sh", "-c", "sleep 0.5; exit 3", input=bytes(200 << 20), check=False)
        self.assertEqual(slow.returncode, 3)

    def test_empty_and_closed_input_is_end_of_file(self):
        self.assertEqual(self.daemon.cli("exec", "in", "--", "wc", "-c", input=b"").stdout.strip(), b"0")
        self.assertEqual(self.client.exec("in", ["wc", "-c"]).stdout.strip(), b"0")

    def test_input_continues_after_a_daemon_kill(self):
        data = os.urandom(1 << 20) * 64
        process = self.daemon.cli_popen("exec", "in", "--", "sh", "-c", "sha256sum; echo done", stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdin.write(data[: 20 << 20])
        process.stdin.flush()
        self.daemon.restart()
        process.stdin.write(data[20 << 20 :])
        out, err = process.communicate(timeout=120)
        self.assertEqual((process.returncode, err), (0, b""))
        self.assertEqual(out.decode().split()[0], hashlib.sha256(data).hexdigest())


if __name__ == "__main__":
    unittest.main()
