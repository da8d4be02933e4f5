"""The client of the network rows. The bench runs it in a sandbox and, as the peer `direct`, on the host: the same code.

    python3 -c SOURCE MODE HOST PORT ...      prints one JSON value; times are milliseconds

The last three modes speak HTTPS; the others ask network_server.py with one line a request. On port 443 a TLS hello goes first, and the rest is plain bytes:
nobody between the two ends could see the difference.
"""

import hashlib
import json
import random
import socket
import sys
import time

PIECE = 1 << 20


def resolve(host, port):
    return socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)[0][4]


def hello(host, port):
    if port != 443:
        return b""
    import ssl  # slow to load: only where it is needed
    out = ssl.MemoryBIO()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(ssl.MemoryBIO(), out, server_hostname=host)
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return out.read()


def opened(address, first=b""):
    made = socket.create_connection(address)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if first:
        made.sendall(first)
    return made


def since(began_ns):
    return (time.perf_counter_ns() - began_ns) / 1e6


def drain(made, buffer, left):
    while left:
        taken = made.recv_into(buffer)
        if not taken:
            raise SystemExit(f"{left} bytes are missing")
        left -= taken


def first_byte(address, first):
    with opened(address, first + b"get 1\n") as made:
        if made.recv(1) == b"":
            raise SystemExit("the connection ended before its first byte")


def connect(host, port, n):
    """From connect() to the first byte of the answer; the name is resolved before."""
    address, first, times = resolve(host, port), hello(host, port), []
    for _ in range(n):
        began = time.perf_counter_ns()
        first_byte(address, first)
        times.append(since(began))
    return times


def fresh(domain, port, n):
    """The same with names that nobody has resolved yet, from getaddrinfo() on."""
    times = []
    for _ in range(n):
        name = f"n{random.getrandbits(64):x}.{domain}"
        first = hello(name, port)
        began = time.perf_counter_ns()
        first_byte(resolve(name, port), first)
        times.append(since(began))
    return times


def get(host, port, size):
    with opened(resolve(host, port), hello(host, port)) as made:
        buffer = bytearray(PIECE)
        began, left = time.perf_counter_ns(), size
        made.sendall(b"get %d\n" % size)
        drain(made, buffer, left)
        return since(began)


def put(host, port, size):
    with opened(resolve(host, port), hello(host, port)) as made:
        buffer = bytes(PIECE)
        began = time.perf_counter_ns()
        made.sendall(b"put %d\n" % size)
        for at in range(0, size, PIECE):
            made.sendall(buffer[:size - at])
        if made.recv(1) != b"k":
            raise SystemExit("not all bytes arrived")
        return since(began)


def requests(host, port, clients, connections, seconds):
    """A small request a second on each connection, from when all clients have opened theirs."""
    address = resolve(host, port)
    made = [opened(address, hello(host, port)) for _ in range(connections)]
    made[0].sendall(b"meet %d\n" % clients)
    if not made[0].recv(1):
        raise SystemExit("a connection ended")
    begin_at = time.monotonic()
    times = []
    due = sorted((begin_at + second + random.random(), one) for second in range(seconds) for one in range(connections))
    for at, one in due:
        time.sleep(max(0, at - time.monotonic()))
        began = time.perf_counter_ns()
        made[one].sendall(b"get 100\n")
        left = 100
        while left:
            taken = len(made[one].recv(left))
            if not taken:
                raise SystemExit("a connection ended")
            left -= taken
        times.append(since(began))
    return times


def download(host, port, size, rate):
    """Everything at that rate (bytes a second): the time, the longest time without a byte, and the hash."""
    with opened(resolve(host, port), hello(host, port)) as made:
        digest, began, left, longest = hashlib.sha256(), time.perf_counter_ns(), size, 0
        made.sendall(b"get %d %d\n" % (size, rate))
        last = began
        while left:
            piece = made.recv(PIECE)
            if not piece:
                raise SystemExit(f"{left} bytes are missing")
            now = time.perf_counter_ns()
            longest, last, left = max(longest, now - last), now, left - len(piece)
            digest.update(piece)
        return {"ms": since(began), "pause_ms": longest / 1e6, "sha256": digest.hexdigest()}


def secured(address, host):
    """TLS, verified by the authorities in SSL_CERT_FILE."""
    import ssl
    secured.context = getattr(secured, "context", None) or ssl.create_default_context()
    return secured.context.wrap_socket(opened(address), server_hostname=host)


def https_connect(host, port, n):
    """From connect() to the first byte of an answer over TLS; the name is resolved before."""
    address, times = resolve(host, port), []
    for _ in range(n + 1):  # the first loads the authorities
        began = time.perf_counter_ns()
        with secured(address, host) as made:
            made.sendall(b"GET /1 HTTP/1.1\r\nHost: %s\r\n\r\n" % host.encode())
            if not made.recv(1):
                raise SystemExit("the connection ended before its first byte")
            times.append(since(began))
    return times[1:]


def https_get(host, port, size):
    with secured(resolve(host, port), host) as made:
        buffer, head = bytearray(PIECE), b""
        began = time.perf_counter_ns()
        made.sendall(b"GET /%d HTTP/1.1\r\nHost: %s\r\n\r\n" % (size, host.encode()))
        while b"\r\n\r\n" not in head:
            head += made.recv(PIECE)
        left = size - len(head.partition(b"\r\n\r\n")[2])
        drain(made, buffer, left)
        return since(began)


def https_put(host, port, size):
    with secured(resolve(host, port), host) as made:
        buffer = bytes(PIECE)
        began = time.perf_counter_ns()
        made.sendall(b"PUT / HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n" % (host.encode(), size))
        for at in range(0, size, PIECE):
            made.sendall(buffer[:size - at])
        if made.recv(12) != b"HTTP/1.1 200":
            raise SystemExit("not all bytes arrived")
        return since(began)


MODES = {one.__name__: one for one in (connect, fresh, get, put, requests, download, https_connect, https_get, https_put)}

if __name__ == "__main__":
    mode, host, *numbers = sys.argv[1:]
    print(json.dumps(MODES[mode](host, *map(json.loads, numbers))))
