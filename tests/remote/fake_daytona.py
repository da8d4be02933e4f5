"""Daytona on loopback, as fake_e2b.py is for E2B: its API (below /api), and the toolbox of sandboxes (below /toolbox).

The official npm package is its judge (test_fakes.py). Verbs answer at once, and the state changes `transition_s`
later. A stop ends all programs of a sandbox and keeps its files.
"""

import asyncio
import itertools
import json
import pathlib
import re
import shutil
import time
import uuid

import fake_e2b
import machine
import toolbox
import wire
from wire import Answer

API_KEY = "dtn_" + "0" * 64
SNAPSHOT = "daytona-small"
PAGE, LARGEST_PAGE = 100, 200
NETWORK = ("networkBlockAll", "networkAllowList", "domainAllowList")
SETTLED = ("started", "stopped", "archived", "paused", "error", "build_failed")
STATUS = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 409: "Conflict",
          422: "Unprocessable Entity", 429: "Too Many Requests", 500: "Internal Server Error"}


class Sandbox:
    """`state` and `desired` are Daytona's. Intervals are in minutes, as in its API."""

    numbers = itertools.count()

    def __init__(self, request, origin, created):
        self.id, self.number, self.origin = str(uuid.uuid4()), next(self.numbers), origin
        self.name = request.get("name") or self.id
        self.snapshot = request.get("snapshot") or SNAPSHOT
        self.build = request.get("buildInfo")
        self.user, self.environment = request.get("user") or "daytona", request.get("env") or {}
        self.volumes = request.get("volumes") or []
        self.labels, self.public = request.get("labels") or {}, bool(request.get("public"))
        self.network = {name: request[name] for name in NETWORK if name in request}
        self.size = {"cpu": request.get("cpu", 1), "gpu": request.get("gpu", 0), "memory": request.get("memory", 1),
                     "disk": request.get("disk", 3)}
        self.intervals = {"autoStopInterval": request.get("autoStopInterval", 15),
                          "autoArchiveInterval": request.get("autoArchiveInterval", 7 * 24 * 60),
                          "autoDeleteInterval": request.get("autoDeleteInterval", -1)}
        self.created, self.changed = created, created
        self.state, self.desired, self.reason = "creating", "started", None
        self.active = self.settled = time.monotonic()
        self.machine, self.toolbox, self.task, self.starts, self.first_stop = None, None, None, 0, None


class Volume:
    """Its files are those of a directory here. Unlike object storage it could rename and append; whoever uses it must not."""

    def __init__(self, name, directory, created):
        self.id, self.name, self.created, self.state = str(uuid.uuid4()), name, created, "creating"
        self.directory = directory / f"volume-{self.id}"
        self.directory.mkdir()

    def part(self, subpath):
        """The directory that a sandbox gets. Whoever is there may write."""
        place = self.directory / subpath
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(0o777)
        return place

    def details(self):
        times = {name: fake_e2b.timestamp(self.created) for name in ("createdAt", "updatedAt", "lastUsedAt")}
        return {"id": self.id, "name": self.name, "organizationId": str(uuid.UUID(int=1)), "state": self.state,
                "errorReason": None, **times}


