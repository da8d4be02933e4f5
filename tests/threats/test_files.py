"""Attacks of an agent's files on their readers through the API or the CLI: rows 32 to 35."""

import json
import os
import pathlib
import stat
import time
import unittest

from threat import Threats, harness, threat

# Names and contents that may mislead a terminal, a page or a parser.
PAYLOADS = ["a\nb", "\x1b]0;owned\x07", "\x1b[2J", "\x1b]52;c;b3duZWQ=\x07", "\x9b31m", "\x90q", "caf\xe9", "\u202egnp.exe", "\u2066x\u2069", "\u200b", "\ufeff",
            "<script>window.pwned=1</script>", "<img src=x onerror=window.pwned=1>", "\"><svg onload=window.pwned=1>", "';window.pwned=1//",
            "{{constructor.constructor('window.pwned=1')()}}", "javascript:window.pwned=1", "</title><script>pwned", "&lt;b&gt;", "%3Cscript%3E",
            "-rf", "--help", "-", "--", " ", "  x", "x ", ".", "...", "..x", "~", "$(touch pwned)", "`touch pwned`", ";touch pwned", "|touch pwned",
            "a\tb", "a\rb", "a\x08b", "a\x00b", "a\x7fb", "a\\b", "*", "?", "[a-z]", "n" * 255, "\xff\xfe", "\ud7ff", "e\u0301", "CON", "a:b"]


