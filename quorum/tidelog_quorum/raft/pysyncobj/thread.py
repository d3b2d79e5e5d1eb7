"""Runs pysyncobj in a thread and hands its output to the event loop, in order. Only this module uses the library.

:mod:`tidelog_quorum.raft.pysyncobj.engine` describes how frames become the log. This module uses only pysyncobj's
public features: one replicated method, manual ticks, the serializer's hooks and a transport class of its own.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pysyncobj import SyncObj, SyncObjConf, SyncObjConsumer, replicated
from pysyncobj.transport import TCPTransport

from tidelog_foundation.config.endpoints import format_address
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.unexpected import report_unexpected
from tidelog_quorum.raft.core.config import RaftConfig, SnapshotConfig
from tidelog_quorum.raft.protocol import CommittedEntry, LeaderAndEpoch
from tidelog_quorum.raft.pysyncobj.log import Frame, FrameKind, LogState, read_dump, write_dump
from tidelog_quorum.raft.snapshot_age import SnapshotAge

logger = logging.getLogger(__name__)
T = TypeVar("T")

_TICK_S = 0.05
_NEVER_S = 10.0 * 365 * 86_400
_SUCCESS = 0
_LEADER = 2


@dataclass(frozen=True, slots=True)
class View:
    """The thread's view after its latest tick; commit and match indexes are pysyncobj's own."""

    commit_index: int = 0
    snapshot_index: int = -1
    match_index: Mapping[int, int] = field(default_factory=dict)


class ThreadListener(Protocol):
    """The receiver of the thread's output, in order; on the event loop unless a method says otherwise."""

    def commit(self, entries: list[CommittedEntry]) -> None:
        """Process committed entries."""

    def change_leader(self, leader: LeaderAndEpoch, next_index: int) -> None:
        """Process a new leader; ``next_index`` is the index of the first proposal when this voter leads."""

    def pass_barrier(self, barrier_id: int, index: int) -> None:
        """Process a barrier: everything committed before it was given to :meth:`commit`."""

    def capture(self) -> Iterable[bytes]:
        """Return the state after the last entry given to :meth:`commit`, in chunks."""

    def restore(self, state: LogState, chunks: Iterable[bytes]) -> Callable[[], None]:
        """Return a function that installs a snapshot's state on the event loop; called in the thread."""

    def fail(self, error: TidelogError) -> None:
        """Process the end of the thread."""


class _Commands(SyncObjConsumer):  # type: ignore[misc]  # the library has no types
    """The one replicated method; pysyncobj calls :meth:`append` to propose, and its body to apply."""

    def __init__(self, apply: Callable[[bytes], None]) -> None:
        super().__init__()
        self._apply = apply

    @replicated  # type: ignore[untyped-decorator]
    def append(self, data: bytes) -> None:
        self._apply(data)


class _Transport(TCPTransport):  # type: ignore[misc]
    """pysyncobj's transport. It also records the last contact with each voter and ignores administration commands."""

    def __init__(self, sync: Any, self_node: Any, other_nodes: Any) -> None:
        super().__init__(sync, self_node, other_nodes)
        self._sync = sync
        self.begun_s = time.monotonic()
        self.heard_at: dict[str, float] = {}
        self.caught_up_at: dict[str, float] = {}
        sync.conf.tidelog_transport = self

    def setOnUtilityMessageCallback(self, message: str, callback: Any) -> None:  # noqa: N802
        """Ignore the administration tool's commands: anybody could send them."""

    def setOnMessageReceivedCallback(self, callback: Any) -> None:  # noqa: N802
        """Record the sender, then call pysyncobj's callback."""

        def note(node: Any, message: Any) -> None:
            now = self.heard_at[node.id] = time.monotonic()
            if message.get("success") and message["next_node_idx"] > self._sync.raftCommitIndex:
                self.caught_up_at[node.id] = now
            callback(node, message)

        super().setOnMessageReceivedCallback(note)


