"""A keeper of moorage-link with a rented machine: the fakes of E2B and Daytona, whose machines allow namespaces or,
`plain`, do not. What a command prints and writes arrives once and whole, whatever is killed or cut between the two."""

import asyncio
import contextlib
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile
import time
import unittest

import harness
import link_keeper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "remote"))
import fake_daytona  # noqa: E402
import fake_e2b  # noqa: E402

LINES = 20_000
NUMBERED = f"""i=0; while [ $i -lt {LINES} ]; do
  echo "line $i of a command that goes on"; i=$((i+1))
  if [ $((i % 1000)) = 0 ]; then echo $i > file-$((i / 1000)); sleep $PAUSE; fi
done"""
EXPECTED = "".join(f"line {i} of a command that goes on\n" for i in range(LINES)).encode()


class Provider:
    """`CALLS`: paths of the calls that give a program input, and that start one."""

    def settings_of(self):
        return self.settings


class E2b(Provider):
    NAME = "e2b"
    CALLS = (r"/process\.Process/SendInput", r"/process\.Process/Start")

    def __init__(self, directory, plain, **settings):
        self.plain = plain
        self.fake = fake_e2b.FakeE2B(directory, templates=("base", "plain"))
        self.settings = {"api_url": self.fake.url, "sandbox_url": self.fake.url, "allow_plain_http": True,
                         "template": "plain" if plain else "base"} | settings

    def cut(self):
        for sandbox in list(self.fake.sandboxes.values()):
            self.fake.loop.call_soon_threadsafe(sandbox.envd.cut)


class Daytona(Provider):
    NAME = "daytona"
    CALLS = (r".*/input", r".*/process/execute")

    def __init__(self, directory, plain, **settings):
        self.plain = plain
        self.fake = fake_daytona.FakeDaytona(directory, snapshots=("base", "plain"))
        self.settings = {"api_url": self.fake.url + "/api", "allow_plain_http": True,
                         "snapshot": "plain" if plain else "base"} | settings

    def cut(self):
        for sandbox in list(self.fake.sandboxes.values()):
            self.fake.loop.call_soon_threadsafe(sandbox.toolbox.cut)


class RentedCase:
    """`provider`: makes one."""

    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(dir=harness.BASE, prefix="moorage-rented-"))
        cls.addClassCleanup(shutil.rmtree, cls.root, ignore_errors=True)
        (cls.root / "rented").mkdir()
        cls.rented = cls.provider(cls.root / "rented")
        cls.addClassCleanup(cls.rented.fake.close)
        cls.key_file = cls.root / "key"
        cls.key_file.write_text(cls.rented.fake.api_key)
        cls.key_file.chmod(0o600)
        cls.key_source = cls.root / "key.json"
        cls.key_source.write_text(json.dumps({"source": "file", "place": str(cls.key_file), "recipient": "", "credential": ""}))
        cls.base = cls.root / "base"
        random.seed(7)
        for i in range(200):
            file = cls.base / f"d{i % 17}" / f"f{i}"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(random.randbytes(300))
        os.link(cls.base / "d0/f0", cls.base / "d1/linked")
        (cls.base / "pointer").symlink_to("d0/f0")
        for entry in [cls.base, *cls.base.rglob("*")]:
            os.chown(entry, link_keeper.FIRST_ID + 1000, link_keeper.FIRST_ID + 1000, follow_symlinks=False)
        cls.count = 0

    def keeper(self, **options):
        type(self).count += 1
        defaults = {"base": self.base, "driver": self.rented.NAME, "machine_is_ours": True, "key": str(self.key_source)}
        keeper = link_keeper.Keeper(self.root / str(self.count), self.rented, **defaults | options)
        self.addCleanup(shutil.rmtree, keeper.directory, ignore_errors=True)
        self.addCleanup(keeper.remove_there, check=False)
        self.addCleanup(keeper.close)
        return keeper.start()

    def machine(self):
        [sandbox] = self.rented.fake.sandboxes.values()
        return sandbox.machine

    def there(self, script, user="root"):
        """Standard output of a script in the one machine."""
        async def run():
            program = await self.machine().run(["/bin/sh", "-c", script], {"PATH": "/usr/bin:/bin"}, "/", user, stdin=False)
            output = await program.stdout.read()
            await program.ended
            program.close()
            return output.decode()
        return asyncio.run_coroutine_threadsafe(run(), self.rented.fake.loop).result(60)

    def runs(self, keeper):
        with contextlib.suppress(OSError):  # its worker ends now
            return keeper.status()["runs"]

    def no_machine(self):
        harness.wait_until(lambda: not self.rented.fake.sandboxes, what="the end of the machine")


