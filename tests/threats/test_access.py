"""Access of users to workspaces: rows 53 and 54. Clients run as different users; the daemon gets their ids from the kernel."""

import base64
import json
import re
import subprocess
import sys
import unittest

import yaml

from threat import Threats, harness, threat

DOCUMENT = harness.ROOT / "docs/openapi.yaml"
GROUP, TEAM = "games", 60  # a group of every Debian
OWNER, MEMBER, STRANGER = 61001, 61002, 61003

# Sends the JSON objects from standard input, one per line, and prints the answers. Runs as a given user.
CLIENT = """
import base64, http.client, json, socket, sys
class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(sys.argv[1])
for line in sys.stdin:
    ask = json.loads(line)
    if "raw" in ask:
        s = socket.socket(socket.AF_UNIX); s.settimeout(60); s.connect(sys.argv[1])
        data = b""
        try:
            s.sendall(base64.b64decode(ask["raw"]))
            s.shutdown(socket.SHUT_WR)
        except OSError: pass  # refused before the end of the body
        try:
            while piece := s.recv(65536): data += piece
        except ConnectionResetError: pass
        print(json.dumps([0, base64.b64encode(data).decode()]), flush=True)
        continue
    c = Connection("x")
    body = base64.b64decode(ask["body"]) if ask["body"] is not None else None
    try:
        c.request(ask["method"], ask["target"], body=body, headers=ask["headers"])
    except (BrokenPipeError, ConnectionResetError):
        pass  # refused without reading the body: the answer has the reason
    r = c.getresponse()
    print(json.dumps([r.status, base64.b64encode(r.read(4_000_000)).decode()]), flush=True)
    c.close()
"""


