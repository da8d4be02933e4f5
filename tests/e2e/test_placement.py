"""The host's rules: where whose workspaces may run and with which limits (docs/guide/teams-and-policy.md)."""

import io
import json
import os
import pathlib
import signal
import unittest

import harness
import raw_api

OTHER = 65533  # a user unknown to the host


class Placement(harness.TestCase):
    settings = {"sandbox.allow_process_backend": True, "network.mode": "open", "sandbox.sudo": False}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.other_settings = json.loads(cls.daemon.config.read_text())
        cls.client_place = cls.daemon.directory / "client"
        cls.client_place.mkdir(mode=0o755)
        (cls.client_place / "raw_api.py").write_bytes(pathlib.Path(raw_api.__file__).read_bytes())
        os.chmod(cls.daemon.directory, 0o711)

    def configure(self, rules, start=True):
        """Restarts with these lines below `policy:`, which is line 1."""
        others = "".join(f"{group}: {json.dumps(values)}\n" for group, values in self.other_settings.items())
        self.daemon.kill()
        self.daemon.config.write_text("policy:\n" + rules + others)
        if start:
            self.daemon.start()
            os.chmod(self.daemon.socket, 0o666)

    def refused(self, call, *words, code="permission_denied"):
        with self.assertRaises(raw_api.ApiError) as refusal:
            call()
        self.assertEqual(refusal.exception.code, code)
        for word in words:
            self.assertIn(word, str(refusal.exception) + "\n" + refusal.exception.hint)

    def create(self, name, **fields):
        return self.client.create(repo_url=self.url, name=name, **fields)

    def create_as_other(self, name, **fields):
        """The answer to that user's request: the backend, or the error."""
        script = ("import json, sys; sys.path.insert(0, sys.argv[1]); import raw_api\n"
                  "try: print(raw_api.Client(sys.argv[2]).create(**json.loads(sys.argv[3]))['backend'])\n"
                  "except raw_api.ApiError as e: print(e.code, e)\n")
        request = json.dumps({"repo_url": self.url, "name": name, **fields})
        return harness.run("setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups", "python3", "-c", script,
                           self.client_place, self.daemon.socket, request, env={"PATH": "/usr/bin:/bin"}).stdout.decode().strip()

    def test_a_reload_changes_the_rules_and_a_wrong_file_changes_nothing(self):
        self.configure("  - max: {pids: 300}\n")
        self.client.create(repo_url=self.url, name="reloads", limits={"pids": 200})
        process = self.daemon.process.pid
        others = self.daemon.config.read_text().split("\n", 2)[2]

        def write(rules):
            self.daemon.config.write_text("policy:\n" + rules + others)
        write("  - max: {pids: 100}\n  - max: {pods: 3}\n")
        for words in (("config", "reload"), ("config", "check", self.daemon.config)):
            refused = self.daemon.cli(*words, check=False)
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn(f"{self.daemon.config}:3:11: ", refused.stderr.decode())
        self.client.update("reloads", limits={"pids": 250})  # the former rule holds
        write("  - backends: [lcx]\n")
        self.assertRegex(self.daemon.cli("config", "check", self.daemon.config, check=False).stderr.decode(), "^moorage: .*there is no backend 'lcx'")
        write("  - max: {pids: 100}\n")
        self.assertRegex(self.daemon.cli("config", "check", self.daemon.config).stdout.decode(),
                         rf"^{self.daemon.config} is valid: \d+ settings, 1 rule of policy\n$")
        self.assertEqual(self.daemon.cli("config", "reload").stdout.decode(), " policy   1 rule in force\n")
        self.refused(lambda: self.client.update("reloads", limits={"pids": 101}), "pids may be 100 at most")
        write("")
        os.kill(process, signal.SIGHUP)
        harness.wait_until(lambda: self.client.info()["policy"]["rules"] == 0, what="the reload by SIGHUP")
        self.client.update("reloads", limits={"pids": 101})
        self.assertEqual(self.daemon.process.pid, process)
        self.assertIsNone(self.daemon.process.poll())

    def test_labels_change_only_to_what_the_rules_allow(self):
        self.configure("  - labels: {team: infra}\n    max: {pids: 100}\n")
        self.client.create(repo_url=self.url, name="relabel", limits={"pids": 200})
        self.refused(lambda: self.client.update("relabel", labels={"team": "infra"}), "policy rule 1", "pids may be 100 at most")
        self.client.update("relabel", labels={"team": "web"})
        self.client.update("relabel", limits={"pids": 90})
        self.assertEqual(self.client.update("relabel", labels={"team": "infra"})["labels"], {"team": "infra"})

    def test_backends_are_allowed_by_user_and_label(self):
        self.configure(f"  - users: [{OTHER}]\n    backends: [lxc]\n"
                       "  - labels: {team: infra}\n    backends: [lxc]\n")
        self.assertEqual(self.create("root-plain", backend="process")["backend"], "process")
        self.assertEqual(self.create("root-infra", backend="lxc", labels={"team": "infra"})["backend"], "lxc")
        self.refused(lambda: self.create("no", backend="process", labels={"team": "infra", "x": "y"}),
                     f"policy rule 2 ({self.daemon.config}:4): it may not run on backend process; allowed: lxc", "lxc")
        self.assertEqual(self.create_as_other("theirs", backend="lxc"), "lxc")
        answer = self.create_as_other("no", backend="process")
        self.assertTrue(answer.startswith(f"permission_denied policy rule 1 ({self.daemon.config}:2): "), answer)
        self.assertNotIn("no", [w["name"] for w in self.client.workspaces()])
        self.assertEqual(self.client.exec("root-infra", "echo ran").stdout, b"ran\n")

    def test_group_rules_apply_to_users_unknown_to_the_host(self):
        self.configure("  - groups: [root]\n    backends: [lxc]\n")
        self.refused(lambda: self.create("g", backend="process"), "policy rule 1")
        self.assertIn("does not list the groups of uid 65533", self.create_as_other("g", backend="process"))
        self.configure("  - groups: [daemon]\n    backends: [lxc]\n")
        self.assertEqual(self.create("g", backend="process")["backend"], "process")

    def test_a_minimum_isolation_refuses_weaker_backends(self):
        self.configure("  - min_isolation: userns\n")
        self.refused(lambda: self.create("weak", backend="process"),
                     "it needs isolation userns or stronger; backend process has none", "request --backend lxc")
        refused = self.daemon.cli("create", "--repo", self.url, "--name", "weak", "--backend", "process", check=False)
        self.assertEqual(refused.returncode, 1)
        self.assertIn(f"policy rule 1 ({self.daemon.config}:2): it needs isolation userns", refused.stderr.decode())
        self.assertIn("hint: request --backend lxc", refused.stderr.decode())
        self.create("strong")
        self.assertEqual(self.client.exec("strong", "echo ran").stdout, b"ran\n")
        self.configure("  - min_isolation: vm\n")
        self.refused(lambda: self.create("stronger"), "backend lxc has userns", "the administrator of this host")

    def test_tightened_rules_refuse_a_start_and_keep_the_work(self):
        self.configure("  - min_isolation: none\n")
        for name in ("rests", "runs"):
            self.create(name, backend="process")
            self.client.write_file(name, "work.txt", b"work\n")
            self.assertEqual(self.client.exec(name, "cat work.txt").stdout, b"work\n")
        self.client.stop("rests")
        self.configure("  - min_isolation: userns\n")
        words = ("cannot start rests (its files are unaffected)", f"policy rule 1 ({self.daemon.config}:2)", "backend process has none")
        self.refused(lambda: self.client.start("rests"), *words)
        self.refused(lambda: self.client.exec("rests", "true"), *words)
        shown = self.client.workspace("rests")
        self.assertEqual((shown["state"], shown.get("sandbox")), ("ready", None))
        self.assertIn(b"work.txt", self.client.diff("rests"))
        self.assertEqual(self.client.read_file("rests", "work.txt"), b"work\n")
        exported = io.BytesIO()
        self.client.export("rests", exported)
        self.client.archive("rests")
        self.refused(lambda: self.client.start("rests"), *words)
        self.assertEqual(self.client.workspace("rests")["state"], "archived")
        # Running commands continue until they stop.
        self.assertEqual(self.client.exec("runs", "cat work.txt").stdout, b"work\n")
        self.client.stop("runs")
        self.refused(lambda: self.client.exec("runs", "true"), "cannot start runs")
        self.refused(lambda: self.client.fork("runs"), "backend process has none")
        # The import accepts it; the rules are checked at its start.
        self.client.import_(exported.getvalue(), "came-in")
        self.refused(lambda: self.client.start("came-in"), "cannot start came-in")
        # It can use another place that the rules allow.
        self.daemon.cli("move", "came-in", "--backend", "lxc")
        self.assertEqual(self.client.exec("came-in", "cat work.txt").stdout, b"work\n")
        self.configure("  - min_isolation: none\n")
        for name in ("rests", "runs", "came-in"):
            self.assertEqual(self.client.exec(name, "cat work.txt").stdout, b"work\n")

    def test_defaults_come_from_the_first_rule_and_caps_from_all(self):
        self.configure("  - users: [root]\n    default: {backend: process, memory: 1GiB, pids: 200}\n    max: {pids: 300}\n"
                       "  - default: {backend: lxc, memory: 2GiB, cpus: 0.5}\n    max: {memory: 3GiB, disk: 1GiB}\n")
        made = self.create("usual")
        limits = made["limits"]
        self.assertEqual((made["backend"], limits["memory_bytes"], limits["pids"], limits["cpus"]), ("process", 1 << 30, 200, 0.5))
        self.assertEqual(limits["disk_bytes"], 1 << 30)  # the setting exceeds the cap
        asked = self.create("asked", backend="lxc", limits={"memory_bytes": 3 << 30, "pids": 300})
        self.assertEqual((asked["backend"], asked["limits"]["memory_bytes"], asked["limits"]["pids"]), ("lxc", 3 << 30, 300))
        self.refused(lambda: self.create("no", limits={"pids": 301}), "policy rule 1", "pids may be 300 at most, not 301", "--pids 300")
        self.refused(lambda: self.create("no", limits={"memory_bytes": 4 << 30}), "policy rule 2", "memory may be 3G at most, not 4G")
        self.refused(lambda: self.create("no", limits={"disk_bytes": 0}), "disk may be 1G at most, not none")
        self.assertEqual(self.create_as_other("usual"), "lxc")

    def test_set_cannot_exceed_a_cap(self):
        self.configure("")
        self.create("large", limits={"memory_bytes": 4 << 30, "pids": 400})
        self.configure("  - max: {memory: 1GiB, pids: 100}\n")
        self.refused(lambda: self.client.update("large", limits={"memory_bytes": 2 << 30}),
                     "memory may be 1G at most, not 2G", "moorage set large --memory 1G")
        self.assertEqual(self.client.workspace("large")["limits"]["memory_bytes"], 4 << 30)
        self.refused(lambda: self.client.start("large"), "cannot start large", "moorage set large --memory 1G")
        self.daemon.cli("set", "large", "--memory", "1G", "--idle-stop", "1h")
        self.refused(lambda: self.client.start("large"), "pids may be 100 at most, not 400", "moorage set large --pids 100")
        self.daemon.cli("set", "large", "--pids", "100")
        self.assertEqual(self.client.exec("large", "echo ran").stdout, b"ran\n")

    def test_an_import_gets_the_allowed_limits_and_reports_that(self):
        self.configure("")
        self.create("whale", limits={"memory_bytes": 4 << 30})
        exported = io.BytesIO()
        self.client.export("whale", exported)
        self.configure("  - max: {memory: 1GiB}\n")
        file = self.daemon.directory / "whale.moorage"
        file.write_bytes(exported.getvalue())
        told = self.daemon.cli("import", file, "--name", "minnow").stderr.decode()
        self.assertIn(f"memory 4G -> 1G, as policy rule 1 ({self.daemon.config}:2) allows", told)
        self.assertEqual(self.client.workspace("minnow")["limits"]["memory_bytes"], 1 << 30)
        self.assertEqual(self.client.exec("minnow", "echo ran").stdout, b"ran\n")

    def test_rules_apply_to_a_forks_own_labels(self):
        self.configure("  - labels: {team: infra}\n    backends: [lxc]\n    max: {pids: 100}\n")
        self.create("plain", backend="process", limits={"pids": 100})
        self.refused(lambda: self.client.fork("plain", labels={"team": "infra"}), "it may not run on backend process")
        self.create("wide", backend="lxc", limits={"pids": 101})
        self.refused(lambda: self.client.fork("wide", labels={"team": "infra"}), "pids may be 100", "moorage set wide --pids 100")
        self.assertEqual(len(self.client.fork("wide", count=2)), 2)

    def test_a_move_is_refused_before_anything_is_stopped(self):
        self.configure("  - backends: [lxc]\n")
        self.create("stays")
        self.client.exec("stays", "true")
        sandbox = self.client.workspace("stays")["sandbox"]["id"]
        for words in (("--check",), ("--now",)):
            refused = self.daemon.cli("move", "stays", "--backend", "process", *words, check=False)
            self.assertEqual(refused.returncode, 1)
            self.assertIn("it may not run on backend process; allowed: lxc", refused.stderr.decode())
        self.assertEqual(self.client.workspace("stays")["sandbox"]["id"], sandbox)

    def test_rules_are_shown(self):
        self.configure("  - users: [root]\n    backends: [lxc, process]\n  - users: [65533]\n    max: {cpus: 1}\n")
        info = self.client.info()["policy"]
        self.assertEqual((info["rules"], [r["text"] for r in info["yours"]]), (2, ["{users: [root], backends: [lxc, process]}"]))
        told = self.daemon.cli("info").stdout.decode()
        self.assertRegex(told, r"policy +2 rules\n")
        shown = {s["name"]: (s["value"], s["source"]) for s in self.client.config()}
        self.assertEqual(shown["policy[2]"], ("{users: [65533], max: {cpus: 1}}", f"{self.daemon.config}:4"))
        self.assertIn("policy[1]", self.daemon.cli("config", "show").stdout.decode())
        self.configure("")
        self.assertRegex(self.daemon.cli("info").stdout.decode(), r"policy +no rules\n")

    def test_a_wrong_rule_prevents_the_start_of_the_daemon(self):
        for rules, words in (("  - users: [no-such-user]\n    backends: [lxc]\n", ':2:13: there is no user "no-such-user"'),
                             ("  - max: {memroy: 1GiB}\n", 'Did you mean "memory"?'),
                             ("  - backends: [lcx]\n", "policy rule 1 (PLACE:2): there is no backend 'lcx'")):
            self.configure(rules, start=False)
            run = harness.run(harness.BIN / "mooraged", "--config", self.daemon.config, check=False)
            self.assertEqual(run.returncode, 1)
            self.assertIn(words.replace("PLACE", str(self.daemon.config)), run.stderr.decode())
        self.configure("")


if __name__ == "__main__":
    unittest.main()
