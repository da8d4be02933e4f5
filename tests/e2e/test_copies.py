"""`moorage cp` keeps times, modes and holes, and a copied repository works."""

import os
import pathlib
import shutil
import subprocess

import harness

TIMES = {"old": 1_000_000_000_123_456_789, "small": 1_600_000_000_000_000_001, "before": -1_500_000_000}


class Copies(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client.create(repo_url=cls.url, name="cp")
        cls.place = cls.daemon.directory / "here"
        cls.place.mkdir()

    def cp(self, *words, **options):
        return self.daemon.cli("cp", *words, cwd=self.place, **options)

    def make_tree(self, name):
        """With times, modes, links and a file of 64 MiB that takes some blocks."""
        tree = self.place / name
        (tree / "sub/empty").mkdir(parents=True)
        for file, ns in TIMES.items():
            (tree / "sub" / file).write_text(file)
            os.utime(tree / "sub" / file, ns=(ns, ns))
        with open(tree / "holes", "wb") as file:
            file.write(b"begin")
            file.seek(32 << 20)
            file.write(b"middle")
            file.truncate(64 << 20)
        (tree / "link").symlink_to("sub/old")
        os.utime(tree / "link", ns=(5_000_000_007, 5_000_000_007), follow_symlinks=False)
        os.chmod(tree / "sub/small", 0o640)
        os.chmod(tree / "sub/empty", 0o700)
        for directory in ("sub/empty", "sub", "."):
            os.utime(tree / directory, ns=(1_234_567_890_000_000_042, 1_234_567_890_000_000_042))
        return tree

    def state(self, tree):
        found = {}
        for path in sorted([tree, *tree.rglob("*")]):
            status = path.lstat()
            found[str(path.relative_to(tree))] = (status.st_mode, status.st_mtime_ns, status.st_size if path.is_file() else None)
        return found

    def inside(self, script):
        result = self.client.exec("cp", ["sh", "-c", script])
        self.assertEqual(result.exit_code, 0, result.stderr)
        return result.stdout.decode()

    def test_a_tree_keeps_times_modes_and_holes_there_and_back(self):
        tree = self.make_tree("tree")
        self.cp("tree", "cp:copied")
        seen = self.inside("cd copied; stat -c '%n %.9Y %a' sub/old sub/small sub sub/empty .; stat -c '%.9Y' link; stat -c '%s %b' holes")
        lines = seen.splitlines()
        self.assertEqual(lines[:6], ["sub/old 1000000000.123456789 644", "sub/small 1600000000.000000001 640", "sub 1234567890.000000042 755",
                                     "sub/empty 1234567890.000000042 700", ". 1234567890.000000042 755", "5.000000007"])
        size, blocks = map(int, lines[6].split())
        self.assertEqual(size, 64 << 20)
        self.assertLess(blocks, 1024)
        self.cp("cp:copied", "back")
        self.assertEqual(self.state(self.place / "back"), self.state(tree))
        self.assertEqual((self.place / "back/holes").read_bytes(), (tree / "holes").read_bytes())
        self.assertLess((self.place / "back/holes").stat().st_blocks, 1024)

    def test_one_file_keeps_time_mode_and_holes_there_and_back(self):
        tree = self.make_tree("single")
        for name in ("sub/small", "sub/before", "holes"):
            self.cp(f"single/{name}", "cp:one")
            self.cp("cp:one", "one")
            there, here = (tree / name).stat(), (self.place / "one").stat()
            self.assertEqual((here.st_mtime_ns, here.st_mode, here.st_size), (there.st_mtime_ns, there.st_mode, there.st_size))
            self.assertLess(here.st_blocks, 1024)
            os.unlink(self.place / "one")

    def test_modes_are_kept_exactly_and_lost_bits_are_named(self):
        tree = self.place / "modes"
        tree.mkdir()
        for mode in (0o000, 0o001, 0o200, 0o777, 0o4755, 0o2644):
            (tree / f"{mode:04o}").write_text("x")
            os.chmod(tree / f"{mode:04o}", mode)
        self.assertIn(b"setuid, setgid and sticky bits: modes/2644, modes/4755", self.cp("modes", "cp:modes").stderr)
        expected = {f"{mode:04o}": mode & 0o777 for mode in (0o000, 0o001, 0o200, 0o777, 0o4755, 0o2644)}
        seen = self.inside("cd modes; stat -c '%n %a' *; chmod 4755 4755").split()
        self.assertEqual({name: int(mode, 8) for name, mode in zip(seen[::2], seen[1::2], strict=True)}, expected)
        self.assertIn(b"setuid, setgid and sticky bits: modes/4755", self.cp("cp:modes", "modes-back").stderr)
        self.assertEqual({path.name: path.stat().st_mode & 0o7777 for path in (self.place / "modes-back").iterdir()}, expected)
        self.cp("modes/0000", "cp:closed")
        self.assertEqual(self.inside("stat -c %a closed"), "0\n")
        self.cp("cp:closed", "closed")
        self.assertEqual((self.place / "closed").stat().st_mode & 0o7777, 0)

    def test_a_refused_copy_leaves_the_file_that_it_would_replace(self):
        self.inside("ln -sf /etc/passwd abs; ln -sf loop loop; rm -f fifo; mkfifo fifo; mkdir -p full; ln -sf /etc/passwd full/abs")
        (self.place / "dir").mkdir()
        keep = self.place / "keep"
        for name in ("abs", "loop", "fifo", "missing", "full/abs", "/etc/passwd"):
            with self.subTest(name):
                for file in (keep, self.place / "dir" / pathlib.Path(name).name):
                    file.write_text("precious")
                self.assertEqual(self.cp(f"cp:{name}", "keep", check=False).returncode, 1)
                self.assertEqual(self.cp(f"cp:{name}", "dir", check=False).returncode, 1)
                self.assertEqual(self.cp(f"cp:{name}", "never", check=False).returncode, 1)
                self.assertEqual([file.read_text() for file in (keep, self.place / "dir" / pathlib.Path(name).name)], ["precious"] * 2)
                self.assertFalse((self.place / "never").exists())

    def test_a_copy_to_a_full_output_fails(self):
        self.inside("echo text > text")
        with open("/dev/full", "wb") as full:
            self.assertEqual(self.cp("cp:text", "-", check=False, stdout=full, capture_output=False, stderr=subprocess.DEVNULL).returncode, 1)
        self.assertEqual(self.cp("cp:text", "/dev/full", check=False).returncode, 1)

    def test_a_directory_is_not_copied_to_standard_output(self):
        refused = self.cp("cp:src", "-", check=False)
        self.assertEqual((refused.returncode, refused.stderr), (1, b"moorage: src is a directory\n  hint: moorage exec cp -- tar c src > FILE.tar\n"))

    def test_a_copy_of_a_checkout_has_the_remote_that_git_shows_inside(self):
        local = self.place / "checkout"
        harness.make_repository(local)
        for url, shown in ((None, ""), ("https://user:secret@git.example/acme/shop.git", "https://git.example/acme/shop.git\n")):
            with self.subTest(url):
                if url:
                    harness.git(local, "remote", "add", "origin", url)
                name = "from-url" if url else "from-none"
                self.daemon.cli("create", "--from", local, "--name", name)
                inside = self.client.exec(name, ["git", "config", "remote.origin.url"]).stdout.decode()
                self.cp(f"{name}:/workspace", name)
                copied = harness.git(self.place / name, "config", "remote.origin.url", check=False)
                self.assertEqual((inside, copied), (shown, shown.strip()))
                self.assertEqual(self.client.workspace(name)["repo"].get("origin", ""), shown.strip())

    def git(self, *words):
        return subprocess.run(["git", *words], cwd=self.place / "repo", capture_output=True, check=False, text=True,
                              env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"})

    def packs_sent(self):
        page = harness.run("curl", "-sS", "--unix-socket", self.daemon.socket, "http://localhost/metrics").stdout.decode()
        return sum(int(line.split()[-1]) for line in page.splitlines() if "requests_total" in line and "/objects" in line)

    def test_a_copied_repository_works_and_runs_nothing_of_the_agent(self):
        """Its configuration, hooks and .git files are the agent's, and git would run what they name."""
        self.inside("""
            git checkout -q -b topic; echo new > new.txt; git add new.txt; git commit -q -m topic; echo more >> new.txt; echo x > staged; git add staged
            git config core.fsmonitor 'touch /tmp/ran; touch ../ran'; git config alias.st '!touch ../ran'; git config remote.origin.uploadpack 'touch ../ran #'
            printf '#!/bin/sh\ntouch ../ran\n' > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout
            git clone -q . nested; git -C nested config core.fsmonitor 'touch ../../ran'; git worktree add -q -b wt wt
            mkdir evil fake; cp -r .git/. evil; echo 'gitdir: ../evil' > fake/.git
            mkdir -p -- ./-git/hooks; cp .git/hooks/post-checkout ./-git/hooks; git add -- ./-git/hooks/post-checkout
            LC_ALL=C sed -i 's|-git/hooks/post-checkout|.git/hooks/post-checkout|' .git/index
            mkdir -p broken/.git/objects/info; echo /.moorage/objects > broken/.git/objects/info/alternates
            for n in 1 2 3 4 5 6 7 8; do mkdir -p zz/$n/.git/objects/info zz/$n/.git/refs; cp .git/HEAD zz/$n/.git; echo /.moorage/objects > zz/$n/.git/objects/info/alternates; done""")
        before = self.packs_sent()
        result = self.cp("cp:/workspace", "repo")
        self.assertIn(b"without its configuration, hooks and index", result.stderr)
        self.assertIn(b"2 nested repositories without the objects borrowed inside: copy them alone", result.stderr)
        self.assertEqual(self.packs_sent() - before, 1)
        self.assertIn(b"2 .git files left out", result.stderr)
        status = self.git("status", "--porcelain", "--untracked-files=no")
        self.assertEqual((status.stdout, status.stderr), (" M new.txt\n", ""))
        self.assertEqual(self.git("log", "--format=%s").stdout, "topic\nfirst\n")
        self.assertEqual(self.git("fsck", "--full").returncode, 0)
        self.assertEqual(self.git("config", "remote.origin.url").stdout.strip(), self.url)
        self.assertEqual(self.git("show", "HEAD~1:README.md").stdout, "hello\n")
        self.assertEqual(self.git("-C", "nested", "log", "-1", "--format=%s").stdout, "topic\n")
        self.assertEqual(self.git("checkout", "--", ".").returncode, 0)
        self.assertEqual(self.git("checkout", "-q", "--detach", "HEAD~1", "-f").returncode, 0)
        self.assertEqual(sorted(os.listdir(self.place / "repo/.git/hooks")) if (self.place / "repo/.git/hooks").exists() else [], [])
        self.assertFalse((self.place / "ran").exists() or pathlib.Path("/tmp/ran").exists())

    def test_no_way_to_write_the_path_brings_what_a_git_directory_names(self):
        self.inside("printf '#!/bin/sh\n' > .git/hooks/post-checkout; mkdir -p sub; ln -sf .git link")
        (self.place / "copied").mkdir()
        for path in (".git", ".git/", ".git//", ".git/.", "sub/../.git", "/workspace/.git/", "/workspace//.git"):
            with self.subTest(path):
                self.cp(f"cp:{path}", "copied/.git")
                self.assertFalse((self.place / "copied/.git/hooks").exists())
                self.assertNotIn("hooks", (self.place / "copied/.git/config").read_text())
                shutil.rmtree(self.place / "copied")
                (self.place / "copied").mkdir()
        self.cp("cp:link", "copied/.git")
        self.assertFalse((self.place / "copied/.git/hooks").exists())


if __name__ == "__main__":
    harness.unittest.main()
