"""The limits of one request's cost to a process, measured from outside: memory, event loop time, open files."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import grpc
import grpc.aio

from tidelog_foundation.transport import open_channel

MIB = 1024**2
_IDLE_SHARE = 0.4
_WATCHED_S = 0.15
_ANSWERED_S = 60.0
Send: TypeAlias = Callable[[Callable[[], None]], Awaitable[object]]
"""Sends a request, calls the argument when all of it is sent, and returns with the answer."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The maximum cost of a request of a given size."""

    memory_bytes: int
    loop_s: float
    files: int = 8


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a request. ``loop_s`` is the most CPU time of the event loop that another request waited for."""

    name: str
    size: int
    memory_bytes: int
    loop_s: float
    files: int
    total_s: float
    is_answered: bool
    """True if the call ended, False if the process was idle without an answer or the timeout passed."""

    def excess(self, budget: Budget) -> str | None:
        """Return the figures that exceed a budget, or None."""
        above = []
        if self.memory_bytes > budget.memory_bytes:
            above.append(f"{self.memory_bytes / MIB:.0f} MiB of memory, at most {budget.memory_bytes / MIB:.0f}")
        if self.loop_s > budget.loop_s:
            above.append(f"{self.loop_s * 1000:.0f} ms of the loop at a stretch, at most {budget.loop_s * 1000:.0f}")
        if self.files > budget.files:
            above.append(f"{self.files} open files, at most {budget.files}")
        return f"{self.name}, {self.size} bytes: {'; '.join(above)}" if above else None


class Process:
    """A server's process. Its first thread runs the event loop."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._root = Path(f"/proc/{pid}")

    def loop_cpu_s(self) -> float:
        """Return the CPU time of the first thread, which is more reliable than elapsed time on a busy machine."""
        return int((self._root / "schedstat").read_text().split()[0]) / 1e9

    def busy_s(self) -> float:
        """Return the time in which threads ran or waited for a processor, since the loop may wait for one of them."""
        total = 0
        for thread in (self._root / "task").iterdir():
            # A thread may end meanwhile.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                running, waiting, _ = (thread / "schedstat").read_text().split()
                total += int(running) + int(waiting)
        return total / 1e9

    def is_runnable(self) -> bool:
        """Return whether a thread runs or waits for a processor or the disk.

        Such a wait counts only when it is over.
        """
        for thread in (self._root / "task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if (thread / "stat").read_text().rpartition(")")[2].split()[0] in ("R", "D"):
                    return True
        return False

    def forget_peak(self) -> int:
        """Reset the peak of resident memory, and return the current value."""
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
    """Sends small requests to a process repeatedly, and records how long its event loop delayed them."""

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

    async def round(self, timeout_s: float = _ANSWERED_S) -> None:
        """Wait for the answers to the current request and the next one.

        Raises:
            ConnectionError: a request has failed, as after the end of the process.
            TimeoutError: the answers have not come in time.
        """
        answers = asyncio.ensure_future(self._two_answers())
        done, _ = await asyncio.wait({answers, self._task}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        answers.cancel()
        if self._task in done:
            error = self._task.exception()
            raise ConnectionError(f"process {self._process.pid} does not answer small requests: {error!r}") from error
        if not done:
            raise TimeoutError(f"process {self._process.pid} has not answered a small request for {timeout_s} s")

    async def _two_answers(self) -> None:
        while not self._rounds.locked():
            await self._rounds.acquire()
        for _ in range(2):
            await self._rounds.acquire()

    async def stop(self) -> None:
        """Stop, and raise the error of a failed request."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


async def cost_of(process: Process, watch: Watch, name: str, size: int, send: Send, timeout_s: float = 60) -> Cost:
    """Send a request, and return the process's cost until it answers or is idle without an answer."""
    files, resident = process.files(), process.forget_peak()
    watch.longest_s = 0.0
    begun = time.monotonic()
    sent = asyncio.Event()
    call = asyncio.ensure_future(send(sent.set))
    await _wait_until_idle(process, {call}, sent, timeout_s)
    is_answered = call.done()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    if not is_answered:
        # Remaining work for this request must not count as the cost of the next one.
        await _wait_until_idle(process, set(), sent, timeout_s)
    await watch.round()
    return Cost(
        name,
        size,
        max(0, process.peak() - resident),
        watch.longest_s,
        process.files() - files,
        time.monotonic() - begun,
        is_answered,
    )


@contextlib.asynccontextmanager
async def kafka_ping(address: tuple[str, int]) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    """Yield a function that requests the API versions."""
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
    """Yield a function that requests the health status."""
    async with open_channel(address) as channel:
        call = channel.unary_unary("/grpc.health.v1.Health/Check")
        yield lambda: call(b"", timeout=60)


async def send_kafka(address: tuple[str, int], frame: bytes, note_sent: Callable[[], None]) -> None:
    """Send a frame on a new connection, and wait for an answer or the end of the connection."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.transport.set_write_buffer_limits(0)
        writer.write(struct.pack(">i", len(frame)) + frame)
        await writer.drain()
        note_sent()
        head = await reader.read(4)
        if len(head) == 4:
            remaining = int.from_bytes(head, "big")
            while remaining > 0 and (data := await reader.read(min(remaining, MIB))):
                remaining -= len(data)
    except OSError:
        pass
    finally:
        writer.transport.abort()


async def send_grpc(address: str, method: str, raw: bytes, note_sent: Callable[[], None]) -> None:
    """Send a request on a new connection, and wait for the call's first answer or its end."""
    async with open_channel(address) as channel:
        call = channel.stream_stream(method)()
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await call.write(raw)
            await call.done_writing()
            note_sent()
            await call.read()


async def _wait_until_idle(
    process: Process, calls: set[asyncio.Future[object]], sent: asyncio.Event, timeout_s: float
) -> None:
    """Return when a call has ended, or when the process has been idle for a while after the request was sent."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s and not any(call.done() for call in calls):
        before, was_sent = process.busy_s(), sent.is_set()
        await (asyncio.wait(calls, timeout=_WATCHED_S) if calls else asyncio.sleep(_WATCHED_S))
        is_quiet = process.busy_s() - before < _IDLE_SHARE * _WATCHED_S
        if was_sent and is_quiet and not process.is_runnable():
            return
