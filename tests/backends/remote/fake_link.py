#!/usr/bin/python3
"""Stands for moorage-link in tests of RemoteBackend. What it shall do is in files of the host's `directory`:

    fail-PATH      its text: POST /moorage/PATH is refused with it ("fail-remove": the program remove)
    status         the answer to GET /moorage/remote
    calls          what it was asked, a line each; it writes this one
    there          names of sandboxes that exist on the machine, a line each; it writes this one, too
"""

import array
import json
import os
import pathlib
import socket
import sys


def option(name):
    return sys.argv[sys.argv.index(name) + 1]


config = json.loads(pathlib.Path(option("--config")).read_text())
place = pathlib.Path(config["settings"]["directory"])
there = place / "there"


def note(call):
    with (place / "calls").open("a") as file:
        file.write(f"{call}\n")


def change_there(change):
    names = set(there.read_text().split()) if there.exists() else set()
    there.write_text("".join(f"{name}\n" for name in sorted(change(names))))


def refusal(call):
    file = place / f"fail-{call}"
    return file.read_text() if file.exists() else None


def answer(method, path):
    if path == "/moorage/protocol":
        return 200, {"oldest": 1, "newest": 1, "release": "fake"}
    if path == "/health":
        return 204, {}
    if path == "/moorage/remote":
        status = place / "status"
        good = {"connected": True, "overlay": "root", "pid_namespace": True, "net_namespace": True, "runs": True,
                "root_inside": True, "limits": [], "behind_ms": 0, "last_pack": 0,
                "restored": 0, "kept_ms": 0, "network": "", "reason": ""}
        return 200, good | (json.loads(status.read_text()) if status.exists() else {})
    call = path.rpartition("/")[2]
    note(call)
    if why := refusal(call):
        return 503, {"code": "unavailable", "message": why, "hint": ""}
    if call == "connect":
        change_there(lambda names: names | {config["name"]})
    if call == "shutdown":
        change_there(lambda names: names - {config["name"]})
    return 200, {}


def serve(listener):
    while True:
        connection, _ = listener.accept()
        request = b""
        while b"\r\n\r\n" not in request:
            piece = connection.recv(65536)
            if not piece:
                break
            request += piece
        head, _, body = request.partition(b"\r\n\r\n")
        size = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0)
        while len(body) < size:
            body += connection.recv(65536)
        if head:
            method, path, _ = head.split(b"\r\n")[0].decode().split(" ")
            status, value = answer(method, path)
            text = json.dumps(value).encode() if status != 204 else b""
            connection.sendall(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n" % (status, len(text)) + text)
            connection.close()
            if path == "/moorage/shutdown" and status == 200:
                sys.exit(0)


def keep():
    with socket.socket(socket.AF_UNIX) as bootstrap:
        bootstrap.connect(option("--bootstrap"))
        bootstrap.sendall(b'{"version":1}\n')
        _, messages, _, _ = bootstrap.recvmsg(1, socket.CMSG_SPACE(4))
    numbers = array.array("i")
    numbers.frombytes(messages[0][2][:4])
    serve(socket.socket(fileno=numbers[0]))


def remove():
    note("remove")
    if why := refusal("remove"):
        sys.exit(why)
    change_there(lambda names: names - {config["name"]})


os.umask(0o077)
remove() if sys.argv[1] == "remove" else keep()
