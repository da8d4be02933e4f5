#!/usr/bin/env python3
"""Builds a local directory in a workspace, and fetches a directory of results.

    build_elsewhere.py WORKSPACE DIRECTORY COMMAND RESULTS
"""

import os
import sys

import moorage


def main(name: str, directory: str, command: str, results: str) -> int:
    with moorage.Client() as client:
        workspace = client.get(name)
        sent = workspace.files.upload(directory, "job")
        print(f"sent {sent.files} files, {sent.bytes} bytes")
        build = workspace.run(command, cwd="/workspace/job", timeout=1800)
        if not build.ok:
            print(build.stdout, build.stderr, sep="", end="", file=sys.stderr)
            return build.exit_code
        got = workspace.files.download(f"job/{results}", os.path.join(directory, results))
        print(f"got {got.files} files, {got.bytes} bytes")
        return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