class Files(Threats):
    def refusal(self, client, name, path):
        """The error of a read, or the bytes."""
        try:
            return client.read_file(name, path)
        except harness.raw_api.ApiError as error:
            self.assertLess(error.status, 500, f"{path}: {error.message}")
            return error.code

    @threat(32, "C", "links, hard links, .., absolute and magic paths, FIFOs, devices, sockets, sparse files of 8 EiB, /proc/self/root",
            "the kernel resolves them inside the tree, without blocking, for regular files only, with true sizes",
            "a daemon whose openat2 resolves like the host follows the same link out")
    def test_hostile_paths_are_refused_at_once(self):
        target = self.canary
        self.sh(f"mkdir -p d; ln -s {target} absolute; ln -s {'../' * 20}{str(target)[1:]} relative; ln -s {target.parent} d/out; mkfifo fifo; "
                "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'; ln -s loop loop; ln -s /proc/self/root magic; "
                "ln -s /proc/1/cwd cwd; ln -s /dev/zero zero; ln -s /proc/kmsg kmsg; truncate -s 15T sparse; ln README.md hard")
        paths = ["absolute", "relative", f"d/out/{target.name}", "fifo", "socket", "loop", f"magic{target}", f"cwd{target}", "zero", "kmsg",
                 str(target), f"../{target}", f"{'../' * 30}{str(target)[1:]}", f"/proc/self/root{target}", "/proc/self/environ", "/dev/stdin",
                 "/etc/shadow", "/workspace/../etc/shadow", "/proc/self/fd/0", "d", "", "a" * 5000, "a/" * 3000, ".git/../../..", "\0"]
        begin = time.monotonic()
        for path in paths:
            answer = self.refusal(self.client, "jail", path)
            self.assertIsInstance(answer, str, path)
        self.assertLess(time.monotonic() - begin, 60, "something blocked")
        self.assertEqual(self.refusal(self.client, "jail", "hard"), b"hello\n")
        entry = next(e for e in self.client.list_files("jail")["entries"] if e["name"] == "sparse")
        self.assertEqual(entry["size_bytes"], 15 << 40)
        for path in ("absolute", "relative", f"d/out/{target.name}", "/etc/passwd", f"../../..{target}", "fifo"):
            try:
                self.client.write_file("jail", path, b"overwritten")
            except harness.raw_api.ApiError as error:
                self.assertLess(error.status, 500, error.message)
        self.assertEqual(target.read_text(), "the host's secret\n")
        self.assert_the_race_can_be_won()

    @threat(33, "H", "setuid programs, file capabilities and devices of the upper layer, run on the host",
            "ids on disk are outside of the host's, only root can enter the store, views are nosuid and nodev",
            "the same bits take effect on a file of host root")
    def test_setuid_files_inside_are_worthless_on_the_host(self):
        self.client.create(repo_url=self.url, name="setuid")
        self.sh("cp /bin/bash rootsh; chown root:root rootsh; chmod 6755 rootsh; cp /bin/true capable; "
                "python3 -c 'import os, struct; os.setxattr(\"capable\", \"security.capability\", struct.pack(\"<5I\", 0x2000001, 0xffffffff, 0xffffffff, 0, 0))'",
                name="setuid", user="root")
        found = {p.name: p for p in (self.daemon.store / "layers").rglob("*") if p.name in ("rootsh", "capable")}
        self.assertIn("rootsh", found)
        for path in found.values():
            info = path.lstat()
            self.assertGreaterEqual(min(info.st_uid, info.st_gid), 65536)
        if "capable" in found and "security.capability" in os.listxattr(found["capable"]):
            raw = os.getxattr(found["capable"], "security.capability")
            self.assertGreaterEqual(len(raw), 24, "version 3: worth something in one user namespace only")
            self.assertNotEqual(raw[20:24], b"\0\0\0\0")
        self.assertEqual(stat.S_IMODE(self.daemon.store.stat().st_mode), 0o700)
        other = harness.run("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", f"exec {found['rootsh']} -p -c 'id -u'",
                            check=False)
        self.assertNotEqual(other.returncode, 0)
        mounts = self.out("grep -E ' (/workspace|/home/user) ' /proc/self/mountinfo | cut -d' ' -f6", name="setuid").split()
        self.assertEqual([("nosuid" in m, "nodev" in m) for m in mounts], [(True, True)] * 2)
        self.assertEqual(self.sh("cp /bin/id myid; sudo chown root myid; sudo chmod 4755 myid; ./myid -u", name="setuid").stdout, b"1000\n")
        mine = self.daemon.directory / "rootid"
        mine.write_bytes(pathlib.Path("/usr/bin/id").read_bytes())
        mine.chmod(0o4755)
        control = harness.run("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", mine, "-u")
        self.assertEqual(control.stdout, b"0\n")
        self.client.delete("setuid", purge=True)

    @threat(34, "H", "names and output that attack terminals, pages and parsers: newlines, ESC, invalid UTF-8, direction marks, <script>, dashes",
            "bytes are stored unchanged; JSON is escaped and never served as a page; the CLI prints no control character",
            "cat prints the escape sequences of the same file")
    def test_fifty_payloads_are_data_everywhere(self):
        self.assertEqual(len(PAYLOADS), 50)
        self.client.create(repo_url=self.url, name="names")
        made, named = [], []
        for payload in PAYLOADS:
            raw = payload.encode("utf-8", "surrogateescape") if "\xff" not in payload else b"\xff\xfe"
            made.append(raw)
            if raw in (b".", b"...") or b"\0" in raw or b"/" in raw:
                continue  # not a valid file name
            named.append(raw)
            result = self.client.exec("names", ["python3", "-c", "import os, sys\nn = sys.stdin.buffer.read()\nos.makedirs(b'p', exist_ok=True)\n"
                                                "open(b'p/' + n, 'wb').write(n)"], stdin=raw)
            self.assertEqual(result.exit_code, 0, result.stderr)
        listed = self.client.list_files("names", "p")
        self.assertEqual(len(listed["entries"]), len(set(named)))
        outputs = {}
        for raw in made:
            result = self.client.exec("names", ["python3", "-c", "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"], stdin=raw)
            outputs[raw] = result.stdout
        self.assertEqual([raw for raw in made if outputs[raw] != raw], [])
        self.sh("git -c user.name='\x1b[31mX' -c user.email='<script>' commit -qam '\x1b]0;owned\x07<script>'; git branch -q 'x<script>'", name="names")

        texts = [self.daemon.cli(*words, check=False) for words in
                 (["ls"], ["show", "names"], ["status", "names"], ["diff", "--stat", "names"], ["ps", "-a"], ["ps"], ["cp", "names:p/none", "/tmp/none"],
                  ["exec", "names", "\x1b[31mnope"], ["files", "names", "p"])]
        for result in texts:
            for text in (result.stdout, result.stderr):
                shown = text.decode("utf-8")  # valid, whatever the names
                bad = {c for c in shown if (ord(c) < 32 and c not in "\n\t") or 0x7f <= ord(c) <= 0x9f or c in "\u202e\u2066\u2069\u200b\ufeff"}
                self.assertEqual(bad, set(), (result.args, shown))
        for path in ("/v1/workspaces", "/v1/workspaces/names", "/v1/workspaces/names/files?path=p", "/v1/workspaces/names/status", "/v1/workspaces/<script>"):
            headers, body = self.raw(path)
            self.assertRegex(headers["content-type"], r"^application/json")
            self.assertEqual(headers["x-content-type-options"], "nosniff")
            json.loads(body)
        for path in ("/v1/workspaces/names/file?path=p/%26lt;b%26gt;", "/v1/workspaces/names/diff"):
            headers, _ = self.raw(path)
            self.assertNotRegex(headers["content-type"], r"html|xml|svg")
            self.assertEqual(headers["x-content-type-options"], "nosniff")
        escapes = self.daemon.directory / "escapes"
        escapes.write_bytes(b"\x1b[31m")
        self.assertIn(b"\x1b", harness.run("cat", escapes).stdout)
        self.client.delete("names", purge=True)

    def raw(self, path):
        result = harness.run("curl", "-s", "-i", "--unix-socket", self.daemon.socket, "http://localhost" + path)
        head, _, body = result.stdout.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")[1:]
        return {k.lower(): v for k, v in (l.split(": ", 1) for l in lines)}, body

    @threat(35, "M", "directories 3,000 deep, 100,000 entries in one, a million in all",
            "walks use descriptors without recursion, stop at a limit, and are marked as truncated; the daemon's memory stays bounded",
            "the shell itself fails on this tree (ENAMETOOLONG)")
    def test_walks_of_deep_and_wide_trees_are_limited(self):
        self.client.create(repo_url=self.url, name="deep")
        make = ("import os\nfor i in range(3000):\n  os.mkdir('d'); os.chdir('d')\nopen('end', 'w')\nos.chdir('/workspace')\nos.mkdir('wide')\n"
                "for i in range(100000): os.close(os.open('wide/%d' % i, os.O_CREAT | os.O_WRONLY))\n"
                # Hard links to few files: a million names without a million inodes. Fewer under an emulator.
                f"for d in range({max(2, 18 // harness.PATIENCE)}):"
                "\n  os.makedirs('many/%d' % d); os.close(os.open('many/%d/0' % d, os.O_CREAT | os.O_WRONLY))\n"
                "  for i in range(1, 50000): os.link('many/%d/0' % d, 'many/%d/%d' % (d, i))\n")
        self.python(make, name="deep", user="user")
        deepest = self.sh("cat /workspace/" + "d/" * 3000 + "end", name="deep")
        self.assertNotEqual(deepest.exit_code, 0)
        peak = self.peak()
        for verb in (self.client.diff_stat, self.client.status, self.client.diff):
            try:
                answer = verb("deep")
            except harness.raw_api.ApiError as error:
                self.assertIn("too many", error.message)  # a patch has a limit; a count is capped
                continue
            self.assertTrue(answer)
        self.assertTrue(self.client.status("deep")["truncated"])
        listed = self.client.list_files("deep", "wide")
        self.assertTrue(len(listed["entries"]) == 100_000 or listed.get("truncated"))
        self.assertIn(self.refusal(self.client, "deep", "d/" * 3000 + "end"), ("invalid_argument", "not_found"))
        if not harness.SANITIZED:
            self.assertLess(self.peak() - peak, 512 << 20)
        self.client.delete("deep", purge=True)
        harness.wait_until(lambda: not list((self.daemon.store / "layers").glob("*/upper/*/")), 120, "the tree is gone")

    def peak(self):
        status = pathlib.Path(f"/proc/{self.daemon.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) << 10


if __name__ == "__main__":
    unittest.main()
