"""Creates the table of threats in docs/security.md from the tests.

    python3 table.py            prints it
    python3 table.py --write    puts it into docs/security.md
    python3 table.py --check    fails if docs/security.md differs, or a required row is missing
"""

import importlib
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
DOCUMENT = HERE.parents[1] / "docs/security.md"
BEGIN, END = "<!-- threats: made by tests/threats/table.py -->\n", "<!-- end of threats -->\n"
# Rows of the threat list that are covered so far.
ROWS = [*range(1, 51), 52, 53, 54, 55, *range(60, 78)]


def tests():
    for path in sorted(HERE.glob("test_*.py")):
        module = importlib.import_module(path.stem)
        for case in vars(module).values():
            if not (isinstance(case, type) and issubclass(case, unittest.TestCase)):
                continue
            for name, function in vars(case).items():
                if hasattr(function, "threat"):
                    yield path.stem, name, function.threat


def table():
    rows = sorted(tests(), key=lambda found: found[2]["row"])
    lines = ["| row | | attack | what happens | shown to be an attack by | test |", "|---|---|---|---|---|---|"]
    for module, name, row in rows:
        cells = [str(row["row"]), row["severity"], row["attack"], row["answer"], row["control"], f"`{module}.{name}`"]
        lines.append("| " + " | ".join(c.replace("|", "\\|").replace("<", "&lt;") for c in cells) + " |")
    found = [row["row"] for _, _, row in rows]
    missing = [row for row in ROWS if row not in found]
    twice = sorted({row for row in found if found.count(row) > 1})
    if missing or twice:
        sys.exit(f"rows without a test: {missing}; rows with more than one: {twice}")
    return "\n".join(lines) + "\n"


def main():
    sys.path.insert(0, str(HERE))
    made = table()
    if len(sys.argv) == 1:
        print(made, end="")
        return
    text = DOCUMENT.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    if sys.argv[1] == "--write":
        DOCUMENT.write_text(text[:begin] + made + text[end:])
    elif text[begin:end] != made:
        sys.exit("docs/security.md has another table than the tests; run: python3 tests/threats/table.py --write")
    else:
        print(f"{len(ROWS)} rows, each with its test")


main()
