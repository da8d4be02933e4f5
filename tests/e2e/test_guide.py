"""Every command in docs/guide and in the README's first ten minutes runs, and prints what the page shows.

In a ```console block, `$ ` begins a command, `> ` continues it, and the lines up to the next command are what it prints;
with no such line it prints nothing. `...` alone on a line stands for any lines, within a line for any text. Times,
sizes, commits and the width of columns may differ. An id like ex_3 stands for the one that was really printed in its
place. A command ends with 0, or with N where a comment says `# exits N`. A ```python block runs after those before it on
the page, in one program; a ```text block after it shows what it prints.
"""

import contextlib
import io
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import harness
import outside
import private_git
import ssh_host
from https_server import ConnectProxy

sys.path[:0] = [str(harness.ROOT / "tests/remote"), str(harness.ROOT / "sdk/python")]
import fake_daytona  # noqa: E402
import fake_e2b  # noqa: E402

PAGES = [harness.ROOT / "README.md", *sorted((harness.ROOT / "docs/guide").glob("*.md"))]

# Commands that no test can run, each with the reason.
NOT_RUN = {
    "sudo ./quickstart": "it installs programs and a service on this host",
    "sudo scripts/package.sh": "the test `package` runs it",
    "sudo apt-get install ./build/release/deb/moorage_*.deb": "the test `package` runs it in a Debian of its own",
    "sudo usermod -aG moorage $USER": "it changes the users of this host",
    "moorage shell auth": "it waits for a person at a terminal",
    "journalctl -u moorage -n 20": "there may be no systemd here",
    "socat TCP-LISTEN:9464,bind=127.0.0.1,fork UNIX-CONNECT:/run/moorage/mooraged.sock": "it never ends, and is not a program of Moorage",
    "moorage create --repo https://github.com/acme/shop --name auth --backend docker": "it needs an engine: e2e_docker",
    "moorage create --repo https://github.com/acme/shop --name try --backend docker --image acme/dev:2 --runtime crun":
        "it needs an engine: e2e_docker",
    "moorage move fix --backend docker": "it needs an engine: e2e_move",
    "moorage exec auth -- npm install express": "it needs the registry of npm: e2e_network_tools",
    "sudo moorage restore-store /mnt/other-disk": "it needs a lost store: e2e_replica",
    "moorage credential add deploy --for ssh://git@git.example.com/acme/app --as ssh-key --from-file ~/.ssh/deploy_key":
        "it needs a key: e2e_private_repositories",
    "moorage rescue export auth auth.tar.zst": "it needs a damaged database: threats_database",
}

AGENT = r"""#!/bin/sh
case $1 in
  auth) exec moorage exec auth -- true ;;  # on the host, under `lease run`
  --seed)
    case $2 in
      2) seq 100 > attempt; echo good >> attempt ;;
      4) echo good > attempt ;;
      *) echo "attempt $2 has no fix" > attempt ;;
    esac ;;
  *)
    echo "Editing src/auth/session.ts"
    sleep 2
    echo "// split" >> src/auth/session.ts
    echo Done ;;
esac
"""
MAKEFILE = "test:\n\t@echo 214 passed\ncheck:\n\t@tail -n 1 attempt\n\t@grep -q good attempt\nsave:\n\t@true\n"
PATCH = "diff --git a/attempt b/attempt\nnew file mode 100644\n--- /dev/null\n+++ b/attempt\n@@ -0,0 +1 @@\n+{}\n"

# What is matched by its form alone.
TOKEN = re.compile(r"(?P<dots>\.\.\.)|(?P<space>^ +| {2,})|\b(?:(?P<id>(?:ex|sn|bo|ws|repo|sb|ap)_\d+)"
                   r"|(?P<time>\d+(?:\.\d+)? ?(?:ms|s|min|m|h))|(?P<size>\d+(?:\.\d+)?[KMGT])"
                   r"|(?P<commit>(?=[a-f]*\d)[0-9a-f]{7,40}))\b")
FORMS = {"dots": ".*", "space": r"\s+", "time": r"[\d.]+ ?(?:ms|s|min|m|h)", "size": r"\d+(?:\.\d+)?[KMGT]", "commit": "[0-9a-f]{7,40}"}
ID = re.compile(r"\b(?:ex|sn|bo|ws|repo|sb|ap)_\d+\b")


class Step:
    """One command of a page, or one block of Python, with what it prints and how it ends."""

    def __init__(self, place, command, language="console"):
        self.place, self.command, self.language, self.output, self.status = place, command, language, [], 0

    def close(self):
        if self.language == "python":
            return self
        marker = re.search(r"\s# exits (\d+)$", self.command)
        self.status = int(marker[1]) if marker else 0
        if "\n" not in self.command:
            self.command = re.sub(r"\s+# .*$", "", self.command)
        return self


