"""Settings of a workspace, at create and changed later."""

import threading
import unittest

import harness
import raw_api


class Policy(harness.TestCase):
    def events(self, name, kind="workspace.policy"):
        id_ = self.client.workspace(name)["id"]
        return [e["text"] for e in self.client.events() if e["kind"] == kind and e.get("workspace") == id_]

    def test_limits_change_from_the_next_sandbox_on(self):
        self.client.create(repo_url=self.url, name="limits", limits={"pids": 100})
        self.assertEqual(self.client.exec("limits", "cat /proc/self/limits >/dev/null").exit_code, 0)
        changed = self.client.update("limits", limits={"pids": 60})
        self.assertEqual((changed["limits"]["pids"], changed["limits"]["cpus"]), (60, 2))
        self.assertIn("at the next start", changed["notice"])
        self.assertEqual(self.events("limits"), ["pids 100 -> 60, set by root"])
        self.client.stop("limits")
        self.assertNotIn("notice", self.client.update("limits", limits={"cpus": 1}))
        bomb = "for i in $(seq 80); do sleep 20 & done; wait"
        self.assertNotEqual(self.client.exec("limits", f"timeout 5 sh -c '{bomb}'").exit_code, 0)
        self.daemon.restart()
        self.assertEqual(self.client.workspace("limits")["limits"]["pids"], 60)
        out = self.daemon.cli("set", "limits", "--memory", "1G").stdout.decode()
        self.assertIn("moorage stop limits", out)
        self.assertEqual(self.client.workspace("limits")["limits"]["memory_bytes"], 1 << 30)

    def test_none_means_no_limit_in_all_options(self):
        self.client.create(repo_url=self.url, name="words")
        options = {"idle-stop": ("20m", 1200), "max-lifetime": ("2h", 7200), "max-exec": ("1h", 3600),
                   "max-execs": ("9", 9), "max-exec-total": ("90s", 90), "disk": ("2G", 2 << 30), "disk-files": ("5000", 5000)}

        def value(option):
            shown = self.client.workspace("words")
            name = {"disk": "disk_bytes", "max-execs": "max_execs", "disk-files": "disk_files"}.get(
                option, option.replace("-", "_") + "_s")
            return shown["limits"][name] if option.startswith("disk") else shown[name]
        for option, (text, number) in options.items():
            for none in ("none", "never", "0"):
                self.daemon.cli("set", "words", f"--{option}", text)
                self.assertEqual(value(option), number, option)
                self.daemon.cli("set", "words", f"--{option}", none)
                self.assertEqual(value(option), 0, (option, none))
        refused = self.daemon.cli("set", "words", "--max-execs", "0.5", check=False)
        self.assertIn(b"is not an integer", refused.stderr)

    def test_set_lists_its_changes_and_show_lists_limits_when_idle(self):
        self.client.create(repo_url=self.url, name="told")
        self.daemon.cli("set", "told", "--memory", "1G", "--idle-stop", "90m")
        out = self.daemon.cli("set", "told", "--memory", "512M", "--idle-stop", "never", "--max-lifetime", "8h30m", "--max-execs", "9",
                              "--pre-stop", "make save", "--cpus", "2").stdout.decode()
        self.assertEqual([line.strip() for line in out.splitlines()],
                         ["set      told", "memory 1G -> 512M", "cpus 2 (unchanged)", "idle-stop 1h30m -> never", "max-lifetime none -> 8h30m",
                          "pre-stop none -> /bin/sh -c 'make save'", "max-execs none -> 9"])
        stops = lambda: next(l for l in self.daemon.cli("show", "told").stdout.decode().splitlines() if "stops" in l)  # noqa: E731
        self.assertIn("when it runs: 8h30m after it starts; no timer deletes the workspace", stops())
        self.daemon.cli("set", "told", "--idle-stop", "45m", "--max-lifetime", "none")
        self.assertIn("when it runs: 45m after the last exec ends; no timer", stops())
        self.daemon.cli("set", "told", "--idle-stop", "never")
        self.assertIn("when it runs: by hand; no timer", stops())

    def test_concurrent_changes_do_not_undo_each_other(self):
        self.client.create(repo_url=self.url, name="both")
        fields = {"pids": range(100, 140), "memory_bytes": range(1 << 30, (1 << 30) + 40)}
        threads = [threading.Thread(target=lambda f=f, v=v: [self.client.update("both", limits={f: x}) for x in v])
                   for f, v in fields.items()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        limits = self.client.workspace("both")["limits"]
        self.assertEqual((limits["pids"], limits["memory_bytes"]), (139, (1 << 30) + 39))
        self.assertEqual(len(self.events("both")), 80)

    def test_unchangeable_settings_are_refused(self):
        self.client.create(repo_url=self.url, name="gone")
        gone = self.client.delete("gone")["id"]
        with self.assertRaises(raw_api.ApiError) as refused:
            self.client.update(gone, limits={"pids": 100})
        self.assertEqual((refused.exception.code, refused.exception.hint), ("conflict", f"moorage undelete {gone}"))
        self.client.create(repo_url=self.url, name="stays")
        for fields in ({"limits": {"pids": 1}}, {"limits": {"cpus": "many"}}, {"pids": 100}):
            with self.assertRaises(raw_api.ApiError) as refused:
                self.client.update("stays", **fields)
            self.assertEqual(refused.exception.code, "invalid_argument")
        self.assertEqual(self.events("stays"), [])


if __name__ == "__main__":
    unittest.main()
