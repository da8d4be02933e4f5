"""Backend docker from outside: images, runtimes, and an engine that dies, hangs, restarts, or is used by others."""

import io
import json
import os
import pathlib
import signal
import tarfile
import time
import unittest
import urllib.parse

import harness
import raw_api
import on_engine
from on_engine import engine

RIGHT_S = 5  # deadline for the correct state


class OnDocker(on_engine.OnEngine):
    def sandbox_name(self, name):
        return f"moorage-{self.daemon.store_id()}-{self.client.workspace(name)['sandbox']['id']}"

    def container(self, name):
        return self.engine.ask("GET", f"/containers/{self.sandbox_name(name)}/json")

    def state(self, name):
        return self.client.workspace(name).get("sandbox", {}).get("state", "none")

    def wait_for_state(self, name, state):
        harness.wait_until(lambda: self.state(name) == state, RIGHT_S, f"{name} is shown as {state}")

    def engine_answers(self):
        return next(b for b in self.client.info()["backends"] if b["name"] == "docker")["usable"]

    def names(self):
        return sorted(c["Names"][0][1:] for c in self.engine.containers(f"moorage.store=moorage-{self.daemon.store_id()}-"))


class Containers(OnDocker):
    def test_a_container_has_the_right_settings_and_labels(self):
        workspace = self.create("plain")
        self.assertEqual(self.out("plain", "id -un; pwd; echo $HOME"), "user\n/workspace\n/home/user")
        self.assertEqual(self.out("plain", "getent hosts localhost | wc -l; hostname; cat /etc/resolv.conf"), "1\nsandbox\nnameserver 127.0.0.53")
        about = self.container("plain")
        host = about["HostConfig"]
        self.assertEqual((host["Privileged"], host["NetworkMode"], host["ReadonlyRootfs"], host["PidMode"], host["UsernsMode"]),
                         (False, "none", True, "", ""))
        self.assertEqual((host["CapDrop"], host["CapAdd"], host["Devices"]), (["ALL"], [], None))
        self.assertIn("no-new-privileges", host["SecurityOpt"])
        self.assertEqual(sorted(m["Destination"] for m in about["Mounts"] if m["Type"] == "bind"),
                         ["/.moorage/bootstrap", "/.moorage/warden"])
        labels = about["Config"]["Labels"]
        self.assertEqual((labels["moorage.workspace"], labels["moorage.sandbox"]), (workspace["id"], self.sandbox_name("plain")))
        record = self.client.workspace("plain")["sandbox"]
        self.assertEqual((record["isolation"], record["image"]), ("container", "host"))
        backend = next(b for b in self.client.info()["backends"] if b["name"] == "docker")
        self.assertEqual((backend["usable"], backend["isolation"], backend["runtimes"]["crun"]), (True, "container", "container"))
        self.refused(501, "root is not available", self.client.exec, "plain", ["true"], user="root")
        self.client.stop("plain")
        self.assertNotIn(labels["moorage.sandbox"], self.names())

    def test_an_engine_image_is_the_root_and_has_the_user(self):
        self.create("image", image=self.small)
        out = self.out("image", "id -un; echo $HOME; cat /etc/passwd | tail -1; touch /workspace/x ~/y /tmp/z; touch /etc/w 2>&1 | grep -c -i read-only")
        self.assertIn("user\n/home/user\nuser:x:", out)
        self.assertTrue(out.endswith("\n1"), out)
        self.assertEqual(self.client.workspace("image")["sandbox"]["image"], self.small)
        with self.assertRaises(raw_api.ApiError) as refused:
            self.create("missing", image="acme/dev:1")
        self.assertEqual(refused.exception.status, 404)
        names = [tag for image in self.engine.ask("GET", "/images/json") for tag in image.get("RepoTags") or []]
        self.assertIn(self.small, names)
        for name in names:  # every user who may create a workspace reads this
            self.assertNotIn(name, refused.exception.message + refused.exception.hint)
        self.refused(404, "has no image", self.create, "missing", image="../containers/json")  # no path to other answers of the engine

    def test_the_bundle_of_an_image_gets_the_authority_of_the_store(self):
        content = io.BytesIO(engine.small_tar())
        with tarfile.open(fileobj=content, mode="a") as tar:
            for path, text in (("etc/ssl/certs/ca-certificates.crt", b"# of the image\n"), ("opt/java/openjdk/lib/security/cacerts", b"old")):
                member = tarfile.TarInfo(path)
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text))
            for path, target in (("etc/ssl/cert.pem", "certs/ca-certificates.crt"), ("etc/pki/java/cacerts", "/dev/null"),
                                 ("etc/pki/tls/certs/ca-bundle.crt", "../../../../../../etc/missing")):
                member = tarfile.TarInfo(path)
                member.type, member.linkname = tarfile.SYMTYPE, target
                tar.addfile(member)
        self.engine.load_image("localhost/trust:1", content.getvalue())
        self.create("trust", image="localhost/trust:1")
        own = self.out("trust", "cat /.moorage/certificates/own.pem")
        self.assertIn("BEGIN CERTIFICATE", own)
        for place in ("/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/cert.pem"):
            bundle = self.out("trust", f"cat {place}")
            self.assertTrue(bundle.startswith("# of the image\n") and bundle.endswith(own), bundle)
        self.assertEqual(self.out("trust", "cmp /opt/java/openjdk/lib/security/cacerts /.moorage/certificates/java.jks && echo same"), "same")
        self.assertEqual(self.out("trust", "cat /etc/pki/java/cacerts; ls /etc/missing 2>&1 | grep -c 'No such'"), "1")
        self.assertEqual(self.out("trust", "sh -c 'echo x >>/etc/ssl/cert.pem' 2>/dev/null || echo kept"), "kept")

    def test_a_workspace_on_an_image_is_imported_if_the_image_exists(self):
        self.create("leaves", image=self.small)
        self.out("leaves", "echo kept > /workspace/kept")
        wanted = self.engine.ask("GET", f"/images/{self.small}/json")["Id"]
        file = self.daemon.directory / "leaves.tar.zst"
        told = self.daemon.cli("export", "leaves", file).stderr.decode()
        self.assertIn(wanted, told)
        self.assertIn(f"docker save {self.small}", told)
        self.client.import_(file.read_bytes(), name="arrives")
        self.assertEqual(self.out("arrives", "cat /workspace/kept"), "kept")
        for name in ("leaves", "arrives"):
            self.client.delete(name, purge=True)
        # A different image with that name does not match.
        self.engine.ask("POST", f"/images/{self.small}/tag?repo=kept-image&tag=1")
        self.engine.ask("POST", "/images/create?fromSrc=-&repo=" + urllib.parse.quote(self.small) + "&changes="
                        + urllib.parse.quote("LABEL other=1"), engine.small_tar())
        try:
            self.client.import_(file.read_bytes(), name="by-digest")
            self.assertEqual(self.client.workspace("by-digest")["image"], wanted)
            self.client.delete("by-digest", purge=True)
            self.engine.ask("DELETE", "/images/kept-image:1?force=1")
            with self.assertRaises(raw_api.ApiError) as refused:
                self.client.import_(file.read_bytes(), name="missing")
            self.assertEqual(refused.exception.code, "unsupported")
            self.assertIn(wanted, refused.exception.message)
            self.assertIn("docker save", refused.exception.hint)
        finally:
            self.engine.ask("DELETE", f"/images/{self.small}?force=1")
            type(self).small = self.engine.make_small_image()

    def test_a_volume_in_an_image_creates_nothing_on_the_engines_disk(self):
        volumes = "moorage-test:volumes"
        self.engine.ask("POST", f"/images/create?fromSrc=-&repo={volumes}&changes=" + urllib.parse.quote("VOLUME /data"), engine.small_tar())
        self.create("volumes", image=volumes)
        self.assertEqual(self.out("volumes", "echo x > /data/x; stat -f -c %T /data"), "tmpfs")
        self.assertEqual(self.engine.ask("GET", "/volumes")["Volumes"] or [], [])
        self.assertEqual(self.client.exec("volumes", ["sh", "-c", "tail -c 8G /dev/zero > /data/fill"]).exit_code == 0, False)

    def test_a_runtime_is_passed_to_the_engine_and_an_unknown_one_is_refused_with_a_list(self):
        self.create("crun", runtime="crun")
        self.assertEqual(self.out("crun", "echo on"), "on")
        self.assertEqual(self.container("crun")["HostConfig"]["Runtime"], "crun")
        sandbox = self.client.workspace("crun")["sandbox"]
        self.assertEqual((sandbox["runtime"], sandbox["isolation"]), ("crun", "container"))
        self.refused(501, "crun", self.create, "unknown", runtime="runsc")
        self.refused(501, "has only its default runtime", self.create, "nowhere", backend="lxc", runtime="crun")

    def test_limits_of_the_sandbox_are_enforced(self):
        self.create("limits", limits={"memory_bytes": 64 << 20, "pids": 32})
        bomb = self.client.exec("limits", ["tail", "/dev/zero"])
        self.assertEqual(bomb.exec["state"], "oom_killed")
        forks = self.client.exec("limits", ["bash", "-c", "for i in $(seq 100); do sleep 5 & done; echo"])
        self.assertIn(b"fork", forks.stderr)
        self.assertEqual(self.out("limits", "echo on"), "on")

    def test_snapshots_and_forks_are_live(self):
        self.create("live")
        self.out("live", "echo 1 > one")
        before = self.client.workspace("live")["sandbox"]["id"]
        self.client.snapshot("live", "first")
        self.out("live", "echo 2 > two; rm one")
        fork = self.client.fork("live")[0]
        self.client.restore("live", "first")
        self.assertEqual(self.out("live", "ls one two 2>/dev/null || true"), "one")
        self.assertEqual(self.out(fork["name"], "ls one two 2>/dev/null || true"), "two")
        self.assertEqual(self.client.workspace("live")["sandbox"]["id"], before)
        self.assertEqual([s["way"] for s in self.client.snapshots("live")][0], "restack")


