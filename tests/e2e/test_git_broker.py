"""Git inside, over https to a private repository: fetches pass with a credential that never comes in, pushes are judged by
their commands, and each waits for an approval, which is for one exact push."""

import base64
import json
import pathlib
import subprocess
import tempfile
import unittest

import canaries
import harness
import https_server
import outside

ADDRESS = outside.address("3.10")
HOST = "git.example"
TOKEN = "tok-canary-91c2d7"

# Sends pushes of one existing commit to refs as git would not spell them, without git: a line of JSON for each status.
ODD_PUSHES = r'''
import collections, hashlib, http.client, json, random, ssl, sys
host, path, main, other = sys.argv[1:]
NONE = "0" * 40
PACK = b"PACK\0\0\0\2\0\0\0\0"
PACK += hashlib.sha1(PACK).digest()

def line(text):
    return b"%04x" % (len(text) + 4) + text

def command(old, ref, rest=b"\0 report-status\n"):
    return f"{old} {other} ".encode() + ref + rest

def request(*commands):
    return b"".join(map(line, commands)) + b"0000" + PACK

MAIN, MINE = b"refs/heads/main", b"refs/heads/agent/x"
bodies = []
for ref in (MAIN, b"main", b"heads/main", b"HEAD", b"@", b"REFS/HEADS/MAIN", b"refs/heads/MAIN", b"/refs/heads/main", b"refs//heads/main",
            b"refs/heads/main/", b"refs/heads/./main", b"refs/heads/agent/../main", b"refs/heads/agent/%2e%2e/main",
            b"refs/heads/agent/x refs/heads/main", b"refs/heads/agent/x\trefs/heads/main", b"refs/heads/agent/x\nrefs/heads/main",
            b"refs/remotes/origin/main", b"refs/heads/main^0", b"refs/heads/main~0", b"refs/heads/main@{0}", b"refs/heads/main:x",
            b"refs/heads/agent/x.lock", b"refs/heads/agent/.x", b"refs/heads/agent", b"refs/heads/agent/", b"refs/heads/agent/\xc3\xa4",
            b"refs/heads/\xd0\xb0gent/x", b"refs/replace/" + main.encode(), b"refs/notes/commits", b"refs/tags/v1", b"FETCH_HEAD"):
    bodies += [request(command(old, ref)) for old in (main, NONE)]
for rest in (b"", b"\n", b"\0", b"\0 report-status atomic push-options\n", b"\0refs/heads/main\n", b"\0 agent=x\0y\n"):
    bodies.append(request(command(main, MAIN, rest)))
    bodies.append(request(command(NONE, MINE + str(len(bodies)).encode(), rest), command(main, MAIN, b"")))
mine = line(command(NONE, MINE + b"-twice"))
bodies += [mine + b"0000" + line(command(main, MAIN)) + b"0000" + PACK, mine.replace(b"00", b"+0", 1) + b"0000" + PACK,
           b"0004" + line(command(main, MAIN)) + b"0000" + PACK, b"0001" + line(command(main, MAIN)) + b"0000" + PACK,
           request(b"shallow " + main.encode(), command(main, MAIN)), request(b"push-cert\0 report-status\n", command(main, MAIN)),
           line(command(main, MAIN))[:-3] + b"0000" + PACK, line(command(main, MAIN)) + PACK, b"0000" + request(command(main, MAIN))]
dice = random.Random(25)
ALPHABET = b"/.~^:?*[\\@{}%\0\t\r\n -_aAxX0\x7f\x80\xff"
while len(bodies) < 1000:
    ref = bytearray(dice.choice((MAIN, MINE)))
    first = dice.choice((0, len(ref) - 1))
    for _ in range(dice.randint(1, 3)):
        at = dice.randrange(first, len(ref) + 1)
        ref[at:at + dice.randint(0, 1)] = bytes(dice.choices(ALPHABET, k=dice.randint(0, 2)))
    bodies.append(request(command(dice.choice((main, NONE)), bytes(ref))))
found = collections.Counter()
for body in bodies:
    connection = http.client.HTTPSConnection(host)
    connection.request("POST", path, body, {"Content-Type": "application/x-git-receive-pack-request"})
    found[connection.getresponse().status] += 1
    connection.close()
print(json.dumps(found))
'''


