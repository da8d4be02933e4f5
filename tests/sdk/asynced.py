"""Writes a test once for both clients: the plain one behind the interface of the async one."""

import asyncio
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "sdk/python"))
import moorage  # noqa: E402

HANDLES = (moorage.Client, moorage.Workspace, moorage.Exec, moorage.Files, moorage.OutputStream, moorage.Repositories,
           moorage.Credentials, moorage.Approvals)


def dressed(value):
    if isinstance(value, HANDLES) or hasattr(value, "__next__"):
        return Asynced(value)
    return [dressed(each) for each in value] if isinstance(value, list) else value


class Asynced:
    """A plain object whose calls can be awaited, entered and iterated over like those of the async one."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        value = getattr(self.inner, name)
        return (lambda *args, **kwargs: Called(value(*args, **kwargs))) if callable(value) else dressed(value)

    async def __aenter__(self):
        return dressed(self.inner.__enter__())

    async def __aexit__(self, *error):
        return self.inner.__exit__(*error)

    async def __aiter__(self):
        for each in self.inner:
            yield dressed(each)


class Called(Asynced):
    """The result of a call: awaiting it gives the value."""

    def __await__(self):
        yield from ()
        return dressed(self.inner)


class BothClients:
    """A base for suites whose tests are `async def test_x(self, client)`: each runs as test_x_plain and test_x_async.

    `connect(kind)` makes the client.
    """

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        for name, test in list(vars(cls).items()):
            if name.startswith("test_") and asyncio.iscoroutinefunction(test):
                delattr(cls, name)
                setattr(cls, f"{name}_plain", lambda self, test=test: self._drive(moorage.Client, test))
                setattr(cls, f"{name}_async", lambda self, test=test: self._drive(moorage.AsyncClient, test))

    def _drive(self, kind, test):
        loop = asyncio.new_event_loop()  # asyncio.run would take SIGINT from the plain client
        try:
            loop.run_until_complete(self._run(kind, test))
            loop.run_until_complete(asyncio.sleep(0.01))  # generators that a test left
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    async def _run(self, kind, test):
        self.kind = kind
        client = self.connect(kind)
        async with (Asynced(client) if kind is moorage.Client else client) as used:
            await test(self, used)
