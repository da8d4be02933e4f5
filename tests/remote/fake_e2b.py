"""E2B on loopback: its control API and envd, with sandboxes that run (machine.py) and faults (faults.py).

The official npm package is its judge (test_fakes.py). All is on one port: requests with E2b-Sandbox-Id go to envd of
that sandbox, signed file URLs to the sandbox whose token fits, all others to the API. As a program it prints one line
of JSON with `url` and `api_key`, and ends at the end of its standard input.
"""

import argparse
import asyncio
import base64
import contextlib
import datetime
import ipaddress
import itertools
import json
import pathlib
import re
import secrets
import shutil
import sys
import tempfile
import time
import urllib.parse

import envd
import machine
import wire
from wire import Answer

API_KEY = "e2b_" + "0" * 40
ENVD_VERSION = "0.6.13"
DEFAULT_TIMEOUT_S = {"v1": 15, "v2": 300}
LONGEST_S = 24 * 3600
PAGE = 100
NAME = re.compile(r"(\*\.)?([a-z0-9_-]+\.)+[a-z0-9-]+")  # in a list of hosts


def timestamp(seconds):
    moment = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_range(text):
    with contextlib.suppress(ValueError):
        return bool(ipaddress.ip_network(text, strict=False))
    return False


class Sandbox:
    """`state`: running, paused, or one that refuses calls (pausing, resuming). `ends` is on the monotonic clock."""

    numbers = itertools.count()

    def __init__(self, template, request, timeout_s, started):
        self.id = "i" + "".join(secrets.choice("abcdefghijklmnopqrstuvwxyz0123456789") for _ in range(19))
        self.number, self.template, self.started = next(self.numbers), template, started
        self.metadata = request.get("metadata") or {}
        self.environment = request.get("envVars") or {}
        self.auto_pause = bool(request.get("autoPause"))
        self.auto_resume = bool((request.get("autoResume") or {}).get("enabled"))
        self.internet = request.get("allow_internet_access", True)
        self.network = request.get("network")
        self.token = secrets.token_hex(32)
        self.state, self.machine, self.envd = "running", None, None
        self.ends = time.monotonic() + timeout_s
        self.resumes, self.first_pause = 0, None


