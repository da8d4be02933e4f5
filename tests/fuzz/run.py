"""Runs the fuzz targets: tests/fuzz/run.py BIN [--seconds N] [--target NAME]... [--keep]

Each target starts from its kept corpus (tests/fuzz/corpus/NAME), which it replays first, and works in a scratch
corpus: the kept one changes only with --keep, which adds what was found and makes the whole small again. A crash, a
leak, a hang of 20 s or more than 2 GiB of memory fails the run, and the input is left in build/fuzz/crashes. One line
a target: runs, coverage, inputs that were new. Two targets run at a time, each without network, in its own process
and mount namespaces with a file system in memory: what a target may do, it does to nobody."""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
AT_A_TIME = 2
HANG_S = 20
MEMORY_MB = 2048
KEPT_FILES = 60
SKIPPED = 77  # shown by ctest as skipped

# $1 is the place of the new file system, which contains the target's TMPDIR.
ISOLATED = ["unshare", "--net", "--ipc", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--propagation",
            "private", "sh", "-c", 'mount -t tmpfs -o size=1g,mode=755 fuzz "$1" && shift && exec "$@"', "sh"]


class Target:
    def __init__(self, binary, options, scratch):
        self.binary = binary
        self.name = binary.name.removeprefix("fuzz_")
        self.kept = HERE / "corpus" / self.name
        self.found = scratch / self.name
        self.temporary = scratch / (self.name + ".tmp")
        self.crashes = options.bin.parent / "crashes"
        self.seconds = options.seconds
        self.seed = options.seed
        self.keep = options.keep
        for directory in (self.found, self.temporary, self.crashes):
            directory.mkdir(parents=True, exist_ok=True)

    def command(self, *arguments):
        return [*ISOLATED, str(self.temporary), str(self.binary), f"-timeout={HANG_S}", f"-rss_limit_mb={MEMORY_MB}",
                f"-artifact_prefix={self.crashes}/{self.name}-", "-verbosity=1", *arguments]

    def run(self, *arguments):
        environment = {"PATH": os.environ["PATH"], "TMPDIR": str(self.temporary),
                       "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
        symbolizer = shutil.which("llvm-symbolizer-19")
        if symbolizer:
            environment["ASAN_SYMBOLIZER_PATH"] = symbolizer
        return subprocess.run(self.command(*arguments), env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, errors="replace",
                              timeout=self.seconds + 600)

    def fuzz(self):
        """The line for the target, and the output of a failure."""
        inputs = [str(self.found)] + ([str(self.kept)] if self.kept.is_dir() else [])
        # A longer input of the kept corpus would be cut.
        longest = max([4096, *(file.stat().st_size for file in self.kept.glob("*"))])
        options = [f"-max_total_time={self.seconds}", "-print_final_stats=1", f"-max_len={longest}", "-detect_leaks=1",
                   f"-seed={self.seed}"]
        if (HERE / f"{self.name}.dict").exists():
            options.append(f"-dict={HERE}/{self.name}.dict")
        done = self.run(*options, *inputs)
        runs = re.findall(r"stat::number_of_executed_units:\s*(\d+)", done.stdout)
        coverage = re.findall(r"cov: (\d+)", done.stdout)
        line = (f"{self.name:16} {runs[-1] if runs else '?':>9} runs   coverage {coverage[-1] if coverage else '?':>5}   "
                f"{len(list(self.found.iterdir())):>5} new")
        if done.returncode == 0 and self.keep:
            self.merge()
        return line, None if done.returncode == 0 else done.stdout

    def merge(self):
        """Rewrites the kept corpus: a minimal set of inputs with the same coverage, at most a few dozen."""
        merged = self.temporary.with_suffix(".merged")
        merged.mkdir()
        self.run("-merge=1", str(merged), str(self.kept), str(self.found))
        self.kept.mkdir(parents=True, exist_ok=True)
        smallest = sorted(merged.iterdir(), key=lambda file: (file.stat().st_size, file.name))
        for file in self.kept.glob("[0-9a-f]" * 40):
            file.unlink()
        for file in smallest[:KEPT_FILES]:
            shutil.copy(file, self.kept / file.name)


def show(target):
    line, trouble = target.fuzz()
    print(line if trouble is None else line + "   FAILED", flush=True)
    return (target.name, trouble)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
    parser.add_argument("--target", action="append", default=[])
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    options.bin = options.bin.resolve()
    binaries = [file for file in sorted(options.bin.glob("fuzz_*"))
                if not options.target or file.name.removeprefix("fuzz_") in options.target]
    if not binaries:
        print(f"no fuzz targets in {options.bin}; make them with: cmake --preset fuzz && cmake --build build/fuzz")
        return 1 if os.environ.get("CI") else SKIPPED
    with tempfile.TemporaryDirectory(prefix="moorage-fuzz-") as scratch:
        targets = [Target(binary, options, pathlib.Path(scratch)) for binary in binaries]
        with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as pool:
            results = list(pool.map(show, targets))
    failed = [(name, trouble) for name, trouble in results if trouble is not None]
    for name, trouble in failed:
        print(f"\n== {name}; its input is in {options.bin.parent / 'crashes'}\n{trouble[-6000:]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
