"""snapshot, restore, fork, promote: nothing is lost, and each tree stays the same."""

import concurrent.futures
import contextlib
import os
import signal
import sqlite3
import time
import unittest

import harness
import raw_api
import trees

SNAPSHOTS = int(os.environ.get("MOORAGE_SNAPSHOTS", "60"))  # of a running workspace, in a row
# Writes files one after another, each by a rename, in a tree with its own directory and with its cwd there.
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

# For each line of input: counts in a mapped page until a signal, counts again, unmaps, prints the last count.
COUNTER = """
import mmap, os, signal, struct, sys
over, n = False, 0
def end(*_):
    global over
    over = True
signal.signal(signal.SIGUSR1, end)
for turn, _ in enumerate(sys.stdin):
    over = False
    with open("counter", "r+b") as f, mmap.mmap(f.fileno(), 4096) as page:
        page[:8] = struct.pack("<Q", n)
        print(f"mapped {turn}", flush=True)
        while not over: n += 1; page[:8] = struct.pack("<Q", n)
        n += 1; page[:8] = struct.pack("<Q", n)
    with open("told", "w") as f: f.write(f"{turn} {n}")
"""


class Snapshots(harness.TestCase):
    beside = "copy"  # the kind of snapshot for busy mounts

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

    def same(self, name, before):
        now = trees.look(self.client, name)
        differs = {bytes.fromhex(p): (before.get(p), now.get(p)) for p in before.keys() | now.keys() if before.get(p) != now.get(p)}
        self.assertEqual(differs, {}, name)

    def layers(self):
        return {p.name for p in (self.daemon.store / "layers").iterdir()}

    def test_an_idle_workspace_can_be_snapshotted_and_restored(self):
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
        with self.assertRaises(raw_api.ApiError) as refused:
            self.client.snapshot("rest", name="one")
        self.assertEqual(refused.exception.code, "already_exists")
        self.assertIn("rest already has a snapshot one", refused.exception.message)

    @unittest.skipUnless(harness.HAS_ROOT, "files and rights of others are nothing that one id alone can make")
    def test_a_hostile_tree_is_the_same_in_a_fork_and_after_a_restore(self):
        self.make("odd")
        self.assertEqual(self.client.exec("odd", ["python3", "-c", trees.MAKE]).exit_code, 0)
        self.assertEqual(self.client.exec("odd", trees.ROOT, user="root").exit_code, 0)
        before = trees.look(self.client, "odd")
        self.client.start_exec("odd", ["sleep", "60"])
        live = self.client.snapshot("odd", name="live")
        self.assertEqual(live["way"], self.beside)
        self.client.stop("odd", force=True)
        rest = self.client.snapshot("odd", name="rest")
        forks = self.client.fork("odd", names=["odd-live"], snapshot="live") + self.client.fork("odd", names=["odd-rest"], snapshot=rest["id"])
        self.run_in("odd", "rm -rf hostile moved; echo gone > suid2")
        for fork in forks:
            self.same(fork["name"], before)
        self.client.restore("odd", "live", kill=True)
        self.same("odd", before)

    def test_a_writer_is_not_disturbed_and_every_copy_is_consistent(self):
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

    def test_writes_through_an_ended_mapping_are_in_the_snapshot(self):
        """Each round, before the freeze: a counter in a mapped page is copied, counts further and is unmapped, and a file has its last count."""
        self.make("mapped", "mkdir many; for i in $(seq 600); do echo $i > many/$i; done; head -c 4096 /dev/zero > counter; echo -1 0 > told")
        running = self.client.start_exec("mapped", ["python3", "-uc", COUNTER], stdin=True)["id"]
        rounds, ended_before = 200 if os.environ.get("MOORAGE_TEST_LONG") == "1" else 4, 0
        for n in range(rounds):
            self.client.send_input(running, b"\n", offset=n)
            harness.wait_until(lambda: f"mapped {n}\n" in self.client.raw_output(running).decode(), what=f"mapping {n}")  # noqa: B023
            inside = harness.sandbox_cgroup_pids(self.daemon.sandbox_pids("mapped")["name"])
            pid, = (pid for pid, line in harness.processes().items() if pid in inside and "mapped {turn}" in line)
            layers = self.layers()
            live = self.daemon.store / "layers" / self.layer_of("mapped") / "tree/upper/counter"
            # The page is dirty, and its ctime is already past: no time shows the later writes.
            harness.wait_until(lambda: time.time() - live.stat().st_ctime > 0.1, what="the page's change is over")  # noqa: B023
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                taking = pool.submit(self.client.snapshot, "mapped")
                harness.wait_until(lambda: taking.done() or self.copied(self.layers() - layers, "counter"), what="the counter is copied")  # noqa: B023
                os.kill(pid, signal.SIGUSR1)
                taken = taking.result(60)
            self.assertEqual(taken["way"], self.beside)
            fork = self.client.fork("mapped", snapshot=taken["id"])[0]["id"]
            # Nothing in `told`: between the open that truncated it and the write.
            turn, told = (int(word) for word in (self.client.read_file(fork, "told").split() or (-1, 0)))
            self.assertGreaterEqual(int.from_bytes(self.client.read_file(fork, "counter")[:8], "little"), told, f"snapshot {n}")
            ended_before += turn == n
            self.client.delete(fork, purge=True)
            self.client.drop_snapshot("mapped", taken["id"])
        if self.beside == "copy":  # a subvolume's copy is instantaneous
            self.assertGreater(ended_before, 0, "the copies were over before the mappings ended, so nothing was tried")
        self.client.cancel(running)
        self.client.wait(running, 30_000)

    def layer_of(self, name):
        with contextlib.closing(sqlite3.connect(f"file:{self.daemon.store}/state.db?mode=ro", uri=True)) as database:
            (layer,), = database.execute("SELECT layer FROM workspaces WHERE name = ? AND state = 'ready'", (name,))
        return f"ly_{layer}"

    def copied(self, layers, file):
        for layer in layers:
            with contextlib.suppress(FileNotFoundError):
                if (self.daemon.store / "layers" / layer / "tree/upper" / file).stat().st_size:
                    return True
        return False

    def test_an_idle_sandbox_gets_new_mounts_and_keeps_running(self):
        sandbox = self.client.start(self.make("idle")["id"])["sandbox"]["id"]
        self.run_in("idle", "echo one > kept; echo mine > /tmp/mine; echo hidden > ~/.hidden")
        # The process that ran the command may live slightly longer.
        harness.wait_until(lambda: self.client.snapshot("idle")["way"] == "restack", what="an exchange")
        time.sleep(0.2)
        self.assertEqual(self.client.snapshot("idle", name="one")["way"], "restack")
        self.run_in("idle", "test $(cat kept) = one; echo two > kept; rm ~/.hidden; mkdir -p deep/er; git mv README.md deep/er/")
        two = self.content("idle")
        self.client.snapshot("idle", name="two")
        time.sleep(0.2)
        # With one that runs elsewhere and holds no mount.
        elsewhere = self.client.start_exec("idle", ["sleep", "60"], cwd="/tmp")
        self.assertEqual(self.client.snapshot("idle")["way"], "restack")
        with self.assertRaises(raw_api.ApiError) as busy:
            self.client.restore("idle", "one")
        self.assertIn("sleep", str(busy.exception))
        self.client.cancel(elsewhere["id"])
        self.client.wait(elsewhere["id"], 10_000)
        for name, content in (("one", "one\n"), ("two", "two\n"), ("one", "one\n")):
            self.client.restore("idle", name)
            self.assertEqual(self.run_in("idle", "cat kept"), content)
        self.assertEqual(self.run_in("idle", "cat ~/.hidden /tmp/mine"), "hidden\nmine\n")
        self.client.restore("idle", "two")
        self.daemon.kill()
        self.daemon.start()
        self.assertEqual(self.content("idle"), two)
        view = self.client.workspace("idle")
        self.assertEqual(view["sandbox"]["id"], sandbox, "it is the same all the time")
        self.run_in("idle", "cat /tmp/mine")
        self.client.write_file("idle", "put", b"put")
        self.client.stop("idle")
        self.assertEqual(self.client.read_file("idle", "put"), b"put")
        self.assertEqual(self.content("idle").count("put"), 2)

    def test_a_sandbox_with_busy_mounts_is_snapshotted_by_copy(self):
        holders = {
            "directory": "import os, time; os.chdir('/workspace/d'); ready(); time.sleep(60)",
            "file": "import time; f = open('/workspace/d/log', 'a'); ready()\nwhile True: f.write('x\\n'); f.flush(); time.sleep(.01)",
            "home": "import time; f = open('/home/user/f', 'a'); ready(); time.sleep(60)",
            "mapping": "import mmap, time; f = open('/workspace/d/map', 'r+b'); m = mmap.mmap(f.fileno(), 0); f.close(); ready(); time.sleep(60)",
            "socket": "import socket, time; s = socket.socket(socket.AF_UNIX); s.bind('/workspace/d/s'); ready(); time.sleep(60)",
            "sent": "import socket, os, time; a, b = socket.socketpair(socket.AF_UNIX); f = open('/workspace/d/log'); "
                    "socket.send_fds(a, [b'x'], [f.fileno()]); f.close(); ready(); time.sleep(60)",
        }
        for name, code in holders.items():
            with self.subTest(name):
                workspace = f"holds-{name}"
                self.make(workspace, "mkdir d; echo log > d/log; head -c 5000 /dev/zero > d/map")
                code = "def ready(): open('/tmp/ready', 'w').close()\n" + code
                held = self.client.start_exec(workspace, ["python3", "-c", code], cwd="/tmp")["id"]
                harness.wait_until(lambda: self.client.exec(workspace, ["test", "-e", "/tmp/ready"]).exit_code == 0, what="it holds")
                self.assertEqual(self.client.snapshot(workspace)["way"], self.beside)
                fork = self.client.fork(workspace)[0]["name"]
                self.assertEqual(self.run_in(fork, "head -1 d/log"), "log\n")
                self.client.delete(fork, purge=True)
                self.assertIn("running", self.client.get_exec(held)["state"])
                self.client.cancel(held)
                self.client.wait(held, 10_000)
                harness.wait_until(lambda: self.client.snapshot(workspace)["way"] == "restack", what="an exchange")
                if name == "file":
                    self.assertEqual(self.run_in(workspace, "grep -vc x d/log; ls d"), "1\nlog\nmap\n")

    def test_a_writer_by_absolute_path_loses_no_byte(self):
        """It holds no mount between two writes: some snapshots are restacked, some copied."""
        self.make("absolute", "mkdir w")
        code = ("import os\nn = 0\nwhile not os.path.exists('/tmp/stop'):\n"
                "  with open('/workspace/w/log', 'a') as f: f.write(f'{n}\\n')\n"
                "  with open(f'/workspace/w/f{n % 50}', 'w') as f: f.write(f'{n}\\n' * 100)\n  n += 1\nprint(n)")
        running = self.client.start_exec("absolute", ["python3", "-c", code], cwd="/tmp")["id"]
        ways = [self.client.snapshot("absolute")["way"] for _ in range(SNAPSHOTS)]
        self.run_in("absolute", "touch /tmp/stop")
        end = self.client.wait(running, 30_000)
        self.assertEqual(end["exit_code"], 0)
        count = int(self.client.raw_output(running).decode(errors="replace").split()[-1])
        print({way: ways.count(way) for way in set(ways)}, "beside", count, "writes")
        self.assertIn("restack", ways)
        check = ("log = open('w/log').read().split()\nassert log == [str(n) for n in range(len(log))], log[-3:]\n"
                 "for n in range(max(0, len(log) - 49), len(log)): assert open(f'w/f{n % 50}').read() == f'{n}\\n' * 100, n\nprint(len(log))")
        out = self.client.exec("absolute", ["python3", "-c", check])
        self.assertEqual((out.exit_code, out.stdout.decode()), (0, f"{count}\n"), out.stderr)
        self.assertEqual(self.run_in("absolute", "ls -A / | tr '\\n' ' '; ls /home").split()[-1], "user")
        self.client.stop("absolute")
        skeletons = [path for image in (self.daemon.store / "images").iterdir() for path in image.rglob("workspace/*")]
        self.assertEqual(skeletons, [], "left under a mount point")

    def test_forks_are_independent_and_one_is_promoted(self):
        self.make("parent", "echo base > kept")
        forks = self.client.fork("parent", count=3)
        self.assertEqual([f["name"] for f in forks], ["parent-1", "parent-2", "parent-3"])
        self.assertEqual([f["attempt"] for f in forks], [{"number": n, "of": 3} for n in (1, 2, 3)])
        for fork in forks:
            self.run_in(fork["name"], f"echo {fork['name']} > kept; git add kept; git commit -qm {fork['name']}")
        self.assertEqual(self.run_in("parent", "cat kept"), "base\n")
        with self.assertRaises(raw_api.ApiError) as busy:
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

    def test_layers_are_removed_with_their_last_user(self):
        before = self.layers()
        self.make("tower", "echo 0 > kept")
        for n in range(4):
            self.client.stop("tower")
            self.client.snapshot("tower", name=f"t{n}")
            self.run_in("tower", f"echo {n + 1} > kept")
        self.client.stop("tower")
        fork = self.client.fork("tower", names=["heir"], snapshot="t3")[0]
        self.assertEqual(len(self.layers() - before), 6)
        self.client.drop_snapshot("tower", "t1")  # others use its layer
        self.assertEqual(len(self.layers() - before), 6)
        self.client.delete("tower", purge=True)
        self.assertEqual(self.run_in("heir", "cat kept"), "3\n")
        self.assertEqual(len(self.layers() - before), 5)
        self.client.delete(fork["id"], purge=True)
        self.assertEqual(self.layers(), before)

    def test_each_command_can_be_undone(self):
        self.client.create(repo_url=self.url, name="undo", snapshot_before_exec=True)
        for n in range(4):
            self.run_in("undo", f"echo {n} >> kept")
        execs = [e["id"] for e in self.client.history("undo")["execs"]]
        self.assertEqual([s["exec"] for s in self.client.snapshots("undo")], execs)
        self.client.undo("undo")
        self.assertEqual(self.client.read_file("undo", "kept"), b"0\n1\n2\n")
        self.client.undo("undo")
        self.assertEqual(self.client.read_file("undo", "kept"), b"0\n1\n")
        self.client.undo("undo", execs[3])
        self.assertEqual(self.client.read_file("undo", "kept"), b"0\n1\n2\n")
        self.run_in("undo", "echo new >> kept")
        out = self.daemon.cli("undo", "undo").stdout.decode()
        self.assertIn("as of sn_", out)
        self.assertEqual(self.client.read_file("undo", "kept"), b"0\n1\n2\n")
        with self.assertRaises(raw_api.ApiError) as refused:
            self.client.undo("undo", "ex_99999")
        self.assertEqual(refused.exception.code, "not_found")

    def test_policies_take_snapshots_and_retention_removes_them(self):
        self.client.create(repo_url=self.url, name="stops", snapshot_on_stop=True)
        for n in range(13):
            self.run_in("stops", f"echo {n} > kept")
            self.client.stop("stops")
        self.client.start("stops")
        self.client.stop("stops")  # nothing new
        taken = self.client.snapshots("stops")
        self.assertEqual({s["cause"] for s in taken}, {"on-stop"})
        harness.wait_until(lambda: len(self.client.snapshots("stops")) == 11, what="retention")  # the newest ten, and one per hour
        self.client.restore("stops", self.client.snapshots("stops")[3]["id"])
        self.client.create(repo_url=self.url, name="often", snapshot_every_s=10)
        running = self.client.start_exec("often", ["sh", "-c", "for i in $(seq 250); do echo $i >> kept; sleep 0.1; done"])["id"]
        harness.wait_until(lambda: [s["cause"] for s in self.client.snapshots("often")] == ["interval"], 60, "one of the interval")
        self.client.cancel(running)
        for name in ("stops", "often"):  # otherwise it would disturb the counts of other tests
            self.client.delete(name, purge=True)

    def test_an_idle_sandbox_survives_hundreds_of_snapshots(self):
        self.make("on", "mkdir -p a/b; echo 0 > a/b/log; git mv README.md a/READ")
        before = self.layers()
        born = self.client.workspace("on")["sandbox"]["id"]
        ways = []
        for n in range(1, 151):
            ways.append(self.client.snapshot("on", name=f"s{n}")["way"])
            if n % 5 == 0:
                self.run_in("on", f"echo {n} >> a/b/log; mv a/b a/c; mv a/c a/b; echo {n} > new{n}; rm -f new{n - 5}")
            if n % 50 == 0:
                self.daemon.restart()
            harness.wait_until(lambda: self.depth("on", at_rest=False) < 40, what="it is flattened while it is mounted")
        self.assertGreater(ways.count("restack"), 100, ways)  # the process that ran a command may live slightly longer
        self.assertEqual(self.client.workspace("on")["sandbox"]["id"], born)
        log = "".join(f"{n}\n" for n in range(0, 151, 5))
        self.assertEqual(self.run_in("on", "cat a/b/log a/READ; ls -d new*"), log + "hello\nnew150\n")
        for n in (1, 44, 101):
            fork = self.client.fork("on", snapshot=f"s{n}")[0]
            self.assertEqual(self.run_in(fork["name"], "cat a/b/log"), "".join(f"{k}\n" for k in range(0, n, 5)), n)
            self.client.delete(fork["id"], purge=True)
        # Layers replaced by merges are removed after the last mount of them was exchanged.
        for n in range(1, 151):
            self.client.drop_snapshot("on", f"s{n}")
        harness.wait_until(lambda: self.client.snapshot("on")["way"] == "restack", what="an exchange")
        harness.wait_until(lambda: len(self.layers() - before) <= 25, 60, "merged layers are removed")
        self.assertEqual(self.run_in("on", "cat a/b/log"), log)
        self.client.delete("on", purge=True)
        harness.wait_until(lambda: self.layers() <= before, 60, "its layers are gone")

    def test_a_chain_of_two_hundred_snapshots_is_as_fast_as_a_new_one(self):
        self.make("deep", "mkdir -p a/b; echo 0 > a/b/log; git mv README.md a/READ")
        before = self.layers()
        for n in range(1, 201):
            self.client.stop("deep")
            self.client.snapshot("deep", name=f"s{n}")
            if n % 7 == 0:
                self.run_in("deep", f"mv a/b a/c; mkdir a/b; mv a/c/log a/b/log; rm -r a/c; echo {n} >> a/b/log")
        harness.wait_until(lambda: self.depth("deep") <= 20, what="it is flat")
        log = "".join(f"{n}\n" for n in range(0, 201, 7))
        self.assertEqual(self.run_in("deep", "cat a/b/log; cat a/READ"), log + "hello\n")
        self.assertEqual(self.run_in("deep", "git status --porcelain"), self.run_in("deep", "git status --porcelain"))
        for n in (1, 14, 55, 200):
            fork = self.client.fork("deep", snapshot=f"s{n}")[0]
            lines = [k for k in range(0, n, 7)]
            self.assertEqual(self.run_in(fork["name"], "cat a/b/log"), "".join(f"{k}\n" for k in lines), n)
            self.client.delete(fork["id"], purge=True)
        self.client.delete("deep", purge=True)
        harness.wait_until(lambda: self.layers() <= before, 60, "its layers are gone")

    def test_a_deep_chain_is_merged_when_the_sandbox_stops(self):
        self.make("leaves", "echo 0 > kept")
        exchanged = 0
        for n in range(200):
            self.client.write_file("leaves", "kept", f"{n}\n".encode())
            # Processes of a command or of the file API may live slightly longer: then it is a copy.
            exchanged += self.client.snapshot("leaves", name=f"s{n}")["way"] == "restack"
            if exchanged == 30:
                break
        harness.wait_until(lambda: self.depth("leaves") <= 16, what="it is flat")
        self.assertEqual(self.client.read_file("leaves", "kept"), f"{n}\n".encode())
        self.client.restore("leaves", "s7")
        self.assertEqual(self.run_in("leaves", "cat kept"), "7\n")

    def depth(self, name, at_rest=True):
        if at_rest:
            self.client.stop(name)
        with contextlib.closing(sqlite3.connect(f"file:{self.daemon.store / 'state.db'}?mode=ro", uri=True)) as db:
            row = db.execute("WITH RECURSIVE c (id, n) AS (SELECT layer, 0 FROM workspaces WHERE name = ? UNION ALL "
                             "SELECT parent, n + 1 FROM layers JOIN c USING (id) WHERE parent IS NOT NULL) SELECT max(n) FROM c", (name,))
            return row.fetchone()[0]

    def test_a_key_takes_one_snapshot(self):
        self.make("keyed", "echo x > kept")
        one = self.client.snapshot("keyed", name="k", key="key-1")
        self.assertEqual(self.client.snapshot("keyed", name="k", key="key-1")["id"], one["id"])
        forks = self.client.fork("keyed", count=2, key="key-2")
        self.assertEqual([f["id"] for f in self.client.fork("keyed", count=2, key="key-2")], [f["id"] for f in forks])

    def test_impossible_requests_are_refused_and_change_nothing(self):
        self.make("strict")
        for call, code in ((lambda: self.client.restore("strict", "none"), "not_found"), (lambda: self.client.promote("strict"), "invalid_argument"),
                           (lambda: self.client.fork("strict", names=["strict"]), "already_exists"),
                           (lambda: self.client.fork("strict", names=["new-a", "new-a"]), "already_exists"),
                           (lambda: self.client.fork("strict", count=101), "invalid_argument"), (lambda: self.client.snapshot("strict", name="sn_1"), "invalid_argument"),
                           (lambda: self.client.snapshot("strict", name="A b"), "invalid_argument"), (lambda: self.client.drop_snapshot("strict", "sn_9999"), "not_found")):
            with self.assertRaises(raw_api.ApiError) as refused:
                call()
            self.assertEqual(refused.exception.code, code, str(refused.exception))
        self.assertEqual([w["name"] for w in self.client.workspaces() if w["name"].startswith("new-a")], [])
        self.assertEqual(self.client.snapshots("strict"), [])


if __name__ == "__main__":
    unittest.main()
