"""A slow verb is recognized by its process; a repeated request gets the first answer."""

import concurrent.futures
import contextlib
import io
import os
import signal
import sqlite3
import unittest

import harness
import raw_api


class SlowWork(harness.TestCase):
    """Holds a verb at a point, with a row that looks an hour old."""

    settings = {"daemon.reconcile_interval_s": 1}

    @contextlib.contextmanager
    def held_at(self, point, work):
        gate = self.daemon.directory / "gate"
        self.daemon.stop()
        self.daemon.environment["MOORAGE_PAUSE_AT"] = f"{point}={gate}"
        self.daemon.start()
        gate.touch()
        try:
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                future = pool.submit(work)
                harness.wait_until(gate.with_name("gate.reached").exists, what=point)
                yield future
                gate.unlink()
                future.result(60)
        finally:
            gate.unlink(missing_ok=True)
            gate.with_name("gate.reached").unlink(missing_ok=True)
            del self.daemon.environment["MOORAGE_PAUSE_AT"]

    def age(self, table):
        with contextlib.closing(sqlite3.connect(self.daemon.store / "state.db", timeout=10)) as database, database:
            database.execute(f"UPDATE {table} SET created_wall_ms = created_wall_ms - 3600000")

    def test_a_slow_fork_is_left_to_its_verb(self):
        self.client.create(repo_url=self.url, name="slow")
        self.client.exec("slow", "echo work > work", sync=True)
        for point in ("snapshot.after_intent", "snapshot.after_layers"):
            with self.subTest(point), self.held_at(point, lambda: self.client.fork("slow", count=2)) as forking:
                self.age("workspaces")
                self.daemon.reconcile()
                forks = [w for w in self.client.workspaces() if w["name"].startswith("slow-")]
                self.assertEqual([w["state"] for w in forks], ["creating"] * 2)
            for fork in forking.result():
                self.assertEqual(self.client.exec(fork["name"], "cat work").stdout, b"work\n")
                self.client.delete(fork["id"], purge=True)

    def test_a_best_of_waits_for_slow_forks(self):
        self.client.create(repo_url=self.url, name="tried")
        with self.held_at("snapshot.after_intent", lambda: self.client.best_of("tried", test=["true"], each=["true"], count=2)) as starting:
            self.age("workspaces")
            self.daemon.reconcile()
        begun = starting.result()
        ended = self.client.get_best_of(begun["id"], wait_s=60)
        self.assertEqual([a["state"] for a in ended["attempts"]], ["passed"] * 2, ended)

    def test_a_repeat_is_answered_only_after_the_command_started_or_failed(self):
        def start(key):
            try:
                return self.client.start_exec("starts", ["true"], key=key)["id"]
            except raw_api.ApiError as error:
                return f"{error.code}: {error.message}"

        self.client.create(repo_url=self.url, name="starts")
        self.client.start("starts")
        with self.held_at("exec.after_intent", lambda: start("begins")) as first:
            self.assertRegex(start("begins"), "^conflict: .* in progress: ex_[0-9]+ is being started")
        self.assertRegex(first.result(), "^ex_")
        self.assertEqual(start("begins"), first.result())
        with self.held_at("exec.after_journal", lambda: start("fails")) as first:
            os.kill(self.daemon.sandbox_pids("starts")["init"], signal.SIGKILL)
            self.assertRegex(start("fails"), "^conflict: .* in progress")
        self.assertRegex(first.result(), "^unavailable: ex_[0-9]+ (was not|could not be) started: ")
        self.assertEqual(start("fails"), first.result())

    def test_a_slow_create_and_a_slow_clone_are_left_alone(self):
        for name, point in (("one", "create.after_intent"), ("two", "create.after_layer")):
            with self.subTest(point), self.held_at(point, lambda name=name: self.client.create(repo_url=self.url, name=name)) as making:
                self.age("workspaces")
                self.daemon.reconcile()
                self.assertEqual([w["state"] for w in self.client.workspaces() if w["name"] == name], ["creating"])
            self.assertEqual(making.result()["state"], "ready")
        harness.make_repository(self.upstream / "acme" / "far")
        url = self.git_server.url("acme/far")
        with self.held_at("repository.before_mirror", lambda: self.client.add_repo(url)) as cloning:
            self.age("repositories")
            self.daemon.reconcile()
            self.assertEqual([r["state"] for r in self.client.repos() if r["name"] == "acme/far"], ["cloning"])
        self.assertEqual(cloning.result()["state"], "ready")

    def test_a_repeat_during_an_archive_or_unarchive_is_refused(self):
        self.client.create(repo_url=self.url, name="goes")
        for verb, point in ((self.client.archive, "archive.after_intent"), (self.client.unarchive, "unarchive.after_intent")):
            with self.subTest(point), self.held_at(point, lambda verb=verb, key=point: verb("goes", key=key)) as first:
                with self.assertRaises(raw_api.ApiError) as refused:
                    verb("goes", key=point)
                self.assertEqual((refused.exception.status, refused.exception.code), (409, "conflict"))
                self.assertIn("in progress", refused.exception.message)
                self.assertTrue(refused.exception.hint)
            self.assertEqual(verb("goes", key=point), first.result())

    def test_requests_for_an_object_in_progress_say_so(self):
        self.client.create(repo_url=self.url, name="busy")
        with self.held_at("snapshot.after_intent", lambda: self.client.fork("busy", names=["busy-fork"], key="busy-1")):
            with self.assertRaises(raw_api.ApiError) as refused:
                self.client.fork("busy", names=["busy-fork"], key="busy-1")
            self.assertEqual((refused.exception.status, refused.exception.code), (409, "conflict"))
            self.assertIn("in progress", refused.exception.message)
            self.assertTrue(refused.exception.hint)


