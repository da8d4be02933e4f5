#!/usr/bin/env python3
"""Run by hand: the cost of verbs with the store on a file system and in an image file on it, and of copies of the tree there.

usage: MOORAGE_BIN=build/dev/bin measure_storage.py: prints the figures of docs/decisions/0314-storage-drivers.md, all of one run.
"""

import pathlib
import statistics
import tempfile
import time

import harness
from harness import run

GIB = 1 << 30
FILES = {f"d{n % 100}/f{n}": f"{n}\n" * 2000 for n in range(5000)}
TIMES = 15
KINDS = {"ext4": ["mkfs.ext4", "-q"], "xfs": ["mkfs.xfs", "-q"], "btrfs": ["mkfs.btrfs", "-q"]}


def median(work, times=TIMES):
    took = []
    for n in range(times):
        begin = time.monotonic()
        work(n)
        took.append((time.monotonic() - begin) * 1000)
    return statistics.median(took)


def verbs(settings, url):
    daemon = harness.Daemon(settings)
    daemon.store = pathlib.Path(settings["store.directory"])
    try:
        client = daemon.start().client
        commit = client.create(repo_url=url, name="one")["base"]["commit"]
        row = {"create": median(lambda n: client.create(repo_url=url, ref=commit, name=f"c{n}"))}

        def change(n):
            client.write_file("one", "changed", str(n).encode())

        def timed(work):
            took = []
            for n in range(TIMES):
                change(n)
                begin = time.monotonic()
                work(n)
                took.append((time.monotonic() - begin) * 1000)
            return statistics.median(took)
        client.exec("one", "true")
        row["live snapshot"] = timed(lambda n: client.snapshot("one"))
        row["live fork"] = timed(lambda n: client.fork("one"))
        row["diff"] = timed(lambda n: client.diff("one"))
        return row
    finally:
        daemon.close()


def main():
    top = pathlib.Path(tempfile.mkdtemp(prefix="moorage-storage-", dir=harness.BASE))
    harness.make_repository(top / "upstream" / "shop", FILES)
    server = harness.GitServer(top / "upstream")
    try:
        for kind, make in KINDS.items():
            place = top / kind
            place.mkdir()
            with open(top / f"{kind}.img", "wb") as file:
                file.truncate(8 * GIB)
            run(*make, top / f"{kind}.img")
            run("mount", "-o", "loop", top / f"{kind}.img", place)
            try:
                run("cp", "-a", top / "upstream" / "shop", place / "tree")
                row = {"cp -a": median(lambda n: run("cp", "-a", place / "tree", place / f"copy{n}"), 5)}
                if kind != "ext4":
                    row["cp --reflink"] = median(lambda n: run("cp", "-a", "--reflink=always", place / "tree", place / f"link{n}"), 5)
                tell(f"{kind}, copies", row)
                tell(f"{kind}, store on it", verbs({"store.directory": str(place / "direct")}, server.url("shop")))
                in_image = {"store.directory": str(place / "mounted"), "store.image": str(place / "store.img"), "store.image_bytes": 3 * GIB}
                tell(f"{kind}, store in an image", verbs(in_image, server.url("shop")))
                run("umount", place / "mounted")
            finally:
                run("umount", place / "mounted", check=False)
                run("umount", place)
    finally:
        server.stop()
        run("rm", "-rf", top)


def tell(name, row):
    print(f"{name:24}", ", ".join(f"{what} {took:.1f} ms" for what, took in row.items()), flush=True)


if __name__ == "__main__":
    main()
