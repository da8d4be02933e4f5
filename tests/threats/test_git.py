"""Attacks of a repository on the fetching host, and of an agent's .git on its readers: rows 24 to 31."""

import hashlib
import os
import pathlib
import shutil
import subprocess
import unittest

from threat import Threats, harness, threat

CONFIG = """
[core]
  fsmonitor = touch {m}; true
  sshCommand = touch {m}
  pager = touch {m}; cat
  hooksPath = {hooks}
  editor = touch {m}
  gitProxy = touch {m}
[diff]
  external = touch {m}
[diff "evil"]
  textconv = touch {m}; cat
[filter "evil"]
  clean = touch {m}; cat
  smudge = touch {m}; cat
  process = touch {m}
  required = true
[gpg]
  program = touch {m}
[commit]
  gpgSign = true
[credential]
  helper = !touch {m}
[uploadpack]
  packObjectsHook = touch {m}
[alias]
  status = !touch {m}
[include]
  path = {m}.include
[remote "origin"]
  url = ext::touch {m}
  uploadpack = touch {m}
[protocol "ext"]
  allow = always
"""

URLS = ["ext::sh -c 'touch {m}'", "ext::touch {m}", "fd::17", "-oProxyCommand=touch {m}", "--upload-pack=touch {m}",
        "ssh://-oProxyCommand=touch${{IFS}}{m}/x", "ssh://git@-oProxyCommand=touch/x", "git@-oProxyCommand=touch:x", "file:///etc",
        "file:///proc/self/root", "/etc", "../..", "https://user:pass@127.0.0.1/x", "https://127.0.0.1/x\n", "https://127.0.0.1/x\r\ny",
        "https://127.0.0.1/\0x", "https://127.0.0.1/a/../b", "https://127.0.0.1/%2e%2e/b", "git://127.0.0.1/x y", "git://127.0.0.1:0/x",
        "http://127.0.0.1/$(touch {m})", "`touch {m}`", "git://127.0.0.1/-u/x", "transport::https://127.0.0.1/x", "javascript://alert(1)"]


def object_of(repository, kind, content):
    raw = subprocess.run(["git", "-C", repository, "hash-object", "-w", "-t", kind, "--literally", "--stdin"], input=content,
                         capture_output=True, check=True)
    return raw.stdout.decode().strip()


def entry(mode, name, oid):
    return f"{mode} {name}\0".encode("utf-8", "surrogateescape") + bytes.fromhex(oid)


def hostile_trees(repository):
    """name -> tree. Each is the tree of a CVE, or a name that means .git on some file system."""
    blob = object_of(repository, "blob", b"[core]\n\tfsmonitor = touch /evil\n")
    out = object_of(repository, "blob", b"../../../../../../../../tmp")
    modules = object_of(repository, "blob", b'[submodule "a\\r"]\n\tpath = "a\r"\n\turl = ext::touch%20evil\n')
    escape = object_of(repository, "blob", b'[submodule "x/../../hooks"]\n\tpath = x\n\turl = -u./evil\n')
    inner = object_of(repository, "tree", entry("100644", "config", blob))
    trees = {name: entry("100644", name, blob) for name in
             (".git", ".GIT", "git~1", ".git.", ".git ", ".g\u200cit", ".git::$INDEX_ALLOCATION", "..", ".", ".git\\config", "a/b", "n" * 300)}
    trees["directory .git"] = entry("40000", ".git", inner)
    trees["directory .GiT (CVE-2014-9390)"] = entry("40000", ".GiT", inner)
    trees["link .gitmodules (CVE-2018-11235)"] = entry("120000", ".gitmodules", out)
    trees["link and directory of one name (CVE-2021-21300)"] = entry("120000", "A", out) + entry("40000", "A", inner)
    trees["file and directory of one name"] = entry("100644", "a", blob) + entry("40000", "a", inner)
    trees["submodule with a carriage return (CVE-2025-48384)"] = entry("100644", ".gitmodules", modules) + entry("160000", "a\r", "1" * 40)
    trees["submodule name that climbs (CVE-2018-17456)"] = entry("100644", ".gitmodules", escape) + entry("160000", "x", "1" * 40)
    trees["submodule in a linked directory (CVE-2024-32002)"] = (entry("100644", ".gitmodules", modules) + entry("120000", "A", out)
                                                                 + entry("160000", "a", "1" * 40))
    return {name: object_of(repository, "tree", raw) for name, raw in trees.items()}


