"""The group's committed offsets, on the network thread: it sends due commits and fetches committed offsets."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

from tidelog.cluster import Coordinators
from tidelog.cluster.answers import error_of, errors_in, group_by_topic
from tidelog.cluster.tasks import TaskSet
from tidelog.consumer.config import ConsumerConfig
from tidelog.consumer.core.commits import CommitDone, Commits, Member, OffsetAndMetadata, SendCommit
from tidelog.telemetry.sampled import Sampled
from tidelog.v1 import group_service_pb2 as pb
from tidelog.v1.common_pb2 import Error
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.transport import call_soon
from tidelog_foundation.transport.loop import monotonic_ms, step_when_due
from tidelog_foundation.waiting import watch_waits

logger = logging.getLogger(__name__)

Key = tuple[str, int]
Committed = Mapping[Key, "OffsetAndMetadata | TidelogError | None"]
"""The committed offset of each partition, None if there is none, or the error of its request."""
_ATTEMPT_MS = 5_000
"""The longest wait for a coordinator's answer. The client then finds it again, since it may be paused or replaced."""


class GroupOffsets:
    """The sender of commits. It runs from :meth:`start` to :meth:`stop` and shares ``commits`` under ``lock``.

    ``latencies`` gets the time of each commit, in milliseconds. It calls ``settle`` before it reads stored offsets, and
    ``on_auto_commit`` on the network thread with the outcome of commits that have no waiting caller.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        coordinators: Coordinators,
        commits: Commits,
        lock: threading.RLock,
        latencies: Sampled,
        settle: Callable[[], None],
        on_auto_commit: Callable[[CommitDone], None],
        log: logging.Logger | None = None,
    ) -> None:
        self._log = log or logger
        assert config.group_id is not None
        self._group_id = config.group_id
        self._config = config
        self._coordinators = coordinators
        self._commits = commits
        self._lock = lock
        self._latencies = latencies
        self._settle = settle
        self._on_auto_commit = on_auto_commit
        self._failure: TidelogError | None = None
        self._is_stopped = False
        self._waiting: dict[int, concurrent.futures.Future[CommitDone]] = {}
        self._awake = asyncio.Event()
        self._idle = asyncio.Event()
        self._tasks = TaskSet()

    async def start(self) -> None:
        """Start the task that sends commits."""
        pause_ms = self._config.retry_backoff_max_ms
        work = step_when_due(self._step, self._awake, pause_ms, "the consumer's commits")
        self._tasks.start(work, "consumer-commits")
        self._tasks.start(watch_waits("committed offsets", self._unfinished), "consumer-commit-waits")

    async def stop(self) -> None:
        """End all tasks; pending commits fail with _DESTROY."""
        await self._tasks.cancel()
        with self._lock:
            self._is_stopped = True
            waiting = list(self._waiting.values())
            self._waiting.clear()
        for future in waiting:
            future.set_exception(_closed())

    def commit(self, offsets: Mapping[Key, OffsetAndMetadata]) -> concurrent.futures.Future[CommitDone]:
        """Commit these offsets after all earlier commits. Thread-safe."""
        future: concurrent.futures.Future[CommitDone] = concurrent.futures.Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._is_stopped:
                future.set_exception(_closed())
                return future
            self._waiting[self._commits.commit(offsets, monotonic_ms())] = future
        call_soon(self._awake.set)
        return future

    async def committed(self, keys: Iterable[Key], timeout_ms: float | None = None) -> Committed:
        """Return the coordinator's committed offsets; retry if the member's epoch has just ended (KIP-848).

        Raises:
            TidelogError: the group's error, or no coordinator answered within the timeout.
        """
        wanted = list(keys)
        deadline_ms = monotonic_ms() + (self._config.request_timeout_ms if timeout_ms is None else timeout_ms)
        stale: TidelogError | None = None
        while True:
            try:
                return await self._fetch(wanted, max(deadline_ms - monotonic_ms(), 1))
            except TidelogError as error:
                if error.code is ErrorCode.REQUEST_TIMED_OUT and stale is not None:
                    # The reason for the retries says more than a timeout in the middle of an attempt.
                    raise stale from error
                if error.code is not ErrorCode.STALE_MEMBER_EPOCH or monotonic_ms() >= deadline_ms:
                    raise
                stale = error
            await asyncio.sleep(self._config.retry_backoff_ms / 1000)

    async def committed_after_commits(self, keys: Iterable[Key]) -> Committed:
        """Return the committed offsets as :meth:`committed` does, after all earlier commits have ended."""
        while True:
            with self._lock:
                if self._commits.is_idle:
                    break
                self._idle.clear()
            await self._idle.wait()
        return await self.committed(keys)

    async def _fetch(self, wanted: list[Key], timeout_ms: float) -> Committed:
        request = self._fetch_request(wanted)
        response = await self._coordinators.ask(
            self._group_id,
            lambda c, timeout_s: c.groups.OffsetFetch(request, timeout=timeout_s),
            _fetch_errors,
            timeout_ms=timeout_ms,
            attempt_ms=_ATTEMPT_MS,
        )
        for group in response.groups:
            if (error := error_of(group)) is not None:
                raise error
        found = {(t.name, p.index): _found(p) for g in response.groups for t in g.topics for p in t.partitions}
        return {key: found.get(key, _left_out(key)) for key in wanted}

    def _step(self) -> float | None:
        with self._lock:
            self._settle()
            now_ms = monotonic_ms()
            commands = self._commits.poll(now_ms)
            timer_ms = self._commits.next_timer_ms(now_ms)
            is_idle = self._commits.is_idle
            # A caller that waits for idle commits must find their callbacks queued.
            for command in commands:
                if isinstance(command, SendCommit):
                    self._tasks.start(self._send(command), f"commit-{command.commit_id}")
                else:
                    self._done(command)
        if is_idle:
            self._idle.set()
        return timer_ms

    def _unfinished(self) -> Mapping[Hashable, str]:
        with self._lock:
            reason = self._failure or "the coordinator has not answered"
            return dict.fromkeys(self._waiting, f'group "{self._group_id}": {reason}')

    def _done(self, done: CommitDone) -> None:
        future = self._waiting.pop(done.commit_id, None)
        if future is None:
            self._on_auto_commit(done)
        else:
            future.set_result(done)

    async def _send(self, command: SendCommit) -> None:
        request = _commit_request(self._group_id, self._config.group_instance_id, command)
        outcome: Mapping[Key, TidelogError | None] | TidelogError
        began_ms = monotonic_ms()
        try:
            response = await self._coordinators.ask_once(
                self._group_id,
                lambda c, timeout_s: c.groups.OffsetCommit(request, timeout=timeout_s),
                lambda r: errors_in(r.topics),
                timeout_ms=min(self._config.request_timeout_ms, _ATTEMPT_MS),
            )
            self._latencies.record(monotonic_ms() - began_ms, monotonic_ms())
            found = {(t.name, p.index): error_of(p) for t in response.topics for p in t.partitions}
            outcome = {key: found.get(key, _left_out(key)) for key in command.offsets}
        except TidelogError as error:
            outcome = error
        except Exception as error:  # noqa: BLE001 any error is logged, and the consumer continues
            self._log.exception("a commit of group %s failed", self._group_id)
            outcome = error_for(ErrorCode._FAIL, f"the consumer failed: {error!r}")
        with self._lock:
            failures = outcome.values() if isinstance(outcome, Mapping) else [outcome]
            self._failure = next((error for error in failures if error is not None), None)
            if isinstance(outcome, TidelogError):
                self._commits.failed(command.commit_id, outcome, monotonic_ms())
            else:
                self._commits.answered(command.commit_id, outcome, monotonic_ms())
        self._awake.set()

    def _fetch_request(self, keys: Iterable[Key]) -> pb.OffsetFetchRequest:
        topics = group_by_topic(keys)
        group = pb.OffsetFetchGroup(
            group_id=self._group_id,
            topics=[pb.OffsetFetchTopic(name=name, partitions=items) for name, items in topics.items()],
        )
        with self._lock:
            member: Member = self._commits.member
        if self._config.group_protocol == "consumer" and member.member_id:
            group.member_id, group.member_epoch = member.member_id, member.generation_id
        return pb.OffsetFetchRequest(groups=[group], require_stable=self._config.is_read_committed)


def _commit_request(group_id: str, instance_id: str | None, command: SendCommit) -> pb.OffsetCommitRequest:
    items = (
        pb.OffsetCommitPartition(
            index=index,
            committed_offset=what.offset,
            committed_leader_epoch=what.leader_epoch if what.leader_epoch >= 0 else None,
            committed_metadata=what.metadata,
        )
        for (_, index), what in command.offsets.items()
    )
    topics = group_by_topic(zip((name for name, _ in command.offsets), items, strict=True))
    return pb.OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=command.member.generation_id,
        member_id=command.member.member_id,
        group_instance_id=instance_id if command.member.member_id else None,
        topics=[pb.OffsetCommitTopic(name=name, partitions=items) for name, items in topics.items()],
    )


def _fetch_errors(response: pb.OffsetFetchResponse) -> Iterator[Error]:
    for group in response.groups:
        if group.HasField("error"):
            yield group.error
        yield from errors_in(group.topics)


def _found(result: pb.OffsetFetchPartitionResult) -> OffsetAndMetadata | TidelogError | None:
    if result.HasField("error"):
        return error_for(result.error.code, result.error.message)
    if result.committed_offset < 0:
        return None
    return OffsetAndMetadata(result.committed_offset, result.committed_leader_epoch, result.metadata)


def _closed() -> TidelogError:
    return error_for(ErrorCode._DESTROY, "the consumer is closed")


def _left_out(key: Key) -> TidelogError:
    text = f"the coordinator's answer does not contain {key[0]}-{key[1]}"
    return error_for(ErrorCode.NETWORK_EXCEPTION, text)
