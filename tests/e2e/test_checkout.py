"""`create --from DIR` is that directory, and `apply` brings the agent's part back into it."""

import json
import os
import pathlib
import shutil
import time
import unittest

import harness

IGNORED = {".git"}


def contents(directory):
    """Every file below a directory without .git: (kind, whether it can be run, bytes or target) by its path."""
    found = {}
    for at, names, files in os.walk(directory):
        names[:] = [name for name in names if name not in IGNORED and not os.path.islink(os.path.join(at, name))]
        for name in (*files, *(n for n in os.listdir(at) if os.path.islink(os.path.join(at, n)))):
            path = pathlib.Path(at, name)
            shown = str(path.relative_to(directory))
            if name in IGNORED:
                continue
            if path.is_symlink():
                found[shown] = ("link", False, os.readlink(path))
            else:
                found[shown] = ("file", bool(path.stat().st_mode & 0o100), path.read_bytes())
    return found


class Checkout(harness.TestCase):
    def setUp(self):
        self.local = self.daemon.directory / f"local-{self.id().rsplit('.', 1)[1]}"
        self.name = "c" + str(abs(hash(self.id())) % 10**9)

    def create(self):
        return self.daemon.cli("create", "--from", self.local, "--name", self.name).stderr.decode()

    def inside(self, *argv, **options):
        return self.daemon.cli("exec", self.name, "--", *argv, **options).stdout

    def test_branches_tags_and_the_remote_work_inside(self):
        harness.make_repository(self.local)
        harness.git(self.local, "tag", "-a", "-m", "one", "v1")
        harness.git(self.local, "switch", "-q", "-c", "topic")
        harness.commit(self.local, "README.md", "topic\n")
        harness.git(self.local, "remote", "add", "origin", "https://me:hidden@git.example.com/acme/shop.git")
        self.create()
        self.assertRegex(self.inside("git", "describe").decode(), r"^v1-1-g")
        self.assertEqual(self.inside("git", "diff", "--name-only", "main...HEAD"), b"README.md\n")
        self.assertEqual(self.inside("git", "log", "--all", "--oneline").count(b"\n"), 2)
        self.assertEqual(self.inside("git", "remote", "get-url", "origin"), b"https://git.example.com/acme/shop.git\n")
        self.assertEqual(self.client.workspace(self.name)["unpushed"], 0)
        self.inside("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "own")
        self.client.stop(self.name)
        self.assertEqual(self.client.workspace(self.name)["unpushed"], 1)

    def test_files_arrive_byte_for_byte(self):
        harness.make_repository(self.local, {".gitattributes": "*.txt text\n", "a.txt": "1\r\n2\r\n", "flagged": "before\n"})
        harness.git(self.local, "update-index", "--assume-unchanged", "flagged")
        (self.local / "flagged").write_text("after\n")
        (self.local / "odd \\ \n name").write_bytes(bytes(range(256)))
        (self.local / "link").symlink_to("/nowhere")
        (self.local / "runs").write_text("#!/bin/sh\n")
        (self.local / "runs").chmod(0o755)
        self.create()
        arrived = self.daemon.directory / f"arrived-{self.name}"
        self.daemon.cli("cp", f"{self.name}:/workspace", arrived)
        self.assertEqual(contents(arrived), contents(self.local))
        self.assertEqual(self.daemon.cli("diff", self.name).stdout, b"")
        self.assertEqual(self.client.workspace(self.name)["changes"]["files"], 0)

    def test_files_keep_line_ends_that_a_checkout_would_change_and_git_inside_finds_no_change(self):
        for number, attributes in enumerate(("* text=auto eol=crlf\n", "*.c text\n", "*.c ident\n")):
            with self.subTest(attributes):
                shutil.rmtree(self.local, ignore_errors=True)
                harness.make_repository(self.local, {".gitattributes": attributes, "lf.c": "1\n$Id$\n", "crlf.c": "1\r\n2\r\n"})
                before = contents(self.local)
                self.name = self.name.rstrip("xyz") + "xyz"[number]
                self.create()
                arrived = self.daemon.directory / f"arrived-{self.name}"
                self.daemon.cli("cp", f"{self.name}:/workspace", arrived)
                self.assertEqual(contents(arrived), before)
                self.assertEqual(self.inside("git", "status", "--porcelain"), b"")
                self.inside("sh", "-c", "echo agent >> lf.c; printf 'agent\\r\\n' >> crlf.c")
                self.daemon.cli("apply", self.name, self.local)
                self.assertEqual(contents(self.local)["lf.c"][2], before["lf.c"][2] + b"agent\n")
                self.assertEqual(contents(self.local)["crlf.c"][2], before["crlf.c"][2] + b"agent\r\n")

    def test_uncommitted_work_is_the_base_and_survives(self):
        harness.make_repository(self.local)
        (self.local / "README.md").write_text("mine\n")
        (self.local / "untracked").write_text("mine\n")
        self.create()
        self.assertEqual(self.inside("git", "status", "--porcelain"), b" M README.md\n?? untracked\n")
        self.assertEqual(self.daemon.cli("diff", self.name).stdout, b"")
        self.inside("sh", "-c", "echo agent >> untracked; echo agent > src/a.txt")
        patch = self.daemon.cli("diff", self.name).stdout.decode()
        self.assertIn("+agent", patch)
        self.assertNotIn("+mine", patch)
        whole = self.daemon.cli("diff", self.name, "--base", "head", "--stat").stdout.decode()
        for path in ("README.md", "untracked", "src/a.txt", "3 files"):
            self.assertIn(path, whole)
        fork = self.daemon.cli("fork", self.name, self.name + "f") and self.name + "f"
        self.assertEqual(self.daemon.cli("diff", fork).stdout.decode(), patch)
        self.client.archive(self.name)
        self.client.unarchive(self.name)
        self.assertEqual(self.daemon.cli("diff", self.name).stdout.decode(), patch)
        self.assertEqual(self.inside("cat", "untracked"), b"mine\nagent\n")
        archive = self.daemon.directory / f"{self.name}.tar.zst"
        self.daemon.cli("export", self.name, archive)
        self.daemon.cli("import", archive, "--name", self.name + "i")
        self.assertEqual(self.daemon.cli("diff", self.name + "i").stdout.decode(), patch)
        status = self.daemon.cli("exec", self.name + "i", "--", "git", "status", "--porcelain").stdout
        self.assertEqual(status, b" M README.md\n M src/a.txt\n?? untracked\n")

    def test_show_and_report_name_uncommitted_work(self):
        harness.make_repository(self.local)
        (self.local / "README.md").write_text("mine\n")
        self.create()
        self.assertRegex(self.daemon.cli("show", self.name).stdout.decode(), r"base .*[0-9a-f]{7} with your uncommitted work")
        page = self.daemon.cli("report", self.name).stdout.decode()
        self.assertRegex(page, r"Base\W.*[0-9a-f]{40}` with its owner's uncommitted work")
        self.assertIn("Nothing differs from the base, which has its owner's uncommitted work.", page)
        self.inside("sh", "-c", "echo agent > only")
        page = self.daemon.cli("report", self.name).stdout.decode()
        self.assertIn("1 file differs from the base, which has its owner's uncommitted work: +1 and -0 lines", page)
        self.assertIn("| `only` |", page)
        self.assertNotIn("mine", page)

    def test_best_of_counts_the_attempt_and_not_the_uncommitted_work(self):
        harness.make_repository(self.local)
        (self.local / "README.md").write_text("mine\n" * 100)
        (self.local / "untracked").write_text("mine\n" * 100)
        self.create()
        best_of = json.loads(self.daemon.cli("best-of", self.name, "--count", "2", "--each", "seq $((3 - {i})) > fix", "--test", "test -e fix",
                                             "--promote", "smallest-diff", "--json").stdout)
        diffs = [(attempt["diff"]["files"], attempt["diff"]["added"], attempt["diff"]["removed"]) for attempt in best_of["attempts"]]
        self.assertEqual(diffs, [(1, 2, 0), (1, 1, 0)])
        self.assertEqual((best_of["chosen"], best_of["promotion"]), (2, "done"))
        self.assertEqual(self.inside("cat", "fix", "untracked"), b"1\n" + b"mine\n" * 100)
        self.assertEqual(self.daemon.cli("diff", self.name, "--name-only").stdout, b"fix\n")
        applied = self.daemon.cli("apply", self.name, self.local).stdout
        self.assertIn(b"1 file ", applied)
        self.assertEqual((self.local / "fix").read_text(), "1\n")

    def test_a_patch_applies_to_the_checkout_that_it_came_from(self):
        harness.make_repository(self.local, {"a": "".join(f"{n}\n" for n in range(40)), "b": "x\n"})
        (self.local / "a").write_text((self.local / "a").read_text().replace("5\n", "five\n", 1))
        self.create()
        self.inside("sh", "-c", "sed -i s/^30$/thirty/ a; rm b; echo new > c")
        harness.run("git", "-C", self.local, "apply", input=self.daemon.cli("diff", self.name).stdout)
        self.assertIn("five\n", (self.local / "a").read_text())
        self.assertIn("thirty\n", (self.local / "a").read_text())
        self.assertEqual(sorted(contents(self.local)), ["a", "c"])

    def test_apply_merges_with_later_work_or_changes_nothing(self):
        lines = [f"{n}\n" for n in range(40)]
        harness.make_repository(self.local, {"a": "".join(lines), "gone": "x\n", "both": "x\n", "dir/one": "1\n"})
        self.create()
        self.inside("sh", "-c", "sed -i s/^30$/agent/ a; rm gone; echo agent > new; chmod +x both; rm -r dir; echo file > dir; ln -s a link")
        (self.local / "a").write_text("".join(lines).replace("5\n", "mine\n", 1))
        (self.local / "own").write_text("own\n")
        before = contents(self.local)
        checked = self.daemon.cli("apply", self.name, self.local, "--check")
        self.assertEqual(contents(self.local), before, checked)
        (self.local / "new").write_text("other\n")
        refused = self.daemon.cli("apply", self.name, self.local, check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn(b"new: exists here with other contents", refused.stderr)
        self.assertIn(b"nothing was changed", refused.stderr)
        self.assertIn(f"take the others with --only PATH; merge these by hand: moorage diff {self.name} -- PATH | git apply --reject".encode(), refused.stderr)
        (self.local / "new").unlink()
        self.assertEqual(contents(self.local), before)
        applied = self.daemon.cli("apply", self.name, self.local)
        self.assertIn(b"1 merged with yours", applied.stdout)
        after = contents(self.local)
        self.assertIn(b"mine\n", after["a"][2])
        self.assertIn(b"agent\n", after["a"][2])
        self.assertEqual(after["both"], ("file", True, b"x\n"))
        self.assertEqual(after["dir"], ("file", False, b"file\n"))
        self.assertEqual(after["link"], ("link", False, "a"))
        self.assertNotIn("gone", after)
        self.assertEqual(after["own"], before["own"])
        again = self.daemon.cli("apply", self.name, self.local)
        self.assertIn(b"; 6 were there already", again.stdout)
        self.assertEqual(contents(self.local), after)
        self.assertFalse([name for name in os.listdir(self.local) if name.startswith(".moorage-apply")])

    def test_apply_takes_a_part_and_what_conflicts_can_be_merged_by_hand(self):
        harness.make_repository(self.local, {"a": "1\n2\n3\n", "src/b": "b\n", "srcs": "s\n"})
        self.create()
        self.inside("sh", "-c", "echo agent > a; echo agent >> src/b; echo agent > src/c; echo agent >> srcs")
        (self.local / "a").write_text("mine\n")
        harness.git(self.local, "commit", "-qam", "mine")
        self.assertEqual(self.daemon.cli("apply", self.name, self.local, check=False).returncode, 1)
        self.assertIn(b"2 files", self.daemon.cli("apply", self.name, self.local, "--only", "src/").stdout)
        self.assertEqual(harness.run("git", "status", "--short", cwd=self.local).stdout, b" M src/b\n?? src/c\n")
        patch = self.daemon.cli("diff", self.name, "--", "a").stdout
        harness.run("git", "apply", "--reject", cwd=self.local, input=patch, check=False)
        self.assertIn("+agent", (self.local / "a.rej").read_text())
        self.assertIn(b"nothing is changed in", self.daemon.cli("apply", self.name, self.local, "--only", "sr", check=False).stderr)
        self.assertIn(b"nothing is changed at these paths", self.daemon.cli("diff", self.name, "--", "nowhere").stderr)

    def test_apply_says_that_a_place_is_an_odd_one(self):
        harness.make_repository(self.local, {"a": "1\n"})
        self.create()
        self.inside("sh", "-c", "echo agent > new")
        plain, other = self.daemon.directory / "plain", self.daemon.directory / "other"
        plain.mkdir()
        harness.make_repository(other, {"z": "1\n"})
        self.assertIn(b"is not a git checkout", self.daemon.cli("apply", self.name, plain).stderr)
        self.assertIn(b"is it the right repository?", self.daemon.cli("apply", self.name, other, "--check").stderr)
        self.assertEqual(self.daemon.cli("apply", self.name, self.local).stderr, b"")

    def test_apply_follows_no_link_out_of_the_directory(self):
        harness.make_repository(self.local, {"dir/a": "1\n"})
        self.create()
        self.inside("sh", "-c", "echo agent > dir/a; echo agent > dir/b")
        outside = self.daemon.directory / f"outside-{self.name}"
        outside.mkdir()
        (outside / "a").write_text("1\n")
        shutil.rmtree(self.local / "dir")
        (self.local / "dir").symlink_to(outside)
        refused = self.daemon.cli("apply", self.name, self.local, check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn(b"dir/b: its directory is a file or a link here", refused.stderr)
        self.assertEqual(contents(outside), {"a": ("file", False, b"1\n")})

    def test_files_that_the_user_cannot_read_are_refused_by_name(self):
        harness.make_repository(self.local, {"a": "1\n", "known/f": "1\n"})
        harness.run("mkdir", self.local / "new")
        (self.local / "new/x").write_text("x\n")
        harness.run("chown", "-R", "65534:65534", self.local)
        self.daemon.directory.chmod(0o711)
        self.daemon.socket.chmod(0o666)
        for name, reason in ("new", b"could not open directory 'new/'"), ("known", b"could not open directory 'known/'"), ("a", b'open("a")'):
            with self.subTest(name):
                mode = os.stat(self.local / name).st_mode & 0o777
                os.chmod(self.local / name, 0)
                (self.local / "a").write_text("changed\n")
                refused = self.daemon.cli("create", "--from", self.local, "--name", self.name, check=False, cwd="/",
                                          env={"HOME": "/nonexistent", "XDG_STATE_HOME": "/nonexistent"},
                                          user=65534, group=65534, extra_groups=[])
                os.chmod(self.local / name, mode)
                self.assertEqual(refused.returncode, 1, refused.stderr)
                self.assertIn(reason, refused.stderr)

    def test_many_files_that_cannot_be_read_are_counted(self):
        harness.make_repository(self.local)
        for number in range(30):
            (self.local / f"closed{number}").touch(0)
        harness.run("chown", "-R", "65534:65534", self.local)
        self.daemon.directory.chmod(0o711)
        self.daemon.socket.chmod(0o666)
        refused = self.daemon.cli("create", "--from", self.local, "--name", self.name, check=False, cwd="/", user=65534, group=65534, extra_groups=[],
                                  env={"HOME": "/nonexistent", "XDG_STATE_HOME": "/nonexistent"}).stderr
        self.assertEqual(refused.count(b"Permission denied"), 10, refused)
        self.assertIn(b" and 20 more\n", refused)

    def test_apply_into_a_read_only_directory_changes_nothing(self):
        harness.make_repository(self.local, {"d1/a": "1\n", "d2/a": "1\n"})
        state = self.daemon.directory / "state-of-other"
        state.mkdir()
        harness.run("chown", "-R", "65534:65534", self.local, state)
        self.daemon.directory.chmod(0o711)
        self.daemon.socket.chmod(0o666)
        other = {"env": {"HOME": "/nonexistent", "XDG_STATE_HOME": str(state)}, "user": 65534, "group": 65534, "extra_groups": [], "cwd": "/"}
        self.daemon.cli("create", "--from", self.local, "--name", self.name, **other)
        self.daemon.cli("exec", self.name, "--", "sh", "-c", "echo agent > d1/a; echo agent > d2/a", **other)
        (self.local / "d2").chmod(0o555)
        before = contents(self.local)
        refused = self.daemon.cli("apply", self.name, self.local, check=False, **other)
        self.assertIn(b"d2/a: Permission denied\n  hint: nothing was changed", refused.stderr)
        self.assertEqual(contents(self.local), before)

    def test_apply_names_what_is_in_the_way_of_a_directory_that_became_a_file(self):
        harness.make_repository(self.local, {"dir/a": "1\n", "dir/sub/b": "1\n", ".gitignore": "*.o\n"})
        (self.local / "dir/sub/x.o").write_text("mine\n")
        self.create()
        self.inside("sh", "-c", "rm -r dir; echo agent > dir; echo agent > other")
        before = contents(self.local)
        refused = self.daemon.cli("apply", self.name, self.local, check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn(b"dir: is a directory here with dir/sub/x.o, which the workspace does not have", refused.stderr)
        self.assertEqual(contents(self.local), before)
        (self.local / "dir/sub/x.o").unlink()
        self.daemon.cli("apply", self.name, self.local)
        self.assertEqual(contents(self.local)["dir"], ("file", False, b"agent\n"))

    def test_apply_trusts_no_plan_that_lies_in_the_directory(self):
        harness.make_repository(self.local, {"a": "1\n", ".moorage-apply/plan": b"new.0\0a\0", ".moorage-apply-1/plan": b"new.0\0a\0"})
        self.create()
        self.inside("sh", "-c", "echo agent > b; mkdir .moorage-apply-2; echo x > .moorage-apply-2/old.0")
        before = contents(self.local)
        self.daemon.cli("apply", self.name, self.local)
        self.assertEqual(contents(self.local),
                         before | {"b": ("file", False, b"agent\n"), ".moorage-apply-2/old.0": ("file", False, b"x\n")})

    def test_a_killed_apply_is_undone_by_the_next(self):
        harness.make_repository(self.local, {"a": "1\n", "b": "1\n"})
        self.create()
        self.inside("sh", "-c", "echo agent > a; rm b; echo agent > c")
        # As a program leaves it that was killed after it moved a away and put its successor there.
        waiting = self.local / ".moorage-apply-123456"
        waiting.mkdir(0o700)
        status = os.stat(self.local)
        plan = self.daemon.directory / "state/moorage/apply" / f"{status.st_dev}-{status.st_ino}"
        plan.parent.mkdir(parents=True, exist_ok=True)
        plan.write_bytes(b".moorage-apply-123456\0" b"new.0\0a\0" b"\0b\0" b"new.2\0c\0")
        (self.local / "a").rename(waiting / "old.0")
        (self.local / "b").rename(waiting / "old.1")
        (self.local / "a").write_text("agent\n")
        (waiting / "new.2").write_text("agent\n")
        self.daemon.cli("apply", self.name, self.local, "--check")
        self.assertEqual(contents(self.local), {"a": ("file", False, b"1\n"), "b": ("file", False, b"1\n")})
        self.daemon.cli("apply", self.name, self.local)
        self.assertEqual(contents(self.local), {"a": ("file", False, b"agent\n"), "c": ("file", False, b"agent\n")})

    def make_ignored(self):
        """A tree like node_modules, and ignored files of other kinds."""
        harness.make_repository(self.local, {".gitignore": "node_modules/\n*.pem\n/current\n", "src/a.c": "1\n"})
        modules = self.local / "node_modules"
        for number in range(2000):
            path = modules / f"package-{number % 100}" / "lib" / f"{number}.js"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"module {number}\n")
        (modules / ".bin").mkdir()
        (modules / ".bin/run").symlink_to("../package-1/lib/1.js")
        (modules / "package-1/lib/1.js").chmod(0o755)
        os.utime(modules / "package-1/lib/1.js", (10**9, 10**9))
        os.utime(modules / "package-1", (10**9, 10**9))
        harness.make_repository(modules / "nested", {"n": "1\n"})
        with open(modules / "holes", "wb") as file:
            file.truncate(64 << 20)
        (self.local / "keys/deep").mkdir(parents=True, mode=0o700)
        (self.local / "keys/deep/one.pem").write_text("secret\n")
        (self.local / "keys/deep/one.pem").chmod(0o600)
        (self.local / "src/two.pem").write_text("secret\n")
        (self.local / "current").symlink_to("src")

    def test_ignored_files_come_along_on_request_and_stay_ignored(self):
        self.make_ignored()
        self.create()
        self.assertEqual(self.inside("sh", "-c", "ls node_modules src/two.pem current 2> /dev/null", check=False), b"")
        self.daemon.cli("rm", self.name, "--purge")
        notes = self.daemon.cli("create", self.local, "--ignored", "--name", self.name).stderr.decode()
        self.assertNotIn("stay here", notes.replace("settings", ""))
        arrived = self.daemon.directory / f"arrived-{self.name}"
        self.daemon.cli("cp", f"{self.name}:/workspace", arrived)
        self.assertEqual(contents(arrived), contents(self.local))
        self.assertEqual(self.inside("git", "-C", "node_modules/nested", "log", "--format=%s").count(b"\n"), 1)
        self.assertEqual(self.inside("stat", "-c", "%a %Y", "node_modules/package-1/lib/1.js", "node_modules/package-1"), b"755 1000000000\n755 1000000000\n")
        self.assertEqual(self.inside("stat", "-c", "%a", "keys", "keys/deep", "keys/deep/one.pem"), b"755\n700\n600\n")
        self.assertLess(int(self.inside("stat", "-c", "%b", "node_modules/holes")), 100)
        self.assertEqual(self.inside("git", "status", "--porcelain"), b"")
        self.assertEqual(self.daemon.cli("diff", self.name).stdout, b"")
        self.assertEqual(self.client.workspace(self.name)["changes"]["files"], 0)

    def test_make_builds_inside_what_it_would_build_here(self):
        recipe = "all: $(addsuffix .o,a b c)\n%.o: %.c\n\tcp $< $@\n"
        harness.make_repository(self.local, {".gitignore": "*.o\n", "Makefile": recipe, "a.c": "1\n", "b.c": "1\n", "c.c": "1\n"})
        long_ago = time.time() - 3600
        for name in ("Makefile", "a.c", "b.c", "c.c"):
            os.utime(self.local / name, (long_ago, long_ago))
        harness.run("make", cwd=self.local)
        later = time.time() + 60
        for name in ("b.c", "c.c"):
            (self.local / name).write_text("2\n")
            os.utime(self.local / name, (later, later))
        harness.git(self.local, "commit", "-qm", "two", "b.c")
        here = harness.run("make", "-n", cwd=self.local).stdout
        self.assertEqual(here, b"cp b.c b.o\ncp c.c c.o\n")
        self.daemon.cli("create", "--from", self.local, "--ignored", "--name", self.name)
        self.assertEqual(self.inside("make", "-n"), here)
        self.assertEqual((self.inside("git", "status", "--porcelain"), self.daemon.cli("diff", self.name).stdout), (b" M c.c\n", b""))

    def test_ignored_files_are_there_when_run_starts_its_command(self):
        harness.make_repository(self.local, {".gitignore": "*.o\nbuilt/\n"})
        (self.local / "a.o").write_text("built\n")
        (self.local / "b.o").touch()
        (self.local / "b.o").chmod(0o4755)
        (self.local / "built").mkdir()
        os.mkfifo(self.local / "built/pipe")
        ran = self.daemon.cli("run", "--rm", "--from", self.local, "--ignored", "--", "cat", "a.o")
        self.assertEqual(ran.stdout, b"built\n")
        self.assertRegex(ran.stderr, rb"copied without setuid, setgid and sticky bits: \S*b\.o\n")
        self.assertIn(b"ignored pipes, sockets and devices stay here: 1\n", ran.stderr)
        self.assertIn(b"--ignored needs a local directory", self.daemon.cli("create", self.url, "--ignored", check=False).stderr)

    def test_files_that_only_the_users_own_patterns_ignore_are_named(self):
        harness.make_repository(self.local, {".gitignore": "*.o\n"})
        (self.local / ".git/info/exclude").write_text(".env\n")
        (self.local / ".env").write_text("mine\n")
        (self.local / "a.o").write_text("built\n")
        notes = self.daemon.cli("create", "--from", self.local, "--ignored", "--name", self.name).stderr
        self.assertIn(b"ignored by your own patterns alone, left out: .env; moorage cp brings them", notes)
        self.assertEqual(self.inside("ls", "-A"), b".git\n.gitignore\na.o\n")

    def test_an_ignored_file_that_cannot_be_read_is_named_and_the_rest_comes(self):
        harness.make_repository(self.local, {".gitignore": "*.o\nbuilt/\n"})
        (self.local / "built").mkdir()
        for path in ("a.o", "built/closed", "z.o"):
            (self.local / path).write_text("built\n")
        (self.local / "built/closed").chmod(0)
        harness.run("chown", "-R", "65534:65534", self.local)
        self.daemon.directory.chmod(0o711)
        self.daemon.socket.chmod(0o666)
        nobody = {"check": False, "cwd": "/", "user": 65534, "group": 65534, "extra_groups": [],
                  "env": {"HOME": "/nonexistent", "XDG_STATE_HOME": "/nonexistent"}}
        refused = self.daemon.cli("create", "--from", self.local, "--ignored", "--name", self.name, **nobody)
        self.assertEqual(refused.returncode, 1)
        self.assertRegex(refused.stderr.decode(), rf"{self.name} is ready, but lacks ignored files: built/ \(.*closed.*Permission denied\)")
        again = f"moorage cp {self.local}/built {self.name}:"
        self.assertIn(f"copy each again: {again}\n", refused.stderr.decode())
        (self.local / "built/closed").chmod(0o644)
        self.daemon.cli(*again.split()[1:], **{**nobody, "check": True})
        listed = self.daemon.cli("exec", self.name, "--", "sh", "-c", "cat a.o built/closed z.o", **{**nobody, "check": True})
        self.assertEqual(listed.stdout, b"built\n" * 3)
        gone = self.daemon.cli("run", "--rm", "--from", self.local, "--ignored", "--name", self.name + "r", "--", "true", **nobody)
        self.assertEqual(gone.returncode, 0, gone.stderr)
        (self.local / "built/closed").chmod(0)
        gone = self.daemon.cli("run", "--rm", "--from", self.local, "--ignored", "--name", self.name + "s", "--", "true", **nobody)
        self.assertIn(b"the workspace is deleted", gone.stderr)
        self.assertNotIn(self.name + "s", self.daemon.cli("ls", **nobody).stdout.decode())


if __name__ == "__main__":
    unittest.main()