class Faults(OnDocker):
    def setUp(self):
        self.name = "f-" + self.id().rsplit(".", 1)[1].replace("_", "-")[-40:]
        self.addCleanup(self.revive)
        self.create(self.name)
        self.out(self.name, "echo kept > kept; echo home > ~/home")

    def revive(self):
        """Restarts whatever a failed test left dead."""
        if self.engine.started["dockerd"].poll() is not None:
            self.engine.restart()

    def assert_goes_on(self):
        """The next command works, and all files exist."""
        harness.wait_until(self.commands_work, 60, "the next command")
        self.assertEqual(self.out(self.name, "cat kept ~/home"), "kept\nhome")

    def commands_work(self):
        try:
            return self.client.exec(self.name, ["true"]).exit_code == 0
        except raw_api.ApiError as error:
            self.assertIn("engine", error.message)  # no other problem
            return False

    def test_docker_rm_behind_our_back(self):
        record = self.client.start_exec(self.name, ["sleep", "1000"])
        self.engine.ask("DELETE", f"/containers/{self.sandbox_name(self.name)}?force=1")
        self.wait_for_state(self.name, "none")
        self.assertEqual(self.client.wait(record["id"])["state"], "interrupted")
        self.assert_goes_on()

    def test_kill_9_of_dockerd(self):
        record = self.client.start_exec(self.name, ["sh", "-c", "read line; echo got $line"], stdin=True)
        init = self.daemon.sandbox_pids(self.name)["init"]
        self.engine.kill()
        self.assertEqual(self.state(self.name), "running")
        self.assertEqual(self.out(self.name, "cat kept"), "kept")  # this does not involve the engine
        self.client.send_input(record["id"], b"word\n")
        self.assertEqual(self.client.wait(record["id"])["exit_code"], 0)
        harness.wait_until(lambda: not self.engine_answers(), RIGHT_S, "the backend is shown as not usable")
        self.refused((501, 503), "cannot be reached", self.create, "cannot-be")
        self.assertEqual(self.daemon.sandbox_pids(self.name)["init"], init)
        self.daemon.restart()  # finds it without the engine, too
        self.assertEqual(self.daemon.sandbox_pids(self.name)["init"], init)
        self.engine.restart()  # ends containers that it did not start
        self.wait_for_state(self.name, "none")
        self.assert_goes_on()

    def test_a_stop_while_the_engine_is_down_leaves_no_container(self):
        container = self.sandbox_name(self.name)
        self.engine.kill()
        self.client.stop(self.name)
        self.assertEqual(self.state(self.name), "none")
        self.engine.restart()
        self.assertIn(container, self.names())
        self.daemon.restart()  # the reconciler removes orphans
        harness.wait_until(lambda: container not in self.names(), 30, "the engine's record is gone")
        self.assert_goes_on()

    def test_kill_9_of_the_containers_shim(self):
        shim = self.engine.shim_pids(self.container(self.name)["Id"])[0]
        record = self.client.start_exec(self.name, ["sleep", "1000"])
        os.kill(shim, signal.SIGKILL)
        self.wait_for_state(self.name, "none")  # its engine ends containers that it can no longer watch
        self.assertEqual(self.client.wait(record["id"])["state"], "interrupted")
        self.assert_goes_on()

    def test_kill_9_of_everything(self):
        os.kill(self.engine.containerd_pid(), signal.SIGKILL)
        self.engine.started["containerd"].wait()
        init = self.daemon.sandbox_pids(self.name)["init"]
        self.engine.kill()
        self.daemon.kill()
        os.kill(init, signal.SIGKILL)
        self.engine.restart()
        self.daemon.start()
        self.wait_for_state(self.name, "none")
        self.assert_goes_on()

    def test_an_engine_that_hangs(self):
        """Commands are unaffected. A start fails after its deadline, and its late result is removed."""
        self.create("waits")
        os.kill(self.engine.dockerd_pid(), signal.SIGSTOP)
        try:
            for _ in range(10):  # longer than the engine's last state is trusted
                began = time.monotonic()
                self.assertEqual(self.out(self.name, "cat kept; sleep 0.3"), "kept")
                self.assertLess(time.monotonic() - began, 3 * harness.PATIENCE)  # each query to the engine takes 5 s now
            began = time.monotonic()
            with self.assertRaises(raw_api.ApiError) as hung:
                self.client.start("waits")
            self.assertIn("engine", hung.exception.message)
            self.assertLess(time.monotonic() - began, 45 * harness.PATIENCE)
            self.assertEqual(self.state("waits"), "none")
        finally:
            os.kill(self.engine.dockerd_pid(), signal.SIGCONT)
        harness.wait_until(self.engine_answers, 30, "the backend is shown as usable")
        self.client.start("waits")
        live = {self.sandbox_name("waits"), self.sandbox_name(self.name)}
        self.assertEqual(self.out("waits", "echo on"), "on")
        harness.wait_until(lambda: {n for n in self.names() if n in live} == live, what="both are there")

    def test_a_removed_image_is_rebuilt(self):
        self.client.stop(self.name)
        for image in self.engine.ask("GET", "/images/json"):
            for tag in image.get("RepoTags") or []:
                if tag.startswith("moorage-host:"):
                    self.engine.ask("DELETE", f"/images/{tag}?force=1")
        self.assert_goes_on()


