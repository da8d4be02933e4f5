"""Sandboxes on rented machines: a daemon whose backends e2b and daytona speak with the fakes of tests/remote."""

import asyncio
import base64
import contextlib
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import unittest
import urllib.request

import harness
import raw_api

sys.path.insert(0, str(harness.ROOT / "tests/remote"))
import fake_daytona  # noqa: E402
import fake_e2b  # noqa: E402


class RentedCase(harness.TestCase):
    """`template`: of all machines; `more`: settings of each backend; `more_settings`: of the daemon."""

    template = "base"
    more = {"e2b": {}, "daytona": {}}
    more_settings = {}

    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="moorage-rented-", dir=harness.BASE))
        cls.addClassCleanup(shutil.rmtree, cls.root, ignore_errors=True)
        cls.fakes, backends = {}, {}
        for name in ("e2b", "daytona"):
            (cls.root / name).mkdir()
        cls.fakes["e2b"] = fake_e2b.FakeE2B(cls.root / "e2b", templates=(cls.template,))
        cls.fakes["daytona"] = fake_daytona.FakeDaytona(cls.root / "daytona", snapshots=(cls.template,))
        for name in cls.fakes:
            cls.addClassCleanup(cls.fakes[name].close)
            backends[name] = {"max_sandboxes": 1}
        key = cls.root / "e2b.key"
        key.write_text(cls.fakes["e2b"].api_key + "\n")
        key.chmod(0o600)
        backends["e2b"] |= {"key_file": str(key), "api_url": cls.fakes["e2b"].url, "sandbox_url": cls.fakes["e2b"].url,
                            "template": cls.template}
        backends["daytona"] |= {"credential": "daytona", "api_url": cls.fakes["daytona"].url + "/api", "snapshot": cls.template}
        for name, more in cls.more.items():
            backends[name] |= more
        cls.settings = {"backends": backends, "remote.sync_interval_s": 1,
                        "network.credential_key": str(cls.root / "credentials.key")} | cls.more_settings
        super().setUpClass()
        cls.add_credential(cls.fakes["daytona"].api_key)

    @classmethod
    def add_credential(cls, key):
        cls.daemon.cli("credential", "add", "daytona", "--for", "https://app.daytona.io/api/", "--from-stdin", input=key.encode())

    def create(self, name, backend, **options):
        self.addCleanup(self.client.delete, name, purge=True)
        return self.client.create(repo_url=self.url, name=name, backend=backend, **options)

    def out(self, name, script):
        result = self.client.exec(name, ["sh", "-c", script])
        self.assertEqual(result.exit_code, 0, result.stderr)
        return result.stdout.decode().strip()

    def refusal(self, name):
        with self.assertRaises(raw_api.ApiError) as caught:
            self.client.exec(name, ["true"])
        return f"{caught.exception.message} {caught.exception.hint}"

    def on(self, backend, function):
        """Calls one of its coroutines."""
        fake = self.fakes[backend]
        asyncio.run_coroutine_threadsafe(getattr(fake, function)(), fake.loop).result(60)

    def machines(self, backend):
        return len(self.fakes[backend].sandboxes)

    def findings(self, *options):
        done = self.daemon.cli("--json", "doctor", *options, check=False)
        return {finding["subject"]: finding for finding in json.loads(done.stdout)["findings"] if finding["check"] == "machines"}

    def make_machine(self, backend, sandbox):
        """As a create makes it whose answer was lost, with its record here."""
        labels = {"moorage-store": sandbox.rpartition("-")[0], "moorage-sandbox": sandbox, "moorage-generation": "1"}
        key = self.fakes[backend].api_key
        path, body, headers = {"e2b": ("/sandboxes", {"templateID": "base", "metadata": labels, "timeout": 600}, {"X-API-Key": key}),
                               "daytona": ("/api/sandbox", {"labels": labels}, {"Authorization": f"Bearer {key}"})}[backend]
        request = urllib.request.Request(self.fakes[backend].url + path, json.dumps(body).encode(), {"Content-Type": "application/json"} | headers)
        urllib.request.urlopen(request, timeout=60).close()

    def shown(self, name):
        return " ".join(self.daemon.cli("show", name).stdout.decode().split())

    def info(self):
        return " ".join(self.daemon.cli("info").stdout.decode().split())

    def check_commands(self, backend):
        before = self.machines(backend)
        self.create(backend, backend)
        self.assertEqual(self.out(backend, "cat src/a.txt"), "a")
        if self.template == "base":
            self.assertEqual(self.out(backend, "hostname"), "sandbox")
        self.out(backend, "echo made > file")
        self.assertEqual(self.client.read_file(backend, "file"), b"made\n")
        self.assertEqual(self.machines(backend), before + 1)
        self.client.stop(backend)
        # A provider may take its time to end a machine.
        harness.wait_until(lambda: self.machines(backend) == before, what="the end of the machine")
        self.assertEqual(self.out(backend, "cat file"), "made")


