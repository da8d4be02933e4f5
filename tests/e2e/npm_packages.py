"""Packages from npm at the versions of a package-lock.json: installed into build/, and again only when that file changes.

The registry is needed only then. Install scripts do not run, except those of `rebuild`, which put a program into its
place. `npm ci` would refuse a lock file made with a registry that lacks an optional package for another system;
`npm install` keeps to the lock file as well.
"""

import fcntl
import hashlib
import pathlib
import shutil
import subprocess

BUILD = pathlib.Path(__file__).resolve().parents[2] / "build"
FILES = ("package.json", "package-lock.json")
DEADLINE_S = 600


def npm(directory, *words):
    result = subprocess.run(["npm", *words, "--no-audit", "--no-fund"], cwd=directory, stdin=subprocess.DEVNULL,
                            capture_output=True, timeout=DEADLINE_S)
    if result.returncode != 0:
        errors = result.stderr.decode(errors="replace")[:4000]
        raise AssertionError(f"npm {' '.join(words)}: exit {result.returncode}\n{errors}")


def install(lists, name, rebuild=()):
    """Installs the packages of directory `lists` into build/NAME and returns that, the directory of node_modules."""
    directory = BUILD / name
    directory.mkdir(parents=True, exist_ok=True)
    version = hashlib.sha256(b"".join((lists / file).read_bytes() for file in FILES)).hexdigest()
    stamp = directory / "installed"
    with open(directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several suites run at the same time
        if not stamp.exists() or stamp.read_text() != version:
            stamp.unlink(missing_ok=True)
            shutil.rmtree(directory / "node_modules", ignore_errors=True)
            for file in FILES:
                shutil.copy(lists / file, directory)
            npm(directory, "install", "--ignore-scripts")
            if rebuild:
                npm(directory, "rebuild", *rebuild)
            stamp.write_text(version)
    return directory
