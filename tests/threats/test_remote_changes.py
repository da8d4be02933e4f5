"""What comes back from a machine elsewhere, applied to the workspace here: row 77.

The matrix has a row for each thing that a hostile machine can send: packs that break a rule, which must be refused by name before anything
outside of the workspace is touched, and packs of odd but lawful entries, which must arrive as they are, inside. They are put where
moorage-link puts the bytes of a machine, which it only counts (link/sync_intake.h); the fuzz targets link_stream and merged_pack cover the
way there. No process of the sandbox sees the local mounts, so no path can change while it is applied; the swapping thing does it all the
same, by host root.
"""

import contextlib
import hashlib
import os
import pathlib
import re
import stat
import struct
import subprocess
import time
import unittest

from hostile_things import SWAPPED
from threat import harness, threat
import on_ssh
from test_hostile_tree import MAX_RSS_KB, Opened, Tree, program

FILE, DIRECTORY, SYMLINK, HARD_LINK, FIFO, SOCKET, WHITEOUT, CHARACTER_DEVICE, BLOCK_DEVICE = range(9)
DEADLINE_S = 60 * harness.PATIENCE
BLOCK = 128 << 10
USER = 1000
# A capability with host ids (version 2): it would hold on this host, not only in a user namespace.
HOST_CAPABILITY = struct.pack("<5I", 0x02000001, 0x20, 0, 0, 0)


# -- packs, written without our own writer (packs/delta_pack.h, packs/zstd_frame.h) ----------------------------------

def text(value):
    value = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
    return struct.pack("<I", len(value)) + value


def entry(path, kind=FILE, mode=0o644, uid=USER, gid=USER, attributes=(), target="", size=None, pieces=(), nanoseconds=7):
    pieces = [(offset, data) for offset, data in pieces]
    if size is None:
        size = max((offset + len(data) for offset, data in pieces), default=0)
    made = b"e" + text(path) + struct.pack("<BIIIqII", kind, mode, uid, gid, 1_700_000_000, nanoseconds, len(attributes))
    made += b"".join(text(name) + text(value) for name, value in attributes) + text(target) + struct.pack("<Q", size)
    if kind == FILE:
        made += b"".join(struct.pack("<Q", offset) + text(data) for offset, data in pieces) + struct.pack("<QI", 0, 0)
    return made


def file(path, data="hostile", **fields):
    return entry(path, pieces=[(0, data)], **fields)


def directory(path, **fields):
    return entry(path, DIRECTORY, **{"mode": 0o755} | fields)


def removal(path):
    return b"r" + text(path)


def frame(blocks):
    """A zstd frame of blocks (bytes, or (byte, count): one byte repeated) with our trailer."""
    ready = []
    for block in blocks:
        if isinstance(block, tuple):
            ready.append((1, block[1], block[0]))
        else:
            ready += [(0, len(block[at:at + BLOCK]), block[at:at + BLOCK]) for at in range(0, max(len(block), 1), BLOCK)]
    out = bytearray(b"\x28\xb5\x2f\xfd\x00\x50")
    for number, (kind, size, data) in enumerate(ready):
        out += struct.pack("<I", (number == len(ready) - 1) | kind << 1 | size << 3)[:3] + data
    return bytes(out) + b"\x5e\x2a\x4d\x18" + text(b"MOORAGE\x01" + hashlib.sha256(out).digest())


def pack(*changes, blocks=None):
    first, second = frame(blocks or [b"".join(changes) + b"z"]), frame([b""])
    return first + second + b"moorage pack 1\n" + struct.pack("<QQ", len(first), len(second))


def bomb(begin, byte, times):
    return pack(blocks=[begin] + [(byte, BLOCK)] * times)


def damaged(position):
    good = bytearray(pack(file("tree/damaged", "x" * 5000)))
    good[int(len(good) * position)] ^= 0x20
    return bytes(good)


LONG = "n" * 256
DEEP = "tree" + "/d" * 1000

