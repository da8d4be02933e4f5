"""Every verb in short runs: the suites kill it in the middle, and check the invariants afterwards."""

import io
import shutil

from rig import harness, raw_api

DIED = (raw_api.ApiError, OSError, AssertionError)

# For every mutating call of the API: its crash points between two steps, or the reason why it has none.
ONE_WRITE = "one transaction and nothing else"
ONE_CALL = "one change of the tree, synced before the answer; a repeat completes a partial one"
NO_STATE = "no change of the store: only a message to the warden"
OPERATIONS = {
    "post /v1/repos": ("repository", "repo.clone"),
    "post /v1/repos/import": ("repo.import",),
    "delete /v1/repos/{repo}": ONE_WRITE + "; any later start removes the directory of an evicted one",
    "post /v1/repos/{repo}/fetch": ("repository", "repo.fetch", "repo.rebuild"),
    "post /v1/workspaces": ("create", "base_tree", "tree", "rebase"),
    "delete /v1/workspaces/{workspace}": ("delete", "purge"),
    "post /v1/workspaces/{workspace}/undelete": ONE_WRITE,
    "post /v1/workspaces/{workspace}/start": ("start",),
    "post /v1/workspaces/{workspace}/sync": ("sync",),  # its fetch: POST /v1/repos/{repo}/fetch
    "post /v1/workspaces/{workspace}/stop": ("stop", "pre_stop"),
    "patch /v1/workspaces/{workspace}": ONE_WRITE,
    "post /v1/workspaces/{workspace}/move": ("move",),
    "post /v1/workspaces/{workspace}/move/check": "changes nothing",
    "post /v1/workspaces/{workspace}/share": ONE_WRITE,
    "post /v1/workspaces/{workspace}/network": ONE_WRITE + "; the next start brings it to a running sandbox",
    "post /v1/approvals/{approval}/approve": ONE_WRITE,
    "post /v1/approvals/{approval}/refuse": ONE_WRITE,
    "post /v1/credentials": ("credential_add",),
    "delete /v1/credentials/{credential}": ("credential_rm",),
    "post /v1/credentials/{credential}/test": "changes nothing",
    "post /v1/workspaces/{workspace}/lease": ("lease.acquire", "lease.takeover"),
    "put /v1/workspaces/{workspace}/lease": "no write: the daemon remembers heartbeats in memory",
    "delete /v1/workspaces/{workspace}/lease": ONE_WRITE,
    "post /v1/workspaces/{workspace}/archive": ("archive",),
    "post /v1/workspaces/{workspace}/unarchive": ("unarchive",),
    "post /v1/workspaces/{workspace}/snapshots": ("snapshot", "restack", "flatten"),
    "delete /v1/workspaces/{workspace}/snapshots/{snapshot}": ("collect",),
    "post /v1/workspaces/{workspace}/restore": ("snapshot", "restack"),
    "post /v1/workspaces/{workspace}/undo": ("snapshot", "restack"),
    "post /v1/workspaces/{workspace}/fork": ("snapshot", "restack"),
    "post /v1/workspaces/{workspace}/promote": ("promote", "snapshot", "restack"),
    "post /v1/workspaces/{workspace}/best-of": ("best_of", "snapshot", "restack"),
    "post /v1/best-of/{bestof}/cancel": ONE_WRITE + "; its driver ends the attempts",
    "post /v1/workspaces/import": ("import", "repo.pack"),
    "put /v1/workspaces/{workspace}/file": ("file",),
    "delete /v1/workspaces/{workspace}/file": ONE_CALL,
    "post /v1/workspaces/{workspace}/files/move": ONE_CALL,
    "post /v1/workspaces/{workspace}/files/mkdir": ONE_CALL,
    "post /v1/workspaces/{workspace}/files/symlink": ONE_CALL,
    "post /v1/workspaces/{workspace}/execs": ("exec", "start"),
    "put /v1/execs/{exec}/stdin": NO_STATE,
    "post /v1/execs/{exec}/signal": NO_STATE,
    "post /v1/execs/{exec}/cancel": ONE_WRITE + ", before the signal; adopted at the next start",
    "post /v1/execs/{exec}/resize": NO_STATE,
    "post /v1/gc": ("gc", "evict", "drop_base_tree"),
    "post /v1/config/reload": NO_STATE,
    "post /v1/doctor": ("recovery",),  # its repairs are the steps of every start
}


