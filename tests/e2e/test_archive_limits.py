"""A huge archive or a slow client has no effect on other users."""

import contextlib
import http.client
import io
import os
import socket
import sqlite3
import sys
import tarfile
import threading
import time
import unittest

import harness
import raw_api
import test_full_disk
import trees

sys.path.insert(0, str(harness.pathlib.Path(__file__).resolve().parents[1] / "overload"))
from greedy import become  # noqa: E402

A, B = 61001, 61002
UNREAD = 24 << 20

def exported(client, name):
    out = io.BytesIO()
    client.export(name, out)
    return trees.members_of(out.getvalue())


class SmallDisk(test_full_disk.DiskTest):
    settings = {"store.min_free_bytes": 60 << 20}

    def take_in(self, archive):
        """Refused for lack of space; returns the minimum of free space."""
        least, done = [self.disk.free()], threading.Event()

        def look():
            while not done.wait(0.002):
                least[0] = min(least[0], self.disk.free())
        looker = threading.Thread(target=look)
        looker.start()
        try:
            with self.assertRaises(raw_api.ApiError) as refused:
                self.client.import_(archive, name="bomb")
        finally:
            done.set()
            looker.join()
        self.assertEqual(refused.exception.code, "resource_exhausted", refused.exception.message)
        self.assertIn("nearly full", refused.exception.message)
        self.assertNotIn("bomb", [w["name"] for w in self.client.workspaces()])
        return least[0]

    def test_an_archive_never_uses_reserved_space(self):
        members = exported(self.client, "work")
        at = max(i for i, (m, _) in enumerate(members) if m.name.startswith("layers/0/tree")) + 1
        big = tarfile.TarInfo("layers/0/tree/big")
        big.uid = big.gid = 1000
        one_file = trees.archive_of(members[:at] + [(big, b"\0" * (200 << 20))] + members[at:])
        self.assertLess(len(one_file), 1 << 20)
        self.assertGreater(self.take_in(one_file), 45 << 20)

        self.client.exec("work", "true")
        members = exported(self.client, "work")
        one = next(c for m, c in members if m.name == "execs.jsonl").splitlines()[0]
        # A long command each: the disk limit is reached before their number.
        long = one.replace(b"7472756500", b"74727565" + b"20" * 4000 + b"00")
        many = b"".join(long.replace(b'"ex_1"', b'"ex_%d"' % n) + b"\n" for n in range(1, 30_000))
        bomb = trees.archive_of([(m, many if m.name == "execs.jsonl" else c) for m, c in members
                                 if not m.name.startswith("journal/")])
        self.assertLess(len(bomb), 8 << 20)
        database = self.daemon.store / "state.db"
        self.assertGreater(self.take_in(bomb), 45 << 20)
        with contextlib.closing(sqlite3.connect(database)) as db:
            self.assertEqual(db.execute("SELECT count(*) FROM execs WHERE imported_from <> ''").fetchone(), (0,))
            self.assertEqual(db.execute("SELECT count(*) FROM events WHERE kind = 'exec.state' AND workspace <> 1").fetchone(), (0,))
        self.assertEqual(self.client.exec("work", "true", free_space=True).exit_code, 0)


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.sock.settimeout(60)
        self.sock.connect(self.path)


