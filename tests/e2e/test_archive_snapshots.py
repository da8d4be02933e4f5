"""Archives of workspaces with snapshots: they contain all snapshots, layers used only by archived workspaces are removed, and an
export of a running one neither stops it nor loses its history."""

import io
import json
import os
import shutil
import tarfile
import threading
import unittest

import harness
import raw_api
import trees


def manifest(archive):
    with tarfile.open(fileobj=io.BytesIO(trees.unpacked(archive))) as tar:
        return json.loads(tar.extractfile("manifest.json").read())


class Snapshots(harness.TestCase):
    def make(self, name, snapshots=3, megabytes=4):
        """Each snapshot adds a file; after the last one "now" is added."""
        self.client.create(repo_url=self.url, name=name, labels={"task": "t-1"})
        for number in range(1, snapshots + 1):
            self.run_in(name, f"head -c {megabytes}M /dev/urandom > random-{number}; echo {number} > at")
            self.client.stop(name)
            self.client.snapshot(name, name=f"s{number}", external_id=f"thread/{number}")
        self.run_in(name, "echo now > at")
        self.client.stop(name)

    def run_in(self, name, script):
        out = self.client.exec(name, script)
        self.assertEqual(out.exit_code, 0, out.stderr)
        return out.stdout.decode()

    def layers(self):
        return {path.name: path for path in (self.daemon.store / "layers").iterdir()}

    def wait_for_no_layers(self):
        """Leftovers found by a start are removed after the daemon answers."""
        harness.wait_until(lambda: self.layers() == {}, what="the layers are gone")

    def delete(self, *names):
        for name in names:
            self.client.delete(name, purge=True)
        self.assertEqual(self.layers(), {})

    def test_archiving_frees_the_space_of_snapshots(self):
        self.make("cold")
        self.client.restore("cold", "s2")  # its state until now is kept beside its chain
        self.run_in("cold", "echo again > at")
        self.client.stop("cold")
        self.assertGreater(len(self.layers()), 4)
        sums = self.run_in("cold", "sha256sum random-*")
        self.client.archive("cold")
        self.assertEqual(self.layers(), {}, "frozen layers are in the archive and hot as well")
        self.daemon.restart()
        self.assertEqual([f for f in self.client.doctor(deep=True)["findings"] if f["severity"] == "error"], [])
        self.assertEqual([s["name"] for s in self.client.snapshots("cold") if s["name"]], ["s1", "s2", "s3"])
        self.assertEqual(self.run_in("cold", "cat at; sha256sum random-*"), "again\n" + sums)
        for number in (3, 1, 2):
            self.client.restore("cold", f"s{number}", kill=True)
            self.assertEqual(self.run_in("cold", "cat at; ls random-* | wc -l"), f"{number}\n{number}\n")
        self.delete("cold")

    def test_layers_of_an_active_fork_stay_until_it_is_archived(self):
        self.make("origin")
        self.client.fork("origin", names=["fork"], snapshot="s2")
        self.run_in("fork", "echo fork > at")
        self.client.stop("fork")
        self.client.archive("origin")
        left = self.layers()
        self.assertEqual(len(left), 3)  # s1, s2 and its own
        self.assertEqual(self.run_in("fork", "cat at; ls random-* | wc -l"), "fork\n2\n")
        s3 = [s for s in self.client.snapshots("origin") if s["name"] == "s3"][0]["id"]
        with self.assertRaises(raw_api.ApiError) as refused:
            self.client.fork("fork", snapshot=s3)
        self.assertEqual((refused.exception.code, refused.exception.hint), ("conflict", "moorage unarchive origin"))
        self.client.archive("fork")
        self.assertEqual(self.layers(), {})
        self.assertEqual(self.run_in("fork", "cat at; ls random-* | wc -l"), "fork\n2\n")
        self.assertEqual(set(self.layers()), set(left))
        self.assertEqual(self.run_in("origin", "cat at; ls random-* | wc -l"), "now\n3\n")
        self.client.archive("origin")
        self.client.delete("fork", purge=True)
        self.assertEqual(self.layers(), {}, "layers used only by an archived workspace stayed hot")
        self.assertEqual(self.run_in("origin", "cat at; ls random-* | wc -l"), "now\n3\n")
        self.delete("origin")

    def test_a_partly_restored_frozen_layer_is_not_used(self):
        self.make("half")
        layers = self.layers()
        whole = trees.look(self.client, "half")
        self.client.archive("half")
        for restart in (False, True):
            with self.subTest(restart=restart):
                # Like an unarchive that dies in the middle of the second layer.
                for name in sorted(layers, key=lambda n: int(n[3:]))[:2]:
                    for part in ("tree", "home", "system"):
                        (layers[name] / part / "upper").mkdir(parents=True)
                        (layers[name] / part / "work").mkdir()
                    (layers[name] / "tree/upper/random-1").write_bytes(b"a part")
                if restart:
                    self.daemon.restart()
                    self.wait_for_no_layers()
                self.client.unarchive("half")
                self.assertEqual(trees.differences(whole, trees.look(self.client, "half")), [])
                self.client.archive("half")
        self.delete("half")

    def test_a_snapshot_at_its_stop_is_archived_with_it(self):
        self.client.create(repo_url=self.url, name="stops", snapshot_on_stop=True)
        self.run_in("stops", "echo kept > at")
        self.client.archive("stops")
        self.assertEqual(self.layers(), {})
        self.assertEqual(self.run_in("stops", "cat at"), "kept\n")
        self.assertEqual(len(self.client.snapshots("stops")), 1)
        self.delete("stops")

    def test_a_crash_at_any_point_loses_nothing(self):
        self.make("dies", megabytes=1)
        want = self.run_in("dies", "cat at; sha256sum random-*")
        self.client.stop("dies")
        for point, verb in (("archive.after_outcome", "archive"), ("archive.after_cold_row", "archive"),
                            ("unarchive.after_intent", "unarchive"), ("unarchive.after_files", "unarchive"),
                            ("unarchive.after_outcome", "unarchive")):
            with self.subTest(point=point):
                if verb == "unarchive" and self.client.workspace("dies")["state"] != "archived":
                    self.client.archive("dies")
                self.daemon.stop()
                self.daemon.start(crash_at=point)
                with self.assertRaises((raw_api.ApiError, OSError)):
                    getattr(self.client, verb)("dies")
                self.daemon.process.wait()
                self.daemon.start()
                harness.wait_until(lambda: self.client.workspace("dies")["state"] in ("ready", "archived"), what="it is settled")
                if self.client.workspace("dies")["state"] == "archived":
                    self.wait_for_no_layers()
                self.assertEqual(self.run_in("dies", "cat at; sha256sum random-*"), want)
                self.client.stop("dies")
        self.client.restore("dies", "s1")
        self.assertEqual(self.run_in("dies", "cat at; ls random-* | wc -l"), "1\n1\n")
        self.delete("dies")

    def test_snapshots_are_exported_and_can_be_omitted(self):
        self.make("travels", megabytes=1)
        file = self.daemon.directory / "travels.tar.zst"
        said = self.daemon.cli("export", "travels", file).stdout.decode()
        self.assertIn("3 snapshots included", said)
        self.client.import_(file.read_bytes(), name="arrived")
        here, there = self.client.snapshots("travels"), self.client.snapshots("arrived")
        for field in ("name", "external_id", "cause", "created_at"):
            self.assertEqual([s[field] for s in there], [s[field] for s in here])
        numbers = {s["id"]: n for n, s in enumerate(here)}
        numbers_there = {s["id"]: n for n, s in enumerate(there)}
        self.assertEqual([numbers.get(s.get("parent")) for s in here], [numbers_there.get(s.get("parent")) for s in there])
        for number in (1, 3, 2):
            self.client.restore("arrived", f"s{number}", kill=True)
            self.assertEqual(self.run_in("arrived", "cat at; ls random-* | wc -l"), f"{number}\n{number}\n")
        self.assertEqual(self.client.workspace("arrived")["labels"], {"task": "t-1"})
        said = self.daemon.cli("export", "travels", file, "--without-snapshots").stdout.decode()
        self.assertIn("without its snapshots", said)
        self.assertEqual(manifest(file.read_bytes())["format"], 1)  # earlier releases accept it
        self.client.import_(file.read_bytes(), name="alone")
        self.assertEqual(self.client.snapshots("alone"), [])
        self.assertEqual(self.run_in("alone", "cat at; ls random-* | wc -l"), "now\n3\n")
        self.delete("travels", "arrived", "alone")

    def test_a_fork_knows_where_it_came_from(self):
        self.make("parent", snapshots=1, megabytes=1)
        self.client.fork("parent", names=["child"], snapshot="s1")
        out = io.BytesIO()
        self.client.export("child", out)
        self.assertEqual(manifest(out.getvalue())["forked_from"]["name"], "parent")
        self.client.import_(out.getvalue(), name="again")
        self.assertEqual(self.client.workspace("again").get("forked_from"), self.client.workspace("child").get("forked_from"))
        self.assertNotIn("forked_elsewhere", self.client.workspace("again"))
        origin = {"store": self.client.info()["store_id"], "workspace": self.client.workspace("parent")["id"],
                  "snapshot": self.client.workspace("child")["forked_from"], "name": "parent"}
        other = harness.Daemon()
        self.addCleanup(other.kill)
        other.start()
        other.client.import_(out.getvalue(), name="child")
        there = other.client.workspace("child")
        self.assertEqual((there.get("forked_from"), there["forked_elsewhere"]), (None, origin))
        text = f"{origin['snapshot']} of parent ({origin['workspace']}) in store {origin['store']}"
        self.assertIn(text, other.cli("show", "child").stdout.decode())
        self.assertIn(text, other.cli("report", "child").stdout.decode())
        # Its origin stays with it. Its repository differs there, so it does not become a fork of the first store's workspace again.
        again = io.BytesIO()
        other.client.export("child", again)
        self.assertEqual(manifest(again.getvalue())["forked_from"], origin)
        self.client.import_(again.getvalue(), name="home")
        home = self.client.workspace("home")
        self.assertEqual((home.get("forked_from"), home["forked_elsewhere"]), (None, origin))
        other.client.delete("child", purge=True)
        other.stop()
        self.delete("home", "again", "child", "parent")

    def test_an_export_does_not_stop_running_commands(self):
        self.make("busy", snapshots=1, megabytes=1)
        self.run_in("busy", "echo before > at")
        record = self.client.start_exec("busy", ["sh", "-c", "while sleep 0.1; do echo x >> grows; done"])
        harness.wait_until(lambda: self.run_in("busy", "cat grows 2>/dev/null; true"), what="it writes")
        sandbox = self.client.workspace("busy")["sandbox"]["id"]
        before = [s["id"] for s in self.client.snapshots("busy")]
        out = io.BytesIO()
        self.client.export("busy", out)
        self.assertEqual(self.client.get_exec(record["id"])["state"], "running")
        self.assertEqual(self.client.workspace("busy")["sandbox"]["id"], sandbox)
        self.assertEqual([s["id"] for s in self.client.snapshots("busy")], before)
        self.client.import_(out.getvalue(), name="copy")
        self.assertEqual(self.run_in("copy", "cat at; test -s grows && echo grew"), "before\ngrew\n")
        states = [e["state"] for e in self.client.history("copy")["execs"] if "grows; done" in " ".join(e["argv"])]
        self.assertEqual(states, ["interrupted"])
        self.client.restore("copy", "s1", kill=True)
        self.assertEqual(self.run_in("copy", "cat at"), "1\n")
        self.client.cancel(record["id"])
        self.client.wait(record["id"])
        self.delete("busy", "copy")


