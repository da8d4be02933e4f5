#!/usr/bin/env python3
"""The tiers of the tests. ./check runs the short one, ./check --all all of them.

    tests/tiers.py list                 every test with its tier, its seconds and its purpose
    tests/tiers.py short                the short tier as a pattern for ctest -R
    tests/tiers.py verify BUILD         exit 1 unless tiers.txt, ctest and the files below tests/ name the same tests
"""

import json
import pathlib
import re
import subprocess
import sys

TESTS = pathlib.Path(__file__).resolve().parent
TIERS = ("short", "all")


def table():
    """[(name, tier, seconds, why)], in the order of tiers.txt."""
    rows = []
    for line in (TESTS / "tiers.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, tier, seconds, why = line.split(maxsplit=3)
            if tier not in TIERS:
                raise SystemExit(f"tiers.txt: {name}: the tier must be one of {', '.join(TIERS)}, not {tier}")
            rows.append((name, tier, int(seconds), why))
    return rows


def print_list():
    rows = table()
    width = max(len(name) for name, *_ in rows)
    for name, tier, seconds, why in rows:
        print(f"{name:{width}}  {tier:5}  {f'{seconds} s' if seconds else '?':>6}  {why}")
    for tier in TIERS:
        chosen = [seconds for _, its, seconds, _ in rows if tier == "all" or its == tier]
        print(f"./check{' --all' if tier == 'all' else ''}: {len(chosen)} tests, {sum(chosen) / 60:.0f} minutes one after the other")


def print_short():
    print("^(" + "|".join(re.escape(name) for name, tier, *_ in table() if tier == "short") + ")$")


def problems(build):
    listed = [name for name, *_ in table()]
    for name in sorted({name for name in listed if listed.count(name) > 1}):
        yield f"tiers.txt: {name} is listed twice"
    tests = json.loads(subprocess.run(["ctest", "--show-only=json-v1"], cwd=build, check=True, capture_output=True).stdout)["tests"]
    present = {test["name"] for test in tests}
    for name in sorted(present - set(listed)):
        yield f"tiers.txt: {name} is missing: add a line for it"
    for name in sorted(set(listed) - present):
        yield f"tiers.txt: test {name} does not exist: remove its line"
    compiled = {entry["file"] for entry in json.loads((build / "compile_commands.json").read_text())}
    for file in sorted(TESTS.rglob("*_test.cc")):
        if str(file) not in compiled:
            yield f"{file.relative_to(TESTS.parent)}: no test program compiles it"
    run = {(directory, word) for test in tests for word in test.get("command", [])
           for directory in [prop["value"] for prop in test["properties"] if prop["name"] == "WORKING_DIRECTORY"]}
    for file in sorted(TESTS.glob("*/test_*.py")):
        if (str(file.parent), file.stem) not in run:
            yield f"{file.relative_to(TESTS.parent)}: no test runs it"


def main():
    match sys.argv[1:]:
        case ["list"]:
            print_list()
        case ["short"]:
            print_short()
        case ["verify", build]:
            found = list(problems(pathlib.Path(build)))
            print("\n".join(found) or "every test is in a tier, every test file is built and run")
            sys.exit(bool(found))
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
