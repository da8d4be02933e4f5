"""The protocol without sockets: answers in any pieces, records of output, JSON as dataclasses, targets of requests."""

import dataclasses
import datetime
import os
import unittest

import scripted
from asynced import moorage
from moorage import calls, decode, http1, records, results
from scripted import END, ERROR, KEEP_ALIVE, LIMIT, STDERR, STDOUT, end, position, record


def parsed(data, size, ends=False):
    parser, body = http1.AnswerParser(), b""
    for at in range(0, len(data), size):
        parser.feed(data[at:at + size])
        body += parser.take()
    if ends:
        parser.feed(b"")
    return parser, body


class Answers(unittest.TestCase):
    def test_an_answer_is_the_same_in_pieces_of_any_size(self):
        chunks = b"".join(map(scripted.chunk, (b"one", b"x" * 5000, b"\r\n"))) + b"0\r\nTrailer: x\r\n\r\n"
        whole = {scripted.reply(200, b"one" + b"x" * 5000 + b"\r\n"), scripted.chunked() + chunks, b"HTTP/1.1 100 Continue\r\n\r\n" + scripted.chunked() + chunks}
        for data in whole:
            for size in (1, 2, 3, 7, 64, len(data)):
                parser, body = parsed(data, size)
                self.assertTrue(parser.complete)
                self.assertEqual((parser.head.status, body), (200, b"one" + b"x" * 5000 + b"\r\n"))

    def test_an_answer_without_a_length_ends_with_the_connection(self):
        parser, body = parsed(b"HTTP/1.1 200 OK\r\n\r\nabc", 2, ends=True)
        self.assertEqual((parser.complete, body), (True, b"abc"))

    def test_a_cut_is_noticed_wherever_it_is(self):
        for data in (scripted.reply(200, b"abcdef"), scripted.chunked() + scripted.chunk(b"abc") + scripted.LAST):
            for size in range(len(data)):
                with self.assertRaises(http1.CutOff):
                    parsed(data[:size], max(size, 1), ends=True)

    def test_nonsense_is_refused(self):
        for data in (b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1\r\n\r\n", b"HTTP/1.1 2x0 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
                     scripted.chunked() + b"zz\r\n", b"x" * (http1.MAX_HEAD_BYTES + 1)):
            with self.assertRaises(http1.CutOff):
                parsed(data, len(data))

    def test_204_has_no_body(self):
        self.assertTrue(parsed(b"HTTP/1.1 204 No Content\r\n\r\n", 4)[0].complete)


class Targets(unittest.TestCase):
    def test_a_name_stays_one_segment(self):
        for name in ("p1?purge=1", "a/../../repos/repo_1", "a#b", "a b", "ws_1%2fstop", "...", "ö\n", os.fsdecode(b"\xff")):
            quoted = http1.segment(name)
            self.assertRegex(quoted, r"\A[A-Za-z0-9_.~%-]+\Z")
        for name in ("", ".", ".."):
            with self.assertRaises(ValueError):
                http1.segment(name)

    def test_a_query_takes_any_bytes_and_leaves_out_none(self):
        self.assertEqual(http1.target("/x", {"path": b"a\xff +&", "n": 3, "yes": True, "no": False, "none": None}),
                         "/x?path=a%FF%20%2B%26&n=3&yes=1&no=0")

    def test_no_header_has_a_line_break(self):
        for value in ("a\r\nX: y", "a\nb", "a\0b"):
            with self.assertRaises(ValueError):
                http1.request_head("GET", "/", [("Moorage-Lease", value)])