class TwoExports(harness.TestCase):
    """Two exports of one running workspace at the same time. On a nearly full disk an export continues at its reader's speed."""

    file_system = ["mkfs.ext4", "-q"]
    settings = {"store.min_free_bytes": 300 << 20}

    def export(self, name, to, go_on, ended):
        client = harness.Client(str(self.daemon.socket))
        connection, response = client._open("GET", f"/workspaces/{name}/export", accept="*/*")
        with raw_api.Stream(connection, response) as stream:
            while piece := stream.read(1 << 20):
                to.write(piece)
                go_on.wait()
        ended.set()

    def test_layers_of_a_second_export_stay_after_the_first_ends(self):
        gate = self.daemon.directory / "gate"
        self.daemon.stop()
        self.daemon.environment["MOORAGE_PAUSE_AT"] = f"export.before_read={gate}"
        self.daemon.start()
        self.addCleanup(gate.unlink, missing_ok=True)
        self.client.create(repo_url=self.url, name="both")
        self.client.snapshot("both", name="s0")
        made = self.client.exec("both", "head -c 8M /dev/urandom > of-s1; sha256sum of-s1").stdout
        self.client.stop("both")
        self.client.snapshot("both", name="s1")
        self.client.restore("both", "s0")  # s1 is beside the chain
        self.client.exec("both", "head -c 60M /dev/urandom > now")
        record = self.client.start_exec("both", ["sleep", "1000"])
        gate.touch()
        exports = []
        for number in range(2):
            out, go_on, ended = io.BytesIO(), threading.Event(), threading.Event()
            self.addCleanup(go_on.set)
            threading.Thread(target=self.export, args=("both", out, go_on, ended), daemon=True).start()
            exports.append((out, go_on, ended))
            harness.wait_until(lambda: sum(s["cause"] == "export" for s in self.client.snapshots("both")) == number + 1,
                               what="its snapshot is taken")
        harness.wait_until(gate.with_name("gate.reached").exists, what="they are about to read")
        filler = self.daemon.store / "filler"
        with open(filler, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(self.daemon.store).free - (250 << 20))
        self.addCleanup(filler.unlink, missing_ok=True)
        gate.unlink()
        harness.wait_until(lambda: all(out.getbuffer().nbytes for out, _, _ in exports), what="both send")
        for snapshot in self.client.snapshots("both"):
            if snapshot["cause"] == "before-restore" or snapshot["name"] == "s1":
                self.client.drop_snapshot("both", snapshot["id"])
        for out, go_on, ended in exports:
            go_on.set()
            self.assertTrue(ended.wait(60 * harness.PATIENCE), "the export was cut")
        filler.unlink()
        for number, (out, _, _) in enumerate(exports):
            self.client.import_(out.getvalue(), name=f"copy-{number}")
            copied = self.client.snapshots(f"copy-{number}")
            self.assertEqual([s["cause"] for s in copied], ["manual", "manual", "before-restore"])
            self.client.restore(f"copy-{number}", "s1")
            self.assertEqual(self.client.exec(f"copy-{number}", "sha256sum of-s1").stdout, made)
        self.client.cancel(record["id"])
        self.client.wait(record["id"])
        harness.wait_until(lambda: [s["name"] for s in self.client.snapshots("both")] == ["s0"], what="their snapshots go")
        for name in ("both", "copy-0", "copy-1"):
            self.client.delete(name, purge=True)
        harness.wait_until(lambda: not any((self.daemon.store / "layers").iterdir()), what="all layers are collected")


