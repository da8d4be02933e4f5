"""The API matches docs/openapi.yaml: every answer of every route goes through Prism, which checks it.

Prism gets a strict copy of the document: an undocumented field in an answer is a violation. Requests are good, or bad on
purpose; a bad one may violate the document, but its answer must not. At the end every operation must have answered with
each of its documented statuses.
"""

import base64
import contextlib
import grp
import hashlib
import http.client
import io
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import unittest
import urllib.parse

import harness
import raw_api
import npm_packages

HERE = harness.ROOT / "tests/openapi"
PLACE = harness.ROOT / "build/openapi"
DOCUMENT = harness.ROOT / "docs/openapi.yaml"
METHODS = ("get", "put", "post", "patch", "delete")


def install_prism():
    return npm_packages.install(HERE, PLACE.name) / "node_modules/.bin/prism"


def read_strictly(document=DOCUMENT):
    """The results of two strict parsers."""
    return json.loads(harness.run("node", HERE / "parse.js", PLACE, document).stdout)


def strict(node):
    """The same schemas, but without undocumented fields."""
    if isinstance(node, dict):
        closed = {key: strict(value) for key, value in node.items()}
        if closed.get("type") == "object" and "properties" in closed:
            closed.setdefault("additionalProperties", False)
        return closed
    return [strict(item) for item in node] if isinstance(node, list) else node


class Forwarder:
    """TCP on loopback to the daemon's unix socket, as Prism needs TCP. Prism reads a body as text: `swap` puts bytes
    that are not text in the place of a text of the same length."""

    swap = None

    def __init__(self, path):
        self.path = str(path)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self.path)
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self.pump, args=(source, target), daemon=True).start()

    def pump(self, source, target):
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                target.sendall(piece.replace(*self.swap) if self.swap else piece)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