def steps_of(page):
    steps, inside = [], ""
    for number, line in enumerate(page.read_text().splitlines(), 1):
        place = f"{page.relative_to(harness.ROOT)}:{number}"
        if line.startswith("```"):
            inside = line.removeprefix("```") if not inside else ""
            if inside == "python":
                steps.append(Step(place, "", inside))
        elif inside == "console" and line.startswith("$ "):
            steps.append(Step(place, line[2:]))
        elif inside == "console" and line.startswith(">") and not steps[-1].output:
            steps[-1].command += "\n" + line[2:]
        elif inside == "python":
            steps[-1].command += line + "\n"
        elif inside == "console" or (inside == "text" and steps and steps[-1].language == "python"):
            steps[-1].output.append(line)
    return [step.close() for step in steps]


def pattern_of(lines, known):
    """The output that a page shows as a regular expression; ids that are not known yet are its groups."""
    groups = set()

    def piece(found):
        kind, text = found.lastgroup, found[0]
        if kind != "id":
            return FORMS[kind]
        if text in known:
            return known[text]
        if text in groups:
            return f"(?P={text})"
        groups.add(text)
        return f"(?P<{text}>{text.partition('_')[0]}_\\d+)"

    def line_pattern(line):
        if line == "...":
            return r"(?:.*\n)*"
        made, end = "", 0
        for found in TOKEN.finditer(line):
            made += re.escape(line[end:found.start()]) + piece(found)
            end = found.end()
        return made + re.escape(line[end:]) + r"[ ]*\n"

    return re.compile("".join(map(line_pattern, lines)))


KEY = "sk-of-the-guide"
MODEL, GIT = outside.address("5.10"), outside.address("5.11")


