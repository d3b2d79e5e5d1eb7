"""The assignments, positions and look-ups of a consumer for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Generator, Iterable, Mapping
from typing import Any, NoReturn, Self, TypeVar

from tidelog.admin.metadata import ClusterMetadata, cluster_id, list_topics
from tidelog.aio.callbacks import Callbacks, WakeUp
from tidelog.consumer import Consumer as BlockingConsumer
from tidelog.consumer.assigned import timeout_in_ms, times_of
from tidelog.consumer.config import CALLBACKS
from tidelog.consumer.partitions import key_of
from tidelog.message import TopicPartition
from tidelog.telemetry.instance_ids import awaited_instance_id
from tidelog.uuid import Uuid
from tidelog_foundation.transport import run_on_network

T = TypeVar("T")


class Done(Coroutine[Any, Any, T]):
    """The result of a method that takes effect when called; ``await`` returns it at once, any number of times.

    It is a coroutine, so a task can run it, but it need not be awaited.
    """

    __slots__ = ("_result",)

    def __init__(self, result: T) -> None:
        self._result = result

    def __await__(self) -> Generator[Any, None, T]:
        yield from ()
        return self._result

    def send(self, value: object) -> NoReturn:
        """End with the result."""
        raise StopIteration(self._result)

    def throw(self, *error: Any) -> NoReturn:
        """End with the error, for a task that is cancelled before its start."""
        raise error[0]

    def close(self) -> None:
        """Do nothing, because nothing is running."""


DONE = Done(None)
"""The completed result of a method that returns nothing."""


class AssignedConsumer:
    """The base of :class:`tidelog.aio.Consumer`, without reading and the group.

    Methods that need no response from the cluster take effect when they are called. Awaiting them is optional, and
    callbacks that are plain functions may call them.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._loop = asyncio.get_running_loop()
        self._callbacks = Callbacks(self._loop, "consumer")
        settings = dict(config)
        for key in settings.keys() & set(CALLBACKS):
            settings[key] = self._callbacks.wrap(settings[key])
        self._consumer = BlockingConsumer(settings)
        self._wake_up = WakeUp(self._loop)
        self._consumer._monitor.announce_to(self._wake_up.send)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop reading; see :meth:`tidelog.aio.Consumer.close`."""
        if not self._is_over:
            self._consumer._lifetime.end()
            self._consumer._queue.close()
            await self._consumer._lifetime.stop_awaited()

    def assign(self, partitions: Iterable[TopicPartition]) -> Awaitable[None]:
        """Read exactly these partitions, like :meth:`tidelog.Consumer.assign`."""
        self._consumer.assign(partitions)
        return DONE

    def incremental_assign(self, partitions: Iterable[TopicPartition]) -> Awaitable[None]:
        """Add partitions to the assignment, like :meth:`tidelog.Consumer.incremental_assign`."""
        self._consumer.incremental_assign(partitions)
        return DONE

    def incremental_unassign(self, partitions: Iterable[TopicPartition]) -> Awaitable[None]:
        """Remove partitions from the assignment, like :meth:`tidelog.Consumer.incremental_unassign`."""
        self._consumer.incremental_unassign(partitions)
        return DONE

    def unassign(self) -> Awaitable[None]:
        """Remove all partitions from the assignment."""
        self._consumer.unassign()
        return DONE

    def assignment(self) -> Awaitable[list[TopicPartition]]:
        """Return the assigned partitions."""
        return Done(self._consumer.assignment())

    def seek(self, partition: TopicPartition) -> Awaitable[None]:
        """Continue a partition at another offset, like :meth:`tidelog.Consumer.seek`."""
        self._consumer.seek(partition)
        return DONE

    def pause(self, partitions: Iterable[TopicPartition]) -> Awaitable[None]:
        """Return no messages of these partitions until :meth:`resume`, like :meth:`tidelog.Consumer.pause`."""
        self._consumer.pause(partitions)
        return DONE

    def resume(self, partitions: Iterable[TopicPartition]) -> Awaitable[None]:
        """Continue paused partitions, like :meth:`tidelog.Consumer.resume`."""
        self._consumer.resume(partitions)
        return DONE

    def position(self, partitions: Iterable[TopicPartition]) -> Awaitable[list[TopicPartition]]:
        """Return each partition with the offset after its last returned record, or OFFSET_INVALID."""
        return Done(self._consumer.position(partitions))

    async def get_watermark_offsets(
        self,
        partition: TopicPartition,
        timeout: float | None = None,  # noqa: ASYNC109
        cached: bool = False,
    ) -> tuple[int, int]:
        """Return a partition's first offset and end, like :meth:`tidelog.Consumer.get_watermark_offsets`."""
        if cached:
            return self._consumer.get_watermark_offsets(partition, timeout, cached)
        self._consumer._check_open()
        return await run_on_network(self._consumer._watermarks(key_of(partition), timeout_in_ms(timeout)))

    async def offsets_for_times(
        self,
        partitions: Iterable[TopicPartition],
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> list[TopicPartition]:
        """Return the first offsets at or after times, like :meth:`tidelog.Consumer.offsets_for_times`."""
        self._consumer._check_open()
        wanted = times_of(partitions)
        found = await run_on_network(self._consumer._list_offsets(wanted, timeout_in_ms(timeout)))
        return [TopicPartition(topic, partition, found[topic, partition].offset) for topic, partition in wanted]

    async def set_sasl_credentials(self, username: str, password: str) -> None:
        """Log in with another name and password from now on; open sessions continue.

        Raises:
            KafkaException: _INVALID_ARG, one of them is empty, or sasl.mechanisms is not PLAIN or SCRAM.
        """
        self._consumer._check_open()
        self._consumer._cluster.replace_credentials(username, password)

    async def client_instance_id(self, timeout: float) -> Uuid:  # noqa: ASYNC109
        """Return the id under which a node exports the pushed metrics; see :class:`tidelog.Consumer`."""
        return await awaited_instance_id(self._consumer._lifetime, self._consumer._telemetry, timeout)

    async def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:  # noqa: ASYNC109
        """Return the cluster's nodes and topics. Raise KafkaException if no node answers in ``timeout`` seconds."""
        self._consumer._check_open()
        return await run_on_network(list_topics(self._consumer._cluster, topic, timeout))

    async def cluster_id(self, timeout: float = -1) -> str:  # noqa: ASYNC109
        """Return the cluster's id. Raise KafkaException if no node answers in ``timeout`` seconds."""
        self._consumer._check_open()
        return await run_on_network(cluster_id(self._consumer._cluster, timeout))

    @property
    def _is_over(self) -> bool:
        return self._consumer._lifetime.is_over
