"""The writer lease: two agents in one workspace, a holder that dies, a take-over, a restart, a race; and a single user, who
needs no lease."""

import concurrent.futures
import contextlib
import hashlib
import os
import pwd
import signal
import subprocess
import time
import unittest

import harness
import raw_api


class Lease(harness.TestCase):
    settings = {"sandbox.stop_grace_s": 1}

    def setUp(self):
        self.name = self._testMethodName.replace("test_", "").replace("_", "-")[:60]
        self.client.create(repo_url=self.url, name=self.name)
        self.addCleanup(self.remove)

    def remove(self):
        with contextlib.suppress(raw_api.ApiError):
            self.client.delete(self.name, purge=True)
            return
        self.acquire("clean-up", takeover=True).delete(self.name, purge=True)

    def sending(self, token, generation=None):
        client = harness.Client(str(self.daemon.socket))
        client.lease_token, client.generation = token, generation
        return client

    def acquire(self, holder, **fields):
        lease = self.client.acquire_lease(self.name, holder, **fields)
        return self.sending(lease["token"], lease["generation"])

    def assert_refused(self, what, text, call, *arguments, **fields):
        with self.assertRaises(raw_api.ApiError) as refused:
            call(*arguments, **fields)
        self.assertEqual(refused.exception.code, "conflict", what)
        self.assertIn(text, refused.exception.message, what)
        return refused.exception

    def events(self):
        workspace = self.client.workspace(self.name)["id"]
        return [e for e in self.client.events() if e.get("workspace") == workspace and e["kind"].startswith("lease.")]

    def writes(self, client, exec_id):
        """Every way to change a workspace or its commands: name -> call."""
        ws = self.name
        return {
            "exec": lambda: client.start_exec(ws, ["true"]),
            "write": lambda: client.write_file(ws, "new", b"x"),
            "move": lambda: client.move_file(ws, "README.md", "moved"),
            "mkdir": lambda: client.make_directory(ws, "d"),
            "symlink": lambda: client.make_symlink(ws, "l", "t"),
            "remove": lambda: client.remove_file(ws, "src/a.txt"),
            "stdin": lambda: client.send_input(exec_id, b"x"),
            "signal": lambda: client.signal(exec_id, "CONT"),
            "resize": lambda: client.request("POST", f"/execs/{exec_id}/resize", json_body={"columns": 9, "rows": 9}),
            "cancel": lambda: client.cancel(exec_id),
            "start": lambda: client.start(ws),
            "stop": lambda: client.stop(ws),
            "delete": lambda: client.delete(ws),
            "purge": lambda: client.delete(ws, purge=True),
        }

    def test_a_single_user_needs_no_lease(self):
        self.assertEqual(self.client.show_lease(self.name), {"held": False, "generation": 0})
        self.client.write_file(self.name, "a", b"1")
        self.assertEqual(self.client.exec(self.name, "cat a").stdout, b"1")
        self.client.stop(self.name)
        self.assertNotIn("holder", self.client.workspace(self.name))
        self.assertEqual(self.events(), [])

    def test_only_the_holder_can_change_a_held_workspace(self):
        first = self.acquire("agent-a")
        exec_id = first.start_exec(self.name, ["cat"], stdin=True)["id"]
        guess = first.lease_token.rsplit(".", 1)[0] + "." + "0" * 64
        for client, text in ((self.client, "held by agent-a"), (self.sending("7"), "lease 7 of"),
                             (self.sending(str(first.generation)), "no secret"), (self.sending(guess), "another secret")):
            for what, call in self.writes(client, exec_id).items():
                with self.subTest(what, text=text):
                    self.assert_refused(what, text, call)
        # Reading needs no lease.
        self.assertEqual(self.client.read_file(self.name, "README.md"), b"hello\n")
        self.client.status(self.name)
        self.assertEqual(self.client.get_exec(exec_id)["state"], "running")
        self.assertEqual(self.client.workspace(self.name)["holder"]["holder"], "agent-a")
        # And the holder can do all of it.
        for what, call in self.writes(first, exec_id).items():
            with self.subTest(what, holder="agent-a"):
                if what in ("start", "stop", "delete", "purge"):
                    continue
                if what == "resize":  # admitted, then refused for another reason
                    with self.assertRaisesRegex(raw_api.ApiError, "no terminal"):
                        call()
                    continue
                call()
        first.stop(self.name, force=True)
        first.start(self.name)

    def test_a_released_lease_admits_everyone_and_its_generation_ends(self):
        first = self.acquire("agent-a")
        first.release_lease(self.name)
        self.client.write_file(self.name, "a", b"1")
        exec_id = self.client.start_exec(self.name, ["cat"], stdin=True)["id"]
        for what, call in self.writes(first, exec_id).items():
            with self.subTest(what):
                self.assert_refused(what, "is over: released", call)
        self.assert_refused("heartbeat", "is over", first.heartbeat, self.name)
        self.assert_refused("beside a writer", f"{exec_id} runs without a lease", self.acquire, "agent-b")
        second = self.acquire("agent-b", keep_execs=True)
        self.assertEqual(second.generation, first.generation + 1)
        self.assertEqual(self.client.get_exec(exec_id)["state"], "running", "nothing was taken over")
        self.assertEqual([e["kind"] for e in self.events()], ["lease.acquired", "lease.released", "lease.acquired"])

    def test_a_command_without_a_lease_counts_as_a_writer(self):
        exec_id = self.client.start_exec(self.name, ["sleep", "600"])["id"]
        self.assert_refused("beside a writer", "runs without a lease", self.acquire, "agent-a")
        self.assertFalse(self.client.show_lease(self.name)["held"])
        self.acquire("agent-a", takeover=True)
        self.assertEqual(self.client.get_exec(exec_id)["state"], "cancelled")

    def test_a_dead_holder_loses_the_lease_after_its_ttl(self):
        dead = self.acquire("agent-dead", ttl_s=5)
        self.assert_refused("acquire", "held by agent-dead", self.acquire, "agent-b")
        began = time.monotonic()
        exec_id = dead.start_exec(self.name, ["sleep", "600"])["id"]
        harness.wait_until(lambda: not self.client.show_lease(self.name)["held"], 30, "the lapse")
        self.assertGreater(time.monotonic() - began, 4.5)
        self.assert_refused("write", "is over: lapsed", dead.write_file, self.name, "a", b"1")
        self.assert_refused("heartbeat", "is over: lapsed", dead.heartbeat, self.name)
        self.daemon.restart()
        self.assert_refused("after a restart", "is over: lapsed", dead.write_file, self.name, "a", b"1")
        second = self.acquire("agent-b")
        self.assertEqual(second.generation, dead.generation + 1)
        self.assertEqual(self.client.get_exec(exec_id)["state"], "cancelled")
        self.assertEqual([e["kind"] for e in self.events()], ["lease.acquired", "lease.lapsed", "lease.acquired"])

    def test_heartbeats_keep_the_lease(self):
        with self.client.lease(self.name, "agent-a", ttl_s=5) as held:
            time.sleep(8)
            held.write_file(self.name, "a", b"1")
            self.assertFalse(held.lost.is_set())
            other = self.acquire("agent-b", takeover=True)
            self.assertTrue(held.lost.wait(5), "the next heartbeat tells it")
        self.assertTrue(self.client.show_lease(self.name)["held"], "the previous holder cannot release it")
        other.release_lease(self.name)

    def test_a_takeover_leaves_no_writer_behind(self):
        old = self.acquire("agent-a")
        script = "(setsid sh -c 'while :; do date +%s%N > daemonised; sleep 0.05; done' &) ; exec sleep 600"
        running = old.start_exec(self.name, ["sh", "-c", script])["id"]
        harness.wait_until(lambda: old.exec(self.name, "cat daemonised").stdout, what="the writer")
        stubborn = old.start_exec(self.name, ["sh", "-c", "trap '' TERM; while :; do date +%s%N > stubborn; done"])["id"]
        harness.wait_until(lambda: old.exec(self.name, "cat stubborn").stdout, what="the other writer")
        new = self.acquire("agent-b", takeover=True)
        for exec_id in (running, stubborn):
            self.assertEqual(self.client.get_exec(exec_id)["state"], "cancelled")
        before = [self.client.read_file(self.name, f) for f in ("daemonised", "stubborn")]
        self.assertEqual(new.exec(self.name, "sleep 0.5; pgrep -c sh || true").exit_code, 0)
        self.assertEqual([self.client.read_file(self.name, f) for f in ("daemonised", "stubborn")], before)
        message = self.assert_refused("write", "agent-b", old.write_file, self.name, "a", b"1").message
        self.assertIn(f"lease {new.generation}", message)
        taken = self.events()[-1]
        self.assertEqual(taken["kind"], "lease.taken_over")
        self.assertIn("agent-a", taken["text"])
        self.assertIn("agent-b", taken["text"])

    def test_a_takeover_may_keep_running_commands(self):
        old = self.acquire("agent-a")
        running = old.start_exec(self.name, ["cat"], stdin=True)["id"]
        new = self.acquire("agent-b", takeover=True, keep_execs=True)
        self.assertEqual(self.client.get_exec(running)["state"], "running")
        self.assert_refused("stdin", "is over", old.send_input, running, b"x")
        new.send_input(running, b"x\n", close=True)
        self.assertEqual(self.client.wait(running)["exit_code"], 0)

    def test_an_upload_overtaken_by_a_new_lease_writes_nothing(self):
        old = self.acquire("agent-a")

        def body():
            yield b"old" * 1000
            self.acquire("agent-b", takeover=True)
            yield b"old" * 1000
        self.assert_refused("upload", "is over", old.write_file, self.name, "README.md", body())
        self.assertEqual(self.client.read_file(self.name, "README.md"), b"hello\n")
        listed = self.client.list_files(self.name)["entries"]
        self.assertEqual([e["name"] for e in listed if e["name"].startswith(".moorage")], [])

    def test_no_lease_lapses_while_the_daemon_is_down(self):
        held = self.acquire("agent-a", ttl_s=12)
        self.daemon.restart()
        held.write_file(self.name, "a", b"1")
        self.assert_refused("other", "held by agent-a", self.client.write_file, self.name, "a", b"2")
        os.kill(self.daemon.process.pid, signal.SIGSTOP)
        time.sleep(13)
        os.kill(self.daemon.process.pid, signal.SIGCONT)
        self.assert_refused("other", "held by agent-a", self.client.write_file, self.name, "a", b"2")
        held.write_file(self.name, "a", b"3")

    def test_a_lost_answer_can_be_requested_again_with_the_same_key(self):
        first = self.client.acquire_lease(self.name, "agent-a", key="k1")
        again = self.client.acquire_lease(self.name, "agent-a", key="k1")
        self.assertEqual(again["generation"], first["generation"])
        self.sending(again["token"]).write_file(self.name, "a", b"1")
        self.assert_refused("another key", "held by agent-a", self.client.acquire_lease, self.name, "agent-a", key="k2")

    def test_one_of_many_concurrent_acquires_succeeds(self):
        def attempt(number):
            try:
                return self.client.acquire_lease(self.name, f"agent-{number}")["generation"]
            except raw_api.ApiError as error:
                self.assertEqual(error.code, "conflict")
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            got = [g for g in pool.map(attempt, range(8)) if g]
        self.assertEqual(got, [1])

    def test_bad_requests_are_refused(self):
        for fields in ({"holder": ""}, {"holder": "x" * 201}, {"holder": "a\nb"}, {"holder": "a", "ttl_s": 4},
                       {"holder": "a", "ttl_s": 3601}, {"holder": "a\x7f"}):
            with self.subTest(fields), self.assertRaises(raw_api.ApiError) as refused:
                self.client.request("POST", f"/workspaces/{self.name}/lease", json_body=fields)
            self.assertEqual(refused.exception.code, "invalid_argument")
        for header in ("0", "-1", "x", "1 2", "", "1.2", "ws_1.1.secret", "1,1"):
            with self.subTest(header), self.assertRaises(raw_api.ApiError) as refused:
                self.client.request("POST", f"/workspaces/{self.name}/start", headers={"Moorage-Lease": header})
            self.assertEqual(refused.exception.code, "invalid_argument")
        for call in (self.client.heartbeat, self.client.release_lease):
            with self.assertRaises(raw_api.ApiError) as refused:
                call(self.name)
            self.assertEqual(refused.exception.code, "invalid_argument")


