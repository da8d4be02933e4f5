"""The API as the suites use it: one method a route, answers as the JSON that the daemon sent.

Suites verify that JSON itself, repeat keys and cut connections, so they do not use the Python package, which has suites
of its own (test_sdk.py). Every call raises ApiError (code, message, hint) when the daemon refuses, and OSError when it
is unreachable. No call is repeated. Several threads may share a client: each call has its own connection.
"""

import base64
import dataclasses
import http.client
import json
import os
import socket
import struct
import subprocess
import tempfile
import threading
import urllib.parse
import uuid

DEFAULT_SOCKET = "/run/moorage/mooraged.sock"
OUTPUT_TYPE = "application/vnd.moorage.output"
NDJSON_TYPE = "application/x-ndjson"

# Kinds of records in an output stream.
STDOUT, STDERR, TERMINAL, KEEP_ALIVE, LIMIT, END, POSITION, ERROR = range(1, 9)
OUTPUT_KINDS = (STDOUT, STDERR, TERMINAL)
PIECE_BYTES = 1 << 20


class ApiError(Exception):
    """The daemon refused. `code` is an error code of docs/openapi.yaml ("not_found", "conflict"...)."""

    def __init__(self, code, message, hint="", status=0):
        super().__init__(message)
        self.code, self.message, self.hint, self.status = code, message, hint, status


@dataclasses.dataclass
class ExecResult:
    exec: dict          # the exec's record at its end
    stdout: bytes
    stderr: bytes       # empty with a terminal: it has one stream
    gaps: tuple = ()    # in both streams together: (first missing byte, next kept byte)

    @property
    def exit_code(self):
        """As in the CLI: the command's own, 128 + signal, 124 timed out, 125 interrupted, 130 canceled, 137 OOM."""
        state = self.exec["state"]
        if state == "exited":
            return self.exec["exit_code"]
        if state == "signalled":
            return 128 + self.exec["signal"]
        return {"timed_out": 124, "cancelled": 130, "oom_killed": 137}.get(state, 125)


class RawOutput(bytes):
    """The kept output of a command. `gaps`: (first missing byte, next kept byte)."""

    gaps = ()


class _Connection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _lines(response):
    try:
        yield from response
    except http.client.HTTPException as error:
        raise ConnectionError("the answer was cut off") from error


class Stream:
    """An open answer to read piece by piece. Close it, or use it in `with`."""

    def __init__(self, connection, response):
        self.connection, self.response = connection, response

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.connection.close()

    def read(self, size=None):
        """size bytes (fewer at the end), or all. ConnectionError: the daemon closed before the end."""
        try:
            return self.response.read(size)
        except http.client.HTTPException as error:
            raise ConnectionError("the answer was cut off") from error


class OutputStream(Stream):
    """Records of an exec's output: iterate over (kind, payload). A later stream continues at `offset`."""

    def __init__(self, connection, response):
        super().__init__(connection, response)
        self.exec_id = response.getheader("Moorage-Exec")
        self.offset = 0
        self.gaps = ()       # so far: (first missing byte, next kept byte)
        self.end = None      # the exec's record after the end of the stream

    def _exactly(self, size):
        data = b""
        while len(data) < size:
            piece = self.read(size - len(data))
            if not piece:
                raise ConnectionError("the output stream was cut off")
            data += piece
        return data

    def __iter__(self):
        while True:
            kind, size = struct.unpack(">B3xI", self._exactly(8))
            payload = self._exactly(size)
            if kind in OUTPUT_KINDS:
                self.offset += size
            elif kind == POSITION:
                place = json.loads(payload)
                if "gap" in place:
                    self.gaps += ((self.offset, place["offset"]),)
                self.offset = place["offset"]
            elif kind == END:
                self.end = json.loads(payload)
                return
            elif kind == ERROR:
                error = json.loads(payload)
                raise ApiError(error["code"], error["message"], error.get("hint", ""))
            if kind != KEEP_ALIVE:
                yield kind, payload


def _quoted(name):
    """A name as one path segment, whatever characters it has."""
    return urllib.parse.quote(str(name), safe="")


def _kept_lease(socket_path, named):
    """The token for MOORAGE_LEASE; "ws_12.5" names one that `moorage lease acquire` saved for this user."""
    if not named or named.count(".") != 1 or "/" in named:
        return named
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    try:
        with open(os.path.join(state, "moorage/leases", _quoted(socket_path), named)) as kept:
            return kept.readline().strip()
    except OSError:
        return named  # the daemon explains the problem