class RentedTest(RentedCase):
    """`overlay`: the kind that its machines allow."""

    def test_a_command_sees_base_and_layer_and_its_files_are_here_before_its_end(self):
        keeper = self.keeper(pids=50)
        layer = keeper.directory / "tree"
        (layer / "mine").write_text("layer\n")
        os.chown(layer / "mine", link_keeper.FIRST_ID + 1000, link_keeper.FIRST_ID + 1000)
        keeper.begin()
        status = keeper.status()
        self.assertTrue(status["connected"] and status["runs"], status)
        plain = self.overlay == "none"
        self.assertEqual((status["overlay"], status["pid_namespace"], status["net_namespace"]),
                         (self.overlay, not plain, not plain))
        root = self.overlay == "root" or plain and self.there_user == "root"
        limits = ["pids"] if root and not plain else []  # a plain machine has its control groups read-only
        self.assertEqual((status["root_inside"], status["limits"]), (root, limits))
        output, end = keeper.run_command(
            "ex_1", "sh", "-c", "cat mine; find . -type f | wc -l; readlink pointer; cmp d0/f0 d1/linked; ls -A ~; echo x > new;"
            " echo y > ~/.rc; rm d2/f2; id -u; exit 3", envs={"PATH": "/usr/bin:/bin", "HOME": "/home/user"})
        self.assertEqual(output.split(), [b"layer", b"202", b"d0/f0", b"1000"])
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
        self.assertEqual(keeper.packs(), [1])
        keeper.good("/moorage/sync")
        keeper.good("/moorage/shutdown", {"grace_ms": 100})
        keeper.process.wait(timeout=20)
        self.assertEqual(keeper.process.returncode, 0)
        self.no_machine()

    def test_a_worker_that_is_killed_20_times_loses_and_doubles_nothing(self):
        keeper = self.keeper()
        keeper.begin()
        journal = keeper.start_command("ex_1", "sh", "-c", "PAUSE=0.6\n" + NUMBERED)
        killed = set()
        while len(killed) < 20:
            if random.random() < 0.8:
                harness.wait_until(lambda: keeper.status()["connected"], 60, what="a connection")
            time.sleep(random.random() * 0.3)
            killed.add(keeper.kill_worker())
        end = harness.wait_until(lambda: link_keeper.end_of(journal.read_bytes()), 240, what="the end")
        self.assertEqual(end["code"], 0, end)
        self.assertEqual(link_keeper.output_of(journal.read_bytes()), EXPECTED)
        harness.wait_until(lambda: keeper.status()["runs"], 60, what="a connection")
        output, _ = keeper.run_command("ex_2", "sh", "-c", "cat file-* | sort -n | tr '\\n' ' '", seconds=60)
        self.assertEqual(output.split(), [str(i).encode() for i in range(1000, LINES + 1, 1000)])

    def test_a_stream_that_is_cut_again_and_again_loses_and_doubles_nothing(self):
        keeper = self.keeper()
        keeper.begin()
        journal = keeper.start_command("ex_1", "sh", "-c", "PAUSE=0.3\n" + NUMBERED + "; head -c 5000000 /dev/urandom > large")
        for _ in range(8):
            time.sleep(random.random())
            self.rented.cut()
        end = harness.wait_until(lambda: link_keeper.end_of(journal.read_bytes()), 240, what="the end")
        self.assertEqual(end["code"], 0, end)
        self.assertEqual(link_keeper.output_of(journal.read_bytes()), EXPECTED)
        packs = [keeper.directory / f"incoming/{number}.pack" for number in keeper.packs()]
        self.assertGreater(sum(pack.stat().st_size for pack in packs), 5_000_000)

    def test_a_call_that_finds_nothing_says_nothing_about_the_machine(self):
        keeper = self.keeper()
        keeper.begin()
        journal = keeper.start_command("ex_1", "sh", "-c", "echo first; until [ -e go ]; do sleep 0.05; done; echo last")
        harness.wait_until(lambda: link_keeper.output_of(journal.read_bytes()), what="output")
        for path in self.rented.CALLS:
            fault = self.rented.fake.faults.add("status", path=path, status=404)
            keeper.kill_worker()
            harness.wait_until(lambda: fault.met, 60, what=f"a call of {path}")  # noqa: B023
            harness.wait_until(lambda: self.runs(keeper), 60, what="a connection")  # noqa: B023
        keeper.run_command("ex_2", "touch", "go")
        harness.wait_until(lambda: link_keeper.end_of(journal.read_bytes()), 60, what="the end")
        self.assertEqual(link_keeper.output_of(journal.read_bytes()), b"first\nlast\n")
        self.assertFalse((keeper.directory / "gone").exists())

    def test_a_machine_that_its_provider_ended_is_not_replaced(self):
        keeper = self.keeper()
        keeper.begin()
        keeper.run_command("ex_1", "sh", "-c", "echo one > a")
        fake, made = self.rented.fake, []
        create = fake_e2b.Sandbox if self.rented.NAME == "e2b" else fake_daytona.Sandbox
        begin = create.__init__

        def count(sandbox, *arguments, **options):
            made.append(sandbox)
            begin(sandbox, *arguments, **options)
        create.__init__ = count
        self.addCleanup(setattr, create, "__init__", begin)
        asyncio.run_coroutine_threadsafe(fake.end_sandboxes(), fake.loop).result(60)
        keeper.process.wait(timeout=120 * harness.PATIENCE)
        self.assertIn("the provider has ended the machine", (keeper.directory / "gone").read_text())
        self.assertEqual(made, [])

    def test_destroy_ends_the_machine(self):
        keeper = self.keeper()
        keeper.begin()
        keeper.start_command("ex_1", "sleep", "1000")
        self.assertEqual(len(self.rented.fake.sandboxes), 1)
        keeper.good("/moorage/destroy")
        self.no_machine()