class GitHandler(https_server.Handler):
    """Needs the token everywhere. Bodies may be chunked. /dav/ is a place for WebDAV."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = self.body()
        self.server.requests.append(f"{self.command} {self.path}")
        wanted = base64.b64encode(f"bot:{self.server.token}".encode()).decode()
        if self.headers.get("Authorization") != f"Basic {wanted}":
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            return self.end_headers()
        environment = self.cgi_environment() | {"REMOTE_USER": "bot"}
        self.answer(subprocess.run([https_server.BACKEND], input=body, env=environment, capture_output=True).stdout)

    do_POST = do_PUT = do_DELETE = do_PROPFIND = do_GET

    def body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body


class GitBroker(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="moorage-git-broker-", dir=harness.BASE)
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.place = pathlib.Path(cls.scratch.name)
        cls.authority = outside.Authority(cls.place / "ca")
        cls.settings = {"network.resolvers": [outside.DNS_ADDRESS], "network.reachable": [outside.NETWORK],
                        "network.ca_file": str(cls.authority.file), "repo.file_roots": [str(cls.place)],
                        "network.credential_key": str(cls.place / "key" / "credentials.key")}
        super().setUpClass()
        cls.dns = outside.Dns({HOST: ADDRESS})
        cls.addClassCleanup(cls.dns.close)
        cls.host = outside.Host(ADDRESS, 443, cls.authority.context(HOST), GitHandler)
        cls.addClassCleanup(cls.host.close)
        cls.host.directory = cls.place / "git"
        cls.secret = cls.place / "token"
        cls.secret.write_text(TOKEN)
        canaries.keep_out(cls.daemon, TOKEN)
        cls.daemon.cli("credential", "add", "git", "--for", f"https://{HOST}/acme/", "--as", "basic:bot", "--from-file", cls.secret)

    def setUp(self):
        self.host.token = TOKEN
        self.host.requests.clear()
        self.name = self._testMethodName.removeprefix("test_")[:40].replace("_", "-")
        self.bare = self.host.directory / "acme" / f"{self.name}.git"
        work = self.place / self.name
        self.first = harness.make_repository(work)
        harness.run("git", "clone", "-q", "--bare", work, self.bare)
        self.daemon.cli("create", "--repo", f"file://{self.bare}", "--name", self.name)
        self.addCleanup(self.client.delete, self.name, purge=True)
        self.daemon.cli("net", "allow", self.name, HOST)
        self.inside(f"git remote set-url origin https://{HOST}/acme/{self.name}.git; git config user.name a; git config user.email a@a")

    def inside(self, script, check=True):
        result = self.client.exec(self.name, ["sh", "-c", script])
        text = (result.stdout + result.stderr).decode()
        if check:
            self.assertEqual(result.exit_code, 0, text)
        return result.exit_code, text

    def commit(self, text, more=""):
        self.inside(f"echo {text} > {text}; git add -A; git commit -q {more} -m 'Add {text}'")
        return self.inside("git rev-parse HEAD")[1].strip()

    def push(self, *words):
        return self.inside("git push " + " ".join(words or ("origin", "HEAD:main")), check=False)

    def at_host(self, ref="refs/heads/main"):
        return harness.run("git", "-C", self.bare, "rev-parse", "--verify", "-q", ref, check=False).stdout.decode().strip()

    def refused(self, words, *texts):
        code, text = self.push(*words)
        self.assertNotEqual(code, 0, text)
        for one in texts:
            self.assertIn(one, text)
        return text

    def asked(self, words=("origin", "HEAD:main")):
        """The id of the approval that git shows."""
        text = self.refused(words, "waits for approval ap_")
        return text.split("waits for approval ")[1].split(":")[0]

    def test_a_push_passes_once_after_its_approval(self):
        self.inside("git fetch -q origin")
        commit = self.commit("one")
        approval = self.asked()
        self.assertEqual(self.asked(), approval)
        self.assertEqual(self.at_host(), self.first)
        shown, = self.client.approvals(self.name)
        self.assertEqual({key: shown[key] for key in ("id", "workspace", "ref", "old", "new", "commits", "title", "state")},
                         {"id": approval, "workspace": self.name, "ref": "refs/heads/main", "old": self.first, "new": commit,
                          "commits": 1, "title": "Add one", "state": "waiting"})
        self.assertEqual(shown["repository"], f"https://{HOST}/acme/{self.name}.git")
        listed = self.daemon.cli("approvals").stdout.decode()
        for text in (approval, self.name, "refs/heads/main", f"{self.first[:8]} -> {commit[:8]}", "Add one"):
            self.assertIn(text, listed)
        self.daemon.cli("approve", approval)
        self.assertEqual(self.push()[0], 0)
        self.assertEqual(self.at_host(), commit)
        self.assertNotIn("receive-pack", self.inside("env | grep -c TOKEN", check=False)[1])
        # For the next commit another one is needed; the same push back in time, too.
        self.commit("two")
        self.assertNotEqual(self.asked(), approval)
        harness.run("git", "-C", self.bare, "update-ref", "refs/heads/main", self.first)
        again = self.asked(("origin", f"{commit}:refs/heads/main"))
        self.assertNotEqual(again, approval)
        history = self.daemon.cli("events").stdout.decode()
        self.assertIn(f"{approval}: https://{HOST}/acme/{self.name}.git refs/heads/main", history)
        self.assertIn("approved by root", history)

    def test_an_approval_is_for_one_exact_push(self):
        self.commit("one")
        self.daemon.cli("approve", self.asked())
        self.commit("two")
        self.asked()  # another commit
        self.asked(("origin", "HEAD~1:refs/heads/other"))  # another ref
        self.inside(f"git remote add bare https://{HOST}/acme/{self.name}")
        self.asked(("bare", "HEAD~1:main"))  # another URL
        self.assertEqual(self.at_host(), self.first)
        self.assertEqual(self.push("origin", "HEAD~1:main")[0], 0)

    def test_deletions_rewrites_and_other_refs_are_refused(self):
        self.commit("one")
        self.daemon.cli("approve", self.asked())
        self.push()
        before = self.at_host()
        self.refused(("origin", ":main"), "refs may not be deleted")
        self.refused(("origin", "HEAD:refs/tags/v1"), "only these refs may be pushed: refs/heads/*")
        self.refused(("--mirror", "origin"))
        self.commit("rewritten", "--amend")
        self.refused(("-f", "origin", "HEAD:main"), "this would rewrite refs/heads/main")
        self.refused(("--atomic", "origin", "HEAD:refs/heads/new", "HEAD:refs/tags/v2"), "another ref of this push was refused")
        self.refused(("-o", "ci.skip", "origin", "HEAD:refs/heads/new"))
        self.assertEqual(self.at_host(), before)
        self.assertEqual(harness.run("git", "-C", self.bare, "for-each-ref", "--format=%(refname)").stdout, b"refs/heads/main\n")
        self.assertEqual([a["ref"] for a in self.client.approvals(self.name)], [])

    def test_git_inside_cannot_invent_the_proof_of_a_fast_forward(self):
        """A replaced commit, and a git that lies: names of commits are hashes, and are computed outside."""
        self.commit("one")
        self.daemon.cli("approve", self.asked())
        self.push()
        before = self.at_host()
        rewritten = self.inside("git checkout -q --orphan x; git commit -q -m Another; git rev-parse HEAD")[1].strip()
        self.inside(f"git replace --graft {rewritten} {before}")
        self.refused(("-f", "origin", f"{rewritten}:main"), "this would rewrite refs/heads/main")
        self.assertEqual(self.at_host(), before)

    def test_modes_and_patterns_of_a_workspace(self):
        self.daemon.cli("set", self.name, "--push", "allow", "--push-refs", "refs/heads/agent/*")
        first = self.commit("one")
        self.refused(("origin", "HEAD:main"), "only these refs may be pushed: refs/heads/agent/*")
        self.refused(("origin", "HEAD:refs/heads/AGENT/x"), "only these refs may be pushed")
        self.assertEqual(self.push("origin", "HEAD:refs/heads/agent/x")[0], 0)
        second = self.commit("two")
        self.assertEqual(self.push("origin", "HEAD:refs/heads/agent/x")[0], 0)
        self.assertEqual(self.at_host("refs/heads/agent/x"), second)
        self.refused(("-f", "origin", f"{first}:refs/heads/agent/x"), "this would rewrite")
        self.assertEqual(self.client.approvals(), [])
        self.daemon.cli("set", self.name, "--push", "refuse")
        self.refused(("origin", "HEAD:refs/heads/agent/y"), "this workspace may not push")
        self.inside("git fetch -q origin")
        shown = self.client.workspace(self.name)
        self.assertEqual((shown["push"], shown["push_refs"]), ("refuse", ["refs/heads/agent/*"]))

    def test_a_thousand_odd_spellings_of_refs_are_refused_or_mean_what_was_judged(self):
        self.daemon.cli("set", self.name, "--push", "allow", "--push-refs", "refs/heads/agent/*")
        commit = self.commit("one")
        self.assertEqual(self.push("origin", "HEAD:refs/heads/agent/first")[0], 0)
        self.host.requests.clear()
        result = self.client.exec(self.name, ["python3", "-", HOST, f"/acme/{self.name}.git/git-receive-pack", self.first, commit],
                                  stdin=ODD_PUSHES.encode())
        self.assertEqual(result.exit_code, 0, result.stderr)
        found = json.loads(result.stdout)
        self.assertEqual(set(found), {"200", "403"}, found)  # 200 is also git's own way to say which refs were refused
        self.assertEqual(sum(found.values()), 1000)
        self.assertLess(len(self.host.requests), 100)  # most do not reach the host
        refs = harness.run("git", "-C", self.bare, "for-each-ref", "--format=%(refname)").stdout.decode().split("\n")[:-1]
        self.assertGreater(len(refs), 10)  # what means a ref that may be pushed passes
        self.assertEqual([ref for ref in refs if not ref.startswith("refs/heads/agent/")], ["refs/heads/main"])
        self.assertEqual(self.at_host(), self.first)
        self.assertEqual(self.client.approvals(), [])

    def test_approvals_survive_the_daemon_and_the_egress(self):
        commit = self.commit("one")
        approval = self.asked()
        self.daemon.restart()
        self.assertEqual(self.asked(), approval)
        self.daemon.cli("approve", approval)
        self.daemon.restart()
        self.kill_egress()
        self.assertEqual(self.push()[0], 0)
        self.assertEqual(self.at_host(), commit)

    def kill_egress(self):
        prefix = self.daemon.sandbox_pids(self.name)["name"]
        for pid in harness.sandbox_cgroup_pids(prefix):
            if "moorage-egress" in harness.processes().get(pid, ""):
                harness.run("kill", "-9", str(pid))

    def test_while_the_daemon_is_away_a_push_is_refused(self):
        self.commit("one")
        self.inside("git fetch -q origin")
        started = self.client.start_exec(self.name, ["sh", "-c", "sleep 1; git push origin HEAD:main"])
        self.daemon.kill()
        self.daemon.start()
        ended = self.client.wait(started["id"])
        self.assertNotEqual(ended.get("exit_code"), 0)
        self.assertEqual(self.at_host(), self.first)

    def test_a_refused_push_says_who_refused_it(self):
        self.commit("one")
        approval = self.asked()
        self.daemon.cli("refuse", approval)
        self.refused(("origin", "HEAD:main"), f"root refused it ({approval})")
        self.assertEqual(self.client.approvals(self.name), [])
        self.daemon.cli("approve", approval)
        self.assertEqual(self.push()[0], 0)
        used = self.daemon.cli("approve", approval, check=False)
        self.assertIn(f"{approval} is used".encode(), used.stderr)

    def test_pushes_without_git_s_commands_are_refused(self):
        url = f"https://{HOST}/acme/{self.name}.git"
        for method, path in (("PUT", "/refs/heads/main"), ("PROPFIND", "/"), ("MKCOL", "/objects/aa"), ("POST", "/git-receive%2dpack"),
                             ("DELETE", "/refs/heads/main"), ("POST", "/git-receive-pack?x"), ("PUT", "/git-receive-pack")):
            status = self.inside(f"curl -s -o /dev/null -w '%{{http_code}}' -X {method} -d x {url}{path}")[1]
            self.assertEqual(status, "403", (method, path))
        self.assertEqual(self.host.requests, [])

    def test_a_large_push_passes_after_its_approval(self):
        self.inside("head -c 5000000 /dev/urandom > big; git add -A; git commit -q -m Big")
        self.daemon.cli("approve", self.asked())
        self.assertEqual(self.push()[0], 0)
        self.assertEqual(self.at_host(), self.inside("git rev-parse HEAD")[1].strip())

    def test_ssh_urls_are_rewritten_and_commits_are_the_owner_s(self):
        """Whoever runs this suite is the owner."""
        wanted = harness.run("git", "config", "--global", "user.name", check=False).stdout.decode().strip()
        self.inside("git config --unset user.name; git config --unset user.email", check=False)
        for url in (f"git@{HOST}:acme/{self.name}.git", f"ssh://git@{HOST}/acme/{self.name}.git"):
            self.inside(f"git remote set-url origin {url}; git fetch -q origin; git ls-remote {url}")
        self.assertEqual(self.inside("git config --get remote.origin.fetch")[1], "+refs/heads/*:refs/remotes/origin/*\n")
        self.assertIn(f"url.https://{HOST}/.insteadof", self.inside("git config --file .git/config --list")[1])
        self.assertEqual(self.inside("echo $GIT_TERMINAL_PROMPT")[1], "0\n")
        self.assertEqual(self.inside("echo $GIT_AUTHOR_NAME")[1].strip(), wanted)
        mine = self.client.exec(self.name, "echo $GIT_AUTHOR_NAME", env={"GIT_AUTHOR_NAME": "mine"}).stdout
        self.assertEqual(mine, b"mine\n")

    def test_a_token_that_is_not_accepted_is_explained(self):
        self.host.token = "rotated"
        code, text = self.inside("git fetch origin", check=False)
        self.assertNotEqual(code, 0)
        self.assertIn(f"{HOST} did not accept the credential git (401)", text)


if __name__ == "__main__":
    unittest.main()
