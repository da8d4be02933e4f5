"""The main job over HTTP and the CLI: cache, workspace, commands, files, diff, delete and undelete."""

import os
import subprocess
import unittest

import harness
import raw_api


class MainJob(harness.TestCase):
    def test_a_workspace_starts_at_the_default_branch_with_a_clean_git(self):
        ws = self.client.create(repo_url=self.url, name="clean")
        self.assertEqual(ws["base"]["commit"], self.first_commit)
        self.assertEqual(ws["state"], "ready")
        result = self.client.exec("clean", "git status --porcelain && git log --oneline | wc -l && git branch --show-current")
        self.assertEqual((result.exit_code, result.stderr), (0, b""))
        self.assertEqual(result.stdout.decode().split("\n")[:2], ["1", "moorage/clean"])

    def test_edits_ignored_files_home_and_commits_survive_the_sandbox(self):
        self.client.create(repo_url=self.url, name="outlive")
        script = ("echo build/ > .gitignore; mkdir build; echo obj > build/o; echo new > n.txt; echo x >> README.md;"
                  "git add .gitignore && git commit -qm ignore && echo note > ~/note && git stash list")
        self.assertEqual(self.client.exec("outlive", script).exit_code, 0)
        before = self.client.workspace("outlive")["sandbox"]["id"]
        self.client.stop("outlive")
        self.assertNotIn("sandbox", {k for k, v in self.client.workspace("outlive").items() if v})
        after = self.client.exec("outlive", "cat build/o n.txt ~/note && tail -n1 README.md && git log --format=%s -1")
        self.assertEqual(after.stdout, b"obj\nnew\nnote\nx\nignore\n")
        self.assertNotEqual(self.client.workspace("outlive")["sandbox"]["id"], before)

    def test_the_diff_applies_to_a_clean_clone_and_gives_the_same_tree(self):
        self.client.create(repo_url=self.url, name="patch")
        script = ("head -c 5000 /dev/urandom > bin.dat; echo more >> src/a.txt; rm src/b.txt; chmod +x README.md;"
                  "ln -s src link; printf 'no newline' > tail.txt; mkdir -p deep/er; echo d > deep/er/f")
        self.assertEqual(self.client.exec("patch", script).exit_code, 0)
        patch = self.client.diff("patch")
        clone = self.daemon.directory / "clone"
        harness.run("git", "clone", "-q", self.upstream / "acme" / "shop", clone)
        harness.run("git", "-C", clone, "apply", "--binary", "-", input=patch)
        self.assertEqual(harness.run("git", "-C", clone, "status", "--porcelain", "-uall").stdout.decode().split("\n")[:-1],
                         [" M README.md", " M src/a.txt", " D src/b.txt", "?? bin.dat", "?? deep/er/f", "?? link", "?? tail.txt"])
        self.assertEqual((clone / "bin.dat").read_bytes(), self.client.read_file("patch", "bin.dat"))
        changes = {f["path"]: f["change"] for f in self.client.status("patch")["files"]}
        self.assertEqual(changes["src/b.txt"], "deleted")
        self.assertEqual(changes["src/a.txt"], "modified")
        stat = {f["path"]: f for f in self.client.diff_stat("patch")}
        self.assertTrue(stat["bin.dat"]["binary"])
        self.assertEqual(stat["src/a.txt"]["added"], 1)

    def test_files_are_written_read_listed_moved_and_removed(self):
        self.client.create(repo_url=self.url, name="files")
        for running in (False, True):
            if running:
                self.client.start("files")
            data = bytes(range(256)) * 1000
            self.client.write_file("files", "data.bin", data)
            self.assertEqual(self.client.read_file("files", "/workspace/data.bin"), data)
            self.client.make_directory("files", "a/b")
            self.client.move_file("files", "data.bin", "a/b/moved.bin")
            names = {e["name"]: e for e in self.client.list_files("files", "a/b")["entries"]}
            self.assertEqual(names["moved.bin"]["size_bytes"], len(data))
            self.client.write_file("files", "/home/user/.token", b"t", mode="0600")
            self.assertEqual(self.client.exec("files", "stat -c '%U %a' ~/.token a/b/moved.bin a/b README.md src .git").stdout,
                             b"user 600\nuser 644\nuser 755\nuser 644\nuser 755\nuser 755\n")
            self.client.remove_file("files", "a", recursive=True)
            with self.assertRaises(raw_api.ApiError) as refused:
                self.client.read_file("files", "a/b/moved.bin")
            self.assertEqual(refused.exception.code, "not_found")
            self.client.stop("files")

    def test_delete_can_be_undone_until_the_purge(self):
        self.client.create(repo_url=self.url, name="gone")
        self.client.exec("gone", "echo kept > kept")
        ws = self.client.delete("gone")
        with self.assertRaises(raw_api.ApiError):
            self.client.exec("gone", "true")
        self.client.undelete("gone")
        self.assertEqual(self.client.exec("gone", "cat kept").stdout, b"kept\n")
        self.client.delete("gone")
        self.client.create(repo_url=self.url, name="gone")
        refused = self.daemon.cli("undelete", ws["id"], check=False)
        self.assertIn(f"moorage undelete {ws['id']} --name gone-2".encode(), refused.stderr)
        self.daemon.cli("undelete", ws["id"], "--name", "gone-2")
        self.assertEqual(self.client.exec("gone-2", "cat kept").stdout, b"kept\n")
        self.client.delete("gone-2", purge=True)
        self.client.delete("gone", purge=True)
        with self.assertRaises(raw_api.ApiError):
            self.client.undelete("gone")
        self.assertFalse(list((self.daemon.store / "workspaces").glob(ws["id"] if ws else "none")))

    def test_the_cli_runs_commands_byte_for_byte_with_their_exit_codes(self):
        self.client.create(repo_url=self.url, name="cli")
        every = bytes(range(256)) * 64
        out = self.daemon.cli("exec", "cli", "--", "cat", input=every)
        self.assertEqual((out.stdout, out.stderr), (every, b""))
        for code in (0, 1, 42, 255):
            self.assertEqual(self.daemon.cli("exec", "cli", "--", "sh", "-c", f"exit {code}", check=False).returncode, code)
        self.assertEqual(self.daemon.cli("exec", "cli", "--", "sh", "-c", "kill -9 $$", check=False).returncode, 137)
        self.assertEqual(self.daemon.cli("exec", "cli", "--timeout", "1s", "--", "sleep", "60", check=False).returncode, 124)
        self.assertEqual(self.daemon.cli("exec", "cli", "--", "no-such-command", check=False).returncode, 127)
        split = self.daemon.cli("exec", "cli", "--", "sh", "-c", "echo out; echo err >&2")
        self.assertEqual((split.stdout, split.stderr), (b"out\n", b"err\n"))
        self.assertEqual(self.daemon.cli("exec", "cli", "--", "sh", "-c", "printf '%s|' \"$@\"", "x", "a b", "*", "").stdout, b"a b|*||")

    def test_run_rm_leaves_no_workspace(self):
        out = self.daemon.cli("run", "--rm", "--repo", self.url, "--", "cat", "README.md")
        self.assertEqual(out.stdout, b"hello\n")
        harness.wait_until(lambda: all("run" not in w["name"] for w in self.client.workspaces()), what="no disposable workspace")

    def test_create_from_a_local_checkout_brings_uncommitted_and_untracked_files(self):
        local = self.daemon.directory / "local"
        harness.make_repository(local)
        (local / "README.md").write_text("changed\n")
        (local / "untracked.txt").write_text("u\n")
        (local / "src" / "b.txt").unlink()
        before = harness.git(local, "status", "--porcelain")
        self.daemon.cli("create", "--from", local, "--name", "fromdir")
        self.assertEqual(harness.git(local, "status", "--porcelain"), before)
        out = self.client.exec("fromdir", "cat README.md untracked.txt; git status --porcelain")
        self.assertEqual(out.stdout.decode(), "changed\nu\n M README.md\n D src/b.txt\n?? untracked.txt\n")
        # The checkout's own commits are unpushed, but do not count as the workspace's work.
        self.assertEqual(self.client.workspace("fromdir")["unpushed"], 0)

    def test_similar_names_share_nothing(self):
        for path in ("a_b/c", "a/b_c"):
            harness.make_repository(self.upstream / path, {"which": path})
        ids = {}
        for path, name in (("a_b/c", "one"), ("a/b_c", "two")):
            ids[path] = self.client.create(repo_url=self.git_server.url(path), name=name)["repo"]["id"]
        self.assertNotEqual(ids["a_b/c"], ids["a/b_c"])
        self.assertEqual(self.client.exec("one", "cat which").stdout, b"a_b/c")
        self.assertEqual(self.client.exec("two", "cat which").stdout, b"a/b_c")

    def test_bad_names_are_refused_never_repaired(self):
        for name in ("UPPER", "-x", "a b", "a/b", "é", "x" * 64, "a\nb", "..", "a.b"):
            with self.assertRaises(raw_api.ApiError) as refused:
                self.client.create(repo_url=self.url, name=name)
            self.assertEqual(refused.exception.code, "invalid_argument", name)

    def test_an_agent_may_remove_its_git_directory(self):
        for name, command in (("no-git", "rm -rf .git"), ("new-git", "rm -rf .git; git init -q -b mine")):
            self.client.create(repo_url=self.url, name=name)
            self.client.exec(name, command)
            self.client.stop(name)
            there = self.client.exec(name, "cat .git/HEAD || ls -d .git; true").stdout
            self.assertEqual(there, b"" if name == "no-git" else b"ref: refs/heads/mine\n")

    def test_a_create_repeated_with_its_key_is_done_once(self):
        first = self.client.create(repo_url=self.url, name="keyed", key="create-once")
        self.assertEqual(self.client.create(repo_url=self.url, name="keyed", key="create-once")["id"], first["id"])
        with self.assertRaises(raw_api.ApiError) as refused:
            self.client.create(repo_url=self.url, name="keyed", key="create-once", disposable=True)
        self.assertEqual(refused.exception.code, "already_exists")

    def test_a_diff_mentions_a_nested_repository(self):
        self.client.create(repo_url=self.url, name="nested")
        self.client.exec("nested", "mkdir nest && cd nest && git init -q && echo w > w && git add . && git commit -qm w")
        for options, code in (((), 3), (("--stat",), 0)):
            diff = self.daemon.cli("diff", "nested", *options, check=False)
            self.assertEqual(diff.returncode, code)
            self.assertIn(b"nest/ is a nested repository and not in this patch", diff.stderr)

    def test_show_lists_unpushed_commits_and_integrity(self):
        self.client.create(repo_url=self.url, name="told")
        self.client.exec("told", "git commit -q --allow-empty -m one && git commit -q --allow-empty -m two")
        self.assertEqual(self.client.workspace("told")["unpushed"], 2)
        self.client.exec("told", "git checkout -q -b aside && git commit -q --allow-empty -m three && git checkout -q -")
        harness.wait_until(lambda: self.client.workspace("told")["unpushed"] == 3, what="a branch that is not checked out")
        self.client.exec("told", "git branch -D -q aside")
        harness.wait_until(lambda: self.client.workspace("told")["unpushed"] == 2, what="it is gone")
        self.client.stop("told")
        told = self.client.workspace("told")
        self.assertEqual((told["unpushed"], told["integrity"]["state"]), (2, "intact"))
        layers = self.daemon.store / "layers"
        newest = max(layers.iterdir(), key=lambda p: int(p.name.split("_")[1]))
        newest.rename(self.daemon.directory / "taken")
        with self.assertRaises(raw_api.ApiError) as refused:
            self.client.exec("told", "true")
        self.assertEqual(refused.exception.code, "corrupted")
        self.assertEqual(self.client.workspace("told")["integrity"]["state"], "lost")
        (self.daemon.directory / "taken").rename(newest)
        self.assertEqual(self.client.exec("told", "git log --format=%s -1").stdout, b"two\n")
        self.client.stop("told")
        self.assertEqual(self.client.workspace("told")["integrity"]["state"], "intact")

    def test_the_tour_of_quickstart_starts_again_whatever_became_of_its_forks(self):
        self.client.create(repo_url=self.url, name="tour")
        self.client.fork("tour", names=["tour-kept", "tour-cold", "tour-deleted", "tour-purged"])
        self.client.stop("tour")
        self.client.archive("tour-cold")
        self.client.delete("tour-deleted")
        self.client.delete("tour-purged", purge=True)
        script = (f"set -euo pipefail; source {harness.ROOT}/scripts/tour.sh; moorage() {{ {harness.BIN}/moorage \"$@\"; }}; "
                  "remove_earlier \"$(earlier_tour)\"")
        harness.run("bash", "-c", script, env={"PATH": os.environ["PATH"], "MOORAGE_SOCKET": str(self.daemon.socket)})
        left = [ws["name"] for ws in self.client.workspaces() if ws["name"].startswith("tour")]
        self.assertEqual(left, [])

    def test_a_pty_has_its_size_and_ctrl_c_ends_the_command(self):
        self.client.create(repo_url=self.url, name="pty")
        out = self.client.exec("pty", "stty size; tty", tty={"columns": 123, "rows": 45})
        self.assertIn(b"45 123", out.stdout)
        self.assertIn(b"/dev/pts/", out.stdout)
        stream = self.client.exec_stream("pty", ["sleep", "60"], tty={"columns": 80, "rows": 24}, stdin=True)
        self.client.send_input(stream.exec_id, b"\x03")
        with stream:
            for _ in stream:
                pass
        self.assertEqual((stream.end["state"], stream.end["signal"]), ("signalled", 2))


if __name__ == "__main__":
    unittest.main()