class PlainTest(RentedTest):
    """Where neither namespaces nor mounts can be made."""

    overlay = "none"

    def test_everything_that_a_command_left_running_ends_with_the_sandbox(self):
        keeper = self.keeper()
        keeper.good("/moorage/connect")
        self.there("mkdir -p /home/user; echo before > /home/user/.keep")
        keeper.begin()
        self.assertEqual(keeper.run_command("ex_0", "ls", "-A", "/home/user")[0], b"")
        keeper.run_command("ex_1", "sh", "-c", "for i in 1 2 3; do setsid sh -c '(sleep 98765 &) & exec sleep 98765' & done;"
                           " touch a; mkdir shut; touch shut/b; chmod 0 shut")
        sleepers = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 'sleep 9876[5]' | wc -l"
        self.assertEqual(self.there(sleepers), "6\n")
        outpost = f"$(ls -d {self.there_directory}/bin/*)/moorage-outpost"
        listed = json.loads(self.there(f"{outpost} list --dir {self.there_directory}", self.there_user))
        self.assertEqual([(one["name"], one["started"]) for one in listed["sandboxes"]], [(keeper.name, True)])
        keeper.close()  # or it would connect again
        self.there(f"{outpost} remove --dir {self.there_directory} --name {keeper.name}", self.there_user)
        self.assertEqual(self.there(sleepers), "0\n")
        self.assertEqual(self.there("ls -A /workspace /home/user"), "/home/user:\n.keep\n\n/workspace:\n")
        harness.wait_until(lambda: self.there("cat /proc/[0-9]*/comm | grep -c moorage") == "0\n", what="the end of its programs")

    def refusal(self, keeper):
        layers = {"layers": [{"tree": str(keeper.directory / "tree"), "home": str(keeper.directory / "home")}]}
        status, answer = keeper.ask("/moorage/begin", layers)
        self.assertNotEqual(status, 200)
        error = json.loads(answer)
        self.assertEqual(error["code"], "unsupported")
        self.assertIn("this machine cannot hold a sandbox", error["message"])
        return error["message"]

    def test_it_is_refused_unless_the_machine_is_ours(self):
        keeper = self.keeper(machine_is_ours=False)
        keeper.good("/moorage/connect")
        self.assertNotIn("without namespaces", self.refusal(keeper))

    def test_it_is_refused_if_its_directories_cannot_be_made(self):
        keeper = self.keeper()
        keeper.good("/moorage/connect")
        if self.there_user == "root":
            self.there("mkdir -p /home/user; touch /workspace")
        else:
            self.there("rm /etc/sudoers")
        self.assertIn("cannot make the directory /workspace", self.refusal(keeper))


