"""Private container engines for tests: a dockerd with its containerd, or a podman service, each below one directory.

Nothing is shared with the host's engine: no /etc/docker, no /var/lib/docker, no bridge, no iptables, no
service manager, no registry. All objects of an engine can be found by its directory (remains.py), so stop() needs
no answer from it, and the next start ends the engine of a killed test. Needs root.

Written elsewhere, for lack of an option: the shims' sockets in /run/containerd/s, which stop() removes;
the empty directories /run/docker/plugins and /var/lib/containers/cache; temporarily a line in /etc/subuid and
/etc/subgid (`SubordinateIds`).
"""

import contextlib
import fcntl
import http.client
import io
import json
import os
import pathlib
import resource
import socket
import subprocess
import tarfile
import tempfile
import threading
import urllib.parse

from remains import BASE, PATIENCE, PREFIX, EngineFailed, arguments, pids_of, programs_of, remove, sweep, wait_until

SMALL = "moorage-test:small"
CGROUPS = pathlib.Path("/sys/fs/cgroup")


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("engine", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class SubordinateIds:
    """A range of ids for one user, in /etc/subuid and /etc/subgid while dockerd reads them.

    dockerd has no option for these paths, and in a separate mount namespace it would miss later mounts on a
    host whose root is a private mount, such as one without systemd. So the lines are added and removed again, with
    useradd's lock (lckpwdf) held; lines left by a killed test are removed as well. The user
    exists on every Debian and never has ranges.
    """

    USER = "games"
    FILES = ("/etc/subuid", "/etc/subgid")
    threads = threading.Lock()  # the files' lock is per process

    def __init__(self, first, count=65536):
        self.line = f"{self.USER}:{first}:{count}\n"

    @classmethod
    @contextlib.contextmanager
    def locked(cls):
        """Excludes other writers of the files. Closing any descriptor of the lock releases it for the process: do not nest."""
        with cls.threads:
            lock = os.open("/etc/.pwd.lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX)
                yield
            finally:
                os.close(lock)

    @contextlib.contextmanager
    def written(self):
        with self.locked():
            try:
                self.rewrite(self.line)
                yield
            finally:
                self.rewrite("")

    def rewrite(self, line):
        for path in self.FILES:
            with open(path, "a+") as file:  # in place, as it may be a mount
                file.seek(0)
                kept = [each for each in file if not each.startswith(f"{self.USER}:")]
                file.truncate(0)
                file.write("".join(kept) + line)


class Service:
    """The common parts of dockerd and podman: a directory, a socket, a way to find and end all their objects."""

    def __init__(self):
        self.directory = None
        self.owner = None
        self.started = {}  # name -> Popen

    # Life

    def start(self):
        """Returns when the socket answers. First ends engines of killed tests."""
        assert self.directory is None, "this engine has been started"
        sweep()
        # The lock shows that the directory has an owner; it is never visible without the lock.
        hidden = pathlib.Path(tempfile.mkdtemp(prefix=f".{PREFIX}", dir=BASE))
        hidden.chmod(0o711)  # with userns-remap, the containers' root passes through
        self.owner = open(hidden / "owner", "w")
        fcntl.flock(self.owner, fcntl.LOCK_EX)
        self.directory = hidden.with_name(hidden.name[1:])
        hidden.rename(self.directory)
        try:
            self.begin()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self):
        """Kills everything with SIGKILL and removes it. May be called at any time, repeatedly."""
        if self.directory is None:
            return
        remove(self.directory)
        for process in self.started.values():
            process.wait()
        self.started = {}
        self.owner.close()
        self.directory = None

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def begin(self):
        raise NotImplementedError

    def spawn(self, name, argv, **environment):
        with open(self.directory / f"{name}.log", "ab") as log:
            self.started[name] = subprocess.Popen(
                [str(each) for each in argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                cwd="/", env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(self.directory)} | environment)

    def await_socket(self, name, seconds=30):
        """Waits for an answer of the program NAME, or for its end."""
        def answers():
            if self.started[name].poll() is not None:
                raise EngineFailed(f"{name} ended with {self.started[name].returncode}:\n{self.log(name)}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                return self.request("GET", "/_ping")[0] == 200
        try:
            wait_until(answers, seconds, f"an answer of {name}")
        except EngineFailed as failure:
            if self.started[name].poll() is None:
                raise EngineFailed(f"{failure}:\n{self.log(name)}") from None
            raise

    def log(self, name, lines=20):
        return "\n".join((self.directory / f"{name}.log").read_text(errors="replace").splitlines()[-lines:])

    # Inventory

    @property
    def name(self):
        return self.directory.name

    @property
    def socket(self):
        return self.directory / "engine.sock"

    def pids(self):
        """Of the engine's programs and of its containers' processes."""
        return sorted(pids_of(self.directory))

    # Its HTTP API

    def request(self, method, path, body=None, timeout=60):
        """(status, answer). BODY is bytes of a tar archive, or something for JSON; so is the answer, or None."""
        connection = UnixConnection(str(self.socket), timeout * PATIENCE)
        with contextlib.closing(connection):
            archive = isinstance(body, bytes)
            connection.request(method, path, body if archive or body is None else json.dumps(body),
                               {"Content-Type": "application/x-tar" if archive else "application/json"})
            answer = connection.getresponse()
            content = answer.read()
            if not answer.getheader("Content-Type", "").startswith("application/json"):
                return answer.status, content or None
            lines = [json.loads(line) for line in content.splitlines() if line.strip()]
            return answer.status, lines[0] if len(lines) == 1 else lines or None

    def ask(self, method, path, body=None, **options):
        """The answer; fails on errors."""
        status, answer = self.request(method, path, body, **options)
        if status >= 400:
            raise EngineFailed(f"{method} {path}: {status} {answer}")
        return answer

    def info(self):
        return self.ask("GET", "/info")

    def containers(self, label=None):
        filters = {"label": [label]} if label else {}
        return self.ask("GET", "/containers/json?all=1&filters=" + urllib.parse.quote(json.dumps(filters)))

    def load_image(self, name, source):
        """An image of one layer: SOURCE is a directory, or a tar archive as a path or as bytes."""
        if not isinstance(source, bytes):
            source = pathlib.Path(source)
            source = directory_tar(source) if source.is_dir() else source.read_bytes()
        # podman ignores a tag given elsewhere.
        self.ask("POST", f"/images/create?fromSrc=-&repo={name}", source, timeout=300)
        return self.ask("GET", f"/images/{name}/json")["Id"]

    def make_small_image(self):
        self.load_image(SMALL, small_tar())
        return SMALL

    def create(self, command, image=SMALL, name=None, **body):
        """Creates a container without starting it. BODY adds members to image and command."""
        query = f"?name={name}" if name else ""
        body["HostConfig"] = {"NetworkMode": "none"} | body.get("HostConfig", {})
        return self.ask("POST", f"/containers/create{query}", {"Image": image, "Cmd": command} | body)["Id"]

    def run(self, command, image=SMALL, **body):
        """(exit code, standard output) of a container, which is then removed."""
        container = self.create(command, image, Tty=True, **body)
        try:
            self.ask("POST", f"/containers/{container}/start")
            code = self.ask("POST", f"/containers/{container}/wait")["StatusCode"]
            output = self.ask("GET", f"/containers/{container}/logs?stdout=1") or b""
            return code, output.decode().replace("\r\n", "\n")
        finally:
            self.request("DELETE", f"/containers/{container}?force=1")

    def init_pid(self, container):
        return self.ask("GET", f"/containers/{container}/json")["State"]["Pid"]


class Engine(Service):
    """containerd and dockerd, with runc and crun.

    userns: userns-remap to 65536 ids from first_id on. config: members of daemon.json, as {"live-restore": True}.
    """

    def __init__(self, userns=False, first_id=1_600_000_000, config=None):
        super().__init__()
        self.config = config or {}
        self.first_id = first_id if userns else None
        self.driver = None

    def begin(self):
        own = {"deprecated-key-path": str(self.directory / "key.json")}
        (self.directory / "daemon.json").write_text(json.dumps(own | self.config))
        # containerd creates /opt/containerd, and an engine does not need the rest.
        off = ["internal.v1.opt", "grpc.v1.cri", "snapshotter.v1.aufs", "snapshotter.v1.btrfs", "snapshotter.v1.zfs",
               "snapshotter.v1.devmapper", "tracing.processor.v1.otlp", "internal.v1.tracing"]
        (self.directory / "containerd.toml").write_text("\n".join([
            "version = 2", f'root = "{self.directory}/containerd"', f'state = "{self.directory}/containerd-state"',
            "disabled_plugins = " + json.dumps(["io.containerd." + name for name in off]),
            f'[grpc]\n  address = "{self.directory}/containerd.sock"', ""]))
        write_crun(self.directory / "crun")
        self.start_containerd()
        for self.driver in ("overlay2", "vfs"):
            try:
                return self.start_dockerd()
            except EngineFailed as failure:
                # Not every file system supports an overlay's upper directory.
                if self.driver == "vfs" or "driver not supported" not in str(failure):
                    raise

    def start_containerd(self):
        self.spawn("containerd", ["/usr/bin/containerd", "--config", self.directory / "containerd.toml"])

    def start_dockerd(self):
        at = self.directory
        (at / "dockerd.pid").unlink(missing_ok=True)  # its pid may belong to another process by now
        argv = ["/usr/sbin/dockerd", "--config-file", at / "daemon.json", "--data-root", at / "data",
                "--exec-root", at / "exec", "--pidfile", at / "dockerd.pid", "-H", f"unix://{self.socket}",
                "--containerd", at / "containerd.sock",
                "--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false",
                "--userland-proxy=false", "--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", f"/{self.name}",
                "--add-runtime", f"crun={at}/crun", "--storage-driver", self.driver]
        if self.first_id is None:
            self.spawn("dockerd", argv)
            return self.await_socket("dockerd")
        with SubordinateIds(self.first_id).written():
            self.spawn("dockerd", argv + ["--userns-remap", SubordinateIds.USER])
            return self.await_socket("dockerd")

    def kill(self):
        """SIGKILL to dockerd only: containerd, shims and containers stay."""
        self.started["dockerd"].kill()
        self.started["dockerd"].wait()

    def restart(self):
        """After kill(), also if containerd was killed."""
        if self.started["containerd"].poll() is not None:
            self.start_containerd()
        self.start_dockerd()

    def dockerd_pid(self):
        return self.started["dockerd"].pid

    def containerd_pid(self):
        return self.started["containerd"].pid

    def shim_pids(self, container=None):
        """The shims of all containers, or of the one with this id."""
        found = []
        for pid in programs_of(self.directory):
            argv = arguments(pid)
            if os.path.basename(argv[0]) == "containerd-shim-runc-v2" and (container is None or container in argv):
                found.append(pid)
        return found


class Podman(Service):
    """podman system service, whose socket speaks Docker's API as well as its own.

    BASE must support an overlay's upper directory, and have 23 letters at most, as podman limits its runroot's length.
    """

    def begin(self):
        at = self.directory
        (at / "tmp").mkdir()
        write_crun(at / "crun", f"--root={at}/crun-state")
        (at / "containers.conf").write_text("\n".join([
            "[containers]", "default_ulimits = " + json.dumps(limits()),
            "[engine]", 'runtime = "crun"', "[engine.runtimes]", f'crun = ["{at}/crun"]', ""]))
        (at / "registries.conf").write_text("unqualified-search-registries = []\n")
        (at / "storage.conf").write_text("\n".join([
            "[storage]", 'driver = "overlay"', f'graphroot = "{at}/root"', f'runroot = "{at}/run"', ""]))
        self.spawn("podman", ["/usr/bin/podman", "--root", at / "root", "--runroot", at / "run", "--tmpdir", at / "tmp",
                              "--cgroup-manager", "cgroupfs", "--events-backend", "file", "system", "service",
                              "--time=0", f"unix://{self.socket}"],
                   CONTAINERS_CONF=str(at / "containers.conf"), CONTAINERS_STORAGE_CONF=str(at / "storage.conf"),
                   CONTAINERS_REGISTRIES_CONF=str(at / "registries.conf"), XDG_RUNTIME_DIR=str(at / "tmp"),
                   TMPDIR=str(at / "tmp"))
        self.await_socket("podman")


def limits():
    """Limits podman's defaults for containers to our own, which root without CAP_SYS_RESOURCE cannot exceed."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    processes = int(pathlib.Path("/proc/sys/kernel/pid_max").read_text())  # podman lowers its own to this
    if resource.getrlimit(resource.RLIMIT_NPROC)[1] != resource.RLIM_INFINITY:
        processes = min(processes, resource.getrlimit(resource.RLIMIT_NPROC)[1])
    return [f"nofile={files}:{files}", f"nproc={processes}:{processes}"]


def write_crun(path, options=""):
    """A script that runs crun. Version 1.8 refuses a host with version 1 and version 2 cgroups if the latter have a
    controller; the script hides these."""
    unified = CGROUPS / "unified"
    hide = ""
    with contextlib.suppress(FileNotFoundError):
        if (unified / "cgroup.controllers").read_text().strip():
            hide = f"/usr/bin/umount {unified} && "
    path.write_text("#!/bin/sh\nexec /usr/bin/unshare --mount --propagation slave /bin/sh -c "
                    f"'{hide}exec /usr/bin/crun {options} \"$@\"' crun \"$@\"\n")
    path.chmod(0o755)


def small_tar():
    """A static busybox with all its names, and the few files that programs expect."""
    busybox = pathlib.Path("/bin/busybox")
    applets = subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True).stdout.split()
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        def add(name, kind, mode, **members):
            member = tarfile.TarInfo(name)
            member.type, member.mode = kind, mode
            for key, value in members.items():
                setattr(member, key, value)
            return member
        for name, mode in {"bin": 0o755, "etc": 0o755, "root": 0o700, "tmp": 0o1777, "usr": 0o755}.items():
            tar.addfile(add(name, tarfile.DIRTYPE, mode))
        for name, text in {"etc/passwd": b"root:x:0:0:root:/root:/bin/sh\n", "etc/group": b"root:x:0:\n"}.items():
            tar.addfile(add(name, tarfile.REGTYPE, 0o644, size=len(text)), io.BytesIO(text))
        program = busybox.read_bytes()
        tar.addfile(add("bin/busybox", tarfile.REGTYPE, 0o755, size=len(program)), io.BytesIO(program))
        for name in applets:
            if name != "busybox":
                tar.addfile(add(f"bin/{name}", tarfile.SYMTYPE, 0o777, linkname="busybox"))
    return content.getvalue()


def directory_tar(directory):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        tar.add(directory, arcname=".")
    return content.getvalue()
