"""Both clients against a scripted daemon: lost answers, cut streams, refusals, silence. Each test runs with each client."""

import asyncio
import contextlib
import io
import os
import pathlib
import resource
import signal
import tempfile
import threading
import time
import unittest
import unittest.mock

import scripted
from asynced import BothClients, moorage
from scripted import CLOSE, ERROR, LAST, STDERR, STDOUT, TERMINAL, chunk, chunked, end, output, position, record, refuse, reply

WORKSPACE = {"id": "ws_3", "name": "fix", "state": "ready"}


class Scripted(BothClients, unittest.TestCase):
    def connect(self, kind, **options):
        return kind(self.daemon.path, **options)

    def setUp(self):
        self.daemon = scripted.Daemon()
        self.addCleanup(self.daemon.close)

    async def workspace(self, client, *answers):
        """A workspace, and then the script."""
        self.daemon.answers = [reply(200, WORKSPACE), *answers]
        found = await client.get("fix")
        self.daemon.requests.clear()
        return found

    @contextlib.asynccontextmanager
    async def raises(self, kind):
        with self.assertRaises(kind) as context:
            yield context


class Commands(Scripted):
    async def test_a_command_gives_its_output_and_its_end(self, client):
        fix = await self.workspace(client, output(position(0), record(STDOUT, b"out"), record(STDERR, b"err"), end(exit_code=2)))
        result = await fix.run("make test", timeout=60, env={"A": "b"}, cwd="src", user="root")
        self.assertEqual((result.stdout, result.stderr, result.exit_code, result.ok, result.exec_id), ("out", "err", 2, False, "ex_5"))
        self.assertEqual(self.daemon.requests[0].json(), {"argv": ["bash", "-c", "make test"], "timeout_ms": 60000, "env": {"A": "b"}, "cwd": "/workspace/src", "user": "root"})
        self.assertEqual(repr(result), "<Result ex_5 exited with 2, 3 bytes of stdout, 3 of stderr>")
        for wrong in (0, -1, float("nan")):
            with self.assertRaises(ValueError):
                await fix.run("make", timeout=wrong)

    async def test_a_list_runs_without_a_shell(self, client):
        fix = await self.workspace(client, output(position(0), record(TERMINAL, b"t"), end()))
        result = (await fix.run(["make", "a b"], tty=(80, 24))).check()
        self.assertEqual((result.stdout, result.ok), ("t", True))
        self.assertEqual(self.daemon.requests[0].json(), {"argv": ["make", "a b"], "tty": {"columns": 80, "rows": 24}})

    async def test_check_raises_with_the_result(self, client):
        fix = await self.workspace(client, output(position(0), record(STDERR, b"no rule\n"), end(exit_code=2)))
        async with self.raises(moorage.CommandFailedError) as failed:
            await fix.run("make", check=True)
        self.assertIn("no rule", str(failed.exception))
        self.assertEqual(failed.exception.result.exit_code, 2)

    async def test_a_command_that_takes_too_long_carries_its_id_and_its_output(self, client):
        fix = await self.workspace(client, output(position(0), record(STDOUT, b"so far"), end("timed_out")))
        async with self.raises(TimeoutError) as late:
            await fix.run("make", timeout=1.5)
        self.assertEqual((late.exception.exec_id, late.exception.result.stdout), ("ex_5", "so far"))
        self.assertIn("1.5 s", str(late.exception))

    async def test_a_stream_yields_output_and_nothing_else(self, client):
        fix = await self.workspace(client, output(position(0), record(STDOUT, b"a\nb"), record(scripted.KEEP_ALIVE, {"notice": "waits"}), record(STDOUT, b"c\n"),
                                                  position(50, gap={"bytes": 44}), record(STDERR, b"d"), end(), Moorage_Warning="careful"))
        async with fix.stream("make") as stream:
            chunks = [chunk async for chunk in stream]
        self.assertEqual([(c.channel, c.data) for c in chunks], [("stdout", b"a\nb"), ("stdout", b"c\n"), ("stderr", b"d")])
        self.assertEqual((stream.exec_id, stream.offset, stream.gaps, stream.notices, stream.exit_code, stream.ok),
                         ("ex_5", 51, ((5, 50),), ("careful", "waits"), 0, True))

    async def test_lines_are_whole(self, client):
        fix = await self.workspace(client, output(position(0), record(STDOUT, b"a\nb"), record(STDERR, b"e\n"), record(STDOUT, b"c\nlast"), end()))
        async with fix.stream("make") as stream:
            self.assertEqual([line async for line in stream.lines()], ["a", "e", "bc", "last"])

    async def test_a_stream_that_is_left_ends_nothing(self, client):
        fix = await self.workspace(client, [chunked(Moorage_Exec="ex_5") + chunk(position(0) + record(STDOUT, b"a")), 0.2, CLOSE])
        async with fix.stream("make") as stream:
            async for _ in stream:
                break
        self.assertEqual([request.method for request in self.daemon.requests], ["POST"])
        self.assertEqual([each async for each in stream], [])


