"""Files of an agent cost the daemon bounded memory, and delay no other request."""

import pathlib
import re
import threading
import time
import unittest

import harness
import raw_api

MEBIBYTE = 1 << 20

# Files below a path of 3.8 KB: each costs that much in any list of paths.
DEEP = """
import os
os.chdir("/workspace")
for i in range(15):
    os.mkdir("d" * 250)
    os.chdir("d" * 250)
for i in range(12000):
    os.close(os.open("%06d" % i, os.O_CREAT | os.O_WRONLY))
"""

MANY = """
import os
for d in range(20):
    os.mkdir(f"/workspace/d{d}")
    for i in range(1000):
        os.close(os.open(f"/workspace/d{d}/{i}", os.O_CREAT | os.O_WRONLY))
"""

# Moves directories around, so that no walk through them ends where it began.
MOVER = """
import os
os.chdir("/workspace")
for k in range(40):
    os.mkdir(f"q{k}")
    for i in range(150):
        os.makedirs(f"p{k}/d/{i}")
print("go", flush=True)
os.fork()
while True:
    for k in range(40):
        for old, new in ((f"p{k}/d", f"q{k}/d"), (f"q{k}/d", f"p{k}/d")):
            try:
                os.rename(old, new)
            except OSError:
                pass
"""

# A git that hangs.
SLOW_GIT = "rm .git/HEAD && mkfifo .git/HEAD"


class Measure(unittest.TestCase):
    def setUp(self):
        self.daemon = harness.Daemon()
        upstream = self.daemon.directory / "upstream"
        upstream.mkdir()
        harness.make_repository(upstream / "acme" / "shop")
        self.git = harness.GitServer(upstream)
        self.addCleanup(self.git.stop)
        self.addCleanup(self.daemon.close)
        self.client = self.daemon.start().client
        self.client.create(repo_url=self.git.url("acme/shop"), name="a")

    def memory(self, what):
        """VmRSS or VmHWM (the peak) of the daemon, in bytes."""
        status = pathlib.Path(f"/proc/{self.daemon.process.pid}/status").read_text()
        return int(re.search(rf"{what}:\s+(\d+)", status)[1]) * 1024

    def other_client(self):
        return raw_api.Client(str(self.daemon.socket))

    @unittest.skipIf(harness.SANITIZED, "a sanitizer's own memory and time are not the daemon's")
    def test_files_below_long_paths_do_not_fill_the_memory(self):
        idle = self.memory("VmRSS")
        self.client.exec("a", ["python3", "-c", DEEP])
        harness.wait_until(lambda: self.client.workspace("a")["changes"]["files"] == 12000)
        self.assertLess(self.memory("VmHWM"), 60 * MEBIBYTE)
        status = self.client.status("a")
        self.assertTrue(status["truncated"])
        self.assertGreater(len(status["files"]), 1000)
        for look in (self.client.diff, self.client.diff_stat):
            with self.assertRaises(raw_api.ApiError) as refused:
                look("a")
            self.assertEqual(refused.exception.code, "resource_exhausted")
        del status
        self.assertLess(self.memory("VmHWM"), 200 * MEBIBYTE)
        harness.wait_until(lambda: self.memory("VmRSS") < idle + 40 * MEBIBYTE, 20)

    def test_many_shows_of_a_large_workspace_delay_no_other_request(self):
        self.client.exec("a", ["python3", "-c", MANY])
        shows = [threading.Thread(target=lambda: self.other_client().workspace("a")) for _ in range(32)]
        for show in shows:
            show.start()
        longest = 0
        while any(show.is_alive() for show in shows):
            begin = time.monotonic()
            self.client.health()
            self.client.workspaces()
            longest = max(longest, time.monotonic() - begin)
        self.assertLess(longest, 1)
        harness.wait_until(lambda: self.client.workspace("a")["changes"]["files"] == 20000)

    def test_show_is_current_after_each_command(self):
        for number in range(1, 4):
            self.client.exec("a", f"echo > new{number}")
            self.assertEqual(self.client.workspace("a")["changes"]["files"], number)
        self.client.exec("a", "echo > new4")
        self.assertEqual(self.client.stop("a")["changes"]["files"], 4)

    def test_changes_of_the_last_command_are_counted_without_a_request(self):
        for number in range(1, 4):  # each too soon for a separate count
            self.client.exec("a", f"echo > new{number}")

        def counted():
            listed = next(w for w in self.client.workspaces() if w["name"] == "a")
            return listed.get("changes", {}).get("files") == 3 and self.client.execs("a")[0].get("changed_files") == 3

        harness.wait_until(counted, 20, "the count after the last one")

    def test_an_agent_that_moves_directories_about_is_stopped(self):
        moving = self.client.start_exec("a", ["python3", "-c", MOVER])
        harness.wait_until(lambda: self.client.get_exec(moving["id"])["output_bytes"] > 0)
        for _ in range(3):  # not every walk meets a move
            self.client.workspace("a")
        begin = time.monotonic()
        self.assertNotIn("sandbox", {k for k, v in self.client.stop("a", force=True).items() if v})
        self.assertLess(time.monotonic() - begin, 8)
        self.assertNotEqual(self.client.get_exec(moving["id"])["state"], "running")

    def test_a_hanging_git_does_not_prevent_a_stop(self):
        self.client.exec("a", SLOW_GIT)
        begin = time.monotonic()
        self.client.workspace("a")
        self.client.stop("a")
        self.assertLess(time.monotonic() - begin, 8)

    def test_a_mirror_without_objects_does_not_prevent_a_stop(self):
        self.client.exec("a", "true")
        directory = self.daemon.store / "repos" / self.client.repos()[0]["id"] / "git"
        for pack in directory.rglob("*.pack"):
            pack.chmod(0o600)
            pack.write_bytes(b"broken")
        for loose in (directory / "objects").glob("??/*"):
            loose.unlink()
        self.daemon.restart()
        self.client.workspace("a")
        self.assertEqual(self.client.stop("a")["state"], "ready")
        self.assertIn("workspace.not_measured", self.daemon.log_tail())
