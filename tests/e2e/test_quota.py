"""The disk limit of a workspace: enforced by the kernel if the file system can, else by the daemon's watcher."""

import contextlib
import os
import shutil
import sqlite3
import time
import unittest

import harness
import raw_api

LIMIT = 24 << 20
MIB = 1 << 20


class QuotaTest(unittest.TestCase):
    file_system = None  # of a separate image; None: that of the tests
    mount_options = "loop"
    settings = {}

    def setUp(self):
        self.daemon = harness.Daemon(self.settings)
        self.addCleanup(lambda: harness.run("rm", "-rf", self.daemon.directory))
        if self.file_system:
            self.mount()
        self.addCleanup(self.daemon.close)
        upstream = self.daemon.directory / "upstream"
        harness.make_repository(upstream / "acme" / "shop")
        self.git_server = harness.GitServer(upstream)
        self.addCleanup(self.git_server.stop)
        self.daemon.start()
        self.client = self.daemon.client
        self.url = self.git_server.url("acme/shop")
        self.client.create(repo_url=self.url, name="work", limits={"disk_bytes": LIMIT, "disk_files": 2000})

    def mount(self):
        program = self.file_system[0]
        if not shutil.which(program):
            self.skipTest(f"{program} is not installed")
        harness.mount_image(self.daemon, self.file_system, self.mount_options, 600 * MIB)
        self.addCleanup(lambda: harness.run("umount", self.daemon.store))

    def kind(self):
        return next(c["text"] for c in self.client.info()["checks"] if c["name"] == "disk quota")

    def used(self):
        return self.client.workspace("work").get("disk_bytes", 0)

    def check_upload_refused(self):
        with self.assertRaises(raw_api.ApiError) as refused:
            self.client.write_file("work", "huge", bytes(LIMIT + MIB))
        self.assertEqual(refused.exception.code, "resource_exhausted")
        self.assertNotIn("huge", [e["name"] for e in self.client.list_files("work")["entries"]])

    def check_neighbour(self):
        """Other workspaces are unaffected."""
        self.client.create(repo_url=self.url, name="neighbour", limits={"disk_bytes": 0, "disk_files": 0})
        self.assertEqual(self.client.exec("neighbour", f"head -c {2 * LIMIT} /dev/zero >big").exit_code, 0)
        self.client.delete("neighbour", purge=True)


