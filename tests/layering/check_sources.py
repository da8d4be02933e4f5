"""Rules beyond the compiler's checks. Argument: the source directory.
- Third-party headers stay in one folder, and out of headers.
- GCC 12 destroys a temporary aggregate or a by-value-capturing lambda inside a co_await expression twice.
- A call that takes from an allowance of the kernel never says that a disk is full (base/error.h).
- Sizes: a header over 150 lines or a source over 500 is split.
- Below a layer, which an agent writes, only base/os/open_beneath.h opens.
- A file that a comment names exists.
"""

import pathlib
import re
import sys

LAYERS = ["base", "config", "state_db", "layers", "packs", "repo_cache", "backends", "workspace", "warden", "outpost", "daemon", "cli"]
HOME = {"archive": "packs", "zstd": "packs", "SQLiteCpp/": "state_db", "git2": "repo_cache", "lxc/": "backends", "yaml-cpp/": "config", "spdlog/": "base"}
ALLOWANCE = re.compile(r"\bcheck\(\s*(?:::)?(unshare(?=\([^)]*CLONE_NEW)|clone|epoll_ctl|inotify_\w+|open_tree|move_mount|fsmount)\(")
CO_AWAIT = re.compile(r"co_await[^;]*?(\{\s*\.\w+\s*=|\[[^\]&=]*\w[^\]]*\]\s*[({])", re.S)

NAMED_FILE = re.compile(r"\b(?:" + "|".join(LAYERS + ["tests"]) + r")/[\w/]+\.(?:h|cc|py|sql)\b")
# Opens relative to a directory, and host paths below an upper directory: use open_beneath.h instead.
PLAIN_OPEN = re.compile(r"\b(openat|open_file_at|SYS_openat2?|openat2)\b|\b(open_file|open_directory|read_file\w*|write_file\w*|list_directory|"
                        r"ifstream|ofstream|fopen|opendir|::open)\s*\([^;]*(/upper/|upper\b[^;]*\+\s*\"/)")
# Not an agent's tree: the replica has its own checks, and its directory is not below the store.
MAY_OPEN = {"workspace/replica/directory.cc"}


def problems(root):
    for layer in LAYERS:
        for path in sorted((root / layer).rglob("*")):
            if path.suffix not in (".h", ".cc"):
                continue
            text = path.read_text()
            name = path.relative_to(root)
            lines = text.count("\n")
            if lines > (150 if path.suffix == ".h" else 500):
                yield f"{name}: {lines} lines"
            for include in re.findall(r'#include <([^>]+)>', text):
                for prefix, home in HOME.items():
                    if include.startswith(prefix) and home != layer:
                        yield f"{name}: <{include}> belongs to {home}/"
                    if include.startswith(prefix) and path.suffix == ".h" and not (root / layer / "launch") in path.parents:
                        # A private header included only by its own layer's sources is fine.
                        users = [p for other in LAYERS if other != layer for p in (root / other).rglob("*")
                                 if p.suffix in (".h", ".cc") and f'"{name}"' in p.read_text()]
                        if users:
                            yield f"{name}: <{include}> reaches {users[0]}"
            if layer in ("layers", "packs", "workspace") and str(name) not in MAY_OPEN:
                for match in PLAIN_OPEN.finditer(re.sub(r"//[^\n]*", "", text)):
                    yield f"{name}: {match.group(0).split(chr(10))[0]}: open it with base/os/open_beneath.h"
            if 'include "config/' in text and layer != "config" and str(name) not in ("daemon/main.cc", "daemon/settings.cc"):
                yield f"{name}: only daemon/main.cc and daemon/settings.cc read the configuration"
            for named in NAMED_FILE.findall(text):
                if not (root / named).exists() and not (root / "tests" / named).exists():
                    yield f"{name}: there is no {named}"
            for match in ALLOWANCE.finditer(text):
                yield f"{name}:{text[:match.start()].count(chr(10)) + 1}: {match[1]} is checked by check_allowance"
            for match in CO_AWAIT.finditer(text):
                yield f"{name}:{text[:match.start()].count(chr(10)) + 1}: name the temporary before co_await"


def main():
    found = list(problems(pathlib.Path(sys.argv[1])))
    print("\n".join(found) or "sources keep the rules")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
