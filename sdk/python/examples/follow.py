#!/usr/bin/env python3
"""Runs a command and shows its output while it comes. Ctrl-C leaves the command running; the second form goes on with it.

    follow.py WORKSPACE COMMAND...
    follow.py ex_5
"""

import sys

import moorage


def main(words: list[str]) -> int:
    client = moorage.Client()
    stream = client.exec(words[0]).output() if len(words) == 1 else client.get(words[0]).stream(words[1:])
    try:
        with stream:
            for chunk in stream:
                print(chunk.text, end="", flush=True, file=sys.stderr if chunk.channel == "stderr" else sys.stdout)
    except moorage.Interrupted as stopped:
        print(f"\nit goes on: follow.py {stopped.exec_id}", file=sys.stderr)
        return 130
    return stream.exit_code or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
