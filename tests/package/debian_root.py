"""A clean Debian for installing packages: its own root, in a private mount namespace, with this kernel. Created once by
debootstrap from the mirror of this host's apt; kept in /var/cache, and only changed through an overlay.
"""

import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

CACHE = pathlib.Path("/var/cache/moorage-tests")
# Dependencies and recommendations of the packages, so that no test waits for the network; and readers for their files.
PACKAGES = ("apparmor,git,liblxc-common,libboost-json1.81.0,libgit2-1.5,liblxc1,libseccomp2,libsqlite3-0,libssl3,libyaml-cpp0.7,"
            "ca-certificates,openssh-client,python3,sudo,man-db,zsh,fish")
# Runs as the first process of the namespace: its root is a real /, as LXC requires, not a chroot.
ENTER = """
if [ "$3" = copy ]; then
  cp -a "$1/." "$2/root"; mount --bind "$2/root" "$2/root"
else
  mount -t overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" overlay "$2/root"
fi
cd "$2/root"
mkdir -p var/lib/moorage var/tmp; mount --bind "$2/store" var/lib/moorage
mount --rbind /sys sys; mount --rbind /dev dev; mount -t proc proc proc; mount -t tmpfs -o mode=755 tmpfs run
pivot_root . .; umount -l .
exec /bin/sh -c 'echo ready; exec sleep infinity' <&- 2>/dev/null
"""


def run(*argv, **options):
    result = subprocess.run([str(a) for a in argv], capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)
    if result.returncode != 0:
        raise AssertionError(f"{argv}: exit {result.returncode}\n{result.stdout[-4000:]}\n{result.stderr[-4000:]}")
    return result.stdout


def codename():
    release = dict(l.split("=", 1) for l in pathlib.Path("/etc/os-release").read_text().splitlines() if "=" in l)
    return release["VERSION_CODENAME"].strip('"')


def mirror():
    targets = run("apt-get", "indextargets", "--format", "$(CODENAME) $(COMPONENT) $(REPO_URI)", "Created-By: Packages")
    for line in targets.splitlines():
        name, component, uri = line.split()
        if (name, component) == (codename(), "main"):
            return uri
    raise AssertionError(f"apt has no source for {codename()} main")


def environment():
    proxy = run("apt-config", "shell", "proxy", "Acquire::http::Proxy").strip().removeprefix("proxy=").strip("'")
    return {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", **({"http_proxy": proxy} if proxy else {})}


def image():
    """The directory, created if missing."""
    key = hashlib.sha256(f"{codename()} {PACKAGES}".encode()).hexdigest()[:12]
    place = CACHE / f"{codename()}-{key}"
    if place.exists():
        return place
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as directory:
        root = pathlib.Path(directory, "root")
        run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", codename(), root, mirror(), env=environment())
        for archive in (root / "var/cache/apt/archives").glob("*.deb"):
            archive.unlink()
        # Like in a container, or on a host where packages must not start services.
        policy = root / "usr/sbin/policy-rc.d"
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
        # A test needs neither a safe disk nor the index of manual pages.
        (root / "etc/dpkg/dpkg.cfg.d/unsafe-io").write_text("force-unsafe-io\n")
        (root / "var/lib/man-db/auto-update").unlink(missing_ok=True)
        os.rename(root, place)
    return place


class DebianRoot:
    def __init__(self, base, copy=False):
        """`copy`: instead of an overlay, whose files cannot be mounted with mapped ids in a sandbox."""
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="moorage-package-", dir=base))
        for name in ("upper", "work", "root", "store"):
            (self.directory / name).mkdir()
        (self.directory / "store").chmod(0o700)
        self.keeper = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "--", "sh", "-ec", ENTER, "enter",
                                        str(image()), str(self.directory), "copy" if copy else ""], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                       start_new_session=True)
        if self.keeper.stdout.readline() != "ready\n":
            raise AssertionError(f"no root: {self.keeper.stderr.read()}")
        self.path = pathlib.Path(f"/proc/{self.keeper.pid}/root")

    def argv(self, *argv):
        return ["nsenter", f"--mount=/proc/{self.keeper.pid}/ns/mnt", f"--root=/proc/{self.keeper.pid}/root",
                "--", "env", "-i", "--chdir=/", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root",
                "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", *map(str, argv)]

    def run(self, *argv, check=True, **options):
        options.setdefault("stdin", subprocess.DEVNULL)
        result = subprocess.run(self.argv(*argv), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
        if check and result.returncode != 0:
            raise AssertionError(f"{argv}: exit {result.returncode}\n{result.stdout[-4000:]}\n{result.stderr[-4000:]}")
        return result

    def shell(self, script, **options):
        return self.run("bash", "-ec", script, **options).stdout

    def start(self, *argv, log):
        with open(log, "ab") as file:
            return subprocess.Popen(self.argv(*argv), stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True)

    def close(self):
        os.kill(self.keeper.pid, signal.SIGKILL)
        self.keeper.wait()
        self.keeper.stdout.close()
        self.keeper.stderr.close()
        subprocess.run(["chattr", "-R", "-f", "-a", self.directory / "store"], check=False)
        shutil.rmtree(self.directory, ignore_errors=True)
