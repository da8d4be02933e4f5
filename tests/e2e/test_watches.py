"""A file watcher with another working directory sees changes after every kind of snapshot: with inotify and tools based on it."""

import os
import unittest

import harness

# Prints the name of each written or moved file in /workspace and the home directory; "lost" if a watch ended.
WATCHER = r"""
import ctypes, os, struct
libc = ctypes.CDLL(None)
fd = libc.inotify_init()
for place in (b"/workspace", b"/home/user"): libc.inotify_add_watch(fd, place, 0x88)
print("watching", flush=True)
while True:
    data = os.read(fd, 65536)
    while data:
        wd, mask, cookie, size = struct.unpack_from("iIII", data)
        name = data[16:16 + size].rstrip(b"\0").decode()
        data = data[16 + size:]
        print("lost" if mask & 0xa000 else name, flush=True)
"""
# Like chokidar: a watch for each directory.
NODE_WATCHER = r"""
const fs = require('fs');
for (const place of ['/workspace', '/workspace/src']) fs.watch(place, (event, name) => console.log(name));
console.log('watching');
"""


class Watches(harness.TestCase):
    def setUp(self):
        self.name = self.client.create(repo_url=self.url)["id"]
        self.addCleanup(self.client.delete, self.name, purge=True, force=True)

    def start(self, *argv):
        """Starts a watching command that holds no file of the workspace."""
        self.exec_id = self.client.start_exec(self.name, list(argv), cwd="/")["id"]

    def printed(self):
        return self.client.raw_output(self.exec_id).decode(errors="replace")

    def await_line(self, line):
        try:
            harness.wait_until(lambda: line in self.printed().splitlines(), 20, f"the line {line!r}")
        except AssertionError:
            self.fail(f"{line!r} was not printed, but: {self.printed()!r}")

    def changes(self, number):
        """A change by the file API, and one by another command."""
        self.client.write_file(self.name, f"api{number}", b"x")
        self.await_line(f"api{number}")
        self.client.exec(self.name, ["sh", "-c", f"echo x > /home/user/home{number}"])
        self.await_line(f"home{number}")

    def each_way(self):
        yield "snapshot", lambda: self.client.snapshot(self.name)
        yield "fork", lambda: self.addCleanup(self.client.delete, self.client.fork(self.name)[0]["id"], purge=True)
        yield "before-exec", lambda: (self.client.update(self.name, snapshot_before_exec=True), self.client.exec(self.name, "true"),
                                      self.client.update(self.name, snapshot_before_exec=False))
        yield "again", lambda: self.client.snapshot(self.name)

    def test_inotify_sees_changes_after_each_way_of_a_snapshot(self):
        self.start("python3", "-c", WATCHER)
        self.await_line("watching")
        self.changes(0)
        for number, (way, snapshot) in enumerate(self.each_way(), 1):
            with self.subTest(way):
                snapshot()
                self.changes(number)
        self.assertNotIn("lost", self.printed())

    def test_a_snapshot_with_a_watcher_has_all_written_files(self):
        self.start("python3", "-c", WATCHER)
        self.await_line("watching")
        self.client.write_file(self.name, "kept", b"before")
        taken = self.client.snapshot(self.name)
        self.assertIn(taken["way"], ("copy", "subvolume"))
        self.client.write_file(self.name, "kept", b"after")
        fork = self.client.fork(self.name, snapshot=taken["id"])[0]
        self.addCleanup(self.client.delete, fork["id"], purge=True)
        self.assertEqual(self.client.read_file(fork["id"], "kept"), b"before")
        self.client.cancel(self.exec_id)
        self.client.wait(self.exec_id, 20_000)
        harness.wait_until(lambda: self.client.snapshot(self.name)["way"] != "copy", what="an exchange, now that nobody watches")

    def test_a_restore_with_a_watcher_is_never_silent(self):
        taken = self.client.snapshot(self.name)
        self.start("python3", "-c", WATCHER)
        self.await_line("watching")
        with self.assertRaises(harness.raw_api.ApiError) as refused:
            self.client.restore(self.name, taken["id"])
        self.assertEqual(refused.exception.code, "conflict")
        self.changes(1)
        self.client.restore(self.name, taken["id"], kill=True)
        self.assertNotEqual(self.client.wait(self.exec_id, 20_000)["state"], "running")

    @unittest.skipUnless(os.path.exists("/usr/bin/node"), "node is not installed")
    def test_node_sees_changes_after_a_snapshot(self):
        self.client.exec(self.name, "mkdir src; echo 'console.log(\"run 0\"); setInterval(() => {}, 1000)' > src/app.js")
        watching = self.client.start_exec(self.name, ["node", "-e", NODE_WATCHER], cwd="/")["id"]
        self.start("node", "--watch", "/workspace/src/app.js")
        self.await_line("run 0")
        for number in (1, 2):
            self.client.snapshot(self.name)
            # In place: node --watch does not follow a file replaced by a rename, snapshot or not.
            self.client.exec(self.name, f"echo 'console.log(\"run {number}\"); setInterval(() => {{}}, 1000)' > src/app.js")
            self.await_line(f"run {number}")
            self.client.write_file(self.name, f"src/seen{number}", b"x")
            self.exec_id, other = watching, self.exec_id
            self.await_line(f"seen{number}")
            self.exec_id = other


if __name__ == "__main__":
    unittest.main()