class IfMatch(harness.TestCase):
    def setUp(self):
        self.name = self._testMethodName.replace("test_", "").replace("_", "-")[:60]
        self.client.create(repo_url=self.url, name=self.name)
        self.addCleanup(self.client.delete, self.name, purge=True)

    def assert_unmet(self, call, *arguments, **fields):
        with self.assertRaises(raw_api.ApiError) as refused:
            call(self.name, *arguments, **fields)
        self.assertEqual((refused.exception.status, refused.exception.code), (412, "conflict"))

    def test_if_match_changes_a_file_only_if_it_is_unchanged(self):
        content, tag = self.client.read_file_and_tag(self.name, "README.md")
        self.assertEqual(tag, '"sha256-' + hashlib.sha256(content).hexdigest() + '"')
        made = self.client.write_file(self.name, "README.md", b"mine", if_match=tag)
        self.assertEqual(made["hash"], "sha256-" + hashlib.sha256(b"mine").hexdigest())
        self.assert_unmet(self.client.write_file, "README.md", b"late", if_match=tag)
        self.assert_unmet(self.client.remove_file, "README.md", if_match=tag)
        self.assert_unmet(self.client.move_file, "README.md", "elsewhere", if_match=tag)
        self.assertEqual(self.client.read_file(self.name, "README.md"), b"mine")
        self.client.exec(self.name, "echo inside > README.md")
        self.assert_unmet(self.client.write_file, "README.md", b"late", if_match=f'"{made["hash"]}"')
        self.assertEqual(self.client.read_file(self.name, "README.md"), b"inside\n")
        tag = self.client.read_file_and_tag(self.name, "README.md")[1]
        self.client.move_file(self.name, "README.md", "elsewhere", if_match=f'"sha256-{"0" * 64}", {tag}')
        self.client.remove_file(self.name, "elsewhere", if_match=tag)

    def test_conditions_on_existing_and_missing_files(self):
        self.assert_unmet(self.client.write_file, "new", b"1", if_match="*")
        self.client.write_file(self.name, "new", b"1", if_none_match="*")
        self.assert_unmet(self.client.write_file, "new", b"2", if_none_match="*")
        self.client.write_file(self.name, "new", b"2", if_match="*")
        self.assertEqual(self.client.read_file(self.name, "new"), b"2")
        left = [e["name"] for e in self.client.list_files(self.name)["entries"] if e["name"].startswith(".moorage")]
        self.assertEqual(left, [], "a refused write leaves nothing")

    def test_a_repeat_of_a_successful_write_is_accepted(self):
        tag = self.client.read_file_and_tag(self.name, "README.md")[1]
        first = self.client.write_file(self.name, "README.md", b"mine", if_match=tag, key="once")
        self.assertEqual(self.client.write_file(self.name, "README.md", b"mine", if_match=tag, key="once"), first)

    def test_concurrent_counters_lose_no_increment(self):
        self.client.write_file(self.name, "count", b"0")

        def count(_):
            for _ in range(5):
                while True:
                    content, tag = self.client.read_file_and_tag(self.name, "count")
                    try:
                        self.client.write_file(self.name, "count", str(int(content) + 1).encode(), if_match=tag)
                        break
                    except raw_api.ApiError as error:
                        self.assertEqual(error.status, 412)
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            list(pool.map(count, range(6)))
        self.assertEqual(self.client.read_file(self.name, "count"), b"30")

    def test_conditions_on_other_objects_are_refused(self):
        self.client.exec(self.name, "truncate -s 3G huge")
        for path, tag in (("huge", "*"), ("README.md", "nonsense"), ("README.md", 'W/"sha256-' + "0" * 64 + '"')):
            with self.subTest(path, tag=tag), self.assertRaises(raw_api.ApiError) as refused:
                self.client.write_file(self.name, path, b"x", if_match=tag)
            self.assertEqual(refused.exception.code, "invalid_argument")


