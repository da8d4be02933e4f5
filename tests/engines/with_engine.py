#!/usr/bin/python3
"""Runs a command with private container engines and another machine, and always ends them.

    with_engine.py [--userns|--only-userns|--no-docker] [--podman] [--ssh] [--rented] -- COMMAND...

The command finds their sockets in MOORAGE_TEST_DOCKER_SOCKET, with --userns also MOORAGE_TEST_DOCKER_USERNS_SOCKET,
with --podman also MOORAGE_TEST_PODMAN_SOCKET; with --only-userns the first one is missing. Each has the image of
MOORAGE_TEST_IMAGE. With --ssh, MOORAGE_TEST_SSH_CONFIG is a file for ssh -F that reaches MOORAGE_TEST_SSH_HOST, which has the
files of this host: sandboxes may live in MOORAGE_TEST_SSH_DIRECTORY. The login is root's; with names that begin with
MOORAGE_TEST_SSH_USER it is that of an ordinary user. With --rented, MOORAGE_TEST_E2B_URL, _KEY and _DIRECTORY are those of a
fake of E2B (tests/remote): its URL, the file of its key, and where the files of its machines are; likewise
MOORAGE_TEST_DAYTONA. The file in _PIDFILE in place of _SOCKET has the pid of a dockerd; if the command kills it, it
restarts after a second or two, as with a service manager. The exit code is the command's, or 128 plus the number of
a signal to the command or the wrapper.
"""

import argparse
import contextlib
import json
import os
import signal
import pathlib
import subprocess
import sys
import tempfile

import engine
import remains

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "e2e"), str(TESTS / "remote")]
import fake_daytona  # noqa: E402
import fake_e2b  # noqa: E402
import machine  # noqa: E402
import ssh_host  # noqa: E402

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
PATIENCE_S = 10  # for a command to end


class Interrupted(BaseException):
    pass


def interrupt(number, _):
    for each in SIGNALS:  # one is enough: nothing interrupts the cleanup
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(number)


def wait(process, engines):
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(2)
        for each in engines:
            if isinstance(each, engine.Engine) and each.started["dockerd"].poll() is not None:
                each.restart()


def run(command, environment, engines):
    early = []  # an exception in Popen, after the command began, would leave the command behind
    for number in SIGNALS:
        signal.signal(number, lambda got, _: early.append(got))
    # An ignored signal would stay ignored in the child.
    process = subprocess.Popen(command, env=environment)
    try:
        for number in SIGNALS:
            signal.signal(number, interrupt)
        if early:
            interrupt(early[0], None)
        code = wait(process, engines)
        return code if code >= 0 else 128 - code
    except BaseException:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_S * engine.PATIENCE)
        process.kill()
        process.wait()
        raise


def limits_of(pid):
    """The control groups that hold a sandbox's limits (outpost/inside/limits.h)."""
    with contextlib.suppress(OSError):
        names = [line.rpartition("/")[2] for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
        return [path for name in names if name.startswith("moorage-outpost-")
                for path in [machine.CGROUPS / name, *machine.CGROUPS.glob(f"*/{name}")]]
    return []


def end_sandboxes(directory):
    """Those that a killed command left there: their process 1 and what serves them (outpost/sandbox.h)."""
    pids = [pid for pid in remains.all_pids() if any(str(directory) in each for each in remains.arguments(pid))]
    for record in directory.glob("sandboxes/*/init.json"):
        with contextlib.suppress(OSError, ValueError):
            pid = json.loads(record.read_text())["pid"]
            if pathlib.Path(f"/proc/{pid}/comm").read_text().startswith("moorage"):
                pids.append(pid)
    groups = {path for pid in pids for path in limits_of(pid)}
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for path in groups:
        machine.wait_until(lambda: machine.remove_group(path), f"{path} is empty")  # noqa: B023


@contextlib.contextmanager
def other_machine(variable, number, as_user):
    """Its part of the environment."""
    with tempfile.TemporaryDirectory(prefix="moorage-ssh-", dir=engine.BASE) as directory, \
            contextlib.closing(ssh_host.SshHost(f"{directory}/host", number=number, as_user=as_user)) as host:
        os.chmod(directory, 0o711)
        host.start()
        try:
            yield {f"{variable}_CONFIG": str(host.config), f"{variable}_HOST": host.name,
                   f"{variable}_DIRECTORY": str(host.directory)}
        finally:
            end_sandboxes(host.directory)


@contextlib.contextmanager
def provider(variable, fake):
    """Its part of the environment."""
    with tempfile.TemporaryDirectory(prefix="moorage-rented-", dir=engine.BASE) as directory:
        machines, key = pathlib.Path(directory) / "machines", pathlib.Path(directory) / "key"
        machines.mkdir()
        with fake(machines) as running:
            key.write_text(running.api_key)
            key.chmod(0o600)
            yield {f"{variable}_URL": running.url, f"{variable}_KEY": str(key), f"{variable}_DIRECTORY": str(machines)}


def main():
    parser = argparse.ArgumentParser(description="Runs a command with container engines of its own.")
    parser.add_argument("--userns", action="store_true", help="a second dockerd, with userns-remap")
    parser.add_argument("--only-userns", action="store_true", help="no dockerd but the one with userns-remap")
    parser.add_argument("--no-docker", action="store_true", help="no dockerd")
    parser.add_argument("--podman", action="store_true", help="a podman service, too")
    parser.add_argument("--ssh", action="store_true", help="two machines that only ssh reaches, as root and as a user")
    parser.add_argument("--rented", action="store_true", help="fakes of E2B and Daytona")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()

    engines = {}
    if not options.only_userns and not options.no_docker:
        engines["MOORAGE_TEST_DOCKER_SOCKET"] = engine.Engine()
    if options.userns or options.only_userns:
        engines["MOORAGE_TEST_DOCKER_USERNS_SOCKET"] = engine.Engine(userns=True)
    if options.podman:
        engines["MOORAGE_TEST_PODMAN_SOCKET"] = engine.Podman()
    environment = os.environ | {"MOORAGE_TEST_IMAGE": engine.SMALL}
    for number in SIGNALS:
        signal.signal(number, interrupt)
    try:
        with contextlib.ExitStack() as stack:
            for name, each in engines.items():
                stack.enter_context(each)
                each.make_small_image()
                environment[name] = str(each.socket)
                environment[name.replace("_SOCKET", "_PIDFILE")] = str(each.directory / "dockerd.pid")
            if options.ssh:
                environment |= stack.enter_context(other_machine("MOORAGE_TEST_SSH", 0, False))
                environment |= stack.enter_context(other_machine("MOORAGE_TEST_SSH_USER", 1, True))
            if options.rented:
                environment |= stack.enter_context(provider("MOORAGE_TEST_E2B", fake_e2b.FakeE2B))
                environment |= stack.enter_context(provider("MOORAGE_TEST_DAYTONA", fake_daytona.FakeDaytona))
            return run(options.command, environment, engines.values())
    except Interrupted as interruption:
        return 128 + interruption.args[0]
    except (engine.EngineFailed, AssertionError, FileNotFoundError) as failure:
        print(f"with_engine.py: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