class Git(Threats):
    def setUp(self):
        self.marker = self.daemon.directory / "marker"
        self.marker.unlink(missing_ok=True)
        self.addCleanup(lambda: self.assertFalse(self.marker.exists()))

    def every_verb(self, name):
        """Runs all verbs of the daemon on a workspace's tree, ignoring errors."""
        for verb in (self.client.diff, self.client.diff_stat, self.client.status, self.client.workspace, self.client.list_files,
                     self.client.stop, self.client.start, self.client.delete, self.client.undelete):
            try:
                verb(name)
            except harness.raw_api.ApiError as error:
                self.assertLess(error.status, 500, error.message)
        self.client.create(repo_url=self.url, name=name + "-next")
        self.client.delete(name + "-next")

    @threat(24, "C", "fsmonitor, sshCommand, pager, hooks, filters, textconv, gpg, credential.helper, alias in an agent's .git",
            "the host runs no git in an agent's tree and reads none of its configuration; no marker appears",
            "plain git status and diff as host root, in the same tree, leave the marker")
    def test_an_agents_git_configuration_runs_nothing_on_the_host(self):
        self.client.create(repo_url=self.url, name="evil")
        config = CONFIG.format(m=self.marker, hooks="/workspace/hooks")
        self.client.write_file("evil", ".git/config", config.encode())
        self.client.write_file("evil", ".gitattributes", b"* filter=evil diff=evil\n")
        self.client.write_file("evil", ".git/info/attributes", b"* filter=evil diff=evil\n")
        self.client.write_file("evil", "README.md", b"changed\n")
        self.sh("mkdir -p .git/hooks", name="evil")
        for hook in ("post-checkout", "pre-commit", "fsmonitor-watchman", "reference-transaction", "post-index-change"):
            self.client.write_file("evil", f".git/hooks/{hook}", f"#!/bin/sh\ntouch {self.marker}\n".encode(), mode="0755")
        self.every_verb("evil")
        self.assertFalse(self.marker.exists())

        control = self.daemon.directory / "control"
        harness.git(self.daemon.directory, "clone", "-q", str(self.upstream / "acme" / "shop"), str(control))
        (control / ".git/config").write_text(config)
        (control / "README.md").write_text("changed\n")
        harness.run("git", "-C", control, "status", check=False, env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"})
        self.assertTrue(self.marker.exists())
        self.marker.unlink()
        self.client.delete("evil", purge=True)

    @threat(25, "C", "alternates, a .git file, commondir, worktrees or objects as links to the host's repositories",
            "the host follows none of them: it reads the base only from its own mirror",
            "plain git follows the same gitdir: and shows the host's commit")
    def test_redirected_git_directories_reveal_nothing(self):
        secret = self.daemon.directory / "secret"
        harness.make_repository(secret, {"token.txt": "the secret of the host\n"})
        self.client.create(repo_url=self.url, name="redirect")
        gitdir = f"gitdir: {secret}/.git\n"
        for script in (f"rm -rf .git; echo '{gitdir.strip()}' > .git",
                       f"rm -rf .git; ln -s {secret}/.git .git",
                       f"rm -rf .git; mkdir .git; echo 'ref: refs/heads/main' > .git/HEAD; echo {secret}/.git > .git/commondir; ln -s {secret}/.git/objects .git/objects",
                       f"rm -rf .git; mkdir -p .git/objects/info .git/refs; echo {secret}/.git/objects > .git/objects/info/alternates; ln -s {secret}/.git/index .git/index"):
            self.sh(script, name="redirect")
            for answer in (lambda: self.client.diff("redirect"), lambda: str(self.client.status("redirect")).encode(),
                           lambda: str(self.client.list_files("redirect")).encode(), lambda: str(self.client.workspace("redirect")).encode()):
                try:
                    text = answer()
                except harness.raw_api.ApiError as error:
                    text = error.message.encode()
                self.assertNotIn(b"token.txt", text)
                self.assertNotIn(b"the secret of", text)
        control = self.daemon.directory / "follow"
        control.mkdir()
        (control / ".git").write_text(gitdir)
        self.assertIn("token.txt", harness.git(control, "ls-files"))
        self.client.delete("redirect", purge=True)

    @threat(26, "H", "a repository of another user, trusted because root reads it (CVE-2022-24765)",
            "a local repository of another id is refused by name; a mirror of another id is set aside and fetched again",
            "the same repository is accepted if root owns it")
    def test_repositories_of_other_users_are_refused(self):
        other = self.daemon.directory / "theirs"
        harness.make_repository(other)
        harness.run("chown", "-R", "12345:12345", other)
        with self.assertRaises(harness.raw_api.ApiError) as refused:
            self.client.create(repo_url=f"file://{other}", name="theirs")
        self.assertLess(refused.exception.status, 500)
        self.assertIn("user", refused.exception.message + refused.exception.hint)
        harness.run("chown", "-R", "0:0", other)
        self.client.create(repo_url=f"file://{other}", name="ours")
        repository = next(r["id"] for r in self.client.repos() if "theirs" in r["url"])
        mirror = self.daemon.store / "repos" / repository / "git"
        harness.run("chown", "-R", "12345:12345", mirror)
        self.daemon.restart()
        harness.commit(other, "more", "x")
        self.client.create(repo_url=f"file://{other}", name="again")
        self.assertEqual((mirror.stat().st_uid, (mirror / "objects").stat().st_uid), (0, 0))
        for name in ("ours", "again"):
            self.client.delete(name, purge=True)

    @threat(27, "C", "trees and submodules made to write into .git or outside (CVE-2024-32002, -32004, -32465, 2025-48384)",
            "fsck on every fetch, no submodule is cloned on the host, names that mean .git on any file system are refused",
            "git without fsck accepts each of the twenty objects")
    def test_twenty_hostile_repositories(self):
        source = self.upstream / "acme" / "hostile"
        harness.make_repository(source)
        trees = hostile_trees(source)
        self.assertEqual(len(trees), 20)
        before = sorted(os.listdir("/tmp"))
        refused = 0
        for number, (name, tree) in enumerate(trees.items()):
            commit = harness.git(source, "commit-tree", "-m", "x", tree)
            bare = self.upstream / "acme" / f"hostile-{number}"
            shutil.copytree(source / ".git", bare)
            harness.git(bare, "config", "core.bare", "true")
            harness.git(bare, "update-ref", "refs/heads/main", commit)
            try:
                made = self.client.create(repo_url=self.git_server.url(f"acme/hostile-{number}"), name=f"hostile-{number}")
                inside = self.out("ls -A; ls -A .git/hooks 2>/dev/null; cat .git/config", name=made["name"])
                self.assertNotIn("fsmonitor", inside, name)
                self.client.delete(made["name"], purge=True)
            except harness.raw_api.ApiError as error:
                self.assertLess(error.status, 500, f"{name}: {error.message}")
                refused += 1
            self.assertFalse(os.path.exists("/evil"), name)
            # The control: without checks these objects can be transferred.
            clone = self.daemon.directory / f"clone-{number}"
            harness.git(self.daemon.directory, "-c", "fetch.fsckObjects=false", "clone", "-q", "--bare", str(bare), str(clone))
            self.assertEqual(harness.git(clone, "rev-parse", "main"), commit)
            shutil.rmtree(clone)
        self.assertGreaterEqual(refused, 17)
        self.assertEqual([n for n in sorted(os.listdir("/tmp")) if n not in before and n == "config"], [])

    @threat(28, "C", "ext::, fd::, -oProxyCommand, --upload-pack, file://, control characters and passwords in a URL",
            "only https, ssh and git with host and path, and file below configured roots; everything else is refused, and nothing runs",
            "git itself runs the first of them if allowed")
    def test_hostile_urls_are_refused_before_git_sees_them(self):
        for url in (u.format(m=self.marker) for u in URLS):
            for call in (lambda: self.client.create(repo_url=url, name="never"), lambda: self.client.add_repo(url)):
                with self.assertRaises(harness.raw_api.ApiError, msg=url) as refused:
                    call()
                self.assertIn(refused.exception.status, (400, 403, 422, 501), (url, refused.exception.message))
                self.assertNotIn("pass@", refused.exception.message)
            if "\0" in url or os.path.isdir(url):
                continue  # impossible in a command line; the command line reads a directory with the caller's rights
            result = self.daemon.cli("create", url, check=False)
            self.assertNotEqual(result.returncode, 0, url)
        self.assertFalse(self.marker.exists())
        harness.run("git", "-c", "protocol.ext.allow=always", "ls-remote", f"ext::touch {self.marker}", check=False)
        self.assertTrue(self.marker.exists())
        self.marker.unlink()

    @threat(30, "M", "huge or cyclic .gitattributes and .gitmodules, names like .GIT, git~1 or with a trailing dot",
            "a checkout ends in bounded memory, or names the refused path (for names see row 27)",
            "the daemon's memory is measured; git itself gives up on files of this size")
    def test_huge_attribute_files_end_in_bounded_memory(self):
        source = self.upstream / "acme" / "monstrous"
        files = {".gitattributes": "".join(f"p{i}* a{i}=v{i} -text\n" for i in range(200_000)), "p1.txt": "x\n",
                 ".gitmodules": "".join(f'[submodule "s{i}"]\n\tpath = s{(i + 1) % 1000}\n\turl = ./s{i}\n' for i in range(1000))}
        for depth in range(60):
            files["/".join(["d"] * (depth + 1)) + "/.gitattributes"] = "* text=auto\n[attr]x x y\n[attr]y x\n* x\n"
        harness.make_repository(source, files)
        before = self.daemon_rss()
        self.client.create(repo_url=self.git_server.url("acme/monstrous"), name="monstrous")
        self.assertEqual(self.out("cat p1.txt; git ls-files | wc -l", name="monstrous"), f"x\n{len(files)}")
        self.client.diff("monstrous")
        if not harness.SANITIZED:
            self.assertLess(self.daemon_rss() - before, 256 << 20)
        self.client.delete("monstrous", purge=True)

    def daemon_rss(self):
        status = pathlib.Path(f"/proc/{self.daemon.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) << 10

    @threat(31, "C", "the shared cache poisoned by an agent that writes objects into it",
            "the mirror's objects are read-only and owned by root; their hashes stay the same",
            "host root writes the same file")
    def test_the_mirror_cannot_be_written_from_inside(self):
        def objects():
            found = {}
            for path in sorted((self.daemon.store / "repos").glob("*/git/objects/**/*")):
                if path.is_file():
                    found[path] = hashlib.sha256(path.read_bytes()).hexdigest()
            return found

        before = objects()
        self.assertTrue(before)
        place = self.out("cat .git/objects/info/alternates").split("\n")[0]
        self.assertTrue(place)
        script = f"cd {place} || exit 9; n=0; for f in $(find . -type f) ; do (echo x > $f) && n=1; chmod 777 $f && n=1; rm -f $f && n=1; done; " \
                 "touch new && n=1; mkdir aa && n=1; mount -o remount,rw . && n=1; echo wrote $n"
        for user in ("user", "root"):
            self.assertEqual(self.out(script, user=user).split("\n")[-1], "wrote 0")
        self.sh("git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x; git gc -q --prune=now; git repack -adq; git prune")
        self.assertEqual(objects(), before)
        some = next(iter(before))
        mode = some.stat().st_mode
        some.chmod(0o600)
        os.close(os.open(some, os.O_WRONLY))
        some.chmod(mode)


if __name__ == "__main__":
    unittest.main()
