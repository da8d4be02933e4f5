"""The peers, in the same run on the same machine: a Docker engine, an LXC container, an overlay, all of the bench's own.

The first two run a small root file system (a shell, true, sleep, their libraries), without network: their cheapest form.
The bench starts and ends them by pid; it never touches the host's own Docker or LXC.
"""

import os
import pathlib
import shutil
import subprocess

import api
import clock
from place import engine, git, harness

PROGRAMS = ("true", "sleep", "sh")


def make_root(directory):
    """A root file system with programs of the host."""
    for name in ("bin", "proc", "sys", "dev", "tmp", "etc"):
        (directory / name).mkdir(parents=True)
    for name in PROGRAMS:
        program = shutil.which(name, path="/usr/bin:/bin")
        shutil.copy(program, directory / "bin" / name)
        listing = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
        for word in listing.split():
            if word.startswith("/"):
                target = directory / word.lstrip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(word, target)
    return directory


class PlainOverlay:
    """A workspace without Moorage: a clone of the tree, and an overlay over it for each task."""

    def __init__(self, directory, tree):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir()
        git(tree, "clone", "-q", "--shared", tree, self.directory / "lower")
        for name in ("layer", "merged"):
            (self.directory / name).mkdir()

    def mounted(self):
        """A new overlay; the next call removes it."""
        self.close()
        for name in ("upper", "work"):
            (self.directory / "layer" / name).mkdir(parents=True)
        options = (f"lowerdir={self.directory / 'lower'},upperdir={self.directory / 'layer/upper'},"
                   f"workdir={self.directory / 'layer/work'}")
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, self.directory / "merged"], check=True)
        return self.directory / "merged"

    def close(self):
        if os.path.ismount(self.directory / "merged"):
            subprocess.run(["umount", self.directory / "merged"], check=True)
        shutil.rmtree(self.directory / "layer", ignore_errors=True)


class ReflinkImage:
    """A file system in an image file with a checkout of the tree, to copy by reflinks."""

    MAKE = {"xfs": ["mkfs.xfs", "-q", "-f"], "btrfs": ["mkfs.btrfs", "-q", "-f"]}

    def __init__(self, kind, directory, tree):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir()
        image, self.place = self.directory / "image", self.directory / "mounted"
        self.place.mkdir()
        with open(image, "wb") as file:
            file.truncate(8 << 30)
        subprocess.run([*self.MAKE[kind], image], check=True)
        subprocess.run(["mount", "-o", "loop", image, self.place], check=True)
        try:
            git(tree, "clone", "-q", "--shared", tree, self.place / "tree")
            os.sync()
        except BaseException:
            self.close()
            raise

    def copy(self, name):
        clock.run_program([shutil.which("cp"), "-a", "--reflink=always", str(self.place / "tree"), str(self.place / name)],
                          {"PATH": "/usr/bin:/bin"})

    def remove(self, name):
        shutil.rmtree(self.place / name)
        os.sync()

    def close(self):
        subprocess.run(["umount", self.place], check=True)


class Docker:
    """An engine of the bench, shared with the backend docker, with one image for both; a sleeping container for exec."""

    IMAGE = "bench:latest"
    COMMAND = ["/bin/sleep", "1000000"]

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.engine = engine.Engine().start()
        self.socket = self.engine.socket
        self.environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.directory),
                            "DOCKER_HOST": f"unix://{self.socket}"}
        self.program = shutil.which("docker", path=f"/usr/bin:{os.environ['PATH']}")  # of the engine's release
        self.api = api.Api(self.socket)
        try:
            self.engine.load_image(self.IMAGE, make_root(self.directory / "root"))
            self.container = self.run("peer")
        except BaseException:
            self.close()
            raise

    def run(self, name):
        clock.run_program([self.program, "run", "-d", "--name", name, "--network=none", self.IMAGE, *self.COMMAND],
                          self.environment)
        return name

    def run_api(self, name):
        """The engine requests of `docker run -d`, without the program."""
        self.api.call("POST", f"/v1.41/containers/create?name={name}",
                      {"Image": self.IMAGE, "Cmd": self.COMMAND, "HostConfig": {"NetworkMode": "none"}})
        self.api.call("POST", f"/v1.41/containers/{name}/start")
        return name

    def remove(self, name):
        self.api.call("DELETE", f"/v1.41/containers/{name}?force=1")

    def exec_cli(self):
        clock.run_program([self.program, "exec", self.container, "/bin/true"], self.environment)

    def exec_api(self):
        made = self.api.json("POST", f"/v1.41/containers/{self.container}/exec",
                             {"Cmd": ["/bin/true"], "AttachStdout": True, "AttachStderr": True})
        self.api.call("POST", f"/v1.41/exec/{made['Id']}/start", {"Detach": False, "Tty": False})

    def close(self):
        self.api.close()
        self.engine.stop()


