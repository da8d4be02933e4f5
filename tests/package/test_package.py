"""The Debian packages that scripts/package.sh builds, in a clean Debian: installed, used, upgraded and downgraded while
a command runs, removed, purged, installed again. Environment: MOORAGE_BUILD, the build directory of the tests, which has
the programs of a later release and those to compare with."""

import gzip
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import harness  # noqa: E402
from debian_root import DebianRoot, run  # noqa: E402

BUILD = pathlib.Path(os.environ.get("MOORAGE_BUILD", harness.ROOT / "build/dev"))
RELEASE = harness.ROOT / "build/release"
BUSY = 'n=0; until [ -e stop ]; do echo "line $n"; n=$((n+1)); done; echo "$n" > count; exit 7'


def make_next(package, directory):
    """The same package with the programs of a later release."""
    tree = directory / "next"
    run("dpkg-deb", "-R", package, tree)
    control = tree / "DEBIAN/control"
    control.write_text(control.read_text().replace("\nVersion: ", "\nVersion: 1000:"))
    for program, place in (("mooraged", "usr/bin"), ("moorage-warden", "usr/libexec/moorage")):
        run("strip", "-o", tree / place / program, BUILD / "releases/next" / program)
    run("dpkg-deb", "--root-owner-group", "-Znone", "-b", tree, directory / "next.deb")
    return directory / "next.deb"


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = pathlib.Path(tempfile.mkdtemp(prefix="moorage-debs-", dir=harness.BASE))
        cls.addClassCleanup(shutil.rmtree, cls.work)
        shutil.rmtree(RELEASE / "deb", ignore_errors=True)
        run(harness.ROOT / "scripts/package.sh")
        cls.debs = sorted((RELEASE / "deb").glob("*.deb"))
        cls.deb, cls.python_deb = cls.debs
        cls.next_deb = make_next(cls.deb, cls.work)

    def setUp(self):
        self.daemon = None
        self.prefix = None
        self.enter(DebianRoot(harness.BASE))

    def enter(self, root):
        self.root = root
        self.addCleanup(self.root.close)
        self.addCleanup(self.end_daemon)
        for deb in (self.deb, self.python_deb, self.next_deb):
            shutil.copy(deb, self.root.path / "root")

    def install(self, *debs, **options):
        return self.root.run("apt-get", "install", "-y", "-q", "--allow-downgrades", *(f"/root/{d.name}" for d in debs), **options)

    def start_daemon(self):
        self.daemon = self.root.start("mooraged", log=self.work / "daemon.log")
        harness.wait_until(lambda: self.root.run("moorage", "info", check=False).returncode == 0, what="the daemon answers")
        info = self.root.shell("moorage info --json | python3 -c 'import json, sys; print(json.load(sys.stdin)[\"store_id\"])'")
        self.prefix = f"moorage-{info.strip()}-"

    def stop_daemon(self):
        self.root.shell("kill $(cat /var/lib/moorage/state.db.lock)")
        self.assertEqual(self.daemon.wait(30), 0)
        self.daemon = None

    def end_daemon(self):
        if self.daemon:
            self.daemon.kill()  # nsenter and env have exec'ed it
            self.daemon.wait()
        if self.prefix:
            harness.end_sandboxes(self.prefix)

    def sandboxes(self):
        return [top for top, _, _ in os.walk("/sys/fs/cgroup") if self.prefix in os.path.basename(top)]

    def exec_record(self, exec_id, field):
        return self.root.shell(f"moorage ps -a --json | python3 -c 'import json, sys; "
                               f"print([e for e in json.load(sys.stdin) if e[\"id\"] == \"{exec_id}\"][0][\"{field}\"])'").strip()

    def begin(self):
        self.root.shell("mkdir -p /root/shop; cd /root/shop; git init -q; echo hello > a; git add a; "
                        "git -c user.name=t -c user.email=t@t commit -qm first; moorage create --from . --name auth")
        return self.root.run("moorage", "exec", "auth", "--detach", "--", "sh", "-c", BUSY).stdout.strip()

    def goes_on(self, command):
        size = int(self.exec_record(command, "output_bytes"))
        harness.wait_until(lambda: int(self.exec_record(command, "output_bytes")) > size, what="the command goes on")

    def finish(self, command):
        self.root.shell("moorage exec auth -- touch stop")
        self.assertEqual(self.root.run("moorage", "wait", command, check=False).returncode, 7)
        count = int(self.root.shell("moorage cat auth:count"))
        expected = hashlib.sha256(b"".join(b"line %d\n" % n for n in range(count))).hexdigest()
        self.assertEqual(self.root.shell(f"moorage logs {command} | sha256sum").split()[0], expected)
        self.root.shell("moorage exec auth -- rm stop count")

    def test_lintian_finds_nothing(self):
        if not shutil.which("lintian"):
            if os.environ.get("CI") == "true":
                self.fail("lintian is not installed")
            self.skipTest("lintian is not installed")
        for deb in self.debs:
            said = subprocess.run(["lintian", "--allow-root", "--fail-on", "error,warning", deb], capture_output=True, text=True)
            self.assertEqual((said.returncode, said.stdout), (0, ""), said.stderr)

    def test_every_document_that_it_names_is_in_it(self):
        place = self.work / "unpacked"
        run("dpkg-deb", "-x", self.deb, place)
        documents = place / "usr/share/doc/moorage"
        pages = sorted(documents.rglob("*.md"))
        self.assertGreater(len(pages), 15)
        for page in pages:
            for link in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
                if "://" not in link:
                    self.assertTrue((page.parent / link).exists(), f"{page.relative_to(documents)} names {link}")
        named = re.findall(r"/usr/share/doc/[\w./-]+\w", gzip.decompress((place / "usr/share/man/man1/moorage.1.gz").read_bytes()).decode())
        self.assertEqual(named, ["/usr/share/doc/moorage/docs/openapi.yaml"])
        self.assertTrue((place / named[0][1:]).exists())
        alias = gzip.decompress((place / "usr/share/man/man1/moorage-delete.1.gz").read_bytes()).decode()
        self.assertEqual(alias, ".so man1/moorage-rm.1\n")

    def test_to_build_it_builds_no_test_and_compiles_sources_together(self):
        inputs = run("ninja", "-C", RELEASE, "-t", "inputs", "deb").splitlines()
        self.assertIn("bin/mooraged", inputs)
        self.assertEqual([file for file in inputs if "tests/" in file], [])
        objects = [file for file in inputs if file.endswith(".o")]
        self.assertLess(len(objects), 180, "623 when each source compiled alone, which takes twice as long")

    def test_its_layers_define_what_they_define_when_each_source_compiles_alone(self):
        def defined(archive):
            found = (line.split() for line in run("nm", "--defined-only", "--extern-only", archive).splitlines())
            return {tuple(words[1:]) for words in found if len(words) == 3 and words[1] in "TDB"}
        archives = sorted(BUILD.glob("*/lib*.a"))
        self.assertGreater(len(archives), 11)
        for archive in archives:
            self.assertEqual(defined(RELEASE / archive.relative_to(BUILD)), defined(archive), archive.name)

    def test_its_programs_load_no_library_that_they_do_not_use(self):
        def needed(program):
            return set(re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-d", program)))
        place = self.work / "programs"
        run("dpkg-deb", "-x", self.deb, place)
        programs = [file for file in (*(place / "usr/bin").iterdir(), *(place / "usr/libexec/moorage").iterdir()) if file.is_file()]
        self.assertEqual(len(programs), 7)
        for program in programs:
            self.assertLessEqual(needed(program), needed(BUILD / "bin" / program.name), program.name)

    def test_the_packages_files_work_without_a_daemon(self):
        said = self.install(self.deb, self.python_deb).stdout
        self.assertIn("usermod -aG moorage USER", said)
        self.assertTrue(self.root.shell("getent group moorage"))
        self.assertTrue(self.root.shell("moorage --version").startswith("moorage 0.1.0"))
        self.assertIn("store.directory", self.root.shell("mooraged --show-config"))
        self.assertNotIn("moorage.yaml", self.root.shell("mooraged --show-config"), "the conffile sets nothing")
        self.assertRegex(self.root.shell("mooraged --show-config"), r"libexec_directory +/usr/libexec/moorage")
        for page, text in (("moorage", "moorage-exec(1)"), ("moorage-exec", "npm test"), ("moorage-repo-add", "Cache a repository"), ("mooraged", "--show-config"), ("moorage.yaml", "store.reserve_bytes")):
            shown = self.root.run("man", "--warnings", "-P", "cat", page)
            self.assertEqual(shown.stderr, "")
            self.assertIn(text, shown.stdout)
        self.assertEqual(self.root.shell("source /usr/share/bash-completion/completions/moorage; COMP_LINE='moorage und'; COMP_POINT=11; "
                                         "_moorage; echo $COMPREPLY"), "undelete\n")
        self.assertIn("undelete\t", self.root.run("fish", "-c", "complete -C 'moorage und'").stdout)
        self.root.run("zsh", "-n", "/usr/share/zsh/vendor-completions/_moorage")
        self.assertIn("cannot reach the daemon", self.root.run("moorage", "ls", check=False).stderr)
        self.root.run("python3", "-c", "import moorage; print(moorage.Client(), moorage.AsyncClient())")
        self.root.run("test", "-x", "/usr/share/doc/python3-moorage/examples/agent_loop.py")
        self.root.run("test", "-f", "/usr/lib/python3/dist-packages/moorage/py.typed")
        self.root.run("dpkg", "--verify", "moorage", "python3-moorage")
        again = self.root.run("dpkg", "-i", f"/root/{self.deb.name}")
        self.assertNotIn("usermod", again.stdout)
        self.root.run("apt-get", "purge", "-y", "-q", "moorage", "python3-moorage")
        left = self.root.shell("find / -xdev -iname '*moorage*' -not -path '/root/*' -not -path '/var/log/*' -not -path '/proc/*' "
                               "-not -path '/var/cache/*' -not -path '/sys/*' -not -path /var/lib/moorage").split()
        self.assertEqual(left, [])

    def test_commands_survive_upgrade_and_downgrade_and_work_survives_the_package(self):
        self.enter(DebianRoot(harness.BASE, copy=True))
        self.install(self.deb)
        self.start_daemon()
        # Without a service manager the daemon creates the socket's directory itself.
        self.root.shell("useradd -m member; useradd -m stranger; usermod -aG moorage member; su - member -c 'moorage info'")
        self.assertIn("join the group moorage", self.root.run("su", "-", "stranger", "-c", "moorage info", check=False).stderr)
        command = self.begin()
        for deb, version in ((self.next_deb, "1000:0.1.0"), (self.deb, "0.1.0")):
            said = self.install(deb).stdout
            self.assertIn(f"({version})", said)
            self.assertIn("end it with SIGTERM and start it again", said)
            self.goes_on(command)  # under the old daemon
            self.stop_daemon()
            self.start_daemon()
            self.goes_on(command)
        self.finish(command)

        command = self.root.run("moorage", "exec", "auth", "--detach", "--", "sh", "-c", "echo kept > kept; sleep 1000").stdout.strip()
        harness.wait_until(lambda: "kept" in self.root.shell("moorage files auth"), what="the file")
        self.root.run("apt-get", "remove", "-y", "-q", "moorage")
        self.assertEqual(self.daemon.wait(30), 0)
        self.daemon = None
        self.assertEqual(self.sandboxes(), [], "removed with the package")
        self.assertTrue((self.root.path / "etc/moorage/moorage.yaml").exists())
        said = self.root.run("apt-get", "purge", "-y", "-q", "moorage").stdout
        self.assertIn("the workspaces are kept in /var/lib/moorage", said)
        self.assertFalse((self.root.path / "etc/moorage").exists())
        self.install(self.deb)
        self.start_daemon()
        self.assertEqual(self.root.shell("moorage cat auth:kept"), "kept\n")
        self.assertIn("signal", self.root.shell("moorage ps -a"))
        self.assertEqual(self.root.shell("moorage exec auth -- cat a kept"), "hello\nkept\n")

    def test_a_changed_conffile_stays(self):
        self.install(self.deb)
        file = self.root.path / "etc/moorage/moorage.yaml"
        file.write_text(file.read_text().replace("#log:\n#  level: info", "log:\n  level: debug"))
        self.install(self.next_deb)
        self.assertIn("/etc/moorage/moorage.yaml:", next(l for l in self.root.shell("mooraged --show-config").splitlines() if "log.level" in l))
        self.root.run("apt-get", "remove", "-y", "-q", "moorage")
        self.assertTrue(file.exists())

    def test_the_package_is_refused_beside_a_quickstart_with_instructions(self):
        local = self.root.path / "usr/local/bin/mooraged"
        local.write_text("")
        refused = self.install(self.deb, check=False)
        self.assertNotEqual(refused.returncode, 0)
        said = refused.stdout + refused.stderr
        for part in ("installation by ./quickstart: /usr/local/bin/mooraged", "rm -rf /usr/local/bin/mooraged /usr/local/libexec/moorage"):
            self.assertIn(part, said)
        local.unlink()
        self.install(self.deb)


if __name__ == "__main__":
    unittest.main()
