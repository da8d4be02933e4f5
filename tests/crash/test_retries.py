"""Each mutating request of openapi.yaml is interrupted at each of its crash points, and repeated with its key.

The repeat gets the answer of an undisturbed run, and nothing was done twice. Names, ids, times and sizes differ between
runs; everything else is compared. MOORAGE_TEST_REQUEST=REGEX selects the matching requests of Requests.
"""

import io
import os
import re
import signal
import subprocess
import unittest

import rig
from rig import harness, raw_api
from test_points import verb_of
from verbs import DIED, NO_STATE, OPERATIONS

ONLY = os.environ.get("MOORAGE_TEST_REQUEST", ".*")
ANSWER_POINTS = ["answer.before_kept", "answer.after_kept"]
# Reached by each start, before the first request.
OF_EVERY_START = {"recovery"}
# Fields that differ in every run; the first three are a collection's findings in the store at that moment.
VOLATILE = re.compile(r"rows|mtime_ns|goes|kept|sha256|.*_at$|.*_ago$|.*_ms$|.*_us$|.*bytes$|.*_files$|disk|files|behind|unpushed|changes|measured|pid|kernel|sandbox|stopped|integrity|head|seconds|token")


def general(value, name):
    """An answer without the fields that differ between two runs of the same request."""
    if isinstance(value, dict) and isinstance(value.get("attempts"), list):  # a best-of, which continues by itself
        value = {key: value[key] for key in ("id", "workspace", "each", "test", "promote", "parallel", "keep") if key in value} | {
            "attempts": len(value["attempts"])}
    if isinstance(value, dict):
        return {key: general(item, name) for key, item in value.items() if not VOLATILE.fullmatch(key)}
    if isinstance(value, list):
        return [general(item, name) for item in value]
    if isinstance(value, str):
        value = re.sub(r"\b[0-9a-f]{40}\b", "COMMIT", value.replace(name, "NAME"))
        value = re.sub(r"\bws_\d+\.\d+\.tar", "ARCHIVE.tar", value)
        return re.sub(r"\b(ws|sn|ly|sb|ex|bo|at|ap|repo)_\d+", r"\1_N", value)
    return value


