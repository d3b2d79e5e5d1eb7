"""What one request may cost a process, measured from outside: memory, time of the event loop, open files."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from tidelog.transport import open_channel

MIB = 1024**2
_IDLE_SHARE = 0.4
_WATCHED_S = 0.15


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that a request of so many bytes may cost."""

    memory_bytes: int
    loop_s: float
    files: int = 8


@dataclass(frozen=True, slots=True)
class Cost:
    """What a request has cost. ``loop_s`` is the most CPU time of the event loop that another request waited for."""

    name: str
    size: int
    memory_bytes: int
    loop_s: float
    files: int
    total_s: float

    def excess(self, budget: Budget) -> str | None:
        """Return what is above a budget."""
        above = []
        if self.memory_bytes > budget.memory_bytes:
            above.append(f"{self.memory_bytes / MIB:.0f} MiB of memory, at most {budget.memory_bytes / MIB:.0f}")
        if self.loop_s > budget.loop_s:
            above.append(f"{self.loop_s * 1000:.0f} ms of the loop at a stretch, at most {budget.loop_s * 1000:.0f}")
        if self.files > budget.files:
            above.append(f"{self.files} open files, at most {budget.files}")
        return f"{self.name}, {self.size} bytes: {'; '.join(above)}" if above else None


class Process:
    """A server's process. The first thread runs its event loop."""

    def __init__(self, pid: int) -> None:
        self._root = Path(f"/proc/{pid}")

    def loop_cpu_s(self) -> float:
        """Return the CPU time that the first thread has used: on a busy machine it says more than time does."""
        return int((self._root / "schedstat").read_text().split()[0]) / 1e9

    def busy_s(self) -> float:
        """Return the time in which the first thread ran or waited for a processor."""
        running, waiting, _ = (self._root / "schedstat").read_text().split()
        return (int(running) + int(waiting)) / 1e9

    def forget_peak(self) -> int:
        """Let the peak of resident memory begin anew; returns what is resident."""
        (self._root / "clear_refs").write_text("5")
        return self._status("VmRSS")

    def peak(self) -> int:
        """Return the peak of resident memory, in bytes."""
        return self._status("VmHWM")

    def files(self) -> int:
        """Return the number of open files."""
        return len(list((self._root / "fd").iterdir()))

    def _status(self, key: str) -> int:
        lines = (self._root / "status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


class Watch:
    """Asks a process for something small again and again, and notes how long its event loop made that wait."""

    def __init__(self, process: Process, ping: Callable[[], Awaitable[object]]) -> None:
        self._process = process
        self._ping = ping
        self.longest_s = 0.0
        self._rounds = asyncio.Semaphore(0)
        self._task = asyncio.create_task(self._run(), name="watch")

    async def _run(self) -> None:
        while True:
            before = self._process.loop_cpu_s()
            await self._ping()
            self.longest_s = max(self.longest_s, self._process.loop_cpu_s() - before)
            self._rounds.release()
            await asyncio.sleep(0.002)

    async def round(self) -> None:
        """Wait until what was asked so far is answered, and the next as well."""
        while not self._rounds.locked():
            await self._rounds.acquire()
        for _ in range(2):
            await self._rounds.acquire()

    async def stop(self) -> None:
        """End; raises what the process did not answer with."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


async def cost_of(
    process: Process, watch: Watch, name: str, size: int, send: Callable[[], Awaitable[object]], timeout_s: float = 60
) -> Cost:
    """Send a request; it has cost what the process did until it is answered, or is idle without an answer."""
    files, resident = process.files(), process.forget_peak()
    watch.longest_s = 0.0
    begun = time.monotonic()
    call = asyncio.ensure_future(send())
    while not call.done() and time.monotonic() - begun < timeout_s:
        before = process.busy_s()
        await asyncio.wait((call,), timeout=_WATCHED_S)
        if time.monotonic() - begun > 2 * _WATCHED_S and process.busy_s() - before < _IDLE_SHARE * _WATCHED_S:
            break
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await watch.round()
    return Cost(
        name,
        size,
        max(0, process.peak() - resident),
        watch.longest_s,
        process.files() - files,
        time.monotonic() - begun,
    )


@contextlib.asynccontextmanager
async def kafka_ping(address: tuple[str, int]) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    """Return what asks for the versions of the APIs."""
    reader, writer = await asyncio.open_connection(*address)

    async def ping() -> object:
        writer.write(struct.pack(">ihhih", 10, 18, 0, 1, -1))
        [size] = struct.unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(size)

    try:
        yield ping
    finally:
        writer.transport.abort()


@contextlib.asynccontextmanager
async def grpc_ping(address: str) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    """Return what asks for the health."""
    async with open_channel(address) as channel:
        call = channel.unary_unary("/grpc.health.v1.Health/Check")
        yield lambda: call(b"", timeout=60)


async def send_kafka(address: tuple[str, int], frame: bytes) -> None:
    """Send a frame on a connection of its own, and wait for an answer or the end of the connection."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(struct.pack(">i", len(frame)) + frame)
        head = await reader.read(4)
        if len(head) == 4:
            remaining = int.from_bytes(head, "big")
            while remaining > 0 and (data := await reader.read(min(remaining, MIB))):
                remaining -= len(data)
    except OSError:
        pass
    finally:
        writer.transport.abort()


async def send_grpc(address: str, method: str, raw: bytes) -> None:
    """Send a request on a connection of its own, and wait for the call's first answer or its end."""
    async with open_channel(address) as channel:
        call = channel.stream_stream(method)()
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await call.write(raw)
            await call.done_writing()
            await call.read()
