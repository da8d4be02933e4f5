"""Programs that test_network_tools runs inside a sandbox, each with a loop that tries again, and servers for them.

A program exits with an error at the first failure unless it is started with the word "again".
"""

import base64
import hashlib
import http.server
import struct
import time

NODE = """
const again = process.argv[2] === 'again';
(async () => {
  for (;;) {
    try {
      const answer = await fetch('https://web.example/node');
      process.stdout.write(await answer.text());
      return;
    } catch (error) {
      if (!again) { console.error(error.cause.code); process.exit(1); }
      await new Promise(resolve => setTimeout(resolve, 100));
    }
  }
})();
"""

GO = """
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

func main() {
	for {
		answer, err := http.Get("https://web.example/go")
		if err == nil {
			io.Copy(os.Stdout, answer.Body)
			return
		}
		if len(os.Args) < 2 {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
"""

# RFC 6455: an upgrade, then 1,000 messages there and back, of sizes that take each of the three forms of a length.
WEBSOCKET = r"""
import base64, os, socket, ssl, struct, sys, time

def connect(host, port):
    plain = socket.create_connection((host, port), 20)
    if port != 443:
        return plain
    return ssl.create_default_context(cafile="ca.pem").wrap_socket(plain, server_hostname=host)

def frame(payload):
    mask = os.urandom(4)
    size = len(payload)
    head = bytes([0x82]) + (bytes([0x80 | size]) if size < 126 else
                            bytes([0xfe]) + struct.pack(">H", size) if size < 65536 else bytes([0xff]) + struct.pack(">Q", size))
    return head + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(payload))

def read_frame(stream):
    size = stream.read(2)[1]
    if size == 126:
        size, = struct.unpack(">H", stream.read(2))
    elif size == 127:
        size, = struct.unpack(">Q", stream.read(8))
    return stream.read(size)

def talk(host, port):
    with connect(host, port) as connection:
        key = base64.b64encode(os.urandom(16)).decode()
        connection.sendall(f"GET /echo HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                           f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode())
        with connection.makefile("rb") as stream:
            assert b" 101 " in stream.readline()
            while stream.readline() != b"\r\n":
                pass
            for n in range(1000):
                payload = os.urandom((n, 3000, 70000)[n % 3] if n % 100 < 3 else n % 120)
                connection.sendall(frame(payload))
                assert read_frame(stream) == payload
    print("echoed", n + 1, "at", port)

for port in (443, 80):
    while True:
        try:
            talk("socket.example", port)
            break
        except socket.gaierror as error:
            if sys.argv[1:] != ["again"]:
                sys.exit(str(error))
            time.sleep(0.1)
"""

# wait_for_ready: gRPC itself tries again until it is connected.
GRPC = """
import sys, grpc

again = sys.argv[1:] == ["again"]
credentials = grpc.ssl_channel_credentials(open("ca.pem", "rb").read())
with grpc.secure_channel("grpc.example:443", credentials) as channel:
    try:
        print(channel.unary_unary("/test.Echo/Once")(b"one", timeout=90, wait_for_ready=again).decode())
        for part in channel.stream_stream("/test.Echo/Many")(iter([b"two", b"three"]), timeout=90):
            print(part.decode())
    except grpc.RpcError as error:
        print(error.code(), error.details(), file=sys.stderr)
        sys.exit(error.code().value[0])
"""


class WebSockets(http.server.BaseHTTPRequestHandler):
    """Accepts a WebSocket and returns each message."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.requests.append((self.headers.get("Host"), self.path))
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Connection", "Upgrade")
        self.send_header("Upgrade", "websocket")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(hashlib.sha1(key.encode()).digest()).decode())
        self.end_headers()
        self.close_connection = True
        while head := self.rfile.read(2):
            self.echo(head[0], head[1] & 0x7f)

    def echo(self, kind, size):
        head = bytes([kind, size])
        if size >= 126:
            form = ">H" if size == 126 else ">Q"
            extended = self.rfile.read(struct.calcsize(form))
            head += extended
            size, = struct.unpack(form, extended)
        mask = self.rfile.read(4)
        payload = self.rfile.read(size)
        self.wfile.write(head + bytes(b ^ mask[i % 4] for i, b in enumerate(payload)))


class Events(http.server.BaseHTTPRequestHandler):
    """Server-sent events: `server.count` of them, one every `server.pause_s`."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.server.requests.append((self.headers.get("Host"), self.path))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for n in range(self.server.count):
            self.wfile.write(f"id: {n}\ndata: event {n}\n\n".encode())
            self.server.sent = n + 1
            time.sleep(self.server.pause_s)