class Client:
    def __init__(self, socket_path=None, timeout=None):
        """timeout: seconds of silence after which a call gives up; None: wait forever."""
        self.socket_path = socket_path or os.environ.get("MOORAGE_SOCKET", DEFAULT_SOCKET)
        self.timeout = timeout
        self.lease_token = _kept_lease(self.socket_path, os.environ.get("MOORAGE_LEASE"))

    # -- transport ----------------------------------------------------------------------------------

    def _open(self, method, path, query=None, body=None, accept="application/json", key=None,
              content_type="application/octet-stream", headers=None):
        """Sends a request and returns (connection, response); raises on an error status."""
        query = {k: v for k, v in (query or {}).items() if v is not None}
        target = "/v1" + path + ("?" + urllib.parse.urlencode(query) if query else "")
        headers = {"Accept": accept, **(headers or {})}
        if self.lease_token:  # reading needs none, but an export may stop commands
            headers["Moorage-Lease"] = self.lease_token
        if method in ("POST", "PUT", "PATCH", "DELETE"):
            headers["Idempotency-Key"] = key or uuid.uuid4().hex
        if body is not None:
            headers["Content-Type"] = content_type
        connection = _Connection(self.socket_path, self.timeout)
        try:
            try:
                connection.request(method, target, body=body, headers=headers,
                                   encode_chunked=hasattr(body, "__next__") or hasattr(body, "read"))
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused before the body was read: the answer has the reason
            try:
                response = connection.getresponse()
            except http.client.HTTPException as error:
                raise ConnectionError("the daemon closed the connection without an answer") from error
            if response.status >= 400:
                raise self._error(response)
            return connection, response
        except BaseException:
            connection.close()
            raise

    @staticmethod
    def _error(response):
        raw = response.read()
        try:
            error = json.loads(raw)
            return ApiError(error["code"], error["message"], error.get("hint", ""), response.status)
        except (ValueError, KeyError, TypeError):
            return ApiError("internal", f"HTTP {response.status}: {raw[:200]!r}", "", response.status)

    def request(self, method, path, query=None, json_body=None, body=None, key=None, headers=None):
        """One call. Returns the decoded JSON answer, or None without a body."""
        content_type = "application/octet-stream"
        if json_body is not None:
            body, content_type = json.dumps(json_body).encode(), "application/json"
        connection, response = self._open(method, path, query, body, key=key, content_type=content_type, headers=headers)
        with Stream(connection, response) as stream:
            raw = stream.read()
        return json.loads(raw) if raw else None

    def _long(self, method, path, json_body, progress, key):
        if progress is None:
            return self.request(method, path, json_body=json_body, key=key)
        body = json.dumps(json_body).encode() if json_body is not None else None
        connection, response = self._open(method, path, None, body, NDJSON_TYPE, key, "application/json")
        with Stream(connection, response):
            for line in _lines(response):
                item = json.loads(line)
                if "progress" in item:
                    progress(item["progress"])
                elif "error" in item:
                    raise ApiError(item["error"]["code"], item["error"]["message"], item["error"].get("hint", ""))
                else:
                    return item["result"]
        raise ConnectionError("the answer was cut off")

    # -- the daemon ---------------------------------------------------------------------------------

    def health(self):
        """None; in rescue mode {"rescue": reason}: only info, workspaces, doctor and rescue_export then work, for root."""
        return self.request("GET", "/health")

    def rescue_export(self, workspace):
        """In rescue mode: a Stream of everything on disk of a workspace, a zstd-compressed tar. Close it."""
        return Stream(*self._open("GET", f"/rescue/workspaces/{_quoted(workspace)}", accept="*/*"))

    def info(self):
        return self.request("GET", "/info")

    def config(self):
        return self.request("GET", "/config")

    def disk_usage(self, workspace=None):
        """Disk use, measured now: {workspaces, repos, complete, as_of}; for root also {store, space}."""
        return self.request("GET", "/du", {"workspace": workspace})

    def gc_plan(self):
        """Everything that gc would remove or keep, with the reason for each row."""
        return self.request("GET", "/gc")

    def gc_run(self, key=None, **fields):
        """Runs gc; `until_free_bytes` stops it early. Root only."""
        return self.request("POST", "/gc", json_body=fields, key=key)

    def top(self, mine=False):
        """Current activity of the workspaces. For CPU use, divide the difference of sandbox.cpu_us by that of boot_us."""
        return self.request("GET", "/top", {"mine": 1 if mine else None})

    def doctor(self, fix=False, deep=False):
        """Differences between the store and the database: {clean, findings}. With fix, makes safe repairs."""
        if fix:
            return self.request("POST", "/doctor", json_body={"deep": deep})
        return self.request("GET", "/doctor", {"deep": 1 if deep else None})

    def events(self, since=0, follow=False):
        """Iterates over events as dicts; with follow it never ends by itself."""
        connection, response = self._open("GET", "/events", {"since": since, "follow": 1 if follow else None},
                                          accept=NDJSON_TYPE)
        with Stream(connection, response):
            for line in _lines(response):
                if line.strip():
                    yield json.loads(line)

    # -- repositories -------------------------------------------------------------------------------

    def add_repo(self, url, progress=None, key=None):
        return self._long("POST", "/repos", {"url": url}, progress, key)

    def repos(self):
        return self.request("GET", "/repos")

    def repo(self, repo):
        return self.request("GET", f"/repos/{_quoted(repo)}")

    def fetch(self, repo, progress=None, key=None):
        return self._long("POST", f"/repos/{_quoted(repo)}/fetch", None, progress, key)

    def delete_repo(self, repo, key=None):
        self.request("DELETE", f"/repos/{_quoted(repo)}", key=key)

    def import_tips(self, label):
        return self.request("GET", "/repos/import", {"label": label})["tips"]

    def import_bundle(self, label, bundle, key=None):
        """bundle: bytes, or an open binary file."""
        return self.request("POST", "/repos/import", {"label": label}, body=bundle, key=key)

    # -- workspaces ---------------------------------------------------------------------------------

    def create(self, progress=None, key=None, **fields):
        """fields: repo_url or import_, name, ref, branch, labels, limits, backend, image, disposable, and those of
        update()."""
        if "import_" in fields:
            fields["import"] = fields.pop("import_")
        return self._long("POST", "/workspaces", fields, progress, key)

    def workspaces(self, deleted=False):
        """All workspaces, by id; each_workspace() does not hold all in memory."""
        return list(self.each_workspace(deleted))

    def each_workspace(self, deleted=False, page=None):
        """Iterates over workspaces by id; requests each page (of 1000, or `page`) when needed."""
        after = None
        while True:
            answer = self.workspace_page(deleted, after, page)
            yield from answer["workspaces"]
            after = answer.get("next")
            if after is None:
                return

    def workspace_page(self, deleted=False, after=None, limit=None):
        """{workspaces, store, next}: workspaces after the id `after`; `next`, if present, is `after` for the next page."""
        return self.request("GET", "/workspaces", {"deleted": 1 if deleted else None, "after": after, "limit": limit})

    def workspace(self, workspace):
        return self.request("GET", f"/workspaces/{_quoted(workspace)}")

    def update(self, workspace, key=None, **fields):
        """Changes its policy; fields as in create: limits (any of memory_bytes, cpus, pids, disk_bytes, disk_files),
        idle_stop_s, max_lifetime_s (seconds; 0: never, -1: as the daemon's settings say), pre_stop (words, or one text for
        the shell), pre_stop_deadline_s, max_exec_s, max_execs, max_exec_total_s (0: no limit), pinned, caches,
        snapshot_before_exec, snapshot_on_stop, snapshot_every_s (0: never)."""
        return self.request("PATCH", f"/workspaces/{_quoted(workspace)}", json_body=fields, key=key)

    def start(self, workspace, key=None):
        return self.request("POST", f"/workspaces/{_quoted(workspace)}/start", key=key)

    def stop(self, workspace, hook=True, force=False, wait_ms=0, key=None):
        """hook: run its pre_stop first; the answer's "notice" reports its failure. Waits for running commands up to
        wait_ms, or ends them (force); otherwise running commands are an error that names them."""
        body = {k: v for k, v in (("no_hook", not hook), ("force", force), ("wait_ms", wait_ms)) if v}
        return self.request("POST", f"/workspaces/{_quoted(workspace)}/stop", json_body=body or None, key=key)

    def move(self, workspace, backend=None, image=None, runtime=None, now=False, wait_ms=0, check=False, key=None):
        """Moves it to another backend, image or runtime. Waits for running commands up to wait_ms (at most 60000), or
        cancels them (now). check: only show the effect."""
        body = {k: v for k, v in (("backend", backend), ("image", image), ("runtime", runtime)) if v is not None}
        if check:
            return self.request("POST", f"/workspaces/{_quoted(workspace)}/move/check", json_body=body, key=key)
        return self.request("POST", f"/workspaces/{_quoted(workspace)}/move", json_body={**body, "now": now, "wait_ms": wait_ms}, key=key)

    def delete(self, workspace, purge=False, force=False, wait_ms=0, key=None):
        """force, wait_ms: as for stop."""
        query = {"purge": 1 if purge else None, "force": 1 if force else None, "wait_ms": wait_ms or None}
        return self.request("DELETE", f"/workspaces/{_quoted(workspace)}", query, key=key)

    def undelete(self, workspace, name=None, key=None):
        """Restores a deleted workspace, under a new name if given."""
        new_name = {"name": name} if name else None
        return self.request("POST", f"/workspaces/{_quoted(workspace)}/undelete", json_body=new_name, key=key)

    def sync(self, workspace, key=None):
        """Brings upstream's newer branches and tags into it."""
        return self._long("POST", f"/workspaces/{_quoted(workspace)}/sync", None, None, key)

    def share(self, workspace, group=None, key=None):
        """Shares it with the members of a host group; None: private again."""
        body = {"group": group} if group is not None else {"private": True}
        return self.request("POST", f"/workspaces/{_quoted(workspace)}/share", json_body=body, key=key)

    # -- the network ---------------------------------------------------------------------------------

    def network(self, workspace):
        """Its rules, and what its running sandbox uses."""
        return self.request("GET", f"/workspaces/{_quoted(workspace)}/network")

    def change_network(self, workspace, allow=(), deny=(), forget=(), key=None):
        """Hosts are like github.com, github.com:22, .github.com, "packages.example.com GET,HEAD" or
        "https://example.com/simple/ GET". Applies to running commands at once."""
        body = {name: list(hosts) for name, hosts in (("allow", allow), ("deny", deny), ("forget", forget)) if hosts}
        return self.request("POST", f"/workspaces/{_quoted(workspace)}/network", json_body=body, key=key)

    def check_network(self, workspace, host):
        """Whether the host may be reached, by which rule, and the error that a program inside would read.
        Like "github.com:22" or "https://api.example.com/v1/ POST"."""
        return self.request("GET", f"/workspaces/{_quoted(workspace)}/network/check", {"host": host})

    # -- credentials ---------------------------------------------------------------------------------

    def credentials(self):
        """The caller's; for root those of all users. Their secrets are never in an answer."""
        return self.request("GET", "/credentials")["credentials"]

    def add_credential(self, name, places, command=None, file=None, sealed=None, form="bearer", variable=None, methods=(),
                       labels=None, key=None):
        """Workspaces use its secret at `places`, like https://api.example.com/v1/, without having it. It comes from one of
        `command`, `file`, and `sealed`: bytes from `seal`."""
        body = {"name": name, "for": list(places), "as": form}
        body |= {"methods": list(methods)} if methods else {}
        body |= {name: value for name, value in (("command", command), ("file", file), ("variable", variable), ("labels", labels))
                 if value is not None}
        if sealed is not None:
            body["sealed"] = base64.b64encode(sealed).decode()
        return self.request("POST", "/credentials", json_body=body, key=key)

    def seal(self, secret):
        """The secret (bytes), encrypted for the key of the store's host by the program openssl."""
        certificate = self.request("GET", "/credentials/key")["certificate"]
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # only the certificate
            file.write(certificate)
            file.flush()
            argv = ["openssl", "cms", "-encrypt", "-aes-256-gcm", "-binary", "-outform", "DER", file.name]
            return subprocess.run(argv, input=secret, check=True, capture_output=True).stdout

    def remove_credential(self, credential, key=None):
        """Running sandboxes lose it at once."""
        self.request("DELETE", f"/credentials/{_quoted(credential)}", key=key)

    def test_credential(self, credential):
        """Reads the secret once and forgets it. Fails with the reason why it is not available."""
        return self.request("POST", f"/credentials/{_quoted(credential)}/test", json_body={})

    # -- pushes that wait ----------------------------------------------------------------------------

    def approvals(self, workspace=None, all=False):
        """Pushes of git that wait for an approval or have one, newest first. `all`: of that workspace, in any state."""
        query = {"workspace": workspace, "all": 1 if all else None}
        return self.request("GET", "/approvals", query)["approvals"]

    def approve(self, approval, key=None):
        """The same push then passes, once. For the owner of the workspace and root."""
        return self.request("POST", f"/approvals/{_quoted(approval)}/approve", json_body={}, key=key)

    def refuse(self, approval, key=None):
        return self.request("POST", f"/approvals/{_quoted(approval)}/refuse", json_body={}, key=key)

    # -- the writer lease ---------------------------------------------------------------------------

    def acquire_lease(self, workspace, holder, ttl_s=60, takeover=False, keep_execs=False, key=None):
        """Returns the lease with its token. Every change then needs the token: set `lease_token` of a client.
        lease() does all this."""
        return self.request("POST", f"/workspaces/{_quoted(workspace)}/lease", key=key, json_body={
            "holder": holder, "ttl_s": ttl_s, "takeover": takeover, "keep_execs": keep_execs})

    def show_lease(self, workspace):
        return self.request("GET", f"/workspaces/{_quoted(workspace)}/lease")

    def heartbeat(self, workspace):
        return self.request("PUT", f"/workspaces/{_quoted(workspace)}/lease")

    def release_lease(self, workspace, key=None):
        self.request("DELETE", f"/workspaces/{_quoted(workspace)}/lease", key=key)

    def lease(self, workspace, holder, **fields):
        """A client that holds the lease inside `with`. fields: those of acquire_lease.

            with client.lease("fix", holder="agent-7") as mine:
                mine.exec("fix", ["npm", "test"])
        """
        return Lease(self, workspace, holder, **fields)

    # -- snapshots and forks ------------------------------------------------------------------------

    def snapshot(self, workspace, name=None, external_id=None, key=None):
        """Takes a snapshot of the current state. external_id: its name in another program."""
        body = {k: v for k, v in (("name", name), ("external_id", external_id)) if v is not None}
        return self.request("POST", f"/workspaces/{_quoted(workspace)}/snapshots", json_body=body, key=key)

    def snapshots(self, workspace):
        """Kept snapshots, oldest first."""
        return self.request("GET", f"/workspaces/{_quoted(workspace)}/snapshots")["snapshots"]

    def drop_snapshot(self, workspace, snapshot, key=None):
        self.request("DELETE", f"/workspaces/{_quoted(workspace)}/snapshots/{_quoted(snapshot)}", key=key)

    def restore(self, workspace, snapshot, kill=False, key=None):
        """Restores a snapshot; the previous state becomes a snapshot too. kill: end running commands for it."""
        return self.request("POST", f"/workspaces/{_quoted(workspace)}/restore", json_body={"snapshot": snapshot, "kill": kill}, key=key)

    def undo(self, workspace, exec_id=None, kill=False, key=None):
        """Restores the state before a command, by default the last one not undone; needs the policy snapshot_before_exec."""
        body = {"kill": kill} if exec_id is None else {"exec": exec_id, "kill": kill}
        return self.request("POST", f"/workspaces/{_quoted(workspace)}/undo", json_body=body, key=key)

    def fork(self, workspace, count=1, names=None, snapshot=None, labels=None, key=None):
        """Creates workspaces from its state or from a snapshot: all, or none."""
        body = {"names": names} if names else {"count": count}
        body.update({k: v for k, v in (("snapshot", snapshot), ("labels", labels)) if v is not None})
        return self.request("POST", f"/workspaces/{_quoted(workspace)}/fork", json_body=body, key=key)["workspaces"]

    def promote(self, fork, kill=False, key=None):
        """Replaces the origin's contents with the fork's. Returns the origin's record."""
        return self.request("POST", f"/workspaces/{_quoted(fork)}/promote", json_body={"kill": kill}, key=key)

    def tree(self, workspace):
        """The tree of its related snapshots and forks."""
        return self.request("GET", f"/workspaces/{_quoted(workspace)}/tree")

    # -- best of several attempts -------------------------------------------------------------------

    def best_of(self, workspace, test, each=None, count=None, patches=None, timeout_ms=None, promote=None, parallel=None,
                keep=False, key=None):
        """Forks it for each attempt, runs `each` there ({i} is the number) or applies one of `patches`, a list of
        (name, bytes), then runs `test`. A command is a list of words, or one string for the shell. promote:
        "first-passing", "smallest-diff" or None. Returns its record at once; the daemon continues by itself."""
        body = {k: v for k, v in (("test", test), ("each", each), ("count", count), ("timeout_ms", timeout_ms),
                                  ("promote", promote), ("parallel", parallel)) if v is not None}
        body["keep"] = keep
        path = f"/workspaces/{_quoted(workspace)}/best-of"
        if patches is None:
            return self.request("POST", path, json_body=body, key=key)
        body["patches"] = [{"name": name, "bytes": len(patch)} for name, patch in patches]
        head = json.dumps(body).encode()
        return self.request("POST", path, {"json_bytes": len(head)}, body=head + b"".join(patch for _, patch in patches), key=key)

    def get_best_of(self, best_of, wait_s=None):
        """Its progress; wait_s: wait up to this many seconds for its end."""
        return self.request("GET", f"/best-of/{_quoted(best_of)}", {"wait": wait_s})

    def best_ofs(self, workspace):
        """The best-ofs of a workspace, newest first."""
        return self.request("GET", f"/workspaces/{_quoted(workspace)}/best-of")["best_of"]

    def cancel_best_of(self, best_of, key=None):
        """Ends its running commands and starts no more. Its forks stay."""
        return self.request("POST", f"/best-of/{_quoted(best_of)}/cancel", key=key)

    def compare(self, workspace, other):
        """Differences between two workspaces of one repository, file by file."""
        return self.request("GET", f"/workspaces/{_quoted(workspace)}/compare", {"with": other})

    def compare_patch(self, workspace, other):
        """The patch from the first to the second, as bytes for `git apply --binary`."""
        connection, response = self._open("GET", f"/workspaces/{_quoted(workspace)}/compare", {"with": other, "patch": 1}, accept="*/*")
        with Stream(connection, response) as stream:
            return stream.read()

    # -- archives -----------------------------------------------------------------------------------

    def archive(self, workspace, progress=None, key=None):
        """Archives it into one verified file; an exec or start unarchives it."""
        return self._long("POST", f"/workspaces/{_quoted(workspace)}/archive", None, progress, key)

    def unarchive(self, workspace, progress=None, key=None):
        return self._long("POST", f"/workspaces/{_quoted(workspace)}/unarchive", None, progress, key)

    def export(self, workspace, to, without_snapshots=False):
        """Writes its archive to an open binary file. Raises if it is cut off, not if it is damaged: import_ checks that."""
        query = "?without_snapshots=1" if without_snapshots else ""
        connection, response = self._open("GET", f"/workspaces/{_quoted(workspace)}/export{query}", accept="*/*")
        with Stream(connection, response) as stream:
            while piece := stream.read(1 << 20):
                to.write(piece)

    def objects(self, workspace):
        """The objects that its .git takes from the host, as a pack."""
        connection, response = self._open("GET", f"/workspaces/{_quoted(workspace)}/objects", accept="*/*")
        with Stream(connection, response) as stream:
            return stream.read()

    def import_(self, archive, name=None, key=None):
        """archive: bytes, or an open binary file. Creates a workspace of the caller."""
        return self.request("POST", "/workspaces/import", {"name": name}, body=archive, key=key)

    def diff(self, workspace):
        """The patch over the base commit, as bytes for `git apply --binary`."""
        connection, response = self._open("GET", f"/workspaces/{_quoted(workspace)}/diff", accept="*/*")
        with Stream(connection, response) as stream:
            return stream.read()

    def diff_stat(self, workspace):
        return self.request("GET", f"/workspaces/{_quoted(workspace)}/diff", {"stat": 1})

    def diff_lacks(self, workspace):
        """What the patch leaves out: {path: why}."""
        lines = [line for line in self.diff(workspace).splitlines() if line.startswith(b"# moorage: ")]
        return {file["path"]: file["why"] for file in (json.loads(line[len("# moorage: "):]) for line in lines)}

    def status(self, workspace):
        return self.request("GET", f"/workspaces/{_quoted(workspace)}/status")

    # -- files --------------------------------------------------------------------------------------

    def list_files(self, workspace, path=""):
        return self.request("GET", f"/workspaces/{_quoted(workspace)}/files", {"path": path})

    def open_file(self, workspace, path):
        """A Stream of its bytes, for a file too large to read at once."""
        return Stream(*self._open("GET", f"/workspaces/{_quoted(workspace)}/file", {"path": path}, accept="*/*"))

    def read_file(self, workspace, path):
        with self.open_file(workspace, path) as stream:
            return stream.read()

    def read_file_and_tag(self, workspace, path):
        """(bytes, tag): a change with if_match=tag succeeds only while the file still holds these bytes."""
        connection, response = self._open("GET", f"/workspaces/{_quoted(workspace)}/file", {"path": path, "hash": 1}, accept="*/*")
        with Stream(connection, response) as stream:
            return stream.read(), response.getheader("ETag")

    @staticmethod
    def _conditions(if_match, if_none_match=None):
        fields = {"If-Match": if_match, "If-None-Match": if_none_match}
        return {name: value for name, value in fields.items() if value is not None}

    def write_file(self, workspace, path, content, mode=None, key=None, if_match=None, if_none_match=None):
        """Durable when it returns. content: bytes, or an open binary file. mode: "0644".

        if_match: a tag, or "*"; if_none_match="*": only if the file does not exist. Otherwise ApiError with status 412.
        The "hash" of the answer, in quotes, is the new tag.
        """
        return self.request("PUT", f"/workspaces/{_quoted(workspace)}/file", {"path": path, "mode": mode}, body=content, key=key,
                            headers=self._conditions(if_match, if_none_match))

    def remove_file(self, workspace, path, recursive=False, key=None, if_match=None):
        self.request("DELETE", f"/workspaces/{_quoted(workspace)}/file", {"path": path, "recursive": 1 if recursive else None},
                     key=key, headers=self._conditions(if_match))

    def move_file(self, workspace, source, target, key=None, if_match=None):
        self.request("POST", f"/workspaces/{_quoted(workspace)}/files/move", json_body={"from": source, "to": target}, key=key,
                     headers=self._conditions(if_match))

    def make_directory(self, workspace, path, key=None):
        self.request("POST", f"/workspaces/{_quoted(workspace)}/files/mkdir", json_body={"path": path}, key=key)

    def make_symlink(self, workspace, path, target, key=None):
        """path must not exist; target is stored unchanged and need not exist."""
        self.request("POST", f"/workspaces/{_quoted(workspace)}/files/symlink", json_body={"path": path, "target": target}, key=key)

    # -- execs --------------------------------------------------------------------------------------

    def start_exec(self, workspace, argv, key=None, **fields):
        """Starts a command and returns its record at once. fields: env, cwd, user, tty, stdin, timeout_ms, sync."""
        return self.request("POST", f"/workspaces/{_quoted(workspace)}/execs", json_body={"argv": argv, **fields}, key=key)

    def exec_stream(self, workspace, argv, key=None, **fields):
        """Starts a command and follows it: an OutputStream."""
        body = json.dumps({"argv": argv, **fields}).encode()
        return OutputStream(*self._open("POST", f"/workspaces/{_quoted(workspace)}/execs", None, body, OUTPUT_TYPE, key,
                                        "application/json"))

    def exec(self, workspace, argv, stdin=None, key=None, **fields):
        """Runs a command to its end. stdin: bytes or None. Returns an ExecResult; long output may have `gaps`."""
        if isinstance(argv, str):
            argv = ["bash", "-c", argv]
        stream = self.exec_stream(workspace, argv, key=key, stdin=stdin is not None, **fields)
        feeder = None
        if stdin is not None:
            feeder = threading.Thread(target=self._feed, args=(stream.exec_id, stdin), daemon=True)
            feeder.start()
        parts = {STDOUT: [], STDERR: [], TERMINAL: []}
        with stream:
            for kind, payload in stream:
                if kind in parts:
                    parts[kind].append(payload)
        if feeder:
            feeder.join()
        return ExecResult(stream.end, b"".join(parts[STDOUT] + parts[TERMINAL]), b"".join(parts[STDERR]), stream.gaps)

    def _feed(self, exec_id, data):
        try:
            self.send_input(exec_id, data, close=True)
        except (ApiError, OSError):
            pass  # the command ended before it read everything

    def send_input(self, exec_id, data, offset=0, close=False):
        """Returns the number of input bytes accepted since the command's start."""
        return self.request("PUT", f"/execs/{_quoted(exec_id)}/stdin", {"offset": offset, "close": 1 if close else None},
                            body=data)["accepted"]

    def execs(self, workspace=None, running=False, limit=None, before=None):
        """At most `limit` (1000) execs, newest first; before: only execs older than this one, for the next page."""
        path = f"/workspaces/{_quoted(workspace)}/execs" if workspace else "/execs"
        return self.request("GET", path, {"running": 1 if running else None, "limit": limit, "before": before})

    def history(self, workspace, limit=None, before=None):
        """Commands of a workspace, even a deleted one, newest last: {workspace, execs, truncated}."""
        return self.request("GET", f"/workspaces/{_quoted(workspace)}/history", {"limit": limit, "before": before})

    def get_exec(self, exec_id):
        return self.request("GET", f"/execs/{_quoted(exec_id)}")

    def wait(self, exec_id, timeout_ms=None):
        return self.request("GET", f"/execs/{_quoted(exec_id)}/wait", {"timeout_ms": timeout_ms})

    def output(self, exec_id, offset=0, follow=False, tail_bytes=None, late=None):
        """An OutputStream from any byte offset, during the run and after it. `late`: include output of leftover
        processes after the command's end; the default without follow."""
        query = {"offset": offset, "follow": 1 if follow else None, "tail_bytes": tail_bytes,
                 "late": None if late is None else int(late)}
        return OutputStream(*self._open("GET", f"/execs/{_quoted(exec_id)}/output", query, accept=OUTPUT_TYPE))

    def raw_output(self, exec_id, stream="all", offset=0):
        """The kept bytes, as RawOutput: its `gaps` lists the missing ones."""
        query = {"raw": 1, "stream": stream, "offset": offset}
        connection, response = self._open("GET", f"/execs/{_quoted(exec_id)}/output", query, accept="*/*")
        with Stream(connection, response) as stream:
            output = RawOutput(stream.read())
        gaps = response.getheader("Moorage-Output-Gaps") or ""
        output.gaps = tuple(tuple(int(n) for n in gap.split("-")) for gap in gaps.split(", ") if gap)
        return output

    def signal(self, exec_id, signal, key=None):
        self.request("POST", f"/execs/{_quoted(exec_id)}/signal", json_body={"signal": signal}, key=key)

    def cancel(self, exec_id, key=None):
        self.request("POST", f"/execs/{_quoted(exec_id)}/cancel", key=key)

    def resize(self, exec_id, columns, rows, key=None):
        self.request("POST", f"/execs/{_quoted(exec_id)}/resize", json_body={"columns": columns, "rows": rows}, key=key)