class LostConnections(Scripted):
    async def test_a_cut_stream_continues_at_its_offset(self, client):
        fix = await self.workspace(
            client, [chunked(Moorage_Exec="ex_5") + chunk(position(0) + record(STDOUT, b"abc") + record(STDOUT, b"defg")[:10]), CLOSE],
            [chunked(Moorage_Exec="ex_5") + chunk(position(1) + record(STDOUT, b"bcdef")), CLOSE],  # more than was asked for
            output(position(6), record(STDERR, b"ghi"), end()))
        result = await fix.run("make")
        self.assertEqual((result.stdout, result.stderr, result.gaps), ("abcdef", "ghi", ()))
        self.assertEqual([(r.method, r.path, r.query.get("offset")) for r in self.daemon.requests],
                         [("POST", "/v1/workspaces/ws_3/execs", None), ("GET", "/v1/execs/ex_5/output", "3"), ("GET", "/v1/execs/ex_5/output", "6")])

    async def test_a_stream_that_ends_without_an_end_is_taken_up_again(self, client):
        fix = await self.workspace(client, chunked(Moorage_Exec="ex_5") + chunk(position(0) + record(STDOUT, b"abc")) + LAST,
                                   refuse(503, "unavailable"), output(position(3), record(ERROR, {"code": "unavailable", "message": "stops"})),
                                   output(position(3), record(STDOUT, b"d"), end()))
        self.assertEqual((await fix.run("make")).stdout, "abcd")

    async def test_a_command_whose_answer_was_lost_is_started_once(self, client):
        fix = await self.workspace(client, [CLOSE], [b"HTTP/1.1 200", CLOSE], refuse(409, "conflict", "another request with this idempotency key is in progress"),
                                   output(position(0), record(STDOUT, b"once"), end()))
        self.assertEqual((await fix.run("make")).stdout, "once")
        self.assertEqual([r.method for r in self.daemon.requests], ["POST"] * 4)
        self.assertEqual(len({r.key for r in self.daemon.requests}), 1)
        self.assertTrue(self.daemon.requests[0].key)

    async def test_a_daemon_that_restarts_is_waited_for(self, client):
        fix = await self.workspace(client, [chunked(Moorage_Exec="ex_5") + chunk(position(0) + record(STDOUT, b"a")), lambda _: self.daemon.leave(), CLOSE],
                                   output(position(1), record(STDOUT, b"b"), end()))
        timer = threading.Timer(0.3, self.daemon.listen)
        timer.start()
        self.assertEqual((await fix.run("make")).stdout, "ab")
        timer.join()

    async def test_a_change_whose_answer_was_lost_is_repeated_with_its_key(self, client):
        fix = await self.workspace(client, [CLOSE], [b"HTTP/1.1 2", CLOSE], [reply(200, WORKSPACE)[:-5], CLOSE],
                                   refuse(409, "conflict", "another request with this idempotency key is in progress"), reply(200, WORKSPACE))
        await fix.start()
        self.assertEqual(len(self.daemon.requests), 5)
        self.assertEqual(len({r.key for r in self.daemon.requests}), 1)

    async def test_two_calls_have_two_keys_and_the_callers_key_is_used(self, client):
        fix = await self.workspace(client, *[reply(200, WORKSPACE)] * 3)
        await fix.start()
        await fix.start()
        await fix.start(key="mine")
        first, second, third = (r.key for r in self.daemon.requests)
        self.assertNotEqual(first, second)
        self.assertEqual(third, "mine")

    async def test_a_long_call_is_repeated_and_reports_progress(self, client):
        line = b'{"progress":{"phase":"fetch","percent":50,"text":"x"}}\n'
        self.daemon.answers = [[chunked("application/x-ndjson") + chunk(line), CLOSE],
                               chunked("application/x-ndjson") + chunk(line + b'{"res') + chunk(b'ult":{"id":"ws_3","name":"fix"}}') + LAST]
        seen = []
        fix = await client.create("https://x.example/a", name="fix", labels={"a": "b"}, limits=moorage.Limits(pids=5), progress=seen.append)
        self.assertEqual((fix.id, [p.percent for p in seen]), ("ws_3", [50, 50]))
        self.assertEqual(len({r.key for r in self.daemon.requests}), 1)
        self.assertEqual(self.daemon.requests[0].json(), {"repo_url": "https://x.example/a", "name": "fix", "labels": {"a": "b"}, "limits": {"pids": 5}})

    async def test_an_error_in_a_long_call_is_final(self, client):
        self.daemon.answers = [chunked("application/x-ndjson") + chunk(b'{"error":{"code":"already_exists","message":"in use","hint":""}}\n') + LAST]
        async with self.raises(moorage.AlreadyExistsError):
            await client.create("https://x.example/a")
        self.assertEqual(len(self.daemon.requests), 1)

    async def test_input_that_was_lost_is_sent_again_at_its_offset(self, client):
        hold = threading.Event()
        fix = await self.workspace(client, [chunked(Moorage_Exec="ex_5") + chunk(position(0)), lambda _: hold.wait(10), chunk(end()) + LAST],
                                   [CLOSE], refuse(503, "unavailable"), reply(200, {"accepted": 5}), [lambda _: hold.set(), reply(200, {"accepted": 5})])
        await fix.run("cat", input="hello")
        puts = [(r.query["offset"], r.query.get("close"), r.body) for r in self.daemon.requests if r.method == "PUT"]
        self.assertEqual(puts, [("0", None, b"hello")] * 3 + [("5", "1", b"")])

    async def test_a_command_may_end_without_reading_its_input(self, client):
        fix = await self.workspace(client, [chunked(Moorage_Exec="ex_5") + chunk(position(0)), 0.2, chunk(end()) + LAST], refuse(409, "conflict", "it has ended"))
        self.assertTrue((await fix.run("true", input=b"x")).ok)

    async def test_input_that_cannot_be_read_ends_the_command_and_is_raised(self, client):
        hold = threading.Event()
        fix = await self.workspace(client, [chunked(Moorage_Exec="ex_5") + chunk(position(0)), lambda _: hold.wait(10), chunk(end("cancelled")) + LAST],
                                   [lambda _: hold.set(), reply(204)])

        class Broken(io.RawIOBase):
            def read(self, size=-1):
                raise OSError("bad sector")

        with self.assertRaisesRegex(OSError, "bad sector"):
            await fix.run("cat", input=Broken())
        self.assertEqual([r.path for r in self.daemon.requests][1:], ["/v1/execs/ex_5/cancel"])

    async def test_events_continue_after_the_last_one(self, client):
        event = b'{"seq":%d,"at":"2026-11-21T09:12:04.512Z","kind":"x"}\n'
        self.daemon.answers = [[chunked("application/x-ndjson") + chunk(event % 1 + event % 2 + b'{"seq'), CLOSE], [chunked("application/x-ndjson") + chunk(event % 3), CLOSE]]
        seen = []
        async for one in client.events(follow=True):
            seen.append(one.seq)
            if len(seen) == 3:
                break
        self.assertEqual(seen, [1, 2, 3])
        self.assertEqual([r.query["since"] for r in self.daemon.requests], ["0", "2"])

    async def test_an_upload_is_repeated_from_its_beginning(self, client):
        fix = await self.workspace(client, [CLOSE], reply(200, {"type": "file", "size_bytes": 5, "mode": 420}))
        with tempfile.TemporaryFile() as file:
            file.write(b"xxhello")
            file.seek(2)
            await fix.files.write("a", file, mode=0o640)
        self.assertEqual([(r.body, r.query["mode"], r.headers["transfer-encoding"]) for r in self.daemon.requests], [(b"hello", "0640", "chunked")] * 2)