class Watched(QuotaTest):
    settings = {"store.disk_quota": "watched"}

    def test_a_command_over_the_limit_is_ended_with_a_reason_and_files_can_be_removed(self):
        self.assertEqual(self.kind(), "watched")
        self.assertEqual(self.client.workspace("work")["disk_quota"], "watched")
        script = f"i=0; while :; do i=$((i+1)); head -c {MIB} /dev/urandom >big$i; sleep 0.05; done"
        ended = self.client.wait(self.client.start_exec("work", ["sh", "-c", script])["id"], 60_000)
        self.assertEqual(ended["category"], "disk_quota")
        self.assertIn("over its disk limit", ended["error"])
        self.assertIn("moorage set work --disk", ended["error"])
        self.check_upload_refused()
        # It may list and remove files; using more space ends it again.
        self.assertEqual(self.client.exec("work", "ls | wc -l; sleep 3; echo done").exit_code, 0)
        again = self.client.wait(self.client.start_exec("work", ["sh", "-c", script.replace("big$i", "more$i")])["id"], 60_000)
        self.assertEqual(again["category"], "disk_quota")
        self.assertEqual(self.client.exec("work", "rm -f big* more*; sleep 2; echo fine >fine").exit_code, 0)
        self.client.write_file("work", "small", b"x")
        self.check_neighbour()
        self.assertIn("workspace.disk_quota", [e["kind"] for e in self.client.events()])

    def taken(self):
        """Disk use of the layers, counted independently."""
        out = harness.run("du", "-s", "--block-size=1", self.daemon.store / "layers").stdout
        return int(out.split()[0])

    def keep(self, number, size):
        """A file, and a snapshot of the idle workspace."""
        self.assertEqual(self.client.exec("work", f"head -c {size} /dev/urandom >kept{number}").exit_code, 0)
        self.client.stop("work")
        return self.client.snapshot("work")

    def test_files_kept_by_snapshots_count_for_the_workspace(self):
        for number in range(2):
            self.keep(number, 10 * MIB)
        self.assertGreater(self.used(), 20 * MIB)
        sizes = [s["disk_bytes"] for s in self.client.snapshots("work")]
        for size in sizes:
            self.assertGreater(size, 10 * MIB)
            self.assertLess(size, 11 * MIB)
        self.assertRegex(self.daemon.cli("snapshots", "work").stdout.decode(), r"SIZE[^\n]*\n[^\n]* 10M ")
        self.assertRegex(self.daemon.cli("ls").stdout.decode(), r"(?m)^work .* 2[01]M ")
        usage = self.client.disk_usage()
        self.assertGreater(usage["workspaces"][0]["snapshot_bytes"], 20 * MIB)
        self.assertLess(usage["store"]["other_bytes"], MIB)
        ended = self.client.wait(self.client.start_exec("work", ["sh", "-c", f"head -c {10 * MIB} /dev/urandom >more; sleep 20"])["id"])
        self.assertEqual(ended["category"], "disk_quota")
        self.assertIn("of 24M", ended["error"])

    def test_layers_shared_by_forks_count_once_and_pass_to_the_next(self):
        self.keep(1, 10 * MIB)
        self.client.fork("work", names=["forked"])
        self.client.exec("forked", "true")
        self.client.stop("forked")
        self.assertLess(self.client.workspace("forked").get("disk_bytes", 0), 2 * MIB)
        self.client.delete("work", purge=True)
        self.assertGreater(self.client.workspace("forked")["disk_bytes"], 10 * MIB)

    def test_later_snapshots_of_a_restored_workspace_do_not_count_as_uploads(self):
        first = self.keep(1, MIB)
        self.keep(2, 8 * MIB)
        self.client.restore("work", first["id"])
        usage = self.client.disk_usage()
        self.assertLess(usage["store"]["other_bytes"], MIB)
        self.assertGreater(usage["store"]["snapshots_bytes"], 9 * MIB)

    def test_short_commands_get_the_limit_as_reason_and_exceed_it_only_slightly(self):
        told = 0
        for number in range(6):
            try:
                record = self.client.start_exec("work", ["sh", "-c", f"head -c {36 * MIB} /dev/zero >b{number}"])
            except raw_api.ApiError as refused:
                self.assertEqual(refused.code, "resource_exhausted")
                self.assertIn("--free-space", refused.hint)
                continue
            ended = self.client.wait(record["id"])
            self.assertEqual(ended.get("category"), "disk_quota", ended)
            self.assertIn("over its disk limit", ended["error"])
            told += 1
        self.assertGreater(told, 0)
        self.assertLess(self.taken(), LIMIT + (64 << 20))
        out = self.client.exec("work", "ls b* | tail -n +2 | xargs -r rm", free_space=True)
        self.assertEqual(out.exit_code, 0, out.stderr)
        # A command that wrote nothing does not get the message.
        for _ in range(3):
            innocent = self.client.wait(self.client.start_exec("work", ["sh", "-c", "ls >/dev/null; sleep 0.3"])["id"])
            self.assertEqual((innocent["exit_code"], innocent.get("category")), (0, None))

    def test_allocated_but_unwritten_space_counts_at_once(self):
        """fallocate writes no page. Only its caller gets the message, not a concurrent sleeper or the next command."""
        sleeper = self.client.start_exec("work", ["sleep", "600"])
        writer = self.client.start_exec("work", ["sh", "-c", f"head -c {36 * MIB} /dev/zero >big; exec sleep 600"])
        self.assertEqual(self.client.wait(writer["id"])["category"], "disk_quota")  # its walk has seen the sleeper
        self.client.remove_file("work", "big")
        runs_on = self.client.start_exec("work", ["sh", "-c", f"fallocate -l {200 * MIB} big; exec sleep 600"])
        self.assertEqual(self.client.wait(runs_on["id"])["category"], "disk_quota")
        self.client.remove_file("work", "big")
        harness.wait_until(lambda: self.used() < LIMIT, what="the removal to be seen")
        ends = self.client.wait(self.client.start_exec("work", ["fallocate", "-l", str(200 * MIB), "big"])["id"])
        self.assertEqual(ends.get("category"), "disk_quota", ends)
        self.assertIn("over its disk limit", ends["error"])
        innocent = self.client.wait(self.client.start_exec("work", ["sh", "-c", "ls; sleep 2"], free_space=True)["id"])
        self.assertEqual((innocent["exit_code"], innocent.get("category")), (0, None))
        self.assertEqual(self.client.get_exec(sleeper["id"])["state"], "running")
        self.client.cancel(sleeper["id"])

    def test_a_command_after_a_greedy_one_is_not_ended(self):
        """Even with the space taken between the check that ends it and its death."""
        script = f"for i in $(seq 100); do fallocate -l {20 * MIB} f$i; done; exec sleep 600"
        for name in [f"round-{number}" for number in range(5)]:
            self.client.create(repo_url=self.url, name=name, limits={"disk_bytes": LIMIT, "disk_files": 2000})
            greedy = self.client.start_exec(name, ["sh", "-c", script])
            self.assertEqual(self.client.wait(greedy["id"]).get("category"), "disk_quota")
            innocent = self.client.wait(self.client.start_exec(name, ["sh", "-c", "ls >/dev/null; sleep 0.3"], free_space=True)["id"])
            self.assertEqual((innocent["exit_code"], innocent.get("category")), (0, None))
            self.client.delete(name, purge=True)

    def test_a_fast_writer_exceeds_the_limit_by_at_most_64_mib(self):
        """Also one that begins right after a check, and in a new sandbox."""
        limit = 128 << 20
        self.daemon.cli("set", "work", "--disk", "128M")
        for _ in range(4):
            record = self.client.start_exec("work", ["dd", "if=/dev/zero", "of=big", "bs=1M", "count=8000"])
            ended = self.client.wait(record["id"])
            self.assertEqual(ended["category"], "disk_quota")
            self.assertLess(self.taken(), limit + (64 << 20))
            self.assertEqual(self.client.exec("work", "rm big; sync", free_space=True).exit_code, 0)

    def test_info_names_the_kind_of_limit_and_how_to_get_a_better_one(self):
        said = " ".join(self.daemon.cli("info").stdout.decode().split())
        self.assertRegex(said, r"disk quota: watched hint: .*prjquota")

    def test_files_count_too(self):
        script = "i=0; while :; do i=$((i+1)); : >f$i; [ $((i % 100)) = 0 ] && sleep 0.05; done"
        ended = self.client.wait(self.client.start_exec("work", ["bash", "-c", script])["id"], 60_000)
        self.assertEqual(ended["category"], "disk_quota")
        self.assertIn("of 2000 files", ended["error"])

    def test_a_background_writer_ends_with_the_sandbox(self):
        self.client.exec("work", f"(i=0; while :; do i=$((i+1)); head -c {MIB} /dev/urandom >big$i; sleep 0.05; done)"
                                 " >/dev/null 2>&1 &")
        harness.wait_until(lambda: "sandbox" not in self.client.workspace("work"), seconds=60, what="the stop")

    def test_uploads_to_an_idle_workspace_count_until_it_is_measured(self):
        self.client.stop("work")
        for number in range(2):
            self.client.write_file("work", f"part-{number}", bytes(9 * MIB))
            time.sleep(2.5)
        with self.assertRaises(raw_api.ApiError) as refused:
            self.client.write_file("work", "part-2", bytes(9 * MIB))
        self.assertEqual(refused.exception.code, "resource_exhausted")
        self.assertNotIn("sandbox", self.client.workspace("work"))

    def test_the_limit_can_be_raised(self):
        self.daemon.cli("set", "work", "--disk", "200M", "--disk-files", "0")
        ended = self.client.exec("work", f"head -c {2 * LIMIT} /dev/zero >big; sleep 3; echo done")
        self.assertEqual(ended.stdout, b"done\n")
        self.client.stop("work")
        harness.wait_until(lambda: self.used() > LIMIT, what="the measure")
        self.assertIn("of 200M", self.daemon.cli("show", "work").stdout.decode())


