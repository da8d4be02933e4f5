"""A verb at work is known by its process, however long it takes."""

import concurrent.futures
import contextlib
import sqlite3
import unittest

import harness


class SlowWork(harness.TestCase):
    """A verb that is held at a point for as long as the test wishes, with a row that looks an hour old."""

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

    def test_a_fork_that_takes_long_is_left_to_the_verb_that_makes_it(self):
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

    def test_a_best_of_whose_forks_take_long_gets_them(self):
        self.client.create(repo_url=self.url, name="tried")
        with self.held_at("snapshot.after_intent", lambda: self.client.best_of("tried", test=["true"], each=["true"], count=2)) as starting:
            self.age("workspaces")
            self.daemon.reconcile()
        begun = starting.result()
        ended = self.client.get_best_of(begun["id"], wait_s=60)
        self.assertEqual([a["state"] for a in ended["attempts"]], ["passed"] * 2, ended)

    def test_a_create_and_a_clone_that_take_long_are_left_alone(self):
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


if __name__ == "__main__":
    unittest.main()