class Room(unittest.TestCase):
    def test_an_archive_larger_than_the_free_space_is_not_begun(self):
        daemon = harness.Daemon()
        harness.mount_image(daemon, ["mkfs.ext4", "-q"], size=512 << 20)
        self.addCleanup(lambda: harness.run("umount", daemon.store, check=False))
        upstream = daemon.directory / "upstream"
        harness.make_repository(upstream / "acme" / "shop")
        server = harness.GitServer(upstream)
        self.addCleanup(server.stop)
        self.addCleanup(daemon.kill)
        daemon.start()
        client = daemon.client
        client.create(repo_url=server.url("acme/shop"), name="large")
        client.exec("large", "head -c 200M /dev/urandom > random-1")
        client.stop("large")
        client.snapshot("large", name="s1")
        client.exec("large", "head -c 150M /dev/urandom > random-2; sha256sum random-* > sums")
        client.stop("large")
        low = shutil.disk_usage(daemon.store).free
        with self.assertRaises(raw_api.ApiError) as refused:
            client.archive("large")
        self.assertEqual(refused.exception.code, "resource_exhausted")
        self.assertIn("more space", refused.exception.message)
        self.assertLess(abs(shutil.disk_usage(daemon.store).free - low), 16 << 20)
        self.assertEqual(client.exec("large", "sha256sum -c sums").exit_code, 0)
        client.delete("large", purge=True)
        daemon.stop()


if __name__ == "__main__":
    unittest.main()
