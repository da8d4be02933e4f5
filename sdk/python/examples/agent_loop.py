#!/usr/bin/env python3
"""An agent loop: run the tests, show the model what failed, run what it says, until they pass.

    agent_loop.py REPOSITORY MODEL...     MODEL: a program that reads a prompt and prints a command for the shell

Each turn can be undone: `moorage snapshots NAME`, `moorage restore NAME turn-2`.
"""

import subprocess
import sys

import moorage

PROMPT = "`make test` failed:\n{}\nThe last command printed:\n{}\nPrint one shell command that brings it closer to passing.\n"


def main(url: str, model: list[str]) -> int:
    with moorage.Client() as client:
        workspace = client.create(url)
        with workspace.lease("agent-loop") as held:  # nobody else changes it meanwhile
            printed = "(nothing yet)"
            for turn in range(1, 11):
                tests = held.run("make test 2>&1", timeout=600)
                if tests.ok:
                    print(f"{held.name}: passed after {turn - 1} turns")
                    print(held.diff().decode(errors="replace"), end="")
                    return 0
                held.snapshot(f"turn-{turn}")
                prompt = PROMPT.format(tests.stdout[-4000:], printed)
                command = subprocess.run(model, input=prompt, text=True, stdout=subprocess.PIPE, check=True).stdout.strip()
                try:
                    printed = held.run(command + " 2>&1", timeout=120).stdout[-4000:]
                except moorage.TimeoutError as late:
                    printed = f"{command} took longer than two minutes; {late.exec_id} was ended"
        print(f"{workspace.name}: not after 10 turns")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
