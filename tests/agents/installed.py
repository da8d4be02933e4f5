"""The coding agents of package-lock.json, in build/agents."""

import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "e2e"))
import npm_packages  # noqa: E402

# Files that no program opens, a third of all, and the packages from which npm took opencode's program.
UNUSED = ("*.map", "*.d.ts", "*.d.mts", "*.d.cts", "opencode-linux-*")
SCRIPTS = ("@anthropic-ai/claude-code", "opencode-ai")


def install():
    """Returns the directory with node_modules in it."""
    return npm_packages.install(HERE, "agents", SCRIPTS)


def copy_into(daemon, workspace):
    """The programs, as ~/agents there."""
    exclude = [f"--exclude={pattern}" for pattern in UNUSED]
    archive = subprocess.Popen(["tar", "-C", install(), "-c", *exclude, "node_modules"], stdout=subprocess.PIPE)
    daemon.cli("exec", workspace, "--", "sh", "-c", "mkdir ~/agents && tar -C ~/agents -x", stdin=archive.stdout)
    archive.stdout.close()
    if archive.wait() != 0:
        raise AssertionError(f"tar: exit {archive.returncode}")