class FakeDaytona(wire.Provider):
    """`minute_s`: how long a minute of an interval lasts. `pausable`: the class of its sandboxes can be paused."""

    def __init__(self, directory, port=0, certificate=None, api_key=API_KEY, snapshots=(SNAPSHOT,), max_sandboxes=100,
                 transition_s=0.05, minute_s=60, pausable=False):
        self.directory, self.api_key, self.snapshots = pathlib.Path(directory), api_key, set(snapshots)
        self.max_sandboxes, self.transition_s = max_sandboxes, transition_s
        self.minute_s, self.pausable = minute_s, pausable
        self.network_settings = NETWORK  # those that it knows; an older server ignores others
        self.knows_subpath = True  # an older server ignores it, and mounts the whole volume
        self.sandboxes, self.volumes = {}, {}
        super().__init__(port, certificate)
        self.reaper = asyncio.run_coroutine_threadsafe(self._follow_intervals(), self.loop)

    def error(self, status, message):
        return {"statusCode": status, "error": STATUS.get(status, "Error"), "message": message, "path": "",
                "timestamp": fake_e2b.timestamp(self.now())}

    # The life of a sandbox.

    async def _in_thread(self, function, *arguments):
        return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)

    def _go(self, sandbox, state, desired, effect, settled):
        """Through `state` to `settled`, in the background."""
        sandbox.state, sandbox.desired, sandbox.changed = state, desired, self.now()

        async def follow():
            await asyncio.sleep(self.transition_s)
            try:
                await effect(sandbox)
                sandbox.state = settled
            except (OSError, RuntimeError) as error:
                sandbox.state, sandbox.reason = "error", str(error)
            sandbox.changed, sandbox.active = self.now(), time.monotonic()
            sandbox.settled = sandbox.active
        sandbox.task = asyncio.ensure_future(follow())

    async def _boot(self, sandbox):
        sandbox.starts += 1
        if sandbox.machine is None:
            place = self.directory / sandbox.id
            sandbox.machine = await self._in_thread(machine.Machine, sandbox.id, place, sandbox.user,
                                                    sandbox.snapshot == machine.PLAIN, self._mounts(sandbox))
        else:
            if sandbox.starts - 1 == self.faults.lose_files_at_resume:
                await self._in_thread(sandbox.machine.lose_changes_since, sandbox.first_stop)
            await self._in_thread(sandbox.machine.boot)
        sandbox.toolbox = toolbox.Toolbox(self, sandbox.machine, sandbox.environment)

    async def _halt(self, sandbox):
        sandbox.first_stop = sandbox.first_stop or time.time()
        if sandbox.toolbox:
            sandbox.toolbox.close()
        if sandbox.machine:
            await self._in_thread(sandbox.machine.halt)

    async def _freeze(self, sandbox):
        sandbox.first_stop = sandbox.first_stop or time.time()
        sandbox.toolbox.cut()
        await self._in_thread(sandbox.machine.freeze)

    async def _thaw(self, sandbox):
        await self._in_thread(sandbox.machine.thaw)

    async def _nothing(self, _):
        pass

    async def _destroy(self, sandbox):
        if self.sandboxes.pop(sandbox.id, None) and sandbox.machine:
            if sandbox.toolbox:
                sandbox.toolbox.close()
            await self._in_thread(sandbox.machine.end)

    async def _follow_intervals(self):
        while True:
            await asyncio.sleep(min(0.1, self.minute_s / 10))
            for sandbox in list(self.sandboxes.values()):
                idle = (time.monotonic() - sandbox.active) / self.minute_s
                rest = (time.monotonic() - sandbox.settled) / self.minute_s
                stop, delete = sandbox.intervals["autoStopInterval"], sandbox.intervals["autoDeleteInterval"]
                if sandbox.state == "started" and 0 < stop <= idle:
                    self._go(sandbox, "stopping", "stopped", self._halt, "stopped")
                elif sandbox.state in ("stopped", "archived") and 0 <= delete <= rest:
                    self._go(sandbox, "destroying", "destroyed", self._destroy, "destroyed")

    async def die(self, identifier):
        """The machine ends; the provider does not notice."""
        sandbox = self.sandboxes[identifier]
        sandbox.toolbox.cut()
        await self._in_thread(sandbox.machine.halt)

    async def reboot(self, identifier, since=None):
        """A machine that died starts again with its files, but for those that changed after `since` (seconds since 1970)."""
        sandbox = self.sandboxes[identifier]
        await self._in_thread(sandbox.machine.boot_again, since)
        sandbox.toolbox = toolbox.Toolbox(self, sandbox.machine, sandbox.environment)

    async def end_all(self):
        self.reaper.cancel()
        await self.end_sandboxes()

    async def end_sandboxes(self):
        """And their volumes."""
        for identifier in list(self.sandboxes):
            await self.destroy(identifier)
        for volume in list(self.volumes.values()):
            shutil.rmtree(self.volumes.pop(volume.id).directory)

    async def destroy(self, identifier):
        """At once, whatever its state."""
        sandbox = self.sandboxes[identifier]
        await sandbox.task
        await self._destroy(sandbox)  # nothing, if that was its end

    # Routes.

    async def handle(self, request):
        if request.header("authorization") != f"Bearer {self.api_key}":
            self.fail(401, "Unauthorized")
        if match := re.fullmatch(r"/toolbox/([^/]+)(/.*)", request.path):
            return await self._toolbox(request, match[1], match[2])
        for method, pattern, function in self.ROUTES:
            if method == request.method and (match := re.fullmatch("/api" + pattern, request.path)):
                return await function(self, request, *match.groups())
        self.fail(404, f"Cannot {request.method} {request.path}")

    async def _toolbox(self, request, identifier, path):
        sandbox = self.sandboxes.get(identifier)
        if sandbox is None:
            self.fail(404, f"Sandbox with ID {identifier} not found")
        if sandbox.state != "started":
            self.fail(400, f"Sandbox is not started: its state is {sandbox.state}")
        if sandbox.machine.process is None:
            self.fail(502, "the sandbox does not answer")
        sandbox.active = time.monotonic()
        try:
            return await sandbox.toolbox.handle(request, path)
        except machine.MachineGone:
            self.fail(502, "the sandbox does not answer")

    def _find(self, identifier):
        for sandbox in self.sandboxes.values():
            if identifier in (sandbox.id, sandbox.name):
                return sandbox
        self.fail(404, f"Sandbox with ID or name {identifier} not found")

    def _settled(self, identifier, *states):
        sandbox = self._find(identifier)
        if sandbox.state not in SETTLED:
            self.fail(409, f"Sandbox state change in progress: {sandbox.state}")
        if sandbox.state not in states:
            self.fail(400, f"Sandbox is {sandbox.state}; it must be {' or '.join(states)}")
        return sandbox

    async def create(self, request):
        body = request.json()
        for name in ("cpu", "memory", "disk", "autoStopInterval", "autoDeleteInterval"):
            if not isinstance(body.get(name, 0), int):
                self.fail(400, f"{name} must be an integer number")
        if body.get("snapshot") and body["snapshot"] not in self.snapshots:
            self.fail(400, f"Snapshot {body['snapshot']} not found")
        if body.get("name") in [each.name for each in self.sandboxes.values()]:
            self.fail(409, f"Sandbox with name {body['name']} already exists")
        if len(self.sandboxes) >= self.max_sandboxes:
            self.fail(403, "Total CPU limit exceeded")
        for wanted in body.get("volumes") or []:
            self._check_mount(wanted)
        sandbox = Sandbox(body, request.origin, self.now())
        self.sandboxes[sandbox.id] = sandbox
        self._go(sandbox, "pending_build" if sandbox.build else "creating", "started", self._boot, "started")
        return Answer(200, self._details(sandbox))

    def _details(self, sandbox, short=False):
        details = {"id": sandbox.id, "organizationId": str(uuid.UUID(int=1)), "name": sandbox.name,
                   "user": sandbox.user, "snapshot": sandbox.snapshot, "labels": sandbox.labels, "target": "local",
                   "public": sandbox.public,
                   "state": self.faults.lies.get(sandbox.id, sandbox.state), "desiredState": sandbox.desired,
                   "recoverable": False, "backupState": "None", "sandboxClass": "container", **sandbox.size,
                   "createdAt": fake_e2b.timestamp(sandbox.created), "updatedAt": fake_e2b.timestamp(sandbox.changed),
                   "lastActivityAt": fake_e2b.timestamp(self.now() + sandbox.active - time.monotonic()),
                   "toolboxProxyUrl": f"{sandbox.origin}/toolbox", **sandbox.intervals}
        if sandbox.reason:
            details["errorReason"] = sandbox.reason
        if short:
            return details
        return {**details, "env": sandbox.environment, "volumes": sandbox.volumes, "networkBlockAll": False, **sandbox.network}

    async def info(self, request, identifier):
        lie = self.faults.lies.get(identifier)
        if lie == "gone":
            self.fail(404, f"Sandbox with ID or name {identifier} not found")
        if lie and identifier not in self.sandboxes:
            ghost = Sandbox({}, request.origin, self.now())
            ghost.id = ghost.name = identifier
            return Answer(200, self._details(ghost))
        return Answer(200, self._details(self._find(identifier)))

    def _list(self, query):
        try:
            labels = json.loads(query.get("labels") or "{}")
            limit = int(query.get("limit") or PAGE)
        except ValueError:
            self.fail(400, "labels must be JSON, and limit a number")
        if not 1 <= limit <= LARGEST_PAGE:
            self.fail(400, f"limit must be between 1 and {LARGEST_PAGE}")
        states = [word for word in (query.get("states") or "").split(",") if word]
        found = []
        for sandbox in sorted(self.sandboxes.values(), key=lambda each: -each.number):
            details = self._details(sandbox, short=True)
            prefixes = all(details[name].lower().startswith(query.get(name, "").lower()) for name in ("id", "name"))
            fits = all(sandbox.labels.get(name) == value for name, value in labels.items())
            if prefixes and fits and details["state"] != "gone" and (not states or details["state"] in states):
                found.append((sandbox.number, details))
        return found, limit

    async def list(self, request):
        found, limit = self._list(request.query)
        if cursor := request.query.get("cursor"):
            found = [each for each in found if each[0] < int(cursor)]
        more = str(found[limit - 1][0]) if len(found) > limit else None
        return Answer(200, {"items": [each for _, each in found[:limit]], "nextCursor": more})

    async def list_paginated(self, request):
        found, limit = self._list(request.query)
        page = max(1, int(request.query.get("page") or 1))
        items = [self._details(self.sandboxes[each["id"]]) for _, each in found[(page - 1) * limit:page * limit]]
        return Answer(200, {"items": items, "total": len(found), "page": page, "totalPages": -(-len(found) // limit)})

    async def start(self, _, identifier):
        sandbox = self._settled(identifier, "stopped", "archived", "paused")
        if sandbox.state == "paused":
            self._go(sandbox, "resuming", "started", self._thaw, "started")
        else:
            state = "restoring" if sandbox.state == "archived" else "starting"
            self._go(sandbox, state, "started", self._boot, "started")
        return Answer(200, self._details(sandbox))

    async def stop(self, _, identifier):
        sandbox = self._settled(identifier, "started")
        self._go(sandbox, "stopping", "stopped", self._halt, "stopped")
        return Answer(200, self._details(sandbox))

    async def archive(self, _, identifier):
        sandbox = self._settled(identifier, "stopped")
        self._go(sandbox, "archiving", "archived", self._nothing, "archived")
        return Answer(200, self._details(sandbox))

    async def pause(self, _, identifier):
        sandbox = self._settled(identifier, "started")
        if not self.pausable:
            self.fail(422, "Sandboxes of this class cannot be paused")
        self._go(sandbox, "pausing", "paused", self._freeze, "paused")
        return Answer(200, self._details(sandbox))

    async def delete(self, _, identifier):
        sandbox = self._settled(identifier, *SETTLED)
        self._go(sandbox, "destroying", "destroyed", self._destroy, "destroyed")
        return Answer(200, self._details(sandbox))

    async def labels(self, request, identifier):
        labels = request.json().get("labels")
        if not isinstance(labels, dict):
            self.fail(400, "labels must be an object")
        self._find(identifier).labels = labels
        return Answer(200, {"labels": labels})

    async def interval(self, _, identifier, what, minutes):
        sandbox = self._find(identifier)
        name = {"stop": "autoStopInterval", "archive": "autoArchiveInterval", "delete": "autoDeleteInterval"}[what]
        if not re.fullmatch(r"-?\d+", minutes):
            self.fail(400, "the interval must be a number")
        sandbox.intervals[name] = int(minutes)
        return Answer(200, self._details(sandbox))

    async def activity(self, _, identifier):
        self._find(identifier).active = time.monotonic()
        return Answer(201)

    async def network(self, request, identifier):
        network = request.json()
        for name, valid in (("networkAllowList", fake_e2b.is_range), ("domainAllowList", fake_e2b.NAME.fullmatch)):
            if not all(map(valid, filter(None, network.get(name, "").split(",")))):
                self.fail(400, f"invalid entry in {name}")
        sandbox = self._find(identifier)
        sandbox.network |= {name: value for name, value in network.items() if name in self.network_settings}
        return Answer(200, self._details(sandbox))

    # Volumes.

    def _volume(self, identifier):
        for volume in self.volumes.values():
            if identifier in (volume.id, volume.name):
                return volume
        self.fail(404, f"Volume {identifier} not found")

    def _check_mount(self, wanted):
        volume, subpath = self._volume(wanted.get("volumeId")), wanted.get("subpath", "")
        if volume.state != "ready":
            self.fail(400, f"Volume '{volume.name}' is not in a ready state. Current state: {volume.state}")
        if not re.fullmatch(r"(/[\w.-]+)+", wanted.get("mountPath", "")) or ".." in subpath or subpath.startswith("/"):
            self.fail(400, "invalid mount path or subpath")
        wanted["volumeId"] = volume.id
        if not self.knows_subpath:
            wanted.pop("subpath", None)

    def _mounts(self, sandbox):
        return [(self._volume(each["volumeId"]).part(each.get("subpath", "")), each["mountPath"]) for each in sandbox.volumes]

    async def create_volume(self, request):
        name = request.json().get("name")
        if not isinstance(name, str) or not name:
            self.fail(400, "name must be a string")
        if name in [each.name for each in self.volumes.values()]:
            self.fail(409, f"Volume with name {name} already exists")
        volume = Volume(name, self.directory, self.now())
        self.volumes[volume.id] = volume

        def settle():
            volume.state = "ready"
        self.loop.call_later(self.transition_s, settle)
        return Answer(200, volume.details())

    async def list_volumes(self, _):
        return Answer(200, [volume.details() for volume in self.volumes.values()])

    async def volume(self, _, identifier):
        return Answer(200, self._volume(identifier).details())

    async def delete_volume(self, _, identifier):
        volume = self._volume(identifier)
        if any(each["volumeId"] == volume.id for sandbox in self.sandboxes.values() for each in sandbox.volumes):
            self.fail(409, f"Volume {volume.name} is in use by one or more sandboxes")
        shutil.rmtree(self.volumes.pop(volume.id).directory)
        return Answer(200)

    async def proxy_url(self, request, identifier):
        self._find(identifier)
        return Answer(200, {"url": f"{request.origin}/toolbox"})

    ROUTES = (
        ("POST", r"/sandbox", create),
        ("GET", r"/sandbox", list),
        ("GET", r"/sandbox/paginated", list_paginated),
        ("GET", r"/sandbox/([^/]+)", info),
        ("DELETE", r"/sandbox/([^/]+)", delete),
        ("POST", r"/sandbox/([^/]+)/start", start),
        ("POST", r"/sandbox/([^/]+)/stop", stop),
        ("POST", r"/sandbox/([^/]+)/archive", archive),
        ("POST", r"/sandbox/([^/]+)/pause", pause),
        ("PUT", r"/sandbox/([^/]+)/labels", labels),
        ("POST", r"/sandbox/([^/]+)/auto(stop|archive|delete)/([^/]+)", interval),
        ("POST", r"/sandbox/([^/]+)/last-activity", activity),
        ("POST", r"/sandbox/([^/]+)/network-settings", network),
        ("GET", r"/sandbox/([^/]+)/toolbox-proxy-url", proxy_url),
        ("GET", r"/volumes", list_volumes),
        ("POST", r"/volumes", create_volume),
        ("GET", r"/volumes/(?:by-name/)?([^/]+)", volume),
        ("DELETE", r"/volumes/([^/]+)", delete_volume),
    )


if __name__ == "__main__":
    fake_e2b.main(FakeDaytona)