# name -> (function of the canary's path that returns packs, a part of the reason). All of them are refused.
REFUSED = {
    "a path with ..": (lambda canary: [pack(file("tree/../../../../../../.." + canary))], "its path is invalid"),
    "an absolute path": (lambda canary: [pack(file(canary))], "its path is invalid"),
    "a path in no tree": (lambda canary: [pack(file("layers/ly_1/x"))], "in no directory of a sandbox"),
    "an empty part": (lambda canary: [pack(file("tree//x"))], "its path is invalid"),
    ".git/..": (lambda canary: [pack(file("tree/.git/../../x"))], "its path is invalid"),
    "a name of 256 bytes": (lambda canary: [pack(file("tree/" + LONG))], "its path is invalid"),
    "a NUL in a name": (lambda canary: [pack(file(b"tree/a\0b"))], "its path is invalid"),
    "a path 1,000 deep": (lambda canary: [pack(file(DEEP))], "deep"),
    "below a link": (lambda canary: [pack(entry("tree/way", SYMLINK, 0o777, target=os.path.dirname(canary)),
                                          file("tree/way/" + os.path.basename(canary)))], "its directory is missing"),
    "below a link of another pack": (lambda canary: [pack(entry("tree/way", SYMLINK, 0o777, target=os.path.dirname(canary))),
                                                     pack(directory("tree/way/made"))], "its directory is missing"),
    "below a magic link": (lambda canary: [pack(entry("tree/way", SYMLINK, 0o777, target="/proc/self/root")),
                                           pack(file("tree/way" + canary))], "its directory is missing"),
    "a directory that becomes a link": (lambda canary: [pack(directory("tree/way"), file("tree/way/x"),
                                                             entry("tree/way", SYMLINK, 0o777, target=os.path.dirname(canary)),
                                                             file("tree/way/" + os.path.basename(canary)))], "its directory is missing"),
    "a character device": (lambda canary: [pack(entry("tree/null", CHARACTER_DEVICE))], "an unknown type"),
    "a block device": (lambda canary: [pack(entry("tree/disk", BLOCK_DEVICE))], "an unknown type"),
    "a whiteout": (lambda canary: [pack(entry("tree/README.md", WHITEOUT))], "it is a device"),
    "an owner of another sandbox": (lambda canary: [pack(file("tree/theirs", uid=65536))], "its owner is 65536"),
    "a group of the host": (lambda canary: [pack(file("tree/theirs", gid=0xffffffff))], "its owner is"),
    "a mode with a type": (lambda canary: [pack(file("tree/mode", mode=stat.S_IFCHR | 0o666))], "its mode is invalid"),
    "a time that does not exist": (lambda canary: [pack(file("tree/time", nanoseconds=1_000_000_000))], "an invalid number"),
    "trusted.overlay.opaque": (lambda canary: [pack(directory("tree/src", attributes=[("trusted.overlay.opaque", "y")]))], "attribute"),
    "trusted.overlay.redirect": (lambda canary: [pack(directory("tree/src", attributes=[("trusted.overlay.redirect", "/etc")]))], "attribute"),
    "user.overlay.whiteout": (lambda canary: [pack(file("tree/x", attributes=[("user.overlay.whiteout", "y")]))], "attribute"),
    "a capability of the host": (lambda canary: [pack(file("tree/x", attributes=[("security.capability", HOST_CAPABILITY)]))], "attribute"),
    "a label": (lambda canary: [pack(file("tree/x", attributes=[("security.selinux", "x")]))], "attribute"),
    "a hard link to the host": (lambda canary: [pack(entry("tree/l", HARD_LINK, target="tree/../../../../../../.." + canary))], "its path is invalid"),
    "a hard link through a link": (lambda canary: [pack(entry("tree/way", SYMLINK, 0o777, target=os.path.dirname(canary)),
                                                        entry("tree/l", HARD_LINK, target="tree/way/" + os.path.basename(canary)))], "its directory is missing"),
    "a hard link into the home": (lambda canary: [pack(file("home/h"), entry("tree/l", HARD_LINK, target="home/h"))], "another tree"),
    "a removal of what is outside": (lambda canary: [pack(removal("tree/../../../../../../.." + canary))], "its path is invalid"),
    "a removal of the top": (lambda canary: [pack(removal("tree"))], "the top of a tree"),
    "more data than its size": (lambda canary: [pack(entry("tree/x", size=3, pieces=[(0, "four")]))], "exceeds"),
    "data out of order": (lambda canary: [pack(entry("tree/x", size=9, pieces=[(4, "x"), (0, "y")]))], "order"),
    "a size beyond all files": (lambda canary: [pack(entry("tree/x", size=1 << 63))], "size"),
    "a log that grows": (lambda canary: [pack(b"a" + text("tree/README.md") + struct.pack("<Q", 0) + text("x") + struct.pack("<QI", 0, 0))], "grow"),
    "a digest that does not match": (lambda canary: [damaged(0.5)], "SHA-256"),
    "a damaged trailer": (lambda canary: [damaged(0.999)], "damaged"),
    "nothing but noise": (lambda canary: [os.urandom(10_000)], "damaged"),
    "an unknown change": (lambda canary: [pack(b"q")], "unknown change"),
    # 64 GiB of one byte, in 2 MB.
    "a bomb for a name": (lambda canary: [bomb(b"e" + struct.pack("<I", 0xffffffff), b"n", 524_288)], "too long"),
    "a bomb for a piece": (lambda canary: [bomb(entry("tree/x", size=1 << 62)[:-12] + struct.pack("<QI", 0, 0xffffffff), b"n", 524_288)], "invalid piece"),
    "a bomb behind the end": (lambda canary: [bomb(b"z", b"z", 524_288)], "damaged"),
}


