"""A day's work in a workspace, in its forks, and before and after new mounts of its sandbox: git, a C build, npm.

The real tools are used, as each relies on different file system features (renamed directories, hard links, locks, unlinked
files, times). Work in one fork leaves the other forks, the parent and the mirror unchanged.
"""

import hashlib
import io
import json
import os
import pathlib
import tarfile
import time
import unittest

import harness
import trees

MODULES = 24
SOURCES = {
    f"src/part{n % 3}/module{n}.c": f"int module{n}(int x) {{ return x + {n}; }}\n" for n in range(MODULES)
} | {
    "src/app.c": "#include <stdio.h>\n" + "".join(f"int module{n}(int);\n" for n in range(MODULES)) +
                 "int main(void) { int x = 0;\n" + "".join(f"x = module{n}(x);\n" for n in range(MODULES)) + 'printf("%d\\n", x); return 0; }\n',
    "Makefile": "SRC := $(shell find src* lib* -name '*.c' 2>/dev/null | sort)\nOBJ := $(SRC:%.c=build/%.o)\n"
                "build/app: $(OBJ)\n\tcc -o $@ $^\nbuild/%.o: %.c\n\t@mkdir -p $(@D)\n\tcc -O1 -MMD -c -o $@ $<\n-include $(OBJ:.o=.d)\nclean:\n\trm -rf build\n",
    ".gitignore": "build/\nnode_modules/\npackage-lock.json\n",
}
TOTAL = sum(range(MODULES))


def package(name, version, files, dependencies=None, scripts=None):
    """An npm package like those of `npm pack`."""
    out = io.BytesIO()
    about = {"name": name, "version": version, "main": "index.js", "dependencies": dependencies or {}, "scripts": scripts or {}}
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for path, content in ({"package.json": json.dumps(about)} | files).items():
            info = tarfile.TarInfo(f"package/{path}")
            info.size, info.mode = len(content), 0o644
            tar.addfile(info, io.BytesIO(content.encode()))
    return out.getvalue()


PACKAGES = {
    # A script that runs after the install, and a dependency from a tarball.
    "vendor/right-1.0.0.tgz": package("right", "1.0.0", {"index.js": "module.exports = x => x + 'r'\n"} | {f"lib/f{n}.js": f"// {n}\n" for n in range(200)}),
    "vendor/left-2.1.0.tgz": package("left", "2.1.0", {"index.js": "module.exports = x => require('right')(x) + require('./made')\n",
                                                       "make.js": "require('fs').writeFileSync('made.js', 'module.exports = \"made\"')\n"},
                                     {"right": "^1.0.0"}, {"postinstall": "node make.js"}),
    "package.json": json.dumps({"name": "shop", "version": "1.0.0", "private": True,
                                "dependencies": {"left": "file:vendor/left-2.1.0.tgz", "right": "file:vendor/right-1.0.0.tgz"}}, indent=1) + "\n",
}

# One round. $1: its number, different in every call; its results are clean for git.
ROUND = r"""
set -eu
at=$1
trap 'echo "failed in: $step" >&2' EXIT
step="git mv of directories"
old=$(ls -d src* | head -1)
git mv "$old" "src-$at"
git mv "src-$at/part0" "src-$at/inner-$at"
mkdir "lib-$at"
git mv "src-$at/part1" "lib-$at/"
git mv "lib-$at/part1" "src-$at/part1"
git mv "src-$at/inner-$at" "src-$at/part0"
git commit -qam "moved $at"
test -z "$(git status --porcelain)"

step="a build"
make -s -j4
test "$(build/app)" = TOTAL
make -q
echo "int late$at(void) { return $at; }" >> "src-$at/part2/module2.c"
! make -q
make -s -j4
test "$(build/app)" = TOTAL

step="stash"
git stash -q
test -z "$(git status --porcelain)"
! grep -q "late$at" "src-$at/part2/module2.c"
git stash pop -q
grep -q "late$at" "src-$at/part2/module2.c"
git commit -qam "late $at"

step="rebase"
main=$(git branch --show-current)
git checkout -q -b "topic-$at" HEAD~1
for n in 1 2 3; do echo "$at $n" > "topic-$at-$n"; git add .; git commit -qm "topic $at $n"; done
git rebase -q "$main"
test "$(git log --oneline "$main..HEAD" | wc -l)" = 3
git rebase -q --onto HEAD~3 HEAD~2
git checkout -q "$main"
git merge -q --no-ff -m "merge $at" "topic-$at"
git branch -q -d "topic-$at"
test -e "topic-$at-3" && test ! -e "topic-$at-1"

step="gc"
git reflog expire --expire=now --all
git gc -q --prune=now
git fsck --strict
test -z "$(git status --porcelain)"
git log --oneline | wc -l

step="the end"
trap - EXIT
""".replace("TOTAL", str(TOTAL))

NPM = r"""
set -eu
rm -rf node_modules
npm install --offline --no-audit --no-fund --loglevel=error
test "$(node -e 'console.log(require("left")("x"))')" = xrmade
test "$(ls node_modules/right/lib | wc -l)" = 200
npm ls --offline >/dev/null
"""