class PySyncObjThread:
    """The thread that runs pysyncobj. Methods marked so run on the event loop; the rest, and all state, are its own."""

    def __init__(
        self,
        listener: ThreadListener,
        node_id: int,
        addresses: Mapping[int, tuple[str, int]],
        directory: Path,
        config: RaftConfig,
        snapshots: SnapshotConfig,
    ) -> None:
        self.view = View()
        self._listener = listener
        self._node_id = node_id
        self._nodes = {voter_id: format_address(*address) for voter_id, address in addresses.items()}
        self._ids = {address: voter_id for voter_id, address in self._nodes.items()}
        self._dump = directory / "snapshot"
        self._conf = _configuration(directory, self._nodes[node_id], config, self._write_dump, self._read_dump)
        self._snapshots = snapshots
        self._jobs: queue.SimpleQueue[Callable[[bool], None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="pysyncobj", daemon=True)
        self._opened: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._stopping = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._commands = _Commands(self._apply)
        self._sync: Any = None
        self._state = LogState()
        self._delivered = 0
        self._committed: list[CommittedEntry] = []
        self._announced = LeaderAndEpoch(None, 0, False)
        self._claimed_term = 0
        self._snapshot_index = -1
        self._snapshot_at = time.monotonic()
        self.snapshot_age = SnapshotAge()
        self._bytes_since_snapshot = 0

    async def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread. Call it on the event loop."""
        self._loop = loop
        self._thread.start()
        await asyncio.wrap_future(self._opened)

    def stop(self) -> None:
        """Stop the thread and wait for it; not on the loop's thread, which the thread may be waiting for."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def append(self, frame: Frame) -> None:
        """Queue a frame; any thread."""
        # If the pipe that wakes the thread is full, the thread is awake anyway, and the frame is queued.
        with contextlib.suppress(BlockingIOError):
            self._commands.append(frame.encode())

    async def run(self, job: Callable[[], T]) -> T:
        """Run a job in the thread between two ticks, and return its result. Call it on the event loop."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def do(is_over: bool) -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                if is_over:
                    raise error_for(ErrorCode.NOT_CONTROLLER, f"controller {self._node_id} has stopped")
                future.set_result(job())
            except TidelogError as error:
                future.set_exception(error)

        self._jobs.put(do)
        if not self._thread.is_alive():
            self._do_jobs(is_over=True)
        return await asyncio.wrap_future(future)

    def ages_ms(self, voter_id: int) -> tuple[int, int, int]:
        """Return the times since a voter was heard from and since it was caught up, -1 for never.

        The third one is the time since it was heard from, or else since the start of this controller.
        Call it on the event loop.
        """
        transport, now = self._conf.tidelog_transport, time.monotonic()
        times = (d.get(self._nodes[voter_id]) for d in (transport.heard_at, transport.caught_up_at))
        heard, caught_up = (-1 if t is None else int((now - t) * 1000) for t in times)
        return heard, caught_up, heard if heard >= 0 else int((now - transport.begun_s) * 1000)

    def transfer(self, to: int | None) -> bool:
        """Ask a voter to take over. Return False if it lacks entries."""
        answers: list[int] = []
        node = None if to is None else self._nodes[to]
        self._sync.transferLeadership(node, lambda _, reason: answers.append(reason))
        return answers == [_SUCCESS]

    def take_snapshot(self) -> int:
        """Take a snapshot and return its last index."""
        if self._state.last_index > self._snapshot_index:
            self._sync.forceLogCompaction()
            # One tick writes it, the next one drops the log.
            self._tick(0)
            self._tick(0)
        if self._snapshot_index < 0:
            raise error_for(ErrorCode.SNAPSHOT_NOT_FOUND, "nothing was committed yet: there is nothing to snapshot")
        return self._snapshot_index

    def _run(self) -> None:
        try:
            self._sync = SyncObj(
                self._nodes[self._node_id],
                [address for voter_id, address in self._nodes.items() if voter_id != self._node_id],
                conf=self._conf,
                consumers=[self._commands],
                transportClass=_Transport,
            )
            self._opened.set_result(None)
            while not self._stopping.is_set():
                self._do_jobs(is_over=False)
                self._tick(_TICK_S)
        except Exception as error:  # noqa: BLE001  # logged by _fail
            self._fail(error)
        finally:
            if self._sync is not None:
                self._sync.destroy()
            self._do_jobs(is_over=True)

    def _do_jobs(self, is_over: bool) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._jobs.get_nowait()(is_over)

    def _tick(self, wait_s: float) -> None:
        self._sync.doTick(wait_s)
        self._flush()
        status = self._sync.getStatus()
        self._announce(status)
        if status["state"] == _LEADER and status["raft_term"] > self._claimed_term:
            self._claimed_term = status["raft_term"]
            self.append(Frame(FrameKind.CLAIM, self._claimed_term, self._node_id))
        matches = {i: status.get(f"match_idx_server_{a}", 0) for i, a in self._nodes.items()}
        self.view = View(status["commit_idx"], self._snapshot_index, matches)
        if self._is_snapshot_due():
            self._sync.forceLogCompaction()

    def _apply(self, data: bytes) -> None:
        """Apply a frame. It must never raise: pysyncobj would apply it again forever."""
        try:
            frame = Frame.decode(data)
            self._state, entry = self._state.apply(frame)
            if frame.kind is FrameKind.BARRIER and self._state.is_led_by(frame):
                self._flush()
                self._hand_over(self._listener.pass_barrier, frame.number, self._state.last_index)
            # After another voter's snapshot, pysyncobj may apply frames a second time.
            if entry is None or entry.index <= self._delivered:
                return
            if frame.kind is FrameKind.CLAIM:
                self._flush()
                self._announce(self._sync.getStatus())
            self._delivered = entry.index
            self._bytes_since_snapshot += len(entry.payload)
            self._committed.append(entry)
        except Exception as error:  # noqa: BLE001  # reported by the engine
            self._fail(error)

    def _flush(self) -> None:
        if self._committed:
            entries, self._committed = self._committed, []
            self._hand_over(self._listener.commit, entries)

    def _announce(self, status: Mapping[str, Any]) -> None:
        """Announce pysyncobj's leader once its claim is applied; until then announce that there is none."""
        leader, term = status["leader"], max(status["raft_term"], self._state.term)
        leader_id = None if leader is None else self._ids[leader.id]
        if (leader_id, status["raft_term"]) != (self._state.leader_id, self._state.term):
            leader_id = None
        current = LeaderAndEpoch(leader_id, term, leader_id == self._node_id and status["state"] == _LEADER)
        if current != self._announced:
            self._announced = current
            self._hand_over(self._listener.change_leader, current, self._state.last_index + 1)

    def _is_snapshot_due(self) -> bool:
        if self._state.last_index <= self._snapshot_index:
            return False
        age_ms = (time.monotonic() - self._snapshot_at) * 1000
        is_old = 0 < self._snapshots.max_interval_ms <= age_ms
        return is_old or self._bytes_since_snapshot >= self._snapshots.max_bytes_between

    def _write_dump(self, path: str, data: tuple[Any, ...]) -> None:
        """Write a snapshot, which pysyncobj renames; ``data`` begins with its own last two entries, the later first."""
        try:
            self._flush()
            size = write_dump(Path(path), self._state, data[:2], self._ask_loop(self._listener.capture))
        except OSError as error:
            self._fail(error_for(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot write {path}: {error.strerror}"))
            raise
        except Exception as error:
            # pysyncobj would only record that there is no snapshot.
            self._fail(error)
            raise
        self.snapshot_age.generated(size)
        self._note_snapshot()

    def _read_dump(self, path: str) -> tuple[Any, ...]:
        """Install a snapshot, this voter's at the start or another's; return the data that pysyncobj needs of it."""
        try:
            state, entries, chunks = read_dump(Path(path))
            self.snapshot_age.loaded(Path(path).stat().st_size)
            self._state = state
            if state.last_index > self._delivered:
                self._flush()
                # Everything handed over earlier must arrive before the listener reads the snapshot.
                self._ask_loop(lambda: None)
                self._ask_loop(self._listener.restore(state, chunks))
                self._delivered = state.last_index
        except Exception as error:
            # pysyncobj logs the exception and would go on without the snapshot.
            self._fail(error)
            raise
        self._note_snapshot()
        return (*entries, set())

    def _note_snapshot(self) -> None:
        self._snapshot_index = self._state.last_index
        self._snapshot_at = time.monotonic()
        self._bytes_since_snapshot = 0

    def _ask_loop(self, function: Callable[[], T]) -> T:
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def answer() -> None:
            try:
                future.set_result(function())
            except Exception as error:  # noqa: BLE001  # raised in the thread
                future.set_exception(error)

        assert self._loop is not None
        self._loop.call_soon_threadsafe(answer)
        return future.result()

    def _hand_over(self, function: Callable[..., None], *arguments: Any) -> None:
        assert self._loop is not None

        def call() -> None:
            try:
                function(*arguments)
            except Exception as error:  # noqa: BLE001  # logged
                self._listener.fail(_as_failure(error, "the listener of the engine on pysyncobj broke its contract"))

        self._loop.call_soon_threadsafe(call)

    def _fail(self, error: Exception) -> None:
        self._stopping.set()
        failure = _as_failure(error, "the thread of pysyncobj failed unexpectedly")
        if not self._opened.done():
            self._opened.set_exception(failure)
        else:
            self._hand_over(self._listener.fail, failure)


def _configuration(
    directory: Path, address: str, config: RaftConfig, write: Callable[..., None], read: Callable[..., Any]
) -> Any:
    election_s, heartbeat_s = config.election_timeout_ms / 1000, config.heartbeat_interval_ms / 1000
    return SyncObjConf(
        autoTick=False,
        # Without it, pysyncobj listens on all interfaces.
        bindAddress=address,
        maxBindRetries=1,
        raftMinTimeout=election_s,
        raftMaxTimeout=2 * election_s,
        appendEntriesPeriod=min(heartbeat_s, election_s / 4),
        leaderFallbackTimeout=2 * election_s,
        connectionTimeout=max(3.5, 4 * election_s),
        connectionRetryTime=0.2,
        # Wakes the thread for each command instead of at the next tick.
        appendEntriesUseBatch=False,
        # A full queue would drop a command, and with it its leader's later ones; callers bound the queue instead.
        commandsQueueSize=0,
        journalFile=str(directory / "journal"),
        fullDumpFile=str(directory / "snapshot"),
        serializer=write,
        deserializer=read,
        # This module decides when to take a snapshot, by bytes and time.
        logCompactionMinEntries=2**62,
        logCompactionMinTime=_NEVER_S,
    )


def _as_failure(error: Exception, text: str) -> TidelogError:
    if isinstance(error, TidelogError):
        return error
    return report_unexpected(logger, error, text)
