"""Folders below a layer see each other along one table only: the list `arrows` of the layer's CMakeLists.txt.
Argument: the source directory.
- A row of that table names only folders of the rows above it, so that there is no circle.
- Every #include from one folder of such a layer to another is in the table. `top` is the layer's own folder.
- In workspace/, every room sees context/; layers/ and packs/ only where the table names them.
- A folder has at most 45 files of code.
- No two headers of one layer define a type of the same name.
"""

import collections
import pathlib
import re
import sys

LAYERS = ["base", "config", "state_db", "layers", "packs", "repo_cache", "backends", "workspace", "warden", "outpost", "egress", "link", "daemon", "cli"]
TABLES = ["state_db", "workspace", "daemon", "cli"]
RESTRICTED = ["layers", "packs"]  # layers that the table of workspace/ grants to some of its rooms
SEEN_BY_ALL = {"workspace": "context"}
MOST_FILES = 45

TYPE = re.compile(r"^(?:(?:class|struct)\s+(?:\[\[\w+\]\]\s+)?(\w+)(?:\s+final)?\s*(?::[^:;{][^;{]*)?\{"
                  r"|enum\s+(?:class\s+)?(\w+)[^;{]*\{|using\s+(\w+)\s*=)", re.M)


def arrows(root, layer):
    """{folder or file: the set of folders and files it may include}, from the layer's CMakeLists.txt."""
    listed = re.search(r"^set\(arrows\n(.*?)\)$", (root / layer / "CMakeLists.txt").read_text(), re.M | re.S)
    return {row.split("->")[0].strip(): set(row.split("->")[1].split()) for row in re.findall(r'"([^"]*)"', listed[1])}


def upward(root, layer):
    """Rows of the table that name a folder which stands below them: without those there is no circle."""
    rows = {folder: seen for folder, seen in arrows(root, layer).items() if "/" not in folder}
    for number, (folder, seen) in enumerate(rows.items()):
        for name in seen - set(RESTRICTED):
            if name.split("/")[0] not in list(rows)[:number]:
                yield f"{layer}/CMakeLists.txt: {folder} -> {name}: the row of {name} does not stand above", {folder}


def code(root, layer):
    """(path below the layer, text) of its headers and sources."""
    for path in sorted((root / layer).rglob("*")):
        if path.suffix in (".h", ".cc"):
            yield path.relative_to(root / layer), path.read_text()


def folder_of(path):
    return "/".join(path.parts[:-1]) or "top"


def wrong_arrows(root, layer):
    """{"verbs -> upkeep": the files that include so}"""
    allowed = arrows(root, layer)
    found = collections.defaultdict(set)
    for path, text in code(root, layer):
        folder = folder_of(path)
        if folder not in allowed:
            found[f"{layer}/{folder}: the table of {layer}/CMakeLists.txt does not name it"].add(str(path))
            continue
        granted = allowed[folder] | allowed.get(f"{folder}/{path.name}", set())
        for include in map(pathlib.PurePath, re.findall(r'^#include "([^"]+)"', text, re.M)):
            if include.parts[0] == layer:
                seen = include.relative_to(layer)
                target = folder_of(seen)
                names = {target, f"{target}/{seen.name}"}
            elif layer == "workspace" and include.parts[0] in RESTRICTED:
                target = include.parts[0]
                names = {target}
            else:
                continue
            if target not in (folder, SEEN_BY_ALL.get(layer)) and not names & granted:
                found[f"{layer}/{folder} -> {target}"].add(f"{path}: {include}")
    return found


def double_types(root, layer):
    headers = collections.defaultdict(set)
    for path, text in code(root, layer):
        if path.suffix == ".h":
            for names in TYPE.findall(text):
                headers["".join(names)].add(str(path))
    return {f"{layer}: two types {name}": where for name, where in headers.items() if len(where) > 1}


def large_folders(root):
    for layer in LAYERS:
        counts = collections.Counter(folder_of(path) for path, _ in code(root, layer))
        yield from ((f"{layer}/{folder}: over {MOST_FILES} files", {str(count)})
                    for folder, count in counts.items() if count > MOST_FILES)


def main():
    root = pathlib.Path(sys.argv[1])
    found = dict(large_folders(root))
    for layer in LAYERS:
        found.update(double_types(root, layer))
    for layer in TABLES:
        found.update(upward(root, layer))
        found.update(wrong_arrows(root, layer))
    for what, where in sorted(found.items()):
        print(what, *sorted(where), sep="\n    ")
    if not found:
        print("the folders keep their tables")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