class WatchedDirectories(QuotaTest):
    """On a separate file system, so its directories need not be removed one by one."""

    settings = {"store.disk_quota": "watched"}
    file_system = ["mkfs.ext4", "-q", "-F", "-b", "2048", "-N", "200000"]

    def test_a_wide_tree_hides_nothing(self):
        """Writes below the last of so many directories that their names exceed the memory are found."""
        self.daemon.cli("set", "work", "--disk", "300M", "--disk-files", "0")
        script = f"""
import os
os.mkdir("wide")
os.chdir("wide")
for number in range(100_000):
    os.mkdir(f"{{number:0250}}")
last = list(os.scandir())[-1].name
with open(last + "/big", "wb") as big:
    for _ in range(200):
        big.write(bytes({MIB}))
"""
        ended = self.client.wait(self.client.start_exec("work", ["python3", "-c", script])["id"], 300_000)
        self.assertEqual(ended.get("category"), "disk_quota", ended)

    def test_moving_directories_hide_nothing(self):
        """A walk that they keep from ending is repeated with the commands frozen."""
        self.daemon.cli("set", "work", "--disk", "128M", "--disk-files", "0")
        script = """
import os
for number in range(20):
    for entry in range(50):
        os.makedirs(f"one/{number}/{entry}")
os.mkdir("two")
print("moves", flush=True)
while True:
    for here, there in (("one", "two"), ("two", "one")):
        for number in range(20):
            os.rename(f"{here}/{number}", f"{there}/{number}")
"""
        self.client.start_exec("work", ["python3", "-c", script])
        harness.wait_until(lambda: self.client.exec("work", "test -d two").exit_code == 0, seconds=60, what="the moves")
        ended = self.client.wait(self.client.start_exec("work", ["sh", "-c", "head -c 400M /dev/zero >big"])["id"])
        self.assertEqual(ended.get("category"), "disk_quota", ended)
        self.assertIn("over its disk limit", ended["error"])