class Requests:
    """name -> preparation, which returns the request: a call with a key. `call` uses a separate client."""

    def __init__(self, suite):
        self.suite, self.client = suite, suite.client

    def workspace(self, name, *commands, **fields):
        self.client.create(repo_url=self.suite.url, name=name, **fields)
        for command in commands:
            self.client.exec(name, command, sync=True)
        return self.client

    def upstream(self, name):
        harness.make_repository(self.suite.upstream / "acme" / name)
        return self.suite.git_server.url(f"acme/{name}")

    def post_v1_repos(self, name):
        url = self.upstream(name)
        return lambda key: self.client.add_repo(url, key=key)

    def post_v1_repos_import(self, name):
        place = self.suite.upstream / "acme" / name
        harness.make_repository(place)
        harness.git(place, "update-ref", "refs/moorage/head", "HEAD")
        harness.commit(place, "untracked", name)
        harness.git(place, "update-ref", "refs/moorage/work", "HEAD")
        bundle = place.with_suffix(".bundle")
        harness.git(place, "bundle", "create", "--quiet", str(bundle), "refs/moorage/head", "refs/moorage/work")
        return lambda key: self.client.import_bundle(f"/local/{name}", bundle.read_bytes(), key=key)

    def delete_v1_repos_repo(self, name):
        repo = self.client.add_repo(self.upstream(name))["id"]
        return lambda key: self.client.delete_repo(repo, key=key)

    def post_v1_repos_repo_fetch(self, name):
        repo = self.client.add_repo(self.upstream(name))["id"]
        harness.commit(self.suite.upstream / "acme" / name, "moved.txt", name)
        return lambda key: self.client.fetch(repo, key=key)

    def post_v1_workspaces(self, name):
        harness.commit(self.suite.upstream / "acme" / "shop", "moved.txt", name)
        return lambda key: self.client.create(repo_url=self.suite.url, name=name, key=key)

    def delete_v1_workspaces_workspace(self, name):
        self.workspace(name, "true")
        return lambda key: self.client.delete(name, key=key)

    def delete_v1_workspaces_workspace_purge(self, name):
        self.workspace(name, "true")
        return lambda key: self.client.delete(name, purge=True, key=key)

    def post_v1_workspaces_workspace_undelete(self, name):
        self.workspace(name).delete(name)
        return lambda key: self.client.undelete(name, key=key)

    def post_v1_workspaces_workspace_start(self, name):
        self.workspace(name)
        return lambda key: self.client.start(name, key=key)

    def post_v1_workspaces_workspace_sync(self, name):
        self.workspace(name)
        return lambda key: self.client.sync(name, key=key)

    def post_v1_workspaces_workspace_stop(self, name):
        self.workspace(name, "true", pre_stop="echo stopping")
        return lambda key: self.client.stop(name, key=key)

    def post_v1_workspaces_workspace_stop_force(self, name):
        self.workspace(name).start_exec(name, ["sleep", "600"])
        return lambda key: self.client.stop(name, force=True, key=key)

    def delete_v1_workspaces_workspace_force(self, name):
        self.workspace(name).start_exec(name, ["sleep", "600"])
        return lambda key: self.client.delete(name, force=True, key=key)

    def patch_v1_workspaces_workspace(self, name):
        self.workspace(name)
        return lambda key: self.client.update(name, pinned=True, key=key)

    def post_v1_workspaces_workspace_move(self, name):
        self.workspace(name, "true")
        return lambda key: self.client.move(name, backend="process", key=key)

    def post_v1_workspaces_workspace_share(self, name):
        self.workspace(name)
        return lambda key: self.client.share(name, group="root", key=key)

    def post_v1_workspaces_workspace_network(self, name):
        self.workspace(name)
        return lambda key: self.client.change_network(name, allow=["web.example"], key=key)

    def post_v1_credentials(self, name):
        sealed = self.client.seal(name.encode())
        return lambda key: self.client.add_credential(name, ["https://api.example/"], sealed=sealed, key=key)

    def post_v1_credentials_replace(self, name):
        self.client.add_credential(name, ["https://api.example/"], sealed=self.client.seal(b"before"))
        return self.post_v1_credentials(name)

    def delete_v1_credentials_credential(self, name):
        self.client.add_credential(name, ["https://api.example/"], sealed=self.client.seal(b"gone"))
        return lambda key: self.client.remove_credential(name, key=key)

    def approval(self, name):
        self.workspace(name)
        return self.suite.daemon.add_approval(self.client.workspace(name)["id"])

    def post_v1_approvals_approval_approve(self, name):
        approval = self.approval(name)
        return lambda key: self.client.approve(approval, key=key)

    def post_v1_approvals_approval_refuse(self, name):
        approval = self.approval(name)
        return lambda key: self.client.refuse(approval, key=key)

    def post_v1_workspaces_workspace_lease(self, name):
        self.workspace(name)
        return lambda key: self.client.acquire_lease(name, "holder", key=key)

    def post_v1_workspaces_workspace_lease_takeover(self, name):
        self.workspace(name, "true").acquire_lease(name, "before")
        return lambda key: self.client.acquire_lease(name, "holder", takeover=True, key=key)

    def delete_v1_workspaces_workspace_lease(self, name):
        self.workspace(name)
        holder = harness.Client(str(self.suite.daemon.socket))
        holder.lease_token = self.client.acquire_lease(name, "holder")["token"]
        return lambda key: holder.release_lease(name, key=key)

    def post_v1_workspaces_workspace_archive(self, name):
        self.workspace(name, "echo kept > kept")
        return lambda key: self.client.archive(name, key=key)

    def post_v1_workspaces_workspace_unarchive(self, name):
        self.workspace(name, "echo kept > kept").archive(name)
        return lambda key: self.client.unarchive(name, key=key)

    def post_v1_workspaces_workspace_snapshots(self, name):
        self.workspace(name, "echo kept > kept")
        return lambda key: self.client.snapshot(name, name="state", key=key)

    def post_v1_workspaces_workspace_snapshots_at_rest(self, name):
        self.workspace(name, "echo kept > kept").stop(name)
        return lambda key: self.client.snapshot(name, name="state", key=key)

    def delete_v1_workspaces_workspace_snapshots_snapshot(self, name):
        self.workspace(name).snapshot(name, name="state")
        return lambda key: self.client.drop_snapshot(name, "state", key=key)

    def post_v1_workspaces_workspace_restore(self, name):
        self.workspace(name, "echo kept > kept").snapshot(name, name="state")
        self.client.exec(name, "echo later > kept", sync=True)
        return lambda key: self.client.restore(name, "state", kill=True, key=key)

    def post_v1_workspaces_workspace_restore_at_rest(self, name):
        restore = self.post_v1_workspaces_workspace_restore(name)
        self.client.stop(name)
        return restore

    def post_v1_workspaces_workspace_undo(self, name):
        self.workspace(name, "echo one > kept", "echo two > kept", "echo three > kept", snapshot_before_exec=True)
        return lambda key: self.client.undo(name, kill=True, key=key)

    def post_v1_workspaces_workspace_fork(self, name):
        self.workspace(name, "echo kept > kept")
        return lambda key: self.client.fork(name, count=2, key=key)

    def post_v1_workspaces_workspace_promote(self, name):
        self.workspace(name, "echo kept > kept").fork(name, names=[f"{name}-f1"])
        self.client.exec(f"{name}-f1", "echo better > kept", sync=True)
        return lambda key: self.client.promote(f"{name}-f1", kill=True, key=key)

    def post_v1_workspaces_workspace_best_of(self, name):
        self.workspace(name, "true")
        return lambda key: self.client.best_of(name, each="echo {i} > tried", test="test -e tried", count=2, key=key)

    def post_v1_workspaces_workspace_best_of_patches(self, name):
        self.workspace(name, "true")
        patch = b"--- /dev/null\n+++ b/patched\n@@ -0,0 +1 @@\n+patched\n"
        return lambda key: self.client.best_of(name, test="test -e patched", patches=[("a", patch), ("b", patch)], key=key)

    def post_v1_best_of_bestof_cancel(self, name):
        self.workspace(name)
        best_of = self.client.best_of(name, each="sleep 600", test="true", count=1)["id"]
        return lambda key: self.client.cancel_best_of(best_of, key=key)

    def archive_of(self, name, url):
        self.client.create(repo_url=url, name=name)
        self.client.exec(name, "echo kept > kept", sync=True)
        self.client.snapshot(name, name="state")
        self.client.exec(name, "echo later > kept", sync=True)
        file = io.BytesIO()
        self.client.export(name, file)
        self.client.delete(name, purge=True)
        return file

    def post_v1_workspaces_import(self, name):
        file = self.archive_of(f"{name}-away", self.suite.url)
        return lambda key: self.client.import_(file.getvalue(), name=name, key=key)

    def post_v1_workspaces_import_pack(self, name):
        """Where the repository is not: it comes out of the archive."""
        url = self.upstream(name)
        file = self.archive_of(f"{name}-away", url)
        self.client.delete_repo(self.client.add_repo(url)["id"])
        return lambda key: self.client.import_(file.getvalue(), name=name, key=key)

    def put_v1_workspaces_workspace_file(self, name):
        self.workspace(name)
        return lambda key: self.client.write_file(name, "put", b"put", key=key)

    def put_v1_workspaces_workspace_file_if_match(self, name):
        tag = f'"{self.workspace(name).write_file(name, "put", b"before")["hash"]}"'
        return lambda key: self.client.write_file(name, "put", b"put", if_match=tag, key=key)

    def put_v1_workspaces_workspace_file_if_none_match(self, name):
        self.workspace(name)
        return lambda key: self.client.write_file(name, "put", b"put", if_none_match="*", key=key)

    def delete_v1_workspaces_workspace_file(self, name):
        tag = f'"{self.workspace(name).write_file(name, "gone", b"before")["hash"]}"'
        return lambda key: self.client.remove_file(name, "gone", if_match=tag, key=key)

    def post_v1_workspaces_workspace_files_move(self, name):
        tag = f'"{self.workspace(name).write_file(name, "from", b"before")["hash"]}"'
        return lambda key: self.client.move_file(name, "from", "to", if_match=tag, key=key)

    def post_v1_workspaces_workspace_files_mkdir(self, name):
        self.workspace(name)
        return lambda key: self.client.make_directory(name, "made/deep", key=key)

    def post_v1_workspaces_workspace_files_symlink(self, name):
        self.workspace(name)
        return lambda key: self.client.make_symlink(name, "link", "target", key=key)

    def post_v1_workspaces_workspace_execs(self, name):
        self.workspace(name)
        return lambda key: self.client.start_exec(name, ["sh", "-c", "echo ran >> counter; sync counter; sleep 600"], key=key)

    def post_v1_execs_exec_cancel(self, name):
        exec_id = self.workspace(name).start_exec(name, ["sleep", "600"])["id"]
        return lambda key: self.client.cancel(exec_id, key=key)

    def post_v1_gc(self, name):
        self.workspace(name, "mkdir cache; echo rubbish > cache/rubbish; echo kept > kept", caches=["cache"]).stop(name)
        return lambda key: self.client.gc_run(key=key)

    def post_v1_doctor(self, name):
        return lambda key: self.client.request("POST", "/doctor", json_body={}, key=key)


