"""One task moves through every backend in the middle of its work: lxc, ssh, E2B, Docker, Daytona, and back to lxc.

The providers are the fakes of tests/remote. Another workspace gets the same commands and never moves.
"""

import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

import harness
import raw_api
import on_engine
import ssh_host
from test_move import POINTS
import trees

sys.path.insert(0, str(harness.ROOT / "tests/remote"))
import fake_daytona  # noqa: E402
import fake_e2b  # noqa: E402

HOST_IDS = "docker"  # an engine without user namespaces: commands see the host's ids
ONE_OWNER = "daytona"  # no root there: all files belong to one user, and what needs other ids is not visible
PLACES = [{"backend": "ssh", "runtime": "spare"}, {"backend": "e2b"}, {"backend": "docker"}, {"backend": "daytona"}, {"backend": "lxc"}]
# trees.LOOK as the user of the workspace: parts of a hostile tree are closed to it.
LOOK = trees.LOOK.replace("entry |= contents(path)", "entry |= contents(path) if os.access(path, os.R_OK) else {}").replace(
    "sorted(os.listdir(path))", "sorted(os.listdir(path) if os.access(path, os.R_OK | os.X_OK) else [])")
assert LOOK.count("os.access") == 2
# One at each place. Output and files of all must be the same as without a move.
STEPS = [
    "mkdir -p deep/er empty; echo one > deep/one; ln -s one deep/link; ln deep/one deep/two; chmod 751 deep; echo h > ~/notes; mkdir ~/.empty;"
    " echo ign > .gitignore; echo kept > ign/here; printf '\\0\\377' > bytes; setfattr -n user.from -v lxc bytes 2>/dev/null || python3 -c"
    " 'import os; os.setxattr(\"bytes\", \"user.from\", b\"lxc\")'",
    "git checkout -q -b work; git add -A moved deep; git commit -qm 'of the agent'; echo staged > s; git add s; echo two >> deep/one;"
    " chmod 700 deep/er; rm ~/notes",
    "mv moved renamed; rmdir empty; rm hostile/three; mkdir -p ~/.cache/x; echo cached > ~/.cache/x/y; echo untracked > u; rm ign/f; echo linked > v",
    "git stash -q; git stash pop -q; rm -r deep; mkdir deep; echo new > deep/new; touch -d @1000000000 bytes deep/new; chmod 4755 u",
    "mv renamed deep/below; ln v deep/v; ln -sf /workspace/u deep/link; rm sparse; echo > 'hostile/new\nline'; mkfifo deep/fifo; rm -r ~/.cache",
    "git add -A -f deep; git commit -qm last; git log --format=%s; git status --porcelain | LC_ALL=C sort; cat deep/new u v; ls -A ~ ign",
]