class Impatience(Scripted):
    def connect(self, kind, **options):
        return super().connect(kind, reconnect_s=0.2, **options)

    async def test_a_daemon_that_does_not_come_back_is_an_error_with_the_id(self, client):
        fix = await self.workspace(client, [chunked(Moorage_Exec="ex_5") + chunk(position(0) + record(STDOUT, b"a")), CLOSE], *[[CLOSE]] * 99)
        async with self.raises(moorage.UnknownOutcomeError) as lost:
            await fix.run("make")
        self.assertEqual(lost.exception.exec_id, "ex_5")
        self.assertIn('client.exec("ex_5").output(offset=1)', lost.exception.hint)


class Refusals(Scripted):
    async def test_an_answer_is_final(self, client):
        for status, code, kind in ((400, "invalid_argument", moorage.InvalidArgumentError), (404, "not_found", moorage.NotFoundError), (409, "conflict", moorage.ConflictError),
                                   (500, "internal", moorage.InternalError), (503, "unavailable", moorage.UnavailableError), (507, "resource_exhausted", moorage.ResourceExhaustedError)):
            fix = await self.workspace(client, refuse(status, code, "so"))
            async with self.raises(kind) as refused:
                await fix.start()
            self.assertEqual((refused.exception.status, refused.exception.hint, refused.exception.message), (status, "try", "so"))
            self.assertEqual(len(self.daemon.requests), 1)
            fix = await self.workspace(client, refuse(status, code))
            async with self.raises(kind):
                await fix.run("make")
            self.assertEqual(len(self.daemon.requests), 1)

    async def test_an_answer_without_json_is_quoted(self, client):
        self.daemon.answers = [reply(502, b"<h1>bad gateway</h1>")]
        async with self.raises(moorage.MoorageError) as refused:
            await client.info()
        self.assertIn("502: <h1>bad", str(refused.exception))

    async def test_retry_after_is_waited_for(self, client):
        fix = await self.workspace(client, refuse(503, "unavailable", Retry_After="1"), refuse(429, "resource_exhausted"), reply(200, WORKSPACE))
        began = time.monotonic()
        await fix.start()
        self.assertGreaterEqual(time.monotonic() - began, 1)
        self.assertEqual((len(self.daemon.requests), len({r.key for r in self.daemon.requests})), (3, 1))
        fix = await self.workspace(client, refuse(429, "resource_exhausted"), refuse(503, "unavailable", Retry_After="0"), output(position(0), end()))
        await fix.run("make")
        self.assertEqual((len(self.daemon.requests), len({r.key for r in self.daemon.requests})), (3, 1))

    async def test_a_retry_after_beyond_patience_is_an_error_at_once(self, client):
        fix = await self.workspace(client, refuse(503, "unavailable", Retry_After="900"))
        async with self.raises(moorage.UnavailableError):
            await fix.start()
        fix = await self.workspace(client, refuse(503, "unavailable", Retry_After="900"))
        async with self.raises(moorage.UnavailableError):
            await fix.run("make")

    async def test_an_unmet_condition_has_the_new_tag(self, client):
        fix = await self.workspace(client, refuse(412, "conflict", ETag='"sha256-b"'))
        async with self.raises(moorage.PreconditionFailedError) as unmet:
            await fix.files.write("a", "x", if_match='"sha256-a"')
        self.assertEqual(unmet.exception.tag, '"sha256-b"')
        self.assertEqual(self.daemon.requests[0].headers["if-match"], '"sha256-a"')

    async def test_no_daemon_is_an_error_at_once(self, client):
        self.daemon.leave()
        try:
            for call in (client.info, lambda: client.create("https://x.example/a"), lambda: client.exec("ex_5").result()):
                async with self.raises(ConnectionError) as refused:
                    await call()
                self.assertEqual(refused.exception.code, "unavailable")
                self.assertIn("is mooraged running", str(refused.exception))
        finally:
            self.daemon.listen()

    async def test_a_refusal_before_the_body_was_read_is_read(self, client):
        listening = self.daemon.directory + "/early"
        with contextlib.closing(scripted.socket.socket(scripted.socket.AF_UNIX)) as server:
            server.bind(listening)
            server.listen()

            def answer():
                connection, _ = server.accept()
                with connection:
                    connection.recv(100)
                    connection.sendall(refuse(507, "resource_exhausted", "the disk is full", Connection="close"))

            thread = threading.Thread(target=answer)
            thread.start()
            early = self.kind(listening)
            with self.assertRaises(moorage.ResourceExhaustedError):
                call = early.import_workspace(b"x" * (8 << 20))
                if asyncio.iscoroutine(call):
                    await call
            thread.join()


