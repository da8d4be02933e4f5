"""The Python package with a real daemon: each test runs with the plain client and with the async one."""

import contextlib
import io
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import harness

sys.path.insert(0, str(harness.ROOT / "tests/sdk"))
from asynced import BothClients, moorage  # noqa: E402

LONG = os.environ.get("MOORAGE_TEST_LONG") == "1"
EXAMPLES = harness.ROOT / "sdk/python/examples"
MAKEFILE = "test:\n\t@grep -q good attempt || { echo attempt is not good; exit 1; }\n"
# A model: looks around in its first turn, and knows the fix in its second.
MODEL = """#!/bin/sh
prompt=$(cat)
case $prompt in
  *"attempt is not good"*README.md*) echo 'echo good > attempt' ;;
  *"attempt is not good"*) echo ls ;;
  *) exit 3 ;;
esac
"""


class WithDaemon(BothClients):
    files = {"README.md": "The shop\n", "Makefile": MAKEFILE, "src/a.txt": "a\n"}
    made = 0

    def connect(self, kind):
        return kind(self.daemon.socket)

    def needs_long_form(self, condition=True):
        if condition and not LONG:
            self.skipTest("only in the long form")

    async def create(self, client, **options):
        WithDaemon.made += 1
        workspace = await client.create(self.url, name=f"w{WithDaemon.made}", **options)
        self.addCleanup(self.daemon.client.delete, workspace.id, purge=True)
        return workspace


class Commands(WithDaemon):
    async def test_a_command_and_its_result(self, client):
        workspace = await self.create(client)
        result = await workspace.run("cat; echo $WORD >&2; pwd; exit 3", input="in\n", env={"WORD": "err"}, cwd="src")
        self.assertEqual((result.stdout, result.stderr, result.exit_code, result.ok), ("in\n/workspace/src\n", "err\n", 3, False))
        self.assertEqual((await workspace.run(["printf", "%s|", "a b", os.fsdecode(b"\xff")])).stdout_bytes, b"a b|\xff|")
        self.assertEqual((await workspace.run("id -u", user="root", check=True)).stdout, "0\n")
        self.assertEqual((await workspace.run("tty; stty size", tty=(90, 30))).stdout.split()[1:], ["30", "90"])
        async with self.client_error(moorage.NotFoundError):
            await client.exec("ex_99999").info()

    @contextlib.asynccontextmanager
    async def client_error(self, kind):
        with self.assertRaises(kind) as context:
            yield context

    async def test_a_time_limit_ends_the_command_and_keeps_what_it_printed(self, client):
        workspace = await self.create(client)
        async with self.client_error(TimeoutError) as late:
            await workspace.run("echo so far; sleep 600", timeout=0.5)
        self.assertEqual(late.exception.result.stdout, "so far\n")
        self.assertEqual((await client.exec(late.exception.exec_id).info()).state, "timed_out")

    async def test_output_survives_a_kill_of_the_daemon_and_the_command_runs_once(self, client):
        self.needs_long_form(self.kind is moorage.Client)
        workspace = await self.create(client)
        killer = threading.Timer(0.5, self.daemon.restart)
        parts = []
        async with workspace.stream("echo ran >> runs; for i in $(seq 40); do echo line $i; sleep 0.05; done; wc -l < runs") as stream:
            killer.start()
            async for chunk in stream:
                parts.append(chunk.text)
        killer.join()
        self.assertEqual("".join(parts), "".join(f"line {i}\n" for i in range(1, 41)) + "1\n")
        self.assertEqual((stream.exit_code, stream.gaps, len(await workspace.execs())), (0, (), 1))

    async def test_input_survives_a_kill_of_the_daemon(self, client):
        self.needs_long_form()
        workspace = await self.create(client)
        data = b"".join(b"%07d\n" % i for i in range(400_000))
        killer = threading.Timer(0.3, self.daemon.restart)
        killer.start()
        result = await workspace.run("(head -c 100000; sleep 1; cat) | sha256sum", input=io.BytesIO(data))
        killer.join()
        import hashlib
        self.assertEqual(result.stdout.split()[0], hashlib.sha256(data).hexdigest())

    async def test_a_command_is_found_again_by_its_id(self, client):
        self.needs_long_form()
        workspace = await self.create(client)
        running = await workspace.start_exec("read word; echo got $word; sleep 600", stdin=True)
        self.assertEqual(await running.write("x\n"), 2)
        again = client.exec(running.id)
        async with again.output() as stream:
            async for chunk in stream:
                self.assertEqual(chunk.text, "got x\n")
                break
        self.assertIn(running.id, [each.id for each in await client.execs(running=True)])
        async with self.client_error(TimeoutError) as late:
            await again.wait(timeout=0.1)
        self.assertEqual(late.exception.exec_id, running.id)
        await again.signal(signal.SIGTERM)
        end = await again.wait(timeout=20 * harness.PATIENCE)
        self.assertEqual((end.state, end.signal), ("signalled", 15))
        self.assertEqual((await again.result()).exit_code, 143)
        self.assertEqual((await again.raw_output())[0], b"got x\n")
        self.assertEqual((await workspace.history()).execs[-1].id, running.id)

    def test_ctrl_c_carries_the_id_and_the_command_goes_on(self):
        with moorage.Client(self.daemon.socket) as client:
            workspace = client.create(self.url, name="ctrl-c")
            self.addCleanup(self.daemon.client.delete, workspace.id, purge=True)
            main = threading.main_thread().ident
            # A shell starts programs in the background with SIGINT ignored.
            self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))

            def interrupt():
                harness.wait_until(lambda: client.execs(running=True), what="the command")
                time.sleep(0.2)
                signal.pthread_kill(main, signal.SIGINT)

            thread = threading.Thread(target=interrupt)
            thread.start()
            with self.assertRaises(KeyboardInterrupt) as stopped:
                workspace.run("sleep 600")
            thread.join()
            command = client.exec(stopped.exception.exec_id)
            self.assertTrue(command.info().running)
            with command.output() as stream:
                stream.cancel()
                self.assertEqual(stream.result().exec.state, "cancelled")