class Output(unittest.TestCase):
    def test_records_in_pieces_of_any_size_give_output_and_nothing_else(self):
        data = (position(0) + record(STDOUT, b"head") + record(LIMIT, {"offset": 4}) + record(KEEP_ALIVE) + record(KEEP_ALIVE, {"notice": "waits"})
                + position(100, gap={"bytes": 96}) + record(STDERR, b"bad") + position(103, late_at="x") + record(STDOUT, b"tail") + end(exit_code=2))
        for size in (1, 3, 8, 1000):
            parser, chunks = records.OutputParser(), []
            for at in range(0, len(data), size):
                chunks += parser.feed(data[at:at + size])
            self.assertEqual([(c.channel, c.data, c.late) for c in chunks], [("stdout", b"head", False), ("stderr", b"bad", False), ("stdout", b"tail", True)])
            self.assertEqual((parser.offset, parser.gaps, parser.truncated, parser.notices), (107, ((4, 100),), True, ["waits"]))
            self.assertEqual(parser.end.exit_code, 2)

    def test_text_has_whole_characters(self):
        parser = records.OutputParser()
        euro = "€".encode()
        chunks = parser.feed(position(0) + record(STDOUT, b"a" + euro[:2]) + record(STDERR, b"\xff") + record(STDOUT, euro[2:]))
        self.assertEqual([c.text for c in chunks], ["a", "\ufffd", "€"])

    def test_bytes_that_come_again_are_dropped(self):
        parser = records.OutputParser()
        parser.feed(position(0) + record(STDOUT, b"abcdef") + record(STDOUT, b"lost")[:10])
        parser.begin()
        chunks = parser.feed(position(2) + record(STDOUT, b"cd") + record(STDOUT, b"efgh"))
        self.assertEqual((b"".join(c.data for c in chunks), parser.offset, parser.gaps), (b"gh", 8, ()))

    def test_output_before_an_error_is_not_lost(self):
        parser = records.OutputParser()
        chunks = parser.feed(position(0) + record(STDOUT, b"a") + record(ERROR, {"code": "conflict", "message": "gone"}) + record(STDOUT, b"b"))
        self.assertEqual([c.data for c in chunks], [b"a"])
        self.assertIsInstance(parser.failed, moorage.ConflictError)

    def test_damaged_records_are_an_error(self):
        for damaged in (record(END, b"{"), record(END, b"[]"), record(POSITION := scripted.POSITION, b"3"), record(END, {"id": 5})):
            with self.assertRaises(moorage.CorruptedError):
                records.OutputParser().feed(damaged)
        self.assertTrue(POSITION)


class Decoding(unittest.TestCase):
    def test_unknown_fields_stay_in_raw(self):
        info = decode.decode(moorage.WorkspaceInfo, {"id": "ws_1", "name": "a", "colour": "blue"})
        self.assertEqual((info.id, info.raw["colour"], info.labels), ("ws_1", "blue", {}))

    def test_nested_objects_times_and_renamed_fields(self):
        event = decode.decode(results.Event, {"seq": 3, "at": "2026-11-21T09:12:04.512Z", "kind": "x", "from": "a", "to": "b"})
        self.assertEqual((event.before, event.after), ("a", "b"))
        self.assertEqual(event.at, datetime.datetime(2026, 11, 21, 9, 12, 4, 512000, datetime.timezone.utc))
        self.assertEqual(decode.decode(results.Limits, {"cpus": 2}).cpus, 2.0)
        for sent, archive in (({"file": "f", "bytes": 5}, results.Archive(file="f", bytes=5)), ("f", "f")):
            self.assertEqual(decode.decode(moorage.WorkspaceInfo, {"id": "ws_1", "archive": sent}).archive, archive)

    def test_names_that_are_not_utf8_keep_their_bytes(self):
        entry = decode.decode(moorage.FileInfo, {"name": "\ufffd", "name_b64": "/2E=", "type": "file", "mode": 420})
        self.assertEqual((os.fsencode(entry.name), entry.mode), (b"\xffa", 0o644))
        info = decode.decode(moorage.ExecInfo, {"id": "ex_1", "workspace": "ws_1", "state": "running", "argv": ["x"], "argv_b64": ["/w=="]})
        self.assertEqual(os.fsencode(info.argv[0]), b"\xff")

    def test_a_wrong_type_is_an_error_and_not_a_surprise_later(self):
        for wrong in ({"id": 5}, {"id": "ws_1", "pinned": "yes"}, {"id": "ws_1", "base": []}, {"id": "ws_1", "idle_stop_s": True}, {}, [], None):
            with self.assertRaises(moorage.CorruptedError):
                decode.decode(moorage.WorkspaceInfo, wrong)

    def test_results_are_frozen_and_say_only_what_is_known(self):
        limits = moorage.Limits(pids=5)
        self.assertEqual(repr(limits), "Limits(pids=5)")
        with self.assertRaises(dataclasses.FrozenInstanceError):
            limits.pids = 6

    def test_a_token_is_not_in_a_repr(self):
        lease = decode.decode(results.Lease, {"held": True, "generation": 5, "token": "ws_1.5.secret"})
        self.assertNotIn("secret", repr(lease))
        self.assertEqual(lease.token, "ws_1.5.secret")

    def test_words_that_are_not_utf8_are_sent_as_base64(self):
        body = {}
        decode.put_words(body, "argv", ["a", os.fsdecode(b"\xff")])
        decode.put_text(body, "cwd", b"\xfe")
        self.assertEqual(body, {"argv_b64": ["YQ==", "/w=="], "cwd_b64": "/g=="})