class SlowClients(harness.TestCase):
    def open(self, method, path, headers=None):
        connection = Connection(str(self.daemon.socket))
        self.addCleanup(connection.close)
        connection.putrequest(method, "/v1" + path)
        for name, value in (headers or {}).items():
            connection.putheader(name, value)
        connection.endheaders()
        return connection

    def test_a_slow_export_reader_delays_no_other_user(self):
        self.client.create(repo_url=self.url, name="sent")
        self.client.exec("sent", "head -c 24M /dev/urandom > random")
        answers = []
        for _ in range(6):  # more than the number of threads
            connection = self.open("GET", "/workspaces/sent/export")
            answers.append(connection.getresponse())
        began = time.monotonic()
        self.assertEqual(self.client.exec("sent", "wc -c < random").stdout.strip(), str(24 << 20).encode())
        self.assertLess(time.monotonic() - began, 25)
        # A reader that continues gets all of it.
        self.assertIn("random", [m.name.split("/")[-1] for m, _ in trees.members_of(answers[-1].read())])
        self.assertEqual(self.client.archive("sent")["state"], "archived")
        self.client.delete("sent", purge=True)

    def test_a_slow_import_delays_no_other_user(self):
        self.client.create(repo_url=self.url, name="here")
        self.client.exec("here", "echo kept > kept")
        out = io.BytesIO()
        self.client.export("here", out)
        for number in range(12):
            connection = self.open("POST", f"/workspaces/import?name=slow-{number}", {"Content-Length": "1000000"})
            connection.send(out.getvalue()[:100])
        began = time.monotonic()
        self.client.import_(out.getvalue(), name="quick")
        self.client.archive("here")
        self.assertEqual(self.client.exec("here", "cat kept").stdout, b"kept\n")
        self.assertLess(time.monotonic() - began, 30)
        for name in ("here", "quick"):
            self.client.delete(name, purge=True)

    def test_the_daemon_stops_with_slow_clients(self):
        self.client.create(repo_url=self.url, name="stopped")
        self.client.exec("stopped", "head -c 24M /dev/urandom > random")
        self.open("GET", "/workspaces/stopped/export").getresponse()
        self.open("POST", "/workspaces/import?name=never", {"Content-Length": "1000000"}).send(b"x")
        began = time.monotonic()
        self.daemon.restart()
        self.assertLess(time.monotonic() - began, 30)
        self.assertEqual({w["name"]: w["state"] for w in self.client.workspaces()}["stopped"], "ready")
        self.client.delete("stopped", purge=True)


class TwoUsers(harness.TestCase):
    """A user who exports without reading, and another one."""
    settings = {"user.budget_bytes": UNREAD}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.daemon.directory.chmod(0o711)
        cls.daemon.socket.chmod(0o666)

    def as_user(self, uid, work):
        """Its result or error, in a thread with the user's ids."""
        found = {}

        def run():
            become(uid)
            try:
                found["value"] = work(harness.Client(str(self.daemon.socket)))
            except raw_api.ApiError as error:
                found["error"] = error
        thread = threading.Thread(target=run)
        thread.start()
        thread.join(120 * harness.PATIENCE)
        self.assertFalse(thread.is_alive(), self.daemon.waiting())
        if "error" in found:
            raise found["error"]
        return found["value"]

    def begin_export(self, uid, name):
        """A connection with an export that is never read."""
        def work(client):
            connection = Connection(str(self.daemon.socket))
            self.addCleanup(connection.close)
            connection.request("GET", f"/v1/workspaces/{name}/export")
            self.assertEqual(connection.getresponse().status, 200)
            return connection
        return self.as_user(uid, work)

    def test_unread_exports_are_limited_per_user(self):
        def fill(client):
            client.create(repo_url=self.url, name="work")
            client.write_file("work", "random", os.urandom(UNREAD // 2))
        for uid in (A, B):
            self.as_user(uid, fill)
        unread = [self.begin_export(A, "work") for _ in range(3)]
        with self.assertRaises(raw_api.ApiError) as refused:
            self.as_user(A, lambda client: exported(client, "work"))
        self.assertEqual(refused.exception.code, "conflict")
        self.assertIn("3 exports in progress", refused.exception.message)
        # The other user still has everything: exports, space, workspaces.
        for _ in range(3):
            self.assertIn("layers/0/tree/random", [m.name for m, _ in self.as_user(B, lambda c: exported(c, "work"))])
        self.as_user(B, lambda client: client.create(repo_url=self.url, name="more"))
        # Unread exports are counted.
        harness.wait_until(lambda: self.as_user(A, lambda c: c.disk_usage())["exports_bytes"] > UNREAD, what="all is written")
        self.assertEqual(self.as_user(B, lambda c: c.disk_usage())["exports_bytes"], 0)
        self.assertGreater(self.client.disk_usage()["exports_bytes"], UNREAD)
        with self.assertRaises(raw_api.ApiError) as refused:
            self.as_user(A, lambda client: client.create(repo_url=self.url, name="more"))
        self.assertEqual(refused.exception.code, "resource_exhausted")
        for connection in unread:
            connection.close()
        harness.wait_until(lambda: self.as_user(A, lambda c: c.disk_usage())["exports_bytes"] == 0, what="they are gone")
        self.as_user(A, lambda client: client.create(repo_url=self.url, name="more"))
        self.as_user(A, lambda client: exported(client, "work"))
        for uid in (A, B):
            for name in ("work", "more"):
                self.as_user(uid, lambda client, name=name: client.delete(name, purge=True))


if __name__ == "__main__":
    unittest.main()