class FilesOfWorkspaces(WithDaemon):
    async def test_files_modes_and_odd_names(self, client):
        files = (await self.create(client)).files
        odd = os.fsdecode(b"a b#?&\xff%41+\xc3\xbc")
        written = await files.write(odd, "text", mode=0o640)
        self.assertEqual((written.mode, written.size_bytes), (0o640, 4))
        await files.write(odd, b"bytes")
        content, tag = await files.read_tagged(odd)
        found = await files.stat(odd)
        self.assertEqual((content, found.mode, found.name, found.is_file), (b"bytes", 0o640, odd, True))
        self.assertEqual((await files.write(odd, "next", if_match=tag)).mode, 0o640)
        with self.assertRaises(moorage.PreconditionFailedError) as unmet:
            await files.write(odd, "late", if_match=tag)
        self.assertEqual(unmet.exception.tag, (await files.read_tagged(odd))[1])
        await files.make_dir("x/y")
        await files.symlink("x/link", "../nowhere")
        await files.rename(odd, "x/y/plain")
        self.assertEqual([(e.name, e.type, e.target) for e in await files.list("x")], [("link", "symlink", "../nowhere"), ("y", "directory", None)])
        self.assertEqual(await files.read_text("/workspace/x/y/plain"), "next")
        await files.remove("x", recursive=True)
        for path, there in (("x", False), ("x/y", False), ("README.md/x", False), ("src", True), ("/workspace", True), (".", True), ("/home/user", True), ("/home/user/none", False)):
            self.assertEqual(await files.exists(path), there, path)
        with self.assertRaises(moorage.InvalidArgumentError):
            await files.exists("/etc/passwd")
        with self.assertRaises(moorage.NotFoundError):
            await files.read("x/y/plain")

    async def test_a_tree_is_the_same_after_it_went_up_and_down(self, client):
        workspace = await self.create(client)
        with tempfile.TemporaryDirectory() as place:
            up, down = pathlib.Path(place, "up"), pathlib.Path(place, "down")
            (up / "a/empty").mkdir(parents=True)
            (up / "run").write_text("#!/bin/sh\necho ran\n")
            (up / "run").chmod(0o751)
            (up / "a" / os.fsdecode(b"odd\xff name")).write_bytes(os.urandom(300_000))
            (up / "a/link").symlink_to("../run")
            (up / "gone").symlink_to("/nowhere")
            os.mkfifo(up / "pipe")
            sent = await workspace.files.upload(up, "tree")
            self.assertEqual(sent, moorage.Copied(files=2, directories=3, links=2, bytes=sent.bytes, skipped=1))
            self.assertEqual((await workspace.run("tree/a/link")).stdout, "ran\n")
            self.assertEqual(await workspace.files.upload(up, "tree"), sent)  # over what is there
            got = await workspace.files.download("tree", down)
            self.assertEqual(got, moorage.Copied(files=2, directories=3, links=2, bytes=sent.bytes))
            os.unlink(up / "pipe")
            self.assertEqual(self.shape(up), self.shape(down))
            one = await workspace.files.download("tree/run", place + "/one")
            self.assertEqual((one.files, os.stat(place + "/one").st_mode & 0o777), (1, 0o751))

    @staticmethod
    def shape(top):
        return {str(path.relative_to(top)): (os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None, path.lstat().st_mode)
                for path in top.rglob("*")}

    async def test_a_time_of_a_file_comes_down(self, client):
        workspace = await self.create(client)
        await workspace.run("mkdir d; touch -d 2001-02-03T04:05:06Z d/old", check=True)
        with tempfile.TemporaryDirectory() as place:
            await workspace.files.download("d", place)
            self.assertEqual(int(os.stat(place + "/old").st_mtime), 981173106)