class Rented(RentedCase):
    def test_commands_run_on_e2b_and_their_files_are_here(self):
        self.check_commands("e2b")

    def test_commands_run_on_daytona_and_their_files_are_here(self):
        self.check_commands("daytona")

    def test_the_limit_on_machines_holds_and_says_so(self):
        self.create("one", "e2b")
        self.create("two", "e2b")
        self.out("one", "true")
        self.assertIn("e2b 1 of 1", self.refusal("two"))
        self.client.stop("one")
        self.assertEqual(self.out("two", "echo fits"), "fits")

    def test_a_key_is_in_its_file_or_encrypted_and_nowhere_else(self):
        for backend in self.fakes:
            self.create(f"key-{backend}", backend)
            self.out(f"key-{backend}", "env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n' > seen")
        keys = [fake.api_key.encode() for fake in self.fakes.values()]
        texts = [path.read_bytes() for path in [self.daemon.log, *self.daemon.store.rglob("*")] if path.is_file() and not path.is_symlink()]
        for pid in filter(str.isdigit, os.listdir("/proc")):
            for name in ("cmdline", "environ"):
                try:
                    texts.append(pathlib.Path(f"/proc/{pid}/{name}").read_bytes())
                except OSError:
                    continue
        for key in keys:
            self.assertFalse(any(key in text for text in texts))
        wrong = self.root / "e2b.key"
        right = wrong.read_text()
        wrong.write_text("e2b_wrong_secret\n")
        try:
            self.create("refused", "e2b")
            self.client.stop("key-e2b")
            said = self.refusal("refused")
        finally:
            wrong.write_text(right)
        self.assertNotIn("wrong_secret", said)
        self.assertIn("e2b", said)

    def test_a_credential_that_was_replaced_or_is_gone(self):
        """The process that speaks with the provider ends, so the next one needs the key again."""
        fake, name = self.fakes["daytona"], "replaced"
        self.create(name, "daytona")
        self.out(name, "echo kept > file")
        before = fake.api_key
        fake.api_key = "dtn_" + "b" * 40
        self.addCleanup(self.add_credential, before)
        self.addCleanup(setattr, fake, "api_key", before)
        self.add_credential(fake.api_key)
        for pid in harness.sandbox_cgroup_pids(f"moorage-{self.daemon.known_store_id}-{self.client.workspace(name)['sandbox']['id']}"):
            if not harness.is_keeper(pid):
                with contextlib.suppress(ProcessLookupError):  # each ends with the others
                    os.kill(pid, signal.SIGKILL)
        self.assertEqual(self.out(name, "cat file"), "kept")
        self.client.stop(name)
        self.daemon.cli("credential", "rm", "daytona")
        self.assertIn("root has no credential daytona for the provider add it as root: moorage credential add daytona", self.refusal(name))
        self.add_credential(fake.api_key)
        self.findings("--fix")
        self.assertEqual(self.out(name, "cat file"), "kept")

    def test_a_machine_that_nothing_here_knows_is_shown_and_ended(self):
        for backend in self.fakes:
            before = self.machines(backend)
            stray = f"moorage-{self.daemon.known_store_id}-sb_99999{len(backend)}"
            self.make_machine(backend, stray)
            self.make_machine(backend, "moorage-another-sb_1")
            self.assertIn(f"a sandbox exists at {backend}", self.findings()[stray]["text"])
            mended = self.findings("--fix")[stray]
            self.assertTrue(mended["mended"], mended)
            harness.wait_until(lambda: self.machines(backend) == before + 1, what="only that of another store is left")  # noqa: B023


