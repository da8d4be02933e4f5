"""Base trees of similar commits are deltas over an existing one, and always show git's checkout."""

import os
import pathlib
import random
import signal
import subprocess
import unittest

import harness
import raw_api

FILES = {f"d{i % 20}/e{i % 7}/f{i}": f"{i}\n" * (i % 50 + 1) for i in range(600)}
LIST = r"""find . -path ./.git -prune -o -printf '%y %m %p %l\n' | sort; find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0 sha256sum"""
POINTS = ("tree.written", "base_tree.after_write", "rebase.after_tree", "rebase.after_manifest", "rebase.after_old_form")


class BaseTrees(harness.TestCase):
    settings = {"gc.keep_unused_s": 0, "daemon.reconcile_interval_s": 1}
    files = FILES

    def setUp(self):
        self.repository = self.upstream / "acme" / "shop"
        self.chance = random.Random(os.environ.get("MOORAGE_TEST_SEED", self.id()))
        self.made = []
        self.addCleanup(self.remove_all)

    def remove_all(self):
        if self.daemon.process.poll() is not None:
            self.daemon.start()
        # A crash between a delete and its purge leaves a deleted workspace, which keeps its base tree.
        for workspace in self.client.workspaces(deleted=True):
            self.client.delete(workspace["id"], purge=True)
        self.collect_all()

    def collect_all(self):
        """A tree being rebased stays, with the trees below it; a later run removes them."""
        ran = {}

        def collected():
            ran.update(self.client.gc_run())
            return not list(self.daemon.store.glob("repos/*/trees/*"))

        try:
            harness.wait_until(collected, 240, "the collection of all base trees")
        except AssertionError as error:
            kept = [(w["name"], w["state"]) for w in self.client.workspaces(deleted=True)]
            there = [str(path) for path in self.daemon.store.glob("repos/*/trees/*")]
            raise AssertionError(f"{error}: {ran}, {self.client.gc_plan()}, {kept}, {there}\n{self.daemon.waiting()}\n{self.daemon.log_tail()}") from None

    def move(self, number):
        """Another commit upstream: contents, modes, links, removals, and a directory and a file that swap places."""
        files = [path for path in git_files(self.repository) if path != "number"]
        for path in self.chance.sample(files, 8):
            file = self.repository / path
            if file.is_symlink() or not file.exists():
                continue
            action = self.chance.randrange(5)
            if action == 0:
                file.write_text(f"changed {number}\n")
            elif action == 1:
                file.chmod(0o755 if not os.access(file, os.X_OK) else 0o644)
            elif action == 2:
                file.unlink()
                file.symlink_to(f"target-{number}")
            elif action == 3:
                file.unlink()
            else:
                file.unlink()
                file.mkdir()
                (file / "inner").write_text(f"{number}\n")
        if number % 5 == 4:
            directory = pathlib.Path(self.repository, self.chance.choice(sorted(p.name for p in self.repository.glob("d*") if p.is_dir())))
            subprocess.run(["rm", "-rf", directory], check=True)
            directory.write_text("a file now\n")
        return harness.commit(self.repository, "number", str(number))

    def create(self, name, **fields):
        self.client.create(repo_url=self.url, name=name, **fields)
        return name

    def place(self, commit):
        return next(self.daemon.store.glob(f"repos/*/trees/{commit}"))

    def is_delta(self, commit):
        return "\nparent " in (self.place(commit) / "manifest").read_text()

    def assert_is(self, name, commit):
        """Compares all files, modes, links and contents, also with git."""
        out = self.client.exec(name, f"git rev-parse HEAD; git status --porcelain; {LIST}")
        self.assertEqual((out.exit_code, out.stderr), (0, b""))
        checkout = self.daemon.directory / "checkout"
        harness.git(self.repository, "worktree", "add", "-q", "--detach", checkout, commit)
        try:
            (checkout / ".git").unlink()
            expected = harness.run("sh", "-c", f"cd {checkout}; {LIST}").stdout
        finally:
            subprocess.run(["rm", "-rf", checkout], check=True)
            harness.git(self.repository, "worktree", "prune")
        found = out.stdout.split(b"\n", 1)
        self.assertEqual(found[0].decode(), commit)
        self.assertEqual(found[1], expected)

    def test_thirty_commits_take_only_the_space_of_their_changes(self):
        self.create("first")
        mirror = next(self.daemon.store.glob("repos/*/git"))
        deltas = 0
        for number in range(30):
            commit = self.move(number)
            before, fetches = disk_bytes(mirror), self.git_server.fetches()
            name = self.create(f"w{number}")
            self.assertEqual(self.git_server.fetches(), fetches + 1)
            self.assertLess(disk_bytes(mirror) - before, 200_000, "only what is new was fetched")
            deltas += self.is_delta(commit)
            self.assert_is(name, commit)
            if number % 3:
                self.client.delete(name, purge=True)
            else:
                self.client.stop(name)
        self.assertGreater(deltas, 20)
        # Used trees were made whole meanwhile, and their workspaces still work.
        self.assertIn("base_tree.rebased", self.daemon.log.read_text())
        for number in (0, 15, 27):
            out = self.client.exec(f"w{number}", "git status --porcelain; cat number")
            self.assertEqual((out.exit_code, out.stdout), (0, str(number).encode()))
        self.assertEqual([f for f in self.client.doctor()["findings"] if f["check"] == "base trees" and not f["mended"]], [])

    def test_the_first_status_over_a_delta_reads_no_file(self):
        self.client.delete(self.create("whole"), purge=True)
        commit = self.move(100)
        name = self.create("hashed-nothing")
        self.assertTrue(self.is_delta(commit))
        # To compare contents, git would have to read the file, which the agent, not being root, cannot.
        for place in self.daemon.store.glob("repos/*/trees/*/*"):
            for top, directories, names in os.walk(place):
                if ".git" in directories:
                    directories.remove(".git")
                for file in names:
                    path = pathlib.Path(top, file)
                    if path.is_file() and not path.is_symlink():
                        path.chmod(path.stat().st_mode & 0o111)
        out = self.client.exec(name, "cat number 2>&1; git --no-optional-locks status --porcelain")
        self.assertIn(b"Permission denied", out.stdout.split(b"\n")[0])
        self.assertEqual((out.exit_code, out.stdout.split(b"\n", 1)[1], out.stderr), (0, b"", b""))
        self.client.delete(name, purge=True)
        self.collect_all()  # no workspace may use the trees broken here

    def test_collection_removes_only_unused_base_trees(self):
        commits = []
        for number in range(200, 204):
            commits.append(self.move(number))
            self.create(f"c{number}")
        self.assert_is("c202", commits[2])
        for number in (200, 201, 203):
            self.client.delete(f"c{number}", purge=True)
        plan = {row["commit"]: row for row in self.client.gc_plan()["rows"] if row["rung"] == "base_tree"}
        self.assertTrue(plan[commits[3]]["goes"])
        self.assertFalse(plan[commits[2]]["goes"])
        below = lineage(self.place(commits[2]))
        self.assertGreater(len(below), 1)
        for commit in below[1:]:
            self.assertFalse(plan[commit]["goes"])
            self.assertIn("builds on it and is kept", plan[commit]["why"])
        self.client.gc_run()
        left = {path.name for path in self.daemon.store.glob("repos/*/trees/*")}
        self.assertEqual(left, set(below))
        self.assert_is("c202", commits[2])
        self.client.stop("c202")
        self.assert_is("c202", commits[2])
        self.client.delete("c202", purge=True)
        self.collect_all()

    def test_a_damaged_tree_is_rebuilt_and_deltas_above_still_show_their_commit(self):
        commits = []
        for number in range(300, 303):
            commits.append(self.move(number))
            self.create(f"m{number}")
        bottom = lineage(self.place(commits[2]))[-1]
        (self.place(bottom) / "tree" / "number").unlink()
        self.assert_is("m302", commits[2])
        self.assert_is("m301", commits[1])
        middle = lineage(self.place(commits[2]))[1]
        (self.place(middle) / "manifest").write_text("nonsense")
        self.client.stop("m302")
        self.assert_is("m302", commits[2])

    def test_an_archive_of_a_renamed_directory_has_the_files_of_the_deltas(self):
        self.client.delete(self.create("z"), purge=True)
        file = sorted(p for p in git_files(self.repository) if p.count("/") == 2)[0]
        top = file.split("/")[0]
        (self.repository / file).write_text("of the delta\n")
        (self.repository / top / "new").write_text("new in the delta\n")
        gone = next(p for p in sorted(git_files(self.repository)) if p.startswith(top + "/") and p != file and not p.endswith("/new"))
        (self.repository / gone).unlink()
        commit = harness.commit(self.repository, "number", "400")
        name = self.create("renamed")
        self.assertTrue(self.is_delta(commit))
        show = f"cd moved && {LIST}"
        before = self.client.exec(name, f"mv {top} moved; {show}").stdout
        self.assertIn(b"new", before)
        self.client.stop(name)
        self.client.archive(name)
        self.client.unarchive(name)
        self.assertEqual(self.client.exec(name, show).stdout, before)
        status = self.client.exec(name, "git status --porcelain | cut -c1-3 | sort | uniq -c").stdout
        self.assertNotEqual(status, b"")
        self.client.stop(name)
        for number in range(20):  # deep enough for a merge: the redirect still points into the base
            self.client.write_file(name, "many", str(number).encode())
            self.client.snapshot(name)
        harness.wait_until(lambda: "layers.flattened" in self.daemon.log.read_text(), what="the merge of the layers")
        self.assertEqual(self.client.exec(name, show).stdout, before)

    def test_a_crash_while_deltas_are_written_and_rebased_loses_nothing(self):
        for round_number, point in enumerate(POINTS):
            with self.subTest(point):
                self.create(f"lives{round_number}")
                self.client.exec(f"lives{round_number}", "echo work > work; sleep 1000 >/dev/null 2>&1 &")
                lived_on = harness.git(self.repository, "rev-parse", "HEAD")
                self.daemon.kill()
                self.daemon.start(crash_at=point)
                died = False
                for number in range(8):
                    commit = self.move(500 + round_number * 10 + number)
                    try:
                        self.client.delete(self.create(f"t{round_number}-{number}"), purge=True)
                        if number >= 4:
                            place = self.place(commit)
                            harness.wait_until(lambda: self.client.health() and not (place / "delta").exists(), 5, "the end of the delta")
                    except (OSError, AssertionError, raw_api.ApiError):
                        died = self.daemon.process.poll() is not None
                    if died:
                        break
                self.assertTrue(died, point)
                self.assertEqual(self.daemon.process.wait(), -signal.SIGKILL)
                self.daemon.start()
                out = self.client.exec(f"lives{round_number}", "cat work; git status --porcelain")
                self.assertEqual((out.exit_code, out.stdout), (0, b"work\n?? work\n"))
                self.client.exec(f"lives{round_number}", "rm work")
                self.assert_is(f"lives{round_number}", lived_on)
                again = self.create(f"again{round_number}")
                self.assert_is(again, commit)
                findings = [f for f in self.client.doctor()["findings"] if f["check"] == "base trees"]
                self.assertEqual([f for f in findings if "is not in state.db" in f["text"] or "damaged" in f["text"]], [])


def git_files(repository):
    return harness.git(repository, "ls-files", "-z").split("\0")[:-1]


def lineage(place):
    """The commit of a tree, and those of the trees below it."""
    commits = [place.name]
    manifest = (place / "manifest").read_text()
    if "\nparent " in manifest:
        commits += lineage(place.parent / manifest.split("\nparent ")[1].split("\n")[0])
    return commits


def disk_bytes(path):
    return int(harness.run("du", "-sb", path).stdout.split()[0])


if __name__ == "__main__":
    unittest.main()
