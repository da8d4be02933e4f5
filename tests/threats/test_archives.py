"""Attacks of an untrusted archive on the importing store: row 37."""

import copy
import io
import os
import re
import subprocess
import tarfile
import unittest

from threat import Threats, harness, threat

import trees


def entry(name, kind=tarfile.REGTYPE, target="", headers=None, mode=0o644, uid=1000):
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.mode, member.uid, member.gid = kind, target, mode, uid, uid
    member.pax_headers = headers or {}
    return member


def attribute(name, value):
    import base64
    return {f"LIBARCHIVE.xattr.{name}": base64.b64encode(value).decode().rstrip("=")}


class Archives(Threats):
    def corpus(self, outside):
        """Name, and the entries after the last one of the tree, or instead of all."""
        tree = "layers/0/tree"
        root_capability = b"\x01\0\0\x02" + b"\0\x20\0\0" + b"\0" * 12
        yield "parent", [(entry(f"{tree}/../../../../../{outside.name}"), b"owned")]
        yield "parent at the end", [(entry(f"{tree}/.."), b"owned")]
        yield "absolute", [(entry(str(outside)), b"owned")]
        yield "through a link", [(entry(f"{tree}/out", tarfile.SYMTYPE, str(outside.parent)), b""),
                                 (entry(f"{tree}/out/{outside.name}"), b"owned")]
        yield "link made a directory", [(entry(f"{tree}/out", tarfile.SYMTYPE, str(outside.parent)), b""),
                                        (entry(f"{tree}/out", tarfile.DIRTYPE), b""),
                                        (entry(f"{tree}/out/{outside.name}"), b"owned")]
        yield "hard link out", [(entry(f"{tree}/hard", tarfile.LNKTYPE, str(outside)), b"")]
        yield "hard link up", [(entry(f"{tree}/hard", tarfile.LNKTYPE, f"{tree}/../../../../{outside.name}"), b"")]
        yield "hard link through a link", [
            (entry(f"{tree}/out", tarfile.SYMTYPE, str(outside.parent)), b""),
            (entry(f"{tree}/hard", tarfile.LNKTYPE, f"{tree}/out/{outside.name}"), b"")]
        yield "hard link to a later one", [(entry(f"{tree}/hard", tarfile.LNKTYPE, f"{tree}/later"), b""),
                                           (entry(f"{tree}/later"), b"")]
        yield "device", [(entry(f"{tree}/null", tarfile.CHRTYPE), b"")]
        yield "block device", [(entry(f"{tree}/disk", tarfile.BLKTYPE), b"")]
        yield "twice", [(entry(f"{tree}/same"), b"one"), (entry(f"{tree}/same"), b"two")]
        yield "host's owner", [(entry(f"{tree}/mine", uid=65536), b"")]
        yield "negative owner", [(entry(f"{tree}/mine", headers={"uid": "-1"}), b"")]
        yield "trusted", [(entry(f"{tree}/t", headers=attribute("trusted.overlay.redirect", b"/etc")), b"")]
        yield "host's capability", [(entry(f"{tree}/c", headers=attribute("security.capability", root_capability)), b"")]
        yield "label", [(entry(f"{tree}/l", headers=attribute("security.selinux", b"unconfined_t")), b"")]
        yield "opaque file", [(entry(f"{tree}/o", headers=attribute("moorage.opaque", b"y")), b"")]
        yield "unknown mark", [(entry(f"{tree}/m", headers=attribute("moorage.type", b"device")), b"")]
        yield "without its directory", [(entry(f"{tree}/nowhere/file"), b"")]
        yield "another layer", [(entry("layers/7/tree", tarfile.DIRTYPE), b"")]
        yield "unknown part", [(entry("layers/0/root", tarfile.DIRTYPE), b"")]
        yield "unknown place", [(entry("etc/passwd"), b"root::0:0::/:/bin/sh\n")]
        yield "journal of nobody", [(entry("journal/ex_999/output"), b"")]
        yield "pack at the end", [(entry("git/pack"), b"PACK")]
        yield "very deep", [(entry(tree + "/d" * n, tarfile.DIRTYPE), b"") for n in range(1, 1100)]
        yield "long name", [(entry(f"{tree}/" + "n" * 256), b"")]
        yield "pax bomb", [(entry(f"{tree}/p", headers={"comment": "x" * (3 << 20)}), b"")]
        yield "map of holes", [(entry(f"{tree}/s", headers={"GNU.sparse.major": "1", "GNU.sparse.minor": "0",
                                                            "GNU.sparse.name": f"{tree}/s", "GNU.sparse.realsize": "9"}),
                                b"3000000\n" + b"0\n0\n" * 3_000_000)]

    def inserted(self, members, extra):
        at = max(i for i, (m, _) in enumerate(members) if m.name.startswith("layers/0/tree")) + 1
        return trees.archive_of(members[:at] + extra + members[at:])

    @threat(37, "C", "an archive with ../, absolute names, links out, devices, host capabilities, trusted.*, pax and zstd bombs",
            "each entry is created by name in a directory created before; everything else is refused, and nothing is left",
            "plain tar, as root, creates the same file outside; and the same archive without the entry is accepted")
    def test_hostile_archives_are_refused_and_leave_nothing(self):
        outside = self.daemon.directory / "outside"
        self.client.create(repo_url=self.url, name="source")
        self.client.exec("source", "echo kept > kept")
        archive = io.BytesIO()
        self.client.export("source", archive)
        members = trees.members_of(archive.getvalue())
        good = trees.archive_of(copy.deepcopy(members))
        self.client.import_(good, name="good")  # so only the entries are refused
        self.assertEqual(self.client.exec("good", "cat kept").stdout, b"kept\n")
        layers = set(os.listdir(self.daemon.store / "layers"))
        repos = {r["id"] for r in self.client.repos()}
        for what, extra in self.corpus(outside):
            with self.subTest(what):
                self.refused(self.inserted(copy.deepcopy(members), extra))
        for what, changes in self.manifests():
            with self.subTest(what):
                self.refused(trees.edited(good, changes), None)
        for what, bytes_sent in {
                "nothing": b"", "no archive": b"x" * 10000, "cut": good[:-1], "more behind": good + b"x",
                "zstd bomb": trees.packed(b"\0" * (64 << 20)), "no index": self.without_index(good),
                "another window": subprocess.run(["zstd", "-cq", "--ultra", "--long=30"], input=b"x" * 1000,
                                                 capture_output=True, check=True).stdout}.items():
            with self.subTest(what):
                self.refused(bytes_sent)
        self.assertFalse(outside.exists())
        self.assertEqual(set(os.listdir(self.daemon.store / "layers")), layers)
        self.assertEqual({w["name"] for w in self.client.workspaces()}, {"jail", "source", "good"})
        self.assertEqual({r["id"] for r in self.client.repos()}, repos, self.client.repos())
        self.assertEqual(self.client.exec("source", "cat kept; git fsck").exit_code, 0)
        self.assert_plain_tar_goes_out(outside)
        for name in ("source", "good"):
            self.client.delete(name, purge=True)

    def manifests(self):
        yield "newer format", {b"manifest.json": lambda m: m.replace(b'"format":1', b'"format":99')}
        yield "large", {b"manifest.json": lambda m: m + b" " * (17 << 20)}
        yield "deep", {b"manifest.json": lambda m: b'{"a":' * 1000 + b"1" + b"}" * 1000}
        yield "name", {b"manifest.json": lambda m: m.replace(b'"name":"source"', b'"name":"../../x"')}
        yield "branch", {b"manifest.json": lambda m: m.replace(b"moorage/source", b"--upload-pack=x")}
        yield "start", {b"manifest.json": lambda m: re.sub(rb'"base_ref":"[^"]*"', rb'"base_ref":"\\u001b]0;x"', m)}
        yield "terminal", {b"execs.jsonl": lambda e: e.replace(b'"error":""', b'"error":"\\u001b]0;owned\\u0007"')}
        yield "hook", {b"execs.jsonl": lambda e: e.replace(b'"error":""', b'"error":"","hook":"any"')}
        yield "pack", {b"git/pack": lambda p: p[:-30] + b"x" * 30, b"manifest.json": lambda m: m.replace(b"acme/shop", b"acme/none")}
        yield "commit", {b"git/refs": lambda r: r + b"f" * 40 + b" refs/tags/none\n"}
        yield "exec", {b"execs.jsonl": lambda e: e.replace(b'"state":"exited"', b'"state":"running"')}

    def without_index(self, archive):
        tar = trees.unpacked(archive)
        with tarfile.open(fileobj=io.BytesIO(tar)) as read:
            return trees.packed(tar[:read.getmember("index.jsonl").offset] + b"\0" * 1024)

    def refused(self, archive, name="hostile"):
        with self.assertRaises(harness.raw_api.ApiError) as refused:
            self.client.import_(archive, name=name)
        self.assertIn(refused.exception.code,
                      ("invalid_argument", "unsupported", "resource_exhausted"), refused.exception.message)
        self.assertEqual(self.client.health() or 204, 204)

    def assert_plain_tar_goes_out(self, outside):
        """The control: the attack works on a program that uses names unchecked."""
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
            member = entry(f"in/../../{outside.name}")
            member.size = 5
            tar.addfile(member, io.BytesIO(b"owned"))
        place = self.daemon.directory / "control"
        (place / "in").mkdir(parents=True)
        subprocess.run(["tar", "-xP", "-C", place], input=out.getvalue(), check=True)
        self.assertTrue(outside.exists())
        outside.unlink()


if __name__ == "__main__":
    unittest.main()