@unittest.skipUnless(os.geteuid() == 0, "SKIP: needs root")
class E2bTest(RentedTest, unittest.TestCase):
    overlay = "root"

    @staticmethod
    def provider(directory):
        return E2b(directory, False)

    def test_the_life_of_a_machine_is_extended_while_a_command_runs_and_not_otherwise(self):
        """Longer than the link ever waits to extend it."""
        lives_s = 75
        busy, idle = self.keeper(), self.keeper()
        for keeper in (busy, idle):
            keeper.begin()
        idle.run_command("ex_1", "true")
        journal = busy.start_command("ex_1", "sleep", str(2 * lives_s))
        sandboxes = {each.metadata["moorage-sandbox"]: each for each in self.rented.fake.sandboxes.values()}
        for sandbox in sandboxes.values():
            sandbox.ends = time.monotonic() + lives_s
        idle.process.wait(timeout=2 * lives_s * harness.PATIENCE)
        self.assertEqual(sandboxes[idle.name].state, "gone")
        self.assertIn("the provider has ended the machine", (idle.directory / "gone").read_text())
        self.assertEqual(sandboxes[busy.name].state, "running")
        self.assertIsNone(link_keeper.end_of(journal.read_bytes()))
        self.assertGreater(sandboxes[busy.name].ends, time.monotonic() + lives_s)


@unittest.skipUnless(os.geteuid() == 0, "SKIP: needs root")
class DaytonaTest(RentedTest, unittest.TestCase):
    overlay = "user"

    @staticmethod
    def provider(directory):
        return Daytona(directory, False)


@unittest.skipUnless(os.geteuid() == 0, "SKIP: needs root")
class PlainE2bTest(PlainTest, unittest.TestCase):
    there_directory, there_user = "/root/.moorage", "root"

    @staticmethod
    def provider(directory):
        return E2b(directory, True)


    def paused(self, effect):
        """Pauses the machine, calls effect(the directory of its files), and returns; the next call of the link resumes it."""
        [sandbox] = self.rented.fake.sandboxes.values()
        asyncio.run_coroutine_threadsafe(self.rented.fake._pause(sandbox, True), self.rented.fake.loop).result(30)
        effect(sandbox.machine.root)

    def wake(self, keeper):
        keeper.ask("/moorage/changed", {"paths": []})
        harness.wait_until(lambda: keeper.status()["runs"], 120, what=f"a connection; {keeper.log()}")

    def asleep(self, keeper):
        """Pauses it, and waits until the link has seen that."""
        self.paused(lambda _: None)
        harness.wait_until(lambda: "has paused the machine" in keeper.status()["reason"], 90, what="a look at the machine")
        [sandbox] = self.rented.fake.sandboxes.values()
        self.assertEqual(sandbox.state, "paused")
        return sandbox

    def test_a_machine_that_its_provider_paused_stays_so_until_something_needs_it(self):
        keeper = self.keeper(settings=self.rented.settings | {"on_stop": "pause"})
        keeper.begin()
        keeper.run_command("ex_1", "sh", "-c", "echo one > a")
        sandbox = self.asleep(keeper)
        self.assertEqual(sandbox.resumes, 0)
        self.assertEqual(keeper.run_command("ex_2", "cat", "a")[0], b"one\n")
        self.assertEqual(sandbox.resumes, 1)
        self.asleep(keeper)
        keeper.good("/moorage/shutdown", {"grace_ms": 1000})
        self.no_machine()

    def test_files_that_a_machine_loses_in_a_pause_are_sent_again_and_not_taken_for_changes(self):
        keeper = self.keeper(settings=self.rented.settings | {"on_stop": "pause"})
        keeper.begin()
        keeper.run_command("ex_1", "sh", "-c", "echo one > a; echo two > b; mkdir c; echo three > c/d; rm d3/f3; echo x > gone")
        keeper.run_command("ex_2", "rm", "gone")
        keeper.good("/moorage/sync")
        # As the daemon would: the packs are applied to the mounts here, then removed.
        workspace = pathlib.Path(f"/proc/{keeper.process.pid}/root/workspace")
        (workspace / "c").mkdir()
        for name, content in (("a", "one\n"), ("b", "two\n"), ("c/d", "three\n")):
            (workspace / name).write_text(content)
        (workspace / "d3/f3").unlink()
        for path in (workspace / "a", workspace / "b", workspace / "c", workspace / "c/d"):
            os.chown(path, link_keeper.FIRST_ID + 1000, link_keeper.FIRST_ID + 1000)
        packs = keeper.packs()

        def lose(root):
            there = root / "workspace"
            (there / "a").unlink()
            (there / "b").write_text("an older state\n")
            (there / "d0/f0").unlink()
            (there / "gone").write_text("back\n")
        self.paused(lose)
        harness.wait_until(lambda: not keeper.status()["connected"], 60, what="a loss of the connection")
        for number in packs:
            (keeper.directory / f"incoming/{number}.pack").unlink()
        self.wake(keeper)
        self.assertGreaterEqual(keeper.status()["restored"], 4)
        output, _ = keeper.run_command("ex_3", "sh", "-c", "cat a b c/d; ls gone; cmp d0/f0 d1/linked && echo same; ls d3/f3")
        self.assertEqual(output.split(), [b"one", b"two", b"three", b"same"])
        for number in keeper.packs():
            entries, removed = link_keeper.changes_of(keeper.directory / f"incoming/{number}.pack")
            self.assertEqual([path for path, content in entries.items() if content is not None], [])
            self.assertEqual(removed, [])

    def test_a_machine_that_lost_its_record_in_a_pause_is_given_up(self):
        keeper = self.keeper(settings=self.rented.settings | {"on_stop": "pause"})
        keeper.begin()
        keeper.run_command("ex_1", "sh", "-c", "echo one > a")
        keeper.good("/moorage/sync")
        self.paused(lambda root: (root / f"root/.moorage/sandboxes/{keeper.name}/sync.json").unlink())
        harness.wait_until(lambda: not keeper.status()["connected"], 60, what="a loss of the connection")
        keeper.ask("/moorage/changed", {"paths": []})
        keeper.process.wait(timeout=120 * harness.PATIENCE)
        self.assertIn("has lost files and records", (keeper.directory / "gone").read_text())


