"""report: a workspace for a reviewer, as Markdown and as HTML, even if it is hostile."""

import contextlib
import html.parser
import json
import os
import re
import sqlite3
import time
import unittest

import harness

# Text of a workspace that tries to break out of a page, in names, output, messages and files.
HOSTILE = "</pre></code><script>alert(1)</script>|\"'><img src=x onerror=alert(1)>"
TAGS = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "pre", "code", "i", "dl", "dt", "dd", "div", "table", "thead",
        "tbody", "tr", "th", "td", "details", "summary", "footer"}


class Page(html.parser.HTMLParser):
    """Collects tags, attributes and text of a page; tags must be closed in order."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.open, self.words = set(), set(), [], []
        self.feed(page)
        self.close()
        if self.open:
            raise AssertionError(f"not closed: {self.open}")

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attributes)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        last = self.open.pop()
        if last != tag:
            raise AssertionError(f"</{tag}> where <{last}> is open")

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return "".join(self.words)


def without_blocks(page):
    """Markdown without its fenced blocks and code spans: the part that is rendered as markup."""
    kept, fence = [], None
    for line in page.split("\n"):
        ticks = re.match(r"(`{3,})", line)
        if fence is None and ticks:
            fence = ticks[1]
        elif fence is not None:
            fence = None if line == fence else fence
        else:
            kept.append(re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", line))
    assert fence is None, "a block that is not closed"
    return kept


class Report(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client.create(repo_url=cls.url, name="shop", labels={"task": "SHOP-1", "odd": "<b>|`x"})
        cls.inside("shop", "printf 'one\\ntwo\\n' >> README.md; echo .out > .gitignore; git add -A; "
                   "git commit -qm 'say more: `|<b>bold</b>'; mkdir .out; echo x > .out/built")
        cls.client.snapshot("shop", name="green", external_id="checkpoint <17>|`")
        cls.inside("shop", "printf '%s' \"$1\" > \"$(printf 'od\\033[31md`|\\342\\200\\256<i>.txt')\"; rm src/b.txt; git init -q inner", HOSTILE)
        cls.inside("shop", "printf '\\033[31mred\\033[0m %s\\n```\\n````\\n</details>\\n\\377\\n' \"$1\"; exit 3", HOSTILE)
        cls.client.exec("shop", ["no-such-program-here"])
        cls.client.fork("shop", count=2)
        cls.inside("shop-1", "echo forked > forked.txt")
        cls.inside("shop", "seq 1 20000; echo the very last line")

    @classmethod
    def inside(cls, name, command, *arguments):
        return cls.client.exec(name, ["sh", "-c", command, "sh", *arguments])

    def report(self, *argv, **options):
        return self.daemon.cli("report", *argv, **options).stdout.decode()

    def test_markdown_has_all_parts_for_a_reviewer(self):
        page = self.report("shop")
        base = self.client.workspace("shop")["base"]["commit"]
        titles = re.findall(r"^#+ (.*)$", "\n".join(without_blocks(page)), re.M)
        self.assertEqual(titles, ["Workspace shop", "Lineage", "Snapshots", "Commands", "Output", "Changes", "Patch", "Commits",
                                  "Not in this report"])
        for text in (base, "`task=SHOP-1`", "`acme/shop`", "| **Commands** | 5 ran, 2 failed |", "`moorage/shop`", "└─ ", "shop-1  (1/2)",
                     "| `green` |", "**exited 3**", "**exited 127 (not found)**",
                     "the very last line", "-b\n", "+two\n", "| `src/b.txt` | deleted |", "`inner/`"):
            self.assertIn(text, page)
        self.assertIn("say more", page.split("## Commits")[1])
        self.assertRegex(page, r"This is the end of \S+ of output; see all: `moorage logs ex_\d+`")
        self.assertRegex(page, r"The patch is complete: 4 files, \d+ bytes\.")
        patch = self.daemon.cli("diff", "shop", check=False).stdout  # 3: without the nested repository
        for line in patch.decode(errors="replace").split("\n"):
            if "\x1b" not in line and "\u202e" not in line:
                self.assertIn(line, page)

    def test_markdown_escapes_hostile_text(self):
        page = self.report("shop", "--full")
        for sign in ("\x1b", "\u202e", "\r", "\x00"):
            self.assertNotIn(sign, page)
        self.assertIn("red </pre></code><script>", page)  # inside its block
        self.assertIn("\\xff", page)
        for line in without_blocks(page):
            tags = re.findall(r"(?<!\\)</?[a-zA-Z][^>]*>", line)
            self.assertLessEqual(set(tags), {"<details>", "<details open>", "</details>", "<summary>", "</summary>", "<code>", "</code>"}, line)
        self.assertEqual(page.count("\n<details"), page.count("\n</details>\n\n"), "folds")

    def test_html_escapes_hostile_text(self):
        source = self.report("shop", "--format", "html", "--full")
        page = Page(source)
        self.assertLessEqual(page.tags, TAGS)
        self.assertLessEqual(page.attributes, {"lang", "charset", "http-equiv", "content", "name", "class", "open", "data-of"})
        self.assertRegex(source, r"default-src 'none'; style-src 'sha256-[A-Za-z0-9+/=]+'")
        for sign in ("\x1b", "\u202e", "\r", "\x00"):
            self.assertNotIn(sign, source)
        for text in (HOSTILE, "the very last line", "od\\033[31md", "checkpoint <17>|`", "say more: `|<b>bold</b>"):
            self.assertIn(text, page.text)

    def test_a_report_file_is_complete_and_replaces_nothing(self):
        path = self.daemon.directory / "shop.html"
        out = self.daemon.cli("report", "shop", "-o", path).stdout.decode()
        self.assertIn("of HTML in", out)
        left = self.daemon.directory / "shop2.html.part"
        left.touch()
        refused = self.daemon.cli("report", "shop", "-o", self.daemon.directory / "shop2.html", check=False)
        self.assertEqual(refused.returncode != 0 and "delete it" in refused.stderr.decode(), True, refused.stderr)
        left.unlink()  # another user's file is refused, and stays
        self.assertTrue(path.read_text().startswith("<!doctype html>"))
        self.assertTrue(path.read_text().endswith("</html>\n"))
        again = self.daemon.cli("report", "shop", "-o", path, check=False)
        self.assertNotEqual(again.returncode, 0)
        self.assertIn(b"already exists", again.stderr)
        told = json.loads(self.daemon.cli("--json", "report", "shop", "-o", path, "--force", "--format", "markdown").stdout)
        self.assertEqual((told["format"], told["bytes"]), ("markdown", path.stat().st_size))
        self.assertTrue(path.read_text().startswith("# Workspace shop"))
        missing = self.daemon.directory / "missing.md"
        self.assertNotEqual(self.daemon.cli("report", "no-such", "-o", missing, check=False).returncode, 0)
        self.assertEqual([p.name for p in self.daemon.directory.glob("*.part")], [])
        self.assertFalse(missing.exists())

    def test_stopped_and_archived_workspaces_have_a_report(self):
        self.client.create(repo_url=self.url, name="cold")
        self.inside("cold", "echo more >> README.md; echo a word; false")
        self.client.stop("cold")
        page = self.report("cold")
        self.assertIn("+more", page)
        self.assertIn("| **State** | sandbox stopped |", page)
        self.daemon.cli("archive", "cold")
        page = self.report("cold")
        for text in ("| **State** | archived |", "a word", "**exited 1**", "| **Commands** | 1 ran, 1 failed |"):
            self.assertIn(text, page)
        self.assertEqual(self.client.workspace("cold")["state"], "archived")

    def test_an_endless_git_log_cuts_only_the_commits(self):
        self.client.create(repo_url=self.url, name="endless")
        self.inside("endless", "mkdir -p .git/logs; truncate -s 1T .git/logs/HEAD")
        began = time.monotonic()
        page = self.report("endless")
        self.assertLess(time.monotonic() - began, 30 * harness.PATIENCE)
        self.assertIn("git's log of HEAD is too long to read here", page)

    def test_the_origin_of_an_imported_command_is_escaped(self):
        self.client.create(repo_url=self.url, name="moved")
        self.inside("moved", "true")
        self.daemon.stop()
        with contextlib.closing(sqlite3.connect(self.daemon.store / "state.db")) as db, db:  # as in a hostile archive
            db.execute("UPDATE execs SET imported_from = 'x; see https://evil.example/ok' WHERE workspace = (SELECT id FROM workspaces WHERE name = 'moved')")
        self.daemon.start()
        self.assertIn("ran as `x; see https://evil.example/ok` before the import", self.report("moved"))

    def test_large_parts_are_cut_with_a_note_in_little_memory(self):
        self.client.create(repo_url=self.url, name="large")
        self.inside("large", "for n in $(seq 1 64); do seq 1 100000 > big$n.txt; done; for n in $(seq 1 400); do echo $n > small$n.txt; done")
        for _ in range(20):
            self.inside("large", "exit 1")
        path = self.daemon.directory / "large.md"
        for full in ([], ["--full"]):
            _, status, usage = self.measured("report", "large", "-o", path, "--force", *full)
            self.assertEqual(status, 0)
            print(f"{usage.ru_maxrss >> 10} MiB of memory", end=", ", flush=True)
            self.assertLess(usage.ru_maxrss, 64 << 10, "KiB")
        print(f"report --full of {path.stat().st_size >> 20} MiB", end=" ... ", flush=True)
        self.assertGreater(path.stat().st_size, 40 << 20)  # --full includes all of it
        self.assertIn("The patch is complete: 464 files", path.read_text())
        self.daemon.cli("report", "large", "-o", path, "--force")
        page = path.read_text()
        self.assertLess(path.stat().st_size, 3 << 20)
        self.assertRegex(page, r"Cut here: the last \S+ of \S+ of this file's patch are left out")
        self.assertRegex(page, r"> \S+ of \S+ of the patch are left out, \d+ files completely. See all: `moorage diff large`")
        self.assertIn("Only the first 300 are listed", page)

    def measured(self, *argv):
        environment = os.environ | {"MOORAGE_SOCKET": str(self.daemon.socket)}
        program = str(harness.BIN / "moorage")
        with open(os.devnull, "w") as null:
            pid = os.posix_spawn(program, [program, *map(str, argv)], environment,
                                 file_actions=[(os.POSIX_SPAWN_DUP2, null.fileno(), 1)])
        return os.wait4(pid, 0)


if __name__ == "__main__":
    unittest.main()
