#!/usr/bin/env python3
"""Makes the plain client from the async one: moorage/NAME.py from moorage/aio/NAME.py.

    make_plain.py           writes the files
    make_plain.py --check   exits 1 if one of them differs

Only words change (await, async with, AsyncClient...). The two transport.py have the real differences.
"""

import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent / "moorage"
NAMES = ("session", "streams", "execs", "files", "workspace", "hosts", "client")
WORDS = [
    (r"\basync (def|with|for)\b", r"\1"), (r"\bawait ", ""), (r"\bfrom \.\. ", "from . "), (r"\bfrom \.\.(?=\w)", "from ."),
    (r"__a(enter|exit|iter|next)__", r"__\1__"), (r"\bStopAsyncIteration\b", "StopIteration"), (r"\bAsync(?=[A-Z])", ""),
    (r"\bmoorage\.aio\b", "moorage"),
]
NOTE = "# Made from aio/{}.py by make_plain.py. Do not edit it here.\n"


def plain(name):
    text = (HERE / "aio" / f"{name}.py").read_text()
    for word, instead in WORDS:
        text = re.sub(word, instead, text)
    return NOTE.format(name) + text


def main():
    differ = []
    for name in NAMES:
        path, text = HERE / f"{name}.py", plain(name)
        if path.exists() and path.read_text() == text:
            continue
        differ.append(path.name)
        if "--check" not in sys.argv:
            path.write_text(text)
    if differ and "--check" in sys.argv:
        print(f"not made from aio/: {', '.join(differ)}; run {pathlib.Path(__file__).name}")
    sys.exit(bool(differ and "--check" in sys.argv))


if __name__ == "__main__":
    main()