class Cli(harness.TestCase):
    def cli(self, *words, code=0, **options):
        result = self.daemon.cli(*words, check=False, **options)
        self.assertEqual(result.returncode, code, result.stderr)
        return (result.stdout + result.stderr).decode()

    def test_acquire_use_and_release_a_lease_by_hand(self):
        self.client.create(repo_url=self.url, name="hand")
        self.assertIn("none (never leased)", self.cli("lease", "show", "hand"))
        acquired = self.cli("lease", "acquire", "hand", "--holder", "agent-7", "--ttl", "600")
        self.assertIn("1   agent-7, lapses after 600 s", acquired)
        workspace = self.client.workspace("hand")["id"]
        self.assertIn(f"export MOORAGE_LEASE={workspace}.1;", acquired)
        kept = next((self.daemon.directory / "state/moorage/leases").glob(f"*/{workspace}.1"))
        token = kept.read_text().strip()
        self.assertEqual((kept.stat().st_mode & 0o777, kept.parent.stat().st_mode & 0o777), (0o600, 0o700))
        self.assertNotIn(token.rsplit(".")[-1], acquired)
        self.assertIn("everybody can read a command line", self.cli("stop", "hand", "--lease", token, code=1))
        self.assertIn("held by agent-7 (root, lease 1)", self.cli("exec", "hand", "--", "true", code=125))
        self.cli("exec", "hand", "--lease", "1", "--", "sh", "-c", "cat > typed", input=b"typed")
        self.assertEqual(self.cli("exec", "hand", "--", "cat", "typed", env={"MOORAGE_LEASE": "1"}), "typed")
        for named in (f"{workspace}.1", token):
            self.assertEqual(self.cli("exec", "hand", "--", "cat", "typed", env={"MOORAGE_LEASE": named}), "typed")
        self.assertIn("agent-7", self.cli("ls"))
        self.assertRegex(self.cli("show", "hand"), r"holder +agent-7, lease 1, seen .* ago")
        self.assertEqual(self.client.workspace("hand")["sandbox"]["state"], "running")
        self.cli("export", "hand", self.daemon.directory / "hand.tar.zst")  # which only reads
        self.assertIn("lease 2 of hand is over", self.cli("stop", "hand", "--lease", "2", code=1))
        keeper = self.daemon.cli_popen("lease", "keep", "hand", "--lease", "1", stderr=subprocess.PIPE)
        self.cli("lease", "acquire", "hand", "--holder", "agent-8", "--takeover", "--ttl", "5")
        self.assertFalse(kept.exists(), "an earlier lease of the workspace is forgotten")
        self.cli("lease", "release", "hand", "--lease", "2")
        self.assertIn("lease 2 of agent-8 is over: released", self.cli("lease", "show", "hand"))
        keeper.kill()
        keeper.communicate()
        self.client.delete("hand", purge=True)

    def test_a_lease_is_held_for_a_local_command(self):
        self.client.create(repo_url=self.url, name="local")
        script = f'"{harness.BIN}/moorage" exec local -- sh -c "echo ${{MOORAGE_LEASE%.*}} > held"; exit 7'
        self.cli("lease", "run", "local", "--holder", "me", "--", "sh", "-c", script, code=7)
        self.assertEqual(self.client.read_file("local", "held").decode(), self.client.workspace("local")["id"] + ".1\n")
        self.assertEqual(self.client.show_lease("local")["ended"], "released")
        self.cli("lease", "run", "local", "--", "/no/such/program", code=125)
        self.assertFalse(self.client.show_lease("local")["held"])
        running = self.daemon.cli_popen("lease", "run", "local", "--ttl", "6", "--", "sleep", "60", stderr=subprocess.PIPE)
        harness.wait_until(lambda: self.client.show_lease("local")["held"], what="the lease")
        other = harness.Client(str(self.daemon.socket))
        other.lease_token = self.client.acquire_lease("local", "other", takeover=True)["token"]
        _, err = running.communicate(timeout=20)
        self.assertEqual(running.returncode, 125)
        self.assertIn(b"other", err)
        other.delete("local", purge=True)

    def test_sharing_with_a_group(self):
        self.client.create(repo_url=self.url, name="shared", team="games")
        self.assertIn("members of games may use it", self.cli("show", "shared"))
        self.assertIn("private", self.cli("share", "shared", "--private"))
        self.assertEqual(self.client.workspace("shared")["access"], "private")
        self.assertIn("with games", self.cli("share", "shared", "--group", "games"))
        self.assertIn("there is no group", self.cli("share", "shared", "--group", "no-such-group", code=1))
        self.client.delete("shared", purge=True)