class Silence(Scripted):
    def connect(self, kind, **options):
        return super().connect(kind, timeout=0.3, **options)

    async def test_a_daemon_that_does_not_answer_is_a_timeout_and_the_call_is_not_repeated(self, client):
        fix = await self.workspace(client, [1.0, CLOSE])
        async with self.raises(TimeoutError) as late:
            await fix.start()
        self.assertEqual((late.exception.code, late.exception.result), ("deadline_exceeded", None))
        self.assertEqual(len(self.daemon.requests), 1)

    async def test_a_slow_answer_arrives(self, client):
        whole = reply(200, WORKSPACE)
        self.daemon.answers = [[step for at in range(0, len(whole), 25) for step in (whole[at:at + 25], 0.1)]]
        self.assertEqual((await client.get("fix")).id, "ws_3")

    async def test_a_wait_takes_as_long_as_it_was_asked_to(self, client):
        running = {"id": "ex_5", "workspace": "ws_3", "state": "running", "argv": ["x"]}
        self.daemon.answers = [[0.5, reply(200, running)], [0.2, reply(200, running)]]
        async with self.raises(TimeoutError) as late:
            await client.exec("ex_5").wait(timeout=0.6)
        self.assertEqual((late.exception.exec_id, str(late.exception)), ("ex_5", "ex_5 still runs after 0.6 s"))


