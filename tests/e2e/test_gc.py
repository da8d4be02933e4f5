"""Collection: removed and kept objects with reasons, and active work is never touched."""

import os
import sqlite3
import threading
import time
import unittest

import harness
import raw_api

CACHE_FILES = "mkdir -p node_modules/a ~/.cache/x; head -c 2M /dev/zero >node_modules/a/big; echo c >~/.cache/x/c; echo work >work"


class Collection(harness.TestCase):
    settings = {"gc.keep_unused_s": 0}

    def rows(self, rung, answer=None):
        answer = answer or self.client.gc_plan()
        return [row for row in answer["rows"] if row["rung"] == rung]

    def events(self, kind):
        return [event for event in self.client.events() if event["kind"] == kind]

    def trees(self):
        return sorted(path.name for path in self.daemon.store.glob("repos/*/trees/*"))

    def make(self, name, **fields):
        self.addCleanup(lambda: self.client.delete(name, purge=True))
        return self.client.create(repo_url=self.url, name=name, **fields)

    def test_only_declared_caches_of_idle_workspaces_are_removed(self):
        self.make("cached", caches=["node_modules", "/home/user/.cache", "src", "none"])
        self.client.exec("cached", CACHE_FILES + "; echo more >src/more")
        kept = [row["why"] for row in self.rows("cache")]
        self.assertEqual(set(kept), {"its sandbox is running"})
        self.client.stop("cached")
        self.assertEqual([row["goes"] for row in self.rows("cache")], [True] * 4)
        self.client.update("cached", pinned=True)
        self.assertEqual({row["why"] for row in self.rows("cache")}, {"pinned"})
        self.client.gc_run()
        self.assertIn("node_modules", self.client.exec("cached", "ls").stdout.decode())
        self.client.stop("cached")
        self.client.update("cached", pinned=False)
        with self.client.lease("cached", "bot"):
            self.assertEqual({row["why"] for row in self.rows("cache")}, {"leased"})
            self.assertEqual(self.rows("cache", self.client.gc_run()), [])
        done = {row["path"]: row for row in self.rows("cache", self.client.gc_run())}
        self.assertTrue(done["node_modules"]["goes"] and done["/home/user/.cache"]["goes"])
        self.assertGreaterEqual(done["node_modules"]["bytes"], 2 << 20)
        self.assertEqual((done["src"]["goes"], done["src"]["why"]), (False, "the base commit has files there, too"))
        self.assertFalse(done["none"]["goes"])
        left = self.client.exec("cached", "ls -A . ~; cat work src/more; git status --porcelain").stdout.decode()
        for gone in ("node_modules", ".cache"):
            self.assertNotIn(gone, left.split())
        self.assertIn("work\nmore\n", left)
        texts = [event["text"] for event in self.events("gc.cache")]
        self.assertEqual(len(texts), 2)
        self.assertIn("requested by root", texts[0])

    def test_outside_changes_are_still_reported(self):
        self.make("touched", caches=["node_modules"])
        self.client.exec("touched", CACHE_FILES + "; echo mine >work")
        self.client.stop("touched")
        newest = max((self.daemon.store / "layers").iterdir(), key=lambda path: int(path.name[3:]))
        (newest / "tree/upper/work").write_text("somebody's\n")
        self.assertTrue(self.rows("cache", self.client.gc_run())[0]["goes"])
        integrity = self.client.workspace("touched")["integrity"]
        self.assertEqual(integrity["state"], "changed-outside")
        self.assertIn("/workspace/work", integrity["reason"])

    def test_an_unused_base_tree_is_removed_and_can_be_restored(self):
        first = self.make("stands")["base"]["commit"]
        second = harness.commit(self.upstream / "acme" / "shop", "news.txt", "news")
        self.client.create(repo_url=self.url, name="left")
        self.client.delete("left")
        self.assertEqual({row["why"] for row in self.rows("base_tree") if row["commit"] in (first, second)}, {"workspaces use it"})  # it can come back
        self.client.delete("left", purge=True)
        goes = {row["commit"]: row["goes"] for row in self.rows("base_tree") if row["commit"] in (first, second)}
        self.assertEqual(goes, {first: False, second: True})
        self.client.gc_run()
        self.assertEqual(self.trees(), [first])
        self.assertIn("no layer uses it", self.events("gc.base_tree")[-1]["text"])
        self.assertEqual(self.client.exec("stands", "cat README.md").stdout, b"hello\n")
        self.make("again")
        self.assertEqual(self.client.exec("again", "cat news.txt; git status --porcelain").stdout, b"news")

    def test_creates_and_collection_at_the_same_time(self):
        stop, failures, runs = threading.Event(), [], [0]

        def collect():
            while not stop.is_set():
                try:
                    self.client.gc_run()
                    runs[0] += 1
                except raw_api.ApiError as error:
                    failures.append(repr(error))

        def create(number):
            try:
                for turn in range(6):
                    name = f"race-{number}-{turn}"
                    # Each is sometimes the only user of its base tree.
                    self.client.create(repo_url=self.url, name=name)
                    if self.client.read_file(name, "README.md") != b"hello\n":
                        failures.append(name)
                    self.client.delete(name, purge=True)
            except raw_api.ApiError as error:
                # The only allowed error: a mirror removed while unused.
                if "was removed meanwhile" not in error.message or "base tree" in error.message:
                    failures.append(repr(error))

        self.make("holds-the-mirror")
        collector = threading.Thread(target=collect)
        makers = [threading.Thread(target=create, args=(number,)) for number in range(3)]
        for thread in [collector, *makers]:
            thread.start()
        for thread in makers:
            thread.join()
        stop.set()
        collector.join()
        self.assertEqual(failures, [])
        self.assertGreater(runs[0], 3)

    def test_a_mirror_is_removed_last_and_can_be_cloned_again(self):
        harness.make_repository(self.upstream / "acme" / "other")
        url = self.git_server.url("acme/other")
        repo = self.client.add_repo(url)["id"]
        self.client.create(repo_url=url, name="other")
        mirror = next(row for row in self.rows("mirror") if row["repo"] == repo)
        self.assertIn("needed by 1 workspace,", mirror["why"])
        self.client.delete("other")
        self.client.gc_run()
        self.assertTrue((self.daemon.store / "repos" / repo / "git").exists())
        self.client.delete("other", purge=True)
        self.client.gc_run()
        self.assertFalse((self.daemon.store / "repos" / repo / "git").exists())
        self.client.create(repo_url=url, name="other")
        self.assertEqual(self.client.read_file("other", "README.md"), b"hello\n")
        self.client.delete("other", purge=True)

    def test_until_free_stops_early_and_says_when_it_is_not_enough(self):
        self.make("early", caches=["node_modules"])
        self.client.exec("early", CACHE_FILES)
        self.client.stop("early")
        status = os.statvfs(self.daemon.store)
        answer = self.client.gc_run(until_free_bytes=1)
        self.assertEqual((answer["rows"], answer["enough"]), ([], True))
        answer = self.client.gc_run(until_free_bytes=status.f_blocks * status.f_frsize * 2)
        self.assertFalse(answer["enough"])
        told = self.daemon.cli("gc", "--run", "--until-free", "900T", check=False)
        self.assertEqual(told.returncode, 1)
        self.assertIn(b"less than requested", told.stderr)

    def test_the_cli_explains_and_pins(self):
        self.make("shown", caches=["node_modules"])
        self.client.stop("shown")
        self.daemon.cli("pin", "shown")
        text = self.daemon.cli("gc", "--explain").stdout.decode()
        self.assertRegex(text, r"cache +shown:node_modules +- +kept +pinned")
        self.assertRegex(text, r"mirror +\S+ +\S+ +kept +needed by")
        self.daemon.cli("unpin", "shown")
        self.assertRegex(self.daemon.cli("gc").stdout.decode(), r"cache +shown:node_modules +- +reclaimable")
        self.assertIn("pinned false -> true", " ".join(e["text"] for e in self.events("workspace.policy")))

    def test_only_root_runs_it(self):
        told = harness.run("setpriv", "--reuid=65534", "--clear-groups", "sh", "-c",
                           f"curl -s --unix-socket {self.daemon.socket} -XPOST http://x/v1/gc", check=False)
        if told.returncode == 0 and told.stdout:
            self.assertIn(b"permission_denied", told.stdout)
        else:
            self.assertNotEqual(told.returncode, 0)  # the socket itself refused access

    def test_a_merged_tip_that_upstream_deleted_stays_reachable(self):
        shop = self.upstream / "acme" / "shop"
        harness.git(shop, "checkout", "-q", "-b", "feature")
        tip = harness.commit(shop, "feature.txt", "feature")
        harness.git(shop, "checkout", "-q", "main")
        self.make("merges")
        self.assertEqual(self.client.exec("merges", f"git merge -q --no-ff -m m origin/feature && git rev-parse HEAD^2")
                         .stdout.decode().strip(), tip)
        harness.git(shop, "branch", "-D", "feature")
        harness.git(shop, "reflog", "expire", "--expire=now", "--all")
        harness.git(shop, "gc", "-q", "--prune=now")
        repo = self.client.workspace("merges")["repo"]["id"]
        self.client.fetch(repo)
        self.client.stop("merges")
        self.client.gc_run()
        self.client.fetch(repo)
        mirror = self.daemon.store / "repos" / repo / "git"
        self.assertIn(tip, harness.git(mirror, "for-each-ref", "--format=%(objectname)", "refs/keep/"))
        ended = self.client.exec("merges", "git fsck --connectivity-only && git log --oneline | wc -l && cat feature.txt")
        self.assertEqual(ended.exit_code, 0, ended.stderr)
        self.assertTrue(ended.stdout.endswith(b"feature"))