class Gone(RentedCase):
    def test_a_machine_that_its_provider_ended_is_lost_and_is_not_replaced(self):
        for backend in self.fakes:
            self.create(f"gone-{backend}", backend)
            self.out(f"gone-{backend}", "echo made > file")
            former = self.client.workspace(f"gone-{backend}")["sandbox"]["id"]
            self.on(backend, "end_sandboxes")
            self.assertEqual(self.machines(backend), 0)

            def lost():
                self.assertEqual(self.machines(backend), 0)  # noqa: B023
                sandbox = self.client.workspace(f"gone-{backend}").get("sandbox")  # noqa: B023
                return not sandbox or sandbox["state"] == "lost"
            harness.wait_until(lost, 90, what="the loss of the sandbox")
            harness.wait_until(lambda: f"{backend}: 0 of 1 sandbox" in self.info(), what="room for another")  # noqa: B023
            self.assertEqual(self.out(f"gone-{backend}", "cat file"), "made")
            self.assertNotEqual(self.client.workspace(f"gone-{backend}")["sandbox"]["id"], former)


class Paused(RentedCase):
    more = {"e2b": {"on_stop": "pause"}, "daytona": {"on_stop": "pause"}}
    asleep = {"e2b": "paused", "daytona": "stopped"}

    def machine(self, backend):
        [machine] = self.fakes[backend].sandboxes.values()
        return machine

    def pause(self, name, backend):
        self.create(name, backend)
        self.out(name, "echo made > file")
        self.client.stop(name)
        self.assertEqual(self.machine(backend).state, self.asleep[backend])
        return self.machine(backend)

    def end(self, name, backend):
        self.client.delete(name)
        self.findings("--fix")
        harness.wait_until(lambda: self.machines(backend) == 0, what="the end of the machine")

    def test_a_stop_pauses_the_machine_and_the_next_sandbox_has_it_again(self):
        for backend in self.fakes:
            name = f"nap-{backend}"
            machine = self.pause(name, backend)
            self.assertEqual(self.findings(), {})
            self.assertIn("0 of 1 sandbox and 1 paused, a stop pauses the machine", self.info())
            self.daemon.restart()
            self.assertEqual(self.out(name, "cat file src/a.txt"), "made\na")
            self.assertIs(self.machine(backend), machine)
            self.assertEqual(self.findings(), {})
            self.assertNotIn("lost in a pause", self.info())
            self.client.stop(name)
            self.assertEqual(self.out(name, "cat file src/a.txt"), "made\na")
            self.assertIs(self.machine(backend), machine)
            self.client.stop(name)
            self.end(name, backend)

    def test_trees_that_a_pause_changed_are_sent_again_and_shown(self):
        machine = self.pause("changed", "e2b")
        [file] = machine.machine.root.glob("root/.moorage/trees/*/files/src/a.txt")
        self.assertEqual(file.read_text(), "a\n")
        file.write_text("b\n")
        self.assertEqual(self.out("changed", "cat src/a.txt"), "a")
        self.assertIs(self.machine("e2b"), machine)
        self.assertIn("1 file lost in a pause and sent again", self.info())
        self.client.stop("changed")
        self.end("changed", "e2b")

    def test_trees_that_are_lost_at_the_second_resume_are_sent_again(self):
        machine = self.pause("lossy", "e2b")
        [file] = machine.machine.root.glob("root/.moorage/trees/*/files/src/a.txt")
        file.write_text("b\n")
        self.assertEqual(self.out("lossy", "cat src/a.txt"), "a")  # sent after the first pause
        self.client.stop("lossy")
        self.fakes["e2b"].faults.lose_files_at_resume = 2
        self.addCleanup(setattr, self.fakes["e2b"].faults, "lose_files_at_resume", 0)
        self.assertEqual(self.out("lossy", "cat file src/a.txt"), "made\na")
        self.assertEqual(machine.resumes, 2)
        self.assertIs(self.machine("e2b"), machine)
        self.assertIn("lost in a pause and sent again", self.info())
        self.client.stop("lossy")
        self.end("lossy", "e2b")

    def test_a_machine_whose_state_is_a_lie_is_compared_all_the_same(self):
        for lie in ("running", "paused"):
            machine = self.pause(f"liar-{lie}", "e2b")
            self.fakes["e2b"].faults.lies[machine.id] = lie
            [file] = machine.machine.root.glob("root/.moorage/trees/*/files/src/a.txt")
            file.unlink()
            self.assertEqual(self.out(f"liar-{lie}", "cat file src/a.txt"), "made\na")
            self.assertIs(self.machine("e2b"), machine)
            self.client.stop(f"liar-{lie}")
            self.end(f"liar-{lie}", "e2b")

    def test_a_paused_machine_that_is_gone_is_made_again(self):
        machine = self.pause("expired", "daytona")
        self.on("daytona", "end_sandboxes")
        self.assertEqual(self.out("expired", "cat file"), "made")
        self.assertIsNot(self.machine("daytona"), machine)
        self.client.stop("expired")
        self.end("expired", "daytona")

    def test_a_workspace_that_moved_away_leaves_no_machine(self):
        self.pause("moved", "e2b")
        self.client.move("moved", backend="lxc")
        self.findings("--fix")
        harness.wait_until(lambda: self.machines("e2b") == 0, what="the end of the machine")
        self.assertEqual(self.out("moved", "cat file"), "made")

    def test_a_machine_that_cannot_be_paused_is_ended_and_info_says_why(self):
        fault = self.fakes["e2b"].faults.add("status", method="POST", path=".*/pause", status=501, count=None)
        self.addCleanup(setattr, fault, "count", 0)
        self.create("awake", "e2b")
        self.out("awake", "echo made > file")
        self.client.stop("awake")
        harness.wait_until(lambda: self.machines("e2b") == 0, what="the end of the machine")
        self.assertIn("could not be paused", self.info())
        self.assertEqual(self.out("awake", "cat file"), "made")
        shown = self.shown("awake")
        self.assertIn("its owner", shown)
        self.assertIn("kept by its provider for", shown)


