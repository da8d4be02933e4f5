"""The surface of the package: every route of the API has a call, every call a text, and both clients the same calls."""

import asyncio
import dataclasses
import inspect
import io
import pathlib
import re
import typing
import unittest
import urllib.parse

import yaml
from asynced import moorage

OPENAPI = pathlib.Path(__file__).resolve().parents[2] / "docs/openapi.yaml"
PAIRS = [(getattr(moorage, name), getattr(moorage.aio, "Async" + name))
         for name in ("Client", "Workspace", "HeldWorkspace", "Exec", "Files", "OutputStream", "Repositories", "Credentials", "Approvals")]
HOSTILE = ("p1?purge=1", "a/../../repos/repo_1", "a#b", "a b", "ws_1%2fstop", "ö\n")
# Arguments that are not text, by the name of the parameter.
ARGUMENTS = {"count": 1, "names": ["n"], "command": "x", "test": "x", "places": ["https://x.example/"], "data": b"x", "name": "n", "columns": 1, "rows": 1, "bundle": b"x", "archive": b"x",
             "to": io.BytesIO(), "secret": b"x", "limits": None, "content": b"x", "holder": "h", "local": __file__}


class Asked(Exception):
    pass


class Recorder(moorage.Client):
    """Records what is requested, and answers nothing."""

    def __init__(self):
        super().__init__("/nowhere")
        self.asked = []

        def attempt(call, fresh=False):
            self.asked.append((call.method, call.root + call.path))
            raise Asked

        self._session.open = attempt


def public(kind):
    for name, member in inspect.getmembers(kind):
        if not name.startswith("_") and (name != "request" or not hasattr(kind, "metrics")) and (inspect.isfunction(member) or isinstance(member, property)):
            yield name, member


def objects(client, name="name"):
    """One of each class, about something of that name."""
    workspace = moorage.Workspace(client._session, moorage.WorkspaceInfo(id=name, name=name))
    return [client, workspace, workspace.files, client.exec(name), client.repositories, client.credentials, client.approvals]


def ask(client, target, name, function, value, **more):
    """Calls a method with this text for its texts; returns what it requested."""
    client.asked.clear()
    given = dict(more)
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.default is parameter.empty and parameter.name not in given:
            given[parameter.name] = ARGUMENTS.get(parameter.name, value) if parameter.name != "name" else value
    try:
        result = getattr(target, name)(**given)
        if isinstance(result, moorage.HeldWorkspace):
            result._session.open = target._session.open
        if hasattr(result, "__enter__"):
            result.__enter__()
        elif inspect.isgenerator(result):
            next(result)
    except Asked:
        pass
    return list(client.asked)


class Routes(unittest.TestCase):
    def test_each_route_of_the_api_has_a_call(self):
        client, asked = Recorder(), set()
        variants = ({}, {"fix": True}, {"check": True}, {"patches": [("p", b"x")]}, {"timeout": 1}, {"wait": 1})
        for target in objects(client):
            for name, function in public(type(target)):
                if isinstance(function, property):
                    continue
                for more in variants:
                    if set(more) <= set(inspect.signature(function).parameters):
                        asked.update((method, re.sub(r"/name(?=/|\Z)", "/{}", path)) for method, path in ask(client, target, name, function, "name", **more))
        held = {("DELETE", "/v1/workspaces/{}/lease")}
        expected = {(method.upper(), re.sub(r"\{\w+\}", "{}", path)) for path, item in yaml.safe_load(OPENAPI.read_text())["paths"].items()
                    for method in item if method in ("get", "post", "put", "patch", "delete")}
        self.assertGreater(len(expected), 60)
        self.assertEqual(sorted(expected - asked - held), [])
        self.assertEqual(sorted(asked - expected), [])

    def test_a_name_stays_one_segment_of_the_path(self):
        client, seen = Recorder(), 0
        plain_targets = objects(client)
        for hostile in HOSTILE:
            for plain_target, target in zip(plain_targets, objects(client, hostile)):
                for name, function in public(type(target)):
                    if isinstance(function, property):
                        continue
                    plain, asked = ask(client, plain_target, name, function, "name"), ask(client, target, name, function, hostile)
                    self.assertEqual(len(plain), len(asked))
                    for (_, was), (_, path) in zip(plain, asked):
                        self.assertRegex(path, r"\A[A-Za-z0-9_.~/%-]+\Z")
                        parts, expected = path.split("/"), was.split("/")
                        self.assertEqual(len(parts), len(expected), f"{name}: {path}")
                        for part, word in zip(parts, expected):
                            self.assertEqual(urllib.parse.unquote(part), hostile if word == "name" else word)
                            seen += word == "name"
        self.assertGreater(seen, 45 * len(HOSTILE))