class Budgets(harness.TestCase):
    settings = {"gc.keep_unused_s": 0, "user.budget_bytes": "20MiB"}

    def test_over_budget_collection_runs_before_a_refusal(self):
        self.client.create(repo_url=self.url, name="big", caches=["cache"])
        self.client.exec("big", "mkdir cache; head -c 30M /dev/urandom >cache/x")
        self.client.stop("big")
        harness.wait_until(lambda: self.client.workspace("big").get("disk_bytes", 0) > 20 << 20, what="the measure")
        self.client.create(repo_url=self.url, name="second")  # the cache was removed
        self.assertEqual(self.client.exec("big", "ls").stdout, b"README.md\nsrc\n")
        self.client.exec("big", "head -c 30M /dev/urandom >work")
        self.client.stop("big")
        harness.wait_until(lambda: self.client.workspace("big").get("disk_bytes", 0) > 20 << 20, what="the measure")
        with self.assertRaises(raw_api.ApiError) as refused:
            self.client.create(repo_url=self.url, name="third")
        self.assertEqual(refused.exception.code, "resource_exhausted")
        self.assertIn("root uses", refused.exception.message)
        self.assertIn("user.budget_bytes", refused.exception.hint)
        self.assertEqual(self.client.exec("big", "wc -c <work").stdout.strip(), str(30 << 20).encode())
        self.client.delete("big", purge=True)
        self.client.create(repo_url=self.url, name="third")