class Work(WithDaemon):
    async def test_snapshots_forks_and_changes(self, client):
        workspace = await self.create(client, labels={"team": "a"}, limits=moorage.Limits(pids=200))
        self.assertEqual((workspace.info.labels, workspace.info.limits.pids), ({"team": "a"}, 200))
        await workspace.snapshot("clean")
        await workspace.run("echo more >> README.md; echo new > new.txt")
        self.assertEqual([(d.path, d.added) for d in await workspace.diff_stat()], [("README.md", 1), ("new.txt", 1)])
        self.assertIn(b"+more", await workspace.diff())
        self.assertEqual({c.path: c.change for c in (await workspace.status()).files}, {"README.md": "modified", "new.txt": "untracked"})
        fork, other = await workspace.fork(2)
        await fork.run("echo fork > new.txt")
        self.assertEqual([f.path for f in (await fork.compare(other.id)).files], ["new.txt"])
        self.assertEqual((await fork.promote()).id, workspace.id)
        self.assertEqual(await workspace.files.read_text("new.txt"), "fork\n")
        await workspace.restore("clean")
        self.assertFalse(await workspace.files.exists("new.txt"))
        self.assertIn("before-restore", [s.cause for s in await workspace.snapshots()])
        self.assertEqual(len((await workspace.tree()).workspaces), 3)
        for each in (fork, other):
            await each.delete(purge=True)

    async def test_life_and_policy(self, client):
        self.needs_long_form()
        workspace = await self.create(client)
        await workspace.start()
        self.assertEqual((await workspace.refresh()).sandbox.state, "running")
        info = await workspace.update(idle_stop_s=77, caches=["node_modules"], pinned=True)
        self.assertEqual((info.idle_stop_s, info.caches, info.pinned), (77, ("node_modules",), True))
        running = await workspace.start_exec("sleep 600")
        with self.assertRaises(moorage.ConflictError):
            await workspace.stop()
        self.assertEqual((await workspace.stop(force=True)).ended, (running.id,))
        archive = io.BytesIO()
        await workspace.export(archive)
        archive.seek(0)
        copy = await client.import_workspace(archive, workspace.name + "-copy")
        await copy.delete(purge=True)
        with self.assertRaises((moorage.CorruptedError, moorage.InvalidArgumentError)):
            await client.import_workspace(archive.getvalue()[:-100], "damaged")
        await workspace.delete()
        self.assertNotIn(workspace.id, [w.id for w in await client.workspaces()])
        self.assertIn(workspace.id, [w.id for w in await client.workspaces(deleted=True)])
        self.assertEqual((await workspace.undelete()).state, "ready")

    async def test_one_writer_at_a_time(self, client):
        self.needs_long_form()
        workspace = await self.create(client)
        async with workspace.lease("agent-7", ttl_s=5) as held:
            self.assertTrue((await held.run("true")).ok)
            with self.assertRaises(moorage.ConflictError):
                await workspace.run("true")
            self.assertEqual((await workspace.lease_info()).holder, "agent-7")
            token = (await workspace.acquire_lease("other", takeover=True)).token
            with self.assertRaises(moorage.ConflictError):
                await held.files.write("x", "y")
            self.assertTrue(await self.eventually(lambda: held.lost))
        with moorage.Client(self.daemon.socket, lease=token) as other:
            other.get(workspace.id).files.write("x", "y")
            other.get(workspace.id).release_lease()

    async def eventually(self, condition):
        import asyncio
        for _ in range(500 * harness.PATIENCE):
            if condition():
                return True
            await asyncio.sleep(0.02)
        return False

    async def test_best_of_and_what_the_host_says(self, client):
        self.needs_long_form()
        workspace = await self.create(client)
        begun = await workspace.best_of("make test", each="test {i} = 2 && echo good > attempt; true", count=2, promote="first-passing")
        best = await client.best_of(begun.id, wait=60)
        self.assertEqual((best.state, best.chosen, best.ended), ("done", 2, True))
        self.assertEqual(await workspace.files.read_text("attempt"), "good\n")
        self.assertIsNone(await client.health())
        self.assertTrue((await client.info()).version)
        self.assertIn(workspace.id, [w.id for w in (await client.top()).workspaces])
        self.assertTrue((await client.disk_usage()).repos)
        self.assertIn("network.mode", [s.name for s in await client.settings()])
        self.assertIn("moorage_", await client.metrics())
        self.assertTrue((await client.doctor()).findings is not None)
        self.assertTrue([e async for e in client.events() if e.workspace == workspace.id])
        self.assertEqual((await client.repositories.get(self.url)).name, "acme/shop")
        self.assertFalse((await workspace.check_network("github.com")).allowed)
        for attempt in best.attempts:
            await (await client.get(attempt.workspace)).delete(purge=True)