class Work(harness.TestCase):
    files = SOURCES | PACKAGES

    def make(self, name):
        self.client.create(repo_url=self.url, name=name)

    def run_in(self, name, *argv):
        out = self.client.exec(name, list(argv))
        self.assertEqual(out.exit_code, 0, f"{name} {argv[3:]}: {out.stderr.decode(errors='replace')[-3000:]}{out.stdout.decode(errors='replace')[-3000:]}")
        return out.stdout.decode()

    def round(self, name, number):
        self.run_in(name, "sh", "-c", ROUND, "round", str(number))

    def npm(self, name):
        self.run_in(name, "sh", "-c", NPM)

    def mirror(self):
        """A hash of the shared repository and its refs."""
        digest = hashlib.sha256()
        for place, names, files in os.walk(self.daemon.store / "repos"):
            names.sort()
            for name in sorted(files):
                path = os.path.join(place, name)
                digest.update(f"{path} {os.lstat(path).st_mode} ".encode())
                digest.update(os.readlink(path).encode() if os.path.islink(path) else pathlib.Path(path).read_bytes())
        return digest.hexdigest()

    def exchanged(self, workspace, name):
        """A snapshot of an idle sandbox by new mounts. The process that ran the last command may live slightly longer."""
        for _ in range(50):
            taken = self.client.snapshot(workspace, name=name)
            if taken["way"] == "restack":
                return taken
            self.client.drop_snapshot(workspace, taken["id"])
            time.sleep(0.1)
        self.fail(f"{workspace} got no new mounts")

    def same(self, name, before):
        now = trees.look(self.client, name)
        differs = {bytes.fromhex(p): (before.get(p), now.get(p)) for p in before.keys() | now.keys() if before.get(p) != now.get(p)}
        self.assertEqual(differs, {}, name)

    def test_work_continues_after_new_mounts(self):
        self.make("one")
        mirror = self.mirror()
        sandbox = self.client.start("one")["sandbox"]["id"]
        self.npm("one")
        self.round("one", 1)
        for number in range(2, 6):
            self.exchanged("one", name=f"after-{number - 1}")
            self.assertEqual(self.run_in("one", "sh", "-c", "git status --porcelain; make -s && build/app").strip(), str(TOTAL))
            self.round("one", number)
        self.npm("one")
        self.exchanged("one", name="after-npm")
        self.client.restore("one", "after-2")
        self.round("one", 9)
        self.assertEqual(self.client.workspace("one")["sandbox"]["id"], sandbox, "one sandbox all the way")
        self.client.stop("one")
        self.round("one", 10)
        self.assertEqual(self.mirror(), mirror, "nothing of it is in what all share")

    def test_work_continues_in_forks(self):
        self.make("parent")
        mirror = self.mirror()
        self.npm("parent")
        self.round("parent", 1)
        # Of an idle sandbox; of a busy one, with a build in progress and its directory held; of an idle workspace.
        forks = self.client.fork("parent", names=["idle-a", "idle-b"])
        busy = self.client.start_exec("parent", ["sh", "-c", "for n in 1 2 3 4 5 6 7 8; do make -s clean; make -s -j2; done"])
        harness.wait_until(lambda: self.client.exec("parent", "test -e build").exit_code == 0, what="it builds")
        forks += self.client.fork("parent", names=["busy-a"])
        self.assertEqual(self.client.wait(busy["id"], 120_000)["exit_code"], 0)
        self.client.stop("parent")
        forks += self.client.fork("parent", names=["rest-a"])
        before = trees.look(self.client, "parent")
        untouched = trees.look(self.client, "idle-b")
        for number, name in enumerate(("idle-a", "busy-a", "rest-a"), 2):
            with self.subTest(name):
                self.round(name, number)
                self.round(name, number + 10)
                self.npm(name)
        # A fork of a fork, after a round there.
        self.client.fork("busy-a", names=["busy-b"])
        self.round("busy-b", 20)
        self.same("parent", before)
        self.same("idle-b", untouched)
        self.assertEqual(self.mirror(), mirror, "nothing of it is in what all share")
        self.client.promote("idle-a")
        self.round("parent", 30)

    def test_a_build_continues_through_snapshots(self):
        self.make("builds")
        running = self.client.start_exec("builds", ["sh", "-c", "for n in 1 2 3 4 5 6; do make -s clean; make -s -j2 || exit 1; test $(build/app) = %d || exit 2; done" % TOTAL])
        taken = []
        while self.client.get_exec(running["id"])["state"] == "running":
            taken.append(self.client.snapshot("builds"))
            time.sleep(0.1)
        end = self.client.wait(running["id"])
        self.assertEqual(end["exit_code"], 0, self.client.raw_output(running["id"]))
        print(f"{len(taken)} snapshots, frozen for at most {max(s['pause_us'] for s in taken)} us")
        self.assertGreater(len(taken), 3)
        # A build can be completed from any of them.
        for snapshot in taken[:: max(1, len(taken) // 4)]:
            fork = self.client.fork("builds", snapshot=snapshot["id"])[0]
            self.assertEqual(self.run_in(fork["name"], "sh", "-c", "git status --porcelain && make -s clean && make -s && build/app").strip(), str(TOTAL))


if __name__ == "__main__":
    unittest.main()