class Fields(unittest.TestCase):
    """Each field of an answer in docs/openapi.yaml is in its class, and the other way around."""

    names = {"Exec": "ExecInfo", "Workspace": "WorkspaceInfo", "FileEntry": "FileInfo"}

    def setUp(self):
        self.schemas = yaml.safe_load(OPENAPI.read_text())["components"]["schemas"]
        self.seen = set()

    def resolved(self, schema):
        while "$ref" in schema:
            schema = self.schemas[schema["$ref"].rpartition("/")[2]]
        return next((self.resolved(one) for one in schema.get("oneOf", []) if one.get("type") == "object"), schema)

    def compare(self, kind, schema, place):
        schema = self.resolved(schema)
        listed = {name for name in schema["properties"] if not name.endswith("_b64")}
        fields = {key: hint for _, key, hint in moorage.decode._fields(kind)}
        self.seen.add(kind)
        self.assertEqual(listed - set(fields), set(), f"{place}: add them to {kind.__name__} in sdk/python/moorage/results/")
        for key, hint in fields.items():
            for inner in (hint, *typing.get_args(hint)):
                if dataclasses.is_dataclass(inner) and key in schema["properties"]:
                    part = self.resolved(schema["properties"][key])
                    self.compare(inner, part.get("items", part), f"{place}.{key}")

    def test_each_field_of_an_answer_is_in_its_class(self):
        for name, schema in self.schemas.items():
            kind = getattr(moorage.results, self.names.get(name, name), None)
            if kind is not None and name != "Progress":  # there it is the line around one
                self.compare(kind, schema, name)
        self.assertGreater(len(self.seen), 50)


class Surface(unittest.TestCase):
    def test_each_public_thing_has_a_text(self):
        for kind in [member for pair in PAIRS for member in pair] + [getattr(moorage, name) for name in moorage.__all__ if name[0].isupper()]:
            self.assertTrue((kind.__doc__ or "").strip(), kind)
            for name, member in public(kind):
                if kind in (moorage.FileInfo,) and isinstance(member, property):
                    continue
                self.assertTrue((member.__doc__ or "").strip(), f"{kind.__name__}.{name}")
        for name in moorage.results.__all__:
            self.assertFalse(getattr(moorage.results, name).__doc__.startswith(name + "("), name)  # what dataclass writes without one

    def test_both_clients_have_the_same_calls_with_the_same_arguments_and_texts(self):
        for plain, awaited in PAIRS:
            self.assertEqual([name for name, _ in public(plain)], [name for name, _ in public(awaited)])
            for (name, one), (_, other) in zip(public(plain), public(awaited)):
                if isinstance(one, property):
                    continue
                def shape(function):
                    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]
                self.assertEqual(shape(one), shape(other), f"{plain.__name__}.{name}")
                self.assertFalse(asyncio.iscoroutinefunction(one))
                for word in ("await ", "async ", "Async"):
                    self.assertNotIn(word, one.__doc__)

    def test_a_lost_change_can_be_repeated_by_its_caller(self):
        for plain, _ in PAIRS:
            for name, member in public(plain):
                if isinstance(member, property):
                    continue
                source = inspect.getsource(member)
                if re.search(r'"(POST|DELETE|PATCH)"', source) and not re.search(r"check_move|/test|doctor", source):
                    self.assertIn("key", inspect.signature(member).parameters, f"{plain.__name__}.{name}")


if __name__ == "__main__":
    unittest.main()
