"""What a workspace may do, set at create and changed later."""

import threading
import unittest

import harness
import moorage


class Policy(harness.TestCase):
    def events(self, name, kind="workspace.policy"):
        id_ = self.client.workspace(name)["id"]
        return [e["text"] for e in self.client.events() if e["kind"] == kind and e.get("workspace") == id_]

    def test_limits_change_from_the_next_sandbox_on(self):
        self.client.create(repo_url=self.url, name="limits", limits={"pids": 100})
        self.assertEqual(self.client.exec("limits", "cat /proc/self/limits >/dev/null").exit_code, 0)
        changed = self.client.update("limits", limits={"pids": 60})
        self.assertEqual((changed["limits"]["pids"], changed["limits"]["cpus"]), (60, 2))
        self.assertIn("from the next sandbox on", changed["notice"])
        self.assertEqual(self.events("limits"), ["pids 100 -> 60, set by uid 0"])
        self.client.stop("limits")
        self.assertNotIn("notice", self.client.update("limits", limits={"cpus": 1}))
        bomb = "for i in $(seq 80); do sleep 20 & done; wait"
        self.assertNotEqual(self.client.exec("limits", f"timeout 5 sh -c '{bomb}'").exit_code, 0)
        self.daemon.restart()
        self.assertEqual(self.client.workspace("limits")["limits"]["pids"], 60)
        out = self.daemon.cli("set", "limits", "--memory", "1G").stdout.decode()
        self.assertIn("moorage stop limits", out)
        self.assertEqual(self.client.workspace("limits")["limits"]["memory_bytes"], 1 << 30)

    def test_two_who_change_at_once_undo_nothing_of_each_other(self):
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

    def test_what_cannot_be_changed_is_refused(self):
        self.client.create(repo_url=self.url, name="gone")
        gone = self.client.delete("gone")["id"]
        with self.assertRaises(moorage.MoorageError) as refused:
            self.client.update(gone, limits={"pids": 100})
        self.assertEqual((refused.exception.code, refused.exception.hint), ("conflict", f"moorage undelete {gone}"))
        self.client.create(repo_url=self.url, name="stays")
        for fields in ({"limits": {"pids": 1}}, {"limits": {"cpus": "many"}}, {"pids": 100}):
            with self.assertRaises(moorage.MoorageError) as refused:
                self.client.update("stays", **fields)
            self.assertEqual(refused.exception.code, "invalid_argument")
        self.assertEqual(self.events("stays"), [])


if __name__ == "__main__":
    unittest.main()