class Answers(harness.TestCase):
    """Answers to repeats without crashes. With crashes: tests/crash/test_retries.py."""

    def refusal(self, call, key):
        with self.assertRaises(raw_api.ApiError) as refused:
            call(key)
        return refused.exception.status, refused.exception.code, refused.exception.message

    def test_a_repeat_of_a_failure_never_succeeds(self):
        self.client.create(repo_url=self.url, name="fails")
        calls = {"create": lambda key: self.client.create(repo_url=self.url, name="taken", key=key),
                 "fork": lambda key: self.client.fork("fails", names=["taken"], key=key),
                 "restore": lambda key: self.client.restore("fails", "state", key=key),
                 "undo": lambda key: self.client.undo("fails", key=key),
                 "remove": lambda key: self.client.remove_file("fails", "absent", key=key),
                 "put": lambda key: self.client.write_file("fails", "new", b"x", if_match="*", key=key),
                 "cancel": lambda key: self.client.cancel(ended["id"], key=key),
                 "release": lambda key: self.client.release_lease("fails", key=key),
                 "exec": lambda key: self.client.start_exec("absent", ["true"], key=key)}
        self.client.exec("fails", "true")
        ended = {"id": self.client.execs(workspace="fails")[0]["id"]}
        self.client.create(repo_url=self.url, name="taken")
        first = {name: self.refusal(call, f"fails-{name}") for name, call in calls.items()}
        # Now each of them could succeed.
        self.client.delete("taken", purge=True)
        self.client.snapshot("fails", name="state")
        self.client.write_file("fails", "absent", b"")
        self.client.write_file("fails", "new", b"")
        self.client.create(repo_url=self.url, name="absent")
        self.assertEqual({name: self.refusal(call, f"fails-{name}") for name, call in calls.items()}, first)
        self.daemon.restart()
        self.assertEqual({name: self.refusal(call, f"fails-{name}") for name, call in calls.items()}, first)
        self.assertEqual(self.client.create(repo_url=self.url, name="taken", key="fails-new")["state"], "ready")

    def test_a_repeat_gets_the_first_answer_after_the_snapshot_was_dropped(self):
        self.client.create(repo_url=self.url, name="dropped")
        taken = self.client.snapshot("dropped", name="s", key="dropped-1")
        self.client.drop_snapshot("dropped", "s", key="dropped-2")
        for _ in range(2):
            self.assertEqual(self.client.snapshot("dropped", name="s", key="dropped-1"), taken)
            self.client.drop_snapshot("dropped", "s", key="dropped-2")
            self.assertEqual(self.client.snapshots("dropped"), [])
            self.daemon.stop()
            self.daemon.start()

    def test_repeats_of_delete_release_and_import_get_the_first_answer(self):
        self.client.create(repo_url=self.url, name="gone")
        lease = self.client.acquire_lease("gone", "holder")
        holder = harness.Client(str(self.daemon.socket))
        holder.lease_token = lease["token"]
        holder.release_lease("gone", key="gone-release")
        holder.release_lease("gone", key="gone-release")
        archive = io.BytesIO()
        self.client.export("gone", archive)
        first = self.client.delete("gone", key="gone-1")
        self.assertEqual(self.client.delete("gone", key="gone-1"), first)
        came = self.client.import_(archive.getvalue(), name="gone", key="gone-2")
        self.assertEqual(self.client.import_(archive.getvalue(), name="gone", key="gone-2"), came)
        self.client.delete("gone", purge=True, key="gone-3")
        self.client.delete("gone", purge=True, key="gone-3")

    def test_repeats_of_archive_and_unarchive_get_the_first_answer_without_a_second_run(self):
        self.client.create(repo_url=self.url, name="cold")
        self.client.write_file("cold", "kept", b"kept")
        state = lambda: self.client.workspace("cold")["state"]
        with self.subTest("nobody died"):
            first = self.client.archive("cold", key="cold-1")
            self.client.unarchive("cold", key="cold-2")
            self.assertEqual(self.client.archive("cold", key="cold-1"), first)
            self.assertEqual(state(), "ready")
        for verb, undo, after in ((self.client.archive, self.client.unarchive, "ready"), (self.client.unarchive, self.client.archive, "archived")):
            for point in (f"{verb.__name__}.after_outcome", "answer.before_kept", "answer.after_kept"):
                with self.subTest(verb=verb.__name__, point=point):
                    key = f"cold-{verb.__name__}-{point}"
                    if state() == after:
                        undo("cold") if after != "ready" else self.client.unarchive("cold")
                    if verb.__name__ == "unarchive" and state() != "archived":
                        self.client.archive("cold")
                    self.daemon.stop()
                    self.daemon.start(crash_at=point)
                    with self.assertRaises((raw_api.ApiError, OSError)):
                        verb("cold", key=key)
                    self.assertEqual(self.daemon.process.wait(30), -signal.SIGKILL)
                    self.daemon.start()
                    undo("cold")
                    self.assertEqual(state(), after)
                    answer = verb("cold", key=key)
                    self.assertEqual((answer["name"], state()), ("cold", after))
                    self.assertEqual(verb("cold", key=key), answer, "the repeat of the repeat")
        self.client.unarchive("cold")
        self.assertEqual(self.client.read_file("cold", "kept"), b"kept")

    def forget_answers(self):
        """The state after a daemon that died before storing its answer."""
        self.daemon.kill()
        with contextlib.closing(sqlite3.connect(self.daemon.store / "state.db")) as database, database:
            database.execute("DELETE FROM idempotency_keys WHERE subject = ''")
        self.daemon.start()

    def test_a_repeat_gets_the_first_answer_after_the_object_was_deleted(self):
        calls = {"create": lambda: [self.client.create(repo_url=self.url, name="brief", key="brief-1")],
                 "fork": lambda: self.client.fork("origin", names=["brief"], key="brief-2")}
        self.client.create(repo_url=self.url, name="origin")
        for name, call in calls.items():
            with self.subTest(name):
                first = call()[0]
                self.client.delete("brief", force=True)
                self.forget_answers()
                again = call()[0]
                self.assertEqual([again[k] for k in ("id", "name", "state")], [first["id"], "brief", "ready"])
                self.assertNotIn("deleted_at", again)
                self.assertEqual(again.get("reason"), first.get("reason"))
                self.assertEqual(call()[0]["state"], "ready")

    def test_the_same_key_with_other_conditions_is_a_different_request(self):
        self.client.create(repo_url=self.url, name="cond")
        self.client.write_file("cond", "f", b"one", key="cond-1", if_none_match="*")
        self.client.write_file("cond", "f", b"one", key="cond-1", if_none_match="*")
        self.assertEqual(self.refusal(lambda key: self.client.write_file("cond", "f", b"one", key=key), "cond-1")[1], "already_exists")


if __name__ == "__main__":
    unittest.main()