class Ends(unittest.TestCase):
    def test_exit_codes_are_those_of_the_command_line(self):
        table = [("exited", {"exit_code": 3}, 3), ("signalled", {"signal": 9}, 137), ("timed_out", {}, 124), ("cancelled", {}, 130), ("oom_killed", {}, 137),
                 ("interrupted", {}, 125)]
        for state, more, code in table:
            info = moorage.ExecInfo(id="ex_5", workspace="ws_3", state=state, argv=("make", "test"), **more)
            result = moorage.Result(exec=info, stdout_bytes=b"", stderr_bytes=b"why\n")
            self.assertEqual((result.exit_code, result.ok), (code, False))
            with self.assertRaises(moorage.CommandFailedError) as failed:
                result.check()
            self.assertEqual((failed.exception.exec_id, failed.exception.result), ("ex_5", result))
            self.assertIn("make test", str(failed.exception))
            self.assertIn("why", str(failed.exception))
        missing = moorage.ExecInfo(id="ex_5", workspace="ws_3", state="exited", argv=("x",), exit_code=127, error="x: command not found")
        self.assertEqual(missing.outcome, "exited with 127 (x: command not found)")


class Errors(unittest.TestCase):
    def test_each_code_of_the_api_has_a_class(self):
        import yaml
        import pathlib
        schema = yaml.safe_load((pathlib.Path(__file__).resolve().parents[2] / "docs/openapi.yaml").read_text())["components"]["schemas"]["Error"]
        codes = schema["properties"]["code"]["enum"]
        self.assertGreater(len(codes), 10)
        for code in codes:
            error = moorage.errors.error_for(code, "what", "then")
            self.assertEqual((error.code, str(error)), (code, "what\nhint: then"))
            self.assertNotEqual(type(error), moorage.MoorageError)
            self.assertIn(type(error).__name__, moorage.__all__)
        self.assertEqual(moorage.errors.error_for("new", "x").code, "new")

    def test_errors_also_have_the_usual_classes(self):
        for kind, usual in ((moorage.TimeoutError, TimeoutError), (moorage.UnavailableError, ConnectionError), (moorage.UnknownOutcomeError, OSError),
                            (moorage.Interrupted, KeyboardInterrupt), (moorage.PreconditionFailedError, moorage.ConflictError)):
            self.assertTrue(issubclass(kind, usual))


class Settings(unittest.TestCase):
    def test_a_string_is_for_the_shell_and_words_are_not(self):
        self.assertEqual(calls.argv_of("a | b"), ["bash", "-c", "a | b"])
        self.assertEqual(calls.argv_of(("a", b"\xff")), ["a", b"\xff"])
        with self.assertRaises(TypeError):
            calls.argv_of(b"ls")

    def test_a_backoff_ends(self):
        backoff = calls.Backoff(0.0)
        self.assertIsNone(backoff.pause())
        backoff = calls.Backoff(5.0)
        self.assertEqual([backoff.pause(), backoff.pause(), backoff.pause(3), backoff.pause(9)], [0.02, 0.04, 3, None])


if __name__ == "__main__":
    unittest.main()
