"""archive, unarchive, export, import: the same bytes come back; otherwise nothing is lost and the error says so."""

import io
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess
import tempfile
import time
import unittest

import harness
import raw_api
import trees


def flipped(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x08]))


class Archive(harness.TestCase):
    def make(self, name, hostile=True):
        workspace = self.client.create(repo_url=self.url, name=name, labels={"task": "t-1"})
        if hostile:
            out = self.client.exec(name, ["python3", "-c", trees.MAKE])
            self.assertEqual(out.exit_code, 0, out.stderr.decode(errors="replace"))
            out = self.client.exec(name, trees.ROOT, user="root")
            self.assertEqual(out.exit_code, 0, out.stderr.decode(errors="replace"))
        return workspace

    def layer(self, workspace):
        """Of the newest workspace."""
        layers = sorted((self.daemon.store / "layers").iterdir(), key=lambda p: int(p.name[3:]))
        return layers[-1]

    def archives(self):
        directory = self.daemon.store / "archive"
        return sorted(directory.glob("moorage-*"))

    def check_git(self, client, name):
        out = client.exec(name, "git fsck 2>&1 && git log --format=%s && git status --porcelain | sort")
        self.assertEqual(out.exit_code, 0, out.stdout)
        return out.stdout

    def test_an_archive_restores_the_same_bytes(self):
        self.make("whole")
        git = self.check_git(self.client, "whole")  # it rewrites the index
        before = trees.look(self.client, "whole")
        self.assertIn(b"of the agent\n", git)
        history = self.client.history("whole")["execs"]
        output = self.client.raw_output(history[-1]["id"])
        self.client.stop("whole")
        layer = self.layer("whole")
        raw = trees.raw(layer / "tree/upper")
        self.assertTrue(any("trusted.overlay.redirect" in e["xattrs"] for e in raw.values()))

        shown = self.client.archive("whole")
        self.assertEqual(shown["state"], "archived")
        file = pathlib.Path(shown["archive"]["file"])
        self.assertEqual(file.stat().st_size, shown["archive"]["bytes"])
        self.assertLess(file.stat().st_size, 20 << 20, "holes were written")
        self.assertFalse(layer.exists(), "the hot copy is still there")
        self.assertEqual(self.client.archive("whole")["state"], "archived")
        self.assertEqual(self.client.raw_output(history[-1]["id"]), output)
        self.assertEqual(len(self.client.history("whole")["execs"]), len(history))
        with self.assertRaises(raw_api.ApiError) as refused:
            self.client.read_file("whole", "committed")
        self.assertEqual(refused.exception.code, "conflict")
        self.assertIn("unarchive", refused.exception.hint)
        listing = self.daemon.cli("ls").stdout.decode()
        self.assertIn("archived", listing)
        self.assertIn(str(file), self.daemon.cli("show", "whole").stdout.decode())

        self.assertEqual(self.client.unarchive("whole")["state"], "ready")
        self.assertEqual(self.archives(), [])
        back = trees.raw(layer / "tree/upper")
        for path, entry in raw.items():
            if not any("trusted.overlay.redirect" in raw.get(p.hex(), {"xattrs": {}})["xattrs"]
                       for p in prefixes(bytes.fromhex(path))):
                self.assertEqual(back.get(path), entry, bytes.fromhex(path))
        self.assertEqual(trees.differences(before, trees.look(self.client, "whole")), [])
        self.assertEqual(self.check_git(self.client, "whole"), git)
        self.client.delete("whole", purge=True)

    def test_an_exec_unarchives(self):
        self.make("needed", hostile=False)
        self.client.exec("needed", "echo kept > kept")
        self.client.archive("needed")
        out = self.client.exec("needed", "cat kept; rm README.md && echo anew > README.md && cat README.md")
        self.assertEqual((out.exit_code, out.stdout), (0, b"kept\nanew\n"))
        self.assertEqual(self.archives(), [])
        self.client.archive("needed")
        self.assertEqual(self.client.start("needed")["state"], "ready")
        self.assertEqual(self.client.exec("needed", "cat kept README.md").stdout, b"kept\nanew\n")
        self.client.delete("needed", purge=True)

    def test_a_busy_workspace_is_refused(self):
        self.make("busy", hostile=False)
        record = self.client.start_exec("busy", ["sleep", "1000"])
        with self.assertRaises(raw_api.ApiError) as refused:
            self.client.archive("busy")
        self.assertEqual(refused.exception.code, "conflict")
        self.assertIn(record["id"], refused.exception.message)
        self.assertEqual(self.client.workspace("busy")["state"], "ready")
        self.assertEqual(self.client.get_exec(record["id"])["state"], "running")
        self.client.cancel(record["id"])
        self.client.wait(record["id"])
        self.assertEqual(self.client.archive("busy")["state"], "archived")
        self.client.delete("busy", purge=True)

    def test_a_workspace_under_lease_is_refused_and_pre_stop_runs(self):
        self.client.create(repo_url=self.url, name="held", pre_stop="echo stopping >> stops")
        self.client.exec("held", "echo kept > kept")
        with self.client.lease("held", "agent") as mine:
            with self.assertRaises(raw_api.ApiError) as refused:
                self.client.archive("held")
            self.assertEqual(refused.exception.code, "conflict")
            self.assertIn("held by", refused.exception.message)
            self.client.export("held", io.BytesIO())  # which only reads, and stops nothing
            self.assertEqual(self.client.workspace("held")["sandbox"]["state"], "running")
            self.assertEqual(mine.archive("held")["state"], "archived")
            with self.assertRaises(raw_api.ApiError):
                self.client.unarchive("held")
            self.assertEqual(mine.unarchive("held")["state"], "ready")
            self.client.export("held", io.BytesIO())
        self.assertEqual(self.client.read_file("held", "stops"), b"stopping\n")
        self.client.delete("held", purge=True)

    def row(self, sql, *values):
        with sqlite3.connect(self.daemon.store / "state.db") as db:
            return db.execute(sql, values).fetchone()

    def test_a_restored_workspace_is_sealed_and_an_archived_one_never_lost(self):
        number = int(self.make("sealed", hostile=False)["id"][3:])
        self.client.exec("sealed", "echo kept > kept")
        seal = "SELECT state, seal FROM workspace_integrity WHERE workspace = ?"
        self.client.archive("sealed")
        self.assertEqual(self.row(seal, number)[0], "intact")
        before = self.row(seal, number)[1]
        self.assertEqual([f for f in self.client.doctor(deep=True)["findings"] if f["severity"] != "note"], [])
        self.daemon.restart()
        self.assertEqual(self.client.workspace("sealed")["state"], "archived")
        self.assertEqual(self.client.workspace("sealed")["integrity"]["state"], "intact")
        self.client.unarchive("sealed")
        state, after = self.row(seal, number)
        self.assertEqual((state, len(after)), ("intact", 64))
        self.assertNotEqual(before, after)  # changed ctimes
        layer = self.layer("sealed")
        (layer / "tree/upper/kept").write_text("other\n")
        self.client.start("sealed")
        self.assertEqual(self.client.workspace("sealed")["integrity"]["state"], "changed-outside")
        self.client.archive("sealed")  # after an orderly stop: unchanged
        file = self.archives()[0]
        away = file.with_name("away")
        file.rename(away)
        found = [f for f in self.client.doctor()["findings"] if f["severity"] == "error"]
        self.assertEqual([f["check"] for f in found], ["archives"])
        self.assertIn(str(file), found[0]["text"])
        file.with_name(file.name.replace("ws_", "ws_4")).write_bytes(b"x")
        self.assertEqual({f["check"] for f in self.client.doctor()["findings"] if f["severity"] == "error"}, {"archives"})
        file.with_name(file.name.replace("ws_", "ws_4")).unlink()
        away.rename(file)
        self.assertEqual(self.client.exec("sealed", "cat kept").stdout, b"other\n")
        self.client.delete("sealed", purge=True)

    def test_deleting_an_archived_workspace(self):
        self.make("tomb", hostile=False)
        self.client.exec("tomb", "echo kept > kept")
        self.client.archive("tomb")
        self.client.delete("tomb")
        self.daemon.restart()
        self.assertEqual(len(self.archives()), 1)
        self.assertEqual(self.client.undelete("tomb")["state"], "archived")
        self.assertEqual(self.client.exec("tomb", "cat kept").stdout, b"kept\n")
        self.client.archive("tomb")
        self.client.delete("tomb", purge=True)
        self.assertEqual(self.archives(), [])

    def test_a_flipped_bit_is_found_and_named(self):
        self.make("damaged", hostile=False)
        self.make("other", hostile=False)
        self.client.exec("damaged", "for i in 1 2 3 4 5 6; do head -c 300000 /dev/urandom > random-$i; done")
        file = pathlib.Path(self.client.archive("damaged")["archive"]["file"])
        good = file.read_bytes()
        named = 0
        for part in range(1, 12):
            flipped(file, len(good) * part // 12)
            with self.assertRaises(raw_api.ApiError) as found:
                self.client.unarchive("damaged")
            self.assertEqual(found.exception.code, "corrupted")
            self.assertIn("damaged", found.exception.message)
            self.assertIn(file.name, found.exception.message)
            named += "/random-" in found.exception.message
            self.assertEqual(self.client.workspace("damaged")["state"], "archived")
            self.assertEqual(self.client.exec("other", "true").exit_code, 0)
            with self.assertRaises(raw_api.ApiError):
                self.client.exec("damaged", "true")
            with self.assertRaises(raw_api.ApiError):
                self.client.import_(file.read_bytes(), name="copy")
            file.write_bytes(good)
        self.assertGreater(named, 6)
        self.assertNotIn("copy", [w["name"] for w in self.client.workspaces()])
        self.assertEqual(self.client.exec("damaged", "ls | wc -l").exit_code, 0)
        for name in ("damaged", "other"):
            self.client.delete(name, purge=True)

    def test_to_another_store_and_back(self):
        self.make("travels")
        git = self.check_git(self.client, "travels")
        before = trees.look(self.client, "travels")
        kept = trees.in_layer(self.layer("travels"))
        history = self.client.history("travels")["execs"]
        first = history[0]
        file = self.daemon.directory / "travels.tar.zst"
        self.daemon.cli("export", "travels", file)
        self.assertEqual(self.client.workspace("travels")["state"], "ready")
        piped = self.daemon.cli("export", "travels", "-").stdout
        self.assertGreater(len(piped), 1000)
        other = harness.Daemon()
        self.addCleanup(other.close)
        other.start()
        out = other.cli("import", file, "--name", "arrived")
        self.assertIn("arrived", out.stdout.decode())
        client = harness.Client(str(other.socket))
        shown = client.workspace("arrived")
        self.assertEqual((shown["labels"], shown["branch"], shown["base"]["commit"]),
                         ({"task": "t-1"}, "moorage/travels",
                          self.client.workspace("travels")["base"]["commit"]))
        self.assertEqual(trees.differences(before, trees.look(client, "arrived"), kept), [])
        self.assertEqual(self.check_git(client, "arrived"), git)
        there = client.history("arrived")["execs"]
        self.assertEqual([e["argv"] for e in there[:len(history)]], [e["argv"] for e in history])
        self.assertTrue(there[0]["imported_from"].endswith("/" + first["id"]))
        self.assertEqual(client.raw_output(there[0]["id"]), self.client.raw_output(first["id"]))
        with open(file, "rb") as archive:
            self.assertEqual(client.import_(archive)["name"], "travels")
        with open(file, "rb") as archive:
            self.assertEqual(client.import_(archive)["name"], "travels-2")
        client.archive("travels-2")
        self.assertEqual(trees.differences(before, trees.look(client, "travels-2"), kept), [])
        # Back in the first store: the mirror exists, so nothing is fetched and no second one is created.
        repos = len(self.client.repos())
        with open(file, "rb") as archive:
            self.client.import_(archive, name="home-again")
        self.assertEqual(len(self.client.repos()), repos)
        self.assertEqual(trees.differences(before, trees.look(self.client, "home-again")), [])
        for name in ("travels", "home-again"):
            self.client.delete(name, purge=True)

    def test_an_export_of_an_earlier_release_imports(self):
        golden = harness.ROOT / "tests/packs/data"
        for file in sorted(golden.glob("archive-*.tar.zst")):
            want = json.loads(file.with_name(file.name.replace(".tar.zst", ".json")).read_text())
            with self.subTest(file=file.name), open(file, "rb") as archive:
                shown = self.client.import_(archive, name="golden")
                self.assertEqual((shown["labels"], shown["base"]["commit"]), ({"task": "t-1"}, want["commit"]))
                kept = {bytes.fromhex(path) for path in want["in_layers"]}
                now = trees.look(self.client, "golden")
                self.assertEqual(trees.differences(want["tree"], now, kept), [])
                execs = [{"argv": e["argv"], "exit_code": e["exit_code"]} for e in self.client.history("golden")["execs"]]
                self.assertEqual(execs[:len(want["history"])], want["history"])
                self.client.delete("golden", purge=True)

    def test_a_sparse_file_on_a_long_path_travels(self):
        self.make("long", hostile=False)
        made = self.client.exec("long", "D=$(printf d%.0s $(seq 150)); N=$(printf n%.0s $(seq 255)); mkdir $D; "
                                "for f in $D/x $N $D/$N; do truncate -s 1M $f; echo y >> $f; done")
        self.assertEqual(made.exit_code, 0, made.stderr)
        before = trees.look(self.client, "long")
        kept = trees.in_layer(self.layer("long"))
        file = self.daemon.directory / "long.tar.zst"
        self.daemon.cli("export", "long", file)
        with open(file, "rb") as archive:
            self.client.import_(archive, name="long-again")
        self.assertEqual(trees.differences(before, trees.look(self.client, "long-again"), kept), [])
        self.client.archive("long")
        self.assertEqual(trees.differences(before, trees.look(self.client, "long"), kept), [])
        for name in ("long", "long-again"):
            self.client.delete(name, purge=True)

    def test_a_lost_mirror_is_restored_from_the_archive(self):
        commit = self.make("orphan", hostile=False)["base"]["commit"]
        self.client.exec("orphan", "echo kept > kept")
        repo = self.client.workspace("orphan")["repo"]["id"]
        self.client.archive("orphan")
        self.daemon.stop()
        shutil.rmtree(self.daemon.store / "repos" / repo)
        self.daemon.start()
        out = self.client.exec("orphan", "cat kept README.md && git rev-parse HEAD && git fsck")
        self.assertEqual(out.exit_code, 0, out.stderr)
        self.assertEqual(out.stdout.decode().split("\n")[-2], commit)
        self.client.delete("orphan", purge=True)

    def test_many_small_files(self):
        # Unlinking them is the slowest part on a slow disk, so they are removed with the store.
        self.make("many", hostile=False)
        out = self.client.exec("many", "python3 -c \"import os\nfor d in range(1000):\n os.mkdir(f'd{d}')\n"
                               " for f in range(100): open(f'd{d}/f{f}', 'w').write(f'{d} {f}')\"")
        self.assertEqual(out.exit_code, 0, out.stderr)
        began = time.monotonic()
        self.client.archive("many")
        middle = time.monotonic()
        self.client.unarchive("many")
        end = time.monotonic()
        print(f"100,000 small files: archive {middle - began:.1f} s, unarchive {end - middle:.1f} s")
        self.assertEqual(self.client.exec("many", "find d* -type f | wc -l; cat d999/f99").stdout, b"100000\n999 99")


def prefixes(path):
    parts = path.split(b"/")
    return [b"/".join(parts[:i]) for i in range(1, len(parts) + 1)]


class Restored(harness.TestCase):
    def test_a_state_db_from_before_the_unarchive_loses_no_work(self):
        self.client.create(repo_url=self.url, name="returned")
        self.client.exec("returned", "echo old > kept")
        self.client.archive("returned")
        self.daemon.stop()
        for file in self.daemon.store.glob("state.db*"):
            shutil.copy(file, self.daemon.directory / ("copy-" + file.name))
        self.daemon.start()
        self.client.exec("returned", "echo new > kept", sync=True)
        layer = next((self.daemon.store / "layers").iterdir())
        self.daemon.stop()
        for file in self.daemon.store.glob("state.db*"):
            file.unlink()
        for file in self.daemon.directory.glob("copy-state.db*"):
            shutil.copy(file, self.daemon.store / file.name.removeprefix("copy-"))
        self.daemon.start()
        self.assertEqual(self.client.workspace("returned")["state"], "archived")
        with self.assertRaises(raw_api.ApiError):
            self.client.unarchive("returned")
        self.assertEqual((layer / "tree/upper/kept").read_text(), "new\n")
        self.assertIn(layer.name, " ".join(f["text"] for f in self.client.doctor()["findings"]))


class Collected(harness.TestCase):
    settings = {"gc.archive_after_s": 0, "gc.keep_unused_s": 0}

    def test_collection_archives_only_idle_workspaces(self):
        for name in ("rests", "runs", "pinned", "leased"):
            self.client.create(repo_url=self.url, name=name, pinned=name == "pinned")
            self.client.exec(name, "head -c 8M /dev/zero > big; echo kept > kept")
            if name != "runs":
                self.client.stop(name)
        with self.client.lease("leased", "agent"):
            rows = {row["subject"]: row for row in self.client.gc_run()["rows"] if row["rung"] == "workspace"}
        self.assertTrue(rows["rests"]["goes"], rows)
        self.assertGreater(rows["rests"]["bytes"], 4 << 20)
        self.assertEqual({w["name"]: w["state"] for w in self.client.workspaces()},
                         {"rests": "archived", "runs": "ready", "pinned": "ready", "leased": "ready"})
        self.assertEqual(self.client.exec("rests", "cat kept; stat -c %s big").stdout, b"kept\n8388608\n")
        self.assertIn("rests", [e for e in self.client.events() if e["kind"] == "gc.workspace"][-1]["text"])


class Elsewhere(unittest.TestCase):
    """archive.directory on a separate file system: full, read-only, missing."""

    @classmethod
    def setUpClass(cls):
        cls.place = pathlib.Path(tempfile.mkdtemp(prefix="moorage-cold-", dir=harness.BASE))
        cls.addClassCleanup(shutil.rmtree, cls.place, ignore_errors=True)
        image = cls.place / "image"
        with open(image, "wb") as file:
            file.truncate(64 << 20)
        harness.run("mkfs.ext4", "-q", "-m", "0", image)
        cls.mount = cls.place / "mount"
        cls.mount.mkdir()
        harness.run("mount", "-o", "loop", image, cls.mount)
        cls.addClassCleanup(lambda: subprocess.run(["umount", cls.mount], check=False))
        cls.daemon = harness.Daemon({"archive.directory": str(cls.mount)})
        cls.addClassCleanup(cls.daemon.close)
        upstream = cls.daemon.directory / "upstream"
        harness.make_repository(upstream / "acme" / "shop")
        cls.server = harness.GitServer(upstream)
        cls.addClassCleanup(cls.server.stop)
        cls.daemon.start()
        cls.client = harness.Client(str(cls.daemon.socket))
        cls.client.create(repo_url=cls.server.url("acme/shop"), name="cold")
        cls.client.exec("cold", "echo kept > kept")

    def refused(self, code=None):
        with self.assertRaises(raw_api.ApiError) as refused:
            self.client.archive("cold")
        if code:
            self.assertEqual(refused.exception.code, code)
        self.assertEqual(self.client.workspace("cold")["state"], "ready")
        self.assertEqual(self.client.exec("cold", "cat kept").stdout, b"kept\n")
        return refused.exception

    def test_a_full_a_read_only_and_a_missing_directory(self):
        self.assertEqual(self.client.archive("cold")["state"], "archived")
        self.assertEqual(len(list(self.mount.glob("moorage-*.tar.zst"))), 1)
        self.assertEqual(self.client.exec("cold", "cat kept").stdout, b"kept\n")

        self.client.exec("cold", "head -c 100000000 /dev/urandom > big")
        self.refused("resource_exhausted")
        self.assertEqual([p.name for p in self.mount.glob("moorage-*")], [])
        self.client.exec("cold", "rm big")

        harness.run("mount", "-o", "remount,ro", self.mount)
        self.assertIn(str(self.mount), self.refused("unavailable").hint)
        harness.run("mount", "-o", "remount,rw", self.mount)

        self.client.archive("cold")
        harness.run("umount", self.mount)
        with self.assertRaises(raw_api.ApiError) as away:
            self.client.exec("cold", "true")
        self.assertEqual(away.exception.code, "unavailable")
        self.assertIn("archive.directory", away.exception.hint)
        self.assertEqual(self.client.workspace("cold")["state"], "archived")
        # An empty directory instead of the mounted archives: it accepts no archive, and none is written off.
        for name in ("warm", "gone"):
            self.client.create(repo_url=self.server.url("acme/shop"), name=name)
        with self.assertRaises(raw_api.ApiError) as away:
            self.client.archive("warm")
        self.assertEqual(away.exception.code, "unavailable")
        self.assertIn("mount it", away.exception.hint)
        self.assertEqual(self.client.exec("warm", "true").exit_code, 0)
        harness.run("mount", "-o", "loop", self.place / "image", self.mount)
        self.assertEqual(self.client.archive("gone")["state"], "archived")
        harness.run("umount", self.mount)
        with self.assertRaises(raw_api.ApiError) as away:
            self.client.delete("gone", purge=True)
        self.assertIn("mount it", away.exception.hint)
        self.assertEqual([p.name for p in self.mount.glob("moorage-*")], [])
        harness.run("mount", "-o", "loop", self.place / "image", self.mount)
        self.assertEqual(len(list(self.mount.glob("moorage-*.tar.zst"))), 2)
        harness.wait_until(lambda: len(list(self.mount.glob("moorage-*.tar.zst"))) == 1, 90, "the purge")
        self.assertEqual(self.client.exec("cold", "cat kept").stdout, b"kept\n")


if __name__ == "__main__":
    unittest.main()