class Lease(Client):
    """A client whose changes carry a lease; a thread sends three heartbeats per ttl.

    `lost` is set once the daemon reports that the lease has ended: another holder took it, or it lapsed. From then on
    every change is refused with "conflict".
    """

    def __init__(self, client, workspace, holder, ttl_s=60, **fields):
        super().__init__(client.socket_path, client.timeout)
        self.workspace_name, self.holder, self.ttl_s, self.fields = workspace, holder, ttl_s, fields
        self.lease_token = None
        self.generation = None
        self.lost = threading.Event()
        self._done = threading.Event()
        self._thread = None

    def __enter__(self):
        acquired = self.acquire_lease(self.workspace_name, self.holder, self.ttl_s, **self.fields)
        self.lease_token, self.generation = acquired["token"], acquired["generation"]
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._done.set()
        self._thread.join()
        try:
            self.release_lease(self.workspace_name)
        except ApiError as error:
            if error.code not in ("conflict", "not_found"):  # the lease has ended, or the workspace is gone
                raise

    def _keep(self):
        while not self._done.wait(self.ttl_s / 3):
            try:
                self.heartbeat(self.workspace_name)
            except ApiError as error:
                if error.code in ("conflict", "not_found"):
                    self.lost.set()
                    return
            except OSError:
                pass  # the daemon is restarting, and no lease lapses during a restart