class Prism:
    def __init__(self, program, document, upstream_port, log):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.log = log
        with open(log, "wb") as out:
            self.process = subprocess.Popen(
                ["node", str(program), "proxy", str(document), f"http://127.0.0.1:{upstream_port}", "--port", str(self.port)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
        harness.wait_until(self.listens, 120, what=f"Prism; log: {log}")

    def listens(self):
        if self.process.poll() is not None:
            raise AssertionError(f"Prism ended: {self.log.read_text()}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True

    def close(self):
        self.process.kill()
        self.process.wait()


@unittest.skipUnless(os.environ.get("CI") or shutil.which("npm"), "SKIP: no npm")
class Document(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        install_prism()

    def test_strict_parsers_read_it_and_agree(self):
        first, second = read_strictly().values()
        self.assertEqual(first, second)

    def test_both_parsers_refuse_a_duplicate_key(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as twice:
            twice.write("a: {b: 1, b: 2}\n")
            twice.flush()
            for parser, call in (("js-yaml", "safeLoad"), ("yaml", "parse")):
                script = f"require(process.argv[1] + '/node_modules/{parser}').{call}(require('fs').readFileSync(process.argv[2], 'utf8'))"
                ran = subprocess.run(["node", "-e", script, PLACE, twice.name], capture_output=True, text=True)
                self.assertNotEqual(ran.returncode, 0, parser)
                self.assertRegex(ran.stderr, "duplicated mapping key|must be unique")


@unittest.skipUnless(os.environ.get("CI") or shutil.which("npm"), "SKIP: no npm")
class OpenApi(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        program = install_prism()
        super().setUpClass()
        cls.document = read_strictly()["js-yaml"]
        copy = cls.daemon.directory / "openapi.json"
        copy.write_text(json.dumps(strict(cls.document)))
        cls.forwarder = Forwarder(cls.daemon.socket)
        cls.addClassCleanup(cls.forwarder.close)
        cls.prism = Prism(program, copy, cls.forwarder.port, cls.daemon.directory / "prism.log")
        cls.addClassCleanup(cls.prism.close)
        cls.answered = set()
        cls.answers = []

    def operation(self, method, path):
        """Its path in the document; literal paths win over patterns."""
        parts = path.split("/")

        def fits(pattern):
            wanted = pattern.split("/")
            return len(wanted) == len(parts) and all(w.startswith("{") or w == p for w, p in zip(wanted, parts))
        found = sorted((p for p in self.document["paths"] if fits(p)), key=lambda p: p.count("{"))
        self.assertTrue(found, f"{method} {path} is not in the document")
        self.assertIn(method.lower(), self.document["paths"][found[0]])
        return found[0]

    def call(self, expected, method, path, query=None, body=None, good=True, **headers):
        """Sends a request through Prism. body: an object is sent as JSON. Returns the answer, decoded if it is JSON."""
        target = path + ("?" + urllib.parse.urlencode(query) if query else "")
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        elif body is not None:
            headers.setdefault("Content-Type", "application/octet-stream")
        connection = http.client.HTTPConnection("127.0.0.1", self.prism.port, timeout=120)
        try:
            connection.request(method, target, body=body, headers=headers)
            response = connection.getresponse()
            raw = response.read()
        finally:
            connection.close()
        kind = response.getheader("Content-Type") or ""
        what = f"{method} {target}: {response.status} {raw[:500]!r}"
        self.assertNotIn("problem+json", kind, what)
        violations = json.loads(response.getheader("sl-violations") or "[]")
        wrong = [v for v in violations if v["location"][0] != "request" or good]
        self.assertEqual(wrong, [], what)
        self.assertEqual(response.status, expected, what)
        operation = self.operation(method, path)
        documented = self.document["paths"][operation][method.lower()]["responses"]
        status = str(expected) if str(expected) in documented else "default"
        self.answered.add((method, operation, status))
        if kind.startswith("application/json"):
            self.answers.append({"method": method.lower(), "path": operation, "status": status, "answer": json.loads(raw)})
        if kind.startswith("application/x-ndjson"):
            self.check_lines("Event" if operation == "/v1/events" else "Progress", raw)
        return json.loads(raw) if kind.startswith("application/json") else raw

    def check_lines(self, schema, raw):
        """OpenAPI cannot describe lines of JSON, so Prism sees text; their fields are compared here."""
        known = set(self.document["components"]["schemas"][schema]["properties"])
        for line in raw.splitlines():
            self.assertLessEqual(set(json.loads(line)), known)

    def bad(self, expected, method, path, query=None, body=None, code=None, **headers):
        error = self.call(expected, method, path, query, body, good=False, **headers)
        self.assertEqual(set(error), {"code", "message", "hint"})
        if code:
            self.assertEqual(error["code"], code)

    def test_every_route_good_and_bad(self):
        self.about_the_host()
        self.about_repositories()
        self.about_workspaces()
        self.about_files()
        self.about_execs()
        self.about_credentials()
        self.about_approvals()
        self.about_rescue()
        self.about_ends()
        self.about_what_is_not_there()
        documented = {(method.upper(), path, status) for path, item in self.document["paths"].items()
                      for method in METHODS if method in item for status in item[method]["responses"]}
        self.assertEqual(documented - self.answered, set(), "documented and never answered")
        self.no_mutant_is_valid()

    def no_mutant_is_valid(self):
        """Every answer is valid, and would not be with one more field in any of its objects."""
        answers = self.daemon.directory / "answers.json"
        answers.write_text(json.dumps(self.answers))

        def check(document):
            return json.loads(harness.run("node", HERE / "mutants.js", PLACE, document, answers).stdout)
        loose = self.daemon.directory / "loose.json"
        loose.write_text(json.dumps(self.document))
        self.assertGreater(len(check(loose)["uncaught"]), 50, "a document that allows any field")
        said = check(self.daemon.directory / "openapi.json")
        self.assertGreater(said["answers"], 100)
        self.assertGreater(said["mutants"], 500)
        self.assertEqual((said["undocumented"], said["invalid"]), ([], []))
        self.assertEqual(said["uncaught"], [])

    def about_the_host(self):
        self.call(204, "GET", "/v1/health")
        self.call(200, "GET", "/v1/info")
        self.call(200, "GET", "/v1/config")
        self.call(200, "GET", "/metrics")
        self.call(200, "GET", "/v1/events", {"since": 0})
        for path in ("/v1/health", "/v1/info", "/v1/config", "/metrics", "/v1/events", "/v1/repos", "/v1/workspaces",
                     "/v1/execs", "/v1/top", "/v1/du", "/v1/gc"):
            self.bad(400, "GET", path, {"nonsense": 1}, code="invalid_argument")
        self.bad(400, "GET", "/v1/events", {"follow": "perhaps"})
        self.assertEqual(self.call(200, "POST", "/v1/config/reload")["need_restart"], [])
        self.bad(400, "POST", "/v1/config/reload", body={"nonsense": 1}, code="invalid_argument")
        self.call(200, "GET", "/v1/doctor", {"deep": 1})
        (self.daemon.store / "reserve").unlink()
        self.assertTrue(self.call(200, "POST", "/v1/doctor", body={"deep": False})["findings"])
        self.bad(400, "GET", "/v1/doctor", {"nonsense": 1}, code="invalid_argument")
        self.bad(409, "GET", "/v1/rescue/workspaces/one", code="conflict")  # there is nothing to rescue
        self.bad(400, "POST", "/v1/doctor", body={"nonsense": 1}, code="invalid_argument")

    def about_rescue(self):
        """The same API without a state.db, then with it again."""
        workspace = self.client.workspaces()[0]["id"]
        self.client.archive("three")
        self.daemon.stop()
        file = self.daemon.store / "state.db"
        file.rename(file.with_suffix(".away"))
        self.daemon.start(wait=False)
        harness.wait_until(self.daemon.answers, what="rescue mode")
        try:
            self.assertIn("state.db is gone", self.call(200, "GET", "/v1/health")["rescue"])
            self.assertIn("rescue", self.call(200, "GET", "/v1/info"))
            rescued = self.call(200, "GET", "/v1/workspaces")["workspaces"]
            self.assertTrue(all(one["rescued"] for one in rescued))
            self.assertEqual(sum(isinstance(one.get("archive"), str) for one in rescued), 1, rescued)
            self.assertFalse(self.call(200, "GET", "/v1/doctor")["clean"])
            self.call(200, "GET", f"/v1/rescue/workspaces/{workspace}")
            self.bad(404, "GET", "/v1/rescue/workspaces/nobody")
            for method, path in (("GET", "/v1/repos"), ("GET", "/v1/execs"), ("POST", f"/v1/workspaces/{workspace}/start")):
                self.bad(503, method, path, code="unavailable")
        finally:
            self.daemon.stop()
            file.with_suffix(".away").rename(file)
            self.daemon.start()

    def about_repositories(self):
        self.call(200, "GET", "/v1/repos")
        repo = self.call(201, "POST", "/v1/repos", body={"url": self.url}, Idempotency_Key="add")["id"]
        again = self.call(201, "POST", "/v1/repos", body={"url": self.url}, Idempotency_Key="add")["id"]
        self.assertEqual(repo, again)
        self.bad(409, "POST", "/v1/repos", body={"url": self.url + "-other"}, Idempotency_Key="add", code="already_exists")
        lines = self.call(200, "POST", "/v1/repos", body={"url": self.url}, Accept="application/x-ndjson")
        self.assertIn("result", json.loads(lines.splitlines()[-1]))
        self.bad(400, "POST", "/v1/repos", body={"url": "ext::sh -c id"})
        self.bad(400, "POST", "/v1/repos", body={"url": 5})
        self.call(200, "GET", "/v1/repos")
        self.call(200, "GET", f"/v1/repos/{repo}")
        self.bad(404, "GET", "/v1/repos/repo_4711")
        self.call(200, "POST", f"/v1/repos/{repo}/fetch")
        self.call(200, "POST", f"/v1/repos/{repo}/fetch", Accept="application/x-ndjson")
        self.bad(404, "POST", "/v1/repos/repo_4711/fetch")
        self.bad(404, "DELETE", "/v1/repos/repo_4711")
        self.about_imports()
        other = self.call(201, "POST", "/v1/repos", body={"url": self.other_url})["id"]
        self.call(204, "DELETE", f"/v1/repos/{other}")

    def about_imports(self):
        harness.make_repository(self.upstream / "other")
        self.other_url = self.git_server.url("other")
        local = self.daemon.directory / "local"
        commit = harness.make_repository(local, {"a": "a\n"})
        harness.git(local, "update-ref", "refs/moorage/head", commit)
        harness.git(local, "update-ref", "refs/moorage/work", harness.commit(local, "b", "b\n"))
        harness.git(local, "bundle", "create", "../local.bundle", "refs/moorage/head", "refs/moorage/work")
        self.call(200, "GET", "/v1/repos/import", {"label": "/home/u/x"})
        self.bad(400, "GET", "/v1/repos/import")
        bundle = (self.daemon.directory / "local.bundle").read_bytes()
        placeholder = b"x" * len(bundle)
        self.forwarder.swap = (placeholder, bundle)
        self.work = self.call(201, "POST", "/v1/repos/import", {"label": "/home/u/x"}, body=placeholder)
        self.forwarder.swap = None
        self.bad(400, "POST", "/v1/repos/import", {"label": "/home/u/x"}, body=b"no bundle")

    def about_workspaces(self):
        made = self.call(201, "POST", "/v1/workspaces", body={
            "repo_url": self.url, "name": "one", "labels": {"task": "x"},
            "limits": {"memory_bytes": 1 << 28, "cpus": 1.5, "pids": 200}}, Idempotency_Key="make-one")
        self.assertEqual(made["name"], "one")
        self.call(200, "POST", "/v1/workspaces", body={"repo_url": self.url, "name": "two"}, Accept="application/x-ndjson")
        self.call(201, "POST", "/v1/workspaces", body={"import": self.work, "name": "three", "disposable": True, "team": "0"})
        self.bad(409, "POST", "/v1/workspaces", body={"repo_url": self.url, "name": "one"}, code="already_exists")
        for body in ({"repo_url": self.url, "name": "NOT/A/NAME"}, {"repo_url": self.url, "privileged": True}, {}):
            self.bad(400, "POST", "/v1/workspaces", body=body)
        self.call(200, "GET", "/v1/workspaces")
        first = self.call(200, "GET", "/v1/workspaces", {"limit": 1})
        self.assertIn("next", first)
        self.call(200, "GET", "/v1/workspaces", {"after": first["next"], "limit": 2})
        self.bad(400, "GET", "/v1/workspaces", {"limit": 1001})
        self.bad(400, "GET", "/v1/workspaces", {"after": "one"})
        self.call(200, "GET", "/v1/workspaces/one")
        self.bad(404, "GET", "/v1/workspaces/nobody")
        self.call(200, "PATCH", "/v1/workspaces/one", body={"limits": {"pids": 300}})
        renamed = self.call(200, "PATCH", "/v1/workspaces/one", body={"name": "uno", "labels": {"added": "1"}})
        self.assertEqual((renamed["name"], renamed["labels"]["added"]), ("uno", "1"))
        self.assertNotIn("added", self.call(200, "PATCH", "/v1/workspaces/uno", body={"name": "one", "labels": {"added": None}})["labels"])
        for body in ({"limits": {"pids": 1}}, {"limits": {"swap": 1}}, {"name": ""}, {"name": "No"}, {"labels": {"a": 1}}, {"labels": {"": "a"}}):
            self.bad(400, "PATCH", "/v1/workspaces/one", body=body)
        self.bad(404, "PATCH", "/v1/workspaces/nobody", body={})
        self.call(200, "PATCH", "/v1/workspaces/one", body={
            "idle_stop_s": 60, "max_lifetime_s": -1, "pre_stop": "echo stopping", "pre_stop_deadline_s": 5, "max_exec_s": 3600,
            "max_execs": 10_000, "max_exec_total_s": 100_000})
        self.call(200, "PATCH", "/v1/workspaces/one", body={"pre_stop": ["echo", "stopping"]})
        for body in ({"idle_stop_s": -2}, {"pre_stop": 5}, {"pre_stop": [""]}, {"pre_stop_deadline_s": 601}, {"max_execs": -1}):
            self.bad(400, "PATCH", "/v1/workspaces/one", body=body)
        network = "/v1/workspaces/one/network"
        self.call(200, "POST", network, body={"allow": ["web.example:8080"], "deny": ["ads.example"]})
        self.call(200, "POST", network, body={"forget": ["ads.example"]})
        self.bad(400, "POST", network, body={"allow": ["http://web.example/"]})
        self.call(200, "GET", network)
        self.bad(404, "GET", "/v1/workspaces/nobody/network")
        self.call(200, "GET", network + "/check", {"host": "web.example:8080"})
        self.bad(400, "GET", network + "/check", {"host": "127.0.0.1"})
        self.call(200, "POST", "/v1/workspaces/one/start")
        self.assertIn("notice", self.call(200, "PATCH", "/v1/workspaces/one", body={"limits": {"pids": 200}}))
        self.bad(400, "POST", "/v1/workspaces/one/start", body={"fast": True})
        self.call(200, "GET", "/v1/workspaces/one")
        self.about_leases()
        self.call(200, "POST", "/v1/workspaces/two/stop")
        self.call(200, "POST", "/v1/workspaces/two/stop", body={"no_hook": True})
        self.call(200, "POST", "/v1/workspaces/two/stop", body={"force": True, "wait_ms": 10})
        self.bad(400, "POST", "/v1/workspaces/two/stop", body={"wait_ms": -1})
        self.bad(400, "POST", "/v1/workspaces/two/stop", body={"hook": False})
        self.bad(404, "POST", "/v1/workspaces/nobody/stop")
        self.about_snapshots()
        self.about_moves()
        self.about_best_of()
        self.about_archives()
        self.call(200, "DELETE", "/v1/workspaces/two")
        self.call(200, "GET", "/v1/workspaces", {"deleted": 1})
        self.call(200, "GET", "/v1/workspaces/two/history")
        self.call(200, "POST", "/v1/workspaces/two/undelete", body={"name": "too"})
        self.bad(404, "POST", "/v1/workspaces/two/undelete")
        self.call(200, "POST", "/v1/workspaces/too/sync")
        self.bad(404, "POST", "/v1/workspaces/nobody/sync")
        self.call(204, "DELETE", "/v1/workspaces/too", {"purge": 1})
        self.bad(404, "DELETE", "/v1/workspaces/too")

    def about_leases(self):
        one, lease = "/v1/workspaces/one", "/v1/workspaces/one/lease"
        self.assertEqual(self.call(200, "GET", lease), {"held": False, "generation": 0})
        held = self.call(201, "POST", lease, body={"holder": "agent", "ttl_s": 600, "takeover": True, "keep_execs": True})
        self.assertEqual((held["held"], held["generation"]), (True, 1))
        token = held["token"]
        self.assertNotIn("token", self.call(200, "GET", lease))
        self.bad(409, "POST", lease, body={"holder": "other"}, code="conflict")
        for body in ({"holder": ""}, {"holder": "x", "ttl_s": 1}, {}, {"holder": "x", "force": True}):
            self.bad(400, "POST", lease, body=body)
        self.bad(404, "POST", "/v1/workspaces/nobody/lease", body={"holder": "x"})
        self.assertNotIn("token", self.call(200, "PUT", lease, Moorage_Lease=token))
        self.bad(409, "PUT", lease, Moorage_Lease="1", code="conflict")
        self.bad(400, "PUT", lease)
        self.bad(409, "PUT", lease, Moorage_Lease="2", code="conflict")
        self.assertEqual(self.call(200, "GET", one)["holder"]["holder"], "agent")
        self.bad(409, "POST", one + "/start", code="conflict")
        self.bad(400, "POST", one + "/start", Moorage_Lease="one")
        self.call(200, "POST", one + "/start", Moorage_Lease=token)
        self.call(204, "DELETE", lease, Moorage_Lease=token)
        self.bad(409, "DELETE", lease, Moorage_Lease=token, code="conflict")
        self.assertEqual(self.call(200, "GET", lease)["ended"], "released")
        self.bad(404, "GET", "/v1/workspaces/nobody/lease")
        group = grp.getgrgid(os.getgid()).gr_name
        self.assertEqual(self.call(200, "POST", one + "/share", body={"group": group})["team"], group)
        self.assertEqual(self.call(200, "POST", one + "/share", body={"private": True})["access"], "private")
        for body in ({}, {"group": group, "private": True}, {"group": "no-such-group"}):
            self.bad(400, "POST", one + "/share", body=body)

    def about_snapshots(self):
        two = "/v1/workspaces/two"
        first = self.call(201, "POST", two + "/snapshots", body={"name": "first", "external_id": "c-1"})
        self.assertEqual([s["id"] for s in self.call(200, "GET", two + "/snapshots")["snapshots"]], [first["id"]])
        self.assertEqual(self.call(200, "GET", two + "/snapshots/first")["external_id"], "c-1")
        fork = self.call(201, "POST", two + "/fork", body={"names": ["two-fork"], "labels": {"a": "b"}})["workspaces"][0]
        self.call(201, "POST", two + "/fork", body={"count": 1, "snapshot": "first"})
        self.assertEqual(fork["attempt"], {"number": 1, "of": 1})
        self.assertEqual(self.call(200, "POST", "/v1/workspaces/two-fork/promote", body={"kill": True})["name"], "two")
        self.call(200, "POST", two + "/restore", body={"snapshot": "first", "kill": True})
        self.assertEqual(len(self.call(200, "GET", two + "/tree")["workspaces"]), 3)
        self.call(204, "DELETE", two + "/snapshots/first")
        self.bad(404, "POST", two + "/undo", body={"exec": "ex_1", "kill": True})
        self.call(200, "PATCH", two, body={"snapshot_before_exec": True})
        self.client.exec("two", "true")
        self.call(200, "POST", two + "/undo", body={"kill": True})
        self.call(200, "PATCH", two, body={"snapshot_before_exec": False})
        for verb, body in (("snapshots", {"name": "A B"}), ("snapshots", {"fast": True}), ("restore", {}), ("fork", {"count": 0}), ("promote", {"x": 1})):
            self.bad(400, "POST", f"{two}/{verb}", body=body)
        for method, rest in (("GET", "/snapshots/none"), ("DELETE", "/snapshots/sn_999"), ("GET", "-none/tree"), ("GET", "-none/snapshots")):
            self.bad(404, method, two + rest)
        self.bad(404, "POST", two + "/restore", body={"snapshot": "none"})
        for name in ("two-fork", "two-1"):
            self.call(204, "DELETE", f"/v1/workspaces/{name}", {"purge": 1})

    def about_moves(self):
        two = "/v1/workspaces/two"
        plan = self.call(200, "POST", two + "/move/check", body={"backend": "lxc"})
        self.assertEqual((plan["from"], plan["from"]["isolation"]), (plan["to"], "userns"))
        moved = self.call(200, "POST", two + "/move", body={"backend": "lxc", "image": "host", "now": False, "wait_ms": 10})
        self.assertIn("already", moved["notice"])
        for rest in ("/move", "/move/check"):
            self.bad(404, "POST", two + rest, body={"backend": "none"})
            self.bad(404, "POST", two + "-none" + rest, body={"backend": "lxc"})
            for body in ({"backend": ""}, {"image": 3}, {"privileged": True}):
                self.bad(400, "POST", two + rest, body=body)
        self.bad(400, "POST", two + "/move", body={"wait_ms": 60001})

    def about_best_of(self):
        two = "/v1/workspaces/two"
        began = self.call(201, "POST", two + "/best-of", body={"count": 2, "each": "echo {i} > fix", "test": ["test", "-e", "fix"],
                                                               "timeout_ms": 60000, "promote": "first-passing", "parallel": 2, "keep": True})
        path = f"/v1/best-of/{began['id']}"
        ended = self.call(200, "GET", path, {"wait": 60})
        self.assertEqual((ended["state"], ended["chosen"]), ("done", 1))
        self.bad(409, "POST", path + "/cancel", code="conflict")
        patch = b"--- /dev/null\n+++ b/of-a-patch\n@@ -0,0 +1 @@\n+x\n"
        head = json.dumps({"patches": [{"name": "a", "bytes": len(patch)}], "test": "sleep 60"}).encode()
        patched = self.call(201, "POST", two + "/best-of", {"json_bytes": len(head)}, body=head + patch)
        self.call(200, "POST", f"/v1/best-of/{patched['id']}/cancel")
        self.assertEqual(self.call(200, "GET", f"/v1/best-of/{patched['id']}", {"wait": 60})["state"], "cancelled")
        self.assertEqual(len(self.call(200, "GET", two + "/best-of")["best_of"]), 2)
        names = [a["name"] for a in ended["attempts"] + patched["attempts"]]
        self.assertEqual(self.call(200, "GET", two + "/compare", {"with": names[1]})["total"]["files"], 1)
        self.assertIn(b"+2", self.call(200, "GET", two + "/compare", {"with": names[1], "patch": 1}))
        for body in ({}, {"count": 2, "each": "x"}, {"count": 0, "each": "x", "test": "x"}, {"count": 2, "each": "x", "test": "x", "promote": "none"}):
            self.bad(400, "POST", two + "/best-of", body=body)
        self.bad(400, "GET", two + "/compare")
        self.bad(400, "GET", path, {"wait": 9999})
        for method, rest in (("GET", "/v1/best-of/bo_999"), ("POST", "/v1/best-of/three/cancel"), ("GET", two + "-none/best-of"),
                             ("POST", two + "-none/best-of")):
            self.bad(404, method, rest)
        self.bad(404, "GET", two + "-none/compare", {"with": "two"})
        self.bad(404, "GET", two + "/compare", {"with": "none"})
        for name in names:
            self.call(204, "DELETE", f"/v1/workspaces/{name}", {"purge": 1})

    def about_archives(self):
        self.call(200, "POST", "/v1/workspaces/two/archive")
        self.assertIn("sha256", self.call(200, "GET", "/v1/workspaces/two")["archive"])
        self.bad(409, "GET", "/v1/workspaces/two/export", code="conflict")
        self.bad(400, "POST", "/v1/workspaces/two/unarchive", body={"fast": True})
        self.call(200, "POST", "/v1/workspaces/two/unarchive", Accept="application/x-ndjson")
        self.call(200, "POST", "/v1/workspaces/two/archive", Accept="application/x-ndjson")
        self.call(200, "POST", "/v1/workspaces/two/unarchive")
        self.assertTrue(self.call(200, "GET", "/v1/workspaces/two/objects").startswith(b"PACK"))
        self.bad(404, "GET", "/v1/workspaces/none/objects")
        archive = self.call(200, "GET", "/v1/workspaces/two/export")
        kept = io.BytesIO()
        self.client.export("two", kept)
        placeholder = b"x" * len(kept.getvalue())
        self.assertGreater(len(archive), 1000)
        self.forwarder.swap = (placeholder, kept.getvalue())
        self.call(201, "POST", "/v1/workspaces/import", {"name": "four"}, body=placeholder)
        self.forwarder.swap = None
        self.call(204, "DELETE", "/v1/workspaces/four", {"purge": 1})
        self.bad(400, "POST", "/v1/workspaces/import", {"name": "five"}, body=b"no archive")
        for verb in ("archive", "unarchive"):
            self.bad(404, "POST", f"/v1/workspaces/nobody/{verb}")

    def about_files(self):
        files = "/v1/workspaces/one/files"
        file = "/v1/workspaces/one/file"
        self.call(200, "PUT", file, {"path": "notes.txt", "mode": "0600"}, body=b"some text\n")
        tag = '"sha256-' + hashlib.sha256(b"some text\n").hexdigest() + '"'
        self.call(200, "PUT", file, {"path": "notes.txt"}, body=b"some text\n", If_Match=tag)
        self.bad(412, "PUT", file, {"path": "notes.txt"}, body=b"other", If_None_Match="*", code="conflict")
        self.bad(412, "PUT", file, {"path": "nothing"}, body=b"other", If_Match="*", code="conflict")
        self.bad(412, "DELETE", file, {"path": "README.md"}, If_Match=tag, code="conflict")
        self.bad(412, "POST", files + "/move", body={"from": "README.md", "to": "x"}, If_Match=tag, code="conflict")
        self.bad(400, "PUT", file, {"path": "notes.txt"}, body=b"", If_Match="abc")
        self.bad(400, "POST", files + "/mkdir", body={"path": "a"}, If_Match="*")
        self.call(200, "GET", file, {"path": "notes.txt", "hash": 1})
        self.bad(400, "PUT", file, {"path": "notes.txt", "mode": "rwx"}, body=b"")
        self.bad(400, "PUT", file, {"path": "/etc/passwd"}, body=b"")
        self.assertEqual(self.call(200, "GET", file, {"path": "notes.txt"}), b"some text\n")
        self.bad(404, "GET", file, {"path": "nothing"})
        self.bad(400, "GET", file)
        self.call(204, "POST", files + "/mkdir", body={"path": "a/b"})
        self.bad(400, "POST", files + "/mkdir", body={"path": "/etc"})
        self.call(204, "POST", files + "/move", body={"from": "notes.txt", "to": "a/notes.txt"})
        self.bad(404, "POST", files + "/move", body={"from": "notes.txt", "to": "x"})
        self.call(204, "POST", files + "/symlink", body={"path": "a/link", "target": "notes.txt"})
        self.bad(409, "POST", files + "/symlink", body={"path": "a/link", "target": "notes.txt"})
        self.client.exec("one", "touch a/$(printf 'x\\377y') && ln -s $(printf 'x\\377y') a/odd; echo more >> README.md")
        listed = self.call(200, "GET", files, {"path": "a"})
        self.assertTrue(any("name_b64" in entry for entry in listed["entries"]))
        self.bad(404, "GET", files, {"path": "nothing"})
        status = self.call(200, "GET", "/v1/workspaces/one/status")
        self.assertTrue(any("path_b64" in change for change in status["files"]))
        self.bad(404, "GET", "/v1/workspaces/nobody/status")
        self.assertIn(b"+more", self.call(200, "GET", "/v1/workspaces/one/diff"))
        self.call(200, "GET", "/v1/workspaces/one/diff", {"stat": 1})
        self.bad(400, "GET", "/v1/workspaces/one/diff", {"stat": "much"})
        self.bad(400, "GET", "/v1/workspaces/one/diff", {"base": "tail"})
        self.assertEqual(self.call(200, "GET", "/v1/workspaces/one/diff", {"stat": 1, "path": "none"}), [])
        self.bad(400, "GET", "/v1/workspaces/one/diff", {"path": "../etc"})
        self.assertEqual(self.call(200, "GET", "/v1/workspaces/one/base", {"path": "README.md"}), b"hello\n")
        self.bad(404, "GET", "/v1/workspaces/one/base", {"path": "absent"})
        self.call(204, "DELETE", file, {"path": "a", "recursive": 1})
        self.bad(404, "DELETE", file, {"path": "a"})

    def about_execs(self):
        execs = "/v1/workspaces/one/execs"
        made = self.call(201, "POST", execs, body={
            "argv": ["sh", "-c", "echo out; echo err >&2; cat; exit 3"], "env": {"A": "b"}, "cwd": "/workspace", "user": "user",
            "stdin": True, "timeout_ms": 60000, "sync": True}, Idempotency_Key="run")
        exec_ = f"/v1/execs/{made['id']}"
        again = self.call(201, "POST", execs, body={
            "argv": ["sh", "-c", "echo out; echo err >&2; cat; exit 3"], "env": {"A": "b"}, "cwd": "/workspace", "user": "user",
            "stdin": True, "timeout_ms": 60000, "sync": True}, Idempotency_Key="run")
        self.assertEqual(made["id"], again["id"])
        self.call(200, "GET", execs, {"running": 1})
        self.call(200, "GET", "/v1/execs", {"running": "true"})
        self.assertIn("stdin_accepted", self.call(200, "GET", exec_))
        self.call(200, "GET", exec_ + "/wait", {"timeout_ms": 10})
        self.call(200, "GET", "/v1/workspaces/one")  # works
        self.call(200, "GET", "/v1/top", {"mine": 1})
        self.call(200, "PUT", exec_ + "/stdin", {"offset": 0, "close": 1}, body=b"typed\n")
        self.assertEqual(self.call(200, "GET", exec_ + "/wait")["exit_code"], 3)
        self.bad(409, "PUT", exec_ + "/stdin", body=b"too late")
        self.call(200, "GET", exec_ + "/output", {"follow": 1})
        self.assertEqual(self.call(200, "GET", exec_ + "/output", {"raw": 1, "stream": "stdout"}), b"out\ntyped\n")
        self.bad(400, "GET", exec_ + "/output", {"offset": 4711})
        self.bad(400, "GET", exec_ + "/output", {"stream": "stdout"})
        streamed = self.call(200, "POST", execs, body={"argv": ["echo", "hi"]}, Accept="application/vnd.moorage.output")
        self.assertIn(b"hi", streamed)
        for body in ({}, {"argv": []}, {"argv": ["true"], "user": "nobody"}, {"argv": ["true"], "tty": {"rows": 0}}):
            self.bad(400, "POST", execs, body=body)
        self.bad(409, "POST", execs, body={"argv": ["false"]}, Idempotency_Key="run", code="already_exists")
        self.bad(404, "GET", "/v1/workspaces/nobody/execs")
        self.call(200, "GET", execs)
        self.bad(404, "GET", "/v1/execs/ex_4711")
        self.bad(400, "GET", exec_ + "/wait", {"timeout_ms": "long"})

    def about_credentials(self):
        path, body = "/v1/credentials", {"name": "all", "for": ["https://api.example/v1/"], "as": "header:X-Key", "methods": ["GET"],
                                         "labels": {"a": "b"}, "variable": "KEY", "command": "echo x"}
        added = self.call(201, "POST", path, body=body, Idempotency_Key="credential")
        self.assertEqual(self.call(201, "POST", path, body=body, Idempotency_Key="credential"), added)
        self.call(201, "POST", path, body={"name": "file", "for": ["https://api.example/"], "file": str(self.daemon.config)})
        self.assertIn("CERTIFICATE", self.call(200, "GET", path + "/key")["certificate"])
        sealed = base64.b64encode(self.client.seal(b"x")).decode()
        self.call(201, "POST", path, body={"name": "sealed", "for": ["https://api.example/"], "sealed": sealed})
        for change in ({"command": "false"}, {"file": "/dev/null"}, {"for": []}, {"for": ["http://api.example/"]}, {"as": "x"}, {"name": "A"},
                       {"methods": ["get"]}, {"variable": "1"}, {"secret": "x"}, {"sealed": "x"}):
            self.bad(503 if change == {"command": "false"} else 400, "POST", path, body=body | change)
        self.assertEqual([c["name"] for c in self.call(200, "GET", path)["credentials"]], ["all", "file", "sealed"])
        self.call(200, "POST", path + "/sealed/test")
        self.bad(400, "POST", path + "/sealed/test", body={"x": 1})
        self.bad(404, "POST", path + "/none/test")
        self.bad(404, "DELETE", path + "/none")
        for method, rest in (("GET", ""), ("GET", "/key")):
            self.bad(400, method, path + rest, {"nonsense": 1}, code="invalid_argument")
        for name in ("all", "file", "sealed"):
            self.call(204, "DELETE", f"{path}/{name}")

    def about_approvals(self):
        path, approval = "/v1/approvals", self.daemon.add_approval(self.client.workspace("one")["id"])
        listed, = self.call(200, "GET", path)["approvals"]
        self.assertEqual((listed["id"], listed["state"], listed["commits"]), (approval, "waiting", 3))
        self.assertEqual(self.call(200, "GET", path, {"workspace": "one", "all": "1"})["approvals"], [listed])
        approved = self.call(200, "POST", f"{path}/{approval}/approve", body={}, Idempotency_Key="approve")
        self.assertEqual((approved["state"], approved["decided_by"]), ("approved", "root"))
        self.assertEqual(self.call(200, "POST", f"{path}/{approval}/approve", body={}, Idempotency_Key="approve"), approved)
        self.assertEqual(self.call(200, "POST", f"{path}/{approval}/refuse", body={})["state"], "refused")
        self.assertEqual(self.call(200, "GET", path)["approvals"], [])
        for verb in ("approve", "refuse"):
            self.bad(404, "POST", f"{path}/ap_4711/{verb}", body={})
            self.bad(400, "POST", f"{path}/nonsense/{verb}", body={})
            self.bad(400, "POST", f"{path}/{approval}/{verb}", body={"x": 1})
        self.bad(400, "GET", path, {"nonsense": 1}, code="invalid_argument")
        self.bad(404, "GET", path, {"workspace": "nobody"})

    def about_ends(self):
        execs = "/v1/workspaces/one/execs"
        terminal = self.call(201, "POST", execs, body={"argv": ["bash", "--norc"], "tty": {"columns": 100, "rows": 30}})
        exec_ = f"/v1/execs/{terminal['id']}"
        self.call(204, "POST", exec_ + "/resize", body={"columns": 120, "rows": 40})
        self.bad(400, "POST", exec_ + "/resize", body={"columns": -1})
        harness.wait_until(lambda: self.client.top()["workspaces"][0]["waiting"], what="the shell waits")
        self.assertTrue(self.call(200, "GET", "/v1/top")["workspaces"][0]["waiting"])
        self.call(204, "POST", exec_ + "/signal", body={"signal": "WINCH"})
        self.bad(400, "POST", exec_ + "/signal", body={"signal": "NOISE"})
        self.call(204, "POST", exec_ + "/cancel")
        self.assertEqual(self.call(200, "GET", exec_ + "/wait")["category"], "cancelled")
        self.bad(409, "POST", exec_ + "/cancel")
        for argv, fields in ((["no-such-program"], {}), (["./README.md"], {}), (["sleep", "60"], {"timeout_ms": 50}),
                             (["sh", "-c", "kill -9 $$"], {}), (["true"], {"cwd": "/nowhere"})):
            ended = self.call(201, "POST", execs, body={"argv": argv, **fields})
            self.assertIn("category", self.call(200, "GET", f"/v1/execs/{ended['id']}/wait"))
        self.call(200, "GET", "/v1/workspaces/one/history", {"limit": 3, "before": ended["id"]})
        self.bad(400, "GET", "/v1/workspaces/one/history", {"limit": 0})
        self.call(200, "PATCH", "/v1/workspaces/one",
                  body={"pinned": True, "caches": ["node_modules", "/home/user/.cache"],
                        "limits": {"disk_bytes": 1 << 30, "disk_files": 100_000}})
        self.call(200, "GET", "/v1/gc")
        self.call(200, "POST", "/v1/gc", body={"until_free_bytes": 1})
        self.bad(400, "POST", "/v1/gc", body={"until_free_bytes": 0})
        for caches in (["../x"], [".git"], ["a//b"], [""]):
            self.bad(400, "PATCH", "/v1/workspaces/one", body={"caches": caches})
        self.call(200, "PATCH", "/v1/workspaces/one", body={"pinned": False, "caches": []})
        self.call(200, "GET", "/v1/du")
        self.call(200, "GET", "/v1/du", {"workspace": "one"})
        self.bad(404, "GET", "/v1/du", {"workspace": "nobody"})
        self.call(200, "GET", "/v1/events", {"since": 5})

    def about_what_is_not_there(self):
        """Routes neither documented nor served: sent to the daemon directly."""
        for method, path, status in (("GET", "/", 404), ("GET", "/v2/info", 404), ("GET", "/v1/workspaces/one/secrets", 404),
                                     ("PATCH", "/v1/info", 405), ("DELETE", "/v1/workspaces", 405)):
            connection = raw_api._Connection(str(self.daemon.socket), 30)
            connection.request(method, path)
            self.assertEqual(connection.getresponse().status, status, path)
            connection.close()


if __name__ == "__main__":
    unittest.main()
