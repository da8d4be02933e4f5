#!/usr/bin/env python3
"""Several attempts at once, each in a fork; prints the smallest change that passes. Async: no thread waits.

    attempts.py WORKSPACE COUNT TEST COMMAND     COMMAND: for the shell; {i} becomes the number of the attempt
"""

import asyncio
import sys

import moorage
from moorage.aio import AsyncWorkspace


async def attempt(fork: AsyncWorkspace, number: int, command: str, test: str) -> bytes | None:
    """The patch, if the test passes."""
    if not (await fork.run(command.replace("{i}", str(number)), timeout=600)).ok:
        return None
    patch = await fork.diff()
    return patch if (await fork.run(test, timeout=600)).ok else None


async def main(name: str, count: int, test: str, command: str) -> int:
    async with moorage.AsyncClient() as client:
        forks = await (await client.get(name)).fork(count)
        patches = await asyncio.gather(*(attempt(fork, i, command, test) for i, fork in enumerate(forks, 1)))
        passed = sorted((len(patch), i) for i, patch in enumerate(patches) if patch is not None)
        for i, fork in enumerate(forks):
            if not passed or i != passed[0][1]:
                await fork.delete()
        if not passed:
            print("no attempt passed")
            return 1
        best = passed[0][1]
        print(f"{forks[best].name}: the smallest of {len(passed)} that passed; moorage promote {forks[best].name}")
        print((patches[best] or b"").decode(errors="replace"), end="")
        return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])))
