"""The Python client without a daemon: it requests the named object, whatever characters the name has."""

import inspect
import io
import json
import os
import pathlib
import struct
import sys
import tempfile
import unittest
import unittest.mock
import urllib.parse

import harness

sys.path.insert(0, str(harness.ROOT / "sdk"))
import moorage  # noqa: E402

HOSTILE = ("p1?purge=1", "a/../../repos/repo_1", "a#b", "a b", "ws_1%2fstop", "..", "ö\n")
NAMES = ("workspace", "exec_id", "snapshot", "fork", "repo", "best_of", "credential", "approval")


class Asked(Exception):
    pass


class Recorder(moorage.Moorage):
    """Records the path of a call."""

    def _open(self, method, path, *_, **__):
        raise Asked(path)


def calls():
    """Every method with a name in its path: (method, parameters that are names)."""
    for name, function in inspect.getmembers(moorage.Moorage, inspect.isfunction):
        taken = [p for p in inspect.signature(function).parameters if p in NAMES]
        if not name.startswith("_") and taken:
            yield name, function, taken


def asked_path(name, function, value):
    given = {}
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.name in NAMES:
            given[parameter.name] = value
        elif parameter.default is inspect.Parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            given[parameter.name] = "x"
    try:
        answer = getattr(Recorder("/nowhere"), name)(**given)
        if inspect.isgenerator(answer):
            next(answer)
    except Asked as asked:
        return asked.args[0]
    return None


class Paths(unittest.TestCase):
    def test_a_name_stays_one_path_segment(self):
        seen = 0
        for name, function, _ in calls():
            plain = asked_path(name, function, "plain")
            if plain is None or "/plain" not in plain:
                continue  # uses a query or a body, or an earlier answer
            for hostile in HOSTILE:
                with self.subTest(name, hostile=hostile):
                    path = asked_path(name, function, hostile)
                    self.assertRegex(path, r"\A[!-~]*\Z")
                    self.assertNotIn("?", path)
                    self.assertNotIn("#", path)
                    parts, expected = path.split("/"), plain.split("/")
                    self.assertEqual(len(parts), len(expected))
                    for part, was in zip(parts, expected):
                        self.assertEqual(urllib.parse.unquote(part), hostile if was == "plain" else was)
            seen += 1
        self.assertGreater(seen, 45)


class Gaps(unittest.TestCase):
    def test_a_result_says_which_output_is_missing(self):
        record = lambda kind, payload: struct.pack(">B3xI", kind, len(payload)) + payload  # noqa: E731
        mark = lambda kind, **fields: record(kind, json.dumps(fields).encode())  # noqa: E731
        body = (mark(moorage.POSITION, offset=0) + record(moorage.STDOUT, b"head") + mark(moorage.LIMIT, offset=4)
                + mark(moorage.POSITION, offset=100, gap={"bytes": 96}) + record(moorage.STDERR, b"bad") + mark(moorage.POSITION, offset=103, late_at="x")
                + record(moorage.STDOUT, b"tail") + mark(moorage.LIMIT, offset=107) + mark(moorage.END, state="exited", exit_code=0))
        response = unittest.mock.Mock(read=io.BytesIO(body).read, getheader=lambda name: "ex_1")
        client = moorage.Moorage("/nowhere")
        with unittest.mock.patch.object(client, "_open", return_value=(unittest.mock.Mock(), response)):
            result = client.exec("one", "make")
        self.assertEqual((result.stdout, result.stderr), (b"headtail", b"bad"))
        self.assertEqual(result.gaps, ((4, 100),))
        self.assertEqual(result.exit_code, 0)


class Leases(unittest.TestCase):
    def test_a_lease_acquired_by_the_cli_is_found_by_its_short_name(self):
        with tempfile.TemporaryDirectory() as state:
            kept = pathlib.Path(state) / "moorage/leases/%2Frun%2Fx.sock/ws_1.5"
            kept.parent.mkdir(parents=True)
            kept.write_text("ws_1.5.secret\n")
            for named, token in (("ws_1.5", "ws_1.5.secret"), ("ws_1.5.other", "ws_1.5.other"), ("ws_2.1", "ws_2.1"), ("5", "5"), ("", "")):
                with self.subTest(named), unittest.mock.patch.dict(os.environ, {"XDG_STATE_HOME": state, "MOORAGE_LEASE": named}):
                    self.assertEqual(moorage.Moorage("/run/x.sock").lease_token, token)


if __name__ == "__main__":
    unittest.main()
