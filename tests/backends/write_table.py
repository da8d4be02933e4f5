"""The tables in docs/backends.md, made from the results of a contract suite run (results.h).

    python3 write_table.py RESULTS            prints them
    python3 write_table.py RESULTS --write    puts them into docs/backends.md
    python3 write_table.py RESULTS --check    fails if docs/backends.md differs, or a promise is not kept

Promises not tested in this run, because an engine or a host feature is missing, stay unchanged on the page."""

import json
import pathlib
import re
import string
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs/backends.md"
COLUMNS = ["fake", "process", "lxc", "docker", "docker-userns", "ssh", "ssh-user", "e2b", "daytona"]
THEMES = {  # in the order of the page
    "contract_life_test.cc": "Names, starts and ends",
    "contract_commands_test.cc": "Commands",
    "contract_terminal_test.cc": "Terminals",
    "contract_limits_test.cc": "Limits",
    "contract_freeze_test.cc": "Freezing, and exchanging mounts",
    "contract_engine_test.cc": "Kills of the engine's own processes",
    "contract_leaks_test.cc": "Leaks",
    "isolation_test.cc": "Isolation",
    "isolation_view_test.cc": "The attacker's view",
}
NOT_YET = "not run"
WORST_FIRST = ["failed", "silent", "passed", "not applicable", "not tried"]  # of several runs of one promise


def between(text, name):
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    start = text.index(begin) + len(begin)
    return start, text.index(end, start)


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def committed(text):
    """{(promise, backend): cell} with reasons instead of letters."""
    start, end = between(text, "results")
    lines = text[start:end].splitlines()
    reasons = dict(re.fullmatch(r"- ([a-z]): (.*)", line).groups() for line in lines if line.startswith("- "))
    found = {}
    for line in lines:
        if not line.startswith("|"):
            continue
        promise, *rest = cells(line)
        for backend, cell in zip(COLUMNS, rest):
            letter = re.fullmatch(r"– \((.)\)", cell)
            found[promise, backend] = ("–", reasons[letter[1]]) if letter else (cell, "")
    return found


def merged(results):
    found = {}
    for each in results["promises"]:
        key = each["promise"], each["backend"]
        if key not in found or WORST_FIRST.index(each["result"]) < WORST_FIRST.index(found[key]["result"]):
            found[key] = each
    return found


def promises_table(results, before):
    found = merged(results)
    places = {each["promise"]: (list(THEMES).index(each["file"]), each["line"]) for each in results["promises"]}
    lines = ["| promise | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    letters, theme = {}, None
    for promise, (number, _) in sorted(places.items(), key=lambda item: item[1]):
        if number != theme:
            theme = number
            lines.append(f"| **{list(THEMES.values())[number]}** |" + " |" * len(COLUMNS))
        row = [promise]
        for backend in COLUMNS:
            cell = told(found.get((promise, backend))) or before.get((promise, backend), (NOT_YET, ""))
            if cell[1]:
                cell = (f"– ({letters.setdefault(cell[1], string.ascii_lowercase[len(letters)])})", "")
            row.append(cell[0])
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines + [""] + [f"- {letter}: {reason}" for reason, letter in letters.items()]) + "\n"


def told(result):
    if not result or result["result"] == "not tried":
        return None
    return {"passed": ("kept", ""), "not applicable": ("–", result["reason"])}.get(result["result"], ("**broken**", ""))


def differences_table(results, text):
    """Probe lines that differ from lxc. Backends that were not run keep the lines on the page."""
    start, end = between(text, "differences")
    run = {each["backend"] for each in results["probe"]}
    rows = {}
    for line in text[start:end].splitlines()[2:]:
        if line.startswith("|") and cells(line)[0] not in run:
            backend, user, *rest = cells(line)
            rows[backend, *rest] = user
    for table in results["probe"]:
        for each in table["differences"]:
            key = table["backend"], f"`{each['listed']}`", each["reason"]
            users = [user for user in rows.get(key, "").split(", ") if user]
            rows[key] = ", ".join(sorted({*users, table["user"]}))
    if not rows:
        return "None so far.\n"
    lines = ["| backend | who | line of the probe | why it differs from lxc |", "|---|---|---|---|"]
    for (backend, line, reason), user in sorted(rows.items()):
        lines.append(f"| {backend} | {user} | {line} | {reason} |")
    return "\n".join(lines) + "\n"


def main():
    results = json.loads(pathlib.Path(sys.argv[1]).read_text())
    text = DOCUMENT.read_text()
    made = text
    for name, table in (("results", promises_table(results, committed(text))), ("differences", differences_table(results, text))):
        start, end = between(made, name)
        made = made[:start] + table + made[end:]
        if len(sys.argv) == 2:
            print(table)
    if "--write" in sys.argv:
        DOCUMENT.write_text(made)
    if "--check" not in sys.argv:
        return
    bad = [f"{backend}: {promise}: {each['result']}" for (promise, backend), each in merged(results).items()
           if each["result"] in ("failed", "silent")]
    if bad:
        sys.exit("\n".join(bad))
    if made != text:
        sys.exit(f"docs/backends.md does not match this run; update it: python3 tests/backends/write_table.py {sys.argv[1]} --write")
    run = [backend for backend in COLUMNS if any(each["backend"] == backend for each in results["promises"])]
    print("docs/backends.md matches the results of " + ", ".join(run))


main()