class LiveRestore(OnDocker):
    config = {"live-restore": True}

    def test_a_sandbox_survives_a_restart_of_its_engine(self):
        self.create("stays")
        record = self.client.start_exec("stays", ["sh", "-c", "read line; echo got $line > got"], stdin=True)
        init = self.daemon.sandbox_pids("stays")["init"]
        self.engine.kill()
        self.engine.restart()
        time.sleep(2 * harness.PATIENCE)  # without live-restore the sandbox would be reported gone by then
        self.assertEqual(self.daemon.sandbox_pids("stays")["init"], init)
        self.client.send_input(record["id"], b"word\n")
        self.assertEqual(self.client.wait(record["id"])["exit_code"], 0)
        self.assertTrue(self.container("stays")["State"]["Running"])
        container = self.sandbox_name("stays")
        self.client.stop("stays")
        self.assertNotIn(container, self.names())  # the new daemon knew it
        self.assertEqual(self.out("stays", "cat got"), "got word")


class Remapped(OnDocker):
    userns = True

    def test_an_engine_with_userns_remap_isolates_like_lxc_but_with_one_id_range(self):
        for name in ("first", "second"):
            self.create(name)
            self.assertEqual(self.out(name, "id -u; sudo id -u; touch x; sudo touch y; stat -c %u x y"), "1000\n0\n1000\n0")
        self.assertEqual(self.out("first", "id -u", user="root"), "0")
        self.assertEqual(self.client.workspace("first")["sandbox"]["isolation"], "userns")
        maps = {pathlib.Path(f"/proc/{self.daemon.sandbox_pids(name)['init']}/uid_map").read_text() for name in ("first", "second")}
        self.assertEqual(len(maps), 1)
        self.assertEqual(maps.pop().split(), ["0", str(self.engine.first_id), "65536"])
        self.assertEqual(json.loads(self.daemon.cli("--json", "show", "first").stdout)["sandbox"]["isolation"], "userns")
        self.daemon.restart()
        self.assertEqual(self.out("first", "sudo cat x y; echo on"), "on")
        self.client.write_file("first", "from-outside", b"of the user\n")
        self.assertEqual(self.out("first", "stat -c %u from-outside"), "1000")


