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
        try:
            await asyncio.gather(*(self._copy(kind, stream) for kind, stream in streams))
            self.result = await self.program.ended
        finally:
            self.program.close()
        await self._tell(("end", self.result))

    async def _copy(self, kind, stream):
        with contextlib.suppress(OSError):  # a terminal ends so
            while data := await stream.read(PIECE):
                await self._tell((kind, data))

    async def _tell(self, event):
        for reader in list(self.readers):
            await reader.put(event)

    async def events(self):
        """("start", None), (kind, bytes) of output from that moment on, then ("end", (exit code, signal))."""
        reader = asyncio.Queue(QUEUE)
        if self.result is None:
            self.readers.append(reader)
        else:
            reader.put_nowait(("end", self.result))
        try:
            yield "start", None
            while True:
                event = await reader.get()
                yield event
                if event[0] == "end":
                    return
        finally:
            if reader in self.readers:
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
        self.program.stdin.close()

    def resize(self, rows, columns):
        if self.program.pty is None:
            return  # it ended
        fcntl.ioctl(self.program.pty, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
