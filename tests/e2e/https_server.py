"""Git over https on loopback, with its own certificate, and a proxy for it."""

import base64
import contextlib
import http.server
import os
import select
import socket
import ssl
import subprocess
import threading

import harness

BACKEND = "/usr/lib/git-core/git-http-backend"
CREDENTIAL = base64.b64encode(b"user:secret").decode()


class Handler(http.server.BaseHTTPRequestHandler):
    """Passes requests to git's CGI program. Paths below /private/ need a credential."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path.startswith("/private/") and self.headers.get("Authorization") != f"Basic {CREDENTIAL}":
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer(subprocess.run([BACKEND], input=body, env=self.cgi_environment(), capture_output=True).stdout)

    do_POST = do_GET

    def cgi_environment(self):
        path, _, query = self.path.partition("?")
        return {
            "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(self.server.directory), "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command, "PATH_INFO": path, "QUERY_STRING": query, "REMOTE_ADDR": "127.0.0.1",
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""), "HOME": "/nonexistent",
            "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*",
        }

    def answer(self, output):
        head, _, body = output.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        self.send_response(int(headers.pop("Status", "200 OK").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class HttpsGitServer:
    """`certificate` is the PEM file that clients must trust."""

    def __init__(self, directory, place):
        self.certificate = place / "certificate.pem"
        key = place / "key.pem"
        harness.run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
                    "-keyout", key, "-out", self.certificate)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.server.directory = directory
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def url(self, name):
        return f"https://127.0.0.1:{self.port}/{name}"

    def stop(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class ConnectProxy:
    """Supports only CONNECT; `asked` lists the targets. `names` has addresses of hosts that it does not resolve."""

    def __init__(self, names=None):
        self.names = names or {}
        self.asked = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._tunnel, args=(client,), daemon=True).start()

    def _tunnel(self, client):
        with client:
            head = b""
            while b"\r\n\r\n" not in head:
                piece = client.recv(4096)
                if not piece:
                    return
                head += piece
            target = head.split()[1].decode()
            self.asked.append(target)
            host, port = target.rsplit(":", 1)
            with contextlib.suppress(OSError), socket.create_connection((self.names.get(host, host), int(port))) as upstream:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                self._pump(client, upstream)

    @staticmethod
    def _pump(client, upstream):
        other = {client: upstream, upstream: client}
        while True:
            for ready in select.select([client, upstream], [], [])[0]:
                data = ready.recv(65536)
                if not data:
                    return
                other[ready].sendall(data)

    def stop(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
