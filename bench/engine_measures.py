"""Measures of the backend docker, on the engine of the peers; with their image if a row has a peer."""

import os

import clock
from measures import WARM_UP
from place import harness, say


def in_docker(bench):
    """(engine, running workspace with its image). Without an engine, reports that and returns None."""
    docker = bench.peer("docker")
    if not docker:
        say("  not measured: no engine")
        return None
    workspace = bench.moorage.create(bench.upstream.url, bench.upstream.first, backend="docker", image=docker.IMAGE)
    bench.moorage.start(workspace)
    return docker, workspace


def exec_docker(bench, n=100, by_engine=20):
    """Like `exec` and `exec_cli`: the API against the engine's API, and a process against `docker exec`."""
    if not (made := in_docker(bench)):
        return
    docker, workspace = made
    argv = [str(harness.BIN / "moorage"), "exec", workspace, "--", "true"]
    environment = {"PATH": os.environ["PATH"], "HOME": "/root", "MOORAGE_SOCKET": str(bench.daemon.socket)}
    for _ in range(WARM_UP):
        bench.moorage.exec(workspace, ["true"])
        clock.run_program(argv, environment)
    for i in range(n):
        bench.time("exec_docker", bench.moorage.exec, workspace, ["true"])
        bench.time("exec_docker_cli", clock.run_program, argv, environment)
        if i % (n // by_engine) == 0:
            bench.time("exec_docker/docker_exec_api", docker.exec_api)
            bench.time("exec_docker_cli/docker_exec", docker.exec_cli)
    bench.moorage.purge(workspace)


def start_docker(bench, n=12):
    """Until the warden answers, against an engine that only starts the container and does not check that it runs."""
    if not (made := in_docker(bench)):
        return
    docker, workspace = made
    for i in range(n):
        bench.moorage.stop(workspace)
        bench.time("start_docker", bench.moorage.start, workspace)
        docker.remove(bench.time("start_docker/docker_run", docker.run, f"run-{i}"))
        docker.remove(bench.time("start_docker/docker_run_api", docker.run_api, f"run-api-{i}"))
    bench.moorage.purge(workspace)


def move(bench, n=10):
    """A workspace with an idle sandbox, from lxc to docker and back; image host on both."""
    if not bench.peer("docker"):
        return say("  not measured: no engine")
    workspace = bench.workspace_running()
    for _ in range(n):
        bench.time("move", bench.moorage.move, workspace, "docker")
        bench.time("move_back", bench.moorage.move, workspace, "lxc")
    bench.moorage.purge(workspace)
