"""Abuse of a container engine, which is host root, through requests: rows 22 and 23. Only on Docker."""

import copy
import os
import pathlib
import random
import unittest

from threat import Threats, harness, threat

# Members of Docker's API, of Kubernetes and of compose files, and names similar to our fields.
OPTIONS = {
    "privileged": True, "Privileged": True, "capabilities": ["SYS_ADMIN"], "cap_add": ["ALL"], "CapAdd": ["ALL"], "CapDrop": [],
    "security_opt": ["seccomp=unconfined"], "SecurityOpt": ["apparmor=unconfined"], "no_new_privileges": False, "seccomp": "unconfined",
    "userns": "host", "UsernsMode": "host", "allow_privileged": True, "allowPrivilegeEscalation": True, "sudo": True, "nested_namespaces": True,
    "runAsUser": 0, "user_base": 0, "isolation": "none", "MaskedPaths": [], "ReadonlyPaths": [], "ReadonlyRootfs": False,
}
HOST_OPTIONS = {
    "binds": ["/:/host"], "Binds": ["/var/run/docker.sock:/var/run/docker.sock"], "mounts": [{"Type": "bind", "Source": "/", "Target": "/host"}],
    "Mounts": [{"Type": "bind", "Source": "/", "Target": "/host"}], "volumes": {"/": "/host"}, "Volumes": {"/host": {}}, "VolumesFrom": ["jail"],
    "HostConfig": {"Privileged": True, "Binds": ["/:/host"]}, "host_config": {}, "NetworkMode": "host", "network": "host",
    "NetworkDisabled": False, "NetworkingConfig": {}, "PidMode": "host", "pid": "host", "hostPID": True, "hostNetwork": True, "IpcMode": "host",
    "UTSMode": "host", "CgroupnsMode": "host", "CgroupParent": "/", "Devices": [{"PathOnHost": "/dev/vda", "PathInContainer": "/dev/vda"}],
    "devices": ["/dev/mem"], "DeviceCgroupRules": ["a *:* rwm"], "DeviceRequests": [{"Count": -1}], "GroupAdd": ["0"], "Sysctls": {"kernel.x": "1"},
    "Entrypoint": ["/bin/sh"], "Cmd": ["sh"], "User": "0", "Env": ["LD_PRELOAD=/workspace/x.so"], "Labels": {"moorage.store": "x"}, "docker": {},
    "engine": {"socket": "/tmp/s"}, "labels ": {}, "image\u0000": "host", "Image": "host", "Runtime": "runc", "": "x", "__proto__": {"privileged": True},
}
TRICKS = ["../../etc", "host:/", "host:/etc:/mnt", "/", "/etc", ".", "..", "../json", "a/../../../containers/json", "host\u0000", "host\n", "host\r\nHost: x",
          "host ", " host", "HOST", 'host","HostConfig":{"Privileged":true},"x":"', "host?fromSrc=-", "host#x", "host%2f..", "host\\", "\u202ehost", "-v",
          "--privileged", "container:jail", "$(id)", "`id`", ";id", "x" * 300, "/bin/sh", "runc/../../bin/sh", "runc --privileged", "docker.io/../x",
          "sha256:" + "0" * 64, "file:///etc/passwd", "oci:/etc", "http://127.0.0.1/x", "{{.Config}}", "unix:///run/docker.sock"]

# The engine's description of each of our containers, whatever was requested.
ALWAYS = {"Privileged": False, "NetworkMode": "none", "PidMode": "", "UsernsMode": "", "UTSMode": "", "IpcMode": "private", "CgroupnsMode": "private",
          "ReadonlyRootfs": True, "CapDrop": ["ALL"], "MaskedPaths": [], "ReadonlyPaths": ["/proc/sys"], "PublishAllPorts": False, "CgroupParent": ""}
NEVER = ("Binds", "Devices", "DeviceCgroupRules", "DeviceRequests", "ExtraHosts", "GroupAdd", "Links", "PortBindings", "StorageOpt", "Sysctls", "VolumesFrom")
SHOWN = {("/.moorage/warden", False), ("/.moorage/bootstrap", True)}
CAPABILITIES = set("CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE SYS_CHROOT AUDIT_WRITE SETFCAP".split())


