"""Checks that backends/README.md shows the backend that test_example_backend is built with: one file, and one registry
line. Arguments: the source directory, the registry with that line."""

import pathlib
import re
import sys

root = pathlib.Path(sys.argv[1])
readme = (root / "backends/README.md").read_text()
example = (root / "tests/backends/example_backend.cc").read_text()

shown = re.search(r"```cpp\n(.*?)```", readme, re.S)[1]
if shown != example:
    sys.exit("backends/README.md and tests/backends/example_backend.cc differ; make them equal")
if example.count("\n") > 30:
    sys.exit(f"the example has {example.count(chr(10))} lines; at most 30 are allowed")

ours = (root / "backends/registry.cc").read_text().splitlines()
more = pathlib.Path(sys.argv[2]).read_text().splitlines()
added = [line for line in more if line not in ours]
if len(more) != len(ours) + 1 or len(added) != 1:
    sys.exit(f"the example's registry differs by more than one line: {added}")
line = added[0].rstrip("\\ ").strip()
if f"`{line}`" not in readme:
    sys.exit(f"backends/README.md does not show the line {line}")
print(f"one file of {example.count(chr(10))} lines, and one line: {line}")
