"""Programs of a rented machine, with clients that read along: what comes while nobody reads is lost, as at a provider.

A client that reads slowly slows the program down. `retained_s` after a program's end its result can still be read.
"""

import asyncio
import contextlib
import fcntl
import struct
import termios

PIECE = 32 << 10
QUEUE = 32


class Running:
    """`kinds` names the streams: ("stdout", "stderr"), or ("pty",) for a terminal."""

    def __init__(self, program, config, tag=None, pty=False):
        self.program, self.config, self.tag, self.pty = program, config, tag, pty
        self.pid, self.result, self.readers = program.pid, None, []
        self.task = asyncio.ensure_future(self._follow())

    async def _follow(self):
        streams = [("pty", self.program.stdout)] if self.pty else \
            [("stdout", self.program.stdout), ("stderr", self.program.stderr)]
        await asyncio.gather(*(self._copy(kind, stream) for kind, stream in streams))
        self.result = await self.program.ended
        self._close_stdin()
        await self._tell(("end", self.result))

    async def _copy(self, kind, stream):
        with contextlib.suppress(OSError):  # a terminal ends so
            while data := await stream.read(PIECE):
                await self._tell((kind, data))
        stream.pipe.close()

    async def _tell(self, event):
        for reader in list(self.readers):
            await reader.put(event)

    def _close_stdin(self):
        if self.program.stdin:
            self.program.stdin.close()

    async def events(self, first=None):
        """(kind, bytes) of new output, then ("end", (exit code, signal))."""
        reader = asyncio.Queue(QUEUE)
        if self.result is not None:
            yield "end", self.result
            return
        self.readers.append(reader)
        try:
            while True:
                event = await reader.get()
                yield event
                if event[0] == "end":
                    return
        finally:
            self.readers.remove(reader)
            while not reader.empty():
                reader.get_nowait()  # the program must not wait for a client that left
                await asyncio.sleep(0)

    def has_stdin(self):
        return self.program.stdin is not None and not self.program.stdin.is_closing()

    async def input(self, data):
        self.program.stdin.write(data)
        await self.program.stdin.drain()

    def close_stdin(self):
        self._close_stdin()

    def resize(self, rows, columns):
        fcntl.ioctl(self.program.pty, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