class FakeE2B(wire.Provider):
    """`templates`: names that exist, `plain` may be one; `max_sandboxes`: more answer 429."""

    def __init__(self, directory, port=0, certificate=None, api_key=API_KEY, templates=("base",), max_sandboxes=100):
        self.directory, self.api_key, self.templates = pathlib.Path(directory), api_key, set(templates)
        self.max_sandboxes = max_sandboxes
        self.sandboxes = {}
        self.reaper = None
        super().__init__(port, certificate)
        self.reaper = asyncio.run_coroutine_threadsafe(self._end_expired(), self.loop)

    # The life of a sandbox.

    async def _in_thread(self, function, *arguments):
        return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)

    async def _end_expired(self):
        while True:
            await asyncio.sleep(0.1)
            for sandbox in list(self.sandboxes.values()):
                if sandbox.state == "running" and time.monotonic() > sandbox.ends:
                    await (self._pause(sandbox, True) if sandbox.auto_pause else self._kill(sandbox))

    async def _kill(self, sandbox):
        if self.sandboxes.pop(sandbox.id, None):
            sandbox.state = "gone"
            sandbox.envd.close()
            await self._in_thread(sandbox.machine.end)

    async def _pause(self, sandbox, memory):
        sandbox.state = "pausing"
        sandbox.envd.cut()
        if sandbox.first_pause is None:
            sandbox.first_pause = time.time()
        await self._in_thread(sandbox.machine.freeze if memory else sandbox.machine.halt)
        sandbox.state = "paused"

    async def _resume(self, sandbox):
        sandbox.state = "resuming"
        sandbox.resumes += 1
        if sandbox.resumes == self.faults.lose_files_at_resume:
            await self._in_thread(sandbox.machine.lose_changes_since, sandbox.first_pause)
        if sandbox.machine.process:
            await self._in_thread(sandbox.machine.thaw)
        else:
            await self._in_thread(sandbox.machine.boot)
            sandbox.envd.programs.clear()
        sandbox.state = "running"

    async def die(self, identifier):
        """The machine ends; the provider does not notice before its next look, which never comes."""
        sandbox = self.sandboxes[identifier]
        sandbox.envd.cut()
        await self._in_thread(sandbox.machine.halt)

    async def reboot(self, identifier, since=None):
        """A machine that died starts again with its files, but for those that changed after `since` (seconds since 1970)."""
        sandbox = self.sandboxes[identifier]
        await self._in_thread(sandbox.machine.boot_again, since)
        sandbox.envd.programs.clear()

    async def destroy(self, identifier):
        await self._kill(self.sandboxes[identifier])

    async def end_all(self):
        self.reaper.cancel()
        await self.end_sandboxes()

    async def end_sandboxes(self):
        for sandbox in list(self.sandboxes.values()):
            await self._kill(sandbox)

    # Routes.

    async def handle(self, request):
        if identifier := request.header("e2b-sandbox-id"):
            return await self._envd(self.sandboxes.get(identifier), request, identifier)
        if match := re.match(r"(\d+)-([a-z0-9]+)\.", request.header("host", "")):
            return await self._envd(self.sandboxes.get(match[2]), request, match[2])
        if request.path == "/files":
            found = [each for each in self.sandboxes.values() if envd.signed(request, each.token)]
            return await self._envd(found[0] if found else None, request, "")
        if request.header("x-api-key") != self.api_key:
            self.fail(401, "Invalid API key")
        for method, pattern, function in self.ROUTES:
            if method == request.method and (match := re.fullmatch(pattern, request.path)):
                return await function(self, request, *match.groups())
        self.fail(404, f"no route {request.method} {request.path}")

    async def _envd(self, sandbox, request, identifier):
        if sandbox and sandbox.state == "paused" and sandbox.auto_resume:
            await self._resume(sandbox)
        if sandbox is None or sandbox.state != "running" or sandbox.machine.process is None:
            return Answer(502, {"sandboxId": identifier, "message": "The sandbox was not found", "code": 502})
        return await sandbox.envd.handle(request)

    def _find(self, identifier):
        sandbox = self.sandboxes.get(identifier)
        if sandbox is None:
            self.fail(404, f"sandbox \"{identifier}\" doesn't exist or you don't have access to it")
        return sandbox

    def _settled(self, sandbox):
        if sandbox.state not in ("running", "paused"):
            self.fail(409, f"sandbox {sandbox.id} is {sandbox.state}")

    def _timeout(self, body, default):
        timeout = body.get("timeout")
        timeout = default if timeout is None else timeout
        if not isinstance(timeout, int) or timeout < 0:
            self.fail(400, "timeout must be a number of seconds")
        if timeout > LONGEST_S:
            self.fail(400, f"timeout cannot be greater than {LONGEST_S // 3600} hours")
        return timeout

    async def create(self, request, version):
        version, body = version or "v1", request.json()
        template = body.get("templateID")
        if not isinstance(template, str):
            self.fail(400, "templateID is required")
        if template not in self.templates:
            self.fail(404, f"template '{template}' not found")
        if len(self.sandboxes) >= self.max_sandboxes:
            self.fail(429, f"you have reached the maximum number of concurrent sandboxes ({self.max_sandboxes})")
        self._check_network(body.get("network") or {})
        sandbox = Sandbox(template, body, self._timeout(body, DEFAULT_TIMEOUT_S[version]), self.now())
        sandbox.machine = await self._in_thread(machine.Machine, sandbox.id, self.directory / sandbox.id, "user",
                                                template == machine.PLAIN)
        sandbox.envd = envd.Envd(sandbox.machine, sandbox.environment, sandbox.token)
        self.sandboxes[sandbox.id] = sandbox
        return Answer(201, self._handle_of(sandbox))

    def _handle_of(self, sandbox):
        return {"sandboxID": sandbox.id, "templateID": sandbox.template, "clientID": "local", "domain": None,
                "envdVersion": ENVD_VERSION, "envdAccessToken": sandbox.token}

    def _details(self, sandbox):
        lie = self.faults.lies.get(sandbox.id)
        state = lie or {"pausing": "running", "resuming": "paused"}.get(sandbox.state, sandbox.state)
        return {**self._handle_of(sandbox), "startedAt": timestamp(sandbox.started), "state": state, "cpuCount": 2,
                "memoryMB": 512, "diskSizeMB": 1024, "metadata": sandbox.metadata,
                "endAt": timestamp(self.now() + sandbox.ends - time.monotonic()),
                "allowInternetAccess": sandbox.internet, **({"network": sandbox.network} if sandbox.network else {}),
                "lifecycle": {"onTimeout": "pause" if sandbox.auto_pause else "kill",
                              "autoResume": sandbox.auto_resume}}

    async def info(self, _, identifier):
        lie = self.faults.lies.get(identifier)
        if lie == "gone":
            self.fail(404, f"sandbox \"{identifier}\" doesn't exist or you don't have access to it")
        if lie and identifier not in self.sandboxes:
            return Answer(200, self._ghost(identifier, lie))
        return Answer(200, self._details(self._find(identifier)))

    def _ghost(self, identifier, state):
        """A sandbox that does not exist, and that the provider says it has."""
        ghost = Sandbox("base", {}, 300, self.now())
        ghost.id = identifier
        return {**self._details(ghost), "state": state}

    async def list(self, request):
        """With v2's filters and pages. `metadata` is a query string inside of the query: its parts are quoted twice."""
        query = urllib.parse.parse_qs(request.raw_query, keep_blank_values=True)
        states = [state for value in query.get("state", ["running,paused"]) for state in value.split(",")]
        wanted = [tuple(urllib.parse.unquote(part) for part in pair)
                  for pair in urllib.parse.parse_qsl(query.get("metadata", [""])[0], keep_blank_values=True)]
        limit = int(query.get("limit", [PAGE])[0])
        if not 1 <= limit <= PAGE:
            self.fail(400, f"limit must be between 1 and {PAGE}")
        oldest_first = query.get("order", ["desc"])[0] == "asc"
        found = []
        for sandbox in sorted(self.sandboxes.values(), key=lambda each: each.number, reverse=not oldest_first):
            details = self._details(sandbox)
            if details["state"] in states and all(sandbox.metadata.get(name) == value for name, value in wanted):
                found.append((sandbox.number, details))
        if token := query.get("nextToken", [""])[0]:
            last = int(base64.urlsafe_b64decode(token))
            found = [(number, each) for number, each in found if (number > last if oldest_first else number < last)]
        headers = {}
        if len(found) > limit:
            headers["x-next-token"] = base64.urlsafe_b64encode(str(found[limit - 1][0]).encode()).decode()
        return Answer(200, [each for _, each in found[:limit]], headers)

    async def list_v1(self, request):
        request.raw_query += "&state=running"
        return await self.list(request)

    async def kill(self, _, identifier):
        await self._kill(self._find(identifier))
        return Answer(204)

    async def timeout(self, request, identifier):
        sandbox = self._find(identifier)
        if sandbox.state != "running":
            self.fail(404, f"sandbox {identifier} is not running")
        sandbox.ends = time.monotonic() + self._timeout(request.json(), DEFAULT_TIMEOUT_S["v1"])
        return Answer(204)

    async def pause(self, request, identifier):
        sandbox = self._find(identifier)
        self._settled(sandbox)
        if sandbox.state == "paused":
            self.fail(409, f"sandbox {identifier} is already paused")
        await self._pause(sandbox, request.json().get("memory", True))
        return Answer(204)

    async def connect(self, request, _, identifier):
        """Extends and never shortens the life of a running sandbox; resumes a paused one."""
        sandbox = self._find(identifier)
        self._settled(sandbox)
        ends = time.monotonic() + self._timeout(request.json(), DEFAULT_TIMEOUT_S["v2"])
        if sandbox.state == "running":
            sandbox.ends = max(sandbox.ends, ends)
            return Answer(200, self._handle_of(sandbox))
        await self._resume(sandbox)
        sandbox.ends = ends
        return Answer(201, self._handle_of(sandbox))

    async def resume(self, request, identifier):
        if self._find(identifier).state == "running":
            self.fail(409, f"sandbox {identifier} is already running")
        return await self.connect(request, None, identifier)

    def _check_network(self, network):
        """Names may only be allowed, and only where everything else is denied."""
        for name in ("allowOut", "denyOut"):
            entries = network.get(name, [])
            if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
                self.fail(400, f"{name} must be a list of strings")
            hosts = [entry for entry in entries if not is_range(entry)]
            if not all(NAME.fullmatch(host) for host in hosts) or hosts and name == "denyOut":
                self.fail(400, f"invalid entry in {name}")
            if hosts and "0.0.0.0/0" not in network.get("denyOut", []):
                self.fail(400, "domains in allowOut need 0.0.0.0/0 in denyOut")

    async def network(self, request, identifier):
        """Takes the place of all rules before."""
        network = request.json()
        self._check_network(network)
        sandbox = self._find(identifier)
        sandbox.internet = network.pop("allow_internet_access", True)
        sandbox.network = network
        return Answer(204)

    async def metrics(self, _, identifier):
        self._find(identifier)
        return Answer(200, [])

    async def list_templates(self, _):
        return Answer(200, [{"templateID": name, "buildID": "b1", "cpuCount": 2, "memoryMB": 512, "diskSizeMB": 1024,
                             "public": False, "aliases": [name], "names": [name], "createdAt": timestamp(0),
                             "updatedAt": timestamp(0), "createdBy": None, "lastSpawnedAt": None, "spawnCount": 0,
                             "buildCount": 1, "envdVersion": ENVD_VERSION, "buildStatus": "ready"}
                            for name in sorted(self.templates)])

    async def template_alias(self, _, alias):
        if alias not in self.templates:
            self.fail(404, f"template alias '{alias}' not found")
        return Answer(200, {"templateID": alias, "public": False})

    async def health(self, _):
        return Answer(200)

    ROUTES = (
        ("POST", r"(?:/(v2))?/sandboxes", create),
        ("GET", r"/sandboxes", list_v1),
        ("GET", r"/v2/sandboxes", list),
        ("GET", r"/sandboxes/([^/]+)", info),
        ("DELETE", r"/sandboxes/([^/]+)", kill),
        ("POST", r"/sandboxes/([^/]+)/timeout", timeout),
        ("POST", r"/sandboxes/([^/]+)/pause", pause),
        ("POST", r"/sandboxes/([^/]+)/resume", resume),
        ("POST", r"(?:/(v2))?/sandboxes/([^/]+)/connect", connect),
        ("PUT", r"/sandboxes/([^/]+)/network", network),
        ("GET", r"/sandboxes/([^/]+)/metrics", metrics),
        ("GET", r"/templates", list_templates),
        ("GET", r"/templates/aliases/([^/]+)", template_alias),
        ("GET", r"/health", health),
    )


def main(make):
    """Serves until the end of standard input."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--certificate", nargs=2, metavar=("CERTIFICATE", "KEY"))
    options = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="rented-")
    try:
        with make(directory, options.port, options.certificate) as provider:
            told = {"url": provider.url, "tls_url": provider.tls_url, "api_key": provider.api_key}
            print(json.dumps(told), flush=True)
            sys.stdin.read()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(FakeE2B)
