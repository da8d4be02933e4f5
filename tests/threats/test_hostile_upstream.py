"""An upstream that answers a fetch with bombs: row 29. It speaks git's protocol itself, so that no git of ours has to pack them."""

import hashlib
import itertools
import os
import pathlib
import socketserver
import subprocess
import threading
import time
import unittest
import zlib

from threat import Threats, harness, threat

MiB = 1 << 20
COMMIT, TREE, BLOB, OFS_DELTA = 1, 2, 3, 6
NAMES = {COMMIT: b"commit", TREE: b"tree", BLOB: b"blob"}


def pkt(text):
    return b"%04x" % (len(text) + 4) + text


def head_of(kind, size):
    """The head of an object in a pack."""
    first, size = (kind << 4) | (size & 15), size >> 4
    text = bytearray()
    while size:
        text.append(first | 0x80)
        first, size = size & 0x7f, size >> 7
    return bytes(text) + bytes([first])


def varint(number):
    text = bytearray()
    while number > 0x7f:
        text.append(number & 0x7f | 0x80)
        number >>= 7
    return bytes(text) + bytes([number])


def zeros(size):
    """Deflated, and the id of a blob of them."""
    pack, digest, piece = zlib.compressobj(9), hashlib.sha1(b"blob %d\0" % size), bytes(MiB)
    text = b""
    for _ in range(size // MiB):
        text += pack.compress(piece)
        digest.update(piece)
    return text + pack.flush(), digest.digest()


class Pack:
    """Objects one after the other; `commit` ends it."""

    def __init__(self):
        self.objects, self.count, self.size = [], 0, 12

    def add(self, kind, text, deflated=None, size=None):
        """Its id, from its text."""
        whole = head_of(kind, len(text) if size is None else size) + (zlib.compress(text) if deflated is None else deflated)
        self.objects.append(whole)
        at, self.size, self.count = self.size, self.size + len(whole), self.count + 1
        return hashlib.sha1(b"%s %d\0" % (NAMES[kind], len(text)) + text).digest() if kind in NAMES and deflated is None else at

    def delta(self, base_at, base_size, copies):
        """A blob of so many copies of its base, which begins at `base_at` of the pack: 2 bytes for each MiB of it."""
        assert base_size == MiB
        text = varint(base_size) + varint(copies * MiB) + b"\xc0\x10" * copies
        distance = self.size - base_at
        offset = bytearray([distance & 0x7f])
        while distance := distance >> 7:
            distance -= 1
            offset.insert(0, 0x80 | (distance & 0x7f))
        whole = head_of(OFS_DELTA, len(text)) + bytes(offset) + zlib.compress(text)
        self.objects.append(whole)
        self.size, self.count = self.size + len(whole), self.count + 1

    def commit(self, files=(), tree=None):
        """`files`: (name, id of a blob). Returns the commit's id."""
        tree = tree or self.add(TREE, b"".join(b"100644 " + name + b"\0" + oid for name, oid in sorted(files)))
        text = b"tree " + tree.hex().encode() + b"\nauthor t <t@t> 1700000000 +0000\ncommitter t <t@t> 1700000000 +0000\n\nx\n"
        return self.add(COMMIT, text)

    def bytes(self, count=None):
        whole = b"PACK" + (2).to_bytes(4, "big") + (count or self.count).to_bytes(4, "big") + b"".join(self.objects)
        return whole + hashlib.sha1(whole).digest()


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        try:
            size = int(self.rfile.read(4), 16)
            name = self.rfile.read(size - 4).split(b"\0")[0].split(b"/")[-1].decode()
            refs, pieces = self.server.repositories[name]
            capabilities = b"symref=HEAD:refs/heads/main ofs-delta"
            for number, (ref, oid) in enumerate(itertools.chain([("HEAD", None)], refs())):
                oid = oid or self.server.tips[name]
                self.wfile.write(pkt(oid + b" " + ref.encode() + (b"\0" + capabilities if number == 0 else b"") + b"\n"))
            self.wfile.write(b"0000")
            while line := self.rfile.read(4):
                if int(line, 16) > 4 and self.rfile.read(int(line, 16) - 4) == b"done\n":
                    break
                if line == b"0000" and not pieces:
                    return
            else:
                return
            self.wfile.write(pkt(b"NAK\n"))
            for piece in pieces():
                self.wfile.write(piece)
        except (OSError, ValueError):
            pass  # the client has gone


class Upstream(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories, self.tips = {}, {}
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()

    def serve(self, name, commit, pieces, refs=None):
        """Returns its URL."""
        self.tips[name] = commit if isinstance(commit, bytes) and len(commit) == 40 else commit.hex().encode()
        self.repositories[name] = (refs or (lambda: [("refs/heads/main", None)]), pieces)
        return f"git://127.0.0.1:{self.server_address[1]}/acme/{name}"

    def close(self):
        self.shutdown()
        self.server_close()
        self.thread.join(5)


class HostileUpstream(Threats):
    settings = {"repo.max_git_memory_bytes": "512MiB", "repo.max_objects": 1_000_000, "repo.max_fetch_bytes": "64MiB",
                "repo.fetch_deadline_s": 20}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.bombs = Upstream()
        cls.addClassCleanup(cls.bombs.close)

    def memory(self):
        """The daemon's largest resident set so far."""
        status = pathlib.Path(f"/proc/{self.daemon.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) << 10

    def refused(self, url, *codes, seconds):
        began = time.monotonic()
        with self.assertRaises(harness.raw_api.ApiError) as refused:
            self.client.create(repo_url=url, name="bomb")
        self.assertIn(refused.exception.code, codes, refused.exception.message)
        self.assertLess(time.monotonic() - began, seconds * harness.PATIENCE)
        return refused.exception

    @staticmethod
    def delta_bomb(copies):
        """A blob of `copies` MiB that arrives as a delta of a few kilobytes, and is in no tree."""
        pack = Pack()
        small = pack.add(BLOB, b"small\n")
        base_at = pack.add(BLOB, bytes(MiB), deflated=zlib.compress(bytes(MiB), 9), size=MiB)
        pack.delta(base_at, MiB, copies)
        return pack.commit([(b"small", small)]), pack.bytes()

    def plain_git_takes(self, pack):
        """The largest resident set of git's index-pack without limits."""
        place = self.daemon.directory / "plain"
        harness.run("git", "init", "-q", "--bare", place)
        child = subprocess.Popen(["git", "-C", str(place), "index-pack", "--stdin"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        child.stdin.write(pack)
        child.stdin.close()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = status
        harness.shutil.rmtree(place)
        self.assertEqual(status, 0)
        return usage.ru_maxrss << 10

    @threat(29, "H", "bombs from upstream: a delta of 5 kB that makes 2 GiB, endless packs, millions of objects and refs, trees 20,000 deep, files of 600 MiB and 3 GiB, an upstream that never ends",
            "each fetch is a child process with limits of memory, bytes, objects, refs and time; large files are written by a child, too; the daemon continues, and nothing of it remains",
            "git without these limits takes over 1 GiB for the same pack; a delta that makes 100 MiB, and a file of 600 MiB, arrive")
    def test_a_fetched_bomb_ends_its_child_and_nothing_else(self):
        daemon, before = self.daemon.process.pid, self.memory()
        with self.subTest("a delta that makes 2 GiB"):
            commit, pack = self.delta_bomb(2048)
            self.assertLess(len(pack), 20_000)
            error = self.refused(self.bombs.serve("delta", commit, lambda: [pack]), "resource_exhausted", seconds=15)
            self.assertIn("repo.max_git_memory_bytes", error.hint)
            self.assertGreater(self.plain_git_takes(pack), 1 << 30)
        with self.subTest("a delta that makes 100 MiB"):
            commit, pack = self.delta_bomb(100)
            self.arrives(self.bombs.serve("small-delta", commit, lambda: [pack]), "cat small", b"small\n")
        with self.subTest("an endless pack"):
            head = b"PACK" + (2).to_bytes(4, "big") + (3).to_bytes(4, "big") + head_of(BLOB, 100 << 30) + b"\x78\x01"
            stored = b"\x00" + (60_000).to_bytes(2, "little") + (60_000 ^ 0xffff).to_bytes(2, "little") + os.urandom(60_000)
            self.refused(self.bombs.serve("endless", commit, lambda: itertools.chain([head], itertools.repeat(stored))),
                         "resource_exhausted", seconds=15)
        with self.subTest("2 million objects"):
            many = Pack()
            many.add(BLOB, b"x")
            text = many.bytes(2_000_000)[:-20]
            self.refused(self.bombs.serve("objects", commit, lambda: itertools.chain([text], self.slowly(head_of(BLOB, 1) + zlib.compress(b"y")))),
                         "resource_exhausted", seconds=15)
        with self.subTest("10 million refs"):
            refs = lambda: ((f"refs/heads/{number:08}", commit.hex().encode()) for number in range(10_000_000))  # noqa: E731
            self.refused(self.bombs.serve("refs", commit, None, refs), "resource_exhausted", seconds=60)
        with self.subTest("trees 20,000 deep"):
            deep = Pack()
            tree = deep.add(TREE, b"100644 f\0" + deep.add(BLOB, b"x"))
            for _ in range(20_000):
                tree = deep.add(TREE, b"40000 d\0" + tree)
            bottom, text = deep.commit(tree=tree), None
            text = deep.bytes()
            self.refused(self.bombs.serve("deep", bottom, lambda: [text]), "invalid_argument", "io", "resource_exhausted", "corrupted",
                         seconds=30)
        with self.subTest("an upstream that never ends its answer"):
            forever = lambda: (pause for pause in self.pauses())  # noqa: E731
            self.refused(self.bombs.serve("never", commit, None, forever), "deadline_exceeded", "unavailable", seconds=40)
        for size, fits in ((600 * MiB, True), (3072 * MiB, False)):
            with self.subTest("a file", bytes=size):
                large = Pack()
                deflated, oid = zeros(size)
                large.add(BLOB, b"", deflated=deflated, size=size)
                commit, text = large.commit([(b"large", oid)]), None
                text = large.bytes()
                url = self.bombs.serve(f"file-{size}", commit, lambda: [text])  # noqa: B023
                if fits:
                    self.arrives(url, "stat -c %s large; git status --porcelain", b"%d\n" % size)
                else:
                    self.refused(url, "resource_exhausted", "deadline_exceeded", seconds=60)
        self.assertEqual(self.daemon.process.pid, daemon)
        self.assertIsNone(self.daemon.process.poll())
        if not harness.SANITIZED:
            self.assertLess(self.memory() - before, 200 * MiB)
        self.assertEqual([str(path) for path in self.daemon.store.glob("repos/*/git.new")], [])
        self.assertEqual([line for line in harness.processes().values() if str(self.daemon.store / "repos") in line], [])
        self.client.create(repo_url=self.url, name="after")
        self.client.delete("after", purge=True)

    def arrives(self, url, command, expected):
        self.client.create(repo_url=url, name="whole")
        self.assertEqual(self.client.exec("whole", command).stdout, expected)
        self.client.delete("whole", purge=True)

    @staticmethod
    def slowly(piece):
        while True:
            yield piece * 1000
            time.sleep(0.05)

    @staticmethod
    def pauses():
        for number in itertools.count():
            time.sleep(0.2)
            yield f"refs/heads/{number}", b"1" * 40


if __name__ == "__main__":
    unittest.main()