class Lxc:
    """The barest privileged LXC container: no id mapping, no network, no seccomp. It runs from the start."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.name = f"moorage-bench-{os.getpid()}"
        place = self.directory / self.name
        place.mkdir(parents=True)
        root = make_root(place / "rootfs")
        self.config = place / "config"
        self.config.write_text(
            f"lxc.uts.name = {self.name}\nlxc.rootfs.path = dir:{root}\nlxc.net.0.type = empty\n"
            "lxc.mount.auto = proc:rw\nlxc.init.cmd = /bin/sleep 1000000\nlxc.signal.stop = SIGKILL\n")
        self.environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
        self.start()

    def _argv(self, program, *rest):
        return [shutil.which(program), "-P", str(self.directory), "-n", self.name, *rest]

    def start(self):
        clock.run_program(self._argv("lxc-start", "-d"), self.environment)

    def attach(self):
        clock.run_program(self._argv("lxc-attach", "--", "/bin/true"), self.environment)

    def stop(self):
        subprocess.run(self._argv("lxc-stop", "-k"), env=self.environment, capture_output=True)

    def close(self):
        self.stop()


class Lxd:
    """A separate LXD daemon with its own directory, a pool of plain directories and an image of the small root."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir()
        self.environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.directory), "LXD_DIR": str(self.directory / "lxd")}
        self.log = open(self.directory / "log", "wb")
        self.process = subprocess.Popen(["lxd", "--group", "root"], env=self.environment, stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log, start_new_session=True)
        try:
            harness.wait_until(self._answers, 60, "lxd")
            self._lxc("storage", "create", "default", "dir")
            make_root(self.directory / "image" / "rootfs")
            (self.directory / "image" / "metadata.yaml").write_text(f"architecture: {os.uname().machine}\ncreation_date: 1\n")
            packed = self.directory / "image.tar"
            subprocess.run(["tar", "-C", self.directory / "image", "-cf", packed, "metadata.yaml", "rootfs"], check=True)
            self._lxc("image", "import", packed, "--alias", "bench")
            self._lxc("init", "bench", "peer", "-s", "default")
        except BaseException:
            self.close()
            raise

    def _answers(self):
        if self.process.poll() is not None:
            raise AssertionError(f"lxd exited: {(self.directory / 'log').read_text()[-2000:]}")
        return subprocess.run(["lxc", "info"], env=self.environment, capture_output=True, stdin=subprocess.DEVNULL).returncode == 0

    def _lxc(self, *argv):
        done = subprocess.run(["lxc", *map(str, argv)], env=self.environment, capture_output=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise SystemExit(f"bench: lxc {argv[0]}: {done.stderr.decode(errors='replace').strip()}")

    def copy(self, name):
        clock.run_program([shutil.which("lxc"), "copy", "peer", name], self.environment)

    def remove(self, name):
        self._lxc("delete", name)

    def close(self):
        if self.process.poll() is None:
            subprocess.run(["lxd", "shutdown", "--timeout", "30"], env=self.environment, capture_output=True, stdin=subprocess.DEVNULL)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()
        for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()[::-1]:
            if line.split()[1].startswith(f"{self.directory}/"):
                subprocess.run(["umount", line.split()[1]], capture_output=True)
