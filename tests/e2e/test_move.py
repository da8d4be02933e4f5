"""A live task moves between backends: the same files, home, history and lease; and any failure leaves it unchanged."""

import io
import os
import pathlib
import tarfile
import threading
import time
import unittest

import harness
import raw_api
import on_engine
import trees

POINTS = ("after_intent", "after_standby", "after_stop", "after_mount", "after_outcome")


def image_with(files):
    """A tar of a root file system for sandboxes, with a defect on request."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


class Move(on_engine.OnEngine):
    backend = "lxc"

    def tree(self, name):
        """Tree and home as in the layers, where owners are the same on every backend."""
        self.client.stop(name)
        found = {}
        workspace = self.client.workspace(name)["id"]
        layer = self.daemon.store / "layers" / f"ly_{workspace[3:]}"
        for part in ("tree", "home"):
            for top, directories, files in os.walk(layer / part / "upper"):
                for entry in directories + files:
                    path = pathlib.Path(top, entry)
                    status = path.lstat()
                    content = os.readlink(path) if path.is_symlink() else trees.contents(path) if path.is_file() else None
                    found[str(path.relative_to(layer))] = (status.st_mode, status.st_uid, status.st_gid, status.st_mtime_ns, content)
        return found

    def containers(self):
        return [c["Names"][0] for c in self.engine.containers(f"moorage.store=moorage-{self.daemon.store_id()}-")]

    def test_a_task_moves_during_its_work_and_back(self):
        """Another one runs the same commands without moving: in the end the two do not differ."""
        steps = [
            "mkdir deep; echo one > deep/one; ln -s one deep/link; ln deep/one deep/two; chmod 751 deep; echo h > ~/notes; printf '\\0\\377' > bytes",
            "git checkout -q -b work; git add -A; git -c user.name=a -c user.email=a@a commit -qm 'of the agent'; echo staged > s; git add s; echo ign > .ignored",
            "echo two >> deep/one; rm src/a.txt; mv src renamed; mkdir -p ~/.cache/x; echo cached > ~/.cache/x/y; echo untracked > u",
            "git stash -q; git stash pop -q; rm -r deep; mkdir deep; echo new > deep/new; touch -d @1000000000 bytes deep/new",
        ]
        places = [None, {"backend": "docker"}, {"backend": "docker", "runtime": "crun"}, {"backend": "lxc"}]
        moved, stayed = self.create("moves"), self.create("stays")
        for step, place in zip(steps, places):
            if place:
                before = self.client.workspace("moves")
                after = self.client.move("moves", **place)
                self.assertEqual((after["id"], after["backend"], after.get("runtime")),
                                 (moved["id"], place["backend"], place.get("runtime")))
                self.assertNotEqual(after["sandbox"]["id"], before["sandbox"]["id"])
                self.assertEqual(after["sandbox"]["state"], "running")
            for name in ("moves", "stays"):
                self.out(name, step)
        self.assertEqual(self.out("moves", "cat deep/new ~/notes ~/.cache/x/y; git log -1 --format=%s; git status --porcelain"),
                         self.out("stays", "cat deep/new ~/notes ~/.cache/x/y; git log -1 --format=%s; git status --porcelain"))
        history = self.client.history("moves")["execs"]
        self.assertEqual([" ".join(e["argv"][2:]) for e in history[:len(steps)]], steps)
        self.assertEqual(len({e["sandbox"] for e in history}), len(places))
        self.assertTrue(all(e["state"] == "exited" for e in history))
        moved_tree, stayed_tree = self.tree("moves"), self.tree("stays")

        def comparable(tree):  # git's own files contain times
            return {p: (mode, uid, gid, content) for p, (mode, uid, gid, _, content) in tree.items()
                    if ".git/" not in p}

        self.assertEqual(comparable(moved_tree), comparable(stayed_tree))
        self.assertEqual(moved_tree["tree/upper/bytes"][3], 1000000000 * 10**9)
        kinds = [e["kind"] for e in self.client.events() if e.get("workspace") == moved["id"]]
        self.assertEqual(kinds.count("workspace.moved"), 3)

    def test_the_bytes_are_the_same_before_and_after_a_move(self):
        self.create("same")
        self.client.exec("same", ["python3", "-c", trees.MAKE])
        self.client.exec("same", ["sh", "-c", trees.ROOT], user="root")
        before = self.tree("same")
        for place in ("docker", "lxc"):
            self.client.start("same")
            self.client.move("same", backend=place)
            self.assertEqual(self.tree("same"), before)

    def test_running_commands_are_waited_for(self):
        self.create("busy")
        record = self.client.start_exec("busy", ["sh", "-c", "read line; echo got $line"], stdin=True)
        self.refused(409, record["id"], self.client.move, "busy", backend="docker")
        self.assertEqual(self.client.move("busy", backend="docker", check=True)["execs"], [record["id"]])
        answers = []
        waits = threading.Thread(target=lambda: answers.append(self.client.move("busy", backend="docker", wait_ms=60000)))
        waits.start()
        time.sleep(0.5)  # long enough to show a missing wait, checked below
        self.assertEqual(answers, [])
        self.assertEqual(self.client.workspace("busy")["backend"], "lxc")
        self.client.send_input(record["id"], b"word\n")
        end = self.client.wait(record["id"])
        waits.join(60)
        self.assertEqual((end["state"], end["exit_code"]), ("exited", 0))
        self.assertEqual(self.client.raw_output(record["id"], "stdout"), b"got word\n")
        self.assertEqual(answers[0]["backend"], "docker")

    def test_now_cancels_running_commands(self):
        self.create("hurry")
        record = self.client.start_exec("hurry", ["sleep", "1000"])
        self.assertEqual(self.client.move("hurry", backend="docker", now=True, wait_ms=30000)["backend"], "docker")
        end = self.client.get_exec(record["id"])
        self.assertEqual((end["state"], end["error"]), ("cancelled", "cancelled by root: moved to docker at once"))
        self.assertEqual(self.out("hurry", "echo on"), "on")

    def test_obstacles_to_a_move_are_reported_before_anything_stops(self):
        self.create("told")
        self.client.exec("told", ["true"])
        plan = self.client.move("told", backend="docker", check=True)
        self.assertEqual((plan["from"]["isolation"], plan["to"]["isolation"], plan["running"]), ("userns", "container", True))
        self.assertTrue(any("isolation becomes container" in n for n in plan["notices"]), plan)
        self.assertTrue(any("sudo and root are not available" in n for n in plan["notices"]), plan)
        init, before = self.daemon.sandbox_pids("told")["init"], self.containers()
        self.refused(404, "docker images lists its images", self.client.move, "told", backend="docker", image="no-such:image")
        self.refused(501, "crun", self.client.move, "told", backend="docker", runtime="runsc")
        self.refused(404, "docker", self.client.move, "told", backend="podmen")
        self.refused(501, "image", self.client.move, "told", image=self.small)
        workspace = self.client.workspace("told")["id"]
        delta = self.daemon.store / "layers" / f"ly_{workspace[3:]}" / "system" / "upper" / "usr"
        delta.mkdir()
        self.refused(501, "belong to image host", self.client.move, "told", backend="docker", image=self.small)
        delta.rmdir()
        self.assertEqual(self.daemon.sandbox_pids("told")["init"], init)
        self.assertEqual(self.containers(), before)

    def test_a_failed_move_keeps_the_sandbox_running(self):
        self.create("keeps")
        self.client.exec("keeps", ["sh", "-c", "setsid sleep 27182 >/dev/null 2>&1 & echo x > x"])
        init, before = self.daemon.sandbox_pids("keeps")["init"], set(self.containers())
        # Its place for the workspace is a file: the engine accepts it, but cannot start it.
        self.engine.load_image("moorage-test:broken", image_with({"workspace": b"a file", "etc/passwd": b""}))
        with self.assertRaises(raw_api.ApiError) as failed:
            self.client.move("keeps", backend="docker", image="moorage-test:broken")
        self.assertIn("was not moved", failed.exception.message)
        self.engine.kill()
        try:
            self.refused((501, 503), "cannot be reached", self.client.move, "keeps", backend="docker")
        finally:
            self.engine.restart()
        record = self.client.workspace("keeps")
        self.assertEqual((record["backend"], record["sandbox"]["state"]), ("lxc", "running"))
        self.assertEqual(self.daemon.sandbox_pids("keeps")["init"], init)
        self.assertEqual(self.out("keeps", "pgrep -c -x sleep; cat x"), "1\nx")
        self.assertLessEqual(set(self.containers()), before)  # the new engine ends containers of the previous one
        harness.wait_until(lambda: self.client.move("keeps", backend="docker")["backend"] == "docker", what="the move")
        self.assertEqual(self.out("keeps", "cat x"), "x")

    def test_a_move_requires_and_keeps_the_lease(self):
        self.create("held")
        self.client.exec("held", ["true"])
        with self.client.lease("held", holder="agent-7") as mine:
            generation = self.client.workspace("held")["holder"]["generation"]
            self.refused(409, "agent-7", self.client.move, "held", backend="docker")
            self.assertEqual(mine.move("held", backend="docker")["holder"]["generation"], generation)
            self.assertEqual(mine.exec("held", ["echo", "mine"]).stdout, b"mine\n")
            self.assertEqual(self.client.workspace("held")["holder"]["holder"], "agent-7")

    def test_an_idle_or_archived_workspace_starts_at_the_new_place(self):
        self.create("rests")
        self.out("rests", "echo kept > kept")
        self.client.stop("rests")
        self.assertNotIn("sandbox", self.client.move("rests", backend="docker"))
        self.assertEqual(self.out("rests", "cat kept; id -un"), "kept\nuser")
        self.assertEqual(self.client.workspace("rests")["sandbox"]["backend"], "docker")
        self.client.stop("rests")
        self.client.archive("rests")
        self.client.move("rests", backend="lxc")
        self.assertEqual(self.out("rests", "cat kept; sudo id -u"), "kept\n0")

    def test_a_crash_during_a_move_leaves_the_workspace_at_one_place(self):
        self.create("dies")
        self.out("dies", "echo kept > kept; echo home > ~/home")
        for place in ("docker", "lxc"):
            for point in POINTS:
                with self.subTest(place=place, point=point):
                    other = "lxc" if place == "docker" else "docker"
                    self.client.move("dies", backend=other)
                    self.client.start("dies")
                    self.daemon.kill()
                    self.daemon.start(crash_at=f"move.{point}")
                    with self.assertRaises((raw_api.ApiError, OSError)):
                        self.client.move("dies", backend=place)
                    self.daemon.process.wait(30)
                    self.daemon.start()
                    self.assertEqual(self.client.workspace("dies")["backend"], place if point == "after_outcome" else other)
                    self.assertEqual(self.out("dies", "cat kept ~/home; echo more >> more; wc -l < more"),
                                     f"kept\nhome\n{self.lines('dies')}")
                    live = self.client.workspace("dies")["sandbox"]["id"]
                    harness.wait_until(lambda: [n for n in self.containers() if not n.endswith(f"-{live}")] == [],  # noqa: B023
                                       what="only the live one has a container")
                    left = harness.census(self.daemon.store_id(), self.daemon.directory)
                    self.assertEqual([g for g in left["cgroups"] if f"-{live}" not in g], [])
                    self.assertEqual(left["mounts"], [])
                    self.assertEqual(self.client.doctor()["findings"], [])

    def lines(self, name):
        """Number of lines of `more` after the next write, counted on the host."""
        self.more = getattr(self, "more", 0) + 1
        return self.more

    def test_the_move_command_explains_waits_and_moves(self):
        self.create("typed")
        record = self.client.start_exec("typed", ["sleep", "2"])
        told = self.daemon.cli("move", "typed", "--backend", "docker", "--check").stdout.decode()
        self.assertIn(record["id"], told)
        self.assertIn("sudo and root are not available", told)
        done = self.daemon.cli("move", "typed", "--backend", "docker", "--runtime", "crun")
        self.assertIn(f"waiting for {record['id']}", done.stderr.decode())
        self.assertIn("moved", done.stdout.decode())
        self.assertIn("runtime crun", self.daemon.cli("show", "typed").stdout.decode())
        again = self.daemon.cli("move", "typed", "--backend", "docker", "--runtime", "crun").stdout.decode()
        self.assertIn("stayed", again)
        nowhere = self.daemon.cli("move", "typed", check=False)
        self.assertIn("move needs --backend", nowhere.stderr.decode())


if __name__ == "__main__":
    unittest.main()
