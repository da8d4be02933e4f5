"""Duration of create, start and exec in this machine: three of the bench's measures over a small tree, for information.

Prints medians; asserts nothing. Also prints `moorage info`.
"""

import contextlib
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import api  # noqa: E402
import clock  # noqa: E402
import measures  # noqa: E402
import place  # noqa: E402
from place import harness  # noqa: E402


def main():
    with contextlib.ExitStack() as stack:
        daemon = place.Daemon()
        stack.callback(daemon.close)
        tree = daemon.directory / "tree"
        harness.make_repository(tree, {f"src/{i}.txt": f"{i}\n" for i in range(200)})
        upstream = stack.enter_context(contextlib.closing(place.Upstream(tree, daemon.directory)))
        daemon.start()
        print(daemon.cli("info").stdout.decode())
        moorage = stack.enter_context(contextlib.closing(api.Moorage(daemon.socket)))
        nobody = {"docker": lambda: None, "lxc": lambda: None}
        bench = measures.Bench(daemon, upstream, moorage, nobody)
        moorage.purge(bench.create())
        measures.create(bench, n=10, checked=3)
        measures.start(bench, n=5)
        measures.exec(bench, n=20)
        for name, samples in sorted(bench.samples.items()):
            print(f"{name:<14}{len(samples):>4} times, p50 {clock.percentile(samples, 50):7.1f} ms")


if __name__ == "__main__":
    main()
