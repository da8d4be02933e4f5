"""Compiles `#include "A/x.h"` with the include directories of layer B, for all A and B: it must succeed
if B may use A, and fail otherwise. Arguments: compiler, file of layer=dir:dir... lines."""

import subprocess
import sys
import tempfile

# A header of each layer without other relevant includes.
HEADER = {"base": "base/error.h", "config": "config/settings.h", "state_db": "state_db/lifecycle.h",
          "repo_cache": "repo_cache/url.h", "backends": "backends/cgroups/exec_group.h",
          "layers": "layers/overlay.h", "packs": "packs/frame_reader.h", "workspace": "workspace/context/context.h",
          "daemon": "daemon/http/http_text.h", "cli": "cli/output/text.h"}
SEES = {"base": [], "config": ["base"], "state_db": ["base"], "repo_cache": ["base"], "backends": ["base"],
        "layers": ["base"], "packs": ["base", "layers"],
        "workspace": ["base", "state_db", "layers", "packs", "repo_cache", "backends"],
        "daemon": ["base", "state_db", "layers", "packs", "repo_cache", "backends", "workspace"], "cli": ["base"]}


def compiles(compiler, directories, header):
    with tempfile.NamedTemporaryFile("w", suffix=".cc") as source:
        source.write(f'#include "{header}"\n')
        source.flush()
        flags = [f"-I{d}" for d in directories if d]
        return subprocess.run([compiler, "-std=c++20", "-D_GNU_SOURCE", "-E", *flags, source.name], capture_output=True).returncode == 0


def main():
    compiler, views = sys.argv[1:]
    directories = dict(line.strip().split("=") for line in open(views) if line.strip())
    wrong = []
    for layer, seen in SEES.items():
        for other, header in HEADER.items():
            expected = other == layer or other in seen
            if compiles(compiler, directories[layer].split(":"), header) != expected:
                wrong.append(f"{layer} {'does not see' if expected else 'sees'} {other} ({header})")
    print("\n".join(wrong) or f"{len(SEES) ** 2} pairs right")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