class Plain(RentedCase):
    """Machines that allow neither namespaces nor mounts."""

    template = "plain"

    def test_commands_run_on_e2b_and_their_files_are_here(self):
        self.check_commands("e2b")

    def test_commands_run_on_daytona_and_their_files_are_here(self):
        self.check_commands("daytona")

    def test_show_and_info_say_how_changes_are_found(self):
        self.create("seen", "e2b")
        self.out("seen", "true")
        for text in (self.shown("seen"), self.info()):
            self.assertIn("changes found by comparing the whole tree", text)

    def test_root_is_root_of_the_machine(self):
        self.create("rooted", "e2b")
        self.assertEqual(self.client.exec("rooted", ["id", "-u"], user="root").stdout, b"0\n")

    def test_rules_about_hosts_are_refused_before_anything_runs(self):
        self.create("ruled", "e2b", network="open")
        said = self.refusal("ruled")
        self.assertIn("network namespace of its own", said)
        self.assertIn("--network none", said)
        harness.wait_until(lambda: self.machines("e2b") == 0, what="the end of the machine")
        self.client.update("ruled", network="none")
        self.assertEqual(self.out("ruled", "cat src/a.txt"), "a")


class Volume(RentedCase):
    """A volume of Daytona keeps the base tree, which is larger than all else that is sent."""

    template = "plain"
    more = {"e2b": {}, "daytona": {"volume": "trees"}}
    files = {"src/a.txt": "a\n", "text": base64.b64encode(random.Random(7).randbytes(3 << 20)).decode()}
    TREE = "find . -mindepth 1 -path ./.git -prune -o -print0 | sort -z | xargs -0 stat -c '%n %A %Y' | sha256sum; sha256sum text src/a.txt"

    def volumes(self):
        return list(self.fakes["daytona"].volumes.values())

    def kept(self):
        """The files in the volume, by their place."""
        return {path: path.read_bytes() for volume in self.volumes() for path in volume.directory.rglob("*") if path.is_file()}

    def digest_and_bytes(self, name):
        """Of the tree there, and how much was sent until it was seen."""
        before = self.fakes["daytona"].received
        self.create(name, "daytona")
        digest = self.out(name, self.TREE)
        return digest, self.fakes["daytona"].received - before

    def stop(self, name):
        self.client.stop(name)
        harness.wait_until(lambda: self.machines("daytona") == 0, what="the end of the machine")

    def push(self):
        """By a first machine, if no other test did; returns as digest_and_bytes, and the file."""
        before = self.kept()
        digest, sent = self.digest_and_bytes("first")
        harness.wait_until(lambda: len(self.kept()) > len(before), what="the copy in the volume")
        [place] = set(self.kept()) - set(before)
        self.stop("first")
        return digest, sent, place

    def setUp(self):
        # Each test begins with an empty volume.
        for place in self.kept():
            place.unlink()

    def test_the_next_machine_takes_the_base_tree_from_the_volume(self):
        digest, sent, place = self.push()
        key = place.parent.name
        self.assertEqual(place.parent.parent.name, f"moorage-{self.daemon.known_store_id}")
        note = json.loads((self.daemon.store / "remote/volumes/daytona" / key).read_text())
        self.assertEqual((note["name"], note["digest"]), (place.name, hashlib.sha256(place.read_bytes()).hexdigest()))
        kept = self.kept()
        again, less = self.digest_and_bytes("second")
        self.assertEqual(again, digest)
        self.assertLess(less, sent - len(kept[place]))
        # The user there sees the part with its own tree, and nothing else of the volume.
        self.assertEqual(self.out("second", "ls /mnt/moorage-trees"), place.name)
        self.stop("second")
        self.assertEqual(self.kept(), kept)

    def test_a_file_in_the_volume_that_is_cut_changed_or_gone_costs_a_push(self):
        digest, sent, place = self.push()
        for name in ("cut", "changed", "gone"):
            with self.subTest(name):
                pack = place.read_bytes()
                half = len(pack) // 2
                changed = pack[:half] + bytes([pack[half] ^ 1]) + pack[half + 1:]
                place.unlink()
                if name != "gone":
                    place.write_bytes(pack[:half] if name == "cut" else changed)
                    place.chmod(0o644)
                before = set(self.kept())
                again, more = self.digest_and_bytes(name)
                self.assertEqual(again, digest)
                self.assertGreater(more, sent - half)
                harness.wait_until(lambda: set(self.kept()) - before, what="a new copy in the volume")  # noqa: B023
                [place] = set(self.kept()) - before
                self.stop(name)

    def test_a_server_that_shows_whole_volumes_is_refused(self):
        self.fakes["daytona"].knows_subpath = False
        self.addCleanup(setattr, self.fakes["daytona"], "knows_subpath", True)
        self.create("whole", "daytona")
        self.assertIn("base trees of others", self.refusal("whole"))
        harness.wait_until(lambda: self.machines("daytona") == 0, what="the end of the machine")


if __name__ == "__main__":
    unittest.main()