class MoveEverywhere(harness.TestCase):
    maxDiff = None
    plain = ()  # providers whose machines allow neither namespaces nor mounts

    @classmethod
    def setUpClass(cls):
        cls.root = pathlib.Path(tempfile.mkdtemp(prefix="moorage-everywhere-", dir=harness.BASE))
        cls.addClassCleanup(shutil.rmtree, cls.root, ignore_errors=True)
        cls.engine = on_engine.engine.Engine().start()
        cls.addClassCleanup(cls.engine.stop)
        cls.host = ssh_host.SshHost(cls.root / "spare").start()
        cls.addClassCleanup(cls.host.close)
        cls.fakes, backends = {}, cls.host.section()
        for name, fake, options in (("e2b", fake_e2b.FakeE2B, {"templates": ("base", "plain")}),
                                    ("daytona", fake_daytona.FakeDaytona, {"snapshots": ("daytonaio/sandbox", "plain")})):
            (cls.root / name).mkdir()
            cls.fakes[name] = fake(cls.root / name, **options)
            cls.addClassCleanup(cls.fakes[name].close)
            key = cls.root / f"{name}.key"
            key.write_text(cls.fakes[name].api_key + "\n")
            key.chmod(0o600)
            backends[name] = {"key_file": str(key)}
            if name in cls.plain:
                backends[name]["template" if name == "e2b" else "snapshot"] = "plain"
        backends["e2b"] |= {"api_url": cls.fakes["e2b"].url, "sandbox_url": cls.fakes["e2b"].url}
        backends["daytona"] |= {"api_url": cls.fakes["daytona"].url + "/api"}
        cls.settings = {"backends": backends, "remote.sync_interval_s": 1, "docker.socket": str(cls.engine.socket), "sandbox.backend": "lxc"}
        super().setUpClass()

    def out(self, name, script, **fields):
        result = self.client.exec(name, ["sh", "-c", script], **fields)
        self.assertEqual(result.exit_code, 0, result.stderr)
        return result.stdout.decode(errors="surrogateescape")

    def inside(self, name):
        """All facts about tree and home as a command sees them."""
        seen = self.client.exec(name, ["python3", "-ISc", LOOK])
        self.assertEqual(seen.exit_code, 0, seen.stderr)
        return {path: entry for path, entry in json.loads(seen.stdout).items() if b"late" not in bytes.fromhex(path).split(b"/")}

    @staticmethod
    def visible(facts, places):
        """What all these places can show."""
        first = facts[b"/workspace".hex()]["uid"] - 1000
        for entry in facts.values():
            entry |= {"uid": entry["uid"] - first, "gid": entry["gid"] - first}
            if not {HOST_IDS, ONE_OWNER}.isdisjoint(places):
                entry["xattrs"] = {name: value for name, value in entry["xattrs"].items() if name.startswith("user.")}
            if ONE_OWNER in places:
                entry |= {"mode": entry["mode"] & ~0o6000, "uid": 1000, "gid": 1000}
        return facts

    def same_inside(self, before, after, places):
        before, after = self.visible(before, places), self.visible(after, places)
        for path in before.keys() & after.keys():  # one that only one of the two may read
            if "sha256" not in before[path] or "sha256" not in after[path]:
                for entry in (before[path], after[path]):
                    for field in ("size", "data", "sha256"):
                        entry.pop(field, None)
        self.assertEqual(trees.differences(before, after), [], places)

    def here(self, name):
        """The same of the workspace's layer on this host, while a sandbox elsewhere runs."""
        layer = self.daemon.store / "layers" / f"ly_{self.client.workspace(name)['id'][3:]}"
        return {(part, path): entry for part in ("tree", "home") for path, entry in trees.raw(layer / part / "upper").items()
                if b"late" not in bytes.fromhex(path).split(b"/")}

    def move(self, place, number):
        """While a command runs, which it waits for, and a process is left, which it ends."""
        self.out("moves", "setsid sleep 1000 > /dev/null 2>&1 &")
        before, here = self.inside("moves"), self.here("moves")
        running = self.client.start_exec("moves", ["sh", "-c", f"for i in $(seq 2000); do echo $i; done; sleep 1; echo {number} > late/{number}; echo end"])
        plan = self.client.move("moves", **place, check=True)
        self.assertEqual(plan["execs"], [running["id"]])
        former = self.client.workspace("moves")
        if former["backend"] in ("ssh", *self.fakes):
            self.assertIn("background processes end, if commands left any", plan["notices"])
        moved = self.client.move("moves", **place, wait_ms=60000)
        self.assertEqual((moved["id"], moved["backend"], moved["sandbox"]["state"]), (former["id"], place["backend"], "running"))
        self.assertNotEqual(moved["sandbox"]["id"], former["sandbox"]["id"])
        if place["backend"] in self.fakes:
            self.assertEqual(moved["sandbox"]["remote"]["overlay"] == "none", place["backend"] in self.plain)
        self.assertEqual(self.client.get_exec(running["id"])["state"], "exited")
        self.assertEqual(self.client.raw_output(running["id"]).decode().split(), [*map(str, range(1, 2001)), "end"])
        self.same_inside(before, self.inside("moves"), {former["backend"], place["backend"]})
        self.assertEqual(self.here("moves"), here)
        self.assertEqual(self.out("moves", "cat late/* | tr '\\n' ' '"), "".join(f"{n} " for n in range(number + 1)))
        self.assertEqual(self.out("moves", "pgrep -c -x sleep || true"), "0\n")

    def test_a_task_moves_through_every_backend_in_the_middle_of_its_work(self):
        for name in ("moves", "stays"):
            self.client.create(repo_url=self.url, name=name)
            self.client.exec(name, ["python3", "-c", trees.MAKE])
            self.client.exec(name, ["sh", "-c", trees.ROOT], user="root")
            self.out(name, "mkdir late; echo 0 > late/0")
        identity = self.client.workspace("moves")["id"]
        for number, step in enumerate(STEPS):
            if number:
                with self.subTest(to=PLACES[number - 1]["backend"]):
                    self.move(PLACES[number - 1], number)
            self.assertEqual(self.out("moves", step), self.out("stays", step))
        self.assertEqual(self.client.workspace("moves")["id"], identity)
        self.same_trees()
        self.one_history(identity)
        for backend, fake in self.fakes.items():
            harness.wait_until(lambda: not fake.sandboxes, what=f"no machine is left at {backend}")  # noqa: B023
        self.assertEqual(list((self.host.directory / "sandboxes").iterdir()), [])
        self.assertEqual(self.client.doctor()["findings"], [])

    def test_a_crash_during_a_move_leaves_the_workspace_at_one_place(self):
        self.client.create(repo_url=self.url, name="dies")
        self.out("dies", "echo kept > kept; echo home > ~/home")
        lines = 0
        for place, other in (("ssh", "lxc"), ("lxc", "ssh"), ("e2b", "ssh")):
            for point in POINTS:
                with self.subTest(place=place, point=point):
                    self.client.move("dies", backend=other)
                    self.client.start("dies")
                    self.daemon.kill()
                    self.daemon.start(crash_at=f"move.{point}")
                    with self.assertRaises((raw_api.ApiError, OSError)):
                        self.client.move("dies", backend=place)
                    self.daemon.process.wait(60 * harness.PATIENCE)
                    self.daemon.start()
                    self.assertEqual(self.client.workspace("dies")["backend"], place if point == "after_outcome" else other)
                    lines += 1
                    self.assertEqual(self.out("dies", "cat kept ~/home; echo more >> more; wc -l < more"), f"kept\nhome\n{lines}\n")
                    self.only_one_machine("dies")
        self.client.delete("dies", purge=True)

    def only_one_machine(self, name):
        """What an interrupted move began elsewhere is removed."""
        sandbox = self.client.workspace(name)["sandbox"]
        at_ssh = [f"moorage-{self.daemon.store_id()}-{sandbox['id']}"] if sandbox["backend"] == "ssh" else []
        there = self.host.directory / "sandboxes"
        harness.wait_until(lambda: (os.listdir(there) if there.exists() else []) == at_ssh, 60, "only the live sandbox is on the machine")
        rented = 1 if sandbox["backend"] == "e2b" else 0
        harness.wait_until(lambda: len(self.fakes["e2b"].sandboxes) == rented, 60, "only the live machine is rented")
        self.assertEqual(self.client.doctor()["findings"], [])

    def same_trees(self):
        def comparable(tree):  # git's own files contain times, and times differ between the two
            return {path: {field: value for field, value in entry.items() if field != "mtime"} for path, entry in tree.items()
                    if b"/.git/" not in bytes.fromhex(path) and b"late" not in bytes.fromhex(path).split(b"/")}

        moved, stayed = trees.look(self.client, "moves"), trees.look(self.client, "stays")
        self.assertEqual(trees.differences(comparable(stayed), comparable(moved)), [])
        self.assertEqual(moved[b"/workspace/bytes".hex()]["mtime"], 1000000000 * 10**9)
        self.out("moves", "git fsck --full")

    def one_history(self, identity):
        histories = {name: self.client.history(name)["execs"] for name in ("moves", "stays")}
        numbers = sorted(int(each["id"][3:]) for history in histories.values() for each in history)
        moved = histories["moves"]
        self.assertEqual(moved[0]["argv"], ["python3", "-c", trees.MAKE])
        first = int(moved[0]["id"][3:])  # of all: other tests of this daemon ran before
        self.assertEqual(numbers, list(range(first, first + len(numbers))))
        self.assertEqual([int(each["id"][3:]) for each in moved], sorted(int(each["id"][3:]) for each in moved))
        self.assertTrue(all(each["state"] == "exited" and each["workspace"] == identity for each in moved), moved)
        self.assertEqual([each["argv"][2] for each in moved if each["argv"][2] in STEPS], STEPS)
        self.assertEqual(len({each["sandbox"] for each in moved}), len(PLACES) + 1)
        events = [event["kind"] for event in self.client.events() if event.get("workspace") == identity]
        self.assertEqual(events.count("workspace.moved"), len(PLACES))
        self.assertNotIn("sandbox.died", events)


class MoveEverywherePlain(MoveEverywhere):
    plain = ("e2b", "daytona")
    test_a_crash_during_a_move_leaves_the_workspace_at_one_place = None


if __name__ == "__main__":
    unittest.main()