class Btrfs(QuotaTest):
    file_system = ["mkfs.btrfs", "-q"]

    def test_the_kernel_refuses_writes_and_everything_else_works(self):
        self.assertEqual(self.kind(), "btrfs qgroup")
        self.assertEqual(self.client.doctor()["findings"], [])  # it counts no free inodes
        ended = self.client.exec("work", f"head -c {2 * LIMIT} /dev/urandom >big")
        self.assertNotEqual(ended.exit_code, 0)
        self.assertRegex(ended.stderr, b"quota exceeded|No space left")
        self.assertEqual(ended.exec["category"], "disk_quota")
        self.check_neighbour()
        self.assertEqual(self.client.exec("work", "rm big; sync; echo fine >fine; cat fine").stdout, b"fine\n")
        self.client.stop("work")
        self.assertEqual(self.client.exec("work", "cat fine; git status --porcelain").stdout, b"fine\n?? fine\n")
        self.daemon.cli("set", "work", "--disk", "200M")
        self.assertEqual(self.client.exec("work", f"head -c {2 * LIMIT} /dev/urandom >big && sync").exit_code, 0)

    def test_the_kernel_counts_a_layer_that_passes_to_a_running_workspace(self):
        """A fork shares its origin's snapshot, and owns it after the origin is purged."""
        self.client.exec("work", f"head -c {16 * MIB} /dev/urandom >kept")
        self.client.stop("work")
        self.client.snapshot("work")
        self.client.fork("work", names=["forked"])
        self.assertEqual(self.client.exec("forked", f"head -c {12 * MIB} /dev/urandom >own && sync && rm own && sync").exit_code, 0)
        self.client.delete("work", purge=True)
        with contextlib.closing(sqlite3.connect(f"file:{self.daemon.store}/state.db?mode=ro", uri=True)) as database:
            layer = database.execute("SELECT layer FROM workspaces WHERE name = 'forked'").fetchone()[0]

        def limit():
            shown = harness.run("btrfs", "qgroup", "show", "-r", "--raw", "-f", self.daemon.store / "layers" / f"ly_{layer}")
            line = next(line for line in shown.stdout.decode().splitlines() if line.startswith("0/"))
            return int(line.split()[3])

        keeper = self.client.start_exec("forked", ["sh", "-c", "while :; do echo line >>log; sleep 0.1; done"])
        harness.wait_until(lambda: limit() < 9 * MIB, seconds=60, what="the new limit")
        ended = self.client.exec("forked", f"head -c {12 * MIB} /dev/urandom >own && sync")
        self.assertEqual(ended.exec["category"], "disk_quota")
        self.client.cancel(keeper["id"])

    def test_the_number_of_files_is_limited_by_the_watcher(self):
        script = "i=0; while :; do i=$((i+1)); : >f$i; [ $((i % 100)) = 0 ] && sleep 0.05; done"
        ended = self.client.wait(self.client.start_exec("work", ["bash", "-c", script])["id"], 90_000)
        self.assertEqual(ended["category"], "disk_quota")

    def test_a_layer_is_a_subvolume_and_is_removed_at_once(self):
        layers = self.daemon.store / "layers"
        layer = next(layers.iterdir())
        self.assertEqual(layer.stat().st_ino, 256)
        self.client.exec("work", "mkdir -p a/b/c && echo x >a/b/c/d")
        self.client.delete("work", purge=True)
        self.assertEqual(list(layers.iterdir()), [])
        self.assertNotIn("ly_", harness.run("btrfs", "subvolume", "list", self.daemon.store).stdout.decode())


class Project(QuotaTest):
    """On ext4. Skipped on a kernel without project quotas; Debian 12's has them (./check --vm)."""

    file_system = ["mkfs.ext4", "-q", "-F", "-O", "quota,project", "-E", "quotatype=prjquota"]
    mount_options = "loop,prjquota"  # otherwise ext4 counts but refuses nothing

    def mount(self):
        try:
            super().mount()
        except AssertionError as error:  # this kernel cannot mount it
            if "MOORAGE_TEST_VM" in os.environ:
                raise
            self.skipTest(f"no project quotas here: {error}")

    def test_the_kernel_refuses_bytes_and_files(self):
        self.assertEqual(self.kind(), "project quota")
        ended = self.client.exec("work", f"head -c {2 * LIMIT} /dev/urandom >big")
        self.assertEqual(ended.exec["category"], "disk_quota")
        self.client.exec("work", "rm big")
        ended = self.client.exec("work", "for i in $(seq 3000); do : >f$i || exit 1; done")
        self.assertEqual(ended.exec["category"], "disk_quota")
        self.check_neighbour()


class ProjectXfs(Project):
    """On XFS."""

    file_system = ["mkfs.xfs", "-q"]


if __name__ == "__main__":
    unittest.main()
