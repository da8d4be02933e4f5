"""The coding agents of package-lock.json, as npm installs them: once for each change of that file, into build/agents.

Needs the registry only then. Install scripts do not run, except those that put a program into its place. `npm ci`
would refuse a lock file made with a registry that lacks an optional package for another system; `npm install`
keeps to the lock file as well.
"""

import fcntl
import hashlib
import pathlib
import shutil
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
DIRECTORY = HERE.parents[1] / "build/agents"
FILES = ("package.json", "package-lock.json")
# Files that no program opens, a third of all, and the packages from which npm took opencode's program.
UNUSED = ("*.map", "*.d.ts", "*.d.mts", "*.d.cts", "opencode-linux-*")
SCRIPTS = ("@anthropic-ai/claude-code", "opencode-ai")
DEADLINE_S = 600


def npm(*words):
    result = subprocess.run(["npm", *words, "--no-audit", "--no-fund"], cwd=DIRECTORY, stdin=subprocess.DEVNULL,
                            capture_output=True, timeout=DEADLINE_S)
    if result.returncode != 0:
        errors = result.stderr.decode(errors="replace")[:4000]
        raise AssertionError(f"npm {' '.join(words)}: exit {result.returncode}\n{errors}")


def install():
    """Returns the directory with node_modules in it."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    version = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in FILES)).hexdigest()
    stamp = DIRECTORY / "installed"
    with open(DIRECTORY / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the suites of several backends run at the same time
        if not stamp.exists() or stamp.read_text() != version:
            stamp.unlink(missing_ok=True)
            shutil.rmtree(DIRECTORY / "node_modules", ignore_errors=True)
            for name in FILES:
                shutil.copy(HERE / name, DIRECTORY)
            npm("install", "--ignore-scripts")
            npm("rebuild", *SCRIPTS)
            stamp.write_text(version)
    return DIRECTORY


def copy_into(daemon, workspace):
    """The programs, as ~/agents there."""
    exclude = [f"--exclude={pattern}" for pattern in UNUSED]
    archive = subprocess.Popen(["tar", "-C", install(), "-c", *exclude, "node_modules"], stdout=subprocess.PIPE)
    daemon.cli("exec", workspace, "--", "sh", "-c", "mkdir ~/agents && tar -C ~/agents -x", stdin=archive.stdout)
    archive.stdout.close()
    if archive.wait() != 0:
        raise AssertionError(f"tar: exit {archive.returncode}")