@unittest.skipUnless(os.geteuid() == 0, "SKIP: needs root")
class PlainUserE2bTest(PlainTest, unittest.TestCase):
    """As the user whose home is the sandbox's own."""

    there_directory, there_user = "/var/tmp/.moorage", "user"

    @staticmethod
    def provider(directory):
        return E2b(directory, True, user="user")


@unittest.skipUnless(os.geteuid() == 0, "SKIP: needs root")
class PlainDaytonaTest(PlainTest, unittest.TestCase):
    """As a user with sudo and another home."""

    there_directory, there_user = "/home/daytona/.moorage", "daytona"

    @staticmethod
    def provider(directory):
        return Daytona(directory, True)


@unittest.skipUnless(os.geteuid() == 0, "SKIP: needs root")
class KeptTest(RentedCase, unittest.TestCase):
    """A stop that pauses the machine, and the workspace's next sandbox there."""

    @staticmethod
    def provider(directory):
        return E2b(directory, False, on_stop="pause")

    def stop(self, keeper):
        ended = keeper.good("/moorage/shutdown", {"grace_ms": 100, "keep": True})
        keeper.process.wait(timeout=20 * harness.PATIENCE)
        return ended

    def first(self, **options):
        """(the fake's sandbox, the keeper) after a stop that paused it."""
        keeper = self.keeper(**options)
        keeper.begin()
        keeper.run_command("ex_1", "sh", "-c", "echo one > a")
        self.assertEqual(self.stop(keeper), {"kept": True, "why": ""})
        [sandbox] = self.rented.fake.sandboxes.values()
        self.assertEqual(sandbox.state, "paused")
        # Its outpost may be paused just before it ends, with the few files of its own.
        left = [path.name for path in sandbox.machine.root.glob("root/.moorage/sandboxes/*/*")]
        self.assertEqual([name for name in left if name not in ("outpost.sock", "ops.lock") and not name.startswith("serve.")], [])
        return sandbox, keeper

    def next_of(self, former, generation):
        keeper = self.keeper(machine=former.name, machine_generation=1, generation=generation)
        keeper.begin()
        return keeper

    def content(self, keeper):
        output, end = keeper.run_command("ex_1", "sh", "-c", "test ! -e a && find . -type f | wc -l && cmp d0/f0 d1/linked && echo same")
        self.assertEqual(end["code"], 0, (output, end))
        self.assertEqual(output.split(), [b"201", b"same"])

    def tree_of(self, sandbox):
        [files] = sandbox.machine.root.glob("root/.moorage/trees/*/files")
        return files

    def test_the_next_sandbox_has_the_machine_again_and_nothing_of_the_former_one(self):
        sandbox, former = self.first()
        keeper = self.next_of(former, 2)
        self.content(keeper)
        self.assertEqual(keeper.status()["restored"], 0)
        self.assertEqual(list(self.rented.fake.sandboxes), [sandbox.id])
        self.assertTrue(self.stop(keeper)["kept"])
        third = self.next_of(former, 3)
        self.content(third)
        self.assertEqual((list(self.rented.fake.sandboxes), sandbox.resumes), ([sandbox.id], 2))
        third.good("/moorage/shutdown", {"grace_ms": 100})
        self.no_machine()

    def test_trees_and_programs_that_a_pause_damaged_are_sent_again_before_anything_runs(self):
        sandbox, former = self.first()
        tree = self.tree_of(sandbox)
        (tree / "d0/f0").unlink()
        (tree / "d2/f2").write_text("an older state")
        for program in sandbox.machine.root.glob("root/.moorage/bin/*/moorage-*"):
            begin = program.read_bytes()[:1000]
            program.unlink()  # the frozen outpost of the former sandbox may hold it
            program.write_bytes(begin)
            program.chmod(0o755)
        keeper = self.next_of(former, 2)
        self.content(keeper)
        self.assertEqual(keeper.run_command("ex_2", "cat", "d2/f2")[0], (self.base / "d2/f2").read_bytes())
        self.assertGreaterEqual(keeper.status()["restored"], 2)
        self.assertEqual(list(self.rented.fake.sandboxes), [sandbox.id])

    def test_a_machine_that_loses_files_at_its_second_resume(self):
        sandbox, former = self.first()
        (self.tree_of(sandbox) / "d0/f0").unlink()
        keeper = self.next_of(former, 2)  # the tree is sent after the first pause
        self.assertTrue(self.stop(keeper)["kept"])
        self.rented.fake.faults.lose_files_at_resume = 2
        self.addCleanup(setattr, self.rented.fake.faults, "lose_files_at_resume", 0)
        third = self.next_of(former, 3)
        self.content(third)
        self.assertEqual(sandbox.resumes, 2)

    def test_a_machine_whose_state_is_a_lie_is_compared_all_the_same(self):
        self.addCleanup(self.rented.fake.faults.lies.clear)
        sandbox, former = self.first()
        for generation, lie in ((2, "running"), (3, "paused")):
            self.rented.fake.faults.lies[sandbox.id] = lie
            (self.tree_of(sandbox) / "d0/f0").unlink()
            keeper = self.next_of(former, generation)
            self.content(keeper)
            self.assertGreaterEqual(keeper.status()["restored"], 1)
            self.assertTrue(self.stop(keeper)["kept"])

    def test_a_machine_that_cannot_be_paused_is_ended_with_the_reason(self):
        fault = self.rented.fake.faults.add("status", method="POST", path=".*/pause", status=501, count=None)
        self.addCleanup(setattr, fault, "count", 0)
        keeper = self.keeper()
        keeper.begin()
        ended = self.stop(keeper)
        self.assertFalse(ended["kept"])
        self.assertIn("pause sandbox", ended["why"])
        self.no_machine()

    def test_a_paused_machine_that_is_gone_is_made_again(self):
        sandbox, former = self.first()
        asyncio.run_coroutine_threadsafe(self.rented.fake.end_sandboxes(), self.rented.fake.loop).result(60)
        self.content(self.next_of(former, 2))
        self.assertNotIn(sandbox.id, self.rented.fake.sandboxes)


@unittest.skipUnless(os.geteuid() == 0, "SKIP: needs root")
class OpenedTest(RentedCase, unittest.TestCase):
    @staticmethod
    def provider(directory):
        return E2b(directory, True, on_stop="pause")

    def test_a_machine_that_its_provider_opened_for_hosts_is_not_kept(self):
        keeper = self.keeper(provider_rules={"hosts": ["packages.example"], "refusal": "", "hint": ""})
        keeper.begin()
        ended = keeper.good("/moorage/shutdown", {"grace_ms": 100, "keep": True})
        self.assertFalse(ended["kept"])
        self.assertIn("lets it reach hosts", ended["why"])
        self.no_machine()


if __name__ == "__main__":
    unittest.main()
