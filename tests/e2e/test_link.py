"""moorage-link and moorage-outpost over a real sshd, without a daemon: what a command prints and writes arrives once and
whole, whatever is killed or cut between the two."""

import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import tempfile
import threading
import time
import unittest

import harness
import link_keeper
import ssh_host

LINES = 40000
NUMBERED = f"""i=0; while [ $i -lt {LINES} ]; do
  echo "line $i of a command that goes on"; i=$((i+1))
  if [ $((i % 1000)) = 0 ]; then echo $i > file-$((i / 1000)); sleep $PAUSE; fi
done"""
EXPECTED = "".join(f"line {i} of a command that goes on\n" for i in range(LINES)).encode()


class LinkTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(dir=harness.BASE, prefix="moorage-link-"))
        cls.addClassCleanup(shutil.rmtree, cls.root, ignore_errors=True)
        cls.host = ssh_host.SshHost(cls.root / "host").start()
        cls.addClassCleanup(cls.host.close)
        cls.base = cls.root / "base"
        cls.make_tree(cls.base, 200)
        cls.count = 0

    @staticmethod
    def make_tree(path, files, size=300):
        random.seed(7)
        for i in range(files):
            file = path / f"d{i % 17}" / f"f{i}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(random.randbytes(size))
        for entry in [path, *path.rglob("*")]:
            os.chown(entry, link_keeper.FIRST_ID + 1000, link_keeper.FIRST_ID + 1000)

    def keeper(self, **options):
        type(self).count += 1
        keeper = link_keeper.Keeper(self.root / str(self.count), self.host, **{"base": self.base} | options)
        self.addCleanup(shutil.rmtree, keeper.directory, ignore_errors=True)
        self.addCleanup(keeper.remove_there, check=False)
        self.addCleanup(keeper.close)
        return keeper.start()

    def sandboxes_there(self):
        path = self.host.directory / "sandboxes"
        return [entry.name for entry in path.iterdir()] if path.exists() else []

    def test_a_command_sees_base_and_layer_and_its_files_are_here_before_its_end(self):
        keeper = self.keeper()
        layer = keeper.directory / "tree"
        (layer / "mine").write_text("layer\n")
        os.chown(layer / "mine", link_keeper.FIRST_ID + 1000, link_keeper.FIRST_ID + 1000)
        keeper.begin()
        status = keeper.status()
        self.assertTrue(status["connected"] and status["runs"], status)
        self.assertEqual(status["overlay"], "root")
        output, end = keeper.run_command("ex_1", "sh", "-c", "cat mine; find . -type f | wc -l; echo x > new; id -un; exit 3")
        self.assertEqual(output.split(), [b"layer", b"201", b"user"])
        self.assertEqual(end["code"], 3)
        self.assertEqual(keeper.packs(), [1])
        keeper.run_command("ex_2", "true")
        self.assertEqual(keeper.packs(), [1])  # nothing changed
        self.assertEqual(keeper.status()["last_pack"], 1)
        workspace = pathlib.Path(f"/proc/{keeper.process.pid}/root/workspace")
        (workspace / "by-file-api").write_text("hello\n")
        os.chown(workspace / "by-file-api", link_keeper.FIRST_ID + 1000, link_keeper.FIRST_ID + 1000)
        keeper.good("/moorage/changed", {"paths": ["/workspace/by-file-api"]})
        self.assertEqual(keeper.run_command("ex_3", "cat", "by-file-api")[0], b"hello\n")
        keeper.good("/moorage/shutdown", {"grace_ms": 100})
        keeper.process.wait(timeout=20)
        self.assertEqual(keeper.process.returncode, 0)
        self.assertNotIn(keeper.name, self.sandboxes_there())

    def test_a_machine_that_has_the_programs_is_reached_by_one_login(self):
        first = self.keeper()
        first.good("/moorage/connect")
        first.close()
        before = self.host.logins()
        second = self.keeper()
        second.begin()
        self.assertEqual(self.host.logins(), before + 1)
        self.host.cut_connections()
        harness.wait_until(lambda: self.host.logins() > before + 1, what="a second login")
        harness.wait_until(lambda: second.status()["connected"], what="a connection")
        self.assertEqual(self.host.logins(), before + 2)
        self.assertEqual(second.run_command("ex_1", "pwd")[0], b"/workspace\n")

    def test_sandboxes_that_start_at_once_on_a_new_machine_all_find_whole_programs(self):
        host = ssh_host.SshHost(self.root / "new", "new", 1).start()
        self.addCleanup(host.close)
        keepers = [self.keeper(settings=host.settings_of()) for _ in range(4)]
        answers = []
        threads = [threading.Thread(target=lambda one=one: answers.append(one.ask("/moorage/connect"))) for one in keepers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual({status for status, _ in answers}, {200}, answers)
        self.assertEqual(sorted(path.name for path in (host.directory / "bin").glob("*/*")), ["moorage-outpost", "moorage-warden"])

    def test_a_worker_that_is_killed_50_times_loses_and_doubles_nothing(self):
        keeper = self.keeper()
        keeper.begin()
        journal = keeper.start_command("ex_1", "sh", "-c", "PAUSE=1.5\n" + NUMBERED)
        killed = set()
        while len(killed) < 50:
            if random.random() < 0.8:
                harness.wait_until(lambda: keeper.status()["connected"], 60, what="a connection")
            time.sleep(random.random() * 0.3)
            killed.add(keeper.kill_worker())
        end = harness.wait_until(lambda: link_keeper.end_of(journal.read_bytes()), 240, what="the end")
        self.assertEqual(end["code"], 0, end)
        self.assertEqual(link_keeper.output_of(journal.read_bytes()), EXPECTED)
        self.assertTrue(keeper.packs())
        harness.wait_until(lambda: keeper.status()["connected"], 60, what="a connection after the last kill")
        output, _ = keeper.run_command("ex_2", "sh", "-c", "cat file-* | sort -n | tr '\\n' ' '", seconds=60)
        self.assertEqual(output.split(), [str(i).encode() for i in range(1000, LINES + 1, 1000)])

    def test_a_file_that_came_from_here_and_is_removed_there_is_removed_here(self):
        keeper = self.keeper()
        keeper.begin()
        workspace = pathlib.Path(f"/proc/{keeper.process.pid}/root/workspace")
        for number, (script, name) in enumerate((("rm sent", "sent"), ("mv sent moved", "sent"), ("rm -r new", "new/a"))):
            (workspace / name).parent.mkdir(exist_ok=True)
            (workspace / name).write_text("hello\n")
            for path in {workspace / name, (workspace / name).parent}:
                os.chown(path, link_keeper.FIRST_ID + 1000, link_keeper.FIRST_ID + 1000)
            keeper.good("/moorage/changed", {"paths": [f"/workspace/{name}"]})
            known = set(keeper.packs())
            keeper.run_command(f"ex_{number}", "sh", "-c", script)
            pack, = set(keeper.packs()) - known
            _, removed = link_keeper.changes_of(keeper.directory / f"incoming/{pack}.pack")
            self.assertIn(f"tree/{name.partition('/')[0]}", removed)

    def test_the_process_that_makes_packs_may_be_killed(self):
        keeper = self.keeper()
        keeper.begin()
        worker = keeper.worker()
        children = pathlib.Path(f"/proc/{worker}/task/{worker}/children").read_text().split()
        packer, = (pid for pid in children if b"\0worker\0" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes())
        os.kill(int(packer), signal.SIGKILL)
        workspace = pathlib.Path(f"/proc/{keeper.process.pid}/root/workspace")
        (workspace / "by-file-api").write_text("hello\n")
        os.chown(workspace / "by-file-api", link_keeper.FIRST_ID + 1000, link_keeper.FIRST_ID + 1000)

        def sent():
            with contextlib.suppress(OSError):  # its worker ends now
                return keeper.ask("/moorage/changed", {"paths": ["/workspace/by-file-api"]})[0] == 200
        harness.wait_until(sent, 60, what="a new process")
        self.assertNotEqual(keeper.worker(), worker)
        self.assertEqual(keeper.run_command("ex_1", "cat", "by-file-api")[0], b"hello\n")

    def test_a_stream_that_is_cut_again_and_again_loses_and_doubles_nothing(self):
        keeper = self.keeper()
        keeper.begin()
        journal = keeper.start_command("ex_1", "sh", "-c", "PAUSE=0.2\n" + NUMBERED + "; head -c 20000000 /dev/urandom > large")
        for _ in range(12):
            time.sleep(random.random())
            self.host.cut_connections()
        end = harness.wait_until(lambda: link_keeper.end_of(journal.read_bytes()), 240, what="the end")
        self.assertEqual(end["code"], 0, end)
        self.assertEqual(link_keeper.output_of(journal.read_bytes()), EXPECTED)
        packs = [keeper.directory / f"incoming/{number}.pack" for number in keeper.packs()]
        self.assertGreater(sum(pack.stat().st_size for pack in packs), 20_000_000)

    def test_a_push_that_is_cut_goes_on_where_it_was(self):
        base = self.root / "large"
        self.make_tree(base, 3000, size=20_000)
        self.addCleanup(shutil.rmtree, base)
        keeper = self.keeper(base=base, base_key="large")
        cuts = []

        def cut():
            files = self.host.directory / "trees/large/files"
            for least in (0.3, 0.6):
                harness.wait_until(lambda: files.exists() and len(list(files.rglob("f*"))) > least * 3000, 60, what="files")
                cuts.append(len(list(files.rglob("f*"))))
                self.host.cut_connections()

        thread = threading.Thread(target=cut)
        thread.start()
        for _ in range(10):
            status, answer = keeper.ask("/moorage/connect")
            if status == 200:
                break
            self.assertIn(b"message", answer)
        thread.join()
        self.assertEqual((status, len(cuts)), (200, 2), keeper.log())
        keeper.begin()
        output, _ = keeper.run_command("ex_1", "sh", "-c", "cat $(find . -type f | sort) | sha256sum")
        files = sorted(f"./{path.relative_to(base)}".encode() for path in base.rglob("f*"))
        expected = harness.run("sha256sum", input=b"".join((base / name.decode()).read_bytes() for name in files)).stdout
        self.assertEqual(output, expected)

    def test_an_unusable_machine_gets_its_reason_in_words_at_once(self):
        def message(keeper):
            status, answer = keeper.ask("/moorage/connect", timeout=90)
            self.assertNotEqual(status, 200)
            return json.loads(answer)

        unknown = self.root / "unknown_host"
        unknown.write_text(self.host.config.read_text().replace(str(self.host.known_hosts), "/dev/null"))
        error = message(self.keeper(settings=self.host.settings_of(config_file=str(unknown))))
        self.assertEqual(error["code"], "permission_denied")
        self.assertIn("host key of spare", error["message"])
        refused = self.root / "refused_key"
        refused.write_text(self.host.config.read_text().replace(f"IdentityFile {self.host.root / 'key'}", "IdentityFile /dev/null"))
        error = message(self.keeper(settings=self.host.settings_of(config_file=str(refused))))
        self.assertEqual(error["code"], "permission_denied")
        self.assertIn("refuses the login", error["message"])
        nowhere = self.root / "nowhere"
        nowhere.write_text(self.host.config.read_text().replace("Port 22", "Port 23"))
        error = message(self.keeper(settings=self.host.settings_of(config_file=str(nowhere))))
        self.assertEqual(error["code"], "unavailable")
        self.assertIn("Connection refused", error["message"])
        error = message(self.keeper(settings=self.host.settings_of(directory="/proc/nowhere")))
        self.assertIn("cannot make or write the directory /proc/nowhere", error["message"])

    def test_a_new_keeper_takes_up_the_commands_of_one_that_was_killed(self):
        keeper = self.keeper()
        keeper.begin()
        journal = keeper.start_command("ex_1", "sh", "-c", "PAUSE=0.2\n" + NUMBERED)
        for _ in range(5):
            time.sleep(random.random())
            keeper.process.kill()
            keeper.process.wait()
            keeper.start()
            with open(journal, "ab") as file:
                keeper.good("/moorage/keep", {"tag": "ex_1", "room_bytes": 0}, fds=[file.fileno()])
        end = harness.wait_until(lambda: link_keeper.end_of(journal.read_bytes()), 120, what="the end")
        self.assertEqual(end["code"], 0, end)
        self.assertEqual(link_keeper.output_of(journal.read_bytes()), EXPECTED)

    def test_a_worker_that_is_killed_while_the_machine_is_away_finds_it_again(self):
        keeper = self.keeper()
        keeper.begin()
        self.host.stop()
        first = keeper.kill_worker()
        harness.wait_until(lambda: keeper.worker() not in (None, first), what="a new worker")
        harness.wait_until(lambda: "cannot reach spare" in keeper.status()["reason"], what="its first try")
        self.host.start()
        harness.wait_until(lambda: keeper.status()["connected"], 40, what="a connection")

    def test_a_stop_that_could_not_remove_the_sandbox_there_is_finished_later(self):
        keeper = self.keeper()
        keeper.begin()
        self.host.process.kill()  # no more logins; the stream goes on
        self.host.process.wait()
        status, answer = keeper.ask("/moorage/shutdown", {"grace_ms": 100})
        self.assertEqual((status, json.loads(answer)["code"]), (503, "unavailable"), answer)
        self.host.start()
        keeper.process.wait(timeout=60 * harness.PATIENCE)
        self.assertIn("the sandbox ended on the other machine", (keeper.directory / "gone").read_text())

    def test_a_journal_that_is_handed_over_twice_is_written_once(self):
        keeper = self.keeper()
        keeper.begin()
        journal = keeper.start_command("ex_1", "sh", "-c", "PAUSE=0.2\n" + NUMBERED)
        self.assertEqual(keeper.good("/moorage/follows", {"tag": "ex_1"}), {"follows": True})
        for _ in range(5):
            with open(journal, "ab") as file:
                keeper.good("/moorage/keep", {"tag": "ex_1", "room_bytes": 0}, fds=[file.fileno()])
        harness.wait_until(lambda: link_keeper.end_of(journal.read_bytes()), 120, what="the end")
        self.assertEqual(link_keeper.output_of(journal.read_bytes()), EXPECTED)
        harness.wait_until(lambda: not keeper.good("/moorage/follows", {"tag": "ex_1"})["follows"], what="all of it")

    def test_a_sandbox_that_its_machine_has_lost_is_reported_as_gone(self):
        keeper = self.keeper()
        keeper.begin()
        outpost = next((self.host.directory / "bin").glob("*/moorage-outpost"))
        self.host.ssh(outpost, "remove", "--dir", self.host.directory, "--name", keeper.name)
        keeper.process.wait(timeout=60 * harness.PATIENCE)
        self.assertEqual(keeper.process.returncode, 0, keeper.log())
        self.assertIn("the machine does not have the sandbox any more", (keeper.directory / "gone").read_text())

    def test_while_the_machine_is_away_requests_get_the_reason_and_commands_go_on(self):
        keeper = self.keeper()
        keeper.begin()
        journal = keeper.start_command("ex_1", "sh", "-c", "for i in 1 2 3 4 5 6; do echo $i; sleep 0.5; done; touch done")
        self.host.stop()
        harness.wait_until(lambda: not keeper.status()["connected"], what="a loss")
        status, answer = keeper.ask("/process.Process/List", headers={"Content-Type": "application/json"})
        self.assertEqual(status, 503)
        self.assertEqual(json.loads(answer)["code"], "unavailable")
        self.assertIn("spare", json.loads(answer)["message"])
        time.sleep(4)
        self.assertIsNone(link_keeper.end_of(journal.read_bytes()))
        self.host.start()
        end = harness.wait_until(lambda: link_keeper.end_of(journal.read_bytes()), 60, what="the end")
        self.assertEqual(end["code"], 0)
        self.assertEqual(link_keeper.output_of(journal.read_bytes()).split(), [b"1", b"2", b"3", b"4", b"5", b"6"])
        self.assertTrue(keeper.status()["connected"])

    def test_salvage_brings_the_unsynced_files_of_a_machine_that_was_given_up_and_it_runs_nothing_more(self):
        keeper = self.keeper()
        keeper.begin()
        sleep = f"sleep {1_000_000 + os.getpid()}"
        keeper.run_command("ex_1", "sh", "-c", "echo one > synced; echo one > changed; echo one > removed")
        keeper.start_command("ex_2", "sh", "-c", "echo two > running; sleep 1; sleep 4; echo three > changed; rm removed;"
                             " mkdir new; echo four > new/file; echo five > ~/note; touch last; exec " + sleep,
                             envs={"PATH": "/usr/bin:/bin", "HOME": "/home/user"})
        harness.wait_until(lambda: any("tree/running" in link_keeper.changes_of(keeper.directory / f"incoming/{number}.pack")[0]
                                       for number in keeper.packs()), what="a sync of the running command")
        self.host.pull_cable()
        self.addCleanup(self.host.plug_in_cable)
        keeper.close()  # it is given up
        upper = self.host.directory / "sandboxes" / keeper.name / "tree/upper"
        harness.wait_until((upper / "last").exists, what="changes there")
        self.assertNotEqual(self.salvage_fails(keeper), b"")
        self.host.plug_in_cable()
        first, second = self.root / "first", self.root / "second"
        self.assertEqual(keeper.salvage(first), {"found": True, "packs": 1})
        [pack] = (first / "incoming").glob("*.pack")
        self.assertEqual(pack.stem, str(keeper.packs()[-1] + 1))
        entries, removed = link_keeper.changes_of(pack)
        files = {path: content for path, content in entries.items() if content is not None}
        self.assertEqual(files, {"tree/changed": b"three\n", "tree/new/file": b"four\n", "tree/last": b"", "home/note": b"five\n"})
        self.assertEqual(set(removed) - {"tree/new"}, {"tree/removed"})  # a new directory hides what may be below it
        self.assertEqual(harness.run("pgrep", "-xf", sleep, check=False).stdout, b"")
        self.assertEqual(keeper.salvage(second), {"found": True, "packs": 1})
        self.assertEqual(link_keeper.changes_of(next((second / "incoming").glob("*.pack"))), (entries, removed))
        self.assertEqual(keeper.salvage(first), {"found": True, "packs": 1})
        keeper.start()
        status, answer = keeper.ask("/moorage/connect")
        self.assertNotEqual(status, 200)
        self.assertIn("has gone on elsewhere", json.loads(answer)["message"])
        keeper.close()
        keeper.remove_there()
        self.assertEqual(keeper.salvage(self.root / "third"), {"found": False, "packs": 0})

    def salvage_fails(self, keeper):
        result = harness.run("timeout", "60", harness.BIN / "moorage-link", "salvage", "--config", keeper.config, "--into",
                             self.root / "nothing", check=False)
        self.assertNotEqual(result.returncode, 0)
        return result.stderr


if __name__ == "__main__":
    unittest.main()