class Examples(WithDaemon):
    def example(self, name, *words, status=0):
        done = subprocess.run(["/usr/bin/python3", EXAMPLES / name, *map(str, words)], capture_output=True, text=True, timeout=120 * harness.PATIENCE,
                              env={"PATH": os.environ["PATH"], "PYTHONPATH": str(EXAMPLES.parent), "MOORAGE_SOCKET": str(self.daemon.socket), "PYTHONDONTWRITEBYTECODE": "1"})
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout

    def begin(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)
        self.daemon.client.create(repo_url=self.url, name="example")
        self.addCleanup(self.clear)

    def clear(self):
        for workspace in self.daemon.client.workspaces():
            self.daemon.client.delete(workspace["id"], purge=True)

    def test_an_agent_loop_in_at_most_forty_lines(self):
        self.begin()
        self.assertLessEqual(len((EXAMPLES / "agent_loop.py").read_text().splitlines()), 40)
        model = self.place / "model"
        model.write_text(MODEL)
        model.chmod(0o755)
        printed = self.example("agent_loop.py", self.url, model)
        self.assertIn("shop: passed after 2 turns\n", printed)
        self.assertIn("+good\n", printed)
        self.assertEqual([s["name"] for s in self.daemon.client.snapshots("shop")], ["turn-1", "turn-2"])
        self.assertFalse(self.daemon.client.show_lease("shop")["held"])

    def test_attempts_at_once(self):
        self.needs_long_form()
        self.begin()
        command = "case {i} in 1) exit 1;; 2) seq 100 > attempt; echo good >> attempt;; 3) echo good > attempt;; esac"
        printed = self.example("attempts.py", "example", 3, "make test", command)
        self.assertIn("example-3: the smallest of 2 that passed", printed)
        self.assertEqual(sorted(w["name"] for w in self.daemon.client.workspaces()), ["example", "example-3"])
        self.example("attempts.py", "example", 1, "make test", "true", status=1)

    def test_following_a_command_and_going_on_with_it(self):
        self.needs_long_form()
        self.begin()
        self.assertEqual(self.example("follow.py", "example", "sh", "-c", "echo a; exit 4", status=4), "a\n")
        exec_id = self.daemon.client.execs("example")[0]["id"]
        self.assertEqual(self.example("follow.py", exec_id, status=4), "a\n")

    def test_building_a_local_directory(self):
        self.begin()
        (self.place / "Makefile").write_text("all:\n\tmkdir -p out && cp in.txt out/result\n")
        (self.place / "in.txt").write_text("content")
        self.assertEqual(self.example("build_elsewhere.py", "example", self.place, "make", "out"), "sent 2 files, 50 bytes\ngot 1 files, 7 bytes\n")
        self.assertEqual((self.place / "out/result").read_text(), "content")

    def test_each_example_is_run_here(self):
        source = pathlib.Path(__file__).read_text()
        for example in EXAMPLES.iterdir():
            self.assertIn(f'"{example.name}"', source)


class Sdk(Commands, FilesOfWorkspaces, Work, Examples, harness.TestCase):
    """All with one daemon."""


if __name__ == "__main__":
    unittest.main()