class ModelHandler(outside.Handler):
    """A model's host that lists no models to whoever has the key."""

    def do_GET(self):
        known = self.headers.get("X-Api-Key") == KEY
        body = b'{"data":[],"has_more":false}\n' if known else b'{"error":"no key"}\n'
        self.send_response(200 if known else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Guide(harness.TestCase):
    files = {"README.md": "The shop\n", "Makefile": MAKEFILE, "my-agent": AGENT, "src/auth/session.ts": "export {}\n", "src/cart.ts": "export {}\n"}

    @classmethod
    def setUpClass(cls):
        place = tempfile.TemporaryDirectory(prefix="moorage-guide-")
        cls.addClassCleanup(place.cleanup)
        authority = outside.Authority(place.name)
        cls.key = pathlib.Path(place.name) / "key"
        cls.key.write_text(KEY + "\n")
        dns = outside.Dns({"api.anthropic.com": MODEL, "git.example.com": GIT})
        cls.addClassCleanup(dns.close)
        model = outside.Host(MODEL, 443, authority.context("api.anthropic.com"), ModelHandler)
        cls.addClassCleanup(model.close)
        cls.serve_private_repository(pathlib.Path(place.name), authority)
        proxy = ConnectProxy({"git.example.com": GIT})
        cls.addClassCleanup(proxy.stop)
        cls.settings = {"repo.ca_file": str(authority.file), "repo.https_proxy": proxy.url, "network.resolvers": [outside.DNS_ADDRESS], "network.reachable": [outside.NETWORK],
                        "network.ca_file": str(authority.file)}
        super().setUpClass()
        cls.join_machine(pathlib.Path(place.name))
        upstream = cls.upstream / "acme/shop"
        (upstream / "my-agent").chmod(0o755)
        begun = harness.commit(upstream, "NEWS", "a program\n")
        harness.git(upstream, "update-ref", "refs/pull/7/head", harness.commit(upstream, "src/cart.ts", "export { cart }\n"))
        harness.git(upstream, "reset", "-q", "--hard", begun)
        programs = cls.daemon.directory / "programs"
        programs.mkdir()
        for name in ("moorage", "mooraged"):
            (programs / name).symlink_to(harness.BIN / name)
        cls.environment = {"PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(cls.daemon.directory / "home"), "LANG": "C.UTF-8",
                           "MOORAGE_SOCKET": str(cls.daemon.socket), "PYTHONPATH": str(harness.ROOT / "sdk/python"), "PYTHONDONTWRITEBYTECODE": "1"}
        # What stands in a page, and what is used in its place. A test runs as root.
        cls.substitutions = [
            (r"\bsudo ", lambda: ""),
            (r"https://github\.com/acme/shop", lambda: cls.url),
            (r"/etc/moorage/moorage\.yaml", lambda: str(cls.daemon.config)),
            (r"/run/moorage/mooraged\.sock", lambda: str(cls.daemon.socket)),
            (r"systemctl kill -s KILL moorage", lambda: f"kill -9 {cls.daemon.process.pid}"),
            (r"~/anthropic\.key", lambda: str(cls.key)),
            (r"~/git\.token", lambda: str(cls.token)),
            (r"\bdevs\b", lambda: "daemon"),  # a group that every host has
            (r"ssh-copy-id -i \S+ -F \S+ build1", lambda: f"cat {cls.machine_files}/ssh_key.pub >> {cls.machine.authorized}"),  # it asks
            (r"~/(?=e2b\.key|daytona\.key)", lambda: f"{place.name}/"),
            (r"(?<=    )template: base", lambda: f"template: base\n    api_url: {cls.providers['e2b'].url}\n    sandbox_url: {cls.providers['e2b'].url}"),
            (r"(?<=    )snapshot: daytonaio/sandbox", lambda: f"api_url: {cls.providers['daytona'].url}/api"),
            (r"/etc/moorage/(?=ssh_|known_hosts|e2b\.key|daytona\.key)", lambda: f"{cls.machine_files}/"),
            (r"build1\.example", lambda: cls.machine.address),
            (r"User agent\b", lambda: "User root"),
            (r"/usr/share/doc/python3-moorage/examples", lambda: str(harness.ROOT / "sdk/python/examples")),
            (r"max_sandboxes: 8}", lambda: f"max_sandboxes: 8, directory: {cls.machine.directory}}}"),
        ]

    @classmethod
    def join_machine(cls, place):
        """build1.example, which its first ssh knows, rented machines, and a configuration of the daemon that a page can extend."""
        cls.machine = ssh_host.SshHost(place / "machine", "build1").start()
        cls.addClassCleanup(cls.machine.close)
        cls.machine_files = place / "of-build1"
        cls.machine_files.mkdir()
        (cls.machine_files / "known_hosts").write_text(f"{cls.machine.address} {(cls.machine.root / 'host.pub').read_text()}")
        cls.providers = {}
        for name, fake in (("e2b", fake_e2b.FakeE2B), ("daytona", fake_daytona.FakeDaytona)):
            (place / name).mkdir()
            cls.providers[name] = fake(place / name)
            cls.addClassCleanup(cls.providers[name].close)
            (place / f"{name}.key").write_text(cls.providers[name].api_key + "\n")
        settings = json.loads(cls.daemon.config.read_text())
        cls.daemon.config.write_text("".join(f"{key}: {json.dumps(value)}\n" for key, value in settings.items()))

    @classmethod
    def serve_private_repository(cls, place, authority):
        """acme/app at git.example.com, for the token in ~/git.token."""
        cls.token = place / "token"
        cls.token.write_text("ghp-of-the-guide\n")
        (place / "git/acme").mkdir(parents=True)
        private_git.bare_repository(place / "git/acme/app")
        host = private_git.HttpsHost(GIT, authority.context("git.example.com"), place / "git", [cls.token.read_text().strip()])
        cls.addClassCleanup(host.close)

    def substituted(self, text):
        for pattern, value in self.substitutions:
            text = re.sub(pattern, lambda _, value=value: value(), text)
        return text

    def make_checkout(self, name):
        """The directory that a page's commands run in: a checkout with what the page speaks of."""
        self.checkout = self.daemon.directory / "checkouts" / name
        self.checkout.parent.mkdir(exist_ok=True)
        harness.git(self.upstream, "clone", "-q", self.upstream / "acme/shop", self.checkout)
        (self.checkout / "fixes").mkdir()
        for patch, content in (("1-wrong.patch", "bad"), ("2-right.patch", "good")):
            (self.checkout / "fixes" / patch).write_text(PATCH.format(content))
        pathlib.Path(self.environment["HOME"]).mkdir(exist_ok=True)

    def run_python(self, step, names):
        """What a block printed. It runs in this process, like a session at a prompt."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.chdir(self.checkout), \
                unittest.mock.patch.dict(os.environ, {"MOORAGE_SOCKET": str(self.daemon.socket)}):
            exec(compile("\n" * int(step.place.rpartition(":")[2]) + self.substituted(step.command), step.place, "exec"), names)
        return printed.getvalue()

    def run_step(self, step, known):
        if step.command == "sudo systemctl restart moorage":
            self.daemon.restart()
            return
        if step.command == "moorage sync auth":  # which tells of news
            harness.commit(self.upstream / "acme/shop", "NEWS", f"{step.place}\n")
        for name in ID.findall(step.command):
            self.assertIn(name, known, f"{step.place}: no command before this one printed {name}")
        command = ID.sub(lambda found: known[found[0]], self.substituted(step.command))
        done = subprocess.run(["bash", "-c", command], cwd=self.checkout, env=self.environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120 * harness.PATIENCE)
        self.check_printed(step, known, done.stdout.decode(errors="replace"), done.returncode)

    def check_printed(self, step, known, printed, status=0):
        if os.environ.get("MOORAGE_TEST_SHOW"):  # to copy into a page
            print(f"$ {step.command}\n{printed}", end="", flush=True)
        self.assertEqual(status, step.status, f"{step.place}: $ {step.command}\n{printed}")
        if printed and not printed.endswith("\n"):
            printed += "\n"
        matched = pattern_of([self.substituted(line) for line in step.output], known).fullmatch(printed)
        shown = "\n".join(step.output) or "nothing"
        self.assertTrue(matched, f"{step.place}: $ {step.command}\nprinted:\n{printed}\nthe page shows:\n{shown}")
        known.update(matched.groupdict())

    def run_page(self, page):
        self.make_checkout(page.stem)
        known, names = {}, {}
        config = self.daemon.config.read_text()
        try:
            for step in steps_of(page):
                if step.language == "python":
                    self.check_printed(step, known, self.run_python(step, names))
                elif step.command not in NOT_RUN:
                    self.run_step(step, known)
        finally:
            if self.daemon.process.poll() is not None:
                self.daemon.restart()
            self.remove_workspaces()
            if self.daemon.config.read_text() != config:
                self.daemon.config.write_text(config)
                self.daemon.restart()

    def remove_workspaces(self):
        for workspace in self.client.workspaces():
            if self.client.show_lease(workspace["id"])["held"]:  # only where a page failed before it released it
                self.client.lease_token = self.client.acquire_lease(workspace["id"], "the test", takeover=True)["token"]
            self.client.delete(workspace["id"], purge=True)
            self.client.lease_token = None
        for credential in self.client.credentials():
            self.client.remove_credential(credential["name"])

    def test_each_command_that_is_not_run_is_in_a_page(self):
        commands = {step.command for page in PAGES for step in steps_of(page)}
        self.assertEqual(sorted(set(NOT_RUN) - commands), [])

    def test_each_page_has_commands(self):
        for page in PAGES:
            self.assertTrue(steps_of(page), page)

    def test_commands_in_the_text_exist_and_have_these_options(self):
        table = json.loads(self.daemon.cli("completion", "commands").stdout)
        options_of = {entry["name"]: {name for option in table["global"] + entry["options"] for name in option["names"].split(",")}
                      for entry in table["commands"]}
        for page in PAGES:
            for text in re.findall(r"`(?:sudo )?moorage\s+([a-z][^`]*)`", page.read_text()):
                words = shlex.split(text.split(" -- ")[0].split(" | ")[0])
                command = next((" ".join(words[:count]) for count in (2, 1) if " ".join(words[:count]) in options_of), None)
                if words[0] == "completion":
                    continue
                self.assertIsNotNone(command, f"{page.name}: there is no command moorage {text}")
                for word in words:
                    if word.startswith("-") and word not in ("-", "--", "--help"):
                        self.assertIn(word.partition("=")[0], options_of[command], f"{page.name}: moorage {text}")

    def test_links_lead_to_a_file_and_a_heading(self):
        for page in [*PAGES, *(harness.ROOT / "docs").glob("*.md"), harness.ROOT / "CONTRIBUTING.md"]:
            for target in re.findall(r"\]\(([^)#:]*(?:#[^)]*)?)\)", page.read_text()):
                path, _, anchor = target.partition("#")
                file = (page.parent / path).resolve() if path else page
                self.assertTrue(file.exists(), f"{page.name}: {target}")
                headings = [re.sub(r"[^\w\- ]", "", line.lstrip("#").strip().lower()).replace(" ", "-")
                            for line in file.read_text().splitlines() if line.startswith("#")] if file.suffix == ".md" else []
                self.assertTrue(not anchor or anchor in headings, f"{page.name}: {target}")


def add_test(page):
    setattr(Guide, f"test_page_{page.stem.lower().replace('-', '_')}", lambda self: self.run_page(page))


for each in PAGES:
    add_test(each)

if __name__ == "__main__":
    unittest.main()