class User:
    def __init__(self, socket, uid, *groups):
        words = ["--clear-groups"] if not groups else ["--groups=" + ",".join(map(str, groups))]
        self.process = subprocess.Popen(
            ["setpriv", f"--reuid={uid}", f"--regid={uid}", *words, sys.executable, "-c", CLIENT, str(socket)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/")

    def _say(self, ask):
        self.process.stdin.write(json.dumps(ask) + "\n")
        self.process.stdin.flush()
        status, body = json.loads(self.process.stdout.readline())
        return status, base64.b64decode(body)

    def ask(self, method, target, body=None, **headers):
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
        return self._say({"method": method, "target": target, "headers": {k.replace("_", "-"): v for k, v in headers.items()},
                          "body": None if body is None else base64.b64encode(body).decode()})

    def json(self, method, target, body=None, **headers):
        status, raw = self.ask(method, target, body, **headers)
        return status, json.loads(raw) if raw else None

    def raw(self, data):
        return self._say({"raw": base64.b64encode(data).decode()})[1]

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


# Every operation of the document: its access rule, and a request that is valid except for its user. "read", "write": members too; "own":
# the owner; "repo": the importer, or who added a credential; "list": all users, who see their own; "open": not about anyone's objects; "root": only root.
# In the owner's order of requests, so destructive ones come last.
FILE = {"query": "?path=README.md"}
REQUESTS = {
    ("get", "/v1/health"): ("open", {}), ("get", "/v1/info"): ("open", {}), ("get", "/v1/config"): ("open", {}),
    ("get", "/metrics"): ("list", {}), ("get", "/v1/top"): ("list", {}), ("get", "/v1/events"): ("list", {}),
    ("get", "/v1/repos"): ("list", {}), ("get", "/v1/workspaces"): ("list", {"query": "?deleted=1"}), ("get", "/v1/execs"): ("list", {}),
    ("get", "/v1/gc"): ("list", {}), ("post", "/v1/gc"): ("root", {}), ("get", "/v1/doctor"): ("root", {}), ("post", "/v1/doctor"): ("root", {}),
    ("post", "/v1/config/reload"): ("root", {}),
    ("get", "/v1/rescue/workspaces/{workspace}"): ("root", {}),
    ("get", "/v1/du"): ("read", {"target": "/v1/du?workspace={}"}),
    ("post", "/v1/repos"): ("open", {"body": {"url": "ftp://x/y"}}),
    ("get", "/v1/repos/import"): ("open", {"query": "?label=/x"}), ("post", "/v1/repos/import"): ("open", {"query": "?label=/x", "body": b"x"}),
    ("get", "/v1/repos/{repo}"): ("repo", {}), ("post", "/v1/repos/{repo}/fetch"): ("repo", {}),
    ("post", "/v1/workspaces"): ("repo", {"body": "IMPORT"}), ("delete", "/v1/repos/{repo}"): ("repo", {}),
    ("get", "/v1/workspaces/{workspace}"): ("read", {}), ("get", "/v1/workspaces/{workspace}/diff"): ("read", {}),
    ("get", "/v1/workspaces/{workspace}/base"): ("read", {"query": "?path=README.md"}),
    ("get", "/v1/workspaces/{workspace}/status"): ("read", {}), ("get", "/v1/workspaces/{workspace}/history"): ("read", {}),
    ("get", "/v1/workspaces/{workspace}/files"): ("read", {}), ("get", "/v1/workspaces/{workspace}/file"): ("read", FILE),
    ("get", "/v1/workspaces/{workspace}/execs"): ("read", {}), ("get", "/v1/workspaces/{workspace}/lease"): ("read", {}),
    ("get", "/v1/execs/{exec}"): ("read", {}), ("get", "/v1/execs/{exec}/wait"): ("read", {"query": "?timeout_ms=1"}),
    ("get", "/v1/execs/{exec}/output"): ("read", {}),
    ("put", "/v1/workspaces/{workspace}/file"): ("write", {"query": "?path=new", "body": b"bytes"}),
    ("post", "/v1/workspaces/{workspace}/files/mkdir"): ("write", {"body": {"path": "d"}}),
    ("post", "/v1/workspaces/{workspace}/files/symlink"): ("write", {"body": {"path": "l", "target": "t"}}),
    ("post", "/v1/workspaces/{workspace}/files/move"): ("write", {"body": {"from": "new", "to": "newer"}}),
    ("delete", "/v1/workspaces/{workspace}/file"): ("write", {"query": "?path=newer"}),
    ("post", "/v1/workspaces/{workspace}/start"): ("write", {}), ("post", "/v1/workspaces/{workspace}/sync"): ("write", {}),
    ("get", "/v1/workspaces/{workspace}/objects"): ("read", {}),
    ("get", "/v1/workspaces/{workspace}/export"): ("read", {}), ("post", "/v1/workspaces/{workspace}/archive"): ("write", {}),
    ("post", "/v1/workspaces/{workspace}/unarchive"): ("write", {}), ("post", "/v1/workspaces/import"): ("open", {"body": b"no archive"}),
    ("post", "/v1/workspaces/{workspace}/snapshots"): ("write", {"body": {"name": "s"}}),
    ("get", "/v1/workspaces/{workspace}/snapshots"): ("read", {}), ("get", "/v1/workspaces/{workspace}/snapshots/{snapshot}"): ("read", {}),
    ("get", "/v1/workspaces/{workspace}/tree"): ("read", {}), ("post", "/v1/workspaces/{workspace}/fork"): ("write", {"body": {"names": ["f"]}}),
    ("post", "/v1/workspaces/{workspace}/restore"): ("write", {"body": {"snapshot": "s"}}),
    ("post", "/v1/workspaces/{workspace}/undo"): ("write", {}),
    ("get", "/v1/workspaces/{workspace}/best-of"): ("read", {}), ("get", "/v1/best-of/{bestof}"): ("read", {}),
    ("post", "/v1/workspaces/{workspace}/best-of"): ("write", {"body": {"count": 1, "each": "true", "test": "true"}}),
    ("post", "/v1/best-of/{bestof}/cancel"): ("write", {}),
    ("get", "/v1/workspaces/{workspace}/compare"): ("read", {"target": "/v1/workspaces/{workspace}/compare?with={workspace}"}),
    ("delete", "/v1/workspaces/{workspace}/snapshots/{snapshot}"): ("write", {}), ("post", "/v1/workspaces/{workspace}/promote"): ("write", {}),
    ("post", "/v1/workspaces/{workspace}/execs"): ("write", {"body": {"argv": ["true"]}}),
    ("put", "/v1/execs/{exec}/stdin"): ("write", {"body": b"x"}), ("post", "/v1/execs/{exec}/signal"): ("write", {"body": {"signal": "CONT"}}),
    ("post", "/v1/execs/{exec}/resize"): ("write", {"body": {"rows": 5}}),
    ("post", "/v1/workspaces/{workspace}/lease"): ("write", {"body": {"holder": "x", "takeover": True, "keep_execs": True}}),
    ("put", "/v1/workspaces/{workspace}/lease"): ("write", {"headers": {"Moorage-Lease": "4711"}}),
    ("delete", "/v1/workspaces/{workspace}/lease"): ("write", {"headers": {"Moorage-Lease": "4711"}}),
    ("post", "/v1/execs/{exec}/cancel"): ("write", {}), ("post", "/v1/workspaces/{workspace}/stop"): ("write", {"body": {"force": True}}),
    ("post", "/v1/workspaces/{workspace}/move/check"): ("own", {"body": {"backend": "lxc"}}),
    ("post", "/v1/workspaces/{workspace}/move"): ("own", {"body": {"backend": "lxc"}}),
    ("patch", "/v1/workspaces/{workspace}"): ("own", {"body": {"limits": {"pids": 300}}}),
    ("get", "/v1/workspaces/{workspace}/network"): ("read", {}),
    ("get", "/v1/workspaces/{workspace}/network/check"): ("read", {"query": "?host=x.example"}),
    ("post", "/v1/workspaces/{workspace}/network"): ("own", {"body": {"deny": ["x.example"]}}),
    ("get", "/v1/credentials"): ("list", {}), ("get", "/v1/credentials/key"): ("open", {}),
    ("post", "/v1/credentials"): ("open", {"body": {"name": "x", "for": ["http://plain.example/"], "command": "true"}}),
    ("post", "/v1/credentials/{credential}/test"): ("repo", {}), ("delete", "/v1/credentials/{credential}"): ("repo", {}),
    ("get", "/v1/approvals"): ("list", {}), ("post", "/v1/approvals/{approval}/approve"): ("own", {"body": {}}),
    ("post", "/v1/approvals/{approval}/refuse"): ("own", {"body": {}}),
    ("post", "/v1/workspaces/{workspace}/share"): ("own", {"body": {"group": GROUP}}),
    ("post", "/v1/workspaces/{workspace}/undelete"): ("own", {}), ("delete", "/v1/workspaces/{workspace}"): ("own", {"query": "?force=1"}),
}
METHODS = ("get", "put", "post", "patch", "delete")


class Access(Threats):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.daemon.socket.chmod(0o666)
        cls.owner = cls.user(OWNER, TEAM)
        cls.member = cls.user(MEMBER, TEAM)
        cls.stranger = cls.user(STRANGER)
        local = cls.daemon.directory / "local"
        commit = harness.make_repository(local)
        harness.git(local, "update-ref", "refs/moorage/head", commit)
        harness.git(local, "update-ref", "refs/moorage/work", harness.commit(local, "work", "in progress\n"))
        harness.git(local, "bundle", "create", "../local.bundle", "refs/moorage/head", "refs/moorage/work")
        status, cls.work = cls.owner.json("POST", "/v1/repos/import?label=/home/o/x", (cls.daemon.directory / "local.bundle").read_bytes())
        assert status == 201, cls.work

    @classmethod
    def user(cls, uid, *groups):
        user = User(cls.daemon.socket, uid, *groups)
        cls.addClassCleanup(user.close)
        return user

    def make(self, name, **fields):
        status, workspace = self.owner.json("POST", "/v1/workspaces", {"repo_url": self.url, "name": name, **fields})
        self.assertEqual(status, 201, workspace)
        status, exec_ = self.owner.json("POST", f"/v1/workspaces/{name}/execs", {"argv": ["cat"], "stdin": True})
        self.assertEqual(status, 201, exec_)
        return workspace["id"], exec_["id"]

    def credential(self, name):
        sealed = base64.b64encode(self.client.seal(b"canary")).decode()
        status, made = self.owner.json("POST", "/v1/credentials", {"name": name, "for": ["https://api.example/"], "sealed": sealed})
        self.assertEqual(status, 201, made)
        return name

    def best_of(self, workspace):
        """An ended one."""
        status, best_of = self.owner.json("POST", f"/v1/workspaces/{workspace}/best-of", {"count": 1, "each": "true", "test": "true"})
        self.assertEqual(status, 201, best_of)
        self.owner.ask("GET", f"/v1/best-of/{best_of['id']}?wait=60")
        return best_of["id"]

    def requests(self, ids):
        """(access rule, id, method, target, body, headers, (target of a missing object, its id))."""
        document = yaml.safe_load(DOCUMENT.read_text())
        listed = {(method, path) for path, item in document["paths"].items() for method in METHODS if method in item}
        self.assertEqual(listed - set(REQUESTS), set(), "an operation that this matrix does not try")
        self.assertEqual(set(REQUESTS) - listed, set(), "an operation that there is not")
        for (method, path), (wants, how) in REQUESTS.items():
            template = how.get("target", path) + how.get("query", "")
            kind = next((k for k in ("workspace", "exec", "repo", "bestof", "credential", "approval") if "{" + k + "}" in template), "workspace" if "{}" in template else None)
            body = {"import": self.work, "name": "stolen"} if how.get("body") == "IMPORT" else how.get("body")
            for name in ids[kind] if kind else [None]:
                target = re.sub(r"\{[a-z]*\}", name or "", template)
                prefix = name and re.match(r"(ws_|ex_|repo_|bo_|ap_)\d+$", name)
                nothing = prefix[1] + "4711" if prefix else "nobody"
                yield wants, name, method.upper(), target, body, how.get("headers", {}), (re.sub(r"\{[a-z]*\}", nothing, template), nothing)

    @staticmethod
    def verdict(status, raw):
        if status < 400:
            return "done"
        error = json.loads(raw)
        if error["code"] in ("internal", "io", "corrupted"):
            return "BUG: " + error["message"]
        if error["code"] == "not_found" and re.search(r"no (deleted )?(workspace|exec|repository|credential)|there is no (repo|ws|ex|best-of bo|approval ap)_", error["message"]):
            return "hidden"
        return "forbidden" if error["code"] == "permission_denied" else "allowed"

    @threat(53, "C", "another user's workspace, command or import, requested by id or name on any route (IDOR)",
            "one place decides; users without access get exactly the answer for an object that does not exist",
            "the same requests succeed for the owner, and for a team member where the route allows members")
    def test_no_route_gives_access_to_other_users_objects(self):
        secret = "sesame-name"
        workspace, exec_ = self.make(secret, team=GROUP)
        old, old_exec = self.make("old-name", team=GROUP)
        self.assertEqual(self.owner.ask("DELETE", f"/v1/workspaces/{old}?force=1")[0], 200)
        private, private_exec = self.make("private-name")
        ids = {"workspace": [workspace, secret, old], "exec": [exec_, old_exec], "repo": [self.work["repo"]],
               "bestof": [self.best_of(workspace)], "credential": [self.credential("sesame-key")],
               "approval": [self.daemon.add_approval(workspace)]}
        private_ids = {"workspace": [private, "private-name"], "exec": [private_exec], "repo": [self.work["repo"]],
                       "bestof": [self.best_of(private)], "credential": ["sesame-key"],
                       "approval": [self.daemon.add_approval(private)]}
        outside = [("stranger", self.stranger, ids), ("stranger", self.stranger, private_ids), ("member", self.member, private_ids)]
        asked = 0
        for who, user, theirs in outside:
            hidden = [value for values in theirs.values() for value in values]
            for wants, name, method, target, body, headers, (nothing, stands_for) in self.requests(theirs):
                with self.subTest(who, method=method, target=target):
                    status, raw = user.ask(method, target, body, **headers)
                    asked += 1
                    if wants in ("open", "list"):
                        for word in hidden:
                            self.assertNotRegex(raw, rb'"' + re.escape(word.encode()) + rb'"')
                        self.assertNotIn(b"BUG", self.verdict(status, raw).encode())
                        continue
                    self.assertEqual(self.verdict(status, raw), "forbidden" if wants == "root" else "hidden", raw)
                    if name is not None:  # the answer must equal that for a missing object
                        none_status, none = user.ask(method, nothing, body, **headers)
                        self.assertEqual((status, raw.replace(name.encode(), b"*")),
                                         (none_status, none.replace(stands_for.encode(), b"*")))
        self.assertGreater(asked, 150)
        # Nothing has changed.
        root = self.client
        self.assertEqual({e["name"] for e in root.list_files(workspace)["entries"]}, {".git", "README.md", "src"})
        self.assertEqual(root.get_exec(exec_)["state"], "running")
        self.assertEqual(root.show_lease(workspace)["generation"], 0)
        self.assertEqual(root.workspace(old)["state"], "deleted")
        self.assertEqual([(c["name"], c["user"]) for c in root.credentials()], [("sesame-key", f"uid {OWNER}")])
        not_deleted = f"/v1/workspaces/{secret}/undelete"  # by name it searches the deleted ones
        for wants, _, method, target, body, headers, _ in self.requests(ids):
            with self.subTest("member", method=method, target=target):
                got = self.verdict(*self.member.ask(method, target, body, **headers))
                expected = {"own": ("forbidden",), "root": ("forbidden",), "repo": ("hidden",)}.get(wants, ("done", "allowed"))
                if target == not_deleted:
                    expected = ("hidden",)
                self.assertIn(got, expected)
        self.assertEqual(root.workspace(workspace)["state"], "ready")
        for wants, _, method, target, body, headers, _ in self.requests(ids):
            with self.subTest("owner", method=method, target=target):
                got = self.verdict(*self.owner.ask(method, target, body, **headers))
                expected = {"root": ("forbidden",)}.get(wants, ("done", "allowed"))
                self.assertIn(got, ("hidden",) if target == not_deleted else expected)
        for call in (root.doctor, root.gc_run):
            call()
        for left in root.workspaces(deleted=True):
            if left["name"] != "jail":
                self.end(left["id"])

    @threat(74, "M", "a lease guessed from its public parts: its generation, its holder, its uid",
            "a lease is proved by 256 random bits that only its holder gets; the store has their SHA-256; others see generation and holder",
            "with the holder's token each of these requests is accepted")
    def test_the_visible_parts_of_a_lease_give_no_access_on_any_route(self):
        workspace, exec_ = self.make("leased-name", team=GROUP)
        self.assertEqual(self.owner.ask("POST", f"/v1/workspaces/{workspace}/snapshots", {"name": "s"})[0], 201)
        status, best_of = self.owner.json("POST", f"/v1/workspaces/{workspace}/best-of", {"count": 1, "each": "sleep 600", "test": "true"})
        self.assertEqual(status, 201, best_of)
        status, forks = self.owner.json("POST", f"/v1/workspaces/{workspace}/fork", {"names": ["forked-name"]})
        self.assertEqual(status, 201, forks)
        fork = forks["workspaces"][0]["id"]
        wanted = {"holder": "agent", "ttl_s": 3600, "keep_execs": True}
        tokens = {name: self.owner.json("POST", f"/v1/workspaces/{name}/lease", wanted)[1]["token"] for name in (workspace, fork)}
        shown = [self.member.ask("GET", f"/v1/workspaces/{workspace}{rest}")[1].decode() for rest in ("", "/lease", "/history")]
        shown += [self.member.ask("GET", path)[1].decode() for path in ("/v1/workspaces", "/v1/events", "/v1/top", f"/v1/best-of/{best_of['id']}")]
        for text in shown:
            for token in tokens.values():
                self.assertNotIn(token.rsplit(".")[-1], text)
        seen = json.loads(shown[1])
        self.assertEqual((seen["generation"], seen["holder"]), (1, "agent"))
        guesses = ["", "1", f"{workspace}.1", f"{workspace}.1.{'0' * 64}", f"{workspace}.1.{tokens[fork].rsplit('.')[-1]}", tokens[fork]]
        ids = {"workspace": [workspace], "exec": [exec_], "repo": [self.work["repo"]], "bestof": [best_of["id"]], "credential": ["x"],
               "approval": ["ap_1"]}
        ungoverned = ("patch /v1/workspaces/{workspace}", "post /v1/workspaces/{workspace}/share", "post /v1/workspaces/{workspace}/network",
                      "post /v1/workspaces/{workspace}/undelete", "post /v1/approvals/{approval}/approve", "post /v1/approvals/{approval}/refuse")
        changes = [(wants, method, target, body) for (wants, _, method, target, body, _, _), (verb, path)
                   in zip(self.requests(ids), REQUESTS) if wants in ("write", "own") and f"{verb} {path}" not in ungoverned]
        self.assertGreater(len(changes), 25)
        for who, user in (("member", self.member), ("owner", self.owner)):
            for wants, method, target, body in changes:
                if wants == "own" and who == "member":
                    continue
                for guess in guesses:
                    if target.endswith("/lease") and method == "POST":
                        body = {"holder": "x"}  # a take-over is open to all writers, and visible
                    elif target.endswith("/promote"):
                        target = f"/v1/workspaces/{fork}/promote"
                    with self.subTest(who, method=method, target=target, guess=guess):
                        status, raw = user.ask(method, target, body, **({"Moorage_Lease": guess} if guess else {}))
                        if target.endswith("/lease") and method != "POST" and guess in ("", tokens[fork]):
                            self.assertEqual(status, 400, raw)
                            continue
                        self.assertEqual(status, 409, raw)
                        self.assertRegex(raw, rb"is held by agent")
        self.assertEqual(self.client.get_exec(exec_)["state"], "running")
        both = ", ".join(tokens.values())
        for wants, method, target, body in sorted(changes, key=lambda change: change[2].endswith("/lease")):
            if target.endswith("/lease") and method == "POST":
                continue
            if target.endswith("/promote"):
                target = f"/v1/workspaces/{fork}/promote"
            with self.subTest("holder", method=method, target=target):
                status, raw = self.owner.ask(method, target, body, Moorage_Lease=both)
                self.assertNotRegex(raw, rb"is held by")
        for name in (fork, workspace):
            self.end(name)

    def end(self, name):
        try:
            self.client.delete(name, purge=True, force=True)
        except harness.raw_api.ApiError:
            held = harness.Client(str(self.daemon.socket))
            held.lease_token = self.client.acquire_lease(name, "clean-up", takeover=True)["token"]
            held.delete(name, purge=True, force=True)

    @threat(54, "C", "a request whose body means different things to the check and to the action (CVE-2024-41110, CVE-2026-34040)",
            "the body is parsed once, strictly, and the parsed request is authorized and executed; ambiguous bodies are refused",
            "the same import in a plain body is private too: hidden from others, while its owner gets a workspace of it")
    def test_the_authorized_request_is_the_executed_one(self):
        theirs = json.dumps({"import": self.work, "name": "stolen"})
        harmless = json.dumps({"name": "stolen"})[1:-1]
        padding = " " * (5 << 20)

        def post(body, *headers, path="/v1/workspaces"):
            head = "\r\n".join([f"POST {path} HTTP/1.1", "Host: x", "Connection: close", *headers])
            return self.stranger.raw((head + "\r\n\r\n").encode() + body)

        def length(body):
            return f"Content-Length: {len(body)}"

        def chunked(*pieces):
            return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"
        plain = theirs.encode()
        own = plain.replace(self.work["repo"].encode(), b"repo_4711")
        doubled = (theirs[:-1] + "," + json.dumps({"import": {**self.work, "repo": "repo_4711"}})[1:]).encode()
        doubled_inside = theirs.replace('"repo":', '"repo": "repo_4711", "repo":').encode()
        escaped = theirs.replace('"repo"', '"r\\u0065po"').encode()
        attempts = {
            "plain": (post(plain, length(plain)), 404),
            "a length of 0 before it": (post(plain, "Content-Length: 0"), 400),
            "two lengths": (post(plain, "Content-Length: 2", length(plain)), 400),
            "a length and chunks": (post(chunked(plain), "Content-Length: 0", "Transfer-Encoding: chunked"), 400),
            "chunks": (post(chunked(plain[:9], plain[9:]), "Transfer-Encoding: chunked"), 404),
            "chunks with a trailer": (post(chunked(plain)[:-2] + b"Content-Length: 0\r\n\r\n", "Transfer-Encoding: chunked"), (400, 404)),
            "the same key twice": (post(doubled, length(doubled)), 400),
            "the same key twice, further in": (post(doubled_inside, length(doubled_inside)), 400),
            "a key written otherwise": (post(escaped, length(escaped)), 404),
            "over four megabytes": (post((padding + theirs).encode(), length((padding + theirs).encode())), 400),
            "over four megabytes, behind a good part": (post(("{" + harmless + "}" + padding + theirs).encode(),
                                                         length(("{" + harmless + "}" + padding + theirs).encode())), 400),
            "over four megabytes in chunks": (post(chunked((padding + theirs).encode()), "Transfer-Encoding: chunked"), 400),
            "two documents": (post(("{" + harmless + "}" + theirs).encode(), length(("{" + harmless + "}" + theirs).encode())), 400),
            "another encoding": (post(theirs.encode("utf-16"), length(theirs.encode("utf-16"))), 400),
            "of nobody's": (post(own, length(own)), 404),
        }
        for what, (answer, expected) in attempts.items():
            with self.subTest(what):
                statuses = [int(s) for s in re.findall(rb"HTTP/1\.1 (\d{3})", answer)]
                self.assertTrue(statuses, answer)
                allowed = expected if isinstance(expected, tuple) else (expected,)
                self.assertIn(statuses[0], allowed, answer)
                self.assertFalse([s for s in statuses if s < 400], answer)
        # The object in the path is decoded once, before the lookup; a repeated lease or query is refused.
        workspace, _ = self.make("aim")
        encoded = "".join(f"%{ord(c):02x}" for c in workspace)
        for path in (f"/v1/workspaces/{encoded}/stop", f"/v1/workspaces/{workspace}%2fstop/stop", f"/v1/workspaces/{workspace}%00/stop",
                     f"/v1/workspaces/x/../{workspace}/stop", f"//v1/workspaces/{workspace}/stop"):
            with self.subTest(path):
                self.assertRegex(post(b"", "Content-Length: 0", path=path), rb"^HTTP/1.1 40[04]")
        twice = self.owner.raw(f"POST /v1/workspaces/{workspace}/stop HTTP/1.1\r\nHost: x\r\nMoorage-Lease: 1\r\nMoorage-Lease: 2\r\n"
                               "Content-Length: 0\r\nConnection: close\r\n\r\n".encode())
        self.assertTrue(twice.startswith(b"HTTP/1.1 400"), twice)
        self.assertEqual(self.owner.ask("DELETE", f"/v1/workspaces/{workspace}/file?path=new&path=README.md")[0], 400)
        self.assertEqual(self.owner.ask("GET", f"/v1/workspaces/{workspace}/file?path=README.md")[0], 200)
        self.assertEqual([w["name"] for w in self.client.workspaces() if w["name"] == "stolen"], [])
        self.assertEqual(self.owner.ask("POST", f"/v1/workspaces/{encoded}/stop", {"force": True})[0], 200)
        self.assertEqual(self.owner.json("POST", "/v1/workspaces", {"import": self.work, "name": "stolen"})[0], 201)
        self.end("stolen")
        self.end(workspace)


if __name__ == "__main__":
    unittest.main()
