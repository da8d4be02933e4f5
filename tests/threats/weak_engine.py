"""An engine without some of its defenses: a proxy before its socket that requests a different container than the daemon did.

A file, read at each request, lists the disabled defenses, with the names of weaken.cc, which also disables those of
moorage-launch itself (the masks in /proc). Their effects here:

    allowlist, late-policy   no filter of system calls: an engine has one, not two
    capabilities             all capabilities
    proc                     /proc/sys is not read-only
    network, ipc             the namespaces of another container: the host's own would be changed
    devices                  /dev is the host's directory `devices`, not a new one
    slave                    mounts on the workspace's place propagate into `shared`, a mount of the host
"""

import http.server
import json
import pathlib
import socketserver
import sys
import threading

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "engines"))  # last, as it repeats some names
import engine  # noqa: E402

WORKSPACE = "/workspace"


class Running(engine.Service):
    """An engine that is started and stopped elsewhere."""

    def __init__(self, socket):
        super().__init__()
        self.directory = pathlib.Path(socket).parent


class WeakEngine(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, directory, engine_socket, off):
        self.engine = Running(engine_socket)
        self.off = off
        self.devices, self.shared = directory / "devices", directory / "shared"
        self.devices.mkdir()
        self.shared.mkdir()
        self.asked = None  # settings of the last created container
        self.holder = None
        self.trap = None  # target of the /proc link in a container's root, created after the container
        self.path = directory / "weak.sock"
        super().__init__(str(self.path), Request)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self):
        self.shutdown()
        self.server_close()
        if self.holder:
            self.engine.ask("DELETE", f"/containers/{self.holder}?force=1")

    def handle_error(self, *request):
        """A daemon that was killed or stopped waiting reads no answer."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(*request)

    def weaken(self, body):
        """The names of defenses as methods."""
        for word in self.off.read_text().split():
            change = getattr(self, "without_" + word.replace("-", "_"), None)
            if change:
                change(body, body["HostConfig"])

    def without_allowlist(self, _, host):
        host["SecurityOpt"] = [o for o in host["SecurityOpt"] if not o.startswith("seccomp=")] + ["seccomp=unconfined"]

    without_late_policy = without_allowlist

    def without_capabilities(self, _, host):
        host["CapDrop"], host["CapAdd"] = [], ["ALL"]

    def without_proc(self, _, host):
        host["ReadonlyPaths"] = []

    def without_network(self, body, host):
        body["NetworkDisabled"] = False
        del body["Hostname"]
        host["NetworkMode"] = "container:" + self.held()

    def without_ipc(self, _, host):
        del host["ShmSize"]
        host["IpcMode"] = "container:" + self.held()

    def without_devices(self, _, host):
        host["Mounts"].append({"Type": "bind", "Source": str(self.devices), "Target": "/dev"})

    def without_slave(self, _, host):
        del host["Tmpfs"][WORKSPACE]
        host["Mounts"].append({"Type": "bind", "Source": str(self.shared), "Target": WORKSPACE,
                               "BindOptions": {"Propagation": "rshared"}})

    def redirect(self, container):
        """In the container's own part of its root: an engine replaces a link from the image by a directory."""
        upper = pathlib.Path(self.engine.ask("GET", f"/containers/{container}/json")["GraphDriver"]["Data"]["UpperDir"])
        if (upper / "proc").exists():
            (upper / "proc").rmdir()
        (upper / "proc").symlink_to(self.trap)

    def held(self):
        if not self.holder:
            self.holder = self.engine.create(["sleep", "1000000"], HostConfig={"NetworkMode": "none", "IpcMode": "shareable"})
            self.engine.ask("POST", f"/containers/{self.holder}/start")
        return self.holder

    def holder_pid(self):
        return self.engine.init_pid(self.held())


class Request(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        words = self.path.split("?")[0].split("/")
        if words[-1] == "start" and self.server.trap:
            self.server.redirect(words[-2])
        if words[-2:] == ["containers", "create"]:
            wanted = json.loads(body)
            self.server.weaken(wanted)
            self.server.asked = wanted
            body = json.dumps(wanted).encode()
        upstream = engine.UnixConnection(str(self.server.engine.socket), 300 * engine.PATIENCE)
        upstream.request(self.command, self.path, body, {"Content-Type": self.headers.get("Content-Type", "application/json")})
        answer = upstream.getresponse()
        content = answer.read()
        upstream.close()
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = handle_any
