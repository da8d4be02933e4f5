"""Arguments, input and output of a command are those that it would have here."""

import harness
import raw_api

COUNT = ["python3", "-c", "import sys; a = sys.argv[1:]; print(len(a), sum(map(len, a)), a[-1])"]


class Arguments(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client.create(repo_url=cls.url, name="args")
        cls.client.start("args")

    def counted(self, words):
        run = self.daemon.cli("exec", "args", "--", *COUNT, *words, check=False)
        self.assertEqual(run.stdout.decode().split(), [str(len(words)), str(sum(map(len, words))), words[-1]], run.stderr[-500:])

    def test_20000_arguments_arrive(self):
        words = [f"src/module-{n}/file.cc" for n in range(20_000)]
        self.counted(words)
        last = self.client.execs("args")[0]
        self.assertEqual(last["argv"][-1], words[-1])
        self.assertIn(b"python3", self.daemon.cli("history", "args").stdout)

    def test_the_longest_argument_of_linux_arrives_and_a_longer_one_names_the_limit(self):
        self.counted(["x" * (128 * 1024 - 1)])
        with self.assertRaisesRegex(raw_api.ApiError, r"argv\[1\] has 128K, and Linux allows 128 KiB \(MAX_ARG_STRLEN\)"):
            self.client.exec("args", ["echo", "x" * (128 * 1024)])

    def test_two_megabytes_of_odd_bytes_arrive_and_more_name_the_limit(self):
        words = ["\x01" * 100_000] * 19
        code = "import sys; print(len(sys.argv), sum(map(len, sys.argv[1:])), set(''.join(sys.argv[1:])) == {chr(1)})"
        run = self.daemon.cli("exec", "args", "--", "python3", "-c", code, *words, check=False)
        self.assertEqual((run.returncode, run.stdout), (0, b"20 1900000 True\n"), run.stderr[-500:])
        with self.assertRaisesRegex(raw_api.ApiError, r"22 arguments and 0 variables take 2100\d+ bytes, and Linux allows 2 MiB"):
            self.client.exec("args", ["true", *["y" * 100_000] * 21])

    def test_a_body_over_its_limit_names_the_setting(self):
        with self.assertRaisesRegex(raw_api.ApiError, "the JSON body is larger than 4194304 bytes") as caught:
            self.client.exec("args", ["true", "y" * (5 << 20)])
        self.assertIn("api.max_json_bytes", str(caught.exception.hint))


if __name__ == "__main__":
    harness.unittest.main()