class Interruptions(Scripted):
    def setUp(self):
        super().setUp()
        # A shell starts programs in the background with SIGINT ignored.
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))

    async def test_an_interruption_carries_the_id(self, client):
        fix = await self.interrupted_workspace(client)
        await self.stopped(lambda: fix.run("make"))

    async def test_an_interruption_outside_of_with_carries_the_id(self, client):
        fix = await self.interrupted_workspace(client)

        async def read():
            async for chunk in fix.stream("make"):
                self.assertEqual(chunk.data, b"a")

        await self.stopped(read)

    async def test_an_interrupted_wait_carries_the_id(self, client):
        self.task, self.loop = asyncio.current_task(), asyncio.get_running_loop()
        self.daemon.answers = [[lambda _: self.interrupt(), 5.0, CLOSE]]
        await self.stopped(client.exec("ex_5").wait, "GET")

    async def interrupted_workspace(self, client):
        self.task, self.loop = asyncio.current_task(), asyncio.get_running_loop()
        return await self.workspace(client, [chunked(Moorage_Exec="ex_5") + chunk(position(0) + record(STDOUT, b"a")), lambda _: self.interrupt(), 5.0, CLOSE])

    async def stopped(self, call, method="POST"):
        try:
            await call()
        except (moorage.Interrupted, asyncio.CancelledError) as stopped:
            self.assertEqual(type(stopped), moorage.Interrupted if self.kind is moorage.Client else asyncio.CancelledError)
            self.assertEqual(stopped.exec_id, "ex_5")
            self.task.uncancel()
        else:
            self.fail("not interrupted")
        self.assertEqual([r.method for r in self.daemon.requests], [method])  # nothing ended the command

    def interrupt(self):
        time.sleep(0.2)
        if self.kind is moorage.Client:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        else:
            self.loop.call_soon_threadsafe(self.task.cancel)

    async def test_an_interruption_between_two_pieces_of_output_carries_the_id(self, client):
        fix = await self.workspace(client, output(position(0), record(STDOUT, b"a"), end()))
        with self.assertRaises(BaseException) as stopped:
            async with fix.stream("make") as stream:
                async for _ in stream:
                    raise KeyboardInterrupt if self.kind is moorage.Client else asyncio.CancelledError
        self.assertEqual(stopped.exception.exec_id, "ex_5")

    async def test_a_limit_of_asyncio_ends_the_wait_and_not_the_command(self, client):
        if self.kind is moorage.Client:
            return
        fix = await self.workspace(client, [chunked(Moorage_Exec="ex_5") + chunk(position(0)), 2.0, CLOSE])
        with self.assertRaises(TimeoutError):
            async with asyncio.timeout(0.2):
                await fix.run("make")