class Requests(Threats):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        seed = int(os.environ.get("MOORAGE_TEST_SEED", random.SystemRandom().randrange(1 << 32)))
        print(f"MOORAGE_TEST_SEED={seed}")
        cls.random = random.Random(seed)

    def unusual(self, container):
        """The differences of a container from the standard."""
        told = self.engine.engine.ask("GET", f"/containers/{container}/json")
        host, config = told["HostConfig"], told["Config"]
        found = {key: host.get(key) for key, value in ALWAYS.items() if host.get(key) != value}
        found |= {key: host[key] for key in NEVER if host.get(key)}
        mounts = {(m["Destination"], m["RW"]) for m in told["Mounts"] if m["Type"] == "bind" and m["Source"].startswith(str(self.daemon.store))}
        if mounts != SHOWN or len(told["Mounts"]) != len(SHOWN):
            found["Mounts"] = told["Mounts"]
        powers = {name.removeprefix("CAP_") for name in host["CapAdd"] or ()}
        if not powers <= (CAPABILITIES if harness.HAS_ROOT else set()):
            found["CapAdd"] = host["CapAdd"]
        filters = [option for option in host["SecurityOpt"] if not option.startswith("seccomp={")]
        if filters != ([] if harness.HAS_ROOT else ["no-new-privileges"]):
            found["SecurityOpt"] = filters
        user, group = map(int, config["User"].split(":"))
        if (config["Entrypoint"], len(config["Env"])) != (["/.moorage/warden"], 1) or user != group or (user < 65536) != harness.HAS_ROOT:
            found["Config"] = config
        return found

    def containers(self):
        return [c["Id"] for c in self.engine.engine.containers(f"moorage.store=moorage-{self.daemon.store_id()}-")]

    def assert_all_is_as_ever(self, of):
        for container in self.containers():
            self.assertEqual(self.unusual(container), {}, of)

    def ask(self, path, body):
        """(status, message); accepted requests have reached the engine on return."""
        try:
            self.client.request("POST", path, json_body=body)
            return 200, ""
        except harness.raw_api.ApiError as error:
            return error.status, error.message

    def assert_the_look_can_fail(self, *changes):
        """The engine grants any request on its own socket: our last request, changed."""
        sources = [pathlib.Path(mount["Source"]) for mount in self.engine.asked["HostConfig"]["Mounts"]]
        gone = [source for source in sources if not source.exists()]  # after it has been used
        for source in gone:
            source.touch()
        for members in ({}, *changes):
            wanted = copy.deepcopy(self.engine.asked)
            wanted["HostConfig"] |= members
            made = self.engine.engine.ask("POST", "/containers/create", wanted)["Id"]
            self.assertEqual(self.unusual(made) != {}, members != {}, members)
            self.engine.engine.ask("DELETE", f"/containers/{made}")
        for source in gone:
            source.unlink()

    @threat(22, "H", "a privileged container, requested through the API",
            "no request has a field for it: refused by name, on every route that creates, moves or uses a sandbox; the engine reports each "
            "container as unprivileged, with only twelve capabilities",
            "the engine creates a privileged one for the same request on its own socket")
    def test_no_request_makes_a_privileged_container(self):
        routes = {"/workspaces": {"repo_url": self.url, "name": "strong"}, "/workspaces/jail/move": {"image": "host"},
                  "/workspaces/jail/move/check": {"image": "host"}, "/workspaces/jail/execs": {"argv": ["id"]},
                  "/workspaces/jail/fork": {"count": 1}}
        for path, body in routes.items():
            for name, value in OPTIONS.items():
                status, message = self.ask(path, body | {name: value})
                self.assertEqual((status, name in message), (400, True), f"{path} {name}: {status} {message}")
        self.assertEqual([w["name"] for w in self.client.workspaces()], ["jail"])
        self.out("true")
        self.assertEqual(len(self.containers()), 1)
        self.assert_all_is_as_ever("jail")
        self.assert_the_look_can_fail({"Privileged": True, "UsernsMode": "host"}, {"CapAdd": ["SYS_ADMIN"]}, {"CapDrop": []},
                                      {"SecurityOpt": ["seccomp=unconfined"]})

    @threat(23, "C", "the engine's socket, a host path, --privileged, the host's pid or network namespace, requested through the API",
            "no request has a field for any of them; 1,000 bodies with such fields, and with misleading names, get 4xx or 501, or change "
            "no container",
            "the engine grants each of them on its own socket, and the same check shows it")
    def test_a_thousand_bodies_change_no_container(self):
        self.out("true")
        tried = [self.unknown_fields(), self.nested_fields(), self.tricks_in_names(), self.commands()]
        self.assertGreater(sum(tried), 1_000)
        self.assert_all_is_as_ever("all")
        self.assert_the_look_can_fail({"Binds": ["/var/run:/host"]}, {"PidMode": "host", "UsernsMode": "host"}, {"Devices": HOST_OPTIONS["Devices"]},
                                      {"NetworkMode": "host", "UsernsMode": "host"}, {"Mounts": []}, {"VolumesFrom": self.containers()})

    def bodies(self):
        """A different route with a valid body each time."""
        return self.random.choice([("/workspaces", {"repo_url": self.url, "name": "fuzzed"}), ("/workspaces/jail/move", {"runtime": "runc"}),
                                   ("/workspaces/jail/move/check", {}), ("/workspaces/jail/execs", {"argv": ["true"]})])

    def unknown_fields(self):
        options = OPTIONS | HOST_OPTIONS
        for count in range(700):
            path, body = self.bodies()
            names = self.random.sample(sorted(options), self.random.randint(1, 4))
            if self.random.random() < 0.3:
                names.append("".join(chr(self.random.choice((self.random.randint(1, 0x7F), self.random.randint(0xA0, 0x2FFF)))) for _ in range(8)))
            wanted = body | {name: options.get(name, self.random.choice((True, 1, "host", [], {}))) for name in names}
            status, message = self.ask(path, dict(self.random.sample(sorted(wanted.items(), key=repr), len(wanted))))
            self.assertEqual(status, 400, f"{path} {wanted}: {message}")
        self.assertEqual([w["name"] for w in self.client.workspaces()], ["jail"])
        return count + 1

    def nested_fields(self):
        """In the objects of a request; and bodies that are not an object, or repeat a key."""
        count = 0
        for name, value in (OPTIONS | HOST_OPTIONS).items():
            for path, body in (("/workspaces", {"repo_url": self.url, "name": "fuzzed", "limits": {name: value}}),
                               ("/workspaces/jail/execs", {"argv": ["true"], "tty": {"columns": 80, "rows": 24, name: value}})):
                self.assertEqual(self.ask(path, body)[0], 400, body)
                count += 1
        for text in ('{"image":"host","image":"host:/"}', '[{"image":"host"}]', '{"runtime":"runc"}{"Privileged":true}', '{"runtime":"runc",}',
                     '{"runtime":null}', '{"image":{"name":"host"}}', '{"image":["host"]}', '{"runtime":"runc"}\u0000', '{"runtime":"\\ud800"}'):
            with self.assertRaises(harness.raw_api.ApiError) as refused:
                self.client.request("POST", "/workspaces/jail/move", body=text.encode())
            self.assertEqual(refused.exception.status, 400, text)
            count += 1
        return count

    def tricks_in_names(self):
        count = 0
        for trick in TRICKS:
            for field in ("image", "runtime", "backend"):
                for path, body in (("/workspaces", {"repo_url": self.url, "name": "fuzzed"}), ("/workspaces/jail/move", {})):
                    status, message = self.ask(path, body | {field: trick})
                    self.assertTrue(400 <= status < 500 or status == 501, f"{field} {trick!r}: {status} {message}")
                    count += 1
        # A label is stored unchanged, and is not passed to the engine.
        labels = {f"l{number}": trick for number, trick in enumerate(TRICKS)}
        for key, value in (labels | {"moorage.store": "x", "moorage.sandbox": "x", "store": "x", "com.docker.compose.project": "x"}).items():
            status, message = self.ask("/workspaces", {"repo_url": self.url, "name": "fuzzed", "labels": {key: value}})
            self.assertIn(status, (200, 400), f"{key} {value!r}: {message}")
            count += 1
            if status == 200:
                self.assert_all_is_as_ever((key, value))
                self.client.delete("fuzzed", purge=True)
        return count

    def commands(self):
        count = 0
        for trick in TRICKS:
            for body in ({"argv": [trick]}, {"argv": ["true"], "cwd": trick}, {"argv": ["true"], "user": trick}, {"argv": ["true"], "env": {"DOCKER_HOST": trick}}):
                status, message = self.ask("/workspaces/jail/execs", body)
                self.assertTrue(status == 200 or 400 <= status < 500 or status == 501, f"{body}: {status} {message}")
                count += 1
                if status == 200:
                    self.assert_all_is_as_ever(body)
        return count


if __name__ == "__main__":
    unittest.main()