def lawful(canary):
    """Entries that an agent may make there: they arrive as they are, inside."""
    names = [b"a\nb", b"\xff\xfe", b"-rf", b" ", b"...", b"\x1b]0;owned\x07", b"$(reboot)", "‮evil".encode(), b"n" * 255]
    return pack(
        directory("tree/odd"), *(file(b"tree/odd/" + name) for name in names),
        entry("tree/odd/to-the-host", SYMLINK, 0o777, target=canary), entry("tree/odd/magic", SYMLINK, 0o777, target="/proc/self/root" + canary),
        entry("tree/odd/fifo", FIFO, 0o666), entry("tree/odd/socket", SOCKET, 0o666),
        file("tree/odd/set-id", mode=0o6755, uid=0, gid=0),
        entry("tree/odd/sparse", size=(1 << 43), pieces=[(1 << 42, "end")]),
        directory("tree/odd/closed", mode=0), file("tree/odd/one", "shared"), entry("tree/odd/two", HARD_LINK, target="tree/odd/one"))


class RemoteChanges(on_ssh.OnSsh):
    """One workspace; each thing in a sandbox of its own, as a refusal ends it."""

    max_sandboxes = 64

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        trap = cls.daemon.directory / "trap"
        trap.mkdir()
        cls.trap = trap / "host-secret"
        cls.trap.write_text("the host's secret\n")
        cls.opened = Opened(cls.trap)
        cls.addClassCleanup(cls.opened.close)

    def watch_memory(self):
        pathlib.Path(f"/proc/{self.daemon.process.pid}/clear_refs").write_text("5")

    def check_memory(self, what):
        if harness.SANITIZED:
            return
        status = pathlib.Path(f"/proc/{self.daemon.process.pid}/status").read_text()
        self.assertLess(int(re.search(r"VmHWM:\s+(\d+)", status).group(1)), MAX_RSS_KB, what)

    def run_there(self, name):
        self.assertEqual(self.client.exec(name, ["true"]).exit_code, 0)
        sandbox = self.client.workspace(name)["sandbox"]["id"]
        return sandbox, self.daemon.store / "sandboxes" / sandbox / "incoming"

    def wait_for_its_end(self, name, sandbox):
        harness.wait_until(lambda: (self.client.workspace(name).get("sandbox") or {}).get("id") != sandbox, DEADLINE_S, f"the end of {sandbox}")

    def send(self, incoming, packs, first=1000):
        """As the link does: under their names only when they are complete. All at once, in order."""
        for number, data in reversed(list(enumerate(packs, first))):
            part = incoming / "part-of-the-test"
            part.write_bytes(data)
            part.rename(incoming / f"{number}.pack")

    def upper(self, name):
        return Tree(self, name).upper()

    def events_of(self, kind, sandbox):
        return [event for event in self.client.events() if event["kind"] == kind and event.get("sandbox") == sandbox]

    def refused(self, name, what, make, reason):
        sandbox, incoming = self.run_there(name)
        self.opened.events()
        self.watch_memory()
        begin = time.monotonic()
        self.send(incoming, make(str(self.trap)))
        self.wait_for_its_end(name, sandbox)
        self.assertLess(time.monotonic() - begin, DEADLINE_S)
        self.check_memory(what)
        self.assertEqual(self.opened.events(), [], f"{what}: something outside was opened")
        self.assertEqual(self.trap.read_text(), "the host's secret\n")
        self.assertEqual(os.listdir(self.trap.parent), [self.trap.name])
        found = self.events_of("sandbox.files_refused", sandbox)
        self.assertTrue(found, what)
        self.assertIn(reason, str(found[0]), what)

    @threat(77, "C", "a machine elsewhere sends packs with `..`, absolute paths, paths through links, devices, whiteouts, overlay attributes, foreign owners, "
            "links to the host, false digests and bombs, for a workspace here",
            "applied by descriptors below the workspace, with limits; the first rule that is broken ends the sandbox as lost with the reason, and the pack is kept aside; "
            "the daemon stays within 200 MB, and the workspace starts again",
            "the kernel reports the open of a canary by a program that unpacks the same entries by their paths")
    def test_packs_of_a_hostile_machine_change_nothing_outside_the_workspace(self):
        self.create("hostile")
        for what, (make, reason) in REFUSED.items():
            with self.subTest(thing=what):
                self.refused("hostile", what, make, reason)
        self.assertEqual(self.out("hostile", "cat src/a.txt"), "a")
        # The control: the same two entries, by their paths.
        place = self.daemon.directory / "plain"
        place.mkdir()
        (place / "way").symlink_to(self.trap.parent)
        (place / "way" / self.trap.name).read_text()
        self.assertTrue(self.opened.events(), "the kernel reports nothing at all")

    def test_a_hostile_pack_is_refused_by_a_daemon_that_starts(self):
        self.create("restarted")
        for what in ("below a link of another pack", "a character device", "a digest that does not match"):
            with self.subTest(thing=what):
                make, reason = REFUSED[what]
                sandbox, incoming = self.run_there("restarted")
                self.daemon.kill()
                self.send(incoming, make(str(self.trap)))
                self.opened.events()
                self.daemon.start()
                harness.wait_until(lambda: self.events_of("sandbox.files_refused", sandbox), DEADLINE_S, what)
                self.assertIn(reason, str(self.events_of("sandbox.files_refused", sandbox)[0]))
                self.wait_for_its_end("restarted", sandbox)
                self.assertEqual(self.opened.events(), [], what)

    def test_odd_but_lawful_entries_arrive_as_they_are_inside(self):
        self.create("odd")
        _, incoming = self.run_there("odd")
        self.opened.events()
        self.send(incoming, [lawful(str(self.trap))])
        harness.wait_until(lambda: not (incoming / "1000.pack").exists(), DEADLINE_S, "the pack is applied")
        top = os.fsencode(self.upper("odd") / "odd")
        self.assertIn(b"a\nb", os.listdir(top))
        self.assertIn(b"n" * 255, os.listdir(top))
        owner = os.lstat(top + b"/one").st_uid - USER
        self.assertGreater(owner, 100_000, "ids of the sandbox's own range")
        program_there = os.lstat(top + b"/set-id")
        self.assertEqual((program_there.st_uid, stat.S_IMODE(program_there.st_mode)), (owner, 0o6755))
        self.assertTrue(stat.S_ISFIFO(os.lstat(top + b"/fifo").st_mode))
        self.assertEqual(os.lstat(top + b"/one").st_ino, os.lstat(top + b"/two").st_ino)
        sparse = os.lstat(top + b"/sparse")
        self.assertEqual(sparse.st_size, 1 << 43)
        self.assertLess(sparse.st_blocks, 1000)
        self.assertEqual(os.readlink(top + b"/to-the-host"), os.fsencode(self.trap))
        for path in ("odd/to-the-host", "odd/magic"):
            with self.assertRaises(harness.raw_api.ApiError):
                self.client.read_file("odd", path)
        self.assertEqual(self.opened.events(), [])

    def swap_names(self, name):
        """Names of the mounted workspace change places until the test ends it. Only through the mounts, as they are applied: below a mounted
        overlay they may not change. Host root has no rights in them, so a process with the sandbox's ids does it, by a Python that it may read."""
        mounted = f"/proc/{self.keeper(name)}/root/workspace"
        owner = os.stat(mounted).st_uid
        swapping = subprocess.Popen(["/usr/bin/python3", "-c", program(SWAPPED, self.trap, 10)], cwd=mounted, user=owner, group=owner, extra_groups=[],
                                    stderr=subprocess.DEVNULL)
        self.addCleanup(swapping.wait)
        self.addCleanup(swapping.kill)
        places = set()

        def seen():
            """`d` has been each of the four."""
            with contextlib.suppress(FileNotFoundError):
                places.add(stat.S_IFMT(os.lstat(f"{mounted}/d").st_mode))
            return len(places) == 4

        harness.wait_until(seen, DEADLINE_S, "the swapping")
        return swapping

    def test_names_that_change_while_a_pack_is_applied_lead_nowhere(self):
        """Only the host's root can do that: nothing of the sandbox runs here."""
        attack = pack(file("tree/d/host-secret"), removal("tree/l/host-secret"), file("tree/f"), directory("tree/p"), file("tree/p/x"))
        for number in range(3):
            name = f"swapped{number}"
            self.create(name)
            sandbox, incoming = self.run_there(name)
            swapping = self.swap_names(name)
            self.opened.events()
            self.send(incoming, [attack] * 40)
            # A refusal, as the way may lead through a link. Or a mere failure: then the pack waits for its next try.
            harness.wait_until(lambda: not list(incoming.glob("*.pack")) or self.events_of("sandbox.files_refused", sandbox), DEADLINE_S, "an answer")
            swapping.kill()
            swapping.wait()
            self.assertEqual(self.opened.events(), [])
            self.assertEqual(self.trap.read_text(), "the host's secret\n")
            self.assertEqual(os.listdir(self.trap.parent), [self.trap.name])
            if self.events_of("sandbox.files_refused", sandbox):
                self.wait_for_its_end(name, sandbox)


if __name__ == "__main__":
    unittest.main()