class OnPodman(harness.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = engine.Podman().start()
        cls.addClassCleanup(cls.engine.stop)
        cls.small = cls.engine.make_small_image()
        cls.settings = {"docker.socket": str(cls.engine.socket), "sandbox.backend": "docker", "sandbox.start_deadline_s": 30}
        super().setUpClass()

    def test_podman_serves_as_the_engine(self):
        for name, image in (("host", "host"), ("small", self.small)):
            self.client.create(repo_url=self.url, name=name, image=image)
            self.assertEqual(self.client.exec(name, ["sh", "-c", "id -un; echo kept > kept; cat /proc/cmdline | wc -c"]).stdout, b"user\n0\n")
        self.client.snapshot("host", "s")
        self.client.move("host", backend="lxc")
        self.assertEqual(self.client.exec("host", ["cat", "kept"]).stdout, b"kept\n")
        self.client.move("host", backend="docker")
        self.assertEqual(self.client.exec("host", ["cat", "kept"]).stdout, b"kept\n")
        with self.assertRaises(raw_api.ApiError) as refused:  # Podman would ignore it
            self.client.create(repo_url=self.url, name="runtime", runtime="crun")
        self.assertIn("has only its default runtime", str(refused.exception.hint))
        init = self.daemon.sandbox_pids("small")["init"]
        os.kill(init, signal.SIGKILL)
        harness.wait_until(lambda: "sandbox" not in self.client.workspace("small"), RIGHT_S, "its death is visible")
        self.assertEqual(self.client.exec("small", ["cat", "kept"]).stdout, b"kept\n")


if __name__ == "__main__":
    unittest.main()