class Lives:
    """Runs verbs on a suite's daemon until something dies, and recovers."""

    def __init__(self, suite):
        self.suite, self.client, self.daemon = suite, suite.client, suite.daemon

    def run(self, life, name):
        """The error that ended it, or None."""
        self.acknowledged, self.deleting, self.upstream = {}, False, None
        try:
            getattr(self, life)(name)
            return None
        except DIED as error:
            return error

    def counted(self, name):
        return self.client.start_exec(name, ["sh", "-c", "echo ran >> counter; echo kept > kept; sync counter kept"], key=f"{name}-count", sync=True)

    def workspace(self, name):
        harness.commit(self.suite.upstream / "acme" / "shop", "moved.txt", name)  # for a fetch and a base tree
        self.client.create(repo_url=self.suite.url, name=name, pre_stop="echo stopping")
        self.acknowledged["created"] = True
        record = self.client.wait(self.counted(name)["id"], 20_000)
        if record["state"] == "exited" and record["exit_code"] == 0:
            self.acknowledged["kept"] = b"kept\n"
        self.client.write_file(name, "put", b"put\n" * 5000)
        self.acknowledged["put"] = b"put\n" * 5000
        self.client.stop(name)
        self.client.exec(name, "cat kept")
        self.client.sync(name)
        self.deleting = True
        self.client.delete(name, purge=True)
        self.acknowledged["purged"] = True

    def held(self, name):
        self.client.create(repo_url=self.suite.url, name=name)
        self.acknowledged["created"] = True
        with self.client.lease(name, "first") as first:
            first.start_exec(name, ["sleep", "60"])
            second = harness.Client(str(self.daemon.socket))
            second.lease_token = self.client.acquire_lease(name, "second", takeover=True)["token"]
        second.release_lease(name)

    def guarded(self, name):
        """A credential that is kept encrypted, replaced, and removed."""
        self.client.create(repo_url=self.suite.url, name=name)
        self.acknowledged["created"] = True
        for secret in (b"first", b"second"):
            self.client.add_credential(name, ["https://api.example/"], sealed=self.client.seal(secret))
            self.acknowledged["credential"] = True
        self.acknowledged["credential"] = None  # from here on it may be gone
        self.client.remove_credential(name)
        self.acknowledged["credential"] = False

    def settle_credential(self, name):
        """It is whole, or gone; the store has the encrypted secrets of those that are listed, and no others."""
        test, known = self.suite, {c["name"] for c in self.client.credentials()}
        if (wanted := self.acknowledged.get("credential")) is not None:
            test.assertEqual(name in known, wanted)
        if name in known:
            self.client.test_credential(name)
        kept = list((self.daemon.store / "credentials").glob("*"))
        test.assertEqual(len(kept), len(known), kept)
        if name in known:
            self.client.remove_credential(name)

    def collected(self, name):
        self.client.create(repo_url=self.suite.url, name=name, caches=["cache"])
        self.acknowledged["created"] = True
        record = self.client.exec(name, "mkdir cache; echo rubbish > cache/rubbish; echo untracked > untracked", sync=True)
        if record.exit_code == 0:
            self.acknowledged["untracked"] = b"untracked\n"
        self.client.stop(name)
        harness.commit(self.suite.upstream / "acme" / "shop", "moved.txt", name)
        self.client.create(repo_url=self.suite.url, name=f"{name}-tree")
        self.client.delete(f"{name}-tree", purge=True)
        harness.make_repository(self.suite.upstream / "acme" / name)
        self.client.add_repo(self.suite.git_server.url(f"acme/{name}"))
        self.client.gc_run()

    def rebased(self, name):
        """Stacks deltas, until one becomes a whole tree in the background and its old form is removed."""
        place = self.suite.upstream / "acme" / name
        commit = harness.make_repository(place, {f"d{i % 10}/f{i}": f"{i}\n" for i in range(300)})
        for number in range(5):
            if number:
                commit = harness.commit(place, "moved.txt", str(number))
            self.client.create(repo_url=self.suite.git_server.url(f"acme/{name}"), name=f"{name}-tree")
            self.client.delete(f"{name}-tree", purge=True)
        tree = next(self.daemon.store.glob(f"repos/*/trees/{commit}"))
        harness.wait_until(lambda: self.client.health() and (tree / "tree").exists() and not (tree / "delta").exists(), 60, "the whole tree")

    def archived(self, name):
        self.client.create(repo_url=self.suite.url, name=name)
        self.acknowledged["created"] = True
        self.client.wait(self.counted(name)["id"], 20_000)
        self.acknowledged["kept"] = b"kept\n"
        self.client.snapshot(name)  # a frozen layer is removed with it
        self.client.archive(name)
        self.client.unarchive(name)
        file = io.BytesIO()
        self.client.export(name, file)
        self.client.import_(file.getvalue(), name=f"{name}-import")
        self.client.delete(f"{name}-import", purge=True)

    def snapped(self, name):
        """All its states contain the work acknowledged before the first."""
        self.client.create(repo_url=self.suite.url, name=name)
        self.acknowledged["created"] = True
        self.client.wait(self.counted(name)["id"], 20_000)
        self.acknowledged["kept"] = b"kept\n"
        busy = self.client.start_exec(name, ["sleep", "3"])  # it holds the mounts
        self.client.snapshot(name, name="busy")
        self.acknowledged["snapshots"] = {"busy"}
        self.client.cancel(busy["id"])
        self.client.wait(busy["id"], 20_000)
        self.client.snapshot(name, name="live")
        self.acknowledged["snapshots"] |= {"live"}
        self.client.stop(name)
        self.client.snapshot(name, name="rest")
        self.acknowledged["snapshots"] |= {"rest"}
        self.client.fork(name, names=self.forks(name))
        self.acknowledged["forks"] = True
        self.client.exec(f"{name}-f1", "echo of a fork > fork", sync=True)
        self.client.promote(f"{name}-f1")
        self.acknowledged["promoted"] = True
        self.client.exec(name, "cat fork")  # a crash here undoes nothing of it
        self.acknowledged["promoted"] = False  # the restore may have happened without an answer
        self.client.restore(name, "live", kill=True)
        self.acknowledged["snapshots"] -= {"rest"}
        self.client.drop_snapshot(name, "rest")
        self.client.restore(name, "live", kill=True)
        self.client.drop_snapshot(name, self.client.snapshots(name)[-1]["id"])

    def moved(self, name):
        """Moves it and back, between two backends of every host."""
        self.client.create(repo_url=self.suite.url, name=name)
        self.acknowledged["created"] = True
        self.client.wait(self.counted(name)["id"], 20_000)
        self.acknowledged["kept"] = b"kept\n"
        for backend in ("process", "lxc"):
            self.client.move(name, backend=backend)
            self.client.exec(name, "cat kept")

    def flattened(self, name):
        self.client.create(repo_url=self.suite.url, name=name)
        self.acknowledged["created"] = True
        self.client.wait(self.counted(name)["id"], 20_000)
        self.acknowledged["kept"] = b"kept\n"
        self.client.stop(name)
        before = self.daemon.log.read_bytes().count(b"layers.flattened")
        for _ in range(20):
            self.client.snapshot(name)
        harness.wait_until(lambda: self.client.workspaces() and self.daemon.log.read_bytes().count(b"layers.flattened") > before, what="a merge of layers")

    ATTEMPT_PATCH = b"--- /dev/null\n+++ b/patched\n@@ -0,0 +1 @@\n+patched\n"
    ATTEMPT_TEST = "echo ran >> test-ran; sync test-ran; test -e patched"

    def attempted(self, name):
        """Two attempts from patches, which have an additional step: storing the patches."""
        self.client.create(repo_url=self.suite.url, name=name)
        self.acknowledged["created"] = True
        self.client.wait(self.counted(name)["id"], 20_000)
        self.acknowledged["kept"] = b"kept\n"
        self.client.best_of(name, test=self.ATTEMPT_TEST, patches=[("a", self.ATTEMPT_PATCH), ("b", self.ATTEMPT_PATCH)],
                            promote="smallest-diff", key=f"{name}-attempts")
        self.acknowledged["attempts"] = True
        harness.wait_until(lambda: self.client.best_ofs(name)[0]["state"] == "done", what="the end of the attempts")

    def settle_attempts(self, name):
        """It ended by itself, each command ran at most once, and the same request returns the same best-of."""
        test = self.suite
        harness.wait_until(lambda: all(b["state"] not in ("preparing", "running") for b in self.client.best_ofs(name)), what="the end of the attempts")
        begun = self.client.best_ofs(name)
        test.assertTrue(begun or "attempts" not in self.acknowledged, "there were attempts")
        test.assertLessEqual(len(begun), 1)
        forks = {w["name"] for w in self.client.workspaces() if w.get("labels", {}).get("best-of")}
        for best_of in begun:
            if best_of["state"] == "failed":  # interrupted before its patches were stored
                test.assertFalse(self.acknowledged.get("attempts"))
                test.assertEqual(forks, set())
                continue
            test.assertEqual([a["name"] for a in best_of["attempts"]], sorted(forks), "all of the forks, and no others")
            passed = 0
            for attempt in best_of["attempts"]:
                ran = self.client.exec(attempt["name"], "cat counter test-ran 2>/dev/null; cat kept").stdout
                test.assertIn(ran, (b"ran\nran\nkept\n", b"ran\nkept\n"), attempt)
                test.assertIn(attempt["state"], ("passed", "interrupted"), attempt)
                passed += attempt["state"] == "passed"
            if passed:
                test.assertEqual(best_of["promotion"], "done", best_of)
                test.assertEqual(self.client.read_file(name, "patched"), b"patched\n")
                test.assertEqual([s["cause"] for s in self.client.snapshots(name)].count("promote"), 1, "promoted once")
        for fork in forks:
            self.client.delete(fork, purge=True)

    @staticmethod
    def forks(name):
        return [f"{name}-f1", f"{name}-f2"]

    def packed(self, name):
        """An import without the repository, which comes from the archive."""
        harness.make_repository(self.suite.upstream / "acme" / name)
        made = self.client.create(repo_url=self.suite.git_server.url(f"acme/{name}"), name=f"{name}-import")
        self.client.write_file(f"{name}-import", "kept", b"kept\n")
        file = io.BytesIO()
        self.client.export(f"{name}-import", file)
        self.client.delete(f"{name}-import", purge=True)
        self.client.delete_repo(made["repo"]["id"])
        self.client.import_(file.getvalue(), name=f"{name}-import")
        self.client.delete(f"{name}-import", purge=True)

    def imported(self, name):
        local = self.daemon.directory / f"local-{name}"
        harness.make_repository(local)
        (local / "untracked").write_text(name)
        try:
            self.daemon.cli("create", "--from", local, "--name", name)
        finally:
            shutil.rmtree(local)
        self.acknowledged |= {"created": True, "untracked": name.encode()}

    def repaired(self, name):
        harness.make_repository(self.suite.upstream / "acme" / name)
        repo = self.client.add_repo(self.suite.git_server.url(f"acme/{name}"))
        for pack in (self.daemon.store / "repos" / repo["id"] / "git").rglob("*.pack"):
            pack.chmod(0o600)
            pack.write_bytes(b"broken")
        self.client.fetch(repo["id"])

    def settle(self, name):
        """All acknowledged work exists, no command ran twice, all rows are in resting states, and the same verbs work."""
        test = self.suite
        harness.wait_until(lambda: not self.client.execs(running=True), what="the end of every command")
        found = {w["name"]: w for w in self.client.workspaces()}
        self.settle_credential(name)
        if f"{name}-tree" in found:
            self.client.delete(f"{name}-tree", purge=True)
        if name in found and "holder" in found[name]:
            test.assertEqual(self.client.execs(workspace=name, running=True), [], "a writer of the lease before")
            mine = harness.Client(str(self.daemon.socket))
            lease = self.client.acquire_lease(name, "settled", takeover=True)
            mine.lease_token = lease["token"]
            test.assertGreater(lease["generation"], found[name]["holder"]["generation"])
            mine.release_lease(name)
        if self.acknowledged.get("created") and not self.deleting:
            test.assertIn(name, found, "it was created")
        test.assertFalse(self.acknowledged.get("purged") and name in found, "it was purged and is back")
        if f"{name}-import" in found:  # complete, or absent
            test.assertEqual(self.client.read_file(f"{name}-import", "kept"), b"kept\n")
            self.client.delete(f"{name}-import", purge=True)
        if name in found:
            self.settle_attempts(name)
        forks = [fork for fork in self.forks(name) if fork in found]
        test.assertIn(len(forks), (0, 2), "all of the forks, or none")
        test.assertTrue(forks or "forks" not in self.acknowledged, "there were forks")
        if name in found:
            kept = {s["name"] for s in self.client.snapshots(name)}
            test.assertLessEqual(self.acknowledged.get("snapshots", set()), kept)
            if self.acknowledged.get("promoted"):
                test.assertEqual(self.client.exec(name, "cat fork 2>/dev/null || ls").stdout.split(), [b"of", b"a", b"fork"])
        for fork in forks:
            test.assertEqual(self.client.exec(fork, "cat kept counter").stdout, b"kept\nran\n")
            self.client.delete(fork, purge=True)
        if name in found:
            test.assertIn(found[name]["state"], ("ready", "archived"))
            self.client.unarchive(name)
            for path in self.acknowledged.keys() & {"kept", "put", "untracked"}:
                test.assertEqual(self.client.read_file(name, path), self.acknowledged[path], path)
            if "kept" in self.acknowledged:
                self.counted(name)
            ran = self.client.exec(name, "cat counter 2>/dev/null; git status --porcelain --untracked-files=no").stdout
            test.assertIn(ran, (b"ran\n",) if "kept" in self.acknowledged else (b"", b"ran\n"))
            self.client.delete(name, purge=True)
        again = self.client.create(repo_url=test.url, name=name)
        test.assertEqual(self.client.exec(name, "cat README.md").stdout, b"hello\n")
        self.client.delete(again["id"], purge=True)
        test.assert_at_rest()
