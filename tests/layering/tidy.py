"""Runs clang-tidy with the checks of .clang-tidy. Arguments: source directory, build directory, [FILE...].
Without files: the product's sources that differ from where this branch left origin/main (on main itself: from the
commit before); with MOORAGE_TEST_LONG=1 all of them. Exit status 77 when clang-tidy is not installed."""

import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

LAYERS = ["base", "config", "state_db", "layers", "packs", "repo_cache", "backends", "workspace", "warden", "outpost", "daemon", "cli"]
MOST_FILES = 60  # of the short form: about three minutes on two processors
TIDY = "clang-tidy-14"


def git(root, *words):
    # The sources may belong to another user than the one that runs the tests.
    done = subprocess.run(["git", "-c", f"safe.directory={root}", *words], cwd=root, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def changed(root):
    """Sources that differ from the commit before this work, newest change first. None outside of a repository."""
    head = git(root, "rev-parse", "HEAD")
    base = git(root, "merge-base", "HEAD", "origin/main")
    if base in (None, head):
        base = git(root, "rev-parse", "HEAD~1")
    names = base and git(root, "diff", "--name-only", "--diff-filter=d", base)
    if names is None:
        return None
    files = [root / name for name in names.splitlines() if name.endswith(".cc") and name.split("/")[0] in LAYERS]
    return sorted(files, key=lambda file: file.stat().st_mtime, reverse=True)


def commands_for_clang(build):
    """The compile commands without GCC's precompiled headers, which clang cannot read."""
    entries = json.loads((build / "compile_commands.json").read_text())
    for entry in entries:
        entry["command"] = re.sub(r" -include \S*cmake_pch\.hxx| -Winvalid-pch| -Werror\b", "", entry["command"])
    directory = build / "tidy"
    directory.mkdir(exist_ok=True)
    (directory / "compile_commands.json").write_text(json.dumps(entries))
    return directory, {pathlib.Path(entry["file"]) for entry in entries}


def check(root, database, file):
    return subprocess.run([TIDY, "-quiet", "-p", str(database), str(file)], cwd=root, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def main():
    root, build = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    if not shutil.which(TIDY):
        print(f"SKIPPED: {TIDY} is not installed: apt-get install clang-tidy-14")
        sys.exit(77)
    database, compiled = commands_for_clang(build)
    if sys.argv[3:]:
        files = [pathlib.Path(word).resolve() for word in sys.argv[3:]]
    elif os.environ.get("MOORAGE_TEST_LONG") == "1":
        files = sorted(file for file in compiled for layer in LAYERS if file.is_relative_to(root / layer))
    else:
        files = changed(root)
        if files is None:
            print("SKIPPED: the sources are not in a git repository, so there are no changed files")
            sys.exit(77)
        files = [file for file in files if file in compiled]
        if len(files) > MOST_FILES:
            print(f"{len(files)} files changed; checking the {MOST_FILES} newest (all: MOORAGE_TEST_LONG=1)")
            files = files[:MOST_FILES]
    if not files:
        print("no source of the product changed")
        return
    failed = 0
    shown = set()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for done in pool.map(lambda file: check(root, database, file), files):
            failed += done.returncode != 0
            # A finding in a header comes from each source that includes it.
            for finding in re.split(r"^(?=/\S+:\d+:\d+: (?:error|warning))", done.stdout, flags=re.M):
                if finding not in shown:
                    shown.add(finding)
                    print(finding, end="", flush=True)
    print(f"{len(files)} files, {failed} with findings")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
