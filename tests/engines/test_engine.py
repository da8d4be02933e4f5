"""The engines for other tests: they start, work like Docker, and leave nothing."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

import remains
from engine import SMALL, Engine, Podman, SubordinateIds
from remains import BASE, EngineFailed, alive, wait_until

HERE = pathlib.Path(__file__).resolve().parent
SLEEP = ["sleep", "1000"]


def traces(directory):
    """Every trace of an engine on the host: none after its end."""
    name = directory.name
    found = [f"process {pid}" for pid in remains.all_pids() if pid != os.getpid() and alive(pid)
             and (any(name in each for each in remains.arguments(pid)) or name in remains.root_mount(pid))]
    found += [f"mount {point}" for point in remains.mounts_below(directory)]
    found += [f"control group {group}" for group in remains.cgroups_of(directory)]
    found += [f"file {path}" for path in BASE.glob(f"*{name}*")]
    return found


def running(engine, **body):
    container = engine.create(SLEEP, **body)
    engine.ask("POST", f"/containers/{container}/start")
    return container, engine.init_pid(container)


def state(engine, container):
    return engine.ask("GET", f"/containers/{container}/json")["State"]


class Harness(unittest.TestCase):
    def started(self, engine):
        self.addCleanup(engine.stop)
        engine.start()
        engine.make_small_image()
        return engine

    def gone(self, directory):
        self.assertEqual(traces(directory), [])

    def bound(self):
        """A host directory that only root can enter, with a file to bind."""
        place = tempfile.TemporaryDirectory(dir=BASE)
        self.addCleanup(place.cleanup)
        (pathlib.Path(place.name) / "file").write_text("of the host\n")
        return place.name


class Starting(Harness):
    def test_a_stopped_engine_leaves_nothing(self):
        engine = self.started(Engine())
        running(engine)
        directory, pids, shims = engine.directory, engine.pids(), remains.shim_sockets(engine.directory)
        self.assertEqual(len(pids), 4, "dockerd, containerd, a shim, a container")
        self.assertTrue(all(shim.exists() for shim in shims) and shims)
        self.assertTrue({"process", "mount", "control", "file"} <= {each.split()[0] for each in traces(directory)})
        engine.stop()
        engine.stop()
        self.gone(directory)
        self.assertEqual([pid for pid in pids if alive(pid)], [])
        self.assertEqual([shim for shim in shims if shim.exists()], [])

    def test_processes_that_escaped_from_the_engine_are_ended_too(self):
        engine = self.started(Engine())
        directory = engine.directory
        container, pid = running(engine)
        groups = [each / f"{engine.name}.elsewhere" for each in remains.hierarchies() if each.name in ("unified", "pids")]
        for group in groups:
            group.mkdir()
            self.addCleanup(lambda path: path.exists() and path.rmdir(), group)
            (group / "cgroup.procs").write_text(str(pid))
        frozen, _ = running(engine)
        engine.ask("POST", f"/containers/{frozen}/pause")
        engine.kill()
        os.kill(engine.containerd_pid(), signal.SIGKILL)
        for shim in engine.shim_pids():
            os.kill(shim, signal.SIGKILL)
        self.assertTrue(alive(pid))
        engine.stop()
        self.assertFalse(alive(pid))
        for group in groups:
            group.rmdir()
        self.gone(directory)

    def test_a_failed_start_reports_the_engines_error_and_leaves_nothing(self):
        engine = Engine(config={"no-such-option": True})
        with self.assertRaisesRegex(EngineFailed, "no-such-option") as caught:
            engine.start()
        self.assertIsNone(engine.directory)
        self.gone(pathlib.Path(re.search(r"file (\S+)/daemon.json", str(caught.exception))[1]))

    def test_the_engine_of_a_killed_test_is_ended_by_the_next_start(self):
        program = "import engine, time; e = engine.Engine().start(); print(e.directory, flush=True); time.sleep(1000)"
        test = subprocess.Popen([sys.executable, "-c", program], cwd=HERE, stdout=subprocess.PIPE, text=True)
        directory = pathlib.Path(test.stdout.readline().strip())
        test.kill()
        test.communicate()
        self.assertNotEqual(traces(directory), [])
        Engine().start().stop()
        self.gone(directory)

    def test_two_engines_are_independent(self):
        one, other = self.started(Engine()), self.started(Engine(userns=True))
        container, pid = running(one, Labels={"whose": "one"})
        self.assertEqual([each["Id"] for each in one.containers(label="whose=one")], [container])
        self.assertEqual(other.containers(), [])
        directory = other.directory
        other.stop()
        self.gone(directory)
        self.assertTrue(alive(pid))
        self.assertTrue(state(one, container)["Running"])


class Running(Harness):
    def test_a_container_runs_and_its_exit_code_is_returned(self):
        engine = self.started(Engine())
        mounts = [{"Type": "bind", "Source": self.bound(), "Target": "/bound", "ReadOnly": True}]
        script = "cat /bound/file; touch /bound/x 2>/dev/null || echo refused; ls /sys/class/net; exit 7"
        for runtime in ("runc", "crun"):
            with self.subTest(runtime):
                host = {"Mounts": mounts, "Runtime": runtime}
                code, output = engine.run(["sh", "-c", script], HostConfig=host)
                self.assertEqual((code, output), (7, "of the host\nrefused\nlo\n"))
        self.assertLessEqual({"runc", "crun"}, set(engine.info()["Runtimes"]))
        self.assertEqual(engine.containers(), [])

    def test_a_userns_engine_maps_root_to_its_range_and_restores_the_hosts_files(self):
        def files():
            with SubordinateIds.locked():  # another test may start an engine
                return [pathlib.Path(file).read_text() for file in SubordinateIds.FILES]

        before = files()
        engine = self.started(Engine(userns=True, first_id=1_700_000_000))
        self.assertEqual(files(), before)
        for runtime in ("runc", "crun"):
            with self.subTest(runtime):
                _, pid = running(engine, HostConfig={"Runtime": runtime})
                for name in ("uid_map", "gid_map"):
                    map = pathlib.Path(f"/proc/{pid}/{name}").read_text().split()
                    self.assertEqual(map, ["0", "1700000000", "65536"])

    def test_a_userns_engine_sees_later_mounts_on_the_host(self):
        engine = self.started(Engine(userns=True))
        place = self.bound()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "later", place], check=True)
        self.addCleanup(subprocess.run, ["umount", place], check=True)
        (pathlib.Path(place) / "file").write_text("mounted\n")
        mounts = [{"Type": "bind", "Source": place, "Target": "/bound", "ReadOnly": True}]
        self.assertEqual(engine.run(["cat", "/bound/file"], HostConfig={"Mounts": mounts}), (0, "mounted\n"))

    def test_after_kill_9_of_dockerd_its_containers_are_found(self):
        engine = self.started(Engine(config={"live-restore": True}))
        container, pid = running(engine)
        engine.kill()
        self.assertTrue(alive(pid))
        with self.assertRaises(OSError):
            engine.info()
        engine.restart()
        self.assertEqual([each["Id"] for each in engine.containers()], [container])
        self.assertEqual(state(engine, container)["Pid"], pid)

    def test_after_kill_9_of_containerd_too_dockerd_finds_its_containers(self):
        engine = self.started(Engine())
        container, _ = running(engine, StopSignal="SIGKILL")
        engine.kill()
        os.kill(engine.containerd_pid(), signal.SIGKILL)
        engine.started["containerd"].wait()
        engine.restart()
        self.assertEqual([each["Id"] for each in engine.containers()], [container])
        self.assertEqual(state(engine, container)["Status"], "exited")
        engine.ask("POST", f"/containers/{container}/start")

    def test_a_container_ends_with_its_shim(self):
        engine = self.started(Engine())
        container, pid = running(engine)
        [shim] = engine.shim_pids(container)
        os.kill(shim, signal.SIGKILL)
        wait_until(lambda: state(engine, container)["Status"] == "exited", 10, "dockerd's word")
        self.assertFalse(alive(pid))
        [socket] = remains.shim_sockets(engine.directory)
        engine.stop()
        self.assertFalse(socket.exists())

    def test_podman_answers_and_runs_a_container(self):
        podman = self.started(Podman())
        directory = podman.directory
        mounts = [{"Type": "bind", "Source": self.bound(), "Target": "/bound", "ReadOnly": True}]
        code, output = podman.run(["sh", "-c", "cat /bound/file; ls /sys/class/net; exit 7"], HostConfig={"Mounts": mounts})
        self.assertEqual((code, output), (7, "of the host\nlo\n"))
        _, pid = running(podman)
        podman.stop()
        self.assertFalse(alive(pid))
        self.gone(directory)


class FileSystems(Harness):
    def test_the_engine_copies_where_overlays_are_impossible(self):
        place = tempfile.TemporaryDirectory(dir=BASE)
        self.addCleanup(place.cleanup)
        for name in ("lower", "upper", "work", "m"):
            (pathlib.Path(place.name) / name).mkdir()
        merged = f"{place.name}/m"
        layers = f"lowerdir={place.name}/lower,upperdir={place.name}/upper,workdir={place.name}/work"
        pathlib.Path(place.name).chmod(0o711)
        subprocess.run(["mount", "-t", "overlay", "-o", layers, "overlay", merged], check=True)
        self.addCleanup(subprocess.run, ["umount", merged], check=True)
        program = "import engine\nwith engine.Engine(userns=True) as each:\n    each.make_small_image()\n" \
                  "    print(each.info()['Driver'], each.run(['echo', 'runs']))"
        result = subprocess.run([sys.executable, "-c", program], cwd=HERE, capture_output=True, text=True,
                                env=os.environ | {"MOORAGE_TEST_DIRECTORY": merged})
        self.assertEqual(result.stdout, "vfs (0, 'runs\\n')\n", result.stderr)
        self.assertEqual(os.listdir(merged), [])


class Wrapper(unittest.TestCase):
    """with_engine.py"""

    def argv(self, *options, command):
        return [sys.executable, HERE / "with_engine.py", *options, "--", "sh", "-c", command]

    def directories(self, output):
        return [pathlib.Path(line).parent for line in output.splitlines()]

    def test_the_command_gets_the_sockets_and_its_exit_code_is_passed_on(self):
        names = ["MOORAGE_TEST_DOCKER_SOCKET", "MOORAGE_TEST_DOCKER_USERNS_SOCKET", "MOORAGE_TEST_PODMAN_SOCKET"]
        command = "".join(f'test -S "${name}" && echo "${name}"; ' for name in names) + f"test $MOORAGE_TEST_IMAGE = {SMALL} && exit 9"
        result = subprocess.run(self.argv("--userns", "--podman", command=command), capture_output=True, text=True)
        self.assertEqual(result.returncode, 9, result.stderr)
        directories = self.directories(result.stdout)
        self.assertEqual(len(directories), 3)
        for directory in directories:
            self.assertEqual(traces(directory), [])

    def test_a_signal_ends_the_command_and_the_engine(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number):
                # The command does not end by itself, and only the wrapper gets the signal.
                argv = self.argv(command='echo "$MOORAGE_TEST_DOCKER_SOCKET"; exec sleep 1000')
                with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as wrapper:
                    [directory] = self.directories(wrapper.stdout.readline())
                    wrapper.send_signal(number)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        wrapper.wait(60)
                    self.assertEqual(wrapper.poll(), 128 + number)
                self.assertEqual(traces(directory), [])

    def test_the_command_reaches_the_other_machine_which_ends_with_it(self):
        command = ('ssh -F "$MOORAGE_TEST_SSH_CONFIG" -o BatchMode=yes "$MOORAGE_TEST_SSH_HOST" '
                   '"mkdir -p $MOORAGE_TEST_SSH_DIRECTORY && ip -o link" && echo "$MOORAGE_TEST_SSH_DIRECTORY"')
        result = subprocess.run(self.argv("--no-docker", "--ssh", command=command), capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        *links, directory = result.stdout.splitlines()
        self.assertEqual([line.split(":")[1].split("@")[0].strip() for line in links], ["lo", "eth0"])
        self.assertFalse(pathlib.Path(directory).parent.exists())
        self.assertEqual([pid for pid in remains.all_pids() if any(directory in each for each in remains.arguments(pid))], [])

    def test_a_sandbox_that_a_killed_command_left_there_is_ended(self):
        command = ('ssh -F "$MOORAGE_TEST_SSH_CONFIG" -o BatchMode=yes "$MOORAGE_TEST_SSH_HOST" '
                   '"mkdir $MOORAGE_TEST_SSH_DIRECTORY; setsid tail -F $MOORAGE_TEST_SSH_DIRECTORY/x >/dev/null 2>&1 </dev/null &" '
                   '&& echo "$MOORAGE_TEST_SSH_DIRECTORY"')
        result = subprocess.run(self.argv("--no-docker", "--ssh", command=command), capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        directory = result.stdout.strip()
        self.assertEqual([pid for pid in remains.all_pids() if alive(pid) and any(directory in each for each in remains.arguments(pid))], [])

    def test_a_missing_command_is_reported(self):
        argv = [sys.executable, HERE / "with_engine.py", "--", "/nonexistent/command"]
        result = subprocess.run(argv, capture_output=True, text=True)
        self.assertEqual(result.returncode, 1)
        self.assertIn("/nonexistent/command", result.stderr)


if __name__ == "__main__":
    unittest.main()
