"""snapshot, restore, fork, promote: nothing is lost on the way, and each tree is what it was."""

import threading
import time
import unittest

import harness
import moorage
import trees

# Writes one file after the other, each whole by a rename, in a tree with a directory of its own and its cwd in there.
WRITER = """
import os, time
os.makedirs("work", exist_ok=True); os.chdir("work")
n = 0
while not os.path.exists("../stop"):
    with open("part", "w") as out: out.write(f"{n}\\n" * 100)
    os.rename("part", f"f{n % 500}")
    with open("log", "a") as log: log.write(f"{n}\\n")
    n += 1
print(n)
"""


class Snapshots(harness.TestCase):
    def make(self, name, *commands):
        made = self.client.create(repo_url=self.url, name=name)
        for command in commands:
            self.run_in(name, command)
        return made

    def run_in(self, name, command):
        out = self.client.exec(name, ["sh", "-c", command])
        self.assertEqual(out.exit_code, 0, out.stderr.decode(errors="replace"))
        return out.stdout.decode()

    def content(self, name):
        return self.run_in(name, "cat kept 2>/dev/null; ls | grep -v kept | sort | tr '\\n' ' '; git status --porcelain | sort")

    def layers(self):
        return {p.name for p in (self.daemon.store / "layers").iterdir()}

    def test_at_rest_a_state_is_kept_and_comes_back(self):
        self.make("rest", "echo one > kept; git mv README.md READ.txt")
        one = self.content("rest")
        self.client.stop("rest")
        kept = self.client.snapshot("rest", name="one", external_id="checkpoint-1")
        self.assertEqual((kept["way"], kept["pause_us"], kept["state"], kept["durable"]), ("at-rest", 0, "kept", True))
        self.assertEqual(self.content("rest"), one)
        self.run_in("rest", "echo two > kept; rm READ.txt; mkdir more; echo x > more/x")
        two = self.content("rest")
        view = self.client.restore("rest", "one")
        self.assertEqual(view["stands_on"], kept["id"])
        self.assertEqual(self.content("rest"), one)
        self.client.stop("rest")
        listed = self.client.snapshots("rest")
        self.assertEqual([s["cause"] for s in listed], ["manual", "before-restore"])
        self.client.restore("rest", listed[1]["id"])
        self.assertEqual(self.content("rest"), two)
        with self.assertRaises(moorage.MoorageError) as refused:
            self.client.snapshot("rest", name="one")
        self.assertEqual(refused.exception.code, "already_exists")

    def test_a_hostile_tree_is_the_same_in_a_fork_and_after_a_restore(self):
        self.make("odd")
        self.assertEqual(self.client.exec("odd", ["python3", "-c", trees.MAKE]).exit_code, 0)
        self.assertEqual(self.client.exec("odd", trees.ROOT, user="root").exit_code, 0)
        before = trees.look(self.client, "odd")
        live = self.client.snapshot("odd", name="live")
        self.assertEqual(live["way"], "copy")
        self.client.stop("odd")
        rest = self.client.snapshot("odd", name="rest")
        forks = self.client.fork("odd", names=["odd-live"], snapshot="live") + self.client.fork("odd", names=["odd-rest"], snapshot=rest["id"])
        self.run_in("odd", "rm -rf hostile moved; echo gone > suid2")
        for fork in forks:
            self.assertEqual(trees.look(self.client, fork["name"]), before, fork["name"])
        self.client.restore("odd", "live", kill=True)
        self.assertEqual(trees.look(self.client, "odd"), before)

    def test_a_writer_notices_nothing_and_every_copy_is_of_one_moment(self):
        self.make("busy", "mkdir work")
        running = self.client.start_exec("busy", ["python3", "-c", WRITER])["id"]
        harness.wait_until(lambda: self.client.exec("busy", "test -e work/log").exit_code == 0, what="it writes")
        taken = []
        for n in range(10):
            taken.append(self.client.snapshot("busy", name=f"s{n}"))
            time.sleep(0.1)
        self.run_in("busy", "touch stop")
        end = self.client.wait(running, 30_000)
        self.assertEqual(end["exit_code"], 0)
        count = int(self.client.raw_output(running).decode(errors="replace").split()[-1])
        self.assertEqual(self.run_in("busy", "wc -l < work/log").strip(), str(count))
        print("frozen for", sorted(s["pause_us"] for s in taken), "us")
        seen = []
        for snapshot in taken[::3]:
            fork = self.client.fork("busy", snapshot=snapshot["id"])[0]
            check = ("import os\\nlog = open('work/log').read().split()\\nassert log == [str(n) for n in range(len(log))], log[-3:]\\n"
                     "for n in range(max(0, len(log) - 499), len(log)):\\n"
                     "    assert open(f'work/f{n % 500}').read() == f'{n}\\\\n' * 100, n\\nprint(len(log))").replace("\\n", "\n").replace("\\\n", "\\n")
            out = self.client.exec(fork["name"], ["python3", "-c", check])
            self.assertEqual(out.exit_code, 0, out.stderr)
            seen.append(int(out.stdout))
        self.assertEqual(seen, sorted(seen))

    def test_forks_are_apart_and_one_becomes_the_parent(self):
        self.make("parent", "echo base > kept")
        forks = self.client.fork("parent", count=3)
        self.assertEqual([f["name"] for f in forks], ["parent-1", "parent-2", "parent-3"])
        self.assertEqual([f["attempt"] for f in forks], [{"number": n, "of": 3} for n in (1, 2, 3)])
        for fork in forks:
            self.run_in(fork["name"], f"echo {fork['name']} > kept; git add kept; git commit -qm {fork['name']}")
        self.assertEqual(self.run_in("parent", "cat kept"), "base\n")
        with self.assertRaises(moorage.MoorageError) as busy:
            self.client.start_exec("parent", ["sleep", "60"])
            self.client.promote("parent-2")
        self.assertEqual(busy.exception.code, "conflict")
        self.assertIn("sleep", str(busy.exception))
        view = self.client.promote("parent-2", kill=True)
        self.assertEqual(view["name"], "parent")
        self.assertEqual(self.run_in("parent", "cat kept; git log -1 --format=%s"), "parent-2\nparent-2\n")
        self.assertEqual(self.run_in("parent-1", "cat kept"), "parent-1\n")
        tree = self.client.tree("parent-3")
        self.assertEqual({w["name"] for w in tree["workspaces"]}, {"parent", "parent-1", "parent-2", "parent-3"})
        text = self.daemon.cli("tree", "parent").stdout.decode()
        print(text)
        for name in ("parent", "parent-1", "parent-3  (3/3)"):
            self.assertIn(name, text)
        was = next(s for s in tree["snapshots"] if s["cause"] == "promote" and s["workspace"] == view["id"])
        self.client.restore("parent", was["id"])
        self.assertEqual(self.run_in("parent", "cat kept"), "base\n")

    def test_layers_go_with_the_last_that_stands_on_them(self):
        before = self.layers()
        self.make("tower", "echo 0 > kept")
        for n in range(4):
            self.client.stop("tower")
            self.client.snapshot("tower", name=f"t{n}")
            self.run_in("tower", f"echo {n + 1} > kept")
        self.client.stop("tower")
        fork = self.client.fork("tower", names=["heir"], snapshot="t3")[0]
        self.assertEqual(len(self.layers() - before), 6)
        self.client.drop_snapshot("tower", "t1")  # others stand on its layer
        self.assertEqual(len(self.layers() - before), 6)
        self.client.delete("tower", purge=True)
        self.assertEqual(self.run_in("heir", "cat kept"), "3\n")
        self.assertEqual(len(self.layers() - before), 5)
        self.client.delete(fork["id"], purge=True)
        self.assertEqual(self.layers(), before)

    def test_a_key_makes_one(self):
        self.make("keyed", "echo x > kept")
        one = self.client.snapshot("keyed", name="k", key="key-1")
        self.assertEqual(self.client.snapshot("keyed", name="k", key="key-1")["id"], one["id"])
        forks = self.client.fork("keyed", count=2, key="key-2")
        self.assertEqual([f["id"] for f in self.client.fork("keyed", count=2, key="key-2")], [f["id"] for f in forks])

    def test_what_cannot_be_is_refused_and_changes_nothing(self):
        self.make("strict")
        for call, code in ((lambda: self.client.restore("strict", "none"), "not_found"), (lambda: self.client.promote("strict"), "invalid_argument"),
                           (lambda: self.client.fork("strict", names=["strict"]), "already_exists"),
                           (lambda: self.client.fork("strict", names=["new-a", "new-a"]), "already_exists"),
                           (lambda: self.client.fork("strict", count=101), "invalid_argument"), (lambda: self.client.snapshot("strict", name="sn_1"), "invalid_argument"),
                           (lambda: self.client.snapshot("strict", name="A b"), "invalid_argument"), (lambda: self.client.drop_snapshot("strict", "sn_99"), "not_found")):
            with self.assertRaises(moorage.MoorageError) as refused:
                call()
            self.assertEqual(refused.exception.code, code, str(refused.exception))
        self.assertEqual([w["name"] for w in self.client.workspaces() if w["name"].startswith("new-a")], [])
        self.assertEqual(self.client.snapshots("strict"), [])


if __name__ == "__main__":
    unittest.main()