# Requests whose repeats are not compared, with reasons.
NOT_KEPT = {
    "post /v1/workspaces/{workspace}/move/check": "changes nothing",
    "put /v1/workspaces/{workspace}/lease": "a repeat is another heartbeat",
    "post /v1/credentials/{credential}/test": "changes nothing",
    "put /v1/execs/{exec}/stdin": NO_STATE,
    "post /v1/execs/{exec}/signal": NO_STATE,
    "post /v1/execs/{exec}/resize": NO_STATE,
    "post /v1/config/reload": "no change of the store; a repeat reads the file again",
}


# Points after the answer, in other threads, or in states of the store that no request here meets: crash_points covers
# them.
DONE_LATER = {"archive.after_cold_row", "flatten.after_intent", "flatten.after_files", "flatten.after_outcome", "collect.after_files",
              "snapshot.copied", "snapshot.frozen", "exec.before_outcome", "exec.after_outcome", "best_of.after_each",
              "best_of.after_test", "best_of.after_measure", "best_of.after_choice", "best_of.after_promotion", "best_of.before_outcome"}
NEVER_MET = {
    "post /v1/repos/{repo}/fetch": {"repository.before_mirror", "repo.rebuild.cloned"},  # a damaged mirror
    "post /v1/workspaces": {"rebase.after_tree", "rebase.after_manifest", "rebase.after_old_form"},  # an old form of a base tree
    "post /v1/gc": {"evict.after_intent", "evict.after_files", "drop_base_tree.after_row", "drop_base_tree.after_files"},  # nothing is full
}