class Many(harness.TestCase):
    def test_collection_plans_for_ten_thousand_workspaces_in_seconds(self):
        self.client.create(repo_url=self.url, name="first")
        self.client.stop("first")
        self.daemon.stop()
        with sqlite3.connect(self.daemon.store / "state.db") as database:
            columns = [row[1] for row in database.execute("PRAGMA table_info(workspaces)")]
            row = dict(zip(columns, database.execute("SELECT * FROM workspaces").fetchone()))
            base = database.execute("SELECT repository, base_commit, created_wall_ms FROM layers").fetchone()
            first_id, first_layer = row["id"], row["layer"]
            for number in range(1, 10_000):
                database.execute("INSERT INTO layers (id, repository, base_commit, created_wall_ms) VALUES (?, ?, ?, ?)",
                                 (first_layer + number, *base))
                row |= {"id": first_id + number, "layer": first_layer + number, "name": f"many-{number}",
                        "idempotency_key": None, "disk_bytes": 1 << 20, "integrity": "intact"}
                database.execute(f"INSERT INTO workspaces ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
                                 [row[name] for name in columns])
        # Nothing is mounted here: they only need layers, and a start need not create 10,000 again.
        layers = [self.daemon.store / "layers" / f"ly_{first_layer + number}" for number in range(1, 10_000)]
        for layer in layers:
            layer.symlink_to(f"ly_{first_layer}")
        self.daemon.start()
        began = time.monotonic()
        plan = self.client.gc_plan()
        took = time.monotonic() - began
        self.assertGreaterEqual(plan["goes"] + plan["kept"], 10_000)
        self.assertFalse(plan["complete"])
        self.assertLess(took, 5 * harness.PATIENCE)
        print(f"gc decides about 10,000 workspaces in {took:.2f} s", flush=True)
        self.daemon.stop()
        for layer in layers:
            layer.unlink()
        with sqlite3.connect(self.daemon.store / "state.db") as database:
            database.execute("DELETE FROM events")
            database.execute("DELETE FROM workspaces WHERE id > ?", (first_id,))
            database.execute("DELETE FROM layers WHERE id > ?", (first_layer,))
        self.daemon.start()


if __name__ == "__main__":
    unittest.main()
