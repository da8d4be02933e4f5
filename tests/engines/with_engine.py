#!/usr/bin/python3
"""Runs a command with private container engines, and always ends them.

    with_engine.py [--userns|--only-userns] [--podman] -- COMMAND...

The command finds their sockets in MOORAGE_TEST_DOCKER_SOCKET, with --userns also MOORAGE_TEST_DOCKER_USERNS_SOCKET,
with --podman also MOORAGE_TEST_PODMAN_SOCKET; with --only-userns the first one is missing. Each has the image of MOORAGE_TEST_IMAGE. The file in _PIDFILE in
place of _SOCKET has the pid of a dockerd; if the command kills it, it restarts after a second or two, as with
a service manager. The exit code is the command's, or 128 plus the number of a signal to the command or the wrapper.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys

import engine

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


def main():
    parser = argparse.ArgumentParser(description="Runs a command with container engines of its own.")
    parser.add_argument("--userns", action="store_true", help="a second dockerd, with userns-remap")
    parser.add_argument("--only-userns", action="store_true", help="no dockerd but the one with userns-remap")
    parser.add_argument("--podman", action="store_true", help="a podman service, too")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()

    engines = {}
    if not options.only_userns:
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
            return run(options.command, environment, engines.values())
    except Interrupted as interruption:
        return 128 + interruption.args[0]
    except (engine.EngineFailed, FileNotFoundError) as failure:
        print(f"with_engine.py: {failure}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