class Race(harness.TestCase):
    """A take-over between the first check and the intent, staged with a pause in the daemon."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.gate = cls.daemon.directory / "gate"
        cls.daemon.stop()
        cls.daemon.environment["MOORAGE_PAUSE_AT"] = f"exec.before_intent={cls.gate}"
        cls.daemon.start()

    def test_an_exec_overtaken_by_a_new_lease_never_runs(self):
        self.client.create(repo_url=self.url, name="race")
        old = harness.Client(str(self.daemon.socket))
        old.lease_token = self.client.acquire_lease("race", "agent-a")["token"]
        old.start("race")
        self.gate.write_text("")
        reached = self.gate.with_name("gate.reached")
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            late = pool.submit(old.start_exec, "race", ["sh", "-c", "echo late > late"])
            harness.wait_until(reached.exists, what="the exec at its intent")
            new = self.client.acquire_lease("race", "agent-b", takeover=True)
            self.gate.unlink()
            with self.assertRaises(raw_api.ApiError) as refused:
                late.result(60)
        self.assertIn("agent-b", refused.exception.message)
        self.assertEqual(self.client.execs(workspace="race"), [])
        old.lease_token = new["token"]
        self.assertEqual(old.exec("race", "ls late").exit_code, 2)
        old.delete("race", purge=True)


class Team(harness.TestCase):
    """A team-mate who loses access: an account of this host that is in no group but its own."""
    MATE = "www-data"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.daemon.directory.chmod(0o711)
        cls.daemon.socket.chmod(0o666)

    def mate(self, *words, check=True):
        account = pwd.getpwnam(self.MATE)
        environment = {"PATH": os.environ["PATH"], "MOORAGE_SOCKET": str(self.daemon.socket)}
        return harness.run(harness.BIN / "moorage", *words, check=check, env=environment, user=account.pw_uid, group=account.pw_gid,
                           extra_groups=[])

    def test_a_share_that_ends_ends_the_lease_and_names_the_commands(self):
        self.client.create(repo_url=self.url, name="mine")
        for taken_back in (("--private",), ("--group", "daemon")):
            self.daemon.cli("share", "mine", "--group", self.MATE)
            self.assertIn(f"shared with group {self.MATE}", [e["text"] for e in self.client.events() if e["kind"] == "workspace.shared"])
            kept = self.mate("exec", "-d", "mine", "--", "sleep", "600").stdout.decode().strip()
            own = self.client.start_exec("mine", ["sleep", "600"])["id"]
            self.assertIn("may rename, label, delete", self.mate("rename", "mine", "x", check=False).stderr.decode())
            self.mate("--json", "lease", "acquire", "mine", "--keep-execs", "--holder", "bob")
            self.assertIn("cat, diff and logs need no lease", self.daemon.cli("exec", "mine", "--", "true", check=False).stderr.decode())
            self.daemon.cli("share", "mine", "--group", self.MATE)
            self.assertEqual(self.client.show_lease("mine")["held"], True, "he still has access")
            answer = self.daemon.cli("share", "mine", *taken_back).stderr.decode()
            self.assertEqual(answer, f"moorage: still running: {kept} of {self.MATE}; to end it: moorage kill {kept}\n")
            self.assertEqual(self.client.show_lease("mine")["ended"], "released")
            self.client.write_file("mine", "file", b"x")
            self.assertIn("no workspace", self.mate("exec", "mine", "--", "true", check=False).stderr.decode())
            self.assertEqual(self.client.get_exec(kept)["state"], "running")
            for exec_id in (kept, own):
                self.client.cancel(exec_id)
                self.client.wait(exec_id)
        mine = self.client.acquire_lease("mine", "me")
        self.daemon.cli("share", "mine", "--group", self.MATE)
        self.assertEqual(self.daemon.cli("share", "mine", "--private").stderr, b"")
        self.assertEqual(self.client.show_lease("mine")["generation"], mine["generation"])
        self.assertEqual(self.client.show_lease("mine")["held"], True, "the owner's lease stays")
        owner = harness.Client(str(self.daemon.socket))
        owner.lease_token = mine["token"]
        owner.release_lease("mine")


if __name__ == "__main__":
    unittest.main()