class Connections(Scripted):
    async def test_calls_use_one_connection_and_closing_it_harms_nothing(self, client):
        self.daemon.answers = [reply(200, WORKSPACE) for _ in range(5)]
        for _ in range(3):
            await client.get("fix")
        self.assertEqual(self.daemon.connections, 1)
        client.close()
        await client.get("fix")
        self.assertEqual(self.daemon.connections, 2)

    async def test_a_connection_that_the_daemon_closed_is_replaced(self, client):
        self.daemon.answers = [[reply(200, WORKSPACE), CLOSE], reply(200, WORKSPACE)]
        await client.get("fix")
        await asyncio.sleep(0.1)
        await client.get("fix")
        self.assertEqual(len(self.daemon.requests), 2)

    async def test_many_calls_at_once(self, client):
        before = threading.active_count()
        self.daemon.answers = [[0.1, reply(200, WORKSPACE)] for _ in range(20)]
        if self.kind is moorage.AsyncClient:
            most = 0

            async def count():
                nonlocal most
                most = len([t for t in threading.enumerate() if t.name.startswith("asyncio")])

            await asyncio.gather(*(client.get("fix") for _ in range(20)), count())
            self.assertEqual(most, 0)
        else:
            plain = client.inner
            threads = [threading.Thread(target=plain.get, args=("fix",)) for _ in range(20)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(len(self.daemon.requests), 20)
        self.assertGreaterEqual(before, 1)

    async def test_a_full_queue_of_connections_is_waited_for(self, client):
        path = self.daemon.directory + "/full"
        with contextlib.closing(scripted.socket.socket(scripted.socket.AF_UNIX)) as server:
            server.bind(path)
            server.listen(1)

            def serve():
                time.sleep(0.2)
                for _ in range(8):
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(1000)
                        connection.sendall(reply(200, WORKSPACE, Connection="close"))

            thread = threading.Thread(target=serve)
            thread.start()
            many = self.kind(path)
            if self.kind is moorage.AsyncClient:
                await asyncio.gather(*(many.get("fix") for _ in range(8)))
            else:
                callers = [threading.Thread(target=many.get, args=("fix",)) for _ in range(8)]
                for caller in callers:
                    caller.start()
                for caller in callers:
                    caller.join()
            thread.join()  # eight connections for eight calls: none was repeated

    async def test_any_call_of_the_api(self, client):
        self.daemon.answers = [reply(200, {"new": 1})]
        self.assertEqual(await client.request("POST", "/new%20route", {"a": 1}, query={"b": True}), {"new": 1})
        self.assertEqual((self.daemon.requests[0].target, self.daemon.requests[0].json()), ("/v1/new%20route?b=1", {"a": 1}))

    async def test_a_lease_is_in_the_changes(self, client):
        for given, sent in (("ws_3.5.secret", "ws_3.5.secret"), (None, None)):
            other = self.kind(self.daemon.path, lease=given)
            self.daemon.answers, self.daemon.requests[:] = [reply(200, WORKSPACE)], []
            call = other.get("fix")
            if asyncio.iscoroutine(call):
                await call
            self.assertEqual(self.daemon.requests[0].headers.get("moorage-lease"), sent)
            other.close()


class Leases(Scripted):
    async def test_a_held_workspace_sends_its_token_and_heartbeats(self, client):
        lease = {"held": True, "generation": 5}
        fix = await self.workspace(client, reply(201, {**lease, "token": "ws_3.5.s"}), *[reply(200, lease)] * 99)
        async with fix.lease("agent", ttl_s=0.3) as held:
            self.assertEqual((held.generation, held.lost), (5, False))
            await asyncio.sleep(0.35)
            self.daemon.answers = [reply(200, WORKSPACE), reply(204)]
            await held.start()
        methods = [r.method for r in self.daemon.requests]
        self.assertIn("PUT", methods)
        self.assertEqual(methods[-1], "DELETE")
        self.assertEqual({r.headers.get("moorage-lease") for r in self.daemon.requests[1:]}, {"ws_3.5.s"})

    async def test_a_lost_lease_is_seen(self, client):
        fix = await self.workspace(client, reply(201, {"held": True, "generation": 5, "token": "t"}), refuse(409, "conflict"), refuse(409, "conflict"))
        async with fix.lease("agent", ttl_s=0.15) as held:
            for _ in range(100):
                if held.lost:
                    break
                await asyncio.sleep(0.02)
            self.assertTrue(held.lost)

    def test_a_lease_that_the_command_line_saved_is_found_by_its_short_name(self):
        with tempfile.TemporaryDirectory() as state:
            kept = pathlib.Path(state) / "moorage/leases/%2Frun%2Fx.sock/ws_1.5"
            kept.parent.mkdir(parents=True)
            kept.write_text("ws_1.5.secret\n")
            for named, token in (("ws_1.5", "ws_1.5.secret"), ("ws_1.5.other", "ws_1.5.other"), ("ws_2.1", "ws_2.1"), ("5", "5"), ("", None)):
                with self.subTest(named), unittest.mock.patch.dict(os.environ, {"XDG_STATE_HOME": state, "MOORAGE_LEASE": named}):
                    self.assertEqual(moorage.calls.lease_token("/run/x.sock", None), token)


class Trees(Scripted):
    def listing(self, *entries):
        return reply(200, {"path": "", "entries": [{"size_bytes": 0, "mode": 420, **each} for each in entries], "truncated": False})

    async def test_a_hostile_name_writes_nothing_outside(self, client):
        for name in ("../x", "..", ".", "", "a/b", "a\0b"):
            fix = await self.workspace(client, self.listing({"name": name, "type": "file"}), reply(200, b"evil"))
            with tempfile.TemporaryDirectory() as place:
                async with self.raises(moorage.CorruptedError):
                    await fix.files.download("", place + "/in")
                self.assertEqual(os.listdir(place + "/in"), [])

    async def test_a_link_is_never_followed_here(self, client):
        with tempfile.TemporaryDirectory() as place:
            outside = pathlib.Path(place, "outside")
            outside.write_text("mine")
            target = pathlib.Path(place, "in")
            target.mkdir()
            (target / "file").symlink_to(outside)
            (target / "directory").symlink_to(place)
            fix = await self.workspace(client, self.listing({"name": "file", "type": "file", "mode": 0o4755}, {"name": "link", "type": "symlink", "target": "/etc/passwd"}),
                                       reply(200, b"new"))
            await fix.files.download("", target)
            self.assertEqual((outside.read_text(), (target / "file").read_text(), (target / "file").stat().st_mode & 0o7777), ("mine", "new", 0o755))
            self.assertEqual(os.readlink(target / "link"), "/etc/passwd")
            fix = await self.workspace(client, self.listing({"name": "directory", "type": "directory"}), self.listing({"name": "outside", "type": "file"}), reply(200, b"evil"))
            async with self.raises(OSError):
                await fix.files.download("", target)
            self.assertEqual(outside.read_text(), "mine")

    async def test_a_failed_download_changes_no_file(self, client):
        file = self.listing({"name": "a", "type": "file", "mode": 0o640})
        for is_cut, failure in ((True, [chunked("application/octet-stream") + chunk(b"half"), CLOSE]), (False, refuse(404, "not_found"))):
            with tempfile.TemporaryDirectory() as place:
                top = pathlib.Path(place)
                (top / "keep").write_text("precious")
                (top / "link").symlink_to("keep")
                for name in ("keep", "link", "new"):
                    fix = await self.workspace(client, refuse(400, "invalid_argument"), file, failure)
                    async with self.raises(moorage.MoorageError):
                        await fix.files.download("a", top / name)
                    if not is_cut or name != "link":  # which is written through
                        self.assertEqual((top / "keep").read_text(), "precious")
                    self.assertEqual(sorted(os.listdir(place)), ["keep", "link"])
                    (top / "keep").write_text("precious")
                (top / "a").write_text("precious")
                fix = await self.workspace(client, file, failure)
                async with self.raises(moorage.MoorageError):
                    await fix.files.download("", top)
                self.assertEqual(((top / "a").read_text(), sorted(os.listdir(place))), ("precious", ["a", "keep", "link"]))

    async def test_a_download_replaces_a_file_and_writes_through_links_and_other_names(self, client):
        file = self.listing({"name": "a", "type": "file", "mode": 0o640})
        with tempfile.TemporaryDirectory() as place:
            top = pathlib.Path(place)
            (top / "first").write_text("old")
            os.link(top / "first", top / "second")
            (top / "link").symlink_to("first")
            for name, seen in (("second", "first"), ("link", "second"), ("alone", "alone"), ("alone", "alone")):
                fix = await self.workspace(client, refuse(400, "invalid_argument"), file, reply(200, name.encode()))
                await fix.files.download("a", top / name)
                self.assertEqual(((top / seen).read_text(), (top / seen).stat().st_mode & 0o7777), (name, 0o640))
            self.assertTrue((top / "link").is_symlink())
            self.assertEqual(sorted(os.listdir(place)), ["alone", "first", "link", "second"])

    async def test_a_download_that_cannot_be_written_leaves_nothing(self, client):
        file = self.listing({"name": "a", "type": "file", "mode": 0o640})
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.addCleanup(signal.signal, signal.SIGXFSZ, signal.signal(signal.SIGXFSZ, signal.SIG_IGN))
        fix = await self.workspace(client, refuse(400, "invalid_argument"), file, reply(200, bytes(100)))
        with tempfile.TemporaryDirectory() as place:
            resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
            try:
                with self.assertRaisesRegex(OSError, "File too large"):
                    await fix.files.download("a", pathlib.Path(place) / "a")
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)
            self.assertEqual(os.listdir(place), [])

    async def test_odd_arguments_are_refused_by_their_names_and_not_sent(self, client):
        fix = await self.workspace(client)
        files = fix.files
        invalid = moorage.InvalidArgumentError
        for call, kind, text in (
                (lambda: files.read(""), invalid, "path is empty"), (lambda: files.read("a\0b"), invalid, "path has a null character"),
                (lambda: files.read(5), TypeError, "path must be a string or a path, not 5"), (lambda: files.list("\0"), invalid, "path has a null"),
                (lambda: files.stat(None), TypeError, "path must be"), (lambda: files.remove(""), invalid, "path is empty"),
                (lambda: files.rename("a", ""), invalid, "target is empty"), (lambda: files.rename("a\0", "b"), invalid, "source has a null"),
                (lambda: files.symlink("a", "\0"), invalid, "target has a null"), (lambda: files.make_dir(None), TypeError, "path must be"),
                (lambda: files.write("a", "x", mode="755"), TypeError, "mode must be an integer like 0o644, not '755'"),
                (lambda: files.write("a", "x", mode=0o4755), invalid, "mode must be permission bits"), (lambda: files.write("a", None), TypeError, "content must be bytes"),
                (lambda: files.write("a", io.StringIO("x")), TypeError, "content must be bytes"), (lambda: files.download("a\0", "b"), invalid, "path has a null"),
                (lambda: files.upload(__file__, "a\0"), invalid, "path has a null"), (lambda: fix.run("make", timeout="5"), TypeError, "timeout must be a number of seconds, not '5'"),
                (lambda: fix.run("make", timeout=float("inf")), ValueError, "timeout must be"), (lambda: fix.run("make", cwd="a\0"), invalid, "cwd has a null"),
                (lambda: fix.run("make", cwd=5), TypeError, "cwd must be"), (lambda: fix.run("make", input=5), TypeError, "input must be bytes"),
                (lambda: client.exec("ex_5").wait(timeout="5"), TypeError, "timeout must be a number")):
            with self.assertRaisesRegex(kind, text):
                await call()
        for name in ("timeout", "reconnect_s"):
            with self.assertRaisesRegex(TypeError, f"{name} must be a number of seconds, not '5'"):
                moorage.Client(self.daemon.path, **{name: "5"})
        self.assertEqual(self.daemon.requests, [])

    async def test_a_listing_that_is_not_whole_is_an_error(self, client):
        fix = await self.workspace(client, reply(200, {"entries": [], "truncated": True}))
        async with self.raises(moorage.ResourceExhaustedError):
            await fix.files.list()

    async def test_paths_are_sent_unchanged(self, client):
        odd = os.fsdecode(b"a b/?x=1&y#z/%2e\xff\xc3\xbc+")
        fix = await self.workspace(client, reply(200, b"1"), reply(204), reply(204))
        self.assertEqual(await fix.files.read(odd), b"1")
        await fix.files.remove(odd, recursive=True)
        await fix.files.rename(odd, pathlib.PurePath("plain"))
        for request in self.daemon.requests[:2]:
            self.assertEqual(os.fsencode(request.query["path"]), os.fsencode(odd))
        self.assertRegex(self.daemon.requests[0].target, r"\A[!-~]*\Z")
        self.assertEqual(sorted(self.daemon.requests[2].json()), ["from_b64", "to"])


if __name__ == "__main__":
    unittest.main()