def method_of(operation):
    return re.sub(r"\W+", "_", operation).strip("_")


class Retries(rig.TestCase):
    settings = {"sandbox.allow_process_backend": True, "network.mode": "open", "daemon.reconcile_interval_s": 1}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.points = harness.run(harness.BIN / "mooraged", "--list-crash-points").stdout.decode().split()

    def cases(self):
        """operation -> the methods of Requests for it."""
        known = [name for name in dir(Requests) if re.match("(post|put|patch|delete)_v1_", name)]
        cases = {}
        for operation in OPERATIONS:
            mine = [name for name in known if name.startswith(method_of(operation))]
            others = [method_of(other) for other in OPERATIONS if method_of(other) != method_of(operation) and
                      method_of(other).startswith(method_of(operation))]
            cases[operation] = [name for name in mine if not any(name.startswith(other) for other in others)]
        return cases

    def test_every_mutating_request_is_repeated_here(self):
        without = {operation for operation, methods in self.cases().items() if not methods}
        self.assertEqual(without, set(NOT_KEPT))

    def repeat(self, call, key):
        """The answer, after it is no longer in progress."""
        answers = []

        def asked():
            try:
                answers.append(call(key))
            except raw_api.ApiError as error:
                if "is in progress" in error.message:
                    return False
                answers.append(f"{error.status} {error.code}: {error.message}")
            return True

        harness.wait_until(asked, 60, "an answer that is final")
        return answers[0]

    def assert_same(self, again, answer, message):
        """Compares exactly; but a lease's secret is not stored, and an exec's record and a best-of continue."""
        if isinstance(answer, dict) and {"token", "argv", "attempts"} & answer.keys():
            again, answer = general(again, "the name"), general(answer, "the name")
        self.assertEqual(again, answer, message)

    def check_effect(self, method, name):
        """Checks that it was done once, if twice would show."""
        if method.startswith("post_v1_workspaces_workspace_snapshots"):
            self.assertEqual([s["name"] for s in self.client.snapshots(name)], ["state"])
        if method.startswith("post_v1_workspaces_import"):
            self.assertEqual(self.client.read_file(name, "kept"), b"later\n")
            self.assertEqual([s["name"] for s in self.client.snapshots(name)], ["state"], "its history came with it")
            self.assertEqual(len([w for w in self.client.workspaces() if w["name"] == name]), 1)
        if method.startswith("post_v1_gc"):
            self.assertEqual(self.client.exec(name, "ls -d cache kept 2>/dev/null").stdout, b"kept\n")
        if method.startswith("post_v1_workspaces_workspace_restore"):
            self.assertEqual(self.client.read_file(name, "kept"), b"kept\n")
            self.assertEqual([s["cause"] for s in self.client.snapshots(name)].count("before-restore"), 1, "restored once")
        if method.startswith("post_v1_workspaces_workspace_undo"):
            self.assertEqual(self.client.read_file(name, "kept"), b"two\n", "one command was undone")
        if method.startswith("post_v1_workspaces_workspace_promote"):
            self.assertEqual(self.client.read_file(name, "kept"), b"better\n")
            self.assertEqual([s["cause"] for s in self.client.snapshots(name)].count("promote"), 1, "promoted once")
        if method.startswith("post_v1_workspaces_workspace_fork"):
            self.assertEqual(len([w for w in self.client.workspaces() if w["name"].startswith(f"{name}-")]), 2)
        if method.startswith("post_v1_workspaces_workspace_execs"):
            harness.wait_until(lambda: b"ran\n" == self.client.exec(name, "cat counter").stdout, what="the command")
            self.assertEqual(len(self.client.execs(workspace=name, running=True)), 1)
        if method.startswith("post_v1_workspaces_workspace_best_of"):
            ended = self.client.get_best_of(self.client.best_ofs(name)[0]["id"], wait_s=60)
            self.assertEqual([a["state"] for a in ended["attempts"]], ["passed", "passed"], ended)
            self.assertEqual(len([b for b in self.client.best_ofs(name) if b["state"] != "failed"]), 1)

        if "_v1_credentials" in method:
            kept = {c["name"] for c in self.client.credentials() if c["name"] == name}
            self.assertEqual(kept, set() if method.startswith("delete") else {name})
            self.assertEqual(len(list((self.daemon.store / "credentials").glob("*"))), len(kept), "encrypted secrets")

    def clean(self, name):
        for credential in self.client.credentials():
            self.client.remove_credential(credential["name"])
        for workspace in self.client.workspaces():
            if workspace["name"].startswith(name):
                if workspace.get("holder"):
                    self.client.lease_token = self.client.acquire_lease(workspace["id"], "clean", takeover=True)["token"]
                self.client.delete(workspace["id"], purge=True, force=True)
                self.client.lease_token = None

    def die(self, point, call, key):
        """Whether the request reached the point."""
        self.daemon.kill()
        self.daemon.start(crash_at=point)
        error = None
        try:
            call(key)
        except DIED as died:
            error = died
        try:
            status = self.daemon.process.wait(5 if error else 0.05)
        except subprocess.TimeoutExpired:
            return False
        self.assertEqual(status, -signal.SIGKILL, self.daemon.log_tail())
        return True

    def try_point(self, method, point, undisturbed):
        name = f"r{next(self.numbers)}"
        call = getattr(Requests(self), method)(name)
        died = self.die(point, call, name)
        self.daemon.kill()
        self.daemon.start()
        if died:
            answer = self.repeat(call, name)
            self.assertEqual(general(answer, name), undisturbed, f"{method}, repeated after a death at {point}")
            self.assert_same(self.repeat(call, name), answer, "a repeat of the repeat")
            self.check_effect(method, name)
        self.clean(name)
        return died

    def run_operation(self, operation, methods):
        verbs = OPERATIONS[operation]
        of_verb = [p for p in self.points if isinstance(verbs, tuple) and verb_of(p) in set(verbs) - OF_EVERY_START]
        met = set()
        for method in methods:
            name = f"r{next(self.numbers)}"
            call = getattr(Requests(self), method)(name)
            answer = call(name)
            self.assert_same(call(name), answer, f"{method}, repeated")
            self.check_effect(method, name)
            self.clean(name)
            undisturbed = general(answer, name)
            for point in of_verb + ANSWER_POINTS:
                with self.subTest(method=method, point=point):
                    if self.try_point(method, point, undisturbed):
                        met.add(point)
        self.assertIn("answer.before_kept", met, operation)
        self.assertLessEqual(set(of_verb) - met, NEVER_MET.get(operation, set()) | DONE_LATER, operation)
        return met

    def test_a_repeat_undoes_no_later_changes(self):
        self.numbers = iter(range(10**6, 2 * 10**6))
        client = self.client
        sleep = ["sleep", "600"]
        cases = {  # the request, a later change by another client, and the condition after the repeat
            "update": (lambda n, k: client.update(n, pinned=True, key=k), lambda n: client.update(n, pinned=False),
                       lambda n: not client.workspace(n)["pinned"]),
            "share": (lambda n, k: client.share(n, group="root", key=k), lambda n: client.share(n),
                      lambda n: "group" not in client.workspace(n)),
            "network": (lambda n, k: client.change_network(n, allow=["web.example"], key=k),
                        lambda n: client.change_network(n, forget=["web.example"]),
                        lambda n: client.workspace(n).get("network_rules", []) == []),
            "stop": (lambda n, k: client.stop(n, key=k), lambda n: client.start_exec(n, sleep),
                     lambda n: len(client.execs(workspace=n, running=True)) == 1),
            "stop --force": (lambda n, k: client.stop(n, force=True, key=k), lambda n: client.start_exec(n, sleep),
                             lambda n: len(client.execs(workspace=n, running=True)) == 1),
            "start": (lambda n, k: client.start(n, key=k), lambda n: client.stop(n),
                      lambda n: "sandbox" not in client.workspace(n)),
            "delete": (lambda n, k: client.delete(n, key=k), lambda n: client.undelete(n),
                       lambda n: client.workspace(n)["state"] == "ready"),
            "archive": (lambda n, k: client.archive(n, key=k), lambda n: client.unarchive(n),
                        lambda n: client.workspace(n)["state"] == "ready"),
            "unarchive": (lambda n, k: client.unarchive(n, key=k), lambda n: client.archive(n),
                          lambda n: client.workspace(n)["state"] == "archived"),
            # Requests with nothing left to do:
            "stop of an idle one": (lambda n, k: client.stop(n, key=k), lambda n: client.start_exec(n, sleep),
                                    lambda n: len(client.execs(workspace=n, running=True)) == 1),
            "archive of an archived one": (lambda n, k: client.archive(n, key=k), lambda n: client.unarchive(n),
                                           lambda n: client.workspace(n)["state"] == "ready"),
            "unarchive of one that is there": (lambda n, k: client.unarchive(n, key=k), lambda n: client.archive(n),
                                               lambda n: client.workspace(n)["state"] == "archived"),
        }
        before = {"unarchive": client.archive, "stop of an idle one": client.stop, "archive of an archived one": client.archive}
        for case, (request, meanwhile, holds) in cases.items():
            with self.subTest(case):
                name = f"r{next(self.numbers)}"
                Requests(self).workspace(name, "true")
                before.get(case, client.workspace)(name)
                self.assertTrue(self.die("answer.before_kept", lambda key: request(name, key), name))
                self.daemon.start()
                meanwhile(name)
                request(name, name)
                self.assertTrue(holds(name))
                self.clean(name)

    def test_a_repeat_does_not_restore_a_removed_repository(self):
        self.numbers = iter(range(2 * 10**6, 3 * 10**6))
        for method in ("post_v1_repos", "post_v1_repos_import"):
            with self.subTest(method):
                name = f"r{next(self.numbers)}"
                call = getattr(Requests(self), method)(name)
                before = {repo["id"] for repo in self.client.repos()}
                self.assertTrue(self.die("answer.before_kept", call, name))
                self.daemon.start()
                (added,) = {repo["id"] for repo in self.client.repos()} - before
                self.client.delete_repo(added)
                answer = call(name)
                self.assertEqual(answer.get("id", answer.get("repo")), added)
                self.assertEqual({repo["id"] for repo in self.client.repos()}, before)

    def test_a_repeat_after_a_crash_gets_the_answer_of_an_undisturbed_run(self):
        self.numbers = iter(range(10**6))
        met = 0
        for operation, methods in self.cases().items():
            methods = [method for method in methods if re.fullmatch(ONLY, method)]
            with self.subTest(operation):
                if methods:
                    met += len(self.run_operation(operation, methods))
        print(f"repeated after {met} deaths")


if __name__ == "__main__":
    unittest.main()
